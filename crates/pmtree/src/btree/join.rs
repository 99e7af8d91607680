//! Merges of underfull nodes with a sibling.

use terrane_pmem::{Backend, View};

use super::change::Change;
use super::layout::{Layout, META, NEXT, count, level};
use super::method::{LogEntry, Method};
use super::node::Image;
use super::place;
use super::tree::{BTree, Met, Step};
use super::versions;
use crate::{Result, blocks};

/// What became of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It was changed, so nodes above may be underfull now.
    Changed,
    /// It stays as it is.
    Kept,
    /// Another thread has changed one of the nodes.
    Again,
}

/// How two siblings are to be joined.
enum Joined<'a> {
    /// They stay as they are.
    Kept,
    /// Another thread has changed a node.
    Again,
    /// By this change. The locks are those of the parent and of the two.
    Change(Change, [versions::Lock<'a>; 3]),
}

impl<M: Method, const K: usize, const V: usize, B: Backend> BTree<M, K, V, B> {
    /// Whether a leaf with this number of entries is to be joined with another one.
    pub(super) fn is_underfull(&self, entries: usize) -> bool {
        entries == 0 || entries * 4 < self.layout.leaf_capacity
    }

    /// Joins the underfull nodes on the way to a key with siblings. The removal that has left them
    /// is durable, so a lack of space is no error.
    pub(super) fn join(&self, key: &[u64; K]) -> Result<()> {
        loop {
            match self
                .join_on_way(key)
                .or_else(|error| blocks::tolerate_missing_space(error).map(|()| Outcome::Kept))?
            {
                Outcome::Kept => return Ok(()),
                Outcome::Changed | Outcome::Again => {}
            }
        }
    }

    /// Joins the first underfull node on the way to a key.
    fn join_on_way(&self, key: &[u64; K]) -> Result<Outcome> {
        let entry = self.take_log_entry()?;
        let _guard = self.pool.pin();
        let Some((mut above, mut place)) = self.begin_above() else { return Ok(Outcome::Again) };
        loop {
            let met = place.met;
            let node = self.node(met.node)?;
            let meta = node.load(META);
            let (is_leaf, children) = (level(meta) == 0, count(meta));
            let is_root = above.node == 0;
            let is_underfull = match is_leaf {
                true => self.is_underfull(self.layout.leaf_count(node)),
                false => children * 4 <= self.layout.children || children < 2,
            };
            if is_root && !is_leaf && children == 1 {
                return self.remove_root(entry, &above, &met);
            }
            if !is_root && is_underfull {
                match self.join_with_sibling(&above, &met, key)? {
                    Joined::Kept if is_leaf => return Ok(Outcome::Kept),
                    Joined::Kept => {}
                    Joined::Again => return Ok(Outcome::Again),
                    Joined::Change(change, locks) => {
                        if change.released == 0 {
                            self.make(entry, &change)?;
                        } else {
                            self.make_and_release(entry, &change)?;
                            let [_above, _left, right] = locks;
                            right.remove();
                        }
                        return Ok(Outcome::Changed);
                    }
                }
            }
            match self.step(&place, key)? {
                Step::Leaf => return Ok(Outcome::Kept),
                Step::Changed => return Ok(Outcome::Again),
                Step::Below(child, level) => match self.enter(&place, child, level)? {
                    Some(below) => (above, place) = (met, below),
                    None => return Ok(Outcome::Again),
                },
            }
        }
    }

    /// Locks a node with a sibling and their parent, and says how the two are joined.
    fn join_with_sibling<'a>(&'a self, above: &Met<'a>, met: &Met<'a>, key: &[u64; K]) -> Result<Joined<'a>> {
        let parent = self.node(above.node)?;
        let index = self.layout.child_of(parent, key);
        if count(parent.load(META)) < 2 {
            return Ok(if above.is_current() { Joined::Kept } else { Joined::Again });
        }
        let sibling = if index == 0 { 1 } else { index - 1 };
        let Some(sibling_met) = self.meet_linked(above, Layout::<K, V>::child_at(parent, sibling))? else {
            return Ok(Joined::Again);
        };
        let [left, right] = if index == 0 { [met, &sibling_met] } else { [&sibling_met, met] };
        self.check_distinct([above, left, right])?;
        let mut locks = Vec::with_capacity(3);
        for node in [above, left, right] {
            match versions::lock(node.word, node.version) {
                Some(lock) => locks.push(lock),
                None => {
                    locks.into_iter().for_each(versions::Lock::unchanged);
                    return Ok(Joined::Again);
                }
            }
        }
        self.check_parent(above.node, &[left.node, right.node])?;
        let change = self.joining(above.node, index.min(sibling), [left.node, right.node])?;
        match (change, <[_; 3]>::try_from(locks)) {
            (Some(change), Ok(locks)) => Ok(Joined::Change(change, locks)),
            (None, Ok(locks)) => {
                locks.into_iter().for_each(versions::Lock::unchanged);
                Ok(Joined::Kept)
            }
            (_, Err(_)) => Ok(Joined::Again),
        }
    }

    /// The change that joins two locked siblings; `None` if they are better left alone. The left
    /// one takes everything, if that leaves room. Else an inner node with one child gets others.
    fn joining(&self, parent: u64, left_index: usize, [left, right]: [u64; 2]) -> Result<Option<Change>> {
        if M::IN_LOGS && place::is_row(left) {
            return self.joining_chains(parent, left_index, [left, right]);
        }
        let images = [self.layout.copy(self.node(left)?), self.layout.copy(self.node(right)?)];
        let [left_image, right_image] = &images;
        let parent_image = self.layout.copy(self.node(parent)?);
        let mut children = self.layout.children_of(Image(&parent_image));
        let level = level(left_image[META]);
        let mut change = Change::default();
        let mut after = left_image.clone();
        if level == 0 {
            let moved = self.layout.entries_of(Image(right_image));
            let kept = self.layout.leaf_count(Image(left_image));
            if !self.fit_together(kept, moved.len()) {
                return Ok(None);
            }
            self.layout.add(&mut after, &moved);
            after[NEXT] = right_image[NEXT];
        } else {
            let mut all = self.layout.children_of(Image(left_image));
            let mut moved = self.layout.children_of(Image(right_image));
            // The first key of a node is not compared, and the parent knows it.
            moved[0].0 = children[left_index + 1].0;
            let (total, has_single) = (all.len() + moved.len(), all.len() < 2 || moved.len() < 2);
            all.append(&mut moved);
            if total * 4 > self.layout.children * 3 && !has_single {
                return Ok(None);
            }
            if total > self.layout.children {
                let upper = all.split_off(total.div_ceil(2));
                children[left_index + 1].0 = upper[0].0;
                let mut right_after = right_image.clone();
                Layout::<K, V>::fill_inner(&mut right_after, level, &upper);
                change.write(right, right_image, &right_after);
                Layout::<K, V>::fill_inner(&mut after, level, &all);
                change.write(left, left_image, &after);
                return Ok(Some(self.with_children(change, parent, &parent_image, &children)));
            }
            Layout::<K, V>::fill_inner(&mut after, level, &all);
        }
        change.write(left, left_image, &after);
        change.released = right;
        children.remove(left_index + 1);
        Ok(Some(self.with_children(change, parent, &parent_image, &children)))
    }

    /// Does the same for leaves that are chains: the left one has everything in its log afterwards.
    fn joining_chains(&self, parent: u64, left_index: usize, [left, right]: [u64; 2]) -> Result<Option<Change>> {
        let [kept, moved] = [self.layout.leaf_count(self.node(left)?), self.layout.leaf_count(self.node(right)?)];
        if !self.fit_together(kept, moved) {
            return Ok(None);
        }
        self.merge_chains(left, right)?;
        let parent_image = self.layout.copy(self.node(parent)?);
        let mut children = self.layout.children_of(Image(&parent_image));
        children.remove(left_index + 1);
        let change = Change { released: right, ..Change::default() };
        Ok(Some(self.with_children(change, parent, &parent_image, &children)))
    }

    /// Whether two leaves with these numbers of entries are to be one.
    fn fit_together(&self, kept: usize, moved: usize) -> bool {
        (kept + moved) * 4 <= self.layout.leaf_capacity * 3 || kept == 0 || moved == 0
    }

    /// Adds other children of a node to a change.
    fn with_children(&self, mut change: Change, parent: u64, before: &[u64], children: &[([u64; K], u64)]) -> Change {
        let mut after = before.to_vec();
        Layout::<K, V>::fill_inner(&mut after, level(before[META]), children);
        change.write(parent, before, &after);
        change
    }

    /// Makes the only child of the root the root.
    fn remove_root(&self, entry: LogEntry<'_>, above: &Met<'_>, root: &Met<'_>) -> Result<Outcome> {
        let child = Layout::<K, V>::child_at(self.node(root.node)?, 0);
        if self.meet_linked(root, child)?.is_none() {
            return Ok(Outcome::Again);
        }
        self.check_distinct([above, root])?;
        let Some(above_lock) = versions::lock(above.word, above.version) else { return Ok(Outcome::Again) };
        let Some(lock) = versions::lock(root.word, root.version) else {
            above_lock.unchanged();
            return Ok(Outcome::Again);
        };
        let mut change = Change { released: root.node, ..Change::default() };
        self.check_parent(root.node, &[child])?;
        change.write_root(self.block, child, M::INNER_IN_MEMORY);
        self.make_and_release(entry, &change)?;
        lock.remove();
        Ok(Outcome::Changed)
    }
}
