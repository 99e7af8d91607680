//! Transactions of one record each, many per sync.

use crate::Result;
use crate::engine::{Committed, Engine};
use crate::locks::{Acquire, Frame};

/// Commits in progress, with the locks of their keys. The locks are released when this is dropped,
/// so the commits must be acknowledged before. The thread must hold no other key's lock.
///
/// Locks are tried one by one. Before waiting for a lock, the earlier commits are synced and their
/// locks released (Kim 2016, section 3.4.2).
pub(super) struct Pipeline<'e> {
    engine: &'e Engine,
    frame: Frame<'e>,
    commits: Commits,
}

/// The commits so far.
#[derive(Default)]
struct Commits {
    /// The last commit, unless it is acknowledged.
    last: Option<Committed>,
    count: usize,
    /// Number of acknowledged commits.
    durable: usize,
    /// End of the log when an acknowledgement last waited for it, or at the first commit. The log
    /// holds later bytes in memory.
    begun_at: Option<u64>,
}

impl<'e> Pipeline<'e> {
    pub fn new(engine: &'e Engine) -> Self {
        Self { engine, frame: Frame::new(&engine.locks), commits: Commits::default() }
    }

    /// Takes the lock of a key's hash, unless it is already held.
    ///
    /// # Errors
    /// No space or a failed sync; the lock is not held then.
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

    /// Like [`Self::acknowledge`], but only if the commits take a quarter of the working memory in
    /// the log.
    pub fn acknowledge_many(&mut self) -> Result<()> {
        match self.commits.bytes() > self.engine.shares.work as u64 / 4 {
            true => self.acknowledge(),
            false => Ok(()),
        }
    }

    /// Number of acknowledged commits. They are the first ones.
    pub fn durable(&self) -> usize {
        self.commits.durable
    }
}

impl Commits {
    /// Bytes of these commits that the log holds in memory.
    fn bytes(&self) -> u64 {
        let last = self.last.map_or(0, |committed| committed.end_lsn);
        last.saturating_sub(self.begun_at.unwrap_or(last))
    }

    fn acknowledge(&mut self, engine: &Engine) -> Result<()> {
        if let Some(committed) = self.last.take() {
            self.begun_at = Some(committed.end_lsn);
            engine.acknowledge(committed)?;
            self.durable = self.count;
        }
        Ok(())
    }
}
