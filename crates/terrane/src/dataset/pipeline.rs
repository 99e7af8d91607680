//! Transactions of one record each, with one sync for many.

use crate::Result;
use crate::engine::{Committed, Engine};
use crate::locks::{Acquire, Frame};

/// Commits on their way, with the locks of their keys, which are given back when this is dropped: what was
/// committed has to be acknowledged before. The thread must hold no other key's lock.
///
/// Locks are tried one by one; where one is taken, what was committed so far is synced and its locks are given
/// back before waiting for it (Kim 2016, section 3.4.2).
pub(super) struct Pipeline<'e> {
    engine: &'e Engine,
    frame: Frame<'e>,
    commits: Commits,
}

/// What has been committed.
#[derive(Default)]
struct Commits {
    /// The last that is not acknowledged yet.
    last: Option<Committed>,
    count: usize,
    /// How many of them are acknowledged.
    durable: usize,
    /// Where the log ended when an acknowledgement had last waited for it, or with the first commit: until then it
    /// holds what is appended in memory.
    begun_at: Option<u64>,
}

impl<'e> Pipeline<'e> {
    pub fn new(engine: &'e Engine) -> Self {
        Self { engine, frame: Frame::new(engine.core.locks()), commits: Commits::default() }
    }

    /// Takes the lock of a key's hash, unless it is held already.
    ///
    /// # Errors
    /// No space or a failed sync, and then the lock is not held.
    pub fn lock(&mut self, hash: u64) -> Result<()> {
        match self.frame.acquire(hash) {
            Acquire::MustWait => self.frame.commit_then_wait(hash, || self.commits.acknowledge(self.engine)),
            Acquire::Acquired | Acquire::AlreadyHeld => Ok(()),
        }
    }

    /// Notes a commit.
    pub fn note(&mut self, committed: Committed) {
        let Commits { last, count, begun_at, .. } = &mut self.commits;
        begun_at.get_or_insert(committed.end_lsn);
        *last = Some(committed);
        *count += 1;
    }

    /// Waits until all commits are durable and visible.
    pub fn acknowledge(&mut self) -> Result<()> {
        self.commits.acknowledge(self.engine)
    }

    /// As [`Self::acknowledge`], if the log holds a quarter of the working memory of the commits.
    pub fn acknowledge_many(&mut self) -> Result<()> {
        match self.commits.bytes() > self.engine.environment().shares.work as u64 / 4 {
            true => self.acknowledge(),
            false => Ok(()),
        }
    }

    /// How many commits are acknowledged; they are the first ones.
    pub fn durable(&self) -> usize {
        self.commits.durable
    }
}

impl Commits {
    /// Bytes that the log holds in memory of them.
    fn bytes(&self) -> u64 {
        let last = self.last.map_or(0, |committed| committed.end_lsn);
        last.saturating_sub(self.begun_at.unwrap_or(last))
    }

    fn acknowledge(&mut self, engine: &Engine) -> Result<()> {
        if let Some(committed) = self.last.take() {
            self.begun_at = Some(committed.end_lsn);
            engine.core.acknowledge(committed)?;
            self.durable = self.count;
        }
        Ok(())
    }
}
