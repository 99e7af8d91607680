//! Common parts of searches in R-trees, however a tree reads its nodes.
//!
//! A [`SearchVisitor`] says which entries a search wants. A [`ValidatedVisitor`] can also drop what
//! was read while nodes changed. [`Children`] are the nodes still to be read. A tree names its
//! nodes by numbers, such as offsets in the pool.

use smallvec::SmallVec;

use super::rect::Rect;

/// The nodes from the root to a leaf.
pub(super) type Path = SmallVec<[u64; 8]>;

/// Receives the entries of a search, and says which ones it wants.
pub(super) trait SearchVisitor<const D: usize> {
    /// Whether a child can contain wanted entries.
    fn enters(&self, bounds: &Rect<D>) -> bool;

    /// Whether an entry with this box can be wanted.
    fn meets(&self, rect: &Rect<D>) -> bool;

    /// Takes an entry whose box meets, if it is wanted.
    fn found(&mut self, path: &Path, rect: Rect<D>, payload: u64);

    /// Whether it has everything it wants, so that the rest need not be read.
    fn is_satisfied(&self) -> bool {
        false
    }
}

/// A receiver for searches without locks, which can drop what was read in vain. A `Visit` records
/// how a node was read, to detect later changes of the node.
pub(super) trait ValidatedVisitor<const D: usize, Visit>: SearchVisitor<D> {
    /// Records a node that was read, after those below it.
    fn visited(&mut self, visit: impl FnOnce() -> Visit);

    /// The present extent.
    fn extent(&self) -> Extent;

    /// Drops everything that came after this extent.
    fn truncate(&mut self, extent: Extent);
}

/// The size of a target's contents.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extent {
    pub(super) found: usize,
    pub(super) visited: usize,
}

/// Entries that a window has room for at first, and how many more when it has that many.
const HITS: usize = 24;
const MORE_HITS: usize = 128;

/// Entries that overlap a window.
pub(super) struct Window<'q, const D: usize> {
    query: &'q Rect<D>,
    hits: Vec<(Rect<D>, u64)>,
    visited: usize,
}

impl<'q, const D: usize> Window<'q, D> {
    pub(super) fn new(query: &'q Rect<D>) -> Self {
        Self { query, hits: Vec::with_capacity(HITS), visited: 0 }
    }

    pub(super) fn into_hits(self) -> Vec<(Rect<D>, u64)> {
        self.hits
    }
}

impl<const D: usize> SearchVisitor<D> for Window<'_, D> {
    #[inline]
    fn enters(&self, bounds: &Rect<D>) -> bool {
        self.query.overlaps(bounds)
    }

    #[inline]
    fn meets(&self, rect: &Rect<D>) -> bool {
        self.query.overlaps(rect)
    }

    fn found(&mut self, _: &Path, rect: Rect<D>, payload: u64) {
        if self.hits.len() == HITS {
            self.hits.reserve(MORE_HITS);
        }
        self.hits.push((rect, payload));
    }
}

impl<const D: usize, Visit> ValidatedVisitor<D, Visit> for Window<'_, D> {
    fn visited(&mut self, _: impl FnOnce() -> Visit) {
        self.visited += 1;
    }

    fn extent(&self) -> Extent {
        Extent { found: self.hits.len(), visited: self.visited }
    }

    fn truncate(&mut self, extent: Extent) {
        self.hits.truncate(extent.found);
        self.visited = extent.visited;
    }
}

/// The path to one entry; to the first one that is found, if there are several.
pub(super) struct Exact<'q, const D: usize, Visit> {
    rect: &'q Rect<D>,
    payload: u64,
    pub(super) path: Option<Path>,
    pub(super) visits: SmallVec<[Visit; 16]>,
}

impl<'q, const D: usize, Visit> Exact<'q, D, Visit> {
    pub(super) fn new(rect: &'q Rect<D>, payload: u64) -> Self {
        Self { rect, payload, path: None, visits: SmallVec::new() }
    }
}

impl<const D: usize, Visit> SearchVisitor<D> for Exact<'_, D, Visit> {
    fn enters(&self, bounds: &Rect<D>) -> bool {
        bounds.contains(self.rect)
    }

    fn meets(&self, rect: &Rect<D>) -> bool {
        rect == self.rect
    }

    fn found(&mut self, path: &Path, _: Rect<D>, payload: u64) {
        if payload == self.payload && self.path.is_none() {
            self.path = Some(path.clone());
        }
    }

    fn is_satisfied(&self) -> bool {
        self.path.is_some()
    }
}

impl<const D: usize, Visit> ValidatedVisitor<D, Visit> for Exact<'_, D, Visit> {
    fn visited(&mut self, visit: impl FnOnce() -> Visit) {
        self.visits.push(visit());
    }

    fn extent(&self) -> Extent {
        Extent { found: usize::from(self.path.is_some()), visited: self.visits.len() }
    }

    fn truncate(&mut self, extent: Extent) {
        self.path.take_if(|_| extent.found == 0);
        self.visits.truncate(extent.visited);
    }
}

/// Children of a node in the order of reading. More may be added meanwhile.
#[derive(Default)]
pub(super) struct Children {
    nodes: SmallVec<[u64; 16]>,
    begun: usize,
}

impl Children {
    /// Adds a child to read.
    pub(super) fn push(&mut self, child: u64) {
        self.nodes.push(child);
    }

    /// Begins the next one.
    pub(super) fn next(&mut self) -> Option<u64> {
        let child = self.nodes.get(self.begun).copied();
        self.begun += usize::from(child.is_some());
        child
    }

    /// Begins a child that was not among them, out of order.
    pub(super) fn begin(&mut self, child: u64) {
        self.nodes.insert(self.begun, child);
        self.begun += 1;
    }

    /// The children that were begun before the last one.
    pub(super) fn begun_before(&self) -> &[u64] {
        &self.nodes[..self.begun.saturating_sub(1)]
    }

    /// Takes the children that were not begun.
    pub(super) fn take_others(&mut self) -> impl Iterator<Item = u64> {
        self.nodes.drain(self.begun..)
    }
}
