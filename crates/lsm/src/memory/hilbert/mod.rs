//! The spatial memory component: a Hilbert R-tree.
//!
//! Entries are ordered by Hilbert position, then primary key, then sequence number, as in a
//! B+-tree. Inner nodes keep the minimum bounding rectangle of each child, as in an R-tree. The
//! tree therefore drains in the order in which disk components are built. The caller computes the
//! positions. (Kamel and Faloutsos, "Hilbert R-tree", VLDB 1994; the nodes of the tree under both
//! memory components replace deferred splitting.)

mod columns;
mod nearest;
mod search;
#[cfg(all(test, not(loom)))]
mod tests;

pub use nearest::{Child, NodeHandle};

use super::counters::Counters;
use super::tree::{Cell, CheckReport, Columns, LeafWalk, Order, Shape, Tree};
use super::{ErasedMemory, Kind, SEQUENCE_MAX, Versioned};
use crate::curve::{Representative, holds_reference};
use crate::{Error, Result};
use columns::{Spatial, SpatialItem};
use std::ops::ControlFlow;
use terrane_space::Rect;

/// A rectangle, or a point as one of area zero, with its position and primary key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpatialEntry<'a> {
    /// Hilbert position; entries are ordered by it first.
    pub position: u64,
    /// Bounding rectangle.
    pub rect: Rect,
    /// Primary key, memcomparable, at most 1 KiB; up to 8 bytes are stored in the node.
    pub key: &'a [u8],
}

/// The kind of objects in a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shapes {
    /// Points only: rectangles of area zero, at half the coordinates.
    Points,
    /// Any rectangles.
    Rects,
}

/// A Hilbert R-tree. The module [`super`] documents the guarantees for readers.
pub struct MemoryRTree {
    kinds: Kinds,
    /// Which of an object's entries searches report.
    representative: Representative,
    counters: Counters,
}

enum Kinds {
    Points(Tree<Spatial<2>>),
    Rects(Tree<Spatial<4>>),
}

/// Runs the same code for either kind of tree.
macro_rules! either {
    ($self:ident, $tree:ident => $body:expr) => {
        match &$self.kinds {
            Kinds::Points($tree) => $body,
            Kinds::Rects($tree) => $body,
        }
    };
}

impl MemoryRTree {
    /// A component without entries.
    ///
    /// # Errors
    /// [`Error::Full`] if there is no memory.
    pub fn new(shapes: Shapes) -> Result<Self> {
        Self::with_shape(shapes, Shape::LARGE)
    }

    /// A component whose objects may have several entries, at different positions, with the same
    /// rectangle. Searches report one of them.
    ///
    /// # Errors
    /// As for [`MemoryRTree::new`].
    pub fn with_representative(shapes: Shapes, representative: Representative) -> Result<Self> {
        Ok(Self { representative, ..Self::new(shapes)? })
    }

    /// A component with nodes of given sizes.
    ///
    /// # Errors
    /// As for [`MemoryRTree::new`].
    pub fn with_shape(shapes: Shapes, shape: Shape) -> Result<Self> {
        let kinds = match shapes {
            Shapes::Points => Kinds::Points(Tree::new(shape)?),
            Shapes::Rects => Kinds::Rects(Tree::new(shape)?),
        };
        Ok(Self { kinds, representative: Representative::Only, counters: Counters::new() })
    }

    /// Adds an entry that snapshots from `sequence` on see.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a sealed component, a key that is too long, a rectangle that is empty
    /// or NaN, or one that is not a point in a tree of points; [`Error::Full`] without memory.
    /// Nothing changes then.
    pub fn insert(&self, position: u64, rect: Rect, key: &[u8], sequence: u64) -> Result<()> {
        self.change(position, rect, key, sequence, Kind::Put)
    }

    /// Adds anti-matter for an entry, and ends the live entry with this position and key if there
    /// is one. The rectangle is the deleted entry's, so that a search that finds the entry in an
    /// older component finds the anti-matter too.
    ///
    /// # Errors
    /// As for [`MemoryRTree::insert`].
    pub fn delete(&self, position: u64, rect: Rect, key: &[u8], sequence: u64) -> Result<()> {
        self.change(position, rect, key, sequence, Kind::AntiMatter)
    }

    fn change(&self, position: u64, rect: Rect, key: &[u8], sequence: u64, kind: Kind) -> Result<()> {
        self.check_rect(&rect)?;
        either!(self, tree => change(tree, &self.counters, position, rect, key, sequence, kind))
    }

    fn check_rect(&self, rect: &Rect) -> Result<()> {
        if rect.is_empty() {
            return Err(Error::Invalid(format!(
                "{rect:?} is empty or not a number; entries without a position are not indexed"
            )));
        }
        let is_point = rect.x0 == rect.x1 && rect.y0 == rect.y1;
        match self.kinds {
            Kinds::Points(_) if !is_point => {
                Err(Error::Invalid(format!("{rect:?} is not a point, and this component holds points")))
            }
            _ => Ok(()),
        }
    }

