//! Copies of inner nodes, in memory (P5 to P7).

use terrane_pmem::{Backend, Guard};
use terrane_storage::sync::Ordering;

use super::inner::REPLACEMENT;
use super::layout::{DETACHED, REPLACED};
use super::leaf::bounds;
use super::tree::PmrTree;
use crate::Result;
use crate::rtree::choose;
use crate::rtree::rect::Rect;

/// The nodes and leaves that a copy replaces, and the nodes that it makes.
#[derive(Debug, Default)]
pub(super) struct Changes {
    inners: Vec<u64>,
    stubs: Vec<u64>,
    made: Vec<u64>,
    /// Leaves that take the place of the replaced ones.
    leaves: u64,
}

/// A child during the copy of its parent.
enum Part<const D: usize> {
    Kept(u64, Rect<D>),
    /// Its children, which need new nodes.
    Opened(Vec<(u64, Rect<D>)>),
}

impl<const D: usize, B: Backend> PmrTree<D, B> {
    /// Copies an inner node, and puts the copy in its place. Completes all changes that were begun
    /// in it. If another thread comes first, this one has changed nothing; the caller starts over
    /// from the root in any case.
    ///
    /// `above` is the way to the node. If it is not the present one any more, nothing happens.
    pub(super) fn copy_node(&self, above: &[(u64, usize)], node: u64, guard: &Guard<'_>) -> Result<()> {
        let mut changes = Changes::default();
        let outcome = self.try_copy_node(above, node, &mut changes, guard);
        match outcome {
            Ok(true) => self.complete(&changes, guard),
            Ok(false) | Err(_) => {
                changes.made.iter().for_each(|node| self.inners.free(*node));
                outcome.map(drop)
            }
        }
    }

    fn try_copy_node(
        &self,
        above: &[(u64, usize)],
        node: u64,
        changes: &mut Changes,
        guard: &Guard<'_>,
    ) -> Result<bool> {
        let children = self.open_node(node, changes, guard)?;
        let level = self.inner(node).level();
        let Some((&(parent, slot), above)) = above.split_last() else {
            let root = self.new_root(level, children, changes);
            return Ok(self.root.compare_exchange(node, root, Ordering::SeqCst, Ordering::SeqCst).is_ok());
        };
        if children.len() <= self.inner_fan_out && children.len() >= self.inner_fill_min {
            let copy = self.make(level, &children, changes);
            return Ok(self.inner(parent).exchange_child(slot, node, copy));
        }
        // The copy of the parent makes this one once more, with the siblings.
        changes.made.drain(..).for_each(|node| self.inners.free(node));
        *changes = Changes::default();
        self.try_copy_node(above, parent, changes, guard)
    }

    /// Freezes a node and gives the children of its copy. There are too many of them if leaves were
    /// split, and too few if leaves were merged.
    fn open_node(&self, node: u64, changes: &mut Changes, guard: &Guard<'_>) -> Result<Vec<(u64, Rect<D>)>> {
        let inner = self.inner(node);
        let merge = inner.freeze();
        changes.inners.push(node);
        if inner.level() == 1 {
            if let Some(merge) = merge {
                self.complete_merge(inner, merge, None, guard)?;
            }
            return self.open_parent(node, changes, guard);
        }
        let mut parts = Vec::with_capacity(inner.count());
        for (slot, rect) in inner.rects() {
            let child = inner.child(slot);
            parts.push(match self.inner(child).is_closing() {
                true => Part::Opened(self.open_node(child, changes, guard)?),
                false => Part::Kept(child, rect),
            });
        }
        while let Some(small) = parts.iter().position(|part| self.is_small(part)).filter(|_| parts.len() > 1) {
            let Part::Opened(mut children) = parts.swap_remove(small) else { continue };
            let rect = bounds(children.iter().map(|(_, rect)| *rect));
            let others = parts.iter().map(Part::bounds).enumerate();
            let Some((sibling, _)) = choose::least_enlargement(others, &rect) else { continue };
            match &mut parts[sibling] {
                Part::Opened(others) => others.append(&mut children),
                Part::Kept(kept, _) => {
                    children.append(&mut self.open_node(*kept, changes, guard)?);
                    parts[sibling] = Part::Opened(children);
                }
            }
        }
        let mut children = Vec::with_capacity(parts.len() + 1);
        for part in parts {
            match part {
                Part::Kept(child, rect) => children.push((child, rect)),
                Part::Opened(below) => self.make_all(inner.level() - 1, below, changes, &mut children),
            }
        }
        Ok(children)
    }

