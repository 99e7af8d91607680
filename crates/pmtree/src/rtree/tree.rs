//! What the R-trees of this crate have in common, so that one can be measured and tested in the
//! place of another.

use super::rect::Rect;
use crate::{PersistentTree, Result};

/// An R-tree in persistent memory: boxes in `D` dimensions, each with a payload of 8 bytes.
///
/// It is a multiset: what is inserted twice is there twice. Boxed, trees of different kinds are of
/// one type.
pub trait PersistentRTree<const D: usize>: PersistentTree {
    /// Inserts a box with a payload. If it fails, the entry is not there.
    fn insert(&self, rect: &Rect<D>, payload: u64) -> Result<()>;

    /// Deletes an entry with exactly this box and payload, one if there are several; whether there
    /// was one. Coordinates are compared as numbers: a box at -0.0 is the one at 0.0. If it fails,
    /// the entry is still there, unless the tree is damaged.
    fn delete(&self, rect: &Rect<D>, payload: u64) -> Result<bool>;

    /// Whether there is an entry with exactly this box and payload, as [`PersistentRTree::delete`]
    /// compares them.
    fn contains(&self, rect: &Rect<D>, payload: u64) -> Result<bool>;

    /// Calls `visit` with box and payload of each entry that overlaps a window. A tree with several
    /// ways to search takes the one that promises most.
    fn window(&self, window: &Rect<D>, visit: &mut dyn FnMut(&Rect<D>, u64)) -> Result<()>;
}

/// A tree that finds nearest neighbours.
pub trait NearestSearch<const D: usize>: PersistentRTree<D> {
    /// The `count` entries closest to a point among those that `accepts` takes: square of the
    /// distance, box and payload, the closest first. Squares are `f64`: distances beyond some 1e154
    /// are one, as are those below some 1e-162. A point that is not finite is refused.
    ///
    /// `accepts` decides inside of the search, by box and payload alone. Where writers overtake the
    /// search, it is asked again, or of entries that are not there in the end.
    fn nearest(
        &self,
        point: &[f64; D],
        count: usize,
        accepts: &dyn Fn(&Rect<D>, u64) -> bool,
    ) -> Result<Vec<(f64, Rect<D>, u64)>>;
}
