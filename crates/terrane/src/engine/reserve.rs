//! The disk reserve: one file of allocated space without content, released when the disk is full.
//!
//! Deletes, drops, flushes and manifest steps need some space before they free any. On a full disk they get that of the
//! reserve. It is whole, or released: then its file has length 0.
//!
//! - R1 The log grows for inserts only while the reserve holds what the next flush takes. So every flush has its room.
//! - R2 While the reserve is released, inserts, imports and new indexes are refused. Each tries to restore it first.
//! - R3 Nothing restores the reserve while work uses its space.
//!
//! Nothing of the file is ever synced. A crash leaves any of its lengths, and opening brings each to the right one. A
//! failed sync is not a full disk, so nothing is repeated after one.

use std::sync::Arc;

use terrane_lsm::log::{Log, MayGrow};
use terrane_storage::sync::{AtomicBool, Condvar, Mutex, Ordering};
use terrane_storage::{OpenMode, Storage};

use super::Engine;
use crate::{Error, Result};

/// The file's name.
pub(crate) const RESERVE_NAME: &str = "RESERVE";

/// Bytes of an automatic reserve beside those for the next flush.
const AUTOMATIC_BYTES: u64 = 2 << 20;
/// Bytes of components for each byte of the log, at most: each index has a part of an operation, the primary all of it.
const FLUSHED_PER_LOGGED: u64 = 2;

/// Disk space that a store keeps for deletes, drops, flushes and merges on a full disk. What the next flush takes comes on
/// top.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskReserve {
    /// 2 MiB.
    #[default]
    Automatic,
    /// This size; no reserve at all if it is 0.
    Bytes(u64),
}

impl DiskReserve {
    /// Bytes of the file.
    fn bytes(self, to_flush: u64) -> u64 {
        match self {
            Self::Bytes(0) => 0,
            Self::Bytes(bytes) => bytes.saturating_add(to_flush),
            Self::Automatic => AUTOMATIC_BYTES.saturating_add(to_flush),
        }
    }
}

/// Bytes of the reserve in a store's place, 0 if it is released; `None` if there is none.
pub(crate) fn reserve_bytes(storage: &dyn Storage) -> Result<Option<u64>> {
    match storage.open(RESERVE_NAME, OpenMode::Read) {
        Ok(file) => Ok(Some(file.len()?)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The reserve of an open store.
#[derive(Debug)]
pub(crate) struct Reserve {
    storage: Arc<dyn Storage>,
    /// Held while the file changes.
    state: Mutex<State>,
    /// Told when a user of the released space has ended.
    unused: Condvar,
    /// Whether it was released and is not whole again.
    is_released: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// Length of the file; `None` if there is no file.
    length: Option<u64>,
    releases: u64,
    /// Calls that use the released space at the moment.
    users: usize,
}

/// Keeps the reserve from being restored (R3).
pub(super) struct User<'a>(&'a Reserve);

impl Drop for User<'_> {
    fn drop(&mut self) {
        self.0.state.lock().users -= 1;
        self.0.unused.notify_all();
    }
}

impl Reserve {
    /// The reserve that an earlier process left. In a copy of a store the file may lack its space, which is allocated here.
    pub fn open(storage: Arc<dyn Storage>) -> Result<Self> {
        let mut length = reserve_bytes(&*storage)?;
        if let Some(found @ 1..) = length {
            let file = storage.open(RESERVE_NAME, OpenMode::Write)?;
            if file.allocate(0..found).is_err_and(|error| error.is_storage_full()) {
                file.set_len(0)?;
                length = Some(0);
            }
        }
        let state = State { length, ..State::default() };
        Ok(Self { state: Mutex::new(state), is_released: AtomicBool::new(length == Some(0)), ..Self::none(storage) })
    }

    /// No reserve, for a store that is only read.
    pub fn none(storage: Arc<dyn Storage>) -> Self {
        Self { storage, state: Mutex::default(), unused: Condvar::new(), is_released: AtomicBool::new(false) }
    }

    /// Whether it was released and is not whole again.
    pub fn is_released(&self) -> bool {
        self.is_released.load(Ordering::Acquire)
    }

    /// Bytes of the file.
    pub fn length(&self) -> u64 {
        self.state.lock().length.unwrap_or(0)
    }

    fn releases(&self) -> u64 {
        self.state.lock().releases
    }

    /// Releases the space for the caller. `None` if that frees nothing, now or since the count of releases was `releases`.
    pub(super) fn release(&self, releases: u64) -> Option<User<'_>> {
        let mut state = self.state.lock();
        if state.length > Some(0) && self.set_length(&mut state, Some(0)).is_ok() {
            state.releases += 1;
            self.is_released.store(true, Ordering::Release);
        }
        if state.releases == releases {
            return None;
        }
        state.users += 1;
        Some(User(self))
    }

    fn wait_until_unused(&self) {
        let mut state = self.state.lock();
        while state.users > 0 {
            self.unused.wait(&mut state);
        }
    }

    /// Makes the file at least so long, and with `exactly` no longer; 0 is no file. False if the space is not there, or in
    /// use.
    pub(super) fn resize(&self, bytes: u64, exactly: bool) -> Result<bool> {
        let mut state = self.state.lock();
        let is_enough = !exactly && state.length.unwrap_or(0) >= bytes;
        if bytes > 0 && (state.users > 0 || !is_enough && !self.set_length(&mut state, Some(bytes))?) {
            return Ok(false);
        }
        if bytes == 0 {
            self.set_length(&mut state, None)?;
        }
        self.is_released.store(false, Ordering::Release);
        Ok(true)
    }

    /// Whether so many bytes are free on the disk and in what is left of the reserve.
    fn has_room(&self, bytes: u64) -> bool {
        let mut state = self.state.lock();
        let before = state.length;
        matches!(self.set_length(&mut state, Some(bytes)), Ok(true))
            && matches!(self.set_length(&mut state, before), Ok(true))
    }

    /// False if the disk has no room for that; the file is as it was then.
    fn set_length(&self, state: &mut State, wanted: Option<u64>) -> Result<bool> {
        if state.length == wanted {
            return Ok(true);
        }
        let Some(bytes) = wanted else {
            self.storage.remove(RESERVE_NAME)?;
            state.length = None;
            return Ok(true);
        };
        let before = state.length.unwrap_or(0);
        let mode = if state.length.is_some() { OpenMode::Write } else { OpenMode::CreateNew };
        let changed = self.storage.open(RESERVE_NAME, mode).and_then(|file| {
            state.length = Some(before);
            match before > bytes {
                true => file.set_len(bytes),
                // Some file systems keep the space that they found before they ran out of it.
                false => file.allocate(0..bytes).or_else(|error| file.set_len(before).and(Err(error))),
            }
        });
        match changed {
            Err(error) if error.is_storage_full() => return Ok(false),
            changed => changed?,
        }
        state.length = Some(bytes);
        Ok(true)
    }
}

