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

pub use execute::JoinRows;
pub use explain::JoinExplanation;

use crate::dataset::Dataset;
use crate::query::Query;
use crate::snapshot::Snapshot;
use crate::{Error, Result};

/// How the geometries of two records have to lie, so that they are a pair. All are exact, as the conditions of
/// queries ([`Filter`](crate::Filter)); records without a geometry are in no pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum JoinOn {
    /// They are at most so far apart: metres on the sphere in `lonlat`, units of the coordinates in `planar`. A column
    /// of distances is added to the answer.
    WithinDistance(f64),
    /// They have a point in common.
    Intersects,
    /// The inner one lies within the outer one, as the OGC defines it.
    Within,
    /// The inner one contains the outer one: the outer lies within the inner.
    Contains,
}

/// Which pairs of a self-join are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JoinPairs {
    /// All.
    #[default]
    All,
    /// Those of two different records.
    Distinct,
    /// Those of which the outer record's key is less than the inner one's: so none of a record with itself, and of two
    /// that mirror each other, one. Where the sides have different conditions, a pair that has no mirror is left out as
    /// well if its keys are the other way round.
    Ordered,
}

/// A join of an outer dataset with an inner one.
///
/// ```
/// use terrane::{Join, JoinOn, Query};
///
/// // Stations with the rides that began within 250 metres of them.
/// let join = Join::new(JoinOn::WithinDistance(250.0))
///     .outer(Query::new().window(-122.42, 37.77, -122.39, 37.80))
///     .inner(Query::new().columns(["ride_id", "pickup_ts"]));
/// # let _ = join;
/// ```
#[derive(Clone, Debug)]
pub struct Join {
    pub(crate) on: JoinOn,
    pub(crate) outer: Query,
    pub(crate) inner: Query,
    pub(crate) pairs: JoinPairs,
    pub(crate) outer_prefix: String,
    pub(crate) inner_prefix: String,
    pub(crate) limit: Option<u64>,
}

impl Join {
    /// A join of all records.
    pub fn new(on: JoinOn) -> Self {
        Self {
            on,
            outer: Query::new(),
            inner: Query::new(),
            pairs: JoinPairs::All,
            outer_prefix: "outer_".to_owned(),
            inner_prefix: "inner_".to_owned(),
            limit: None,
        }
    }

    /// Which rows of the outer dataset are joined, with which columns in the answer: any query.
    pub fn outer(self, outer: Query) -> Self {
        Self { outer, ..self }
    }

    /// What the inner records have to meet besides, their columns in the answer, and the spatial index in which they are
    /// looked for ([`Query::using_index`]). A query for the nearest, or one with a limit, is refused.
    pub fn inner(self, inner: Query) -> Self {
        Self { inner, ..self }
    }

    /// Which pairs of a self-join are wanted.
    pub fn pairs(self, pairs: JoinPairs) -> Self {
        Self { pairs, ..self }
    }

    /// What is put in front of the names of columns that both sides have; `outer_` and `inner_` if nothing else is said.
    pub fn prefixes(self, outer: impl Into<String>, inner: impl Into<String>) -> Self {
        Self { outer_prefix: outer.into(), inner_prefix: inner.into(), ..self }
    }

    /// At most so many pairs.
    pub fn limit(self, limit: u64) -> Self {
        Self { limit: Some(limit), ..self }
    }
}

/// One side of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JoinSide {
    Outer,
    Inner,
}

impl JoinSide {
    /// Says on which side a call is wrong. Errors of other kinds name their dataset.
    pub fn blame(self, snapshot: &Snapshot, error: Error) -> Error {
        let side = match self {
            Self::Outer => "outer",
            Self::Inner => "inner",
        };
        match error {
            Error::Usage(reason) => {
                Error::usage(format!("the {side} side of the join, dataset {:?}: {reason}", snapshot.dataset_name()))
            }
            error => error,
        }
    }
}

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
        Ok(Snapshot::pair(&self.engine, &self.handle, &other.handle))
    }
}

impl std::fmt::Display for JoinOn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::WithinDistance(distance) => write!(f, "within distance {distance}"),
            Self::Intersects => f.write_str("intersects"),
            Self::Within => f.write_str("inner within outer"),
            Self::Contains => f.write_str("inner contains outer"),
        }
    }
}

#[cfg(test)]
mod tests;
