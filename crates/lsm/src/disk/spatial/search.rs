//! Window search, leaf by leaf, over several components at once. It descends to the parents of the
//! leaves in all components before it reads the first leaf, so that the leaves are fetched from
//! memory in parallel.

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

/// Most pages that are prefetched before they are visited.
const AHEAD_MAX: usize = 24;

/// Initial capacity for pages of a search.
const PENDING: usize = 32;

/// Largest capacity for pages that a thread keeps when a search ends.
const SPARE_MAX: usize = 256;

thread_local! {
    /// Buffers of the last search, kept for the next one of the thread: allocating them again would
    /// take a good part of a small search.
    static SPARE: Cell<Vec<Pending>> = const { Cell::new(Vec::new()) };
}

/// A page to visit.
#[derive(Clone, Copy, Debug)]
struct Pending {
    pointer: PagePointer,
    /// The component's number.
    number: u32,
    /// Whether it is a leaf whose entries are marked already.
    is_marked: bool,
    marks: Marks,
}

impl Pending {
    #[inline(always)]
    fn new(pointer: PagePointer, number: u32) -> Self {
        Self { pointer, number, is_marked: false, marks: Marks::default() }
    }
}

/// A search for the entries of any number of components that intersect a window. It continues page
/// by page, so a caller can stop after any of them.
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
    /// A search without components. The window must have no NaN.
    pub fn new(window: &Rect, snapshot: u64) -> Self {
        // A thread that ends has no spare buffers any more.
        let mut pending = SPARE.try_with(Cell::take).unwrap_or_default();
        pending.reserve(PENDING);
        let query = WindowQuery { rect: *window, bits: WindowBits::new(window), probe: None };
        Self { query, snapshot, pending, pages: 0 }
    }

    /// Adds a component, which is searched before those added earlier; false if its bounds do not
    /// meet the window. Descends to the parents of the first leaves, as far as pages are in memory.
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
                // They are fetched while the next component is examined.
                self.fetch(others, component.file(), guard);
            }
        }
        Ok(true)
    }

    /// Number of the component of the next page; `None` at the end.
    #[inline]
    pub fn next_component(&self) -> Option<u32> {
        self.pending.last().map(|page| page.number)
    }

    /// Prefetches the pages from an index on, which are visited next. Waiting for the memory of
    /// several pages takes as long as for one.
    #[inline]
    fn fetch(&self, from: usize, file: &ComponentFile, guard: &ReadGuard) {
        for next in self.pending[from..].iter().rev().take(AHEAD_MAX) {
            if let Some(page) = file.peek(next.pointer, guard) {
                page.prefetch();
            }
        }
    }

    /// Marks the entries of the next leaves that may match, and prefetches the parts that are read
    /// of them.
    #[inline(never)]
    pub fn look_ahead<'c>(&mut self, file: impl Fn(u32) -> Option<&'c ComponentFile>, guard: &ReadGuard) {
        let Self { pending, query, .. } = self;
        let page = |next: &Pending| file(next.number)?.peek(next.pointer, guard);
        let first = pending.len().saturating_sub(AHEAD_MAX);
        for next in pending[first..].iter_mut().rev().filter(|next| !next.is_marked) {
            let Some(page) = page(next).filter(|page| page.kind() == PageKind::RTreeLeaf) else { continue };
            // The visit reports a damaged page.
            let Some(leaf) = Leaf::parse(&page) else { continue };
            page.touch();
            let marks = leaf.marks(&query.bits);
            marks.hits.iter(leaf.count).for_each(|index| leaf.prefetch(index));
            (next.is_marked, next.marks) = (true, marks);
        }
    }

    /// Adds the children of the inner page at `pointer` that may have matching entries. A search of
    /// several components examines more inner pages than leaves, so this function is inlined.
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

    /// Visits the next page, which belongs to `component`, and its matching entries, including
    /// anti-matter. Breaks when the visitor does.
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
            // At the end of the thread they are not needed.
            let _ = SPARE.try_with(|spare| spare.set(pending));
        }
    }
}

/// The approximate share of a component's entries in leaves that may meet a window, from 0 to 1. It
/// assumes that all pages of a level have the same number of entries. Reads at most `pages_max`
/// inner pages; unread ones count in full.
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
