//! `sum` of integers: exact on the way, and an error where the result is beyond the range.
//!
//! DataFusion would wrap around. A sum of parts may be beyond the range where the whole is not, so
//! the parts are decimals of 38 digits: the answer does not depend on the number of threads.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Int64Type, UInt64Type};
use arrow_array::{ArrayRef, BooleanArray};
use arrow_schema::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue, exec_datafusion_err, internal_datafusion_err};
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, Expr, GroupsAccumulator, Operator,
    ReversedUDAF, SetMonotonicity, Signature, StatisticsArgs,
};

use crate::arithmetic::name_of;

/// The parts of a sum.
const PARTS: DataType = DataType::Decimal128(38, 0);

/// The function `sum`.
pub(crate) fn sum() -> AggregateUDF {
    AggregateUDF::new_from_impl(ExactSum(Sum::new()))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ExactSum(Sum);

fn is_wide(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Int64 | DataType::UInt64)
}

/// The same arguments for a sum of decimals.
fn of_parts(mut args: AccumulatorArgs<'_>) -> AccumulatorArgs<'_> {
    args.return_field = Arc::new(args.return_field.as_ref().clone().with_data_type(PARTS));
    args
}

impl AggregateUDFImpl for ExactSum {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.0.return_type(arguments)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let result = args.return_type().clone();
        match is_wide(&result) {
            true => Ok(Box::new(Exact { parts: self.0.accumulator(of_parts(args))?, result })),
            false => self.0.accumulator(args),
        }
    }

    fn state_fields(&self, mut args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        if is_wide(args.return_type()) {
            args.return_field = Arc::new(args.return_field.as_ref().clone().with_data_type(PARTS));
        }
        self.0.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.0.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        let result = args.return_type().clone();
        match is_wide(&result) {
            true => Ok(Box::new(Exact { parts: self.0.create_groups_accumulator(of_parts(args))?, result })),
            false => self.0.create_groups_accumulator(args),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let result = args.return_type().clone();
        match is_wide(&result) && !args.is_distinct {
            true => Ok(Box::new(Exact { parts: self.0.create_sliding_accumulator(of_parts(args))?, result })),
            // Only integers are implemented for distinct values of a moving frame.
            false => self.0.create_sliding_accumulator(args),
        }
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.0.order_sensitivity()
    }

    fn simplify_expr_op_literal(
        &self,
        function: &AggregateFunction,
        argument: &Expr,
        operator: Operator,
        literal: &Expr,
        is_left: bool,
    ) -> Result<Option<Expr>> {
        self.0.simplify_expr_op_literal(function, argument, operator, literal, is_left)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.0.reverse_expr()
    }

    fn value_from_stats(&self, args: &StatisticsArgs) -> Option<ScalarValue> {
        self.0.value_from_stats(args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.0.documentation()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.0.set_monotonicity(data_type)
    }
}

/// Adds integers as decimals.
#[derive(Debug)]
struct Exact<A: ?Sized> {
    result: DataType,
    parts: Box<A>,
}

impl Accumulator for Exact<dyn Accumulator> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.parts.update_batch(&widened(values)?)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let sum = self.parts.evaluate()?.to_array()?;
        ScalarValue::try_from_array(&narrowed(&sum, &self.result)?, 0)
    }

    fn size(&self) -> usize {
        size_of_val(&self.result) + self.parts.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.parts.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.parts.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.parts.retract_batch(&widened(values)?)
    }

    fn supports_retract_batch(&self) -> bool {
        self.parts.supports_retract_batch()
    }
}

impl GroupsAccumulator for Exact<dyn GroupsAccumulator> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.parts.update_batch(&widened(values)?, groups, filter, count)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        narrowed(&self.parts.evaluate(emit_to)?, &self.result)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.parts.state(emit_to)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.parts.merge_batch(states, groups, count)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        self.parts.convert_to_state(&widened(values)?, filter)
    }

    fn size(&self) -> usize {
        size_of_val(&self.result) + self.parts.size()
    }
}

fn widened(columns: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
    let widen = |column: &ArrayRef| {
        let parts = if let Some(signed) = column.as_primitive_opt::<Int64Type>() {
            signed.unary::<_, Decimal128Type>(i128::from)
        } else if let Some(unsigned) = column.as_primitive_opt::<UInt64Type>() {
            unsigned.unary::<_, Decimal128Type>(i128::from)
        } else {
            return Err(internal_datafusion_err!("a sum of {} has no parts", column.data_type()));
        };
        Ok(Arc::new(parts.with_data_type(PARTS)) as ArrayRef)
    };
    columns.iter().map(widen).collect()
}

fn narrowed(sums: &ArrayRef, result: &DataType) -> Result<ArrayRef> {
    let parts = sums
        .as_primitive_opt::<Decimal128Type>()
        .ok_or_else(|| internal_datafusion_err!("parts of a sum are {}", sums.data_type()))?;
    let beyond = |sum: i128| {
        exec_datafusion_err!(
            "a sum, {sum}, is beyond the range of {}: sum the values as DOUBLE or DECIMAL(38)",
            name_of(result)
        )
    };
    Ok(match result {
        DataType::UInt64 => {
            Arc::new(parts.try_unary::<_, UInt64Type, _>(|sum| u64::try_from(sum).map_err(|_| beyond(sum)))?)
        }
        _ => Arc::new(parts.try_unary::<_, Int64Type, _>(|sum| i64::try_from(sum).map_err(|_| beyond(sum)))?),
    })
}
