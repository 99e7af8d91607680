//! Queries.

mod attributes;
mod count;
mod deferred;
pub(crate) mod entries;
pub(crate) mod execute;
pub(crate) mod explain;
pub(crate) mod filter;
pub(crate) mod index;
mod interrupt;
mod isolation;
pub(crate) mod keys;
pub(crate) mod metric;
pub(crate) mod nearest;
mod nearest_scan;
pub(crate) mod plan;
mod read_committed;
mod rows;
mod scan;
mod snapshot;
pub(crate) mod spans;
#[cfg(test)]
mod tests;
mod union;

use std::fmt;
use std::sync::Arc;

pub use explain::{ConditionPlan, Considered, Explanation, Stage};
pub(crate) use filter::Filters;
pub(crate) use index::antimatter_of_fits;
pub use interrupt::{interrupt_interval, interruptible, is_interrupted};
pub use isolation::Isolation;
pub use rows::Rows;
pub(crate) use rows::count;
pub use scan::{Scan, ScanCancellation, ScanRows};
use terrane_space::{CoordinateSystem, check_coordinates, check_exact_coordinates};

use crate::condition::Condition;
use crate::record::RecordView;
use crate::schema::Schema;
use crate::{Error, Result};

/// A condition on the geometry of a record. All are exact.
#[derive(Clone, Debug, PartialEq)]
pub enum Filter {
    /// The geometry meets the closed window. In `lonlat`, `x0 > x1` crosses the antimeridian.
    Window {
        /// Western or left side.
        x0: f64,
        /// Southern or lower side.
        y0: f64,
        /// Eastern or right side.
        x1: f64,
        /// Northern or upper side.
        y1: f64,
    },
    /// The geometry is at most this far from a place: metres on the sphere in `lonlat`, units of
    /// the coordinates in `planar`.
    Circle {
        /// Longitude or x.
        x: f64,
        /// Latitude or y.
        y: f64,
        /// Radius.
        radius: f64,
    },
    /// The geometry and this one (well-known binary) have a common point.
    Intersects(Vec<u8>),
    /// The geometry lies within this one (well-known binary), as the OGC defines it: no part of it
    /// is outside, and it is not wholly on the boundary.
    Within(Vec<u8>),
}

/// The place for a nearest-neighbour query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nearest {
    /// Longitude or x.
    pub x: f64,
    /// Latitude or y.
    pub y: f64,
    /// Number of records.
    pub k: usize,
}

/// A condition on whole records, as a function.
pub type Predicate = Arc<dyn Fn(&RecordView<'_>) -> Result<bool> + Send + Sync>;

/// A query of one dataset: records that meet all filters, or the nearest of them.
#[derive(Clone, Default)]
pub struct Query {
    pub(crate) filters: Vec<Filter>,
    pub(crate) condition: Option<Condition>,
    pub(crate) predicate: Option<Predicate>,
    pub(crate) nearest: Option<Nearest>,
    pub(crate) limit: Option<u64>,
    pub(crate) columns: Option<Vec<String>>,
    pub(crate) index: Option<String>,
    pub(crate) isolation: Isolation,
}

impl Query {
    /// All records.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a condition. All conditions must be met.
    pub fn filter(mut self, filter: Filter) -> Self {
        self.filters.push(filter);
        self
    }

    /// Adds the window from (`x0`, `y0`) to (`x1`, `y1`).
    pub fn window(self, x0: f64, y0: f64, x1: f64, y1: f64) -> Self {
        self.filter(Filter::Window { x0, y0, x1, y1 })
    }

    /// Adds the circle around (`x`, `y`).
    pub fn circle(self, x: f64, y: f64, radius: f64) -> Self {
        self.filter(Filter::Circle { x, y, radius })
    }

    /// Adds a condition on the attributes and the key. All conditions must be met. Running the
    /// query checks whether it fits the dataset's schema.
    pub fn condition(mut self, condition: Condition) -> Self {
        self.condition = Some(match self.condition.take() {
            Some(others) => others.and(condition),
            None => condition,
        });
        self
    }

    /// Sets a condition on whole records, as a function. It is evaluated last.
    pub fn predicate(mut self, predicate: impl Fn(&RecordView<'_>) -> Result<bool> + Send + Sync + 'static) -> Self {
        self.predicate = Some(Arc::new(predicate));
        self
    }

    /// Returns the `k` records nearest to (`x`, `y`) that meet all conditions, ordered by distance
    /// and then by key. Adds a column of distances.
    pub fn nearest(mut self, x: f64, y: f64, k: usize) -> Self {
        self.nearest = Some(Nearest { x, y, k });
        self
    }

    /// Returns at most this many records.
    pub fn limit(mut self, limit: u64) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Takes the candidates from the index with this name; `primary` is the records themselves. The
    /// rows are the same for every index.
    ///
    /// By default the index that seems cheapest is used. Running the query refuses an index that
    /// cannot serve the conditions, with the reason.
    pub fn using_index(mut self, name: impl Into<String>) -> Self {
        self.index = Some(name.into());
        self
    }

    /// Sets the isolation level. The default is [`Isolation::Snapshot`].
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// Whether it is a query of all records and columns.
    pub(crate) fn is_unconditional(&self) -> bool {
        self.filters.is_empty()
            && self.condition.is_none()
            && self.predicate.is_none()
            && self.nearest.is_none()
            && self.limit.is_none()
            && self.columns.is_none()
    }

    /// Returns only these columns, in this order.
    pub fn columns(mut self, columns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.columns = Some(columns.into_iter().map(Into::into).collect());
        self
    }
}

impl fmt::Debug for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Query")
            .field("filters", &self.filters)
            .field("condition", &self.condition.as_ref().map(ToString::to_string))
            .field("has_predicate", &self.predicate.is_some())
            .field("nearest", &self.nearest)
            .field("limit", &self.limit)
            .field("columns", &self.columns)
            .field("index", &self.index)
            .field("isolation", &self.isolation)
            .finish()
    }
}

/// Refuses a place outside the coordinate system.
pub(crate) fn check_place(system: CoordinateSystem, x: f64, y: f64) -> Result<()> {
    check_coordinates(system, x, y).map_err(|error| Error::usage(format!("the place {x},{y}: {error}")))
}

/// Refuses a place from which distances to the dataset's geometries are undefined.
pub(crate) fn check_origin(schema: &Schema, x: f64, y: f64) -> Result<()> {
    if schema.holds_points() {
        return check_place(schema.system, x, y);
    }
    // In a form that is short for large numbers too.
    let refused = |error| Error::usage(format!("the place {x:?},{y:?}: {error}"));
    check_exact_coordinates(schema.system, x, y).map_err(refused)
}
