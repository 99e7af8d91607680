//! One state of a store with all its parts, for as long as it is being copied.

use std::sync::Arc;

use terrane_lsm::disk::PageCache;
use terrane_lsm::log::{ReadOnlyTail, replay_read_only};
use terrane_lsm::manifest::Manifest;
use terrane_lsm::operation;
use terrane_storage::Storage;

use super::datasets::{Datasets, open_datasets};
use super::identity::store_id;
use super::names::check_log_not_lost;
use super::reader::{Opened, read_one_state};
use crate::Result;
use crate::options::Durability;

/// What a backup copies: one state of a store, whose files stay readable while this lives.
#[derive(Debug)]
pub(crate) struct PinnedState {
    pub manifest: Manifest,
    /// Its components, open.
    pub datasets: Datasets,
    /// The changes that are not in components, if the store has a log.
    pub tail: Option<ReadOnlyTail>,
    /// The last sequence number.
    pub last_sequence: u64,
}

impl PinnedState {
    /// Pins everything that was acknowledged before. Writers, of this or another process, continue.
    pub fn pin(storage: &Arc<dyn Storage>, cache: &Arc<PageCache>) -> Result<Self> {
        let pin = |manifest: &Manifest| Self::pin_manifest(storage, cache, manifest);
        read_one_state(&**storage, pin, |pinned| Opened { datasets: &pinned.datasets, tail: pinned.tail.as_ref() })
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
