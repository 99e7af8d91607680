//! Work on a full disk: it uses the disk reserve, which grows with the log.
//!
//! Deletes, drops, flushes and manifest steps need some space before they free any. On a full disk
//! they get that of the reserve.
//!
//! - R1 The log grows for inserts only while the reserve covers the next flush. So every flush has
//!   its room.
//! - R2 While the reserve is released, inserts, imports and new indexes are refused. Each tries to
//!   restore it first ([`super::Maintenance::check_disk`]).
//! - R3 Nothing restores the reserve while work uses its space.
//!
//! A failed sync is not a full disk, so nothing is repeated after one.

use std::sync::Arc;

use terrane_lsm::log::{Log, MayGrow};
use terrane_lsm::manifest::Manifest;

use super::commit_core::CommitCore;
use super::datasets::OpenDatasets;
use super::reserve::Reserve;
use crate::{Error, Result};

/// Bytes of components for each byte of the log, at most. The primary has all of an operation, each
/// other index a part of it.
const FLUSHED_PER_LOGGED: u64 = 2;

/// The disk space of an open store.
#[derive(Debug)]
pub(crate) struct DiskSpace {
    core: Arc<CommitCore>,
    datasets: Arc<OpenDatasets>,
    reserve: Reserve,
}

impl DiskSpace {
    pub fn new(core: Arc<CommitCore>, datasets: Arc<OpenDatasets>, reserve: Reserve) -> Self {
        Self { core, datasets, reserve }
    }

    /// The reserve.
    pub(super) fn reserve(&self) -> &Reserve {
        &self.reserve
    }

    /// Does work that the store needs on a full disk. If it has no room, it is repeated once with
    /// the log's spare files and the reserve released. Merges take free space until they fail, so
    /// the work waits for those and tries again. Not for merges, nor around other calls of this.
    pub fn with_room<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            match self.with_reserve(&mut work) {
                Err(Error::Full { .. }) if self.wait_for_merge() => {}
                outcome => return outcome,
            }
        }
    }

    /// As [`Self::with_room`] for a merge, which waits for no other.
    pub fn with_reserve<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        let releases = self.reserve.releases();
        let full = match work() {
            Err(full @ Error::Full { .. }) => full,
            outcome => return outcome,
        };
        let had_spares = self.remove_spares();
        let user = self.reserve.release(releases);
        if user.is_none() && !had_spares {
            return Err(full);
        }
        let outcome = work();
        drop(user);
        // Work without room even so leaves the space to others.
        let _ = self.restore();
        outcome
    }

    /// A manifest step.
    pub fn step<T>(&self, mut change: impl FnMut(&mut Manifest) -> terrane_lsm::Result<T>) -> Result<T> {
        let context = &self.core.environment().context;
        let stepped = self.with_room(|| context.step(&mut change).map_err(Error::from));
        stepped.inspect_err(|error| self.core.note_failure(error))
    }

    /// Waits until a running merge ends, which may free space; false if there is none.
    pub(super) fn wait_for_merge(&self) -> bool {
        self.core.environment().context.merges.wait_for_one()
    }

    /// Has the log remove its spare files; whether there were any.
    fn remove_spares(&self) -> bool {
        self.core.log().is_some_and(|log| matches!(log.remove_spares(), Ok(true)))
    }

    /// Bytes that the reserve needs if `logged` more bytes can be logged. They cover the flush of
    /// the memory components and of those bytes.
    pub(super) fn bytes_to_reserve(&self, logged: u64) -> u64 {
        let to_flush = self.datasets.memory_noted() as u64 + logged.saturating_mul(FLUSHED_PER_LOGGED);
        self.core.environment().options.disk_reserve.bytes(to_flush)
    }

    /// Bytes that can be logged before the log needs another file.
    pub(super) fn log_room(&self) -> u64 {
        self.core.log().map_or(0, Log::room)
    }

    /// Makes the reserve whole if the disk has room for it, perhaps that of the log's spare files.
    pub fn restore(&self) -> Result<bool> {
        let restore = || self.reserve.resize(self.bytes_to_reserve(self.log_room()), false);
        Ok(!self.core.environment().is_writable() || restore()? || self.remove_spares() && restore()?)
    }

    /// Brings the reserve to its size, not more, if the disk has room for it.
    pub(super) fn shrink_reserve(&self) -> Result<()> {
        self.reserve.resize(self.bytes_to_reserve(self.log_room()), true).map(drop)
    }

    /// Brings the reserve to its size where the store begins or ends, if `logged` bytes can be
    /// logged. If the disk is too full for that, it counts as released. Other failures are met
    /// again, and reported, when the log is to grow.
    pub(super) fn fit_reserve(&self, logged: u64) {
        if matches!(self.reserve.resize(self.bytes_to_reserve(logged), true), Ok(false)) {
            self.reserve.set_released();
        }
    }

    /// Prepares the log's next file if the log may grow. If not, the write that finds no room in
    /// the log makes some.
    pub(super) fn prepare_log(&self) -> Result<()> {
        let Some(log) = self.core.log() else {
            let _ = self.restore();
            return Ok(());
        };
        match self.grow_log(|may_grow| log.prepare_next(may_grow)) {
            Err(Error::Full { .. }) => Ok(()),
            prepared => prepared,
        }
    }

    /// Lets the log grow by files that the reserve covers (R1). The smallest files are for deletes,
    /// as each may mean a flush.
    pub(super) fn grow_log(&self, grow: impl FnOnce(&mut MayGrow<'_>) -> terrane_lsm::Result<()>) -> Result<()> {
        let mut failed = Ok(());
        let grown = grow(&mut |file| {
            let covers = || self.reserve.resize(self.bytes_to_reserve(self.log_room() + file), false);
            file >= self.core.environment().options.log.first_segment_size
                && covers().unwrap_or_else(|error| {
                    failed = Err(error);
                    false
                })
        });
        match grown {
            Err(terrane_lsm::Error::Full { .. }) if failed.is_err() => failed,
            grown => Ok(grown?),
        }
    }

    /// Gives the log a small file for an entry of deletes, if there is room for the resulting flush
    /// as well.
    pub(super) fn grow_log_for_deletes(&self, log: &Log, length: usize) -> Result<()> {
        let smallest = self.core.environment().options.log.smallest_size(length);
        let needed = self.bytes_of_small_file(length);
        let mut may_grow = |file: u64| file <= smallest && self.reserve.has_room(needed);
        let grown = self.with_room(|| Ok(log.reserve_if(length, &mut may_grow)?));
        grown.map_err(|error| full_or(error, || format!("more deletes, until {needed} bytes are free for the log")))
    }

    /// Bytes of the log's smallest file for an entry, and of the resulting flush.
    pub(super) fn bytes_of_small_file(&self, length: usize) -> u64 {
        self.core.environment().options.log.smallest_size(length).saturating_mul(1 + FLUSHED_PER_LOGGED)
    }

    /// The error of an entry for which the log may not grow.
    pub(super) fn refused_growth(&self, length: usize) -> Error {
        let file = self.core.environment().options.log.first_segment_size.max(length as u64);
        let reserved = self.bytes_to_reserve(self.log_room() + file);
        let free = file + reserved.saturating_sub(self.reserve.length());
        Error::Full { what: format!("another file of the log, until {free} bytes are free for it and its flush") }
    }
}

/// Says of a full disk what is missing.
pub(super) fn full_or(error: Error, what: impl FnOnce() -> String) -> Error {
    match error {
        Error::Full { .. } => Error::Full { what: what() },
        other => other,
    }
}
