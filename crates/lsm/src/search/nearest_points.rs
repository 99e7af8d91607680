//! The few nearest points of components without anti-matter, where every entry is a result.
//!
//! Branch and bound (Roussopoulos, Kelley and Vincent 1995): straight down to the first
//! leaf, whose entries bound what can still be wanted; then best-first over the nodes
//! within the bound, which shrinks on the way.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use terrane_space::{Point, Rect};

use super::SpatialSource;
use super::nearest::{Metric, NodeRef};
use crate::Result;
use crate::disk::rtree::{Hits, Leaf, Node, WindowBits};

/// Most points that are found this way.
pub const NEAREST_POINTS_MAX: usize = 1 << 12;
/// Bytes of points, with those at one distance with the last, that a search keeps; it gives up at more.
const MEMORY_MAX: usize = 1 << 20;

/// A node that may hold wanted points.
struct Pending<'v> {
    measure: f64,
    source: usize,
    node: NodeRef<'v>,
}

impl PartialEq for Pending<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Pending<'_> {}

impl PartialOrd for Pending<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Pending<'_> {
    /// The nearest is the greatest, as a binary heap wants it.
    fn cmp(&self, other: &Self) -> Ordering {
        other.measure.total_cmp(&self.measure)
    }
}

#[derive(Clone, Copy, PartialEq)]
struct Measure(f64);

impl Eq for Measure {}

impl PartialOrd for Measure {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Measure {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

#[derive(Clone, Copy)]
struct Entry {
    measure: f64,
    point: Point,
    key_start: u32,
    key_end: u32,
}

/// Points that may be among the nearest, in no order: the nearest ones and those that are
/// as far as the last of them but for rounding, among which the caller decides.
pub struct NearestPoints {
    entries: Vec<Entry>,
    keys: Vec<u8>,
    /// Pages of disk components visited.
    pub pages: u64,
    /// Entries whose distance was computed.
    pub measured: u64,
}

impl NearestPoints {
    /// Number of points.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The points with their keys.
    pub fn iter(&self) -> impl Iterator<Item = (Point, &[u8])> {
        self.entries.iter().map(|entry| (entry.point, &self.keys[entry.key_start as usize..entry.key_end as usize]))
    }
}

/// Finds the `count` nearest points, at most [`NEAREST_POINTS_MAX`], that the snapshot sees.
/// `None` where the search is not suited: for more points, where there is anti-matter, and where
/// a great many points are at one distance or at distances beyond all numbers.
pub fn nearest_points<'v, M: Metric>(
    sources: &'v [SpatialSource<'v>],
    metric: &M,
    snapshot: u64,
    count: usize,
) -> Result<Option<NearestPoints>> {
    if count > NEAREST_POINTS_MAX || sources.iter().any(SpatialSource::has_antimatter) {
        return Ok(None);
    }
    let found = NearestPoints { entries: Vec::with_capacity(64), keys: Vec::with_capacity(512), pages: 0, measured: 0 };
    let mut search = Search {
        sources,
        metric,
        snapshot,
        count,
        best: BinaryHeap::with_capacity(count + 1),
        bound: if count == 0 { f64::NEG_INFINITY } else { f64::INFINITY },
        window: None,
        given_up: false,
        unbounded: Vec::new(),
        queue: BinaryHeap::new(),
        found,
    };
    search.run()?;
    let Search { bound, mut found, given_up, .. } = search;
    if given_up {
        return Ok(None);
    }
    found.entries.retain(|entry| entry.measure <= bound);
    Ok(Some(found))
}

struct Search<'v, 'm, M> {
    sources: &'v [SpatialSource<'v>],
    metric: &'m M,
    snapshot: u64,
    count: usize,
    /// Measures of the nearest points so far, at most `count` of them.
    best: BinaryHeap<Measure>,
    /// Nothing farther can be among the nearest; infinite until `count` points are known.
    bound: f64,
    /// Encloses everything up to the bound, where the metric has such a window.
    window: Option<WindowBits>,
    given_up: bool,
    /// Nodes met before there was a bound, in no order.
    unbounded: Vec<Pending<'v>>,
    queue: BinaryHeap<Pending<'v>>,
    found: NearestPoints,
}

