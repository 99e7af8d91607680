//! Recovery of the nodes that were in memory (section 5.3): parents for the highest nodes in the
//! pool, and then the levels above.
//!
//! All nodes of the complete level are on its chain, and so are those of the level above that lie
//! in the pool. Nodes of the complete level that none of those has as a child have lost their
//! parent. Recovery goes by children, since parent words may be old. It uses these only to group
//! siblings.
//!
//! 1. Recovery states of both levels are resolved, before a box is read.
//! 2. Nodes without a parent are grouped by the parent that they had. Small groups are packed by
//!    place.
//! 3. The levels above are packed. From the root down, nodes lie in memory as the budget allows.

use std::collections::BTreeMap;

use terrane_pmem::{Backend, Guard};
use terrane_storage::sync::{Ordering, thread};

use super::layout::{KEY, LOCK, META, PARENT, REORGANIZING, SEQUENCE, TOP, is_volatile, locked, slots};
use super::lock::Locked;
use super::node::{Branch, bounds};
use super::options::{Budget, Gap, Options};
use super::repair::Parent;
use super::tree::PearTree;
use crate::limits::LEVEL_MAX;
use crate::rtree::pack::pack;
use crate::rtree::rect::Rect;
use crate::{Result, blocks};

/// Fewer nodes than this are read by one thread.
const NODES_OF_THREAD_MIN: usize = 64;

/// A node to be made: its children are nodes, or planned nodes of the level below.
struct Planned<const D: usize> {
    children: Vec<(Child, Rect<D>)>,
    /// The key that its children have in common, if there is one.
    key: Option<u64>,
}

/// A node, what its parent word names, and its box.
type Read<const D: usize> = (u64, u64, Rect<D>);

#[derive(Clone, Copy)]
enum Child {
    Node(u64),
    Planned(usize),
}

impl<const D: usize, B: Backend> PearTree<D, B> {
    /// Finds the root, or makes it and what else was in memory.
    pub(super) fn recover(&mut self, options: &Options) -> Result<()> {
        let top = self.backend().load(self.block + TOP);
        if top > LEVEL_MAX {
            self.discard_above(top)?;
            self.root.store(top, Ordering::SeqCst);
            return Ok(());
        }
        self.placement.complete.store(top, Ordering::Release);
        let (upper, orphans) = self.remaining(top)?;
        let boxes = |nodes: &[u64]| self.read_boxes(nodes, options.recovery_threads);
        let (upper, orphans) = (boxes(&upper)?, boxes(&orphans)?);
        self.recovery.nodes_read = (upper.len() + orphans.len()) as u64;
        if let ([(only, ..)], []) | ([], [(only, ..)]) = (upper.as_slice(), orphans.as_slice()) {
            self.node(*only)?.store(PARENT, 0);
            self.persist_top(*only);
            self.root.store(*only, Ordering::SeqCst);
            return Ok(());
        }
        if upper.is_empty() && orphans.is_empty() {
            return Err(self.damaged(self.block, "the tree has no nodes"));
        }
        let levels = self.plan(upper, orphans, options.recovers_by_parents)?;
        self.recovery.nodes_rebuilt = levels.iter().map(|level| level.len() as u64).sum();
        self.make(top + 1, levels)
    }

    /// Frees a root of a higher level, whose change a crash has interrupted.
    fn discard_above(&self, root: u64) -> Result<()> {
        for level in self.node(root)?.level() + 1..=LEVEL_MAX {
            for at in self.walk(level)? {
                self.unlink(&self.node(at)?, None)?;
            }
        }
        Ok(())
    }

    /// The nodes of the mixed level, and those of the complete level that have no parent among
    /// these. None of them is in a recovery state afterwards.
    fn remaining(&self, complete: u64) -> Result<(Vec<u64>, Vec<u64>)> {
        let guard = self.pool.pin();
        let mixed = complete + 1;
        if self.has_gap(Gap::Rebuild) {
            return self.unresolved(mixed);
        }
        let upper = self.resolved(mixed, &BTreeMap::new(), &guard)?;
        let parents = self.parents_of(&upper)?;
        let mut orphans = self.resolved(complete, &parents, &guard)?;
        let parents = self.parents_of(&upper)?;
        if self.has_gap(Gap::ParentWords) {
            orphans.retain(|at| !upper.contains(&self.node(*at).map_or(0, |node| node.load(PARENT))));
        } else {
            orphans.retain(|at| !parents.contains_key(at));
        }
        self.pool.reclaim()?;
        Ok((upper, orphans))
    }

