//! Comparisons as in PostgreSQL, and as the engine's conditions make them.
//!
//! The two zeros are equal. NaN equals NaN and is greatest. Integers and floats are compared by
//! their exact values, and a float32 with a literal rounded to float32. DataFusion would order
//! floats by their bits, and cast integers to floats.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow_array::builder::Int64Builder;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ExprSchema, Result, ScalarValue, internal_datafusion_err};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::expr::{InList, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Between, BinaryExpr, Cast, ColumnarValue, Expr, ExprSchemable, Join, LogicalPlan, Operator, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, TryCast, Volatility, cast, lit,
};
use datafusion::optimizer::AnalyzerRule;

use crate::functions::SpatialFunction;

/// Rewrites comparisons of numbers, before types are made equal.
#[derive(Debug)]
pub(crate) struct NumberRule;

impl AnalyzerRule for NumberRule {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok(plan.transform_up_with_subqueries(rewrite_plan)?.data)
    }

    fn name(&self) -> &'static str {
        "terrane_numbers"
    }
}

fn rewrite_plan(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let plan = match plan {
        LogicalPlan::Join(join) => LogicalPlan::Join(free_mixed_keys(join)?),
        other => other,
    };
    with_expressions(plan, &rewrite)
}

/// Rewrites the expressions of one node of a plan, which keep their names.
pub(crate) fn with_expressions(
    plan: LogicalPlan,
    rewrite: &dyn Fn(Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&plan.inputs());
    let names = NamePreserver::new(&plan);
    let rewritten = plan.map_expressions(|expr| {
        let name = names.save(&expr);
        Ok(rewrite(expr, &schema)?.update_data(|expr| name.restore(expr)))
    })?;
    match rewritten.transformed {
        true => rewritten.map_data(LogicalPlan::recompute_schema),
        false => Ok(rewritten),
    }
}

/// Makes conditions of those keys of a join that are an integer on one side and a float on the
/// other.
fn free_mixed_keys(mut join: Join) -> Result<Join> {
    let (left, right) = (join.left.schema().clone(), join.right.schema().clone());
    let is_mixed = |keys: &(Expr, Expr)| {
        let (Some(left), Some(right)) = (kind_of(&keys.0, &left), kind_of(&keys.1, &right)) else { return false };
        left.is_mixed_with(right)
    };
    let (mixed, kept): (Vec<_>, Vec<_>) = join.on.into_iter().partition(is_mixed);
    join.on = kept;
    for (left, right) in mixed {
        let equal = left.eq(right);
        join.filter = Some(match join.filter {
            Some(filter) => filter.and(equal),
            None => equal,
        });
    }
    Ok(join)
}

/// Rewrites an expression from its root.
fn rewrite(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    expr.transform_up(|expr| rewrite_node(expr, schema))
}

fn rewrite_node(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    Ok(match expr {
        Expr::Literal(value, metadata) => match plain_literal(&value) {
            Some(plain) => Transformed::yes(Expr::Literal(plain, metadata)),
            None => Transformed::no(Expr::Literal(value, metadata)),
        },
        Expr::BinaryExpr(binary) if is_comparison(binary.op) => compared(binary, schema),
        Expr::Between(between) if needs_care(&[&between.expr, &between.low, &between.high], schema) => {
            let Between { expr, negated, low, high } = between;
            let above = compared(BinaryExpr::new(expr.clone(), Operator::GtEq, low), schema).data;
            let below = compared(BinaryExpr::new(expr, Operator::LtEq, high), schema).data;
            let both = above.and(below);
            Transformed::yes(if negated { Expr::Not(Box::new(both)) } else { both })
        }
        Expr::InList(list) if list.list.iter().any(|item| needs_care(&[&list.expr, item], schema)) => {
            let InList { expr, list, negated } = list;
            let equal = |item| compared(BinaryExpr::new(expr.clone(), Operator::Eq, Box::new(item)), schema).data;
            let mut terms: Vec<Expr> = list.into_iter().map(equal).collect();
            let any = either(&mut terms);
            Transformed::yes(if negated { Expr::Not(Box::new(any)) } else { any })
        }
        other if makes_float(&other, schema) => Transformed::yes(plain(other)),
        other => Transformed::no(other),
    })
}

