//! Nearest neighbours: best-first search over the nodes and entries of all components in one queue
//! (Hjaltason and Samet 1999).
//!
//! An opened leaf has one queue element, its nearest entry. When that is taken, the leaf's next
//! nearest replaces it. At equal distance, nodes come first, then anti-matter, then live entries.
//! Anti-matter has the rectangle of what it deletes, so it is met before the entry that it hides.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use terrane_space::{Point, Rect};

use super::{DiskSource, Hidden, SpatialSource};
use crate::disk::rtree::{BoxBounds, Leaf, Node, Origin, Surface};
use crate::disk::{PagePointer, ReadGuard};
use crate::memory::Kind;
use crate::memory::hilbert::NodeHandle;
use crate::{Error, Result};

/// A measure of distance from a query's position: any number that rises with the distance.
pub trait Metric {
    /// A lower bound of the measures inside the rectangle. On a sphere, that of
    /// `chord_squared_to_rect`; the bounds of disk pages' boxes stay below it.
    fn to_rect(&self, rect: &Rect) -> f64;
    /// A lower bound of [`Self::to_rect`] and [`Self::to_point`] inside the rectangle, including
    /// their rounding.
    fn to_node(&self, rect: &Rect) -> f64;
    /// The measure of a point.
    fn to_point(&self, point: Point) -> f64;
    /// A window that encloses everything up to a finite measure, if there is a simple one.
    fn window(&self, measure: f64) -> Option<Rect>;
    /// The query's position, and the kind of measure.
    fn surface(&self) -> Surface;
}

/// An entry in order of distance.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'s> {
    /// The measure: exact for a point, a lower bound for a rectangle.
    pub measure: f64,
    /// The entry's rectangle.
    pub rect: Rect,
    /// The primary key.
    pub key: &'s [u8],
}

/// The result of a search step.
#[derive(Clone, Copy, Debug)]
pub enum Next<'s> {
    /// The next entry in order of the measure. Entries with the same measure come in no order.
    Candidate(Candidate<'s>),
    /// There are no more.
    End,
    /// The search has taken more memory than allowed. It can continue with more.
    MemoryFull,
}

const NODE: u8 = 0;
const ANTIMATTER: u8 = 1;
const LIVE: u8 = 2;

/// An element of the queue: a node by its number in `nodes`, or a leaf's nearest entry by the
/// leaf's number in `leaves`.
#[derive(Clone, Copy, Debug)]
struct Item {
    measure: f64,
    rank: u8,
    number: u32,
}

impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Item {}

impl PartialOrd for Item {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Item {
    /// The nearest is the greatest, as a binary heap requires.
    fn cmp(&self, other: &Self) -> Ordering {
        other.measure.total_cmp(&self.measure).then(other.rank.cmp(&self.rank))
    }
}

#[derive(Clone, Copy)]
pub(super) enum NodeRef<'v> {
    Memory(NodeHandle<'v>),
    Disk(PagePointer),
}

/// An entry of an opened leaf.
#[derive(Clone, Copy)]
struct LeafEntry {
    measure: f64,
    rank: u8,
    index: u16,
}

/// The entries of an opened leaf that may still be returned, the nearest last.
struct OpenLeaf {
    source: usize,
    /// Sorted at the end only: the first `unsorted` ones are farther than the rest.
    entries: Vec<LeafEntry>,
    unsorted: usize,
    rects: Vec<Rect>,
    keys: Vec<u8>,
    ends: Vec<u32>,
}

/// Number of leaf entries that are sorted at a time.
const SORTED_STEP: usize = 16;

impl OpenLeaf {
    fn new(source: usize) -> Self {
        Self { source, entries: Vec::new(), unsorted: 0, rects: Vec::new(), keys: Vec::new(), ends: Vec::new() }
    }

    fn nearest(&mut self) -> Option<LeafEntry> {
        if self.entries.len() == self.unsorted && self.unsorted > 0 {
            let by_distance = |a: &LeafEntry, b: &LeafEntry| b.measure.total_cmp(&a.measure).then(b.rank.cmp(&a.rank));
            let keep = self.unsorted.saturating_sub(SORTED_STEP);
            if keep > 0 {
                self.entries.select_nth_unstable_by(keep, by_distance);
            }
            self.entries[keep..].sort_unstable_by(by_distance);
            self.unsorted = keep;
        }
        self.entries.last().copied()
    }

    fn memory_used(&self) -> usize {
        let lists = self.entries.capacity() * size_of::<LeafEntry>() + self.rects.capacity() * size_of::<Rect>();
        size_of::<Self>() + lists + self.keys.capacity() + size_of::<u32>() * self.ends.capacity()
    }

    fn key(&self, index: u16) -> &[u8] {
        let index = usize::from(index);
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        &self.keys[start..self.ends[index] as usize]
    }

