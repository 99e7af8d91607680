//! The two predicates of queries, evaluated exactly for two geometries.

use geo_types::Geometry;

use super::convert::from_geo;
use super::error::GeometryError;
use super::query::QueryGeometry;
use crate::CoordinateSystem;

/// Whether `a` and `b` share a point, in the plane.
///
/// # Errors
/// When a geometry cannot be stored, such as a ring of three positions.
pub fn intersects(a: &Geometry<f64>, b: &Geometry<f64>) -> Result<bool, GeometryError> {
    let query = QueryGeometry::new(&from_geo(b), CoordinateSystem::Planar)?;
    query.intersects(&from_geo(a))
}

/// Whether `a` is within `b`, in the plane: no point of `a` is outside of `b`, and their interiors
/// share a point (OGC). A line on the boundary of a polygon is not within it.
///
/// # Errors
/// When a geometry cannot be stored, such as a ring of three positions.
pub fn within(a: &Geometry<f64>, b: &Geometry<f64>) -> Result<bool, GeometryError> {
    let query = QueryGeometry::new(&from_geo(b), CoordinateSystem::Planar)?;
    query.within(&from_geo(a))
}
