//! The file of the disk reserve: allocated space without content.
//!
//! It is whole, or released: then its file has length 0. Nothing restores it while work uses its
//! space. Nothing of the file is ever synced. A crash leaves any of its lengths, and opening brings
//! each to the right one.

use std::sync::Arc;

use terrane_storage::sync::{AtomicBool, Condvar, Mutex, Ordering};
use terrane_storage::{OpenMode, Storage};

use crate::Result;

/// The file's name.
pub(crate) const RESERVE_NAME: &str = "RESERVE";

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

/// Keeps the reserve from being restored.
pub(super) struct ReserveUser<'a>(&'a Reserve);

impl Drop for ReserveUser<'_> {
    fn drop(&mut self) {
        self.0.state.lock().users -= 1;
        self.0.unused.notify_all();
    }
}

impl Reserve {
    /// The reserve that an earlier process left. In a copy of a store the file may lack its space,
    /// so it is allocated here.
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

    /// Treats it as released, as it has not the size that it should have.
    pub(super) fn set_released(&self) {
        self.is_released.store(true, Ordering::Release);
    }

    /// Whether it was released and is not whole again.
    pub fn is_released(&self) -> bool {
        self.is_released.load(Ordering::Acquire)
    }

    /// Bytes of the file.
    pub fn length(&self) -> u64 {
        self.state.lock().length.unwrap_or(0)
    }

    pub(super) fn releases(&self) -> u64 {
        self.state.lock().releases
    }

    /// Releases the space for the caller. `None` if that frees nothing, now or since the count of
    /// releases was `releases`.
    pub(super) fn release(&self, releases: u64) -> Option<ReserveUser<'_>> {
        let mut state = self.state.lock();
        if state.length > Some(0) && self.set_length(&mut state, Some(0)).is_ok() {
            state.releases += 1;
            self.is_released.store(true, Ordering::Release);
            tracing::debug!("the disk is full: the disk reserve is released");
        }
        if state.releases == releases {
            return None;
        }
        state.users += 1;
        Some(ReserveUser(self))
    }

    pub(super) fn wait_until_unused(&self) {
        let mut state = self.state.lock();
        while state.users > 0 {
            self.unused.wait(&mut state);
        }
    }

    /// Makes the file at least `bytes` long, and with `exactly` no longer; 0 removes it. False if
    /// the space is not there, or in use.
    pub(super) fn resize(&self, bytes: u64, exactly: bool) -> Result<bool> {
        let mut state = self.state.lock();
        let is_enough = !exactly && state.length.unwrap_or(0) >= bytes;
        if bytes > 0 && (state.users > 0 || !is_enough && !self.set_length(&mut state, Some(bytes))?) {
            return Ok(false);
        }
        if bytes == 0 {
            self.set_length(&mut state, None)?;
        }
        if self.is_released.swap(false, Ordering::AcqRel) {
            tracing::debug!(bytes, "the disk reserve is whole again");
        }
        Ok(true)
    }

    /// Whether `bytes` are free on the disk and in the rest of the reserve together.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        let mut state = self.state.lock();
        let before = state.length;
        // Not shortened for the test, as it might not get its length back.
        before.is_some_and(|length| length >= bytes)
            || matches!(self.set_length(&mut state, Some(bytes)), Ok(true))
                && matches!(self.set_length(&mut state, before), Ok(true))
    }

    /// False if the disk has no room for that; then the file stays as it was.
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
