//! Spatial joins through the index of one side.
//!
//! [`SpatialJoinRule`] looks for nested-loop joins whose condition has a spatial predicate. If one
//! side scans a dataset, `SpatialJoinExec` replaces the join.

mod execute;
mod predicate;
mod rule;

pub(crate) use rule::{SpatialJoinRule, spread};
