//! Window search, leaf by leaf, and the nodes for best-first traversals.

use std::ops::ControlFlow;

use terrane_space::Rect;

use super::RTreeComponent;
use super::pages::{Hits, Inner, Leaf, WindowBits, validate};
use crate::Result;
use crate::disk::page::{PageKind, PagePointer, PageRef};

/// A page of the tree.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it lives on the stack for one visit, and leaves are the common case")]
pub enum Node<'a> {
    /// Boxes and children.
    Inner(Inner<'a>),
    /// Entries.
    Leaf(Leaf<'a>),
}

impl RTreeComponent {
    /// The root page, unless the component is empty.
    pub fn root(&self) -> Option<PagePointer> {
        self.file().meta().root
    }

    /// Reads a page.
    #[inline]
    pub fn page(&self, pointer: PagePointer) -> Result<PageRef> {
        self.file().page(pointer, validate)
    }

    /// Reads a page that will not be needed again soon.
    pub fn page_once(&self, pointer: PagePointer) -> Result<PageRef> {
        self.file().page_once(pointer, validate)
    }

    /// What a page holds.
    #[inline]
    pub fn node<'a>(&self, page: &'a PageRef, pointer: PagePointer) -> Result<Node<'a>> {
        let node = match page.kind() {
            PageKind::RTreeInner => Inner::parse(page).map(Node::Inner),
            PageKind::RTreeLeaf => Leaf::parse(page).map(Node::Leaf),
            _ => None,
        };
        node.ok_or_else(|| self.file().damaged(pointer, "an R-tree page was expected"))
    }
}

/// A search for the entries that intersect a window; it goes on leaf by leaf, so that a
/// caller can stop after any of them.
#[derive(Debug)]
pub struct WindowSearch {
    window: WindowBits,
    snapshot: u64,
    pending: Vec<PagePointer>,
    /// Pages visited.
    pub pages: u64,
}

impl WindowSearch {
    /// A search over a whole component.
    pub fn new(component: &RTreeComponent, window: &Rect, snapshot: u64) -> Self {
        let mut pending = Vec::new();
        if !window.is_empty() && component.file().meta().statistics.rect().intersects(window) {
            pending.reserve(32);
            pending.extend(component.root());
        }
        Self { window: WindowBits::new(window), snapshot, pending, pages: 0 }
    }

    /// Visits the matching entries of the next leaf that may have some, anti-matter included.
    /// False when there is no further leaf, or when the visitor broke off.
    #[inline]
    pub fn next_leaf(
        &mut self,
        component: &RTreeComponent,
        visit: &mut impl FnMut(&Leaf<'_>, usize) -> ControlFlow<()>,
    ) -> Result<bool> {
        while let Some(pointer) = self.pending.pop() {
            let page = component.page(pointer)?;
            self.pages += 1;
            let mut hits = Hits::new();
            match component.node(&page, pointer)? {
                Node::Inner(inner) => {
                    inner.mark_window(&self.window, &mut hits);
                    self.pending.extend(hits.iter(inner.children.len()).map(|index| inner.children[index]));
                }
                Node::Leaf(leaf) => {
                    let Some(marked) = leaf.mark_window(&self.window, &mut hits) else { continue };
                    for index in hits.iter(leaf.count) {
                        if leaf.meets(index, &marked, &self.window)
                            && leaf.is_visible(index, self.snapshot)
                            && visit(&leaf, index).is_break()
                        {
                            self.pending.clear();
                            return Ok(false);
                        }
                    }
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}
