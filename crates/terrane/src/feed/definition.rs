//! What is kept of a feed.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use terrane_lsm::partition::Partitions;
use terrane_storage::sync::Mutex;

/// What the catalog says of a feed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct FeedDefinition {
    /// Number within the dataset, from 1, never used again.
    pub id: u32,
    pub name: String,
    /// By what its user knows the source again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Where it was begun in the source.
    #[serde(default)]
    pub begun_at: u64,
}

impl FeedDefinition {
    /// How far its source has been read.
    pub fn position(&self, partitions: &Partitions) -> u64 {
        partitions.source_offset(self.id).max(self.begun_at)
    }
}

/// Names of feeds that have a user.
pub(crate) type FeedsInUse = Mutex<BTreeSet<String>>;