/// The alternatives as a balanced tree.
fn either(terms: &mut Vec<Expr>) -> Expr {
    match terms.len() {
        0 | 1 => terms.pop().unwrap_or_else(|| lit(false)),
        length => {
            let mut others = terms.split_off(length / 2);
            either(terms).or(either(&mut others))
        }
    }
}

/// How values of a type are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NumberKind {
    Integer,
    Float32,
    Float64,
}

impl NumberKind {
    fn is_mixed_with(self, other: Self) -> bool {
        (self == Self::Integer) != (other == Self::Integer)
    }
}

fn kind_of(expr: &Expr, schema: &dyn ExprSchema) -> Option<NumberKind> {
    if let Expr::Case(case) = expr {
        // Its type is that of the first branch until types are made equal.
        let branches = case.when_then_expr.iter().map(|(_, then)| then).chain(&case.else_expr);
        let mut kinds = branches.filter_map(|branch| kind_of(branch, schema));
        let first = kinds.next()?;
        return Some(if kinds.all(|kind| kind == first) { first } else { NumberKind::Float64 });
    }
    match expr.get_type(schema).ok()? {
        DataType::Float64 => Some(NumberKind::Float64),
        DataType::Float32 => Some(NumberKind::Float32),
        other if other.is_integer() => Some(NumberKind::Integer),
        _ => None,
    }
}

fn is_comparison(operator: Operator) -> bool {
    use Operator as O;
    matches!(operator, O::Eq | O::NotEq | O::Lt | O::LtEq | O::Gt | O::GtEq | O::IsDistinctFrom | O::IsNotDistinctFrom)
}

/// Whether the first of some numbers has another kind than one of the others.
fn needs_care(exprs: &[&Expr], schema: &DFSchema) -> bool {
    let [first, others @ ..] = exprs else { return false };
    let Some(first) = kind_of(first, schema) else { return false };
    others.iter().any(|other| kind_of(other, schema).is_some_and(|other| other != first))
}

fn compared(binary: BinaryExpr, schema: &DFSchema) -> Transformed<Expr> {
    let unchanged = |binary| Transformed::no(Expr::BinaryExpr(binary));
    let (Some(left), Some(right)) = (kind_of(&binary.left, schema), kind_of(&binary.right, schema)) else {
        return unchanged(binary);
    };
    let BinaryExpr { left: left_expr, op, right: right_expr } = binary;
    match (left, right) {
        (NumberKind::Float32, _)
            if right != left
                && let Some(rounded) = rounded(&right_expr) =>
        {
            Transformed::yes(Expr::BinaryExpr(BinaryExpr::new(left_expr, op, Box::new(rounded))))
        }
        (_, NumberKind::Float32)
            if right != left
                && let Some(rounded) = rounded(&left_expr) =>
        {
            Transformed::yes(Expr::BinaryExpr(BinaryExpr::new(Box::new(rounded), op, right_expr)))
        }
        // Nulls are not distinct from each other, which an order of them cannot tell.
        _ if left.is_mixed_with(right) && !matches!(op, Operator::IsDistinctFrom | Operator::IsNotDistinctFrom) => {
            let (first, second) = match left {
                NumberKind::Integer => (left_expr, right_expr),
                _ => (right_expr, left_expr),
            };
            let order = Expr::ScalarFunction(ScalarFunction::new_udf(order_function(), vec![*first, *second]));
            let op = if left == NumberKind::Integer { op } else { op.swap().unwrap_or(op) };
            Transformed::yes(Expr::BinaryExpr(BinaryExpr::new(Box::new(order), op, Box::new(lit(0_i64)))))
        }
        _ => unchanged(BinaryExpr::new(left_expr, op, right_expr)),
    }
}

