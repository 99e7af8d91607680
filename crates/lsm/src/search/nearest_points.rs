//! The few nearest points of components without anti-matter, where every entry is a result.
//!
//! Branch and bound (Roussopoulos, Kelley and Vincent 1995): straight down to the first
//! leaf, whose entries bound what can still be wanted; then best-first over the nodes
//! within the bound, which shrinks on the way. In a leaf of evenly spaced numbers, lower
//! bounds from the upper parts of the coordinates tell which few points to look at.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use terrane_space::{Point, Rect};

use super::SpatialSource;
use super::nearest::{Metric, NodeRef};
use crate::Result;
use crate::disk::rtree::{DistanceBounds, FANOUT_MAX, Hits, Inner, Leaf, Node, WindowBits};
use crate::disk::{PagePointer, PageRef, ReadGuard};

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
    is_root: bool,
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

/// The children of an inner page that was passed before there was a bound.
struct Passed {
    source: usize,
    pointer: PagePointer,
    /// The child that was opened.
    opened: usize,
    count: usize,
    measures: [f64; FANOUT_MAX],
}

/// A point of an opened leaf that has not been looked at closely.
#[derive(Clone, Copy)]
struct Waiting {
    /// At most its measure.
    lower: f64,
    leaf: u32,
    index: u32,
}

/// Leaves with waiting points, kept in memory by one guard.
type Opened<'g> = Vec<PageRef<'g>>;

/// Pages that are opened under one guard, and waiting points beyond those that are wanted, before
/// the points are looked at.
const PAGES_MAX: u64 = 64;
const WAITING_SLACK: usize = 1024;

/// Most leaves that are brought near the processor before they are opened.
const AHEAD_MAX: usize = 4;

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
    /// Components that were looked into.
    pub components_searched: u64,
    /// Pages of disk components visited.
    pub pages: u64,
    /// Points whose distance was computed, or that waited for it within the bound.
    pub measured: u64,
}