impl Engine {
    /// Does work that the store needs on a full disk. If it has no room, it is repeated once with the log's spare files
    /// and the reserve released. Merges take free space until they fail, so the work waits for those and tries again. Not
    /// for merges, nor around other calls of this.
    pub fn with_room<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            match self.with_reserve(&mut work) {
                Err(Error::Full { .. }) if self.workshop.merges.wait_for_one() => {}
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
        // What has no room even so leaves it to others.
        let _ = self.restore_reserve();
        outcome
    }

    /// Has the log remove its spare files; whether there were any.
    fn remove_spares(&self) -> bool {
        self.log.as_ref().is_some_and(|log| matches!(log.remove_spares(), Ok(true)))
    }

    /// Bytes that the reserve needs if so many more can be logged: for the flush of what is in memory and of those.
    fn bytes_to_reserve(&self, logged: u64) -> u64 {
        self.options.disk_reserve.bytes(self.memory_noted() as u64 + logged.saturating_mul(FLUSHED_PER_LOGGED))
    }

    /// Bytes that can be logged before the log needs another file.
    pub fn log_room(&self) -> u64 {
        self.log.as_ref().map_or(0, Log::room)
    }

    /// Makes the reserve whole if the disk has room for it, be it that of the log's spare files.
    pub fn restore_reserve(&self) -> Result<bool> {
        let restore = || self.reserve.resize(self.bytes_to_reserve(self.log_room()), false);
        Ok(!self.writable || restore()? || self.remove_spares() && restore()?)
    }

    /// Brings the reserve to its size where the store begins or ends. Where the disk is too full for that, it counts as
    /// released. Other failures are met again, and told, when the log is to grow.
    pub fn fit_reserve(&self, logged: u64) {
        if matches!(self.reserve.resize(self.bytes_to_reserve(logged), true), Ok(false)) {
            self.reserve.is_released.store(true, Ordering::Release);
        }
    }

