//! What stays the same while a store is open.

use std::sync::Arc;

use terrane_lsm::disk::PageCache;
use terrane_lsm::partition::MaintenanceContext;
use terrane_storage::Storage;

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
    /// Keeps other writers out; a reader has none. Dropped last.
    pub(super) lock: Option<WriterLock>,
}

impl Environment {
    /// Whether the store may be changed.
    pub fn is_writable(&self) -> bool {
        self.lock.is_some()
    }

    /// The pages of components in memory.
    pub fn cache(&self) -> &PageCache {
        &self.context.cache
    }
}
