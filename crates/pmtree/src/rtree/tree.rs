//! The common interface of the R-trees of this crate. One can be measured and tested in place of
//! another.

use super::rect::Rect;
use crate::{PersistentTree, Result};

/// An R-tree in persistent memory: boxes in `D` dimensions, each with a payload of 8 bytes.
///
/// It is a multiset: an entry that is inserted twice exists twice. Boxed, trees of different kinds
/// have one type.
pub trait PersistentRTree<const D: usize>: PersistentTree {
    /// Inserts a box with a payload. If it fails, the entry is not in the tree.
    fn insert(&self, rect: &Rect<D>, payload: u64) -> Result<()>;

    /// Deletes an entry with exactly this box and payload, one if there are several. Gives whether
    /// there was one. Coordinates are compared as numbers, so a box at -0.0 equals one at 0.0. If
    /// it fails, the entry is still in the tree, unless the tree is damaged.
    fn delete(&self, rect: &Rect<D>, payload: u64) -> Result<bool>;

    /// Whether there is an entry with exactly this box and payload, compared as in
    /// [`PersistentRTree::delete`].
    fn contains(&self, rect: &Rect<D>, payload: u64) -> Result<bool>;

    /// Calls `visit` with box and payload of each entry that overlaps a window. A tree with several
    /// search modes uses the one with the strongest promise.
    fn window(&self, window: &Rect<D>, visit: &mut dyn FnMut(&Rect<D>, u64)) -> Result<()>;
}

/// A tree that finds nearest neighbours.
pub trait NearestSearch<const D: usize>: PersistentRTree<D> {
    /// The `count` entries closest to a point among those that `accepts` accepts: square of the
    /// distance, box and payload, closest first. Squares are `f64`, so distances beyond about 1e154
    /// are equal, as are those below about 1e-162. A point that is not finite is an error.
    ///
    /// `accepts` is called inside of the search and decides by box and payload alone. If writers
    /// overtake the search, it may be called again, or for entries that are absent in the end.
    fn nearest(
        &self,
        point: &[f64; D],
        count: usize,
        accepts: &dyn Fn(&Rect<D>, u64) -> bool,
    ) -> Result<Vec<(f64, Rect<D>, u64)>>;
}