    fn push(&mut self, measure: f64, rank: u8, rect: Rect, key: &[u8]) {
        self.entries.push(LeafEntry { measure, rank, index: self.rects.len() as u16 });
        self.rects.push(rect);
        self.keys.extend_from_slice(key);
        self.ends.push(self.keys.len() as u32);
    }
}

/// A nearest-neighbour search that continues on request.
pub struct NearestSearch<'v, M> {
    sources: &'v [SpatialSource<'v>],
    metric: M,
    origin: Origin,
    snapshot: u64,
    windows: Option<&'v [Rect]>,
    queue: BinaryHeap<Item>,
    nodes: Vec<(usize, NodeRef<'v>)>,
    /// Places of opened nodes, which are free again; roots keep theirs.
    free_nodes: Vec<u32>,
    leaves: Vec<OpenLeaf>,
    /// Bytes that the opened leaves take.
    leaf_bytes: usize,
    /// Leaves whose entries were all taken.
    free_leaves: Vec<u32>,
    hidden: Hidden,
    taken: Option<(u32, u16)>,
    /// Number of roots, which come first.
    roots: usize,
    /// Components that were examined.
    pub components_searched: u64,
    /// Pages of disk components visited.
    pub pages: u64,
    /// Entries taken from the queue.
    pub entries: u64,
}

