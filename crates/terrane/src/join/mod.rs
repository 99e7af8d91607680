//! Joins: pairs of nearby records from two datasets, or from one.
//!
//! A join is an index-nested-loop join. It reads the rows of the outer side, which is any query,
//! and searches each of them in a spatial index of the inner side. Exact predicates on the
//! geometries decide, in the order of an ordinary query: index, record, geometry. If only keys and
//! points are wanted, the indexes alone answer. Both sides are read at one sequence number of the
//! store.

mod candidates;
mod execute;
mod explain;
mod outer;
mod output;
mod pair;
mod probe;
mod wanted;

pub use execute::JoinRows;
pub use explain::JoinExplanation;
pub use wanted::{Join, JoinOn, JoinPairs};

use arrow_array::BinaryArray;

use crate::dataset::Dataset;
use crate::snapshot::Snapshot;
use crate::{Error, Result};

impl Snapshot {
    /// Joins this dataset, as the outer one, with another or with itself.
    ///
    /// The pairs come in batches, in no order. The columns are those of the outer side, those of
    /// the inner side, and the distance if the join is on one.
    ///
    /// # Errors
    /// Snapshots of different stores or moments ([`Dataset::snapshot_with`]); an invalid join;
    /// damage; storage.
    pub fn join(&self, inner: &Self, join: &Join) -> Result<JoinRows> {
        JoinRows::new(self, inner, join)
    }

    /// Joins geometries, as the outer side, with this dataset, as the inner one. The geometries are
    /// well-known binary in the dataset's coordinate system; null and empty ones are in no pair.
    ///
    /// The first column of the answer, `outer_row`, is the position of the outer geometry.
    ///
    /// # Errors
    /// Bytes that are not a geometry; a join whose outer side has conditions or columns, or one of
    /// distinct pairs; the errors of [`Self::join`].
    pub fn join_geometries(&self, outer: &BinaryArray, join: &Join) -> Result<JoinRows> {
        JoinRows::of_geometries(outer, self, join)
    }

    /// The number of pairs, without building rows.
    ///
    /// # Errors
    /// Those of [`Self::join`].
    pub fn count_join(&self, inner: &Self, join: &Join) -> Result<u64> {
        Ok(self.count_join_explained(inner, join)?.0)
    }

    /// The number of pairs, and how it was found.
    ///
    /// # Errors
    /// Those of [`Self::join`].
    pub fn count_join_explained(&self, inner: &Self, join: &Join) -> Result<(u64, JoinExplanation)> {
        let mut pairs = JoinRows::counting(self, inner, join)?;
        Ok((pairs.count_all()?, pairs.explanation()))
    }
}

impl Dataset {
    /// The state of this dataset and another of the same store at one moment, for a join of them. A
    /// commit is in both snapshots or in neither.
    ///
    /// # Errors
    /// The other dataset belongs to another store.
    pub fn snapshot_with(&self, other: &Self) -> Result<(Snapshot, Snapshot)> {
        if !std::sync::Arc::ptr_eq(&self.engine, &other.engine) {
            return Err(Error::usage(format!(
                "the datasets {:?} and {:?} belong to different stores, so they have no common snapshot",
                self.name(),
                other.name()
            )));
        }
        let mut both = Snapshot::together(&self.engine.core, &[&self.handle, &other.handle]).into_iter();
        match (both.next(), both.next()) {
            (Some(first), Some(second)) => Ok((first, second)),
            _ => Err(Error::Failed("a snapshot of two datasets is missing one".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests;