impl<'v, M: Metric> Search<'v, '_, M> {
    fn run(&mut self) -> Result<()> {
        for (number, source) in self.sources.iter().enumerate() {
            let bounds = source.bounds();
            if bounds.is_empty() {
                continue;
            }
            let root = match source {
                SpatialSource::Memory(memory) => Some(NodeRef::Memory(memory.root())),
                SpatialSource::Disk(component) => component.root().map(NodeRef::Disk),
            };
            if let Some(node) = root {
                self.queue.push(Pending { measure: self.metric.to_rect(&bounds), source: number, node });
            }
        }
        while let Some(first) = self.queue.pop() {
            if first.measure > self.bound || self.given_up {
                break;
            }
            let mut next = Some(first);
            while let Some(pending) = next {
                next = self.open(&pending)?;
            }
            if self.bound.is_finite() || self.queue.is_empty() {
                let bound = self.bound;
                self.queue.extend(self.unbounded.drain(..).filter(|pending| pending.measure <= bound));
            }
        }
        Ok(())
    }

    /// Opens a node. Where there is no bound yet, the nearest child is returned to be opened next.
    fn open(&mut self, pending: &Pending<'v>) -> Result<Option<Pending<'v>>> {
        let source = pending.source;
        let mut nearest = None;
        match (&pending.node, &self.sources[source]) {
            (NodeRef::Memory(node), SpatialSource::Memory(memory)) if node.is_leaf() => {
                memory.leaf_entries(*node, self.snapshot, &mut |version| {
                    let Rect { x0: x, y0: y, .. } = version.entry.rect;
                    self.offer(Point { x, y }, || version.entry.key);
                });
                self.tighten();
            }
            (NodeRef::Memory(node), SpatialSource::Memory(memory)) => {
                memory.children(*node, &mut |child| {
                    self.add(&mut nearest, source, &child.mbr, NodeRef::Memory(child.node));
                });
            }
            (NodeRef::Disk(pointer), SpatialSource::Disk(component)) => {
                let page = component.page(*pointer)?;
                self.found.pages += 1;
                match component.node(&page, *pointer)? {
                    Node::Inner(inner) => {
                        let mut add = |search: &mut Self, index: usize| {
                            search.add(&mut nearest, source, &inner.rect(index), NodeRef::Disk(inner.children[index]));
                        };
                        match &self.window {
                            Some(window) => {
                                let mut hits = Hits::new();
                                inner.mark_window(window, &mut hits);
                                hits.iter(inner.children.len()).for_each(|index| add(self, index));
                            }
                            None => (0..inner.children.len()).for_each(|index| add(self, index)),
                        }
                    }
                    Node::Leaf(leaf) => {
                        self.read_leaf(&leaf);
                        self.tighten();
                    }
                }
            }
            _ => {}
        }
        Ok(nearest)
    }

    /// Keeps a child for later, or as the nearest one so far of its parent.
    #[inline]
    fn add(&mut self, nearest: &mut Option<Pending<'v>>, source: usize, rect: &Rect, node: NodeRef<'v>) {
        let measure = self.metric.to_rect(rect);
        if measure > self.bound {
            return;
        }
        let child = Pending { measure, source, node };
        if self.bound.is_finite() {
            self.queue.push(child);
            return;
        }
        match nearest {
            None => *nearest = Some(child),
            Some(other) if measure < other.measure => self.unbounded.push(std::mem::replace(other, child)),
            Some(_) => self.unbounded.push(child),
        }
    }

    fn read_leaf(&mut self, leaf: &Leaf<'_>) {
        let window = self.window;
        let mut read = |index: usize| {
            if leaf.is_visible(index, self.snapshot) {
                let point = leaf.point(index);
                self.offer(point, || leaf.keys.get(index));
            }
        };
        match window {
            Some(window) => {
                let mut hits = Hits::new();
                if leaf.mark_window(&window, &mut hits).is_some() {
                    hits.iter(leaf.count).for_each(&mut read);
                }
            }
            None => (0..leaf.count).for_each(&mut read),
        }
    }

    /// Takes a point if it may be among the nearest.
    #[inline]
    fn offer<K: std::ops::Deref<Target = [u8]>>(&mut self, point: Point, key: impl FnOnce() -> K) {
        let measure = self.metric.to_point(point);
        self.found.measured += 1;
        if measure > self.bound {
            return;
        }
        let key_start = self.found.keys.len() as u32;
        self.found.keys.extend_from_slice(&key());
        let key_end = self.found.keys.len() as u32;
        self.found.entries.push(Entry { measure, point, key_start, key_end });
        if self.best.len() < self.count {
            self.best.push(Measure(measure));
        } else if let Some(mut farthest) = self.best.peek_mut()
            && measure < farthest.0
        {
            *farthest = Measure(measure);
        }
        if self.best.len() == self.count
            && let Some(farthest) = self.best.peek()
        {
            // Measures that differ by rounding may be one distance, in which keys decide.
            self.bound = farthest.0 * (1.0 + 1e-14);
        }
    }

    /// After a leaf: follows the bound with the window, and forgets what is beyond it.
    fn tighten(&mut self) {
        self.window = self.metric.window(self.bound).map(|window| WindowBits::new(&window));
        if self.found.entries.len() > 4 * self.count + 1024 {
            let (bound, keys) = (self.bound, &self.found.keys);
            let mut kept = Vec::with_capacity(keys.len() / 2);
            self.found.entries.retain_mut(|entry| {
                let start = kept.len() as u32;
                let keep = entry.measure <= bound;
                if keep {
                    kept.extend_from_slice(&keys[entry.key_start as usize..entry.key_end as usize]);
                    (entry.key_start, entry.key_end) = (start, kept.len() as u32);
                }
                keep
            });
            self.found.keys = kept;
        }
        let used = self.found.entries.len() * size_of::<Entry>() + self.found.keys.len();
        self.given_up |= used > MEMORY_MAX || (self.best.len() == self.count && !self.bound.is_finite());
    }
}
