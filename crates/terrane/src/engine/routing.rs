//! Which partition of a dataset a record is in.

use std::sync::Arc;

use terrane_lsm::operation::{EntryHeader, Operations};
use terrane_lsm::partition::Generation;
use terrane_lsm::{Error, Result};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::DatasetHandle;
use crate::locks::lock_hash;
use crate::options::PARTITIONS_MAX;
use crate::secondary::PRIMARY;

/// In place of a partition's number, in a log entry with changes of several.
pub(crate) const SEVERAL: u32 = u32::MAX;

/// Seed of the hash. It is a part of the format: another one would look for the records of a dataset where they are not.
const SEED: u64 = 0x7465_7272_616e_6531;

/// The partition of an encoded key, of so many.
pub(crate) fn partition_of(key: &[u8], partitions: usize) -> usize {
    match partitions {
        1 => 0,
        partitions => (xxh3_64_with_seed(key, SEED) % partitions as u64) as usize,
    }
}

impl DatasetHandle {
    /// The partition of an encoded key.
    pub fn partition_of(&self, key: &[u8]) -> usize {
        partition_of(key, self.partitions.count())
    }

    /// Hash under which the record of an encoded key is locked.
    pub fn lock_hash(&self, key: &[u8]) -> u64 {
        lock_hash(self.id.into(), self.partition_of(key) as u32, key)
    }

    /// The partitions that a log entry is of.
    ///
    /// # Errors
    /// A partition that the dataset has not; an entry of several that does not begin with a change of a record.
    pub fn touched_by(&self, header: &EntryHeader, operations: Operations<'_>) -> Result<Touched> {
        let count = self.partitions.count();
        if header.partition == SEVERAL && count > 1 {
            let mut touched = Touched { partitions: 0, is_routed: true };
            for (number, operation) in operations.enumerate() {
                let operation = operation?;
                match operation.index {
                    PRIMARY => touched.partitions |= 1 << self.partition_of(operation.key),
                    _ if number == 0 => {
                        let reason = "it is of several partitions, and begins with a change of no record";
                        return Err(Error::MalformedEntry { reason: reason.into() });
                    }
                    _ => {}
                }
            }
            return Ok(touched);
        }
        if header.partition as usize >= count {
            let reason = format!("it is of partition {} of dataset {:?}, which has none", header.partition, self.name);
            return Err(Error::MalformedEntry { reason });
        }
        Ok(Touched { partitions: 1 << header.partition, is_routed: false })
    }
}

/// Which partitions a log entry is of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touched {
    /// A bit for each.
    partitions: u64,
    /// Whether each change has to be told its partition, by the key of its record.
    is_routed: bool,
}

impl Touched {
    fn iter(self) -> impl Iterator<Item = usize> {
        (0..PARTITIONS_MAX).filter(move |partition| self.partitions & 1 << partition != 0)
    }

    /// Fixes the generations that an entry goes to, and has them note it. To be called under the commit latch.
    pub fn fix(self, dataset: &DatasetHandle, header: &EntryHeader, lsn: u64) -> Fixed {
        let fix = |partition| {
            let generation = dataset.partitions.active(partition);
            generation.note_lsn(lsn);
            generation.note_source(header);
            (partition, generation)
        };
        Fixed { generations: self.iter().map(fix).collect(), is_routed: self.is_routed }
    }
}

/// The generations that a log entry goes to.
#[derive(Debug)]
pub(crate) struct Fixed {
    /// With the numbers of their partitions, ascending.
    generations: smallvec::SmallVec<[(usize, Arc<Generation>); 1]>,
    is_routed: bool,
}

impl Fixed {
    /// Applies the operations of the entry. Each change begins with its operation of the primary, and what follows is of
    /// the same partition.
    pub fn apply(&self, dataset: &DatasetHandle, operations: Operations<'_>, sequence: u64) -> Result<()> {
        let mut current = 0;
        for operation in operations {
            let operation = operation?;
            if self.is_routed && operation.index == PRIMARY {
                let partition = dataset.partition_of(operation.key);
                let found = self.generations.binary_search_by_key(&partition, |(partition, _)| *partition);
                current = found.map_err(|_| Error::Invalid("a change is of a partition that was not fixed".into()))?;
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
