//! The files of an import under way.

use std::sync::Arc;

use terrane_lsm::disk::{ComponentMeta, component_name};
use terrane_storage::Storage;

/// Component files that no manifest names. They are removed with this, unless they are given away.
#[derive(Debug)]
pub(super) struct UnnamedFiles {
    storage: Arc<dyn Storage>,
    ids: Vec<u64>,
}

impl UnnamedFiles {
    pub fn new(storage: Arc<dyn Storage>) -> Self {
        Self { storage, ids: Vec::new() }
    }

    /// Takes a file that is finished.
    pub fn add(&mut self, meta: &ComponentMeta) {
        self.ids.push(meta.file_id);
    }

    /// Leaves files to the store.
    pub fn give_away(&mut self, metas: &[ComponentMeta]) {
        self.ids.retain(|id| metas.iter().all(|meta| meta.file_id != *id));
    }

    /// Removes files that are not needed any more.
    pub fn remove(&mut self, metas: &[ComponentMeta]) {
        self.give_away(metas);
        metas.iter().for_each(|meta| self.remove_file(meta.file_id));
    }

    fn remove_file(&self, id: u64) {
        // What cannot be removed is a stray, which the next open removes.
        let _ = self.storage.remove(&component_name(id));
    }
}

impl Drop for UnnamedFiles {
    fn drop(&mut self) {
        self.ids.iter().for_each(|id| self.remove_file(*id));
    }
}
