//! Window search in the curve-keyed tree: selects the children whose positions overlap those of the
//! window.

use std::sync::Arc;

use super::CurveComponent;
use super::pages::{HAS_POSITIONS, Inner, positions, validate};
use crate::disk::component::ComponentFile;
use crate::disk::keys::Keys;
use crate::disk::page::{Page, PageKind, PagePointer};
use crate::disk::rtree::Leaf;
use crate::disk::spatial::{Node, SpatialTree, WindowQuery};
use crate::{Error, Result};

/// Which entries of a leaf represent their objects.
#[derive(Debug)]
pub enum Filter<'a> {
    /// All of them.
    All,
    /// Decided by their positions.
    Positions(Keys<'a>),
    /// None of them.
    None,
}

impl CurveComponent {
    #[cold]
    fn not_a_node(&self, pointer: PagePointer) -> Error {
        self.file().damaged(pointer, format!("a page of a component of kind {} was expected", self.curve.kind()))
    }
}

impl SpatialTree for CurveComponent {
    type Inner<'a> = Inner<'a>;
    type Filter<'a> = Filter<'a>;
    type Order = ();

    fn file(&self) -> &Arc<ComponentFile> {
        CurveComponent::file(self)
    }

    fn validate(page: &Page) -> std::result::Result<(), String> {
        validate(page)
    }

    #[inline]
    fn node<'a>(&self, page: &'a Page, pointer: PagePointer) -> Result<Node<'a, Inner<'a>>> {
        match page.kind() {
            PageKind::CurveInner => {
                if let Some(inner) = Inner::parse(page) {
                    return Ok(Node::Inner(inner));
                }
            }
            PageKind::CurveLeaf if (page.flags() & HAS_POSITIONS != 0) == self.curve.stores_positions() => {
                if let Some(leaf) = Leaf::parse(page) {
                    return Ok(Node::Leaf(leaf));
                }
            }
            _ => {}
        }
        Err(self.not_a_node(pointer))
    }

    fn children<'i>(inner: &'i Inner<'_>) -> &'i [PagePointer] {
        inner.children
    }

    fn prepare(&self, query: &mut WindowQuery) {
        if query.probe.is_none() {
            query.probe = Some(self.curve.probe(&query.rect));
        }
    }

    /// Jumps from a position of the window to the next, over all children in between: the range
    /// search of section 4.2.1, with whole pages instead of entries. Within a leaf, comparing all
    /// coordinates with the window is faster than finding one jump.
    #[inline]
    fn mark(&self, inner: &Inner<'_>, query: &WindowQuery, mut child: impl FnMut(PagePointer)) {
        let Some(probe) = &query.probe else { return };
        let count = inner.children.len();
        let mut index = 0;
        while index < count {
            let Some(next) = probe.next(inner.firsts.integer(index)) else { return };
            if next > inner.lasts.integer(index) {
                index = inner.lasts.lower_bound(count, &next.to_be_bytes());
                if index == count || inner.firsts.integer(index) > next {
                    // The position lies between two children, or behind all.
                    continue;
                }
            }
            child(inner.children[index]);
            index += 1;
        }
    }

    #[inline]
    fn filter<'a>(&self, leaf: &Leaf<'a>, query: &WindowQuery) -> Filter<'a> {
        if !self.curve.has_several() {
            return Filter::All;
        }
        match (positions(leaf), &query.probe) {
            (Some(positions), Some(probe)) => {
                let (first, last) = (positions.integer(0), positions.integer(leaf.count - 1));
                if first == last && self.curve.reports_all(first, probe) {
                    Filter::All
                } else {
                    Filter::Positions(positions)
                }
            }
            // Unreachable: pages have the parts of their kind, and the search was prepared.
            _ => Filter::None,
        }
    }

    #[inline]
    fn reports(&self, filter: &Filter<'_>, leaf: &Leaf<'_>, index: usize, query: &WindowQuery) -> bool {
        match (filter, &query.probe) {
            (Filter::All, _) => true,
            (Filter::Positions(positions), Some(probe)) => {
                self.curve.reports(positions.integer(index), &leaf.rect(index), &query.rect, probe)
            }
            _ => false,
        }
    }

    fn position(&self, leaf: &Leaf<'_>, index: usize, (): ()) -> u64 {
        self.position_of(leaf, index)
    }
}