    /// The same with states as the crash has left them, only unlocked ([`Gap::Rebuild`]).
    fn unresolved(&self, mixed: u64) -> Result<(Vec<u64>, Vec<u64>)> {
        let (upper, mut lower) = (self.walk(mixed)?, self.walk(mixed - 1)?);
        for &at in upper.iter().chain(&lower) {
            let node = self.node(at)?;
            node.store(META, locked(node.level(), 0, self.session) & !LOCK);
            node.store(SEQUENCE, 0);
        }
        let parents = self.parents_of(&upper)?;
        lower.retain(|at| !parents.contains_key(at));
        Ok((upper, lower))
    }

    /// The nodes of a level, none of them in a recovery state any more, nor emptied by a merge.
    /// They are in the order of their places, in which the CPU reads ahead.
    fn resolved(&self, level: u64, parents: &BTreeMap<u64, u64>, guard: &Guard<'_>) -> Result<Vec<u64>> {
        let mut nodes = self.walk(level)?;
        nodes.sort_unstable();
        let mut has_resolved = false;
        for &at in &nodes {
            let node = self.node(at)?;
            if self.is_stale(&node) {
                has_resolved = true;
                let parent = parents.get(&at).map_or(Parent::Lost, |parent| Parent::Locked(*parent));
                self.resolve(parent, &node, guard)?;
            }
        }
        if has_resolved {
            nodes = self.walk(level)?;
            nodes.sort_unstable();
        }
        self.without_empty(level, nodes)
    }

    /// Nodes of a level, after those have left the chain that a merge has emptied.
    fn without_empty(&self, level: u64, mut nodes: Vec<u64>) -> Result<Vec<u64>> {
        let mut failure = None;
        let is_kept = |at: u64| -> Result<bool> {
            let node = self.node(at)?;
            // An empty leaf may be in use, unless it was being merged.
            if node.count() > 0 || level == 0 && !node.has(REORGANIZING) {
                return Ok(true);
            }
            self.unlink(&node, None)?;
            Ok(false)
        };
        nodes.retain(|at| {
            failure.is_some()
                || is_kept(*at).unwrap_or_else(|error| {
                    failure = Some(error);
                    true
                })
        });
        failure.map_or(Ok(nodes), Err)
    }

    fn parents_of(&self, nodes: &[u64]) -> Result<BTreeMap<u64, u64>> {
        let mut parents = BTreeMap::new();
        for &at in nodes {
            let node = self.node(at)?;
            for slot in slots(node.bitmap()) {
                let child = self.child_of(&node, node.target(node.level(), slot))?;
                if parents.insert(child.at, at).is_some() {
                    return Err(self.damaged(child.at, "a node has two parents"));
                }
            }
        }
        Ok(parents)
    }

    /// Nodes with what their parent words name, and their boxes.
    fn read_boxes(&self, nodes: &[u64], threads: usize) -> Result<Vec<Read<D>>> {
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let share = nodes.len().div_ceil(threads).max(NODES_OF_THREAD_MIN);
        let read_one = |at: u64| {
            let node = self.node(at)?;
            Ok((at, node.load(PARENT), node.bounds()))
        };
        let read = |part: &[u64]| part.iter().map(|&at| read_one(at)).collect::<Result<Vec<_>>>();
        if share >= nodes.len() {
            return read(nodes);
        }
        let parts = thread::scope(|scope| {
            let workers: Vec<_> = nodes.chunks(share).map(|part| scope.spawn(move || read(part))).collect();
            let join = |worker: thread::ScopedJoinHandle<'_, _>| {
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            workers.into_iter().map(join).collect::<Result<Vec<_>>>()
        })?;
        Ok(parts.into_iter().flatten().collect())
    }

