//! The rule that finds lateral joins.

use std::any::Any;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, JoinType, Result, ScalarValue, plan_err};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    Expr, Extension, Filter, Join, LogicalPlan, LogicalPlanBuilder, Subquery, SubqueryAlias,
};
use datafusion::optimizer::{AnalyzerRule, ApplyOrder, OptimizerConfig, OptimizerRule};

use super::node::{Inner, LateralJoin};
use super::query::NearestQuery;
use crate::functions::{Function, SpatialFunction, udf};
use crate::nearest::K_MAX;

/// Replaces joins with lateral subqueries: as the last rule of the analysis, those that cannot
/// become plain joins; as the last one of the optimizer, what it has left.
#[derive(Debug)]
pub(crate) struct LateralRule;

impl AnalyzerRule for LateralRule {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Join(join) => match nearest_rows(&join)? {
                Some(replaced) => Ok(Transformed::yes(replaced)),
                None => lateral(join, true),
            },
            plan => Ok(Transformed::no(plan)),
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "terrane_lateral"
    }
}

impl OptimizerRule for LateralRule {
    fn name(&self) -> &'static str {
        "terrane_lateral"
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        match plan {
            LogicalPlan::Join(join) => lateral(join, false),
            plan => Ok(Transformed::no(plan)),
        }
    }
}

/// The join with a lateral subquery, if it is one, and none that becomes a plain join where that is
/// asked for.
fn lateral(join: Join, but_plain: bool) -> Result<Transformed<LogicalPlan>> {
    let is_left = join.join_type == JoinType::Left;
    let is_possible = (is_left || join.join_type == JoinType::Inner) && join.on.is_empty();
    let subquery = subquery_of(&join.right).filter(|subquery| !subquery.outer_ref_columns.is_empty());
    let (true, Some(subquery)) = (is_possible, subquery) else { return Ok(Transformed::no(LogicalPlan::Join(join))) };
    if but_plain && is_plain(&subquery.subquery)? {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    }
    let is_true = |filter: &Expr| matches!(filter, Expr::Literal(ScalarValue::Boolean(Some(true)), _));
    let mut filter = join.filter.clone().filter(|filter| !is_true(filter));
    let (inner, references) = match NearestQuery::of(&subquery.subquery)? {
        Some(query) if !is_left || filter.is_none() => {
            let references = query.outer_columns();
            (Inner::Nearest(Box::new(query)), references)
        }
        _ => {
            let mut references: Vec<Column> = Vec::new();
            for expr in &subquery.outer_ref_columns {
                if let Expr::OuterReferenceColumn(_, column) | Expr::Column(column) = expr
                    && !references.contains(column)
                {
                    references.push(column.clone());
                }
            }
            let plan = match filter.take_if(|_| is_left) {
                Some(condition) => filtered(&join, subquery, condition, &mut references)?,
                None => subquery.subquery.clone(),
            };
            (Inner::Plan(plan), references)
        }
    };
    // Columns of a query farther out are not this join's.
    if references.iter().any(|column| join.left.schema().maybe_index_of_column(column).is_none()) {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    }
    let inner_schema = join.right.schema().clone();
    let node = LateralJoin::new(join.left.as_ref().clone(), inner, is_left, inner_schema, references)?;
    let plan = LogicalPlan::Extension(Extension { node: Arc::new(node) });
    Ok(Transformed::yes(match filter {
        Some(filter) => LogicalPlan::Filter(Filter::try_new(filter, Arc::new(plan))?),
        None => plan,
    }))
}

