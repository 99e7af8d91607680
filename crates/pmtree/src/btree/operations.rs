//! Operations on one key.

use terrane_pmem::Backend;

use super::method::{Changed, LogEntry, Method};
use super::tree::BTree;
use super::versions;
use crate::Result;

/// What an operation does with a key, after it has seen the value.
enum Action<const V: usize> {
    Keep,
    Put([u64; V]),
    Remove,
}

/// How an attempt has ended.
enum Attempt<const V: usize> {
    /// Done, with the value before. The leaf may have too few entries now.
    Done { before: Option<[u64; V]>, is_underfull: bool },
    /// The leaf has no room.
    Full,
    /// The change takes a log entry.
    NeedsLog,
    /// Another thread has changed the leaf.
    Again,
}

/// The outcome of [`BTree::compare_and_update`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared<const V: usize> {
    /// The value was as expected, and is the new one now.
    Updated,
    /// The key has this value, and keeps it.
    Different([u64; V]),
    /// The key is not there.
    Absent,
}

impl<M: Method, const K: usize, const V: usize, B: Backend> BTree<M, K, V, B> {
    /// The value of a key.
    pub fn get(&self, key: &[u64; K]) -> Result<Option<[u64; V]>> {
        let _guard = self.pool.pin();
        loop {
            let leaf = self.descend(key)?;
            let found = self.find(leaf.node, key)?;
            if self.holds(&leaf, self.check_found(leaf.node, found.map(|(slot, _)| slot)))? {
                return Ok(found.map(|(_, value)| value));
            }
        }
    }

    /// Inserts a key that is not there. Gives whether it did; otherwise nothing has changed.
    pub fn insert(&self, key: &[u64; K], value: &[u64; V]) -> Result<bool> {
        let before = self.change(key, |before| before.map_or(Action::Put(*value), |_| Action::Keep))?;
        Ok(before.is_none())
    }

    /// Changes the value of a key that is there. Gives the value before.
    pub fn update(&self, key: &[u64; K], value: &[u64; V]) -> Result<Option<[u64; V]>> {
        self.change(key, |before| before.map_or(Action::Keep, |_| Action::Put(*value)))
    }

    /// Inserts a key, or changes its value. Gives the value before.
    pub fn upsert(&self, key: &[u64; K], value: &[u64; V]) -> Result<Option<[u64; V]>> {
        self.change(key, |_| Action::Put(*value))
    }

    /// Changes the value of a key if it is as expected.
    pub fn compare_and_update(&self, key: &[u64; K], expected: &[u64; V], value: &[u64; V]) -> Result<Compared<V>> {
        let decide = |before: Option<&[u64; V]>| match before {
            Some(before) if before == expected => Action::Put(*value),
            _ => Action::Keep,
        };
        Ok(match self.change(key, decide)? {
            Some(before) if before == *expected => Compared::Updated,
            Some(before) => Compared::Different(before),
            None => Compared::Absent,
        })
    }

    /// Removes a key. Gives its value, if it was there.
    ///
    /// A removal needs no space, except in [`BTreeLs`](super::BTreeLs): there it is a record in a
    /// log. On a full disk it may be refused, also after an opening, and changes nothing then.
    pub fn remove(&self, key: &[u64; K]) -> Result<Option<[u64; V]>> {
        self.change(key, |before| before.map_or(Action::Keep, |_| Action::Remove))
    }

    /// Inserts a key, or changes its value, if `accepts` accepts the value before. Gives that
    /// value.
    pub(crate) fn upsert_if(
        &self,
        key: &[u64; K],
        value: &[u64; V],
        accepts: impl Fn(Option<&[u64; V]>) -> bool,
    ) -> Result<Option<[u64; V]>> {
        self.change(key, |before| if accepts(before) { Action::Put(*value) } else { Action::Keep })
    }

    /// Removes a key if `accepts` accepts its value. Gives that value.
    pub(crate) fn remove_if(&self, key: &[u64; K], accepts: impl Fn(&[u64; V]) -> bool) -> Result<Option<[u64; V]>> {
        self.change(key, |before| before.filter(|before| accepts(before)).map_or(Action::Keep, |_| Action::Remove))
    }

    /// Changes the value of a key as `decide` says. Gives the value before.
    fn change(&self, key: &[u64; K], decide: impl Fn(Option<&[u64; V]>) -> Action<V>) -> Result<Option<[u64; V]>> {
        let mut needs_log = M::LOGS_LEAVES;
        loop {
            // Taken before any lock, so that nobody waits for an entry while holding one.
            let log = if needs_log { self.take_log_entry()? } else { None };
            match self.try_change(key, &decide, log)? {
                Attempt::Done { before, is_underfull } => {
                    if is_underfull {
                        self.join(key)?;
                    }
                    if M::IN_LOGS {
                        self.collect()?;
                    }
                    return Ok(before);
                }
                Attempt::Full => self.make_room(key)?,
                Attempt::NeedsLog => needs_log = true,
                Attempt::Again => {}
            }
        }
    }

    fn try_change(
        &self,
        key: &[u64; K],
        decide: &impl Fn(Option<&[u64; V]>) -> Action<V>,
        log: LogEntry<'_>,
    ) -> Result<Attempt<V>> {
        self.check_not_failed()?;
        let _guard = self.pool.pin();
        let leaf = self.descend(key)?;
        let node = self.node(leaf.node)?;
        let found = self.find(leaf.node, key)?;
        let (slot, before) = found.unzip();
        let checked = self.check_found(leaf.node, slot);
        let action = decide(before.as_ref());
        if matches!(action, Action::Keep) {
            let done = Attempt::Done { before, is_underfull: false };
            return Ok(if self.holds(&leaf, checked)? { done } else { Attempt::Again });
        }
        // From here on everything that was read holds.
        let Some(_lock) = versions::lock(leaf.word, leaf.version) else { return Ok(Attempt::Again) };
        checked?;
        let (changed, is_removal) = match (action, found) {
            (Action::Put(value), Some((slot, _))) => (M::set(self, leaf.node, slot, (key, &value), log)?, false),
            (Action::Put(value), None) => (M::put(self, leaf.node, (key, &value), log)?, false),
            (Action::Remove, Some((slot, _))) => (M::take(self, leaf.node, slot, key, log)?, true),
            (Action::Keep, _) | (Action::Remove, None) => (Changed::Done, false),
        };
        Ok(match changed {
            Changed::Done => {
                let is_underfull = is_removal && self.is_underfull(self.layout.leaf_count(node));
                Attempt::Done { before, is_underfull }
            }
            // A method may have completed an interrupted change first, so the version goes up.
            Changed::Full => Attempt::Full,
            Changed::NeedsLog => Attempt::NeedsLog,
        })
    }
}
