//! What searches of R-trees have in common, however a tree reads its nodes.
//!
//! [`Sought`] is what is looked for, [`Target`] takes back what was read while nodes changed, and
//! [`Children`] are still to be read. A tree names its nodes by numbers, such as offsets in the
//! pool.

use smallvec::SmallVec;

use super::rect::Rect;

/// The nodes from the root to a leaf.
pub(super) type Path = SmallVec<[u64; 8]>;

/// What is looked for, and where it goes.
pub(super) trait Sought<const D: usize> {
    /// Whether a child can hold some.
    fn enters(&self, bounds: &Rect<D>) -> bool;

    /// Whether an entry with this box can be one.
    fn meets(&self, rect: &Rect<D>) -> bool;

    /// Takes an entry whose box meets, if it is one.
    fn found(&mut self, path: &Path, rect: Rect<D>, payload: u64);

    /// Whether it has all it wants, so that the rest need not be read.
    fn is_satisfied(&self) -> bool {
        false
    }
}

/// What is looked for, where readers take no locks: what was read in vain is taken back. A `Visit`
/// says how a node was read, by which it is seen whether the node has changed since.
pub(super) trait Target<const D: usize, Visit>: Sought<D> {
    /// Takes note of a node that was read, after those below it.
    fn visited(&mut self, visit: impl FnOnce() -> Visit);

    /// What there is.
    fn extent(&self) -> Extent;

    /// Forgets all that has come since.
    fn truncate(&mut self, extent: Extent);
}

/// How much a target has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extent {
    pub(super) found: usize,
    pub(super) visited: usize,
}

/// Entries that overlap a window.
pub(super) struct Window<'q, const D: usize> {
    query: &'q Rect<D>,
    hits: Vec<(Rect<D>, u64)>,
    visited: usize,
}

impl<'q, const D: usize> Window<'q, D> {
    pub(super) fn new(query: &'q Rect<D>) -> Self {
        Self { query, hits: Vec::new(), visited: 0 }
    }

    pub(super) fn into_hits(self) -> Vec<(Rect<D>, u64)> {
        self.hits
    }
}

impl<const D: usize> Sought<D> for Window<'_, D> {
    #[inline]
    fn enters(&self, bounds: &Rect<D>) -> bool {
        self.query.overlaps(bounds)
    }

    #[inline]
    fn meets(&self, rect: &Rect<D>) -> bool {
        self.query.overlaps(rect)
    }

    fn found(&mut self, _: &Path, rect: Rect<D>, payload: u64) {
        self.hits.push((rect, payload));
    }
}

impl<const D: usize, Visit> Target<D, Visit> for Window<'_, D> {
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

/// The way to one entry; to the first one that is found, where there are several.
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

impl<const D: usize, Visit> Sought<D> for Exact<'_, D, Visit> {
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

impl<const D: usize, Visit> Target<D, Visit> for Exact<'_, D, Visit> {
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

/// Children of a node in the order in which they are read. More may come meanwhile.
#[derive(Default)]
pub(super) struct Children {
    nodes: SmallVec<[u64; 16]>,
    begun: usize,
}

impl Children {
    /// Adds one that is to be read.
    pub(super) fn push(&mut self, child: u64) {
        self.nodes.push(child);
    }

    /// Begins the next one.
    pub(super) fn next(&mut self) -> Option<u64> {
        let child = self.nodes.get(self.begun).copied();
        self.begun += usize::from(child.is_some());
        child
    }

    /// Begins one that was not among them, out of their order.
    pub(super) fn begin(&mut self, child: u64) {
        self.nodes.insert(self.begun, child);
        self.begun += 1;
    }

    /// Those that were begun before the last one.
    pub(super) fn begun_before(&self) -> &[u64] {
        &self.nodes[..self.begun.saturating_sub(1)]
    }

    /// Takes those that were not begun.
    pub(super) fn take_others(&mut self) -> impl Iterator<Item = u64> {
        self.nodes.drain(self.begun..)
    }
}