    /// Visits the visible entries whose closed rectangle meets the closed window, and the
    /// anti-matter up to the snapshot, in no order, until the visitor breaks. Of an object with
    /// several entries, it visits one.
    pub fn search<'a>(
        &'a self,
        window: &Rect,
        snapshot: u64,
        visit: &mut dyn FnMut(Versioned<SpatialEntry<'a>>) -> ControlFlow<()>,
    ) {
        let _ = match &self.representative {
            Representative::Only => either!(self, tree => tree.search_window(window, 0, snapshot, visit)),
            Representative::From(position) => {
                either!(self, tree => tree.search_window(window, *position, snapshot, visit))
            }
            Representative::OfCell(grid) => either!(self, tree => {
                tree.search_window(window, 0, snapshot, &mut |version| {
                    let SpatialEntry { position, rect, .. } = version.entry;
                    if holds_reference(grid, position, &rect, window) {
                        visit(version)
                    } else {
                        ControlFlow::Continue(())
                    }
                })
            }),
        };
    }

    /// Whether objects have one entry each, as searches by node require.
    pub fn has_one_each(&self) -> bool {
        self.representative == Representative::Only
    }

    /// A rectangle that covers all entries; it never shrinks.
    pub fn bounds(&self) -> Rect {
        either!(self, tree => tree.root().children().extent_of_all())
    }

    /// Verifies the structure of the tree; for tests and for `check`.
    ///
    /// # Errors
    /// [`Error::Invalid`] that names the first violation.
    pub fn check(&self) -> Result<CheckReport> {
        either!(self, tree => tree.check())
    }
}

fn change<const N: usize>(
    tree: &Tree<Spatial<N>>,
    counters: &Counters,
    position: u64,
    rect: Rect,
    key: &[u8],
    sequence: u64,
    kind: Kind,
) -> Result<()> {
    let mut arena = tree.write();
    counters.admit(sequence)?;
    let order = Order { head: position, key, tie: sequence };
    let place = tree.descend(&arena, order, rect);
    let item = SpatialItem { rect, begin: sequence, end: SEQUENCE_MAX };
    tree.insert(&mut arena, place, order, kind == Kind::AntiMatter, item)?;
    if kind == Kind::AntiMatter {
        // Placed after everything that can fail. Only the newest entry of the key can be live, as a
        // key is written in the order of its sequence numbers.
        let last = tree.descend(&arena, Order { tie: SEQUENCE_MAX, ..order }, Rect::EMPTY);
        let newest = tree.newest(last, position, key, |cell| !cell.is_anti_matter());
        if let Some(cell) = newest.filter(|cell| Spatial::end(*cell) == SEQUENCE_MAX) {
            Spatial::set_end(cell, sequence);
        }
    }
    counters.count(kind, sequence);
    Ok(())
}

/// An entry if the snapshot sees it: live at it, or anti-matter up to it.
fn seen<const N: usize>(cell: Cell<'_, Spatial<N>>, snapshot: u64) -> Option<Versioned<SpatialEntry<'_>>> {
    let entry = versioned(cell);
    (entry.begin <= snapshot && (snapshot < entry.end || entry.end == SEQUENCE_MAX)).then_some(entry)
}

fn versioned<const N: usize>(cell: Cell<'_, Spatial<N>>) -> Versioned<SpatialEntry<'_>> {
    let SpatialItem { rect, begin, end } = Spatial::item(cell);
    let kind = if cell.is_anti_matter() { Kind::AntiMatter } else { Kind::Put };
    Versioned { entry: SpatialEntry { position: cell.head(), rect, key: cell.key() }, kind, begin, end }
}

fn drain<'a, const N: usize>(
    tree: &'a Tree<Spatial<N>>,
    visit: &mut dyn FnMut(Versioned<SpatialEntry<'a>>) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let mut cells = Vec::new();
    for leaf in LeafWalk::all(tree) {
        leaf.sort_into(&mut cells);
        for cell in &cells {
            if visit(versioned(*cell))?.is_break() {
                return Ok(());
            }
        }
    }
    Ok(())
}

impl ErasedMemory for MemoryRTree {
    fn seal(&self) {
        either!(self, tree => {
            let _latch = tree.write();
            self.counters.seal();
        });
    }

    fn is_sealed(&self) -> bool {
        self.counters.is_sealed()
    }

    fn len(&self) -> usize {
        self.counters.len()
    }

    fn anti_matter_len(&self) -> usize {
        self.counters.anti_matter_len()
    }

    fn sequences(&self) -> Option<(u64, u64)> {
        self.counters.sequences()
    }

    fn memory_used(&self) -> usize {
        if self.is_empty() { 0 } else { either!(self, tree => tree.memory_used()) }
    }
}

impl MemoryRTree {
    /// Visits all entries in order, visible or not, until the visitor breaks.
    ///
    /// Ordered by position, then key, then sequence number. Entries equal in all three are in the
    /// order in which they were written.
    ///
    /// # Errors
    /// The visitor's.
    pub fn drain<'a>(
        &'a self,
        visit: &mut dyn FnMut(Versioned<SpatialEntry<'a>>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        either!(self, tree => drain(tree, visit))
    }
}
