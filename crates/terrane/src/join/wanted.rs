//! The definition of a join: predicate, sides, and wanted pairs.

use crate::Error;
use crate::query::Query;
use crate::snapshot::Snapshot;

/// The predicate of a pair's geometries. It is exact, as are the filters of queries
/// ([`Filter`](crate::Filter)). Records without a geometry are in no pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum JoinOn {
    /// Their distance is at most this: metres on the sphere in `lonlat`, units of the coordinates
    /// in `planar`. The answer has a column of distances.
    WithinDistance(f64),
    /// They have a common point.
    Intersects,
    /// The inner geometry lies within the outer one, as the OGC defines it.
    Within,
    /// The inner geometry contains the outer one: the outer lies within the inner.
    Contains,
}

/// Which pairs of a self-join are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JoinPairs {
    /// All pairs.
    #[default]
    All,
    /// Pairs of two different records.
    Distinct,
    /// Pairs with the outer key below the inner key. So a record is not paired with itself, and
    /// only one of two mirrored pairs remains. If the two sides have different conditions, a pair
    /// without a mirror is also left out when its outer key is the larger one.
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

    /// The outer side: any query, with the columns of the answer.
    pub fn outer(self, outer: Query) -> Self {
        Self { outer, ..self }
    }

    /// The inner side: filters, the columns of the answer, and the spatial index to search
    /// ([`Query::using_index`]). A nearest-neighbour query, or one with a limit, is refused.
    pub fn inner(self, inner: Query) -> Self {
        Self { inner, ..self }
    }

    /// Which pairs of a self-join are wanted.
    pub fn pairs(self, pairs: JoinPairs) -> Self {
        Self { pairs, ..self }
    }

    /// Prefixes for the columns whose names occur on both sides. The defaults are `outer_` and
    /// `inner_`.
    pub fn prefixes(self, outer: impl Into<String>, inner: impl Into<String>) -> Self {
        Self { outer_prefix: outer.into(), inner_prefix: inner.into(), ..self }
    }

    /// Returns at most this many pairs.
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
    /// Adds the side to an error of usage. Other errors name their dataset.
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
