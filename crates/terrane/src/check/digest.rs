//! Sums over the entries of an index, independent of their order.

use std::ops::RangeInclusive;

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Binary digits of the number of slices.
const SLICES_LOG2: u32 = 10;

/// The hash that distributes keys over passes and slices.
pub(super) fn key_hash(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// A multiset of index entries, summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Digest {
    pub entries: u64,
    /// Bytes of the entries and of their records' keys.
    pub bytes: u64,
    sum: u128,
}

impl Digest {
    fn add(&mut self, entry: &[u8], key: &[u8]) {
        let mut hasher = Xxh3::new();
        hasher.update(&(entry.len() as u64).to_le_bytes());
        hasher.update(entry);
        hasher.update(key);
        self.entries += 1;
        self.bytes += (entry.len() + key.len()) as u64;
        self.sum = self.sum.wrapping_add(hasher.digest128());
    }
}

/// A range of hashes: all hashes with a common binary prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HashRange {
    first: u64,
    /// Number of free binary digits.
    width: u32,
}

impl HashRange {
    /// The slice of a hash, if the range contains the hash.
    fn slice(&self, hash: u64) -> Option<usize> {
        let offset = hash.checked_sub(self.first)?;
        let slice = usize::try_from(offset >> (self.width - SLICES_LOG2)).ok()?;
        (slice < 1 << SLICES_LOG2).then_some(slice)
    }

    /// First and last hash.
    pub fn bounds(&self) -> RangeInclusive<u64> {
        self.first..=self.first + (u64::MAX >> (64 - self.width))
    }
}

/// The entries whose keys have hashes in a range, summed up slice by slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slices {
    range: HashRange,
    digests: Vec<Digest>,
}

impl Slices {
    /// All hashes.
    pub const ALL: HashRange = HashRange { first: 0, width: 64 };

    pub fn new(range: HashRange) -> Self {
        Self { range, digests: vec![Digest::default(); 1 << SLICES_LOG2] }
    }

    pub fn range(&self) -> HashRange {
        self.range
    }

    /// Adds an entry, if the range contains its hash.
    pub fn add(&mut self, hash: u64, entry: &[u8], key: &[u8]) {
        if let Some(slice) = self.range.slice(hash) {
            self.digests[slice].add(entry, key);
        }
    }

    /// Number of entries.
    pub fn entries(&self) -> u64 {
        self.digests.iter().map(|digest| digest.entries).sum()
    }

    /// The slices whose sums differ, with the sums of both sides.
    pub fn different<'s>(&'s self, other: &'s Self) -> impl Iterator<Item = (usize, [Digest; 2])> + 's {
        let pairs = self.digests.iter().zip(&other.digests).enumerate();
        pairs.filter(|(_, (one, two))| one != two).map(|(slice, (one, two))| (slice, [*one, *two]))
    }

    /// The range of a slice; `None` if it is too narrow to be sliced again.
    pub fn range_of(&self, slice: usize) -> Option<HashRange> {
        let width = self.range.width - SLICES_LOG2;
        (width >= SLICES_LOG2).then(|| HashRange { first: self.range.first + ((slice as u64) << width), width })
    }

    /// The slice of a hash, if the range contains the hash.
    pub fn slice(&self, hash: u64) -> Option<usize> {
        self.range.slice(hash)
    }
}
