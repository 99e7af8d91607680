//! Window search, leaf by leaf, over several components at once: all are gone down to the parents of the leaves before the
//! first leaf is looked at, so that these are on their way from memory together.

use std::cell::Cell;
use std::collections::VecDeque;
use std::mem;
use std::ops::ControlFlow;

use terrane_space::Rect;

use super::{Node, SpatialTree, WindowQuery, not_below};
use crate::Result;
use crate::disk::component::ComponentFile;
use crate::disk::page::{PageKind, PagePointer};
use crate::disk::rtree::{Leaf, Marks, WindowBits};
use crate::disk::slot::ReadGuard;

/// Most pages that are brought near the processor before they are visited.
const AHEAD_MAX: usize = 24;

/// Pages that a search has room for from the start.
const PENDING: usize = 32;

/// Most pages of which a thread keeps the room when a search ends.
const SPARE_MAX: usize = 256;

thread_local! {
    /// Room that a search has left for the next one of its thread: to ask for it anew takes a good part of a small search.
    static SPARE: Cell<Vec<Pending>> = const { Cell::new(Vec::new()) };
}

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
    query: WindowQuery,
    snapshot: u64,
    /// Pages to visit, the next one last.
    pending: Vec<Pending>,
    /// Pages visited.
    pub pages: u64,
}

impl WindowSearch {
    /// A search in nothing yet. The window must have no NaN.
    pub fn new(window: &Rect, snapshot: u64) -> Self {
        // A thread that ends has no spare room any more.
        let mut pending = SPARE.try_with(Cell::take).unwrap_or_default();
        pending.reserve(PENDING);
        let query = WindowQuery { rect: *window, bits: WindowBits::new(window), probe: None };
        Self { query, snapshot, pending, pages: 0 }
    }

    /// Adds a component, which is to be searched before those that were added earlier; false if its
    /// bounds do not meet the window. Goes down to the parents of the first leaves, as far as
    /// pages in memory lead.
    pub fn add<T: SpatialTree>(&mut self, number: u32, component: &T, guard: &ReadGuard) -> Result<bool> {
        let meta = component.file().meta();
        let Some(root) = meta.root else { return Ok(false) };
        if self.query.rect.is_empty() || !meta.statistics.rect().intersects(&self.query.rect) {
            return Ok(false);
        }
        component.prepare(&mut self.query);
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
            self.expand(component, &inner, pointer, number)?;
            level = page.level();
            if level == 1 {
                // They come while the next component is looked into.
                self.fetch(others, component.file(), guard);
            }
        }
        Ok(true)
    }

    /// Number of the component that the next page belongs to; none at the end.
    #[inline]
    pub fn next_component(&self) -> Option<u32> {
        self.pending.last().map(|page| page.number)
    }

    /// Brings the pages from a place on near the processor, those that are visited next: to wait for the memory of
    /// several takes as long as to wait for one.
    #[inline]
    fn fetch(&self, from: usize, file: &ComponentFile, guard: &ReadGuard) {
        for next in self.pending[from..].iter().rev().take(AHEAD_MAX) {
            if let Some(page) = file.peek(next.pointer, guard) {
                page.prefetch();
            }
        }
    }

    /// Marks the entries of the next leaves that may match, and brings near the processor what is to be looked at of
    /// them.
    #[inline(never)]
    pub fn look_ahead<'c>(&mut self, file: impl Fn(u32) -> Option<&'c ComponentFile>, guard: &ReadGuard) {
        let Self { pending, query, .. } = self;
        let page = |next: &Pending| file(next.number)?.peek(next.pointer, guard);
        let first = pending.len().saturating_sub(AHEAD_MAX);
        for next in pending[first..].iter_mut().rev().filter(|next| !next.is_marked) {
            let Some(page) = page(next).filter(|page| page.kind() == PageKind::RTreeLeaf) else { continue };
            // What is wrong with a page is told by the visit.
            let Some(leaf) = Leaf::parse(&page) else { continue };
            page.touch();
            let marks = leaf.marks(&query.bits);
            marks.hits.iter(leaf.count).for_each(|index| leaf.prefetch(index));
            (next.is_marked, next.marks) = (true, marks);
        }
    }

    /// Notes the children of the inner page at `pointer` that may have matching entries. A search of several components
    /// looks into more inner pages than leaves, so all of it goes into its callers.
    #[inline(always)]
    fn expand<T: SpatialTree>(
        &mut self,
        component: &T,
        inner: &T::Inner<'_>,
        pointer: PagePointer,
        number: u32,
    ) -> Result<()> {
        let mut descends = true;
        component.mark(inner, &self.query, |child| {
            descends &= child.offset < pointer.offset;
            self.pending.push(Pending::new(child, number));
        });
        if descends { Ok(()) } else { Err(not_below(component, pointer)) }
    }

    /// Visits the next page, which is one of `component`, and the matching entries there,
    /// anti-matter included. Breaks when the visitor does.
    #[inline]
    pub fn step<T: SpatialTree>(
        &mut self,
        component: &T,
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
                let others = self.pending.len();
                self.expand(component, &inner, pointer, number)?;
                if page.level() == 1 {
                    self.fetch(others, component.file(), guard);
                    self.look_ahead(|other| (other == number).then_some(component.file()), guard);
                }
            }
            Node::Leaf(leaf) => {
                let Marks { hits, marked } = if is_marked { marks } else { leaf.marks(&self.query.bits) };
                let filter = component.filter(&leaf, &self.query);
                for index in hits.iter(leaf.count) {
                    if leaf.meets(index, &marked, &self.query.bits)
                        && leaf.is_visible(index, self.snapshot)
                        && component.reports(&filter, &leaf, index, &self.query)
                    {
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

impl Drop for WindowSearch {
    fn drop(&mut self) {
        let mut pending = mem::take(&mut self.pending);
        if pending.capacity() <= SPARE_MAX {
            pending.clear();
            // Nobody needs it where the thread ends.
            let _ = SPARE.try_with(|spare| spare.set(pending));
        }
    }
}

/// About which part of a component's entries lies in leaves that may meet a window, from 0 to 1, as if all pages of a
/// level had as many entries. Looks at no more than so many inner pages; what it did not look into counts as a whole.
pub fn part_meeting<T: SpatialTree>(component: &T, window: &Rect, pages_max: usize) -> Result<f64> {
    let meta = component.file().meta();
    let Some(root) = meta.root.filter(|_| meta.statistics.rect().intersects(window)) else { return Ok(0.0) };
    let mut query = WindowQuery { rect: *window, bits: WindowBits::new(window), probe: None };
    component.prepare(&mut query);
    let guard = ReadGuard::enter();
    let mut parts = VecDeque::from([(root, 1.0, meta.height)]);
    let (mut part, mut pages) = (0.0, 0);
    while let Some((pointer, width, height)) = parts.pop_front() {
        // A leaf, or one page too many.
        if height <= 1 || pages == pages_max {
            part += width;
            continue;
        }
        pages += 1;
        let page = component.page(pointer, &guard)?;
        match component.node(&page, pointer)? {
            Node::Leaf(_) => part += width,
            Node::Inner(inner) => {
                let width = width / T::children(&inner).len() as f64;
                let level = page.level();
                component.mark(&inner, &query, |child| parts.push_back((child, width, level)));
            }
        }
    }
    Ok(part)
}
