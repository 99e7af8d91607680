//! Dropping a dataset: its partitions give up what they have in memory and on disk.
//!
//! The dataset goes with one manifest step, after which nothing of it is named. Its files are removed when the last reader of
//! each lets go of it (I6). A crash before the step leaves the dataset as it was; a crash after it leaves files that no
//! manifest names, which the next open removes.
//!
//! Flushes, merges and index builds may be under way. Each ends in a manifest step of its own.
//! - A step after the drop finds no dataset. The work installs nothing and removes its files.
//! - A step before the drop made the files the dataset's, so the drop removes them. The work then finds all indexes
//!   dropped in memory and marks its components as obsolete.

use std::sync::Arc;

use super::install::discard;
use super::{Generation, Partitions, Presence, Versions, Workshop};
use crate::manifest::DatasetState;

impl Partitions {
    /// Gives up all components, in memory and on disk, after the manifest step that removed the dataset; `removed` is
    /// what the manifest had of it. Snapshots that there are keep what they have pinned; new ones find
    /// [`Error::Dropped`](crate::Error::Dropped). The caller lets no writer in.
    pub fn give_up(&self, workshop: &Workshop, removed: &DatasetState) {
        let indexes = removed.partitions.iter().flat_map(|partition| &partition.indexes);
        discard(workshop, indexes.flat_map(|index| index.loaded.iter().flat_map(|loaded| &loaded.runs)));
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
        // Not under the lock, as the last reader to let go of a file removes it.
        old.iter().for_each(|part| part.file().set_obsolete());
    }
}

impl Versions {
    /// Whether the dataset is gone.
    pub fn is_dropped(&self) -> bool {
        self.iter().all(|version| version.is_dropped())
    }
}
