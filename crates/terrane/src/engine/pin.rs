//! One state of a store, with everything that it is made of, for as long as somebody copies it.

use std::sync::Arc;

use terrane_lsm::disk::PageCache;
use terrane_lsm::log::{ReadOnlyTail, replay_read_only};
use terrane_lsm::manifest::Manifest;
use terrane_lsm::operation;
use terrane_storage::Storage;

use super::Datasets;
use super::names::{check_log_not_lost, no_store};
use super::open::{READER_ATTEMPTS, log_is_of_one_piece, open_datasets, store_id};
use crate::options::Durability;
use crate::{Error, Result};

/// What a backup copies: one state of a store, whose files stay readable while this lives.
#[derive(Debug)]
pub(crate) struct PinnedState {
    pub manifest: Manifest,
    /// Its components, open.
    pub datasets: Datasets,
    /// What is not in components, if the store has a log.
    pub tail: Option<ReadOnlyTail>,
    /// The last number of all.
    pub last_sequence: u64,
}

impl PinnedState {
    /// Pins everything that was acknowledged before; a writer, of this or another process, goes on.
    pub fn pin(storage: &Arc<dyn Storage>, cache: &Arc<PageCache>) -> Result<Self> {
        let mut attempts = 0;
        loop {
            let before = Manifest::read(&**storage)?.ok_or_else(|| no_store(&**storage))?;
            // As for a reader: nothing is copied that a power loss could take back.
            storage.sync_directory("")?;
            let pinned = Self::pin_manifest(storage, cache, &before);
            let after = Manifest::read(&**storage)?.ok_or_else(|| no_store(&**storage))?;
            let is_same = after.generation == before.generation && after.store_id == before.store_id;
            match pinned {
                Ok(pinned) if is_same || log_is_of_one_piece(pinned.tail.as_ref(), &before, &after) => {
                    return Ok(pinned);
                }
                Err(error) if is_same => return Err(error),
                pinned => {
                    attempts += 1;
                    if attempts == READER_ATTEMPTS {
                        let reason = "the store changes faster than it can be opened for reading";
                        return pinned.and(Err(Error::Failed(reason.into())));
                    }
                }
            }
        }
    }

    /// Opens what a manifest names, and reads the log that follows on it.
    pub fn pin_manifest(storage: &Arc<dyn Storage>, cache: &Arc<PageCache>, manifest: &Manifest) -> Result<Self> {
        let datasets = open_datasets(storage, cache, manifest, false)?;
        let mut last_sequence = manifest.last_sequence;
        let tail = match manifest.durability.parse::<Durability>()? {
            Durability::None => None,
            _ => {
                check_log_not_lost(&**storage, manifest)?;
                let from = manifest.low_water;
                Some(replay_read_only(&**storage, store_id(manifest)?, from, &mut |_, entry| {
                    last_sequence = last_sequence.max(operation::decode(entry)?.0.sequence);
                    Ok(())
                })?)
            }
        };
        let mut manifest = manifest.clone();
        // Nothing keeps their files.
        manifest.forget_runs();
        Ok(Self { manifest, datasets, tail, last_sequence })
    }
}
