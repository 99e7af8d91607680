//! Sorted runs: component files that no manifest names yet, to be merged into one component.

mod buffer;

use std::sync::Arc;

pub(crate) use buffer::RunBuffer;
use terrane_lsm::disk::{ComponentMeta, component_name};
use terrane_lsm::partition::merged_at_once;
use terrane_storage::Storage;

use crate::Result;

/// Maximal number of runs merged at once. Each is an open file and a page in memory, and is
/// compared for every entry. More runs are merged in several passes.
const FAN_IN: usize = 16;

/// Number of runs merged at once. It is lower if their longest pages do not fit in `budget` bytes.
fn fan_in(runs: &[ComponentMeta], budget: usize) -> usize {
    let longest = runs.iter().map(|run| run.page_len_max).max().unwrap_or(0);
    merged_at_once(std::iter::repeat_n(longest, FAN_IN), budget as u64)
}

/// Component files that no manifest names. Dropping this removes them, unless they are given away.
#[derive(Debug)]
pub(crate) struct UnnamedFiles {
    storage: Arc<dyn Storage>,
    ids: Vec<u64>,
}

impl UnnamedFiles {
    pub fn new(storage: Arc<dyn Storage>) -> Self {
        Self { storage, ids: Vec::new() }
    }

    /// Adds a finished file.
    pub fn add(&mut self, meta: &ComponentMeta) {
        self.ids.push(meta.file_id);
    }

    /// Leaves files to the store.
    pub fn give_away<'m>(&mut self, metas: impl IntoIterator<Item = &'m ComponentMeta> + Clone) {
        self.ids.retain(|id| metas.clone().into_iter().all(|meta| meta.file_id != *id));
    }

    /// Removes files that are no longer needed, except those given away.
    pub fn remove(&mut self, metas: &[ComponentMeta]) {
        let own: Vec<&ComponentMeta> = metas.iter().filter(|meta| self.ids.contains(&meta.file_id)).collect();
        self.give_away(own.iter().copied());
        own.iter().for_each(|meta| self.remove_file(meta.file_id));
    }

    fn remove_file(&self, id: u64) {
        // A file that cannot be removed is a stray, and the next open removes it.
        let _ = self.storage.remove(&component_name(id));
    }
}

impl Drop for UnnamedFiles {
    fn drop(&mut self) {
        self.ids.iter().for_each(|id| self.remove_file(*id));
    }
}

/// Merges neighbouring runs until the remaining ones can be merged at once with `budget` bytes.
pub(crate) fn reduce(
    runs: &mut Vec<ComponentMeta>,
    files: &mut UnnamedFiles,
    budget: usize,
    merge: &mut dyn FnMut(&[ComponentMeta]) -> Result<ComponentMeta>,
) -> Result<()> {
    let mut start = 0;
    let fan_in = fan_in(runs, budget);
    while runs.len() > fan_in {
        if start + 1 >= runs.len() {
            start = 0;
        }
        let end = runs.len().min(start + fan_in.min(runs.len() - fan_in + 1));
        let merged = merge(&runs[start..end])?;
        files.add(&merged);
        let old: Vec<ComponentMeta> = runs.splice(start..end, [merged]).collect();
        files.remove(&old);
        start += 1;
    }
    Ok(())
}
