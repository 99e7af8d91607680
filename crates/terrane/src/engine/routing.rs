//! Which partition of a dataset a record is in.

use std::sync::Arc;

use smallvec::SmallVec;
use terrane_lsm::operation::{EntryHeader, Operation, Operations};
use terrane_lsm::partition::Generation;
use terrane_lsm::{Error, Result};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::dataset::DatasetHandle;
use crate::locks::lock_hash;
use crate::options::PARTITIONS_MAX;
use crate::secondary::PRIMARY;

/// In place of a partition's number, in a log entry with changes of several.
pub(crate) const SEVERAL: u32 = u32::MAX;

/// Seed of the hash. It is a part of the format: with another one, records are not found where they
/// were stored.
const SEED: u64 = 0x7465_7272_616e_6531;

/// The partition of an encoded key.
pub(crate) fn partition_of(key: &[u8], partitions: usize) -> usize {
    match partitions {
        1 => 0,
        partitions => (xxh3_64_with_seed(key, SEED) % partitions as u64) as usize,
    }
}

/// An encoded key with its partition and the hash of its lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoutedKey<'k> {
    pub key: &'k [u8],
    pub partition: usize,
    pub lock_hash: u64,
}

impl DatasetHandle {
    /// The partition of an encoded key.
    pub fn partition_of(&self, key: &[u8]) -> usize {
        partition_of(key, self.partitions.count())
    }

    /// Routes an encoded key. A write does so once.
    pub fn route<'k>(&self, key: &'k [u8]) -> RoutedKey<'k> {
        let partition = self.partition_of(key);
        RoutedKey { key, partition, lock_hash: lock_hash(self.id.into(), partition as u32, key) }
    }

    /// Hash under which the record of an encoded key is locked.
    pub fn lock_hash(&self, key: &[u8]) -> u64 {
        self.route(key).lock_hash
    }

    /// The partitions of an entry of the log.
    ///
    /// # Errors
    /// A partition that the dataset does not have; an entry of several partitions that does not
    /// begin with a change of a record.
    pub fn routes_of(&self, header: &EntryHeader, operations: Operations<'_>) -> Result<Routes> {
        let count = self.partitions.count();
        let mut routes = Routes::default();
        if header.partition == SEVERAL && count > 1 {
            for (number, operation) in operations.enumerate() {
                let operation = operation?;
                match operation.index {
                    PRIMARY => routes.add(self.partition_of(operation.key)),
                    _ if number == 0 => {
                        let reason = "it is of several partitions, and begins with a change of no record";
                        return Err(Error::MalformedEntry { reason: reason.into() });
                    }
                    _ => {}
                }
            }
            return Ok(routes);
        }
        if header.partition as usize >= count {
            let reason = format!("it is of partition {} of dataset {:?}, which has none", header.partition, self.name);
            return Err(Error::MalformedEntry { reason });
        }
        routes.partitions = 1 << header.partition;
        Ok(routes)
    }
}

/// The partitions of the changes of an entry. An entry without changes is of partition 0.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes {
    /// A bit for each partition.
    partitions: u64,
    /// The partition of each change, in their order. Not needed if there is one partition.
    of_changes: SmallVec<[u8; 16]>,
}

impl Routes {
    /// Adds the next change.
    pub fn add(&mut self, partition: usize) {
        self.partitions |= 1 << partition;
        self.of_changes.push(partition as u8);
    }

    /// What stands for the partitions in an entry of the log.
    pub fn number(&self) -> u32 {
        match self.partitions.count_ones() {
            0 => 0,
            1 => self.partitions.trailing_zeros(),
            _ => SEVERAL,
        }
    }

    fn iter(&self) -> impl Iterator<Item = usize> {
        let partitions = self.partitions.max(1);
        (0..PARTITIONS_MAX).filter(move |partition| partitions & 1 << partition != 0)
    }

    /// Fixes the generations that take an entry, and has them note it. To be called under the
    /// commit latch.
    pub fn fix(&self, dataset: &DatasetHandle, header: &EntryHeader, lsn: u64) -> Fixed {
        let fix = |partition| {
            let generation = dataset.partitions.active(partition);
            generation.note_lsn(lsn);
            generation.note_source(header);
            (partition, generation)
        };
        Fixed { generations: self.iter().map(fix).collect() }
    }
}

/// The generations that take an entry.
#[derive(Debug)]
pub(crate) struct Fixed {
    /// With the numbers of their partitions, ascending.
    generations: SmallVec<[(usize, Arc<Generation>); 1]>,
}

impl Fixed {
    /// Applies the operations of an entry with these routes. Each change begins with its operation
    /// of the primary. The operations up to the next change are of the same partition.
    pub fn apply<'o>(
        &self,
        routes: &Routes,
        operations: impl Iterator<Item = Result<Operation<'o>>>,
        sequence: u64,
    ) -> Result<()> {
        let (mut current, mut of_changes) = (0, routes.of_changes.iter());
        for operation in operations {
            let operation = operation?;
            if self.generations.len() > 1 && operation.index == PRIMARY {
                let partition = of_changes.next().copied().map(usize::from);
                let found = self.generations.iter().position(|(fixed, _)| Some(*fixed) == partition);
                current =
                    found.ok_or_else(|| Error::Invalid("a change is of a partition that was not fixed".into()))?;
            }
            let Some((_, generation)) = self.generations.get(current) else { continue };
            generation.apply(&operation, sequence)?;
        }
        Ok(())
    }

    /// Bytes of the memory components.
    pub fn memory_used(&self) -> usize {
        self.generations.iter().map(|(_, generation)| generation.memory_used()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stores keep their records by these numbers.
    #[test]
    fn keys_stay_in_their_partitions_for_ever() {
        let of = |partitions| (0..12u64).map(|key| partition_of(&key.to_be_bytes(), partitions)).collect::<Vec<_>>();
        assert_eq!(of(1), [0; 12]);
        assert_eq!(of(3), [1, 2, 1, 1, 2, 2, 2, 0, 2, 1, 1, 0]);
        assert_eq!(of(64), [16, 41, 41, 63, 4, 18, 54, 7, 18, 24, 14, 17]);
    }

    #[test]
    fn keys_are_spread_evenly() {
        let mut counts = [0; 7];
        (0..70_000u64).for_each(|key| counts[partition_of(&key.to_be_bytes(), 7)] += 1);
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }
}
