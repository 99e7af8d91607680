//! The DE-9IM matrix of `geo`, the reference of the predicates. It rounds crossings of edges, and
//! does not unite the parts of collections.

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use geo::relate::IntersectionMatrix;
use geo::relate::Relate;
use geo_types::Geometry;

/// The matrix of `a` and `b`. `None` if the topology graph finds itself inconsistent and panics, as
/// it does on invalid geometries.
pub fn relate(a: &Geometry<f64>, b: &Geometry<f64>) -> Option<IntersectionMatrix> {
    // Both are only read, so no inconsistent state remains.
    catch_unwind(AssertUnwindSafe(|| a.relate(b))).ok()
}
