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
use crate::disk::rtree::{FANOUT_MAX, Hits, Inner, Leaf, Node, WindowBits};

/// Most points that are found this way.
pub const NEAREST_POINTS_MAX: usize = 1 << 10;
/// Points, and bytes of keys, that are kept beyond twice those that are wanted.
const SLACK_POINTS: usize = 512;
const SLACK_KEY_BYTES: usize = 256 << 10;
/// Below this, measures have lost digits.
const MEASURE_SLACK: f64 = 1e-300;

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

/// A point that may be among the nearest.
#[derive(Clone, Copy)]
struct Entry {
    measure: f64,
    point: Point,
    key_start: u32,
    key_end: u32,
}

/// The nearest points in order.
pub struct NearestPoints {
    entries: Vec<(f64, Entry)>,
    keys: Vec<u8>,
    /// Pages of disk components visited.
    pub pages: u64,
    /// Entries whose distance was computed.
    pub measured: u64,
}

impl NearestPoints {
    /// Exact distances and keys, nearest first; at one distance in the order of keys.
    pub fn iter(&self) -> impl Iterator<Item = (f64, &[u8])> {
        self.entries.iter().map(|(distance, entry)| (*distance, key_of(&self.keys, entry)))
    }
}

fn key_of<'k>(keys: &'k [u8], entry: &Entry) -> &'k [u8] {
    &keys[entry.key_start as usize..entry.key_end as usize]
}

/// Finds the `count` nearest points that the snapshot sees, by their exact distances.
/// `None` where the search is not suited: for more than [`NEAREST_POINTS_MAX`] points, and
/// where there is anti-matter.
pub fn nearest_points<'v, M: Metric>(
    sources: &'v [SpatialSource<'v>],
    metric: &M,
    exact: &impl Fn(Point) -> f64,
    snapshot: u64,
    count: usize,
) -> Result<Option<NearestPoints>> {
    if count > NEAREST_POINTS_MAX || sources.iter().any(SpatialSource::has_antimatter) {
        return Ok(None);
    }
    let mut search = Search {
        sources,
        metric,
        exact,
        snapshot,
        count,
        best: BinaryHeap::with_capacity(count + 1),
        bound: if count == 0 { f64::NEG_INFINITY } else { f64::INFINITY },
        window: None,
        unbounded: Vec::with_capacity(2 * FANOUT_MAX),
        next_rect: Rect::EMPTY,
        queue: BinaryHeap::with_capacity(FANOUT_MAX),
        entries: Vec::with_capacity(128),
        keys: Vec::with_capacity(1024),
        keys_kept: 0,
        pages: 0,
        measured: 0,
    };
    search.run()?;
    let entries = search.ranked();
    let Search { keys, pages, measured, .. } = search;
    Ok(Some(NearestPoints { entries, keys, pages, measured }))
}

struct Search<'v, 'm, M, E> {
    sources: &'v [SpatialSource<'v>],
    metric: &'m M,
    exact: &'m E,
    snapshot: u64,
    count: usize,
    /// Measures of the nearest points so far, at most `count` of them.
    best: BinaryHeap<Measure>,
    /// Nothing farther can be among the nearest; infinite until `count` points are known.
    bound: f64,
    /// Encloses everything up to the bound, where the metric has such a window.
    window: Option<WindowBits>,
    /// Nodes met before there was a bound, in no order.
    unbounded: Vec<Pending<'v>>,
    /// The box of the node that is opened next, while there is no bound.
    next_rect: Rect,
    queue: BinaryHeap<Pending<'v>>,
    /// All points within the bound at their time, but for those that surely are not wanted.
    entries: Vec<Entry>,
    keys: Vec<u8>,
    /// Bytes of keys after the last clearing.
    keys_kept: usize,
    pages: u64,
    measured: u64,
}