impl<'v, M: Metric> NearestSearch<'v, M> {
    /// A search that sees what the snapshot sees. If windows are given, it returns only entries
    /// that meet one of them.
    pub fn new(sources: &'v [SpatialSource<'v>], metric: M, snapshot: u64, windows: Option<&'v [Rect]>) -> Self {
        let mut search = Self {
            sources,
            origin: Origin::new(metric.surface()),
            metric,
            snapshot,
            windows,
            queue: BinaryHeap::with_capacity(64),
            nodes: Vec::with_capacity(64),
            free_nodes: Vec::new(),
            leaves: Vec::new(),
            leaf_bytes: 0,
            free_leaves: Vec::new(),
            hidden: Hidden::default(),
            taken: None,
            roots: 0,
            components_searched: 0,
            pages: 0,
            entries: 0,
        };
        for (number, source) in sources.iter().enumerate() {
            let bounds = source.bounds();
            if bounds.is_empty() {
                continue;
            }
            match source {
                SpatialSource::Memory(memory) => search.push_node(number, &bounds, NodeRef::Memory(memory.root())),
                SpatialSource::Disk(component) => {
                    if let Some(root) = component.file().meta().root {
                        search.push_node(number, &bounds, NodeRef::Disk(root));
                    }
                }
            }
        }
        search.roots = search.nodes.len();
        search
    }

    fn push_node(&mut self, source: usize, rect: &Rect, node: NodeRef<'v>) {
        if self.is_wanted(rect) {
            self.push_wanted(source, self.metric.to_node(rect), node);
        }
    }

    fn push_wanted(&mut self, source: usize, measure: f64, node: NodeRef<'v>) {
        let number = match self.free_nodes.pop() {
            Some(number) => {
                self.nodes[number as usize] = (source, node);
                number
            }
            None => {
                self.nodes.push((source, node));
                (self.nodes.len() - 1) as u32
            }
        };
        self.queue.push(Item { measure, rank: NODE, number });
    }

    /// Whether the rectangle meets a window. Anti-matter has the rectangle of what it hides, so
    /// both are wanted or neither is.
    fn is_wanted(&self, rect: &Rect) -> bool {
        self.windows.is_none_or(|windows| windows.iter().any(|window| window.intersects(rect)))
    }

    /// A lower bound of the measures of all entries to come; `None` if there are none.
    pub fn peek(&mut self) -> Option<f64> {
        self.requeue_taken();
        self.queue.peek().map(|item| item.measure)
    }

    /// Approximate bytes of memory in use.
    pub fn memory_used(&self) -> usize {
        let nodes = self.nodes.capacity() * size_of::<(usize, NodeRef<'_>)>()
            + (self.free_nodes.capacity() + self.free_leaves.capacity()) * size_of::<u32>();
        self.leaf_bytes + self.hidden.memory_used() + self.queue.capacity() * size_of::<Item>() + nodes
    }

    /// Moves to the next entry, as long as at most `memory_max` bytes are used. There may be any
    /// number of hidden entries and opened nodes on the way.
    pub fn advance(&mut self, memory_max: usize) -> Result<Next<'_>> {
        loop {
            self.requeue_taken();
            if self.memory_used() > memory_max {
                return Ok(Next::MemoryFull);
            }
            let Some(item) = self.queue.pop() else { return Ok(Next::End) };
            if item.rank == NODE {
                self.open(item.number as usize)?;
                continue;
            }
            let leaf = &mut self.leaves[item.number as usize];
            let Some(entry) = leaf.entries.pop() else { continue };
            self.taken = Some((item.number, entry.index));
            self.entries += 1;
            let leaf = &self.leaves[item.number as usize];
            let key = leaf.key(entry.index);
            if entry.rank == ANTIMATTER {
                self.hidden.add(key, leaf.source);
            } else if !self.hidden.hides(key, leaf.source) {
                let leaf = &self.leaves[item.number as usize];
                return Ok(Next::Candidate(Candidate {
                    measure: entry.measure,
                    rect: leaf.rects[usize::from(entry.index)],
                    key: leaf.key(entry.index),
                }));
            }
        }
    }

    /// Requeues the leaf whose nearest entry was taken, with its next one.
    fn requeue_taken(&mut self) {
        if let Some((number, _)) = self.taken.take() {
            let leaf = &mut self.leaves[number as usize];
            match leaf.nearest() {
                Some(entry) => self.queue.push(Item { measure: entry.measure, rank: entry.rank, number }),
                None => {
                    self.leaf_bytes -= leaf.memory_used();
                    *leaf = OpenLeaf::new(leaf.source);
                    self.free_leaves.push(number);
                }
            }
        }
    }

    fn open(&mut self, number: usize) -> Result<()> {
        let source = self.nodes[number].0;
        if number < self.roots {
            if !self.sources[source].has_boxes() {
                return Err(Error::Invalid(
                    "the nearest are found by the boxes of an R-tree, which a curve-keyed index does not have".into(),
                ));
            }
            self.components_searched += 1;
        } else {
            self.free_nodes.push(number as u32);
        }
        let mut leaf = OpenLeaf::new(source);
        match (&self.nodes[number].1, &self.sources[source]) {
            (NodeRef::Memory(node), SpatialSource::Memory(memory)) => {
                let node = *node;
                if !node.is_leaf() {
                    let mut children = Vec::new();
                    memory.children(node, &mut |child| children.push(child));
                    for child in children.iter().filter(|child| !child.mbr.is_empty()) {
                        self.push_node(source, &child.mbr, NodeRef::Memory(child.node));
                    }
                    return Ok(());
                }
                memory.leaf_entries(node, self.snapshot, &mut |version| {
                    if !self.is_wanted(&version.entry.rect) {
                        return;
                    }
                    let rank = if version.kind == Kind::AntiMatter { ANTIMATTER } else { LIVE };
                    let measure = measure(&self.metric, &version.entry.rect);
                    leaf.push(measure, rank, version.entry.rect, version.entry.key);
                });
            }
            (NodeRef::Disk(pointer), SpatialSource::Disk(DiskSource::RTree(component))) => {
                let pointer = *pointer;
                let guard = ReadGuard::enter();
                let page = component.page(pointer, &guard)?;
                self.pages += 1;
                match component.node(&page, pointer)? {
                    Node::Inner(inner) => {
                        let mut measures = BoxBounds::default();
                        inner.distance_bounds(&self.origin, &mut measures);
                        for ((index, child), measure) in inner.children.iter().enumerate().zip(measures.0) {
                            if self.is_wanted(&inner.rect(index)) {
                                self.push_wanted(source, measure.into(), NodeRef::Disk(*child));
                            }
                        }
                        return Ok(());
                    }
                    Node::Leaf(entries) => self.read_leaf(&entries, &mut leaf),
                }
            }
            _ => return Ok(()),
        }
        self.keep(leaf);
        Ok(())
    }

    fn read_leaf(&self, entries: &Leaf<'_>, leaf: &mut OpenLeaf) {
        for index in (0..entries.count).filter(|&index| entries.is_visible(index, self.snapshot)) {
            let rect = entries.rect(index);
            if !self.is_wanted(&rect) {
                continue;
            }
            let rank = if entries.is_antimatter(index) { ANTIMATTER } else { LIVE };
            leaf.push(measure(&self.metric, &rect), rank, rect, &entries.keys.get(index));
        }
    }

    /// Queues an opened leaf with its nearest entry.
    fn keep(&mut self, mut leaf: OpenLeaf) {
        leaf.unsorted = leaf.entries.len();
        if let Some(nearest) = leaf.nearest() {
            self.leaf_bytes += leaf.memory_used();
            let number = match self.free_leaves.pop() {
                Some(number) => {
                    self.leaves[number as usize] = leaf;
                    number
                }
                None => {
                    self.leaves.push(leaf);
                    (self.leaves.len() - 1) as u32
                }
            };
            self.queue.push(Item { measure: nearest.measure, rank: nearest.rank, number });
        }
    }
}

#[inline]
fn measure(metric: &impl Metric, rect: &Rect) -> f64 {
    if rect.x0 == rect.x1 && rect.y0 == rect.y1 {
        metric.to_point(Point { x: rect.x0, y: rect.y0 })
    } else {
        metric.to_rect(rect)
    }
}