impl NearestPoints {
    /// Exact distance and key of a point; the nearest is the first, and at one distance they are
    /// in the order of keys.
    pub fn get(&self, index: usize) -> Option<(f64, &[u8])> {
        let (distance, entry) = self.entries.get(index)?;
        Some((*distance, key_of(&self.keys, entry)))
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
        window_bound: f64::INFINITY,
        unbounded: Vec::new(),
        passed: Vec::with_capacity(4),
        queue: BinaryHeap::with_capacity(16),
        bounds: DistanceBounds::default(),
        waiting: Vec::with_capacity(64),
        entries: Vec::with_capacity(32),
        keys: Vec::with_capacity(512),
        keys_kept: 0,
        components_searched: 0,
        pages: 0,
        measured: 0,
    };
    search.run()?;
    let entries = search.ranked();
    let Search { keys, components_searched, pages, measured, .. } = search;
    Ok(Some(NearestPoints { entries, keys, components_searched, pages, measured }))
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
    /// The bound for which the window was made.
    window_bound: f64,
    /// Nodes of memory components met before there was a bound, in no order.
    unbounded: Vec<Pending<'v>>,
    /// Those of disk components.
    #[expect(clippy::vec_box, reason = "small pieces come from the allocator's fast path, one of all levels does not")]
    passed: Vec<Box<Passed>>,
    queue: BinaryHeap<Pending<'v>>,
    /// Of the leaf that is being read.
    bounds: DistanceBounds,
    /// All points within the bound at their time, but for those that surely are not wanted.
    entries: Vec<Entry>,
    /// Points of the leaves in `Opened` that may be within the bound, by what the leaf tells
    /// without its lower parts and keys.
    waiting: Vec<Waiting>,
    keys: Vec<u8>,
    /// Bytes of keys after the last clearing.
    keys_kept: usize,
    components_searched: u64,
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
                self.queue.push(Pending { measure: self.metric.to_node(&bounds), source: number, node, is_root: true });
            }
        }
        // A guard keeps what the cache drops meanwhile, so none is held for many pages.
        while self.run_guarded(&ReadGuard::enter())? {}
        Ok(())
    }

    /// Goes on until enough waits to be looked at; false when there is nothing more to open.
    fn run_guarded(&mut self, guard: &ReadGuard) -> Result<bool> {
        let mut opened = Opened::with_capacity(8);
        let last_page = self.pages + PAGES_MAX;
        let mut more = false;
        while let Some(first) = self.queue.pop() {
            if first.measure > self.bound {
                break;
            }
            let mut next = Some(first);
            while let Some(pending) = next {
                next = self.open(&pending, guard, &mut opened)?;
            }
            if (self.bound.is_finite() || self.queue.is_empty())
                && (!self.passed.is_empty() || !self.unbounded.is_empty())
            {
                self.queue_passed(guard)?;
            }
            if self.pages > last_page || self.waiting.len() > 2 * self.count + WAITING_SLACK {
                more = true;
                break;
            }
        }
        self.settle(&opened);
        Ok(more)
    }

    /// Looks closely at the waiting points.
    fn settle(&mut self, opened: &Opened<'_>) {
        let mut waiting = std::mem::take(&mut self.waiting);
        let bound = self.bound;
        for point in waiting.drain(..).filter(|point| point.lower <= bound) {
            let Some(leaf) = opened.get(point.leaf as usize).and_then(|page| Leaf::parse(page)) else { continue };
            let index = point.index as usize;
            let place = leaf.point(index);
            self.keep(self.metric.to_point(place), place, &leaf.keys.get(index));
        }
        self.waiting = waiting;
        self.clear_out();
    }

    /// Queues what was passed before there was a bound.
    fn queue_passed(&mut self, guard: &ReadGuard) -> Result<()> {
        let bound = self.bound;
        self.queue.extend(self.unbounded.drain(..).filter(|pending| pending.measure <= bound));
        for passed in self.passed.drain(..) {
            let SpatialSource::Disk(component) = &self.sources[passed.source] else { continue };
            let page = component.page(passed.pointer, guard)?;
            let Node::Inner(inner) = component.node(&page, passed.pointer)? else { continue };
            for (index, &measure) in passed.measures[..passed.count].iter().enumerate() {
                if measure <= bound && index != passed.opened {
                    let node = NodeRef::Disk(inner.children[index]);
                    self.queue.push(Pending { measure, source: passed.source, node, is_root: false });
                }
            }
        }
        self.prefetch(guard);
        Ok(())
    }

    /// Brings pages that are going to be opened near the processor: to wait for the memory of
    /// several takes as long as to wait for one.
    fn prefetch(&self, guard: &ReadGuard) {
        for pending in self.queue.iter().take(AHEAD_MAX) {
            if let (NodeRef::Disk(pointer), SpatialSource::Disk(component)) =
                (&pending.node, &self.sources[pending.source])
                && let Some(page) = component.file().peek(*pointer, guard)
            {
                page.prefetch();
            }
        }
    }

    /// Opens a node. Where there is no bound yet, the nearest child is returned to be opened next.
    fn open<'g>(
        &mut self,
        pending: &Pending<'v>,
        guard: &'g ReadGuard,
        opened: &mut Opened<'g>,
    ) -> Result<Option<Pending<'v>>> {
        let source = pending.source;
        self.components_searched += u64::from(pending.is_root);
        match (&pending.node, &self.sources[source]) {
            (NodeRef::Memory(node), SpatialSource::Memory(memory)) if node.is_leaf() => {
                memory.leaf_entries(*node, self.snapshot, &mut |version| {
                    let Rect { x0: x, y0: y, .. } = version.entry.rect;
                    self.offer(Point { x, y }, || version.entry.key);
                });
                self.after_leaf();
                self.clear_out();
                Ok(None)
            }
            (NodeRef::Memory(node), SpatialSource::Memory(memory)) => {
                let mut nearest = None;
                memory.children(*node, &mut |child| {
                    let measure = self.metric.to_node(&child.mbr);
                    self.add(
                        &mut nearest,
                        Pending { measure, source, node: NodeRef::Memory(child.node), is_root: false },
                    );
                });
                Ok(nearest)
            }
            (NodeRef::Disk(pointer), SpatialSource::Disk(component)) => {
                let page = component.page(*pointer, guard)?;
                self.pages += 1;
                match component.node(&page, *pointer)? {
                    Node::Inner(inner) => Ok(self.open_inner(source, *pointer, &inner)),
                    Node::Leaf(leaf) => {
                        let before = self.waiting.len();
                        self.read_leaf(&leaf, opened.len() as u32);
                        if self.waiting.len() > before {
                            opened.push(page);
                        }
                        self.after_leaf();
                        Ok(None)
                    }
                }
            }
            _ => Ok(None),
        }
    }

    fn open_inner(&mut self, source: usize, pointer: PagePointer, inner: &Inner<'_>) -> Option<Pending<'v>> {
        let children = inner.children;
        let child = |index: usize, measure: f64| Pending {
            measure,
            source,
            node: NodeRef::Disk(children[index]),
            is_root: false,
        };
        if let Some(window) = &self.window {
            let mut hits = Hits::new();
            inner.mark_window(window, &mut hits);
            for index in hits.iter(children.len()) {
                let measure = self.metric.to_node(&inner.rect(index));
                if measure <= self.bound {
                    self.queue.push(child(index, measure));
                }
            }
            return None;
        }
        let count = children.len();
        let mut measures = [f64::INFINITY; FANOUT_MAX];
        for (index, measure) in measures[..count].iter_mut().enumerate() {
            *measure = self.metric.to_node(&inner.rect(index));
        }
        if self.bound.is_finite() {
            for (index, &measure) in measures[..count].iter().enumerate() {
                if measure <= self.bound {
                    self.queue.push(child(index, measure));
                }
            }
            return None;
        }
        let mut opened = 0;
        for (index, measure) in measures[..count].iter().enumerate() {
            // Of boxes around the place, the smallest has the most points near it.
            if *measure < measures[opened]
                || (*measure == measures[opened] && inner.rect(index).area() < inner.rect(opened).area())
            {
                opened = index;
            }
        }
        self.passed.push(Box::new(Passed { source, pointer, opened, count, measures }));
        Some(child(opened, measures[opened]))
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

    fn read_leaf(&mut self, leaf: &Leaf<'_>, number: u32) {
        let on_grid = self.metric.plane().is_some_and(|place| leaf.distance_bounds(place, &mut self.bounds));
        if !on_grid {
            return self.read_within(leaf, self.window);
        }
        let known = self.bound.is_finite();
        let first = if known { self.bounds.count_of(self.bound) } else { self.bounds.threshold(self.count) };
        self.wait(leaf, number, -1.0, first);
        let all = self.bounds.count_of(self.bound);
        if !known && all > first {
            self.wait(leaf, number, first, all);
        }
    }

    /// Has points wait whose bounds are above the first and at most the second number.
    fn wait(&mut self, leaf: &Leaf<'_>, number: u32, above: f32, at_most: f32) {
        let mut hits = Hits::new();
        self.bounds.mark(above, at_most, &mut hits);
        for index in hits.iter(leaf.count) {
            let (lower, upper) = self.bounds.of(index);
            if lower <= self.bound && leaf.is_visible(index, self.snapshot) {
                self.measured += 1;
                self.waiting.push(Waiting { lower, leaf: number, index: index as u32 });
                self.shrink_bound(upper);
            }
        }
    }

    fn read_within(&mut self, leaf: &Leaf<'_>, window: Option<WindowBits>) {
        let mut hits = Hits::new();
        match window {
            None => hits.set_all(leaf.count),
            Some(window) => {
                if leaf.mark_window(&window, &mut hits).is_none() {
                    return;
                }
            }
        }
        self.read_hits(leaf, &hits);
        self.clear_out();
    }

    fn read_hits(&mut self, leaf: &Leaf<'_>, hits: &Hits) {
        for index in hits.iter(leaf.count) {
            if leaf.is_visible(index, self.snapshot) {
                let point = leaf.point(index);
                self.offer(point, || leaf.keys.get(index));
            }
        }
    }

    /// Takes a point if it may be among the nearest.
    #[inline]
    fn offer<K: std::ops::Deref<Target = [u8]>>(&mut self, point: Point, key: impl FnOnce() -> K) {
        let measure = self.metric.to_point(point);
        self.measured += 1;
        if measure <= self.bound {
            self.keep(measure, point, &key());
            self.shrink_bound(measure);
        }
    }

    #[inline]
    fn keep(&mut self, measure: f64, point: Point, key: &[u8]) {
        let key_start = self.keys.len() as u32;
        self.keys.extend_from_slice(key);
        self.entries.push(Entry { measure, point, key_start, key_end: self.keys.len() as u32 });
    }

    /// Notes that there is one more point whose measure is at most this, and shrinks the bound by it.
    #[inline]
    fn shrink_bound(&mut self, measure: f64) {
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

    /// Follows the bound with the window.
    fn after_leaf(&mut self) {
        if self.bound < self.window_bound {
            self.window_bound = self.bound;
            self.window = self.metric.window(self.bound).map(|window| WindowBits::new(&window));
        }
    }

    /// Clears out what is not wanted any more.
    fn clear_out(&mut self) {
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
        let mut ranked = Vec::with_capacity(self.entries.len());
        ranked.extend(within.map(|entry| ((self.exact)(entry.point), *entry)));
        ranked.sort_unstable_by(|(distance, entry), (other_distance, other)| {
            distance.total_cmp(other_distance).then_with(|| key_of(&self.keys, entry).cmp(key_of(&self.keys, other)))
        });
        ranked.truncate(self.count);
        ranked
    }
}