impl<'v, M: Metric, E: Fn(Point) -> f64> Search<'v, '_, M, E> {
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
            if first.measure > self.bound {
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
        match (&pending.node, &self.sources[source]) {
            (NodeRef::Memory(node), SpatialSource::Memory(memory)) if node.is_leaf() => {
                memory.leaf_entries(*node, self.snapshot, &mut |version| {
                    let Rect { x0: x, y0: y, .. } = version.entry.rect;
                    self.offer(Point { x, y }, || version.entry.key);
                });
                self.after_leaf();
                Ok(None)
            }
            (NodeRef::Memory(node), SpatialSource::Memory(memory)) => {
                let mut nearest = None;
                memory.children(*node, &mut |child| {
                    let measure = self.metric.to_rect(&child.mbr);
                    self.add(&mut nearest, Pending { measure, source, node: NodeRef::Memory(child.node) });
                });
                self.next_rect = Rect::EMPTY;
                Ok(nearest)
            }
            (NodeRef::Disk(pointer), SpatialSource::Disk(component)) => {
                let page = component.page(*pointer)?;
                self.pages += 1;
                match component.node(&page, *pointer)? {
                    Node::Inner(inner) => Ok(self.open_inner(source, &inner)),
                    Node::Leaf(leaf) => {
                        self.read_leaf(&leaf);
                        self.after_leaf();
                        Ok(None)
                    }
                }
            }
            _ => Ok(None),
        }
    }

    fn open_inner(&mut self, source: usize, inner: &Inner<'_>) -> Option<Pending<'v>> {
        let children = inner.children;
        let child = |index: usize, measure: f64| Pending { measure, source, node: NodeRef::Disk(children[index]) };
        if let Some(window) = &self.window {
            let mut hits = Hits::new();
            inner.mark_window(window, &mut hits);
            for index in hits.iter(children.len()) {
                let measure = self.metric.to_rect(&inner.rect(index));
                if measure <= self.bound {
                    self.queue.push(child(index, measure));
                }
            }
            return None;
        }
        let mut measures = [f64::INFINITY; FANOUT_MAX];
        for (index, measure) in measures[..children.len()].iter_mut().enumerate() {
            *measure = self.metric.to_rect(&inner.rect(index));
        }
        let measures = &measures[..children.len()];
        let mut nearest = None;
        let mut first = 0;
        if !self.bound.is_finite() {
            for (index, measure) in measures.iter().enumerate() {
                if *measure < measures[first] {
                    first = index;
                }
            }
            self.next_rect = inner.rect(first);
            self.add(&mut nearest, child(first, measures[first]));
        }
        let opened = nearest.is_some();
        for (index, &measure) in measures.iter().enumerate().filter(|(index, _)| !opened || *index != first) {
            self.add(&mut nearest, child(index, measure));
        }
        nearest
    }

    /// Keeps a child for later, or as the nearest one so far of its parent.
    #[inline]
    fn add(&mut self, nearest: &mut Option<Pending<'v>>, child: Pending<'v>) {
        if child.measure > self.bound {
            return;
        }
        if self.bound.is_finite() {
            self.queue.push(child);
            return;
        }
        match nearest {
            None => *nearest = Some(child),
            Some(other) if child.measure < other.measure => self.unbounded.push(std::mem::replace(other, child)),
            Some(_) => self.unbounded.push(child),
        }
    }

    fn read_leaf(&mut self, leaf: &Leaf<'_>) {
        if self.bound.is_finite() {
            return self.read_within(leaf, self.window);
        }
        // A guess at the bound spares most of the first leaf; a wrong one costs a second reading.
        let share = 1.5 * self.count as f64 / leaf.count as f64;
        if self.entries.is_empty()
            && share < 0.5
            && let Some(guess) = self.metric.guess(&self.next_rect, share)
            && let Some(window) = self.metric.window(guess)
        {
            self.bound = guess;
            self.read_within(leaf, Some(WindowBits::new(&window)));
            if self.best.len() == self.count {
                return;
            }
            self.bound = f64::INFINITY;
            self.entries.clear();
            self.keys.clear();
            self.best.clear();
        }
        self.read_within(leaf, None);
    }

    fn read_within(&mut self, leaf: &Leaf<'_>, window: Option<WindowBits>) {
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
        self.measured += 1;
        if measure > self.bound {
            return;
        }
        let key_start = self.keys.len() as u32;
        self.keys.extend_from_slice(&key());
        self.entries.push(Entry { measure, point, key_start, key_end: self.keys.len() as u32 });
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
            self.bound = farthest.0 * (1.0 + 1e-14) + MEASURE_SLACK;
        }
    }

    /// Follows the bound with the window, and clears out what is not wanted any more.
    fn after_leaf(&mut self) {
        self.window = if self.bound.is_finite() {
            self.metric.window(self.bound).map(|window| WindowBits::new(&window))
        } else {
            None
        };
        if self.entries.len() <= 2 * self.count + SLACK_POINTS
            && self.keys.len() <= 2 * self.keys_kept + SLACK_KEY_BYTES
        {
            return;
        }
        // Each of those left out has `count` before it in the order of the result.
        self.entries = self.ranked().into_iter().map(|(_, entry)| entry).collect();
        let mut kept = Vec::with_capacity(self.keys.len() / 2);
        for entry in &mut self.entries {
            let start = kept.len() as u32;
            kept.extend_from_slice(key_of(&self.keys, entry));
            (entry.key_start, entry.key_end) = (start, kept.len() as u32);
        }
        self.keys_kept = kept.len();
        self.keys = kept;
    }

    /// The first `count` entries in the order of the result.
    fn ranked(&self) -> Vec<(f64, Entry)> {
        let within = self.entries.iter().filter(|entry| entry.measure <= self.bound);
        let mut ranked: Vec<(f64, Entry)> = within.map(|entry| ((self.exact)(entry.point), *entry)).collect();
        ranked.sort_unstable_by(|(distance, entry), (other_distance, other)| {
            distance.total_cmp(other_distance).then_with(|| key_of(&self.keys, entry).cmp(key_of(&self.keys, other)))
        });
        ranked.truncate(self.count);
        ranked
    }
}