    fn is_small(&self, part: &Part<D>) -> bool {
        matches!(part, Part::Opened(children) if children.len() < self.inner_fill_min)
    }

    /// The same for a frozen node whose children are leaves.
    fn open_parent(&self, node: u64, changes: &mut Changes, guard: &Guard<'_>) -> Result<Vec<(u64, Rect<D>)>> {
        let inner = self.inner(node);
        let mut children = Vec::with_capacity(inner.count() + 1);
        for (slot, rect) in inner.rects() {
            let stub = inner.child(slot);
            let next = self.next(self.leaf_of(stub), guard)?;
            if next & REPLACED == 0 {
                children.push((stub, rect));
                continue;
            }
            let copies = self.inner(self.replacement(stub, next, guard)?);
            children.extend(copies.rects().map(|(slot, rect)| (copies.child(slot), rect)));
            changes.stubs.push(stub);
            changes.leaves += copies.count() as u64;
        }
        Ok(children)
    }

    /// A root with these children. A node with one inner child is no root.
    fn new_root(&self, level: u64, mut children: Vec<(u64, Rect<D>)>, changes: &mut Changes) -> u64 {
        let mut level = level;
        while children.len() > self.inner_fan_out {
            let mut above = Vec::new();
            self.make_all(level, children, changes, &mut above);
            (children, level) = (above, level + 1);
        }
        match children.as_slice() {
            [(only, _)] if level > 1 => *only,
            _ => self.make(level, &children, changes),
        }
    }

    fn make(&self, level: u64, children: &[(u64, Rect<D>)], changes: &mut Changes) -> u64 {
        let node = self.new_inner(level, children);
        changes.made.push(node);
        node
    }

    /// Makes nodes of a level with these children, and adds them to the children of the next level.
    fn make_all(
        &self,
        level: u64,
        children: Vec<(u64, Rect<D>)>,
        changes: &mut Changes,
        above: &mut Vec<(u64, Rect<D>)>,
    ) {
        if children.len() <= self.inner_fan_out {
            let rect = bounds(children.iter().map(|(_, rect)| *rect));
            above.push((self.make(level, &children, changes), rect));
            return;
        }
        let rects: Vec<Rect<D>> = children.iter().map(|(_, rect)| *rect).collect();
        let mut halves = [Vec::new(), Vec::new()];
        for (child, is_second) in children.into_iter().zip(self.split.divide(&rects, self.inner_fill_min)) {
            halves[usize::from(is_second)].push(child);
        }
        halves.into_iter().for_each(|half| self.make_all(level, half, changes, above));
    }

    /// Gives up what a copy has replaced. Its leaves are detached, so a sweep may unlink them.
    fn complete(&self, changes: &Changes, guard: &Guard<'_>) -> Result<()> {
        changes.inners.iter().for_each(|node| self.inners.retire(*node, guard));
        for &stub in &changes.stubs {
            self.backend().store(self.leaf_of(stub) + DETACHED, self.session);
            self.inners.retire(self.stubs.words(stub)[REPLACEMENT].load(Ordering::SeqCst), guard);
            self.stubs.retire(stub, guard);
        }
        let gone = changes.stubs.len() as u64;
        if gone == 0 {
            return Ok(());
        }
        self.leaves.fetch_add(changes.leaves, Ordering::Relaxed);
        let leaves = self.leaves.fetch_sub(gone, Ordering::Relaxed) - gone;
        self.note_detached(gone, leaves, guard)
    }
}

impl<const D: usize> Part<D> {
    fn bounds(&self) -> Rect<D> {
        match self {
            Self::Kept(_, rect) => *rect,
            Self::Opened(children) => bounds(children.iter().map(|(_, rect)| *rect)),
        }
    }
}
