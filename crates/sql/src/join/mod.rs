//! Spatial joins through the index of one side.
//!
//! [`SpatialJoinRule`] replaces nested-loop joins whose condition has a spatial predicate, and one
//! side of which scans a dataset, by `SpatialJoinExec`.

mod execute;
mod predicate;
mod rule;

pub(crate) use rule::SpatialJoinRule;
