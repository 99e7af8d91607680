//! Concurrent creations of pools: each is complete or refused.

use std::sync::{Arc, Mutex};

use terrane_pmem::{Error, Options, PersistenceDomain, Pool, Result, Traced};
use terrane_storage::{File, LockKind, OpenMode, Storage, StorageError};
use terrane_testkit::MemoryStorage;

const DRAFT: &str = "pool.new";

fn create(storage: &dyn Storage) -> Result<Pool<Traced>> {
    let options =
        Options { chunk_length: 4096, address_space: 1 << 20, ..Options::new(1, PersistenceDomain::PageCache) };
    Pool::create(storage, "pool", &options)
}

/// Storage in which another creation replaces the draft after this one has opened it, and before it
/// has locked it.
#[derive(Debug)]
struct Meeting {
    inner: MemoryStorage,
    /// The opening at which this happens, and then the file that the other creation has open.
    mode: OpenMode,
    other: Mutex<Option<Arc<dyn File>>>,
    /// Whether the other creation comes before the opening, and finishes.
    ends: bool,
    /// Whether another program makes a file of the pool's name at the last moment.
    is_taken: bool,
    /// Whether a name cannot be made durable, and another creation begins then.
    sync_fails: bool,
    /// Whether the other creation has locked the existing draft, and done nothing more.
    has_locked: bool,
}

impl Meeting {
    fn new(inner: MemoryStorage, mode: OpenMode) -> Self {
        let other = Mutex::new(None);
        Self { inner, mode, other, ends: false, is_taken: false, sync_fails: false, has_locked: false }
    }

    /// The first step of a creation that finds a draft.
    fn replace_draft(&self) -> terrane_storage::Result<Arc<dyn File>> {
        let left = self.inner.open(DRAFT, OpenMode::Write)?;
        assert!(left.try_lock(LockKind::Exclusive)?);
        if self.has_locked {
            return Ok(left);
        }
        self.inner.remove(DRAFT)?;
        let draft = self.inner.open(DRAFT, OpenMode::CreateNew)?;
        assert!(draft.try_lock(LockKind::Exclusive)?);
        Ok(draft)
    }
}

impl Storage for Meeting {
    fn open(&self, name: &str, mode: OpenMode) -> terrane_storage::Result<Arc<dyn File>> {
        let mut other = self.other.lock().unwrap();
        let is_met = (name, mode) == (DRAFT, self.mode) && other.is_none();
        if is_met && self.ends {
            create(&self.inner).unwrap().close().unwrap();
            *other = Some(self.inner.open("pool", OpenMode::Read)?);
        }
        let file = self.inner.open(name, mode)?;
        if is_met && !self.ends {
            *other = Some(self.replace_draft()?);
        }
        Ok(file)
    }

    fn exists(&self, name: &str) -> terrane_storage::Result<bool> {
        self.inner.exists(name)
    }

    fn rename(&self, from: &str, to: &str) -> terrane_storage::Result<()> {
        self.inner.rename(from, to)
    }

    fn rename_new(&self, from: &str, to: &str) -> terrane_storage::Result<()> {
        if self.is_taken {
            drop(self.inner.open(to, OpenMode::CreateNew)?);
        }
        self.inner.rename_new(from, to)
    }

    fn remove(&self, name: &str) -> terrane_storage::Result<()> {
        self.inner.remove(name)
    }

    fn create_directory(&self, name: &str) -> terrane_storage::Result<()> {
        self.inner.create_directory(name)
    }

    fn list(&self, directory: &str) -> terrane_storage::Result<Vec<String>> {
        self.inner.list(directory)
    }

    fn list_directories(&self, directory: &str) -> terrane_storage::Result<Vec<String>> {
        self.inner.list_directories(directory)
    }

