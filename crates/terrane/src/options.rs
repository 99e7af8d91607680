//! How a store is opened.

use std::fmt;
use std::str::FromStr;

use terrane_lsm::log::LogOptions;
use terrane_lsm::policy::MergePolicy;

use crate::{Error, Result};

/// What an acknowledged write survives; a property of the store, fixed when it is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Kill and power loss: a write-ahead log with group commit.
    #[default]
    Power,
    /// Kill of the process, with no log and no sync. Not built yet: refused.
    Process,
    /// Kill and power loss, without a log, on persistent memory. Not built yet: refused.
    Dax,
    /// Only a clean close: after a crash the store is at its last installed manifest.
    None,
}

impl Durability {
    /// The mode's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Power => "power",
            Self::Process => "process",
            Self::Dax => "dax",
            Self::None => "none",
        }
    }

    /// Refuses modes that this build does not have, as they are never approximated.
    pub(crate) fn check_supported(self) -> Result<()> {
        match self {
            Self::Power | Self::None => Ok(()),
            Self::Process | Self::Dax => Err(Error::Unsupported {
                what: format!("durability {self}"),
                instead: "this mode is not built yet; choose power (writes survive kill and power loss; the \
                              default) or none (they survive a clean close)",
            }),
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Durability {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        [Self::Power, Self::Process, Self::Dax, Self::None].into_iter().find(|mode| mode.name() == text).ok_or_else(
            || Error::usage(format!("{text:?} is no durability mode; there are power, process, dax and none")),
        )
    }
}

/// Smallest memory limit of a store.
pub const MEMORY_LIMIT_MIN: usize = 8 << 20;
/// Memory limit where none is given.
pub const MEMORY_LIMIT_DEFAULT: usize = 256 << 20;

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Durability of a store that is created; of one that exists it must match, if given.
    pub durability: Option<Durability>,
    /// Bytes of memory for memory components, page cache, imports and queries together.
    pub memory_limit: usize,
    /// Of these, bytes for memory components, at least 3 MiB: fewer flushes with more, and the page cache has what they do not
    /// have of three quarters of the limit, also at least 3 MiB. Half of it if nothing is said.
    pub component_memory: Option<usize>,
    /// Whether a store that does not exist is created.
    pub create: bool,
    /// When disk components are merged.
    pub merge_policy: MergePolicy,
    /// Sizes of the log's files.
    pub log: LogOptions,
    /// Disk space for deletes, drops, flushes and merges on a full disk.
    pub disk_reserve: DiskReserve,
    /// Whether flushes and merges run in background threads. Without, they run in the calls
    /// that make them necessary, one after the other, which tests of crashes rely on.
    pub background: bool,
    /// Most threads that a flush, a query or other work on a dataset of several partitions may take, if not as many as the
    /// machine has cores.
    pub threads_max: Option<usize>,
    /// Whether a store of which components cannot be opened is opened all the same, to check it or to
    /// read what is sound: whatever needs a damaged index, or damaged records, fails
    /// ([`Error::is_damage`]) until it is repaired. [`crate::Store::damage`] tells of it.
    pub lenient: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            durability: None,
            memory_limit: MEMORY_LIMIT_DEFAULT,
            component_memory: None,
            create: true,
            merge_policy: MergePolicy::default(),
            log: LogOptions::default(),
            disk_reserve: DiskReserve::default(),
            background: true,
            threads_max: None,
            lenient: false,
        }
    }
}

impl Options {
    /// Bytes of the memory limit that an import or a query under way may take.
    pub fn working_memory(&self) -> usize {
        work_share(self.memory_limit)
    }

    /// Bytes that a caller should keep to when it decodes what it imports: as much as memory components have, if nothing else
    /// is said, since what is imported takes no place in them.
    pub fn decoding_memory(&self) -> usize {
        self.memory_limit / 8 * 3
    }

    /// Most threads that work on the partitions of a dataset.
    pub(crate) fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads_max.unwrap_or_else(cores).max(1)
    }
}

/// Bytes of an automatic reserve besides those for the next flush.
pub(crate) const AUTOMATIC_RESERVE_BYTES: u64 = 2 << 20;

/// Disk space that a store keeps for deletes, drops, flushes and merges on a full disk. The space
/// of the next flush is added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskReserve {
    /// 2 MiB.
    #[default]
    Automatic,
    /// This size; no reserve at all if it is 0.
    Bytes(u64),
}

