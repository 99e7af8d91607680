//! Joins: the records of one dataset with those of another, or of the same, that lie near them.
//!
//! A join goes through the rows of the outer side, which any query gives, and looks for each in a spatial index of the
//! inner side (index-nested-loop join). Where keys and points are all that is wanted, the indexes alone answer. Exact
//! predicates on the geometries decide, in the order of an ordinary query: index, record, geometry. Both sides are read
//! at one sequence number of the store.

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

use crate::dataset::Dataset;
use crate::snapshot::Snapshot;
use crate::{Error, Result};

impl Snapshot {
    /// Joins this dataset, as the outer one, with another or with itself; the pairs come in batches, in no order. The
    /// columns are those of the outer side, those of the inner side, and the distance if the join is on one.
    ///
    /// # Errors
    /// Snapshots of different stores or moments ([`Dataset::snapshot_with`]); a join that makes no sense; damage; storage.
    pub fn join(&self, inner: &Self, join: &Join) -> Result<JoinRows> {
        JoinRows::new(self, inner, join)
    }

    /// The number of pairs, without making rows of them.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn count_join(&self, inner: &Self, join: &Join) -> Result<u64> {
        Ok(self.count_join_explained(inner, join)?.0)
    }

    /// The number of pairs, and how it was found.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn count_join_explained(&self, inner: &Self, join: &Join) -> Result<(u64, JoinExplanation)> {
        let mut pairs = JoinRows::counting(self, inner, join)?;
        Ok((pairs.count_all()?, pairs.explanation()))
    }
}

impl Dataset {
    /// What this dataset and another of the same store hold at one moment, for a join of them: what was committed
    /// before it is in both, what was not is in neither.
    ///
    /// # Errors
    /// A dataset of another store.
    pub fn snapshot_with(&self, other: &Self) -> Result<(Snapshot, Snapshot)> {
        if !std::sync::Arc::ptr_eq(&self.engine, &other.engine) {
            return Err(Error::usage(format!(
                "the datasets {:?} and {:?} are of different stores, which have no moment in common",
                self.name(),
                other.name()
            )));
        }
        Ok(Snapshot::pair(&self.engine.core, &self.handle, &other.handle))
    }
}

#[cfg(test)]
mod tests;
