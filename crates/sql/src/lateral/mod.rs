//! Joins with `LATERAL` subqueries that cannot become plain joins, and with `ST_KNN`.
//!
//! [`LateralRule`] finds them. A subquery that orders a dataset by the distance from an outer
//! geometry becomes one search of the spatial index for each outer row. Any other subquery is
//! planned and run for each outer row.

mod apply;
mod nearest;
mod node;
mod plan;
mod query;
mod rule;

pub(crate) use plan::LateralQueryPlanner;
pub(crate) use rule::LateralRule;
