//! Window search, leaf by leaf, and the nodes for best-first traversals.

use std::ops::ControlFlow;

use terrane_space::Rect;

use super::RTreeComponent;
use super::pages::{Hits, Inner, Leaf, WindowBits, validate};
use crate::disk::page::{Page, PageKind, PagePointer, PageRef};
use crate::disk::slot::ReadGuard;
use crate::{Error, Result};

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
    pub fn page<'g>(&self, pointer: PagePointer, guard: &'g ReadGuard) -> Result<PageRef<'g>> {
        self.file().page(pointer, validate, guard)
    }

    /// Reads a page that will not be needed again soon.
    pub fn page_once(&self, pointer: PagePointer) -> Result<Page> {
        self.file().page_once(pointer, validate)
    }

    /// What a page holds.
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

/// Most pages that are brought near the processor before they are visited.
const AHEAD_MAX: usize = 8;

/// A search for the entries that intersect a window; it goes on leaf by leaf, so that a
/// caller can stop after any of them.
#[derive(Debug)]
pub struct WindowSearch {
    window: WindowBits,
    snapshot: u64,
    /// Pages to visit, the next one last.
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

    /// Goes down to the parents of the first leaves, as far as pages in memory lead. Follow up
    /// with [`Self::prefetch`].
    pub fn descend(&mut self, component: &RTreeComponent, guard: &ReadGuard) -> Result<()> {
        let mut level = component.file().meta().height;
        while level > 1
            && let Some(&pointer) = self.pending.last()
            && let Some(page) = component.file().peek(pointer, guard)
        {
            let Node::Inner(inner) = component.node(&page, pointer)? else { break };
            page.touch();
            self.pending.pop();
            self.expand(&inner);
            level = page.level();
        }
        Ok(())
    }

    /// Brings the next leaves near the processor: to wait for the memory of several takes as
    /// long as to wait for one.
    #[inline]
    pub fn prefetch(&self, component: &RTreeComponent, guard: &ReadGuard) {
        let ahead = self.pending.iter().rev().take(AHEAD_MAX);
        ahead.filter_map(|pointer| component.file().peek(*pointer, guard)).for_each(|page| page.prefetch());
    }

    /// Notes the children of an inner page that may have matching entries.
    #[inline]
    fn expand(&mut self, inner: &Inner<'_>) {
        self.pages += 1;
        let mut hits = Hits::new();
        inner.mark_window(&self.window, &mut hits);
        self.pending.extend(hits.iter(inner.children.len()).map(|index| inner.children[index]));
    }

    /// Visits the matching entries of the next leaf that may have some, anti-matter included.
    /// False when there is no further leaf, or when the visitor broke off.
    #[inline]
    pub fn next_leaf(
        &mut self,
        component: &RTreeComponent,
        guard: &ReadGuard,
        visit: &mut impl FnMut(&Leaf<'_>, usize) -> ControlFlow<()>,
    ) -> Result<bool> {
        while let Some(pointer) = self.pending.pop() {
            let page = component.page(pointer, guard)?;
            match component.node(&page, pointer)? {
                Node::Inner(inner) => {
                    self.expand(&inner);
                    if page.level() == 1 {
                        self.prefetch(component, guard);
                    }
                }
                Node::Leaf(leaf) => {
                    self.pages += 1;
                    let mut hits = Hits::new();
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