    /// Prepares the log's next file if the log may grow. If not, the write that finds no room in the log makes some.
    pub fn prepare_log(&self) -> Result<()> {
        let Some(log) = &self.log else {
            let _ = self.restore_reserve();
            return Ok(());
        };
        match self.grow_log(|may_grow| log.prepare_next(may_grow)) {
            Err(Error::Full { .. }) => Ok(()),
            prepared => prepared,
        }
    }

    /// Lets the log grow by files that the reserve covers (R1). The smallest files are for deletes, as each may mean a flush.
    fn grow_log(&self, grow: impl FnOnce(&mut MayGrow<'_>) -> terrane_lsm::Result<()>) -> Result<()> {
        let mut failed = Ok(());
        let grown = grow(&mut |file| {
            let covers = || self.reserve.resize(self.bytes_to_reserve(self.log_room() + file), false);
            file >= self.options.log.first_segment_size
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

    /// Makes room in the log for an entry. If the log may not grow, a flush gives its files back. If that is not enough, an
    /// entry of deletes has the reserve.
    pub fn reserve_log(&self, log: &Log, length: usize, has_inserts: bool) -> Result<()> {
        if log.has_room(length)? {
            return Ok(());
        }
        let mut is_flushed = false;
        loop {
            match self.grow_log(|may_grow| log.reserve_if(length, may_grow)) {
                Err(Error::Full { .. }) => {}
                grown => return grown,
            }
            if is_flushed && !has_inserts {
                return self.grow_for_deletes(log, length);
            }
            if is_flushed && !self.workshop.merges.wait_for_one() {
                return Err(self.refused_growth(length));
            }
            self.make_room()?;
            self.reserve.wait_until_unused();
            is_flushed = true;
        }
    }

    /// Gives the log a small file if there is room for the flush of what it brings as well.
    fn grow_for_deletes(&self, log: &Log, length: usize) -> Result<()> {
        let (smallest, needed) = (self.options.log.smallest_size(length), self.bytes_of_small_file(length));
        let mut may_grow = |file: u64| file <= smallest && self.reserve.has_room(needed);
        let grown = self.with_room(|| Ok(log.reserve_if(length, &mut may_grow)?));
        grown.map_err(|error| full_or(error, || format!("more deletes, until {needed} bytes are free for the log")))
    }

    /// Bytes of the log's smallest file for an entry, and of the flush of what it brings.
    fn bytes_of_small_file(&self, length: usize) -> u64 {
        self.options.log.smallest_size(length).saturating_mul(1 + FLUSHED_PER_LOGGED)
    }

    fn refused_growth(&self, length: usize) -> Error {
        let file = self.options.log.first_segment_size.max(length as u64);
        let reserved = self.bytes_to_reserve(self.log_room() + file);
        let free = file + reserved.saturating_sub(self.reserve.length());
        Error::Full { what: format!("another file of the log, until {free} bytes are free for it and its flush") }
    }

    /// Flushes everything, so that the log gives its files back and the reserve needs less.
    fn make_room(&self) -> Result<()> {
        let flushed = self.flush_all().map_err(|error| {
            let free = self.memory_noted() as u64 + self.bytes_of_small_file(0);
            full_or(error, || format!("the flush of what is in memory, until {free} bytes are free"))
        });
        if flushed? {
            self.after_flush();
        }
        // Another thread may have flushed, and not have come to this yet.
        self.datasets.load().values().for_each(|dataset| self.note_memory(dataset));
        self.reclaim_log(self.workshop.manifest.current().low_water);
        self.reserve.resize(self.bytes_to_reserve(self.log_room()), true).map(drop)
    }

    /// Refuses inserts, imports and new indexes while the reserve is released (R2).
    pub fn check_disk(&self) -> Result<()> {
        let mut is_flushed = false;
        while self.reserve.is_released() {
            // What uses the space may free some.
            self.reserve.wait_until_unused();
            if self.restore_reserve()? {
                return Ok(());
            }
            if !is_flushed && self.memory_noted() as u64 > AUTOMATIC_BYTES {
                is_flushed = true;
                self.make_room()?;
            } else if !self.workshop.merges.wait_for_one() {
                let free = self.bytes_to_reserve(self.log_room()).saturating_sub(self.reserve.length());
                let what =
                    format!("more records: the disk is full, and its reserve is released until {free} bytes are free");
                return Err(Error::Full { what });
            }
        }
        Ok(())
    }
}

/// Says of a full disk what is missing.
fn full_or(error: Error, what: impl FnOnce() -> String) -> Error {
    match error {
        Error::Full { .. } => Error::Full { what: what() },
        other => other,
    }
}
