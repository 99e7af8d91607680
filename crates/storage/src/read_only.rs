//! Storage that changes nothing.

use std::io;
use std::sync::Arc;

use crate::{DiskSpace, File, OpenMode, Operation, Result, RootLock, Storage, StorageError};

/// Another storage, restricted to reading files: nothing is created, written, renamed, removed or
/// locked exclusively. It lets any code read a store that belongs to another process.
#[derive(Debug)]
pub struct ReadOnlyStorage {
    inner: Arc<dyn Storage>,
}

impl ReadOnlyStorage {
    /// Restricts a storage to reading.
    pub fn new(inner: Arc<dyn Storage>) -> Self {
        Self { inner }
    }

    fn refuse<T>(operation: Operation, name: &str) -> Result<T> {
        let cause = io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "it is open for reading only");
        Err(StorageError::new(operation, name, None, cause))
    }
}

impl Storage for ReadOnlyStorage {
    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        match mode {
            OpenMode::Read => self.inner.open(name, mode),
            OpenMode::Write => Self::refuse(Operation::Open, name),
            OpenMode::CreateNew => Self::refuse(Operation::Create, name),
        }
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.inner.exists(name)
    }

    fn rename(&self, from: &str, _to: &str) -> Result<()> {
        Self::refuse(Operation::Rename, from)
    }

    fn rename_new(&self, from: &str, _to: &str) -> Result<()> {
        Self::refuse(Operation::Rename, from)
    }

    fn remove(&self, name: &str) -> Result<()> {
        Self::refuse(Operation::Remove, name)
    }

    fn create_directory(&self, name: &str) -> Result<()> {
        Self::refuse(Operation::CreateDirectory, name)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>> {
        self.inner.list(directory)
    }

    fn list_directories(&self, directory: &str) -> Result<Vec<String>> {
        self.inner.list_directories(directory)
    }

    /// Changes nothing that can be seen.
    fn sync_directory(&self, directory: &str) -> Result<()> {
        self.inner.sync_directory(directory)
    }

    fn unix_time_ns(&self) -> u64 {
        self.inner.unix_time_ns()
    }

    fn monotonic_ns(&self) -> u64 {
        self.inner.monotonic_ns()
    }

    fn space(&self) -> Option<DiskSpace> {
        self.inner.space()
    }

    fn boot_id(&self) -> Option<u128> {
        self.inner.boot_id()
    }

    /// A lock would prevent others from changing it.
    fn lock_root(&self) -> Result<Option<RootLock>> {
        Self::refuse(Operation::Lock, "")
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}
