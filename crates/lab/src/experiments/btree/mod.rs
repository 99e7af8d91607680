//! The study's B+-trees (Ni and others 2020, "Closing the Performance Gap between DRAM and PM for
//! In-Memory Index Structures").

mod batches;
mod latency;
mod logs;
mod mixes;
mod nodes;
mod operations;
mod persistence;
mod profile;
mod recovery;

use anyhow::Result;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use terrane_pmem::Backend;
use terrane_pmtree::PersistenceDomain;
use terrane_pmtree::btree::{
    BTree, BTreeLs, BTreeWal, FastFair, FastFairSp, GroupFlushingBTree, Options, PersistentMap, PersistentUnsorted,
    UnsortedLeaf, VolatileBTree,
};
use terrane_storage::Storage;

use super::Experiment;

/// The experiments.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "btree/profile",
        description: "flushes, fences, and bytes read and written of an insertion, beside the study's",
        takes: &["count", "full", "seed"],
        run: profile::run,
    },
    Experiment {
        name: "btree/mixes",
        description: "CPU of insertions, look-ups, updates and mixes of 20 to 80 % writes",
        takes: &["rounds", "dir", "count", "full", "seed"],
        run: mixes::run,
    },
    Experiment {
        name: "btree/latency",
        description: "throughput and latency of each operation by 1 to 4 threads",
        takes: &["rounds", "dir", "count", "full", "threads", "seed"],
        run: latency::run,
    },
    Experiment {
        name: "btree/persistence",
        description: "an insertion in parts: tree, atomicity, fences and flushes, executed on ordinary memory",
        takes: &["rounds", "dir", "count", "full", "seed"],
        run: persistence::run,
    },
    Experiment {
        name: "btree/nodes",
        description: "insertions and look-ups against the size of nodes, 128 bytes to 4 KiB",
        takes: &["rounds", "dir", "count", "full", "seed"],
        run: nodes::run,
    },
    Experiment {
        name: "btree/batches",
        description: "look-ups that take turns, in batches of 1 to 16",
        takes: &["rounds", "dir", "count", "full", "seed"],
        run: batches::run,
    },
    Experiment {
        name: "btree/logs",
        description: "the log-structured tree: numbers of logs, garbage, prefetched deltas",
        takes: &["rounds", "dir", "count", "full", "seed"],
        run: logs::run,
    },
    Experiment {
        name: "btree/recovery",
        description: "time to open after a kill, with inner nodes in the pool and in memory, by 1 to 8 threads",
        takes: &["rounds", "dir", "count", "full", "seed"],
        run: recovery::run,
    },
];

/// Name of the pool in its storage.
const NAME: &str = "tree";

type Key = [u64; 2];
type Tree<B> = Box<dyn PersistentMap<2, 2, Backend = B>>;

/// The trees, as the study names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    BTree,
    UnsortedLeaf,
    BTreeWal,
    FastFair,
    PersistentUnsorted,
    FastFairSp,
    BTreeLs,
    /// `btree` that flushes what it has changed together. It is no tree of its own.
    GroupFlushing,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::BTree,
        Self::UnsortedLeaf,
        Self::BTreeWal,
        Self::FastFair,
        Self::PersistentUnsorted,
        Self::FastFairSp,
        Self::BTreeLs,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::BTree => "btree",
            Self::UnsortedLeaf => "unsorted_leaf",
            Self::BTreeWal => "btree_wal",
            Self::FastFair => "fast_fair",
            Self::PersistentUnsorted => "persistent_unsorted",
            Self::FastFairSp => "fast_fair_sp",
            Self::BTreeLs => "btree_ls",
            Self::GroupFlushing => "btree, group flushing",
        }
    }

    fn create<B: Backend + 'static>(self, storage: &dyn Storage, options: &Options) -> Result<Tree<B>> {
        type Of<M, B> = BTree<M, 2, 2, B>;
        Ok(match self {
            Self::BTree => Box::new(Of::<VolatileBTree, B>::create(storage, NAME, options)?),
            Self::UnsortedLeaf => Box::new(Of::<UnsortedLeaf, B>::create(storage, NAME, options)?),
            Self::BTreeWal => Box::new(Of::<BTreeWal, B>::create(storage, NAME, options)?),
            Self::FastFair => Box::new(Of::<FastFair, B>::create(storage, NAME, options)?),
            Self::PersistentUnsorted => Box::new(Of::<PersistentUnsorted, B>::create(storage, NAME, options)?),
            Self::FastFairSp => Box::new(Of::<FastFairSp, B>::create(storage, NAME, options)?),
            Self::BTreeLs => Box::new(Of::<BTreeLs, B>::create(storage, NAME, options)?),
            Self::GroupFlushing => Box::new(Of::<GroupFlushingBTree, B>::create(storage, NAME, options)?),
        })
    }
}

fn options(node_length: u64, domain: PersistenceDomain) -> Options {
    Options { node_length, ..Options::new(domain) }
}

/// Distinct keys in no order.
fn keys(count: u64, seed: u64) -> Vec<Key> {
    let mut random = StdRng::seed_from_u64(seed);
    (0..count).map(|number| [random.random(), number]).collect()
}

/// The value that is stored for a key.
fn value(key: &Key) -> [u64; 2] {
    [key[1], !key[1]]
}

fn insert<B: Backend>(tree: &Tree<B>, keys: &[Key]) -> Result<()> {
    Ok(keys.iter().try_for_each(|key| tree.insert(key, &value(key)).map(drop))?)
}
