//! Window queries.

use super::super::Versioned;
use super::super::tree::{Extent, Inner, Leaf, Node, Tree};
use super::columns::Spatial;
use super::{SpatialEntry, seen};
use std::ops::ControlFlow;
use terrane_space::Rect;

impl<const N: usize> Tree<Spatial<N>> {
    /// Visits the entries from a position on that the snapshot sees and that meet the window.
    pub(super) fn search_window<'a>(
        &'a self,
        window: &Rect,
        from: u64,
        snapshot: u64,
        visit: &mut dyn FnMut(Versioned<SpatialEntry<'a>>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        search_inner(self.root(), window, from, snapshot, visit)
    }
}

fn search_inner<'a, const N: usize>(
    inner: &'a Inner<Spatial<N>>,
    window: &Rect,
    from: u64,
    snapshot: u64,
    visit: &mut dyn FnMut(Versioned<SpatialEntry<'a>>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let children = inner.children();
    // All tests before the first descent: without branches they are far cheaper.
    let mut hits = 0_u32;
    for index in 0..children.len() {
        let mbr = Rect::load(children.extent(index));
        let hit = (mbr.x0 <= window.x1) & (mbr.x1 >= window.x0) & (mbr.y0 <= window.y1) & (mbr.y1 >= window.y0);
        hits |= u32::from(hit) << index;
    }
    while hits != 0 {
        let index = hits.trailing_zeros() as usize;
        hits &= hits - 1;
        if from > 0 && children.is_below(index, from) {
            continue;
        }
        match children.get(index) {
            Node::Inner(child) => search_inner(child, window, from, snapshot, visit)?,
            Node::Leaf(leaf) => search_leaf(leaf, window, from, snapshot, visit)?,
        }
    }
    ControlFlow::Continue(())
}

fn search_leaf<'a, const N: usize>(
    leaf: &'a Leaf<Spatial<N>>,
    window: &Rect,
    from: u64,
    snapshot: u64,
    visit: &mut dyn FnMut(Versioned<SpatialEntry<'a>>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    for view in leaf.views() {
        let mut hits = Spatial::hits(view, window);
        while hits != 0 {
            let slot = hits.trailing_zeros() as usize;
            hits &= hits - 1;
            if let Some(entry) = seen(view.cell(slot), snapshot)
                && entry.entry.position >= from
            {
                visit(entry)?;
            }
        }
    }
    ControlFlow::Continue(())
}
