//! The stored definition of a feed.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use terrane_lsm::partition::Partitions;
use terrane_storage::sync::Mutex;

/// A feed in the catalog.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct FeedDefinition {
    /// Number within the dataset, from 1, never used again.
    pub id: u32,
    pub name: String,
    /// The text by which its user recognises the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The position in the source at which it began.
    #[serde(default)]
    pub begun_at: u64,
}

impl FeedDefinition {
    /// The position up to which its source has been read.
    pub fn position(&self, partitions: &Partitions) -> u64 {
        partitions.source_offset(self.id).max(self.begun_at)
    }
}

/// Names of the feeds in use.
pub(crate) type FeedsInUse = Mutex<BTreeSet<String>>;