    /// The nodes to be made, by level, from parents of the complete level up to the root.
    fn plan(&self, upper: Vec<Read<D>>, orphans: Vec<Read<D>>, by_parents: bool) -> Result<Vec<Vec<Planned<D>>>> {
        let capacity = self.layout.inner_fan_out;
        let as_children =
            |nodes: Vec<Read<D>>| nodes.into_iter().map(|(at, _, rect)| (Child::Node(at), rect)).collect::<Vec<_>>();
        let (mut first, mut rest) = (Vec::new(), Vec::new());
        let mut groups: BTreeMap<u64, Vec<Read<D>>> = BTreeMap::new();
        for orphan in orphans {
            groups.entry(if by_parents { orphan.1 } else { 0 }).or_default().push(orphan);
        }
        for (key, group) in groups {
            match by_parents && (self.fill_min(1)..=capacity).contains(&group.len()) {
                true => first.push(Planned { children: as_children(group), key: is_volatile(key).then_some(key) }),
                false => rest.extend(as_children(group)),
            }
        }
        let packed = |mut items: Vec<(Child, Rect<D>)>| {
            let mut nodes = Vec::new();
            pack(&mut items, capacity, &mut nodes);
            nodes.into_iter().map(|children| Planned { children, key: None })
        };
        if !rest.is_empty() {
            first.extend(packed(rest));
        }
        let mut items = as_children(upper);
        let mut levels = Vec::new();
        let mut latest = first;
        loop {
            items.extend(latest.iter().enumerate().map(|(number, planned)| {
                (Child::Planned(number), bounds(planned.children.iter().map(|(_, rect)| *rect)))
            }));
            levels.push(latest);
            if items.len() == 1 {
                return Ok(levels);
            }
            latest = packed(std::mem::take(&mut items)).collect();
        }
    }

    /// Makes planned nodes from the lowest level up.
    fn make(&mut self, lowest: u64, levels: Vec<Vec<Planned<D>>>) -> Result<()> {
        let in_memory = self.placed_in_memory(lowest, &levels);
        let mut below: Vec<u64> = Vec::new();
        let count = levels.len();
        for (number, (planned, in_memory)) in levels.into_iter().zip(in_memory).enumerate() {
            let level = lowest + number as u64;
            blocks::check_height(&self.pool, self.block, level)?;
            let is_last = number + 1 == count;
            let mut made = Vec::new();
            for (place, planned) in planned.into_iter().enumerate() {
                let branches: Vec<Branch<D>> = planned
                    .children
                    .iter()
                    .map(|(child, rect)| match child {
                        Child::Node(at) => (*rect, *at),
                        Child::Planned(number) => (*rect, below[*number]),
                    })
                    .collect();
                made.push(self.make_node(level, place < in_memory, &branches, planned.key)?);
            }
            match (in_memory, is_last) {
                (0, true) => self.persist_top(made[0]),
                (0, false) => self.set_complete(level),
                _ => {}
            }
            below = made;
        }
        self.root.store(below[0], Ordering::SeqCst);
        Ok(())
    }

    /// Children in the pool that have a common key keep it, so that their pages are not written.
    fn make_node(&self, level: u64, in_memory: bool, branches: &[Branch<D>], key: Option<u64>) -> Result<u64> {
        let at = match in_memory && self.reserve(1) {
            true => self.volatile_node(level, 0, branches)?,
            false => self.link_first(level, 0, branches)?,
        };
        debug_assert!(is_volatile(at) == in_memory);
        let node = Locked::of_new(self.node(at)?);
        node.store(SEQUENCE, 0);
        if let Some(key) = key.filter(|_| in_memory) {
            node.store(KEY, key);
        }
        self.adopt(&node)?;
        Ok(at)
    }

    /// How many nodes of each level lie in memory.
    fn placed_in_memory(&self, lowest: u64, levels: &[Vec<Planned<D>>]) -> Vec<usize> {
        let mut left = match self.budget() {
            Budget::Nodes(nodes) => usize::try_from(nodes).unwrap_or(usize::MAX),
            Budget::Levels(_) => usize::MAX,
        };
        let root_level = lowest + levels.len() as u64 - 1;
        let mut counts: Vec<usize> = Vec::new();
        for (number, level) in levels.iter().enumerate().rev() {
            let is_wanted = match self.budget() {
                Budget::Nodes(_) => true,
                Budget::Levels(wanted) => lowest + number as u64 + wanted > root_level,
            };
            let count = if is_wanted { level.len().min(left) } else { 0 };
            left -= count;
            counts.push(count);
        }
        counts.reverse();
        counts
    }
}
