//! Calls with a geography become calls that measure in metres on the sphere. Indexes serve them.

use std::any::Any;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, plan_err};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;

use crate::comparisons::with_expressions;
use crate::functions::{Function, OnGeography, SpatialFunction, on_geography};
use crate::geometry::{is_geography, is_lonlat};

/// Rewrites calls of functions with a geography.
#[derive(Debug)]
pub(crate) struct GeographyRule;

impl AnalyzerRule for GeographyRule {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let rewrite_all = |expr: Expr, schema: &DFSchema| expr.transform_up(|expr| rewrite(expr, schema));
        Ok(plan.transform_up_with_subqueries(|plan| with_expressions(plan, &rewrite_all))?.data)
    }

    fn name(&self) -> &'static str {
        "terrane_geographies"
    }
}

fn rewrite(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::ScalarFunction(call) = expr else { return Ok(Transformed::no(expr)) };
    let Some(use_of) = on_geography(&call.func) else { return Ok(Transformed::no(Expr::ScalarFunction(call))) };
    let mut has_geography = false;
    for argument in &call.args {
        let field = argument.to_field(schema);
        has_geography |= match is_cast(argument) {
            true => field.map(|_| true)?,
            false => field.is_ok_and(|(_, field)| is_geography(&field)),
        };
    }
    if !has_geography {
        return Ok(Transformed::no(Expr::ScalarFunction(call)));
    }
    let func = match use_of {
        OnGeography::Same => call.func,
        OnGeography::Other(other) => other,
        OnGeography::NotAvailable => {
            return plan_err!(
                "{} of a geography is not available; cast it to a geometry: x::geometry",
                call.func.name()
            );
        }
    };
    let args = call.args.into_iter().map(|argument| without_cast(argument, schema)).collect();
    Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args })))
}

fn is_cast(expr: &Expr) -> bool {
    let Expr::ScalarFunction(call) = expr else { return false };
    let inner: &dyn Any = call.func.inner().as_ref();
    inner.downcast_ref::<SpatialFunction>().is_some_and(|function| function.function() == Function::Geography)
}

/// The column in a cast to a geography, so that its indexes are found. It has to hold longitudes
/// and latitudes.
fn without_cast(mut expr: Expr, schema: &DFSchema) -> Expr {
    if is_cast(&expr)
        && let Expr::ScalarFunction(call) = &mut expr
        && let [inner @ Expr::Column(_)] = call.args.as_slice()
        && inner.to_field(schema).is_ok_and(|(_, field)| is_lonlat(&field))
    {
        return call.args.remove(0);
    }
    expr
}
