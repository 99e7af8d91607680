//! Options for opening a store.

use std::fmt;
use std::str::FromStr;

use terrane_lsm::log::LogOptions;
use terrane_lsm::policy::MergePolicy;

use crate::engine::DiskReserve;
use crate::{Error, Result};

/// What an acknowledged write survives. The mode is a property of the store, fixed at its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Kill and power loss: a write-ahead log with group commit.
    #[default]
    Power,
    /// Kill of the process, with no log and no sync. Not built yet: refused.
    Process,
    /// Kill and power loss, without a log, on persistent memory. Not built yet: refused.
    Dax,
    /// A clean close only. After a crash, the store is at its last installed manifest.
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

    /// Refuses modes that this build does not have. A mode is never approximated.
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
            || Error::usage(format!("{text:?} is not a durability mode; choose power, process, dax or none")),
        )
    }
}

/// Smallest memory limit of a store.
pub const MEMORY_LIMIT_MIN: usize = 8 << 20;
/// The default memory limit.
pub const MEMORY_LIMIT_DEFAULT: usize = 256 << 20;

/// Options for opening a store.
#[derive(Clone, Debug)]
pub struct Options {
    /// Durability of a new store. For an existing store it must match, if given.
    pub durability: Option<Durability>,
    /// Memory in bytes for memory components, page cache, imports and queries together.
    pub memory_limit: usize,
    /// Memory in bytes for memory components; the default is three eighths of the limit.
    ///
    /// More memory means fewer flushes. Memory components and page cache share three quarters of
    /// the limit; each needs at least 3 MiB.
    pub component_memory: Option<usize>,
    /// Whether a missing store is created.
    pub create: bool,
    /// When disk components are merged.
    pub merge_policy: MergePolicy,
    /// Sizes of the log's files.
    pub log: LogOptions,
    /// Reserved disk space, with which deletes, drops, flushes and merges continue on a full disk.
    pub disk_reserve: DiskReserve,
    /// Whether flushes and merges run in background threads. Otherwise they run inside the calls
    /// that need them, in sequence, so that crash tests are deterministic.
    pub background: bool,
    /// Maximal number of threads for one flush, query or other work on a dataset with several
    /// partitions. The default is the number of cores.
    pub threads_max: Option<usize>,
    /// Whether a store with unreadable components is opened, to check it or to read its intact
    /// parts. Operations on damaged indexes or records fail ([`Error::is_damage`]) until they are
    /// repaired. [`crate::Store::damage`] lists the damage.
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
    /// Memory in bytes for one import or query.
    pub fn working_memory(&self) -> usize {
        work_share(self.memory_limit)
    }

    /// Memory in bytes that callers should use to decode imported data. By default it equals the
    /// share of memory components, which imports do not use.
    pub fn decoding_memory(&self) -> usize {
        self.memory_limit / 8 * 3
    }

    /// Maximal number of threads that work on the partitions of a dataset.
    pub(crate) fn threads(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads_max.unwrap_or_else(cores).max(1)
    }
}

/// Properties of a dataset, besides its schema, that are fixed at its creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetOptions {
    /// Number of partitions, 1 to 64. A hash of the key assigns each record to a partition.
    ///
    /// Each partition has its own components and indexes, so flushes, merges and large queries work
    /// on several partitions in parallel. The number of partitions has no other effect: writes and
    /// answers are the same.
    ///
    /// Every component is an open file. Under the default merge policy, each index of each
    /// partition has up to about five, and one more during a flush. Mind the process's limit on
    /// open files.
    pub partitions: usize,
}

/// Maximal number of partitions.
pub(crate) const PARTITIONS_MAX: usize = 64;

impl Default for DatasetOptions {
    fn default() -> Self {
        Self { partitions: 1 }
    }
}

impl DatasetOptions {
    /// Maximal number of partitions.
    pub const PARTITIONS_MAX: usize = PARTITIONS_MAX;

    /// Refuses invalid options.
    ///
    /// # Errors
    /// The number of partitions is not 1 to 64.
    pub fn validate(&self) -> Result<()> {
        match self.partitions {
            1..=PARTITIONS_MAX => Ok(()),
            partitions => {
                Err(Error::usage(format!("a dataset has 1 to {PARTITIONS_MAX} partitions, not {partitions}")))
            }
        }
    }
}

/// Minimal share of memory components, and of the page cache.
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
                "{components} bytes for memory components do not fit a memory limit of {limit} bytes: from three quarters of \
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
