//! Arithmetic of integers as in PostgreSQL and DuckDB: beyond their range it is an error, and
//! numbers become integers by rounding.
//!
//! DataFusion would wrap sums, differences, products and negations around, and cut fractions off.
//! Decimals and intervals are checked there, and floats have infinities.

use std::sync::{Arc, LazyLock};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, Datum};
use arrow_schema::{ArrowError, DataType, Field, FieldRef};
use datafusion::arrow::compute::kernels::numeric::{add, mul, neg, sub};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{
    DFSchema, DataFusionError, Result, ScalarValue, exec_datafusion_err, internal_datafusion_err,
};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, TryCast, Volatility, cast,
};
use datafusion::optimizer::AnalyzerRule;

use crate::comparisons::with_expressions;

/// Rewrites the arithmetic of integers and casts to them, after types were made equal.
#[derive(Debug)]
pub(crate) struct ArithmeticRule;

impl AnalyzerRule for ArithmeticRule {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let rewrite_all = |expr: Expr, schema: &DFSchema| expr.transform_up(|expr| Ok(checked(expr, schema)));
        Ok(plan.transform_up_with_subqueries(|plan| with_expressions(plan, &rewrite_all))?.data)
    }

    fn name(&self) -> &'static str {
        "terrane_arithmetic"
    }
}

fn checked(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let integer = |expr: &Expr| expr.get_type(schema).ok().filter(DataType::is_integer);
    let (function, operands) = match expr {
        Expr::BinaryExpr(binary) => {
            let function = match binary.op {
                Operator::Plus => &PLUS,
                Operator::Minus => &MINUS,
                Operator::Multiply => &TIMES,
                _ => return Transformed::no(Expr::BinaryExpr(binary)),
            };
            let left = integer(&binary.left);
            if left.is_none() || left != integer(&binary.right) {
                return Transformed::no(Expr::BinaryExpr(binary));
            }
            (function, vec![*binary.left, *binary.right])
        }
        Expr::Cast(cast) if cast.field.data_type().is_integer() => {
            let expr = Box::new(rounded(*cast.expr, schema));
            return Transformed::yes(Expr::Cast(Cast { expr, ..cast }));
        }
        Expr::TryCast(cast) if cast.field.data_type().is_integer() => {
            let expr = Box::new(rounded(*cast.expr, schema));
            return Transformed::yes(Expr::TryCast(TryCast { expr, ..cast }));
        }
        Expr::Negative(operand) if integer(&operand).is_some_and(|data_type| data_type.is_signed_integer()) => {
            (&NEGATIVE, vec![*operand])
        }
        other => return Transformed::no(other),
    };
    Transformed::yes(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), operands)))
}

/// A number without a fraction. Half-way between two, a float becomes the even one, and a decimal
/// the one further from zero.
fn rounded(expr: Expr, schema: &DFSchema) -> Expr {
    match expr.get_type(schema) {
        Ok(data_type) if data_type.is_floating() => {
            Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&ROUND_EVEN), vec![expr]))
        }
        Ok(DataType::Decimal128(precision, scale)) if scale > 0 => cast(expr, DataType::Decimal128(precision, 0)),
        Ok(DataType::Decimal256(precision, scale)) if scale > 0 => cast(expr, DataType::Decimal256(precision, 0)),
        _ => expr,
    }
}

static PLUS: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| function(Operation::Plus));
static MINUS: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| function(Operation::Minus));
static TIMES: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| function(Operation::Times));
static NEGATIVE: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| function(Operation::Negative));
static ROUND_EVEN: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| function(Operation::RoundEven));

fn function(operation: Operation) -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(IntegerFunction { operation, signature }))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Operation {
    Plus,
    Minus,
    Times,
    Negative,
    /// To the nearest integer, and to the even one of two.
    RoundEven,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct IntegerFunction {
    operation: Operation,
    signature: Signature,
}

impl ScalarUDFImpl for IntegerFunction {
    fn name(&self) -> &'static str {
        match self.operation {
            Operation::Plus => "plus",
            Operation::Minus => "minus",
            Operation::Times => "times",
            Operation::Negative => "negative",
            Operation::RoundEven => "round_even",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, found: &[DataType]) -> Result<Vec<DataType>> {
        Ok(found.to_vec())
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        arguments.first().cloned().ok_or_else(|| internal_datafusion_err!("{} has no operand", self.name()))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<DataType> = args.arg_fields.iter().map(|field| field.data_type().clone()).collect();
        let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(self.name(), self.return_type(&types)?, is_nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let data_type = args.return_field.data_type();
        let is_constant = args.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let operands = args.args.iter().map(datum).collect::<Result<Vec<_>>>()?;
        let result = match (self.operation, operands.as_slice()) {
            (Operation::Plus, [left, right]) => add(left.as_ref(), right.as_ref()),
            (Operation::Minus, [left, right]) => sub(left.as_ref(), right.as_ref()),
            (Operation::Times, [left, right]) => mul(left.as_ref(), right.as_ref()),
            (Operation::Negative, [operand]) => neg(operand.get().0),
            (Operation::RoundEven, [operand]) => round_even(operand.get().0),
            _ => return Err(internal_datafusion_err!("{} has {} operands", self.name(), operands.len())),
        };
        let result = result.map_err(|error| beyond(error, data_type))?;
        match is_constant {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?)),
            false => Ok(ColumnarValue::Array(result)),
        }
    }
}

fn round_even(floats: &dyn Array) -> Result<ArrayRef, ArrowError> {
    if let Some(floats) = floats.as_primitive_opt::<Float64Type>() {
        return Ok(Arc::new(floats.unary::<_, Float64Type>(f64::round_ties_even)));
    }
    if let Some(floats) = floats.as_primitive_opt::<Float32Type>() {
        return Ok(Arc::new(floats.unary::<_, Float32Type>(f32::round_ties_even)));
    }
    Err(ArrowError::InvalidArgumentError(format!("{} is not rounded", floats.data_type())))
}

fn datum(value: &ColumnarValue) -> Result<Box<dyn Datum>> {
    Ok(match value {
        ColumnarValue::Array(array) => Box::new(Arc::clone(array)),
        ColumnarValue::Scalar(scalar) => Box::new(scalar.to_scalar()?),
    })
}

fn beyond(error: ArrowError, data_type: &DataType) -> DataFusionError {
    match error {
        ArrowError::ArithmeticOverflow(text) => {
            let term = text.trim_start_matches("Overflow happened on: ");
            exec_datafusion_err!(
                "{term} is beyond the range of {}: cast it to DOUBLE or DECIMAL(38)",
                name_of(data_type)
            )
        }
        other => DataFusionError::ArrowError(Box::new(other), None),
    }
}

/// The name of a type of integers in SQL.
pub(crate) fn name_of(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Int8 => "TINYINT",
        DataType::Int16 => "SMALLINT",
        DataType::Int32 => "INTEGER",
        DataType::Int64 => "BIGINT",
        DataType::UInt8 => "TINYINT UNSIGNED",
        DataType::UInt16 => "SMALLINT UNSIGNED",
        DataType::UInt32 => "INTEGER UNSIGNED",
        DataType::UInt64 => "BIGINT UNSIGNED",
        _ => "its type",
    }
}
