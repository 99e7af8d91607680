//! Searches, without locks (section 4.2.2). A node is read anew, with everything below it, if its
//! sequence number has changed when all of that was read.

use smallvec::SmallVec;
use terrane_pmem::{Backend, Guard, Site};
use terrane_storage::sync::Ordering;

use super::layout::{DIRTY, slots};
use super::node::Node;
use super::reach::Reach;
use super::tree::{PearTree, Way};
use crate::rtree::rect::Rect;
use crate::rtree::search::{Exact, Extent, Path, SearchVisitor, ValidatedVisitor, Window};
use crate::{Result, blocks};

const READ: Site = Site::new("pear.read.persist");

/// How a node was read: itself, its sequence number, its bitmap.
pub(super) type Visit = (u64, u64, u64);

/// Reads all nodes and no entries.
#[derive(Default)]
struct Everything {
    visited: usize,
}

impl<const D: usize> SearchVisitor<D> for Everything {
    fn enters(&self, _: &Rect<D>) -> bool {
        true
    }

    fn meets(&self, _: &Rect<D>) -> bool {
        false
    }

    fn found(&mut self, _: &Path, _: Rect<D>, _: u64) {}
}

impl<const D: usize> ValidatedVisitor<D, Visit> for Everything {
    fn visited(&mut self, _: impl FnOnce() -> Visit) {
        self.visited += 1;
    }

    fn extent(&self) -> Extent {
        Extent { found: 0, visited: self.visited }
    }

    fn truncate(&mut self, extent: Extent) {
        self.visited = extent.visited;
    }
}

/// Children that are prefetched before the first of them is read. A core has few loads in flight.
const AHEAD: usize = 3;

impl<const D: usize, B: Backend> PearTree<D, B> {
    /// Whether there is an entry with exactly this box and payload, compared as in
    /// [`PearTree::delete`].
    pub fn contains(&self, rect: &Rect<D>, payload: u64) -> Result<bool> {
        Ok(self.find(&self.layout.stored(rect), payload, &self.pool.pin())?.is_some())
    }

    /// Calls `visit` with box and payload of each entry that overlaps a window. Each leaf is read
    /// at one instant. An entry that is there all the time is found exactly once. One that is
    /// absent all the time is not found. What was found survives a crash.
    ///
    /// It takes no lock. It waits while a split, a merge or a redistribution moves the entries of a
    /// node that it reads.
    pub fn window(&self, window: &Rect<D>, mut visit: impl FnMut(&Rect<D>, u64)) -> Result<()> {
        let guard = self.pool.pin();
        let mut hits = Vec::new();
        let reach = Reach::overlapping(window);
        self.search(|| Window::new(window), Some(&reach), |found| hits = found.into_hits(), &guard)?;
        hits.iter().for_each(|(rect, payload)| visit(rect, *payload));
        Ok(())
    }

    /// Repairs every node in a recovery state: the check after which a close can say that there is
    /// none. Others may use the tree meanwhile.
    pub fn repair_all(&self) -> Result<()> {
        if self.may_be_stale() {
            self.search(Everything::default, None, drop, &self.pool.pin())?;
            self.may_be_stale.store(false, Ordering::Release);
        }
        Ok(())
    }

    pub(super) fn may_be_stale(&self) -> bool {
        self.may_be_stale.load(Ordering::Acquire)
    }

    /// The way to a leaf that has an entry. If there is none, two searches in succession have read
    /// the same. No node has the same bitmap with the same number twice, so the entry was absent
    /// between the two.
    pub(super) fn find(&self, rect: &Rect<D>, payload: u64, guard: &Guard<'_>) -> Result<Option<Way>> {
        let reach = Reach::containing(rect);
        let mut before: Option<SmallVec<[Visit; 16]>> = None;
        loop {
            let (mut found, mut visits) = (None, SmallVec::new());
            let keep = |target: Exact<'_, D, Visit>| (found, visits) = (target.path, target.visits);
            self.search(|| Exact::new(rect, payload), Some(&reach), keep, guard)?;
            if found.is_some() || before.as_ref() == Some(&visits) {
                return Ok(found);
            }
            before = Some(visits);
        }
    }

