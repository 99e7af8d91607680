//! A search for few nearest points in components without anti-matter, where every entry is a
//! result.
//!
//! Branch and bound (Roussopoulos, Kelley and Vincent 1995). The search goes straight down to the
//! first leaf, whose entries give a bound. It continues best-first over the nodes within the bound,
//! which shrinks on the way. In a leaf of evenly spaced numbers, lower bounds from the upper parts
//! of the coordinates select the few points to compute exactly.

mod found;

use std::collections::BinaryHeap;

use smallvec::SmallVec;
use terrane_space::{Point, Rect, f32_above, f32_below};

pub use found::NearestPoints;
use found::{Entry, Room, key_of};

use super::nearest::{Metric, NodeRef};
use super::{DiskSource, SpatialSource};
use crate::Result;
use crate::disk::rtree::{
    BoxBounds, DistanceBounds, Hits, Inner, Leaf, Node, Origin, RTreeComponent, SMALLEST_MAX, WindowBits, smallest,
};
use crate::disk::{PageRef, ReadGuard};

/// Most points that are found in this way.
pub const NEAREST_POINTS_MAX: usize = 1 << 10;
/// Points, and bytes of keys, that are kept in excess of twice the requested ones.
const SLACK_POINTS: usize = 512;
const SLACK_KEY_BYTES: usize = 256 << 10;
/// Below this, measures have lost digits.
const MEASURE_SLACK: f64 = 1e-300;

/// Pages that are opened under one guard. Also the number of waiting points, in excess of the
/// requested ones, before the points are computed.
const PAGES_MAX: u64 = 64;
const WAITING_SLACK: usize = 1024;

/// Most measures that are sorted by insertion.
const INSERTED_MAX: usize = 6;

/// Most children of a page that are prefetched before they are opened.
const AHEAD_MAX: usize = 4;

/// Nodes by the lower bounds of their measures.
#[derive(Default)]
struct Queue<'v> {
    /// The bits of a bound, which sort like the numbers, inverted so that the smallest comes first;
    /// then the number of a node.
    order: BinaryHeap<u64>,
    nodes: SmallVec<[Place<'v>; 32]>,
}

/// A node of a component.
#[derive(Clone, Copy)]
struct Place<'v> {
    node: NodeRef<'v>,
    source: u32,
    is_root: bool,
}

impl<'v> Queue<'v> {
    fn push(&mut self, measure: f32, place: Place<'v>) {
        // Neither negative nor -0.
        let measure = if measure > 0.0 { measure } else { 0.0 };
        self.order.push(u64::from(!measure.to_bits()) << 32 | self.nodes.len() as u64);
        self.nodes.push(place);
    }

    fn pop(&mut self) -> Option<(f32, Place<'v>)> {
        let first = self.order.pop()?;
        let place = self.nodes[first as u32 as usize];
        if self.order.is_empty() {
            self.nodes.clear();
        }
        Some((f32::from_bits(!((first >> 32) as u32)), place))
    }

    fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

/// An inner page that was visited before there was a bound.
struct Passed<'g> {
    source: u32,
    page: PageRef<'g>,
    /// The child that was opened.
    opened: usize,
}

/// A point of an opened leaf whose exact measure was not computed yet.
#[derive(Clone, Copy)]
struct Waiting {
    /// A lower bound of its measure.
    lower: f64,
    leaf: u32,
    index: u32,
}

/// Pages kept in memory by one guard.
struct Guarded<'g> {
    guard: &'g ReadGuard,
    /// Leaves with waiting points.
    opened: SmallVec<[PageRef<'g>; 8]>,
    passed: SmallVec<[Passed<'g>; 4]>,
}

/// Finds the `count` nearest points that the snapshot sees, by their exact distances. `None` if the
/// search does not apply: for zero or more than [`NEAREST_POINTS_MAX`] points, with anti-matter,
/// and for components without boxes ([`SpatialSource::has_boxes`]).
pub fn nearest_points<'v, M: Metric>(
    sources: &'v [SpatialSource<'v>],
    metric: &M,
    exact: &impl Fn(Point) -> f64,
    snapshot: u64,
    count: usize,
) -> Result<Option<NearestPoints>> {
    let suited = |source: &SpatialSource<'_>| source.has_boxes() && !source.has_antimatter();
    if !(1..=NEAREST_POINTS_MAX).contains(&count) || !sources.iter().all(suited) {
        return Ok(None);
    }
    let room = Room::spare();
    let mut search = Search {
        sources,
        metric,
        exact,
        snapshot,
        count,
        origin: Origin::new(metric.surface()),
        best: SmallVec::with_capacity(count),
        bounding: 0,
        bound: f64::INFINITY,
        node_bound: f32::INFINITY,
        window: None,
        unbounded: Vec::new(),
        queue: Queue { order: BinaryHeap::from(room.order), nodes: SmallVec::new() },
        measures: BoxBounds::default(),
        bounds: DistanceBounds::default(),
        waiting: SmallVec::new(),
        entries: room.entries,
        keys: room.keys,
        keys_kept: 0,
        components_searched: 0,
        pages: 0,
        measured: 0,
    };
    search.run()?;
    let ranked = search.ranked(room.ranked);
    let Search { queue, entries, keys, components_searched, pages, measured, .. } = search;
    let found = Room { order: queue.order.into_vec(), ranked, entries, keys };
    Ok(Some(NearestPoints { found, components_searched, pages, measured }))
}

