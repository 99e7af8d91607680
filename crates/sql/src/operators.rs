//! The operators of geometries: `&&` (the boxes share a point), `~` and `@` (the box contains the
//! other, or lies in it) and `<->` (the distance). Aggregates of a value and of a cast of it are
//! told apart.

use arrow_schema::DataType;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawAggregateExpr, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use crate::functions::{Function, udf};
use crate::geometry::is_geometry;

/// Plans the operators as functions.
#[derive(Debug)]
pub(crate) struct SpatialOperators;

impl ExprPlanner for SpatialOperators {
    fn plan_binary_op(&self, raw: RawBinaryExpr, schema: &DFSchema) -> Result<PlannerResult<RawBinaryExpr>> {
        // Of texts, it is a regular expression.
        let is_shape = |expr: &Expr| expr.to_field(schema).is_ok_and(|(_, field)| is_geometry(&field));
        let function = match raw.op {
            BinaryOperator::PGOverlap => Function::BoxesIntersect,
            BinaryOperator::LtDashGt => Function::Distance,
            BinaryOperator::PGRegexMatch if is_shape(&raw.left) || is_shape(&raw.right) => Function::BoxContains,
            BinaryOperator::At => {
                let call = ScalarFunction::new_udf(udf(Function::BoxContains), vec![raw.right, raw.left]);
                return Ok(PlannerResult::Planned(Expr::ScalarFunction(call)));
            }
            _ => return Ok(PlannerResult::Original(raw)),
        };
        let is_list = |expr: &Expr| {
            expr.get_type(schema).is_ok_and(|data_type| {
                matches!(data_type, DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..))
            })
        };
        if is_list(&raw.left) || is_list(&raw.right) {
            return Ok(PlannerResult::Original(raw));
        }
        let call = ScalarFunction::new_udf(udf(function), vec![raw.left, raw.right]);
        Ok(PlannerResult::Planned(Expr::ScalarFunction(call)))
    }
    /// Names casts, which the names of aggregates leave out: `avg(id), avg(id::DOUBLE)`.
    fn plan_aggregate(&self, mut raw: RawAggregateExpr) -> Result<PlannerResult<RawAggregateExpr>> {
        for argument in &mut raw.args {
            if argument.exists(|expr| Ok(matches!(expr, Expr::Cast(_) | Expr::TryCast(_))))? {
                let name = argument.to_string();
                *argument = std::mem::take(argument).alias(name);
            }
        }
        Ok(PlannerResult::Original(raw))
    }
}
