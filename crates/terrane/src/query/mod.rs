//! Queries: what is asked.

mod aside;
mod attributes;
mod count;
pub(crate) mod entries;
pub(crate) mod execute;
pub(crate) mod explain;
pub(crate) mod filter;
pub(crate) mod index;
mod isolation;
pub(crate) mod keys;
pub(crate) mod metric;
pub(crate) mod nearest;
mod nearest_scan;
pub(crate) mod plan;
mod read_committed;
mod rows;
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
pub use isolation::Isolation;
pub use rows::Rows;
pub(crate) use rows::count;
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
    /// The geometry is at most so far from a place: metres on the sphere in `lonlat`, units of
    /// the coordinates in `planar`.
    Circle {
        /// Longitude or x.
        x: f64,
        /// Latitude or y.
        y: f64,
        /// Radius.
        radius: f64,
    },
    /// The geometry and this one (well-known binary) have a point in common.
    Intersects(Vec<u8>),
    /// The geometry lies within this one (well-known binary), as the OGC defines it: nothing of
    /// it is outside, and not all of it is on the boundary.
    Within(Vec<u8>),
}

/// The place to which records should be near.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Nearest {
    /// Longitude or x.
    pub x: f64,
    /// Latitude or y.
    pub y: f64,
    /// How many records.
    pub k: usize,
}

/// A condition on whole records, in code.
pub type Predicate = Arc<dyn Fn(&RecordView<'_>) -> Result<bool> + Send + Sync>;

/// A query over one dataset: records that meet all filters, or the nearest of them.
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

    /// Adds a condition; all have to be met.
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

    /// Adds a condition on the attributes and the key; all have to be met. Whether it fits the
    /// dataset's schema is found when the query is run.
    pub fn condition(mut self, condition: Condition) -> Self {
        self.condition = Some(match self.condition.take() {
            Some(others) => others.and(condition),
            None => condition,
        });
        self
    }

    /// Sets a condition on whole records in code, evaluated last.
    pub fn predicate(mut self, predicate: impl Fn(&RecordView<'_>) -> Result<bool> + Send + Sync + 'static) -> Self {
        self.predicate = Some(Arc::new(predicate));
        self
    }

    /// Asks for the `k` records nearest to (`x`, `y`) of those that meet all conditions, in the
    /// order of distance and, at one distance, of keys. A column of distances is added.
    pub fn nearest(mut self, x: f64, y: f64, k: usize) -> Self {
        self.nearest = Some(Nearest { x, y, k });
        self
    }

    /// At most so many records.
    pub fn limit(mut self, limit: u64) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Goes through the index of this name for its candidates, `primary` being the records themselves; without it, the
    /// index that seems cheapest is chosen. The rows are the same. An index that can give no candidates for the conditions
    /// is refused when the query is run, with the reason.
    pub fn using_index(mut self, name: impl Into<String>) -> Self {
        self.index = Some(name.into());
        self
    }

    /// Which states of the dataset the answer may rest on; one, [`Isolation::Snapshot`], if nothing else is said.
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// Only these columns, in this order.
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

/// Refuses a place outside of the coordinate system.
pub(crate) fn check_place(system: CoordinateSystem, x: f64, y: f64) -> Result<()> {
    check_coordinates(system, x, y).map_err(|error| Error::usage(format!("the place {x},{y}: {error}")))
}

/// Refuses a place from which the distances to a dataset's geometries cannot be told.
pub(crate) fn check_origin(schema: &Schema, x: f64, y: f64) -> Result<()> {
    if schema.holds_points() {
        return check_place(schema.system, x, y);
    }
    // In a form that is short for large numbers too.
    let refused = |error| Error::usage(format!("the place {x:?},{y:?}: {error}"));
    check_exact_coordinates(schema.system, x, y).map_err(refused)
}