/// A literal rounded to float32, if it is within range. A parameter whose value is open is within
/// range, as others are not filled in: [`is_within_float32`].
fn rounded(expr: &Expr) -> Option<Expr> {
    if let Expr::Placeholder(_) = expr {
        return Some(cast(expr.clone(), DataType::Float32));
    }
    let Expr::Literal(value, metadata) = expr else { return None };
    let float = match value {
        ScalarValue::Float64(Some(value)) => *value as f32,
        ScalarValue::Int64(Some(value)) => *value as f32,
        ScalarValue::UInt64(Some(value)) => *value as f32,
        _ => return None,
    };
    is_within_float32(value).then(|| Expr::Literal(ScalarValue::Float32(Some(float)), metadata.clone()))
}

/// Whether a number stays finite as float32, or is infinite.
pub(crate) fn is_within_float32(value: &ScalarValue) -> bool {
    match value {
        ScalarValue::Float64(Some(value)) => value.is_infinite() || !(*value as f32).is_infinite(),
        _ => true,
    }
}

/// The form of a literal in which equal values have equal bits, if it is another one.
pub(crate) fn plain_literal(value: &ScalarValue) -> Option<ScalarValue> {
    match value {
        ScalarValue::Float64(Some(float)) if plain64(*float).to_bits() != float.to_bits() => {
            Some(ScalarValue::Float64(Some(plain64(*float))))
        }
        ScalarValue::Float32(Some(float)) if plain32(*float).to_bits() != float.to_bits() => {
            Some(ScalarValue::Float32(Some(plain32(*float))))
        }
        _ => None,
    }
}

fn plain64(float: f64) -> f64 {
    if float.is_nan() { f64::NAN } else { float + 0.0 }
}

fn plain32(float: f32) -> f32 {
    if float.is_nan() { f32::NAN } else { float + 0.0 }
}

/// A column whose equal floats have equal bits: one zero, and one NaN.
pub(crate) fn plain_floats(array: &ArrayRef) -> ArrayRef {
    if let Some(floats) = array.as_primitive_opt::<Float64Type>()
        && floats.values().iter().any(|float| plain64(*float).to_bits() != float.to_bits())
    {
        return Arc::new(floats.unary::<_, Float64Type>(plain64));
    }
    if let Some(floats) = array.as_primitive_opt::<Float32Type>()
        && floats.values().iter().any(|float| plain32(*float).to_bits() != float.to_bits())
    {
        return Arc::new(floats.unary::<_, Float32Type>(plain32));
    }
    array.clone()
}

/// Whether an expression may give a zero or a NaN with other bits.
fn makes_float(expr: &Expr, schema: &DFSchema) -> bool {
    let may = match expr {
        Expr::BinaryExpr(binary) => matches!(binary.op, Operator::Multiply | Operator::Divide | Operator::Modulo),
        Expr::Negative(_) => true,
        Expr::Cast(Cast { expr, .. }) | Expr::TryCast(TryCast { expr, .. }) => {
            expr.get_type(schema).is_ok_and(|data_type| data_type.is_string())
        }
        Expr::ScalarFunction(call) => {
            let inner: &dyn std::any::Any = call.func.inner().as_ref();
            inner.downcast_ref::<SpatialFunction>().is_none() && inner.downcast_ref::<NumberFunction>().is_none()
        }
        _ => false,
    };
    may && matches!(expr.get_type(schema), Ok(DataType::Float64 | DataType::Float32))
}

fn plain(expr: Expr) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(function(NumberFunctionKind::Plain), vec![expr]))
}

/// The functions that comparisons are rewritten to.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct NumberFunction {
    kind: NumberFunctionKind,
    signature: Signature,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum NumberFunctionKind {
    /// The order of a number, most often an integer, and a float: -1, 0 or 1.
    Order,
    /// A float with one zero and one NaN.
    Plain,
}

