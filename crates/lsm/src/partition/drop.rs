//! Drops a dataset: its partitions free their memory and disk space.
//!
//! One manifest step removes the dataset; after it, nothing of the dataset is named. The last
//! reader of each file removes it (I6). A crash before the step leaves the dataset unchanged. A
//! crash after it leaves files that no manifest names, which the next open removes.
//!
//! Flushes, merges and index builds may be in progress. Each ends in its own manifest step.
//! - A step after the drop finds no dataset. The work installs nothing and removes its files.
//! - A step before the drop made the files part of the dataset, so the drop removes them. The work
//!   then finds all indexes dropped in memory and marks its components as obsolete.

use std::sync::Arc;

use super::install::discard;
use super::{Generation, MaintenanceContext, Partitions, Presence, Versions};
use crate::manifest::DatasetState;

impl Partitions {
    /// Frees all components, in memory and on disk, after the manifest step that removed the
    /// dataset. `removed` is the dataset's state in the manifest. Existing snapshots keep the
    /// components that they have pinned; new ones get [`Error::Dropped`](crate::Error::Dropped).
    /// The caller excludes writers.
    pub fn release(&self, context: &MaintenanceContext, removed: &DatasetState) {
        let indexes = removed.partitions.iter().flat_map(|partition| &partition.indexes);
        discard(context, indexes.flat_map(|index| index.loaded.iter().flat_map(|loaded| &loaded.runs)));
        let old = {
            let _exchange = self.exchange.lock();
            let mut next = (*self.versions()).clone();
            let mut old = Vec::new();
            for partition in 0..self.count {
                next.change(partition, |version| {
                    for index in &mut version.indexes {
                        index.presence = Presence::Dropped;
                        old.append(&mut index.components);
                    }
                    version.generations = vec![Arc::new(Generation::without_indexes(version.flushed_sequence))];
                });
            }
            self.versions.store(Arc::new(next));
            old
        };
        // Not under the lock, as the last reader of a file removes it.
        old.iter().for_each(|part| part.file().set_obsolete());
    }
}

impl Versions {
    /// Whether the dataset was dropped.
    pub fn is_dropped(&self) -> bool {
        self.iter().all(|version| version.is_dropped())
    }
}
