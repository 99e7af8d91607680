//! The reserve of disk space: a file without a meaning, whose space is given up when the disk is full.
//!
//! What makes room, and what a store cannot do without, has it then: deletes, flushes with their manifest steps, merges,
//! and opening. What brings more is refused until the reserve is whole again, so that it does not eat
//! what was kept for the others. A reserve that was given up is a file without content, which the
//! next process finds. Nothing of the file is ever synced: a power loss may bring back either length, and each is a
//! reserve in one of its states. A failed sync is not a full disk ([`Error::Storage`]), so nothing is repeated after one.

use std::sync::Arc;

use terrane_lsm::manifest::Manifest;
use terrane_storage::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use terrane_storage::{OpenMode, Storage};

use super::Engine;
use crate::{Error, Result};

/// The file's name.
pub(super) const RESERVE_NAME: &str = "RESERVE";

/// Part of the bytes of all components that an automatic reserve has.
const AUTOMATIC_PART: u64 = 16;
/// An automatic reserve has no fewer bytes, as a file of the log and a small flush take as many.
const AUTOMATIC_MIN: u64 = 2 << 20;
/// Nor more.
const AUTOMATIC_MAX: u64 = 256 << 20;

/// How much disk space a store keeps back for deletes, flushes and merges on a full disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskReserve {
    /// A sixteenth of the bytes of the components, or as much as is in memory if that is more, so that it can be flushed;
    /// from 2 to 256 MiB, and none where there is next to nothing.
    #[default]
    Automatic,
    /// So many bytes; none when it is 0.
    Bytes(u64),
}

impl DiskReserve {
    /// Bytes that are kept back by a store whose components have so many, on disk and in memory.
    fn bytes(self, stored: u64, in_memory: u64) -> u64 {
        match self {
            Self::Automatic if stored == 0 && in_memory < AUTOMATIC_MIN => 0,
            Self::Automatic => in_memory.max(stored / AUTOMATIC_PART).clamp(AUTOMATIC_MIN, AUTOMATIC_MAX),
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// Bytes of the reserve in a store's place, 0 if it was given up; `None` where there is none.
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
    wanted: DiskReserve,
    /// Length of the file; `None` where there is none. Held while the file is changed.
    length: Mutex<Option<u64>>,
    /// Whether the reserve was given up and is not whole again.
    is_spent: AtomicBool,
    /// How often it was given up.
    releases: AtomicU64,
    /// Bytes that it had when it was given up last.
    given_up: AtomicU64,
}

impl Reserve {
    /// The reserve that earlier processes have left.
    pub fn open(storage: Arc<dyn Storage>, wanted: DiskReserve) -> Result<Self> {
        let length = reserve_bytes(&*storage)?;
        Ok(Self::new(storage, wanted, length))
    }

    /// Of a store that is only read.
    pub fn none(storage: Arc<dyn Storage>) -> Self {
        Self::new(storage, DiskReserve::Bytes(0), None)
    }

    fn new(storage: Arc<dyn Storage>, wanted: DiskReserve, length: Option<u64>) -> Self {
        let is_spent = AtomicBool::new(length == Some(0) && wanted != DiskReserve::Bytes(0));
        Self {
            storage,
            wanted,
            length: Mutex::new(length),
            is_spent,
            releases: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
        }
    }

    /// Whether it was given up and is not whole again.
    pub fn is_spent(&self) -> bool {
        self.is_spent.load(Ordering::Acquire)
    }

    /// Does what may take the reserve, once more with the reserve's space if there was none. What has no room even so leaves
    /// the reserve to the next.
    pub fn on_full<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        let releases = self.releases.load(Ordering::Acquire);
        match work() {
            Err(Error::Full { .. }) if self.release(releases) => work().inspect_err(|error| {
                if matches!(error, Error::Full { .. }) {
                    self.take_back();
                }
            }),
            outcome => outcome,
        }
    }

    /// Gives up the space; false if there was none to give up since it had been given up so many times.
    fn release(&self, releases: u64) -> bool {
        let mut length = self.length.lock();
        if length.unwrap_or(0) > 0 {
            let cut = self.storage.open(RESERVE_NAME, OpenMode::Write).and_then(|file| file.set_len(0));
            if cut.is_ok() {
                self.given_up.store(length.unwrap_or(0), Ordering::Relaxed);
                *length = Some(0);
                self.is_spent.store(self.wanted != DiskReserve::Bytes(0), Ordering::Release);
                self.releases.fetch_add(1, Ordering::Release);
            }
        }
        self.releases.load(Ordering::Acquire) != releases
    }

    /// Makes the reserve what it was before it was given up, if the space is still there.
    fn take_back(&self) {
        let mut length = self.length.lock();
        if *length == Some(0)
            && let Ok(found) = self.resize(*length, self.given_up.load(Ordering::Relaxed))
        {
            *length = found;
            self.is_spent.store(false, Ordering::Release);
        }
    }

    /// Brings the reserve to the size that a store with these components has, if there is space for it. One that
    /// cannot be made is none, or the smaller one that there was; nothing else depends on it.
    pub fn restore(&self, manifest: &Manifest, in_memory: usize) {
        let stored = manifest.components().map(|meta| meta.file_len).sum();
        let wanted = self.wanted.bytes(stored, in_memory as u64);
        let mut length = self.length.lock();
        if !self.is_off(*length, wanted) {
            return;
        }
        if let Ok(found) = self.resize(*length, wanted) {
            *length = found;
        }
        if length.unwrap_or(0) >= wanted {
            self.is_spent.store(false, Ordering::Release);
        }
    }

    /// Whether a length differs by more than what is let pass, so that the file is not changed with every component.
    fn is_off(&self, length: Option<u64>, wanted: u64) -> bool {
        let Some(length) = length else { return wanted > 0 };
        wanted == 0
            || match self.wanted {
                DiskReserve::Bytes(_) => length != wanted,
                DiskReserve::Automatic => length < wanted / 4 * 3 || length > wanted * 2,
            }
    }

    /// The file's length after it was made so long, or as long as it was where there is no space.
    fn resize(&self, before: Option<u64>, wanted: u64) -> Result<Option<u64>> {
        if wanted == 0 {
            match self.storage.remove(RESERVE_NAME) {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => return Ok(None),
            }
        }
        let file = match self.storage.open(RESERVE_NAME, OpenMode::Write) {
            Err(error) if error.is_not_found() => self.storage.open(RESERVE_NAME, OpenMode::CreateNew)?,
            file => file?,
        };
        let before = before.unwrap_or(0);
        if before > wanted {
            file.set_len(wanted)?;
        } else if let Err(error) = file.allocate(wanted) {
            // Some file systems keep what they found before they had no more.
            file.set_len(before)?;
            if before == 0 && !self.is_spent() {
                // There never was a reserve, so there is nothing to be kept for it.
                self.storage.remove(RESERVE_NAME)?;
            }
            return Err(error.into());
        }
        Ok(Some(wanted))
    }
}

impl Engine {
    /// Brings the disk reserve to its size, if there is space.
    pub fn restore_reserve(&self) {
        if self.writable {
            self.reserve.restore(&self.workshop.manifest.current(), self.memory_noted());
        }
    }

    /// Refuses what brings more into the store while its disk reserve is in use.
    pub fn check_disk(&self) -> Result<()> {
        if !self.reserve.is_spent() {
            return Ok(());
        }
        self.restore_reserve();
        if !self.reserve.is_spent() {
            return Ok(());
        }
        Err(Error::Full {
            what: "more records: the disk is full, and what its reserve had is for deletes and merges".into(),
        })
    }
}