    fn sync_directory(&self, directory: &str) -> terrane_storage::Result<()> {
        if self.sync_fails && !self.inner.exists(DRAFT)? {
            *self.other.lock().unwrap() = Some(self.inner.open(DRAFT, OpenMode::CreateNew)?);
            return self.inner.open("lost", OpenMode::Read).map(drop);
        }
        self.inner.sync_directory(directory)
    }

    fn unix_time_ns(&self) -> u64 {
        self.inner.unix_time_ns()
    }

    fn monotonic_ns(&self) -> u64 {
        self.inner.monotonic_ns()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

/// The draft of the other creation is its own until it is renamed.
fn leaves_the_other_alone(storage: &Meeting) -> std::result::Result<(), StorageError> {
    let error = create(storage).unwrap_err();
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    let other = storage.other.lock().unwrap().take().unwrap();
    assert!(other.has_name()?, "its draft was removed or renamed");
    assert_eq!(storage.list("")?, [DRAFT]);
    drop(other);
    create(&storage.inner).unwrap().close().unwrap();
    assert_eq!(storage.list("")?, ["pool"]);
    Ok(())
}

#[test]
fn a_creation_whose_draft_was_taken_for_a_left_one_renames_no_other() {
    leaves_the_other_alone(&Meeting::new(MemoryStorage::new(), OpenMode::CreateNew)).unwrap();
}

#[test]
fn a_creation_that_finds_a_left_draft_removes_no_other() {
    let storage = MemoryStorage::new();
    drop(storage.open(DRAFT, OpenMode::CreateNew).unwrap());
    leaves_the_other_alone(&Meeting::new(storage, OpenMode::Write)).unwrap();
}

#[test]
fn a_creation_that_finds_a_draft_which_another_one_has_locked_leaves_it_alone() {
    let storage = MemoryStorage::new();
    drop(storage.open(DRAFT, OpenMode::CreateNew).unwrap());
    leaves_the_other_alone(&Meeting { has_locked: true, ..Meeting::new(storage, OpenMode::Write) }).unwrap();
}

/// The other creation takes this one's new draft for an abandoned one.
#[test]
fn a_creation_whose_draft_another_one_has_locked_first_leaves_it_alone() {
    let storage = MemoryStorage::new();
    leaves_the_other_alone(&Meeting { has_locked: true, ..Meeting::new(storage, OpenMode::CreateNew) }).unwrap();
}

/// It has checked that the name is free before the other one took it.
#[test]
fn a_creation_beside_which_another_one_ends_takes_no_name() {
    let storage = Meeting { ends: true, ..Meeting::new(MemoryStorage::new(), OpenMode::CreateNew) };
    let error = create(&storage).unwrap_err();
    assert!(error.to_string().contains("exists"), "{error}");
    assert_eq!(storage.list("").unwrap(), ["pool"]);
    let other = storage.other.lock().unwrap().take().unwrap();
    assert!(other.has_name().unwrap(), "the pool was renamed over");
}

/// It has checked that the name is free before another program, which knows nothing of drafts, made
/// a file of that name.
#[test]
fn a_creation_beside_which_a_file_of_the_name_is_made_leaves_that_alone() {
    let storage = Meeting { is_taken: true, ..Meeting::new(MemoryStorage::new(), OpenMode::Read) };
    let error = create(&storage).unwrap_err();
    assert!(error.to_string().contains("exists"), "{error}");
    assert_eq!(storage.list("").unwrap(), ["pool"]);
    assert_eq!(storage.open("pool", OpenMode::Read).unwrap().len().unwrap(), 0, "the file was renamed over");
}

/// It has renamed its own draft by then.
#[test]
fn a_creation_whose_name_cannot_be_made_durable_removes_no_other() {
    let storage = Meeting { sync_fails: true, ..Meeting::new(MemoryStorage::new(), OpenMode::Read) };
    let error = create(&storage).unwrap_err();
    assert!(error.to_string().contains("lost"), "{error}");
    let other = storage.other.lock().unwrap().take().unwrap();
    assert!(other.has_name().unwrap(), "the draft of another creation was removed");
}
