//! Window search in the R-tree: selects children by their boxes.

use std::sync::Arc;

use terrane_space::{CoordinateSystem, hilbert};

use super::RTreeComponent;
use super::pages::{Hits, Inner, Leaf, validate};
use crate::disk::component::ComponentFile;
use crate::disk::page::{Page, PageKind, PagePointer, PageRef};
use crate::disk::slot::ReadGuard;
use crate::disk::spatial::{self, SpatialTree, TreeCursor, WindowQuery};
use crate::{Error, Result};

/// A page of the tree.
pub type Node<'a> = spatial::Node<'a, Inner<'a>>;

/// Iterates over the entries of a component in Hilbert order.
pub type RTreeCursor = TreeCursor<RTreeComponent>;

impl RTreeComponent {
    /// The root page, unless the component is empty.
    pub fn root(&self) -> Option<PagePointer> {
        self.file().meta().root
    }

    /// Reads a page.
    #[inline]
    pub fn page<'g>(&self, pointer: PagePointer, guard: &'g ReadGuard) -> Result<PageRef<'g>> {
        self.file().page(pointer, validate, guard)
    }

    /// The content of a page.
    #[inline(always)]
    pub fn node<'a>(&self, page: &'a Page, pointer: PagePointer) -> Result<Node<'a>> {
        match page.kind() {
            PageKind::RTreeInner => {
                if let Some(inner) = Inner::parse(page) {
                    return Ok(Node::Inner(inner));
                }
            }
            PageKind::RTreeLeaf => {
                if let Some(leaf) = Leaf::parse(page) {
                    return Ok(Node::Leaf(leaf));
                }
            }
            _ => {}
        }
        Err(self.not_a_node(pointer))
    }

    #[cold]
    fn not_a_node(&self, pointer: PagePointer) -> Error {
        self.file().damaged(pointer, "an R-tree page was expected")
    }
}

impl SpatialTree for RTreeComponent {
    type Inner<'a> = Inner<'a>;
    type Filter<'a> = ();
    type Order = CoordinateSystem;

    fn file(&self) -> &Arc<ComponentFile> {
        RTreeComponent::file(self)
    }

    fn validate(page: &Page) -> std::result::Result<(), String> {
        validate(page)
    }

    #[inline(always)]
    fn node<'a>(&self, page: &'a Page, pointer: PagePointer) -> Result<Node<'a>> {
        RTreeComponent::node(self, page, pointer)
    }

    fn children<'i>(inner: &'i Inner<'_>) -> &'i [PagePointer] {
        inner.children
    }

    fn prepare(&self, _: &mut WindowQuery) {}

    #[inline(always)]
    fn mark(&self, inner: &Inner<'_>, query: &WindowQuery, mut child: impl FnMut(PagePointer)) {
        let mut hits = Hits::new();
        inner.mark_window(&query.bits, &mut hits);
        for index in hits.iter(inner.children.len()) {
            child(inner.children[index]);
        }
    }

    #[inline(always)]
    fn filter<'a>(&self, _: &Leaf<'a>, _: &WindowQuery) {}

    #[inline(always)]
    fn reports(&self, (): &(), _: &Leaf<'_>, _: usize, _: &WindowQuery) -> bool {
        true
    }

    fn position(&self, leaf: &Leaf<'_>, index: usize, system: CoordinateSystem) -> u64 {
        hilbert::position(system, leaf.rect(index).center())
    }
}
