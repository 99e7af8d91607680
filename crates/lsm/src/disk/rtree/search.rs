//! Window search, leaf by leaf, and the nodes for best-first traversals.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use terrane_space::Rect;

use super::RTreeComponent;
use super::pages::{Hits, Inner, Leaf, Marks, WindowBits, validate};
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

    /// About which part of the entries lies in leaves that meet a window, from 0 to 1, as if all pages of a level had as many
    /// entries. Looks at no more than so many inner pages; what it did not look into counts as a whole.
    pub fn part_meeting(&self, window: &Rect, pages_max: usize) -> Result<f64> {
        let Some(root) = self.root().filter(|_| self.file().meta().statistics.rect().intersects(window)) else {
            return Ok(0.0);
        };
        let guard = ReadGuard::enter();
        let mut parts = VecDeque::from([(root, 1.0, self.file().meta().height)]);
        let (mut part, mut pages) = (0.0, 0);
        while let Some((pointer, width, height)) = parts.pop_front() {
            // A leaf, or one page too many.
            if height <= 1 || pages == pages_max {
                part += width;
                continue;
            }
            pages += 1;
            let page = self.page(pointer, &guard)?;
            let Node::Inner(inner) = self.node(&page, pointer)? else {
                part += width;
                continue;
            };
            let width = width / inner.children.len() as f64;
            let meets = |index: &usize| inner.rect(*index).intersects(window);
            let level = page.level();
            parts.extend((0..inner.children.len()).filter(meets).map(|index| (inner.children[index], width, level)));
        }
        Ok(part)
    }

    #[cold]
    fn not_a_node(&self, pointer: PagePointer) -> Error {
        self.file().damaged(pointer, "an R-tree page was expected")
    }
}

/// Most pages that are brought near the processor before they are visited.
const AHEAD_MAX: usize = 24;

/// Pages that a search has room for from the start.
const PENDING: usize = 16;

/// A page to visit.
#[derive(Clone, Copy, Debug)]
struct Pending {
    pointer: PagePointer,
    /// Of the component.
    number: u32,
    /// Whether it is a leaf whose entries were marked ahead.
    is_marked: bool,
    marks: Marks,
}

impl Pending {
    #[inline(always)]
    fn new(pointer: PagePointer, number: u32) -> Self {
        Self { pointer, number, is_marked: false, marks: Marks::default() }
    }
}

/// A search for the entries of any number of components that intersect a window; it goes on
/// page by page, so that a caller can stop after any of them.
#[derive(Debug)]
pub struct WindowSearch {
    window: Rect,
    bits: WindowBits,
    snapshot: u64,
    /// Pages to visit, the next one last.
    pending: Vec<Pending>,
    /// Pages visited.
    pub pages: u64,
}

impl WindowSearch {
    /// A search in nothing yet. The window must have no NaN.
    pub fn new(window: &Rect, snapshot: u64) -> Self {
        let pending = Vec::with_capacity(PENDING);
        Self { window: *window, bits: WindowBits::new(window), snapshot, pending, pages: 0 }
    }

    /// Adds a component, which is to be searched before those that were added earlier; false if its
    /// bounds do not meet the window. Goes down to the parents of the first leaves, as far as
    /// pages in memory lead.
    pub fn add(&mut self, number: u32, component: &RTreeComponent, guard: &ReadGuard) -> Result<bool> {
        let meta = component.file().meta();
        let Some(root) = meta.root else { return Ok(false) };
        if self.window.is_empty() || !meta.statistics.rect().intersects(&self.window) {
            return Ok(false);
        }
        let others = self.pending.len();
        self.pending.push(Pending::new(root, number));
        let mut level = meta.height;
        while level > 1
            && self.pending.len() > others
            && let Some(&Pending { pointer, .. }) = self.pending.last()
            && let Some(page) = component.file().peek(pointer, guard)
        {
            let Node::Inner(inner) = component.node(&page, pointer)? else { break };
            page.touch();
            self.pending.pop();
            self.pages += 1;
            self.expand(&inner, number);
            level = page.level();
        }
        Ok(true)
    }

    /// Number of the component that the next page belongs to; none at the end.
    #[inline]
    pub fn next_component(&self) -> Option<u32> {
        self.pending.last().map(|page| page.number)
    }

    /// Brings the next pages near the processor, then what is to be looked at of their
    /// entries: to wait for the memory of several takes as long as to wait for one.
    #[inline(never)]
    pub fn look_ahead<'c>(&mut self, component: impl Fn(u32) -> Option<&'c RTreeComponent>, guard: &ReadGuard) {
        let Self { pending, bits, .. } = self;
        let page = |next: &Pending| component(next.number)?.file().peek(next.pointer, guard);
        let first = pending.len().saturating_sub(AHEAD_MAX);
        for next in pending[first..].iter().rev().filter(|next| !next.is_marked) {
            if let Some(page) = page(next) {
                page.prefetch();
            }
        }
        for next in pending[first..].iter_mut().rev().filter(|next| !next.is_marked) {
            let Some(page) = page(next).filter(|page| page.kind() == PageKind::RTreeLeaf) else { continue };
            // What is wrong with a page is told by the visit.
            let Some(leaf) = Leaf::parse(&page) else { continue };
            page.touch();
            let marks = leaf.marks(bits);
            marks.hits.iter(leaf.count).for_each(|index| leaf.prefetch(index));
            (next.is_marked, next.marks) = (true, marks);
        }
    }

    /// Notes the children of an inner page that may have matching entries.
    #[inline]
    fn expand(&mut self, inner: &Inner<'_>, number: u32) {
        let mut hits = Hits::new();
        inner.mark_window(&self.bits, &mut hits);
        for index in hits.iter(inner.children.len()) {
            self.pending.push(Pending::new(inner.children[index], number));
        }
    }

    /// Visits the next page, which is one of `component`, and the matching entries there,
    /// anti-matter included. Breaks when the visitor does.
    #[inline]
    pub fn step(
        &mut self,
        component: &RTreeComponent,
        guard: &ReadGuard,
        mut visit: impl FnMut(&Leaf<'_>, usize) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let Some(Pending { pointer, number, is_marked, marks }) = self.pending.pop() else {
            return Ok(ControlFlow::Continue(()));
        };
        self.pages += 1;
        if is_marked && marks.hits.is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        let page = component.page(pointer, guard)?;
        match component.node(&page, pointer)? {
            Node::Inner(inner) => {
                self.expand(&inner, number);
                if page.level() == 1 {
                    self.look_ahead(|other| (other == number).then_some(component), guard);
                }
            }
            Node::Leaf(leaf) => {
                let Marks { hits, marked } = if is_marked { marks } else { leaf.marks(&self.bits) };
                for index in hits.iter(leaf.count) {
                    if leaf.meets(index, &marked, &self.bits) && leaf.is_visible(index, self.snapshot) {
                        let flow = visit(&leaf, index);
                        if flow.is_break() {
                            return Ok(flow);
                        }
                    }
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
