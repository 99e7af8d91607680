//! Splits a full leaf.
//!
//! For entries that ascend past a leaf's last entry (or descend past its first), an empty leaf is
//! added beside it, and nothing is copied. Otherwise the leaf is sorted into several new ones. With
//! several, an entry is copied less often than by halving, and the abandoned leaves stay a small
//! part of the memory.
//!
//! The parent is appended to in place, or copied with its child replaced. A copy that overflows
//! becomes two nodes, and so on upwards. New nodes are complete before the one store that publishes
//! them all: in the lowest ancestor that need not be copied, or in the root pointer. A failure
//! before that store leaves the tree as it was.

use super::super::arena::Arena;
use super::Tree;
use super::extent::Extent;
use super::inner::{Inner, Piece};
use super::insert::{Path, Place};
use super::key::Order;
use super::leaf::{Cell, Columns, Leaf};
use crate::Result;
use std::ptr::NonNull;
use terrane_storage::sync::Ordering;

/// Number of leaves that a full one is sorted into.
const SPLIT_WAYS: usize = 4;

impl<C: Columns> Tree<C> {
    /// Changes the tree so that the leaf which covers `order` is not full.
    pub(super) fn make_room(&self, arena: &mut Arena, place: Place<'_, C>, order: Order<'_>) -> Result<()> {
        let Place { path, leaf } = place;
        let Some(&(parent, index)) = path.last() else {
            return Ok(());
        };
        let old = parent.piece(index);
        let mut cells = Vec::with_capacity(leaf.len());
        leaf.sort_into(&mut cells);
        let (Some(first), Some(last)) = (cells.first(), cells.last()) else {
            return Ok(());
        };
        let (lowest, highest) = (first.order(), last.order());
        let pieces = if order > highest && highest.tie < u64::MAX {
            // It covers all orders above the last entry, not only those from the new one on.
            // Otherwise entries that descend towards the last would get a leaf each.
            let mut separator = last.stored_order();
            separator.rest.tie += 1;
            let fresh = arena.place(Leaf::<C>::new())?;
            vec![old, Piece { separator, child: fresh.cast(), extent: C::Extent::EMPTY }]
        } else if order < lowest {
            let fresh = arena.place(Leaf::<C>::new())?;
            let below = Piece { separator: old.separator, child: fresh.cast(), extent: C::Extent::EMPTY };
            vec![below, Piece { separator: first.stored_order(), ..old }]
        } else {
            let mut pieces = cells
                .chunks(cells.len().div_ceil(SPLIT_WAYS))
                .map(|run| leaf_of(arena, run))
                .collect::<Result<Vec<_>>>()?;
            if let Some(first) = pieces.first_mut() {
                first.separator = old.separator;
            }
            pieces
        };
        self.replace_child(arena, path, pieces)
    }

    /// Replaces the child at the end of a path by several that cover its interval.
    fn replace_child(&self, arena: &mut Arena, mut path: Path<'_, C>, mut pieces: Vec<Piece<C::Extent>>) -> Result<()> {
        while let Some((siblings, index)) = path.pop() {
            let len = siblings.len();
            let old = siblings.piece(index);
            let grows_right = index + 1 == len && pieces.len() == 2 && pieces[0].child == old.child;
            if grows_right && len < self.shape.fanout {
                // SAFETY: the caller holds the latch, so it is the only writer; there is
                // room; the piece is one level below and in the same arena.
                unsafe { siblings.node().push(&pieces[1]) };
                return Ok(());
            }
            let own = path.last().map(|&(parent, at)| parent.piece(at));
            let separator = own.as_ref().map_or_else(|| siblings.separator(0), |piece| piece.separator);
            if grows_right {
                // The full node stays, and a new one beside it takes the new child.
                let beside = inner_of::<C>(arena, siblings.level(), &pieces[1..])?;
                let this = own.unwrap_or_else(|| Piece {
                    separator,
                    child: NonNull::from(siblings.node()).cast(),
                    extent: siblings.extent_of_all(),
                });
                pieces = vec![this, beside];
                continue;
            }
            let mut children = Vec::with_capacity(len + pieces.len());
            children.extend((0..index).map(|at| siblings.piece(at)));
            children.append(&mut pieces);
            children.extend((index + 1..len).map(|at| siblings.piece(at)));
            let nodes = children.len().div_ceil(self.shape.fanout);
            let level = siblings.level();
            pieces = children
                .chunks(children.len().div_ceil(nodes))
                .map(|chunk| inner_of::<C>(arena, level, chunk))
                .collect::<Result<Vec<_>>>()?;
            if let [only] = pieces.as_slice() {
                match path.last() {
                    // SAFETY: the caller holds the latch; the copy has the old child's
                    // level, covers the same interval and holds the same entries.
                    Some(&(parent, at)) => unsafe { parent.node().replace(at, only.child) },
                    None => self.root.store(only.child.cast().as_ptr(), Ordering::Release),
                }
                return Ok(());
            }
        }
        let level = self.root().children().level() + 1;
        let root = inner_of::<C>(arena, level, &pieces)?;
        self.root.store(root.child.cast().as_ptr(), Ordering::Release);
        Ok(())
    }
}

/// A new leaf with the given entries.
fn leaf_of<C: Columns>(arena: &mut Arena, run: &[Cell<'_, C>]) -> Result<Piece<C::Extent>> {
    let place = arena.place(Leaf::<C>::new())?;
    // SAFETY: the leaf was placed into the arena just now.
    let leaf = unsafe { place.as_ref() };
    let mut extent = C::Extent::EMPTY;
    for &cell in run {
        let item = C::item(cell);
        extent = extent.union(C::extent(&item));
        // SAFETY: nobody else knows the leaf, and it lives in this arena.
        unsafe { leaf.push(arena, &cell.stored_order(), cell.is_anti_matter(), item)? };
    }
    let separator = run[0].stored_order();
    Ok(Piece { separator, child: place.cast(), extent })
}

/// A new inner node with the given children.
fn inner_of<C: Columns>(arena: &mut Arena, level: u32, children: &[Piece<C::Extent>]) -> Result<Piece<C::Extent>> {
    let place = arena.place(Inner::<C>::new(level))?;
    // SAFETY: the node was placed into the arena just now.
    let inner = unsafe { place.as_ref() };
    for piece in children {
        // SAFETY: nobody else knows the node; callers pass children of the level below,
        // of this arena, and not more than fit.
        unsafe { inner.push(piece) };
    }
    let extent = children.iter().fold(C::Extent::EMPTY, |extent, piece| extent.union(piece.extent));
    Ok(Piece { separator: children[0].separator, child: place.cast(), extent })
}
