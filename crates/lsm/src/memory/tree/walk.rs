//! Leaves in order, forwards for readers and backwards for the writer.

use super::Tree;
use super::inner::{Children, Node};
use super::insert::{Path, Place};
use super::key::Order;
use super::leaf::{Cell, Columns, Leaf};

/// Leaves in ascending order. Each leaf is met once; every entry inserted before the walk began
/// lies in one of them.
pub(in crate::memory) struct LeafWalk<'a, C: Columns> {
    /// From the root down: the children of a node when it was met, and the next of them.
    stack: Vec<(Children<'a, C>, usize)>,
}

impl<'a, C: Columns> LeafWalk<'a, C> {
    /// A walk that begins at the leaf which covers `from`.
    pub(in crate::memory) fn new(tree: &'a Tree<C>, from: Order<'_>) -> Self {
        let mut stack = Vec::with_capacity(8);
        let mut inner = tree.root();
        loop {
            let children = inner.children();
            let index = children.route(from);
            if children.level() > 1
                && let Node::Inner(child) = children.get(index)
            {
                stack.push((children, index + 1));
                inner = child;
            } else {
                stack.push((children, index));
                return Self { stack };
            }
        }
    }

    /// A walk over all leaves.
    pub(in crate::memory) fn all(tree: &'a Tree<C>) -> Self {
        Self { stack: vec![(tree.root().children(), 0)] }
    }
}

impl<'a, C: Columns> Iterator for LeafWalk<'a, C> {
    type Item = &'a Leaf<C>;

    fn next(&mut self) -> Option<&'a Leaf<C>> {
        loop {
            let (children, next) = self.stack.last_mut()?;
            if *next == children.len() {
                self.stack.pop();
                continue;
            }
            let child = children.get(*next);
            *next += 1;
            match child {
                Node::Leaf(leaf) => return Some(leaf),
                Node::Inner(child) => self.stack.push((child.children(), 0)),
            }
        }
    }
}

impl<C: Columns> Tree<C> {
    /// The newest entry of a head and key that `wanted` accepts: the one with the highest tie.
    /// Visits only leaves that may hold the key, from the last to the first.
    ///
    /// `place` is the last of them, found by [`Tree::descend`] of the writer, which still holds the
    /// latch.
    pub(in crate::memory) fn newest<'a>(
        &'a self,
        place: Place<'a, C>,
        head: u64,
        key: &[u8],
        wanted: impl Fn(Cell<'a, C>) -> bool,
    ) -> Option<Cell<'a, C>> {
        let Place { mut path, mut leaf } = place;
        let lowest = Order { head, key, tie: 0 };
        loop {
            let found = leaf
                .views()
                .flat_map(|view| {
                    let slots = view.heads().iter().enumerate().filter(move |&(_, &found)| found == head);
                    slots.map(move |(slot, _)| view.cell(slot))
                })
                .filter(|cell| cell.key() == key && wanted(*cell))
                .max_by_key(|cell| C::tie(*cell));
            if found.is_some() {
                return found;
            }
            let &(parent, index) = path.last()?;
            let separator = parent.separator(index);
            if separator.rest.order(separator.head) < lowest {
                return None;
            }
            leaf = step_back(&mut path)?;
        }
    }
}

/// Moves a path to the leaf before its own.
fn step_back<'a, C: Columns>(path: &mut Path<'a, C>) -> Option<&'a Leaf<C>> {
    loop {
        let (_, index) = path.last_mut()?;
        if *index > 0 {
            *index -= 1;
            break;
        }
        path.pop();
    }
    loop {
        let &(children, index) = path.last()?;
        match children.get(index) {
            Node::Leaf(leaf) => return Some(leaf),
            Node::Inner(child) => path.push((child.children(), child.children().len() - 1)),
        }
    }
}
