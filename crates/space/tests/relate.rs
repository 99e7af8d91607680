//! The DE-9IM matrix of `geo`, with which the predicates are compared. It rounds where edges cross, and does not
//! unite the parts of collections.

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use geo::relate::IntersectionMatrix;
use geo::relate::Relate;
use geo_types::Geometry;

/// The matrix of `a` and `b`; `None` where the topology graph finds itself inconsistent and panics, as on geometries
/// that are not valid.
pub fn relate(a: &Geometry<f64>, b: &Geometry<f64>) -> Option<IntersectionMatrix> {
    // Both are only read, so nothing inconsistent can be seen afterwards.
    catch_unwind(AssertUnwindSafe(|| a.relate(b))).ok()
}
