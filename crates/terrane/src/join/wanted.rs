//! What a join is to find.

use crate::Error;
use crate::query::Query;
use crate::snapshot::Snapshot;

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
