//! What stays the same while a store is open.

use std::sync::Arc;

use terrane_lsm::disk::PageCache;
use terrane_lsm::partition::MaintenanceContext;
use terrane_storage::Storage;
use terrane_storage::sync::Mutex;

use super::writer_lock::WriterLock;
use crate::options::{Durability, MemoryShares, Options};

/// The place of a store, how it was opened, and what its flushes and merges use.
#[derive(Debug)]
pub(crate) struct Environment {
    pub storage: Arc<dyn Storage>,
    pub options: Options,
    pub durability: Durability,
    pub shares: MemoryShares,
    /// For components and manifest. A reader's new components have a storage of their own.
    pub context: MaintenanceContext,
    /// Whether the store was opened for writing.
    pub(super) is_writable: bool,
    /// Keeps other writers out until the store is closed; a reader has none. Dropped last.
    pub(super) lock: Mutex<Option<Arc<WriterLock>>>,
}

impl Environment {
    /// Whether the store was opened for writing.
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// What keeps other writers out, for work that writes files of its own after a close too.
    pub fn lock(&self) -> Option<Arc<WriterLock>> {
        self.lock.lock().clone()
    }

    /// Lets other writers in, once such work has ended. Handles of the closed store only read.
    pub(super) fn unlock(&self) {
        self.lock.lock().take();
    }

    /// The pages of components in memory.
    pub fn cache(&self) -> &PageCache {
        &self.context.cache
    }
}