    /// Reads the children within reach, or all of them.
    fn search<T: ValidatedVisitor<D, Visit>>(
        &self,
        new: impl Fn() -> T,
        reach: Option<&Reach<D>>,
        keep: impl FnOnce(T),
        guard: &Guard<'_>,
    ) -> Result<()> {
        loop {
            let sequence = self.root_sequence.load(Ordering::SeqCst);
            let (mut target, root) = (new(), self.node(self.root())?);
            let is_whole = self.visit(None, &root, reach, &mut target, &mut Path::new(), guard)?;
            if target.is_satisfied() || is_whole && self.root_sequence.load(Ordering::SeqCst) == sequence {
                keep(target);
                return Ok(());
            }
            if !is_whole {
                self.check_dead(None, &root)?;
            }
        }
    }

    /// Reads a node and everything below it. Gives false if the node is no part of the tree any
    /// more, or was repaired; then the parent is read anew.
    fn visit<T: ValidatedVisitor<D, Visit>>(
        &self,
        parent: Option<u64>,
        node: &Node<'_, D, B>,
        reach: Option<&Reach<D>>,
        target: &mut T,
        path: &mut Path,
        guard: &Guard<'_>,
    ) -> Result<bool> {
        if self.is_stale(node) {
            self.repair(parent, node.at, guard)?;
            return Ok(false);
        }
        let level = node.level();
        let extent = target.extent();
        if level > 0 && self.are_too_many(extent.visited as u64) {
            return Err(blocks::too_many(&self.pool, self.block));
        }
        loop {
            target.truncate(extent);
            let Some(sequence) = self.await_even(node)? else { return Ok(false) };
            let bitmap = node.bitmap();
            path.push(node.at);
            let is_whole = if level == 0 {
                self.read_leaf(node, bitmap, target, path);
                true
            } else {
                self.read_children(node, (level, bitmap, sequence), reach, target, path, guard)?
            };
            path.pop();
            if is_whole && node.sequence() == sequence {
                target.visited(|| (node.at, sequence, bitmap));
                return Ok(true);
            }
            if level > 0 && target.is_satisfied() {
                return Ok(true);
            }
        }
    }

    fn read_leaf<T: SearchVisitor<D>>(&self, node: &Node<'_, D, B>, bitmap: u64, target: &mut T, path: &Path) {
        self.settle(node);
        let met = node.matching(0, bitmap, |rect| target.meets(rect));
        node.for_each_rect(0, met, |slot, rect| {
            if !target.is_satisfied() {
                target.found(path, rect, node.target(0, slot));
            }
        });
    }

    /// Makes a bitmap durable that was read, if its writer has not yet.
    pub(super) fn settle(&self, node: &Node<'_, D, B>) {
        if node.load(DIRTY) == self.session {
            node.persist_header(READ);
        }
    }

    fn read_children<T: ValidatedVisitor<D, Visit>>(
        &self,
        node: &Node<'_, D, B>,
        (level, bitmap, sequence): (u64, u64, u64),
        reach: Option<&Reach<D>>,
        target: &mut T,
        path: &mut Path,
        guard: &Guard<'_>,
    ) -> Result<bool> {
        let entered = reach.map_or(bitmap, |reach| node.within(bitmap, reach));
        let children: SmallVec<[u64; 64]> = slots(entered).map(|slot| node.target(level, slot)).collect();
        children.iter().take(AHEAD).for_each(|child| node.prefetch(*child));
        if node.sequence() != sequence {
            return Ok(false);
        }
        for (number, child) in children.iter().enumerate() {
            if let Some(later) = children.get(number + AHEAD) {
                node.prefetch(*later);
            }
            let child = self.child_of(node, *child)?;
            if !self.visit(Some(node.at), &child, reach, target, path, guard)? {
                self.check_dead(Some(node.at), &child)?;
                return Ok(false);
            }
            if target.is_satisfied() {
                break;
            }
        }
        Ok(true)
    }
}