impl NumberFunction {
    /// Whether it is the order of an integer and a float.
    pub fn is_order(&self) -> bool {
        self.kind == NumberFunctionKind::Order
    }
}

fn function(kind: NumberFunctionKind) -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::new_from_impl(NumberFunction { kind, signature }))
}

fn order_function() -> Arc<ScalarUDF> {
    function(NumberFunctionKind::Order)
}

impl ScalarUDFImpl for NumberFunction {
    fn name(&self) -> &'static str {
        match self.kind {
            NumberFunctionKind::Order => "order_of_numbers",
            NumberFunctionKind::Plain => "plain_float",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        let missing = || internal_datafusion_err!("{} has no argument", self.name());
        match self.kind {
            NumberFunctionKind::Order => Ok(DataType::Int64),
            NumberFunctionKind::Plain => arguments.first().cloned().ok_or_else(missing),
        }
    }

    fn coerce_types(&self, found: &[DataType]) -> Result<Vec<DataType>> {
        Ok(match (self.kind, found) {
            (NumberFunctionKind::Order, [first, _]) => {
                // What seemed an integer may be a column of UNION that has floats too.
                let first = match first {
                    DataType::UInt64 => DataType::UInt64,
                    other if other.is_integer() => DataType::Int64,
                    _ => DataType::Float64,
                };
                vec![first, DataType::Float64]
            }
            (NumberFunctionKind::Order, _) => {
                return Err(internal_datafusion_err!("{} has two arguments", self.name()));
            }
            (NumberFunctionKind::Plain, found) => found.to_vec(),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = args.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { args.number_rows };
        let arrays = args.args.iter().map(|value| value.to_array(rows)).collect::<Result<Vec<ArrayRef>>>()?;
        let result = match (self.kind, arrays.as_slice()) {
            (NumberFunctionKind::Order, [integers, floats]) => orders(integers, floats)?,
            (NumberFunctionKind::Plain, [floats]) => plain_floats(floats),
            _ => return Err(internal_datafusion_err!("{} has {} arguments", self.name(), arrays.len())),
        };
        match is_constant {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?)),
            false => Ok(ColumnarValue::Array(result)),
        }
    }
}

fn orders(numbers: &ArrayRef, floats: &ArrayRef) -> Result<ArrayRef> {
    let unexpected = || internal_datafusion_err!("no numbers to compare");
    let floats = floats.as_primitive_opt::<Float64Type>().ok_or_else(unexpected)?;
    let signed = numbers.as_primitive_opt::<Int64Type>();
    let unsigned = numbers.as_primitive_opt::<UInt64Type>();
    let others = numbers.as_primitive_opt::<Float64Type>();
    let order_of = |row: usize| match (signed, unsigned, others) {
        (Some(signed), _, _) => Ok(order(i128::from(signed.value(row)), floats.value(row))),
        (_, Some(unsigned), _) => Ok(order(i128::from(unsigned.value(row)), floats.value(row))),
        (_, _, Some(others)) => Ok(order_of_floats(others.value(row), floats.value(row))),
        _ => Err(unexpected()),
    };
    let mut builder = Int64Builder::with_capacity(floats.len());
    for row in 0..floats.len() {
        match numbers.is_valid(row) && floats.is_valid(row) {
            true => builder.append_value(order_of(row)? as i64),
            false => builder.append_null(),
        }
    }
    Ok(Arc::new(builder.finish()))
}

/// The order of two floats. NaN is greatest.
fn order_of_floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// The order of an integer of 64 bits and a float, by their exact values.
fn order(integer: i128, float: f64) -> Ordering {
    if float.is_nan() {
        return Ordering::Less;
    }
    // Infinities and floats beyond the range saturate, which keeps the order.
    let whole = float.floor() as i128;
    integer.cmp(&whole).then(if float > float.floor() { Ordering::Less } else { Ordering::Equal })
}
