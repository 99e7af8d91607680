//! The spatial index kinds with random options.

use rand::Rng;
use rand::rngs::SmallRng;
use terrane::{CoordinateSystem, IndexKind, IndexOptions};

/// All spatial kinds.
pub const KINDS: [IndexKind; 5] = [IndexKind::RTree, IndexKind::Dhb, IndexKind::Dhvb, IndexKind::Shb, IndexKind::Sif];

/// Kinds for other geometries than points.
pub const EXTENDED: [IndexKind; 2] = [IndexKind::RTree, IndexKind::Shb];

/// Options of a kind: the paper's, or others. The domain of a planar dataset excludes some of the
/// geometries.
pub fn options(rng: &mut SmallRng, kind: IndexKind, points: bool, system: CoordinateSystem) -> IndexOptions {
    let mut options = IndexOptions::default();
    if !matches!(kind, IndexKind::Shb | IndexKind::Sif) {
        return options;
    }
    if system == CoordinateSystem::Planar {
        options = options.domain(-9.0, -8.5, 8.0, 9.5);
    }
    if rng.random() {
        let levels = ["h", "l,l", "m,h", "l,m,h,l", "m,m,m,l,l"][rng.random_range(0..5)];
        options = options.levels(levels.parse().unwrap());
    }
    if kind == IndexKind::Shb && !points && rng.random() {
        options = options.cells_per_object_max([1, 2, 7, 60][rng.random_range(0..4)]);
    }
    options
}
