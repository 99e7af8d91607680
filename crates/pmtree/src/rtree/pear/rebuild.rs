//! Recovery of the nodes that were in memory (section 5.3): parents for the highest nodes in the
//! pool, and then the levels above.
//!
//! All nodes of the complete level are on its chain, and so are those of the level above that lie
//! in the pool. Nodes of the complete level that none of those has as a child have lost their
//! parent. Recovery goes by children, since parent words may be old. It uses these only to group
//! siblings.
//!
//! 1. Nodes of both levels are read. Recovery states are resolved, and then the level is read anew.
//! 2. Nodes without a parent are grouped by the parent that they had. Small groups are packed by
//!    place.
//! 3. The levels above are packed. From the root down, nodes lie in memory as the budget allows.

use std::collections::BTreeMap;

use terrane_pmem::{Backend, Guard};
use terrane_storage::sync::{Ordering, thread};

use super::layout::{KEY, LOCK, META, PARENT, REORGANIZING, SEQUENCE, TOP, is_volatile, locked, slots};
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

/// A node is resolved, then leaves the chain if it is empty, and is read once more. One resolved
/// node may bring another one into a state.
const ROUNDS_MAX: usize = 8;

/// A node to be made: its children are nodes, or planned nodes of the level below.
struct Planned<const D: usize> {
    children: Vec<(Child, Rect<D>)>,
    /// The key that its children have in common, if there is one.
    key: Option<u64>,
}

/// A node as it was read.
#[derive(Clone, Copy)]
struct Read<const D: usize> {
    at: u64,
    /// What its parent word names.
    parent: u64,
    /// Around nothing, if a node is known to have it as a child.
    rect: Rect<D>,
    is_stale: bool,
    /// A merge has emptied it.
    is_emptied: bool,
}

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
        let (upper, orphans) = self.remaining(top, options.recovery_threads)?;
        self.recovery.nodes_read = (upper.len() + orphans.len()) as u64;
        if let ([only], []) | ([], [only]) = (upper.as_slice(), orphans.as_slice()) {
            self.node(only.at)?.store(PARENT, 0);
            self.persist_top(only.at);
            self.root.store(only.at, Ordering::SeqCst);
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
    fn remaining(&self, complete: u64, threads: usize) -> Result<(Vec<Read<D>>, Vec<Read<D>>)> {
        let guard = self.pool.pin();
        let mixed = complete + 1;
        if self.has_gap(Gap::Rebuild) {
            self.unlock_all(mixed)?;
        }
        let upper = self.resolved(mixed, &BTreeMap::new(), threads, &guard)?;
        let known = self.parents_of(&upper)?;
        let mut orphans = self.resolved(complete, &known, threads, &guard)?;
        let parents = self.parents_of(&upper)?;
        if self.has_gap(Gap::ParentWords) {
            orphans.retain(|node| !upper.iter().any(|upper| upper.at == node.parent));
        } else if !parents.is_empty() {
            orphans.retain(|node| !parents.contains_key(&node.at));
        }
        for orphan in orphans.iter_mut().filter(|orphan| known.contains_key(&orphan.at)) {
            orphan.rect = self.node(orphan.at)?.bounds();
        }
        self.pool.reclaim()?;
        Ok((upper, orphans))
    }

    /// Unlocks both levels, and leaves states as they are ([`Gap::Rebuild`]).
    fn unlock_all(&self, mixed: u64) -> Result<()> {
        for at in self.walk(mixed)?.into_iter().chain(self.walk(mixed - 1)?) {
            let node = self.node(at)?;
            node.store(META, locked(node.level(), 0, self.session) & !LOCK);
            node.store(SEQUENCE, 0);
        }
        Ok(())
    }

    /// The nodes of a level, none of them in a recovery state any more, nor emptied by a merge.
    fn resolved(
        &self,
        level: u64,
        parents: &BTreeMap<u64, u64>,
        threads: usize,
        guard: &Guard<'_>,
    ) -> Result<Vec<Read<D>>> {
        for _ in 0..ROUNDS_MAX {
            let nodes = self.read_all(&self.walk(level)?, parents, threads)?;
            let mut unsettled = nodes.iter().filter(|read| read.is_stale || read.is_emptied).peekable();
            if unsettled.peek().is_none() {
                return Ok(nodes);
            }
            for read in unsettled {
                let node = self.node(read.at)?;
                // One that was stale may have left the chain by now, as another one's partner.
                if read.is_stale {
                    let parent = parents.get(&read.at).map_or(Parent::Lost, |parent| Parent::Locked(*parent));
                    self.resolve(parent, &node, guard)?;
                } else {
                    self.unlink(&node, None)?;
                }
            }
        }
        Err(self.damaged(self.block, format!("nodes of level {level} stay in recovery states")))
    }

    fn parents_of(&self, nodes: &[Read<D>]) -> Result<BTreeMap<u64, u64>> {
        let mut parents = BTreeMap::new();
        for &Read { at, .. } in nodes {
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

    fn read_all(&self, nodes: &[u64], parents: &BTreeMap<u64, u64>, threads: usize) -> Result<Vec<Read<D>>> {
        let threads = match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let share = nodes.len().div_ceil(threads).max(NODES_OF_THREAD_MIN);
        let read_one = |at: u64| {
            let node = self.node(at)?;
            // An empty leaf may be in use, unless it was being merged.
            let is_emptied = node.count() == 0 && (node.level() > 0 || node.has(REORGANIZING));
            let is_orphan = parents.is_empty() || !parents.contains_key(&at);
            let rect = if is_orphan { node.bounds() } else { bounds([].into_iter()) };
            Ok(Read { at, parent: node.load(PARENT), rect, is_stale: self.is_stale(&node), is_emptied })
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
            |nodes: Vec<Read<D>>| nodes.into_iter().map(|node| (Child::Node(node.at), node.rect)).collect::<Vec<_>>();
        let (mut first, mut rest) = (Vec::new(), Vec::new());
        let mut groups: BTreeMap<u64, Vec<Read<D>>> = BTreeMap::new();
        for orphan in orphans {
            groups.entry(if by_parents { orphan.parent } else { 0 }).or_default().push(orphan);
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
    ///
    /// If the pool is full, the remaining nodes of the level lie in memory, and so do the levels
    /// above (R2). Otherwise a tree that a kill has left could not be opened again.
    fn make(&mut self, lowest: u64, levels: Vec<Vec<Planned<D>>>) -> Result<()> {
        let placed = self.placed_in_memory(lowest, &levels);
        let (mut below, mut is_full): (Vec<u64>, _) = (Vec::new(), false);
        let count = levels.len();
        for (number, (planned, mut in_memory)) in levels.into_iter().zip(placed).enumerate() {
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
                let is_in_memory = is_full || place < in_memory;
                let node = match self.make_node(level, is_in_memory, &branches, planned.key) {
                    Err(error) if !is_in_memory && blocks::is_full(&error) => {
                        is_full = true;
                        self.make_node(level, true, &branches, planned.key)?
                    }
                    made => made?,
                };
                in_memory += usize::from(is_full);
                made.push(node);
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
        let node = if in_memory {
            self.reserve_in_any_case(1);
            self.volatile_node(level, 0, branches)?
        } else {
            self.link_first(level, 0, branches)?
        };
        node.store(SEQUENCE, 0);
        match key.filter(|_| in_memory) {
            // Its children name it already.
            Some(key) => node.store(KEY, key),
            None => self.adopt(&node)?,
        }
        Ok(node.at)
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
