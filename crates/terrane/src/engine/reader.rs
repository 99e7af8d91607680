//! One state of a store is read while a writer, of this or another process, may change it.

use std::collections::HashSet;

use terrane_lsm::log::ReadOnlyTail;
use terrane_lsm::manifest::Manifest;
use terrane_storage::Storage;

use super::datasets::Datasets;
use super::names::no_store;
use crate::{Error, Result};

/// A reader that finds the manifest changed begins again, at most this often.
const ATTEMPTS: usize = 100;

/// The parts of a store that were opened by one manifest.
#[derive(Clone, Copy)]
pub(super) struct Opened<'o> {
    pub datasets: &'o Datasets,
    /// The log that was read, if the store has one.
    pub tail: Option<&'o ReadOnlyTail>,
}

impl Opened<'_> {
    /// Whether the log that was read by the manifest `before` belongs to it, although the manifest
    /// `after` has come since.
    ///
    /// Flushes and merges move records from the log into components, and from those into others.
    /// The old components are open, and the segments of the log are held: they are a chain from the
    /// first that is needed. If no segment was found, the first one must not have been reclaimed
    /// just before.
    fn has_log_of(self, before: &Manifest, after: &Manifest) -> bool {
        let has_log = self.tail.is_none_or(|tail| tail.segments() > 0);
        before.has_content_of(after) && (has_log || before.low_water == after.low_water)
    }

    /// Whether all components were found. A merge must not have replaced a missing one.
    fn has_components_of(self, before: &Manifest, after: &Manifest) -> bool {
        let keeps_components = || {
            let named: HashSet<u64> = after.components().map(|meta| meta.file_id).collect();
            before.components().all(|meta| named.contains(&meta.file_id))
        };
        self.datasets.values().all(|dataset| dataset.damage.is_empty()) || keeps_components()
    }

    fn is_consistent(self, before: &Manifest, after: &Manifest) -> bool {
        self.has_log_of(before, after) && self.has_components_of(before, after)
    }
}

/// Opens one state of a store: what `open` opens by the current manifest. It is tried again if the
/// manifest has changed and `opened` finds the result to be inconsistent.
pub(super) fn read_one_state<T>(
    storage: &dyn Storage,
    open: impl Fn(&Manifest) -> Result<T>,
    opened: impl Fn(&T) -> Opened<'_>,
) -> Result<T> {
    let current = || Manifest::read(storage)?.ok_or_else(|| no_store(storage));
    let mut attempts = 0;
    loop {
        let before = current()?;
        // A writer may not have come to this yet, or was killed before: nothing is shown that a
        // power loss could take back. After this, that manifest or a later one is durable.
        storage.sync_directory("")?;
        let result = open(&before);
        // Only now, after the replay: the writer continues in the segment that is read. What it
        // writes after an import or a change of the schema needs the manifest that came with it.
        let after = current()?;
        let is_same = after.generation == before.generation && after.store_id == before.store_id;
        match result {
            Ok(result) if is_same || opened(&result).is_consistent(&before, &after) => return Ok(result),
            // Otherwise files may have gone, and segments begun anew, in between.
            Err(error) if is_same => return Err(error),
            result => {
                attempts += 1;
                if attempts == ATTEMPTS {
                    let reason = "the store changes faster than it can be opened for reading";
                    return result.and(Err(Error::Failed(reason.into())));
                }
            }
        }
    }
}
