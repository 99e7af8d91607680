//! Predicates between two geometries: the two that queries offer, exactly, and
//! the DE-9IM matrix of `geo`, which rounds where edges cross, and does not
//! unite the parts of collections.

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use geo::relate::IntersectionMatrix;
use geo::relate::Relate;
use geo_types::Geometry;

use super::convert::from_geo;
use super::error::GeometryError;
use super::query::QueryGeometry;
use crate::CoordinateSystem;

/// The matrix of two geometries cannot be computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the geometries cannot be related, most likely because one is not valid (rings that cross themselves or each other, or overlapping parts of a collection); repair it"
)]
pub struct Unrelatable;

/// The DE-9IM matrix of `a` and `b`, from which every topological predicate follows.
///
/// # Errors
/// On invalid geometries the topology graph of `geo` may find itself
/// inconsistent and panic, which is answered with an error.
pub fn relate(a: &Geometry<f64>, b: &Geometry<f64>) -> Result<IntersectionMatrix, Unrelatable> {
    // Both are only read, so nothing inconsistent can be seen afterwards.
    catch_unwind(AssertUnwindSafe(|| a.relate(b))).map_err(|_| Unrelatable)
}

/// Whether `a` and `b` share a point, in the plane.
///
/// # Errors
/// Geometries that cannot be stored, such as rings of three positions.
pub fn intersects(a: &Geometry<f64>, b: &Geometry<f64>) -> Result<bool, GeometryError> {
    let query = QueryGeometry::new(&from_geo(b), CoordinateSystem::Planar)?;
    query.intersects(&from_geo(a))
}

/// Whether `a` is within `b`, in the plane: no point of `a` is outside of `b`,
/// and their interiors share a point (OGC; a line on the boundary of a polygon
/// is not within it).
///
/// # Errors
/// Geometries that cannot be stored, such as rings of three positions.
pub fn within(a: &Geometry<f64>, b: &Geometry<f64>) -> Result<bool, GeometryError> {
    let query = QueryGeometry::new(&from_geo(b), CoordinateSystem::Planar)?;
    query.within(&from_geo(a))
}