impl DiskReserve {
    /// Bytes of the file.
    pub(crate) fn bytes(self, to_flush: u64) -> u64 {
        match self {
            Self::Bytes(0) => 0,
            Self::Bytes(bytes) => bytes.saturating_add(to_flush),
            Self::Automatic => AUTOMATIC_RESERVE_BYTES.saturating_add(to_flush),
        }
    }
}

/// What a dataset is from its creation on, besides its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetOptions {
    /// Into how many partitions the records are divided by a hash of their keys, 1 to 64. Each partition has components and
    /// indexes of its own, and flushes, merges and large queries work on several at a time. Nothing else tells how many
    /// there are: what is written together, read together or found is the same. Every component is an open file, and each index
    /// of each partition has up to about five under the usual merge policy, and one more while it is flushed: mind the
    /// process's limit on open files.
    pub partitions: usize,
}

/// Most partitions of a dataset.
pub(crate) const PARTITIONS_MAX: usize = 64;

impl Default for DatasetOptions {
    fn default() -> Self {
        Self { partitions: 1 }
    }
}

impl DatasetOptions {
    /// Most partitions.
    pub const PARTITIONS_MAX: usize = PARTITIONS_MAX;

    /// Refuses what cannot be.
    ///
    /// # Errors
    /// Other numbers of partitions than 1 to 64.
    pub fn validate(&self) -> Result<()> {
        match self.partitions {
            1..=PARTITIONS_MAX => Ok(()),
            partitions => {
                Err(Error::usage(format!("a dataset has 1 to {PARTITIONS_MAX} partitions, not {partitions}")))
            }
        }
    }
}

/// Least share of memory components, and of the page cache.
const SHARE_MIN: usize = MEMORY_LIMIT_MIN / 8 * 3;

fn work_share(limit: usize) -> usize {
    limit / 4
}

/// Shares of the memory limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryShares {
    /// Memory components of all datasets.
    pub components: usize,
    /// Page cache.
    pub cache: usize,
    /// One import, or the sorting and collecting of one query.
    pub work: usize,
}

impl MemoryShares {
    pub fn of(options: &Options) -> Result<Self> {
        let limit = options.memory_limit;
        if limit < MEMORY_LIMIT_MIN {
            return Err(Error::usage(format!(
                "a memory limit of {limit} bytes is too small; at least {} MiB are needed",
                MEMORY_LIMIT_MIN >> 20
            )));
        }
        let both = limit / 8 * 6;
        let components = options.component_memory.unwrap_or(both / 2);
        if components < SHARE_MIN || components > both - SHARE_MIN {
            return Err(Error::usage(format!(
                "{components} bytes for memory components do not fit a memory limit of {limit} bytes: of three quarters of \
                 it, they and the page cache need at least {} MiB each",
                SHARE_MIN >> 20
            )));
        }
        Ok(Self { components, cache: both - components, work: work_share(limit) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(memory_limit: usize, component_memory: Option<usize>) -> Result<(usize, usize, usize)> {
        let options = Options { memory_limit, component_memory, ..Options::default() };
        MemoryShares::of(&options).map(|shares| (shares.components, shares.cache, shares.work))
    }

    #[test]
    fn memory_is_divided_as_asked_within_the_limit() {
        const MIB: usize = 1 << 20;
        assert_eq!(shares(64 * MIB, None).unwrap(), (24 * MIB, 24 * MIB, 16 * MIB));
        let options = Options { memory_limit: 64 * MIB, ..Options::default() };
        assert_eq!((options.working_memory(), options.decoding_memory()), (16 * MIB, 24 * MIB));
        for components in [3, 7, 24, 45] {
            let wanted = (components * MIB, (48 - components) * MIB, 16 * MIB);
            assert_eq!(shares(64 * MIB, Some(components * MIB)).unwrap(), wanted);
        }
        assert_eq!(shares(MEMORY_LIMIT_MIN, Some(3 * MIB)).unwrap(), (3 * MIB, 3 * MIB, 2 * MIB));
        let refused = [(64, Some(0)), (64, Some(46)), (64, Some(usize::MAX >> 20)), (8, Some(4)), (7, None)];
        for (limit, components) in refused {
            let error = shares(limit * MIB, components.map(|components| components * MIB)).unwrap_err();
            assert!(error.to_string().contains("need at least") || limit == 7, "{error}");
        }
    }
}