/// A subquery with the condition of its left join.
fn filtered(
    join: &Join,
    subquery: &Subquery,
    condition: Expr,
    references: &mut Vec<Column>,
) -> Result<Arc<LogicalPlan>> {
    let plan = match join.right.as_ref() {
        LogicalPlan::SubqueryAlias(alias) => {
            LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(subquery.subquery.clone(), alias.alias.clone())?)
        }
        _ => subquery.subquery.as_ref().clone(),
    };
    let outer = join.left.schema();
    let condition = condition.transform(|expr| match expr {
        Expr::Column(column) if outer.maybe_index_of_column(&column).is_some() => {
            let field = outer.field(outer.index_of_column(&column)?).clone();
            if !references.contains(&column) {
                references.push(column.clone());
            }
            Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(Arc::new(LogicalPlan::Filter(Filter::try_new(condition.data, Arc::new(plan))?)))
}

fn subquery_of(plan: &LogicalPlan) -> Option<&Subquery> {
    match plan {
        LogicalPlan::Subquery(subquery) => Some(subquery),
        LogicalPlan::SubqueryAlias(alias) => match alias.input.as_ref() {
            LogicalPlan::Subquery(subquery) => Some(subquery),
            _ => None,
        },
        _ => None,
    }
}

/// Whether only conditions of a subquery have outer columns, so that the optimizer makes a join of
/// it. The limit, the groups and the order of a subquery are those of each outer row.
fn is_plain(plan: &LogicalPlan) -> Result<bool> {
    let mut is_plain = true;
    plan.apply(|plan| {
        is_plain &= match plan {
            LogicalPlan::Filter(filter) => !has_subquery(&filter.predicate),
            LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::TableScan(_) => {
                !plan.contains_outer_reference() && plan.fetch()?.is_none()
            }
            _ => false,
        };
        Ok(if is_plain { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(is_plain)
}

fn has_subquery(expr: &Expr) -> bool {
    let is_subquery = |expr: &Expr| {
        Ok(matches!(expr, Expr::Exists(_) | Expr::InSubquery(_) | Expr::ScalarSubquery(_) | Expr::SetComparison(_)))
    };
    expr.exists(is_subquery).unwrap_or(true)
}

/// The join on `ST_KNN(outer, inner, k [, on_sphere])`, if it is one.
fn nearest_rows(join: &Join) -> Result<Option<LogicalPlan>> {
    let Some(Expr::ScalarFunction(call)) = &join.filter else { return Ok(None) };
    if function_of(call) != Some(Function::Knn) {
        return Ok(None);
    }
    let is_left = join.join_type == JoinType::Left;
    if !join.on.is_empty() || !(is_left || join.join_type == JoinType::Inner) {
        return plan_err!(
            "ST_KNN must be the only condition of an inner or left join; other conditions stand in WHERE"
        );
    }
    let (Some(outer), Some(Expr::Column(geometry))) = (call.args.first(), call.args.get(1)) else {
        return plan_err!("the second argument of ST_KNN must be the column of geometries of a table");
    };
    let k = match call.args.get(2) {
        Some(Expr::Literal(ScalarValue::Int64(Some(k)), _)) => usize::try_from(*k).ok(),
        _ => None,
    };
    let Some(k) = k.filter(|k| (1..=K_MAX).contains(k)) else {
        return plan_err!("the third argument of ST_KNN must be a number from 1 to {K_MAX}");
    };
    let function = match call.args.get(3) {
        None | Some(Expr::Literal(ScalarValue::Boolean(Some(false)), _)) => Function::Distance,
        Some(Expr::Literal(ScalarValue::Boolean(Some(true)), _)) => Function::DistanceSphere,
        _ => return plan_err!("the fourth argument of ST_KNN must be true (on the sphere) or false"),
    };
    let is_swapped = join.right.schema().maybe_index_of_column(geometry).is_none();
    if is_swapped && is_left {
        return plan_err!("ST_KNN in a left join searches the right table: its second argument is a column of that");
    }
    let (outer_plan, inner_plan) = if is_swapped { (&join.right, &join.left) } else { (&join.left, &join.right) };
    let key = |geometry: &Expr| {
        let args = vec![geometry.clone(), outer.clone()];
        Expr::ScalarFunction(ScalarFunction { func: udf(function), args })
    };
    let query = NearestQuery::of_table(inner_plan, key, geometry, k)?;
    let is_outer = |column: &Column| outer_plan.schema().maybe_index_of_column(column).is_some();
    let Some(query) = query.filter(|query| query.outer_columns().iter().all(is_outer)) else {
        return plan_err!(
            "ST_KNN takes a geometry of one table, and the column of geometries of another one, which is a dataset; \
             in metres (the fourth argument) only where it holds longitudes and latitudes"
        );
    };
    let references = query.outer_columns();
    let inner_schema = inner_plan.schema().clone();
    let inner = Inner::Nearest(Box::new(query));
    let node = LateralJoin::new(outer_plan.as_ref().clone(), inner, is_left, inner_schema, references)?;
    let plan = LogicalPlan::Extension(Extension { node: Arc::new(node) });
    if !is_swapped {
        return Ok(Some(plan));
    }
    let columns = join.schema.columns().into_iter().map(Expr::Column);
    LogicalPlanBuilder::from(plan).project(columns)?.build().map(Some)
}

fn function_of(call: &ScalarFunction) -> Option<Function> {
    let callee: &dyn Any = call.func.inner().as_ref();
    callee.downcast_ref::<SpatialFunction>().map(SpatialFunction::function)
}