struct Search<'v, 'm, M, E> {
    sources: &'v [SpatialSource<'v>],
    metric: &'m M,
    exact: &'m E,
    snapshot: u64,
    count: usize,
    origin: Origin,
    /// Upper bounds of the measures of the nearest points so far, at most `count`, and of the
    /// points of the current leaf. Up to [`SMALLEST_MAX`], those that the bound was taken from
    /// ascend.
    best: SmallVec<[f64; 32]>,
    /// Number of elements at the front of `best` that the bound was taken from: 0 or `count`.
    bounding: usize,
    /// Nothing farther can be among the nearest; infinite until `count` points are known.
    bound: f64,
    /// The bound or slightly more.
    node_bound: f32,
    /// A bound, and a window that encloses everything up to it, if the metric has such a window.
    window: Option<(f64, Option<WindowBits>)>,
    /// Nodes of memory components met before there was a bound, in no order.
    unbounded: Vec<(f32, Place<'v>)>,
    queue: Queue<'v>,
    /// For the current inner page.
    measures: BoxBounds,
    /// For the current leaf.
    bounds: DistanceBounds,
    /// All points within the bound at their time, except those that are surely not wanted.
    entries: Vec<Entry>,
    /// Points of opened leaves that may be within the bound, as known without their lower parts and
    /// keys, leaf by leaf.
    waiting: SmallVec<[Waiting; 64]>,
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
                SpatialSource::Disk(component) => component.file().meta().root.map(NodeRef::Disk),
            };
            if let Some(node) = root {
                let measure = f32_below(self.metric.to_node(&bounds));
                self.queue.push(measure, Place { node, source: number as u32, is_root: true });
            }
        }
        // A guard keeps pages that the cache drops meanwhile, so none is held for many pages.
        while self.run_guarded(&ReadGuard::enter())? {}
        Ok(())
    }

    /// Continues until enough points wait to be computed; false if there is nothing more to open.
    fn run_guarded(&mut self, guard: &ReadGuard) -> Result<bool> {
        let mut guarded = Guarded { guard, opened: SmallVec::new(), passed: SmallVec::new() };
        let last_page = self.pages + PAGES_MAX;
        let mut more = false;
        while let Some((measure, first)) = self.queue.pop() {
            if measure > self.node_bound {
                break;
            }
            let mut next = Some(first);
            while let Some(place) = next {
                next = self.open(place, &mut guarded)?;
            }
            if self.bound.is_finite() || self.queue.is_empty() {
                self.queue_passed(&mut guarded)?;
            }
            if self.pages > last_page || self.waiting.len() > 2 * self.count + WAITING_SLACK {
                more = true;
                break;
            }
        }
        self.queue_passed(&mut guarded)?;
        self.settle(&guarded);
        Ok(more)
    }

    /// Computes the waiting points exactly.
    fn settle(&mut self, guarded: &Guarded<'_>) {
        let mut next = 0;
        while let Some(number) = self.waiting.get(next).map(|point| point.leaf) {
            let leaf = guarded.opened.get(number as usize).and_then(|page| Leaf::parse(page));
            while let Some(point) = self.waiting.get(next).filter(|point| point.leaf == number) {
                next += 1;
                if let Some(leaf) = &leaf
                    && point.lower <= self.bound
                {
                    let index = point.index as usize;
                    let place = leaf.point(index);
                    self.keep(self.metric.to_point(place), place, &leaf.keys.get(index));
                }
            }
            self.clear_out();
        }
        self.waiting.clear();
    }

    /// Queues the children that were passed before there was a bound.
    fn queue_passed(&mut self, guarded: &mut Guarded<'_>) -> Result<()> {
        for (measure, place) in self.unbounded.drain(..).filter(|(measure, _)| *measure <= self.node_bound) {
            self.queue.push(measure, place);
        }
        for passed in guarded.passed.drain(..) {
            let SpatialSource::Disk(DiskSource::RTree(component)) = &self.sources[passed.source as usize] else {
                continue;
            };
            if let Some(inner) = Inner::parse(&passed.page) {
                inner.distance_bounds(&self.origin, &mut self.measures);
                self.queue_children(passed.source, component, &inner, Some(passed.opened), guarded.guard);
            }
        }
        Ok(())
    }

    /// Queues the children that may have wanted points, by `self.measures`, and prefetches the
    /// first of them. Waiting for the memory of several takes as long as for one.
    fn queue_children(
        &mut self,
        source: u32,
        component: &RTreeComponent,
        inner: &Inner<'_>,
        except: Option<usize>,
        guard: &ReadGuard,
    ) {
        let mut hits = Hits::new();
        self.measures.mark(self.node_bound, &mut hits);
        let mut ahead = 0;
        for index in hits.iter(inner.children.len()) {
            let Some(&child) = inner.children.get(index) else { break };
            if Some(index) == except {
                continue;
            }
            self.queue.push(self.measures.0[index], Place { node: NodeRef::Disk(child), source, is_root: false });
            if ahead < AHEAD_MAX
                && let Some(page) = component.file().peek(child, guard)
            {
                page.prefetch();
                ahead += 1;
            }
        }
    }

    /// Opens a node. Without a bound, returns the nearest child, to be opened next.
    fn open<'g>(&mut self, place: Place<'v>, guarded: &mut Guarded<'g>) -> Result<Option<Place<'v>>> {
        let source = place.source;
        self.components_searched += u64::from(place.is_root);
        match (&place.node, &self.sources[source as usize]) {
            (NodeRef::Memory(node), SpatialSource::Memory(memory)) if node.is_leaf() => {
                memory.leaf_entries(*node, self.snapshot, &mut |version| {
                    let Rect { x0: x, y0: y, .. } = version.entry.rect;
                    self.offer(Point { x, y }, || version.entry.key);
                });
                self.shrink_bound();
                self.clear_out();
                Ok(None)
            }
            (NodeRef::Memory(node), SpatialSource::Memory(memory)) => {
                let mut nearest = None;
                memory.children(*node, &mut |child| {
                    let measure = f32_below(self.metric.to_node(&child.mbr));
                    self.add(
                        &mut nearest,
                        measure,
                        Place { node: NodeRef::Memory(child.node), source, is_root: false },
                    );
                });
                Ok(nearest.map(|(_, place)| place))
            }
            (NodeRef::Disk(pointer), SpatialSource::Disk(DiskSource::RTree(component))) => {
                let page = component.page(*pointer, guarded.guard)?;
                self.pages += 1;
                let inner = match component.node(&page, *pointer)? {
                    Node::Inner(inner) => inner,
                    Node::Leaf(leaf) => {
                        let before = self.waiting.len();
                        self.read_leaf(&leaf, guarded.opened.len() as u32);
                        self.shrink_bound();
                        if self.waiting.len() > before {
                            guarded.opened.push(page);
                        }
                        return Ok(None);
                    }
                };
                inner.distance_bounds(&self.origin, &mut self.measures);
                if self.bound.is_finite() {
                    self.queue_children(source, component, &inner, None, guarded.guard);
                    return Ok(None);
                }
                let opened = self.nearest_box(&inner);
                let child = inner.children[opened];
                guarded.passed.push(Passed { source, page, opened });
                Ok(Some(Place { node: NodeRef::Disk(child), source, is_root: false }))
            }
            _ => Ok(None),
        }
    }

    /// The child whose box is nearest. Of the boxes around the position, the smallest has the most
    /// points near it.
    fn nearest_box(&self, inner: &Inner<'_>) -> usize {
        let mut hits = Hits::new();
        self.measures.mark(self.measures.min(), &mut hits);
        let nearest = hits.iter(inner.children.len()).filter(|index| *index < inner.children.len());
        nearest.min_by(|a, b| inner.rect(*a).area().total_cmp(&inner.rect(*b).area())).unwrap_or(0)
    }

    /// Keeps a child for later, or as the nearest one so far of its parent.
    #[inline]
    fn add(&mut self, nearest: &mut Option<(f32, Place<'v>)>, measure: f32, child: Place<'v>) {
        if measure > self.node_bound {
            return;
        }
        if self.bound.is_finite() {
            self.queue.push(measure, child);
            return;
        }
        match nearest {
            None => *nearest = Some((measure, child)),
            Some(other) if measure < other.0 => self.unbounded.push(std::mem::replace(other, (measure, child))),
            Some(_) => self.unbounded.push((measure, child)),
        }
    }

    fn read_leaf(&mut self, leaf: &Leaf<'_>, number: u32) {
        if !leaf.distance_bounds(&self.origin, &mut self.bounds) {
            return self.read_within(leaf);
        }
        if self.bound.is_finite() {
            self.wait(leaf, number, -1.0, self.bounds.count_of(self.bound));
            return;
        }
        let first = self.bounds.threshold(self.count);
        self.wait(leaf, number, -1.0, first);
        self.shrink_bound();
        let all = self.bounds.count_of(self.bound);
        if all > first {
            self.wait(leaf, number, first, all);
        }
    }

    /// Adds points to the waiting ones whose bounds are above the first and at most the second
    /// number.
    fn wait(&mut self, leaf: &Leaf<'_>, number: u32, above: f32, at_most: f32) {
        let mut hits = Hits::new();
        self.bounds.mark(above, at_most, &mut hits);
        for index in hits.iter(leaf.count) {
            if leaf.is_visible(index, self.snapshot) {
                let lower = self.bounds.lower(index);
                self.waiting.push(Waiting { lower, leaf: number, index: index as u32 });
                self.best.push(self.bounds.upper(index));
                self.measured += 1;
            }
        }
    }

    fn read_within(&mut self, leaf: &Leaf<'_>) {
        let mut hits = Hits::new();
        match self.window() {
            None => hits.set_all(leaf.count),
            Some(window) => {
                if leaf.mark_window(&window, &mut hits).is_none() {
                    return;
                }
            }
        }
        for index in hits.iter(leaf.count) {
            if leaf.is_visible(index, self.snapshot) {
                let point = leaf.point(index);
                self.offer(point, || leaf.keys.get(index));
            }
        }
        self.clear_out();
    }

    /// Encloses everything up to the bound, if the metric has such a window.
    fn window(&mut self) -> Option<WindowBits> {
        match self.window {
            Some((bound, window)) if bound == self.bound => window,
            _ => {
                let window = self.metric.window(self.bound).map(|window| WindowBits::new(&window));
                self.window = Some((self.bound, window));
                window
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
            self.best.push(measure);
        }
    }

    #[inline]
    fn keep(&mut self, measure: f64, point: Point, key: &[u8]) {
        let key_start = self.keys.len() as u32;
        self.keys.extend_from_slice(key);
        self.entries.push(Entry { measure, point, key_start, key_end: self.keys.len() as u32 });
    }

    /// Shrinks the bound by the points that a leaf has added.
    fn shrink_bound(&mut self) {
        let len = self.best.len();
        if len < self.count || len == self.bounding {
            return;
        }
        if self.bounding > 0 && len - self.bounding <= INSERTED_MAX && self.count <= SMALLEST_MAX {
            let (front, new) = self.best.split_at_mut(self.count);
            for value in new {
                let place = front.partition_point(|other| other <= value);
                if place < front.len() {
                    front[place..].rotate_right(1);
                    front[place] = *value;
                }
            }
            self.best.truncate(self.count);
        } else if len <= SMALLEST_MAX {
            let mut values = [f64::INFINITY; SMALLEST_MAX];
            values[..len].copy_from_slice(&self.best);
            self.best.truncate(self.count);
            smallest(&values, len, &mut self.best);
        } else {
            self.best.select_nth_unstable_by(self.count - 1, f64::total_cmp);
            self.best.truncate(self.count);
            if self.count <= SMALLEST_MAX {
                self.best.sort_unstable_by(f64::total_cmp);
            }
        }
        self.bounding = self.count;
        let farthest = self.best[self.count - 1];
        // Measures that differ by rounding may be one distance, in which keys decide.
        self.bound = farthest * (1.0 + 1e-14) + MEASURE_SLACK;
        self.node_bound = f32_above(self.bound);
    }

    /// Removes points that are not wanted any more.
    fn clear_out(&mut self) {
        if self.entries.len() <= 2 * self.count + SLACK_POINTS
            && self.keys.len() <= 2 * self.keys_kept + SLACK_KEY_BYTES
        {
            return;
        }
        // Each removed point has `count` before it in the order of the result.
        self.entries = self.ranked(Vec::new()).into_iter().map(|(_, entry)| self.entries[entry as usize]).collect();
        let mut kept = Vec::with_capacity(self.keys.len() / 2);
        for entry in &mut self.entries {
            let start = kept.len() as u32;
            kept.extend_from_slice(key_of(&self.keys, entry));
            (entry.key_start, entry.key_end) = (start, kept.len() as u32);
        }
        self.keys_kept = kept.len();
        self.keys = kept;
    }

    /// The first `count` entries in the order of the result, with their exact distances, written to
    /// an empty list.
    fn ranked(&self, mut ranked: Vec<(f64, u32)>) -> Vec<(f64, u32)> {
        let key = |number: u32| key_of(&self.keys, &self.entries[number as usize]);
        ranked.reserve(self.entries.len());
        for (number, entry) in self.entries.iter().enumerate().filter(|(_, entry)| entry.measure <= self.bound) {
            ranked.push(((self.exact)(entry.point), number as u32));
        }
        ranked.sort_unstable_by(|(distance, number), (other_distance, other)| {
            distance.total_cmp(other_distance).then_with(|| key(*number).cmp(key(*other)))
        });
        ranked.truncate(self.count);
        ranked
    }
}
