//! Time to open a tree whose process was killed.

use std::time::Instant;

use anyhow::Result;
use serde_json::json;
use terrane_pmem::Native;
use terrane_pmtree::PersistenceDomain;
use terrane_pmtree::btree::{BTree, BTreeLs, FastFairSp, Options, PersistentMap, PersistentUnsorted};
use terrane_storage::RealStorage;

use super::{NAME, keys, options, value};
use crate::experiments::{Setup, medians};
use crate::progress::progress;
use crate::report::{Emit, Table};

const NODE_LENGTH: u64 = 512;
/// Numbers of entries, smallest first.
const SIZES: [u64; 4] = [10_000, 100_000, 1_000_000, 10_000_000];

/// Threads that read leaves or logs; 0 for one per CPU, if the tree is large.
const THREADS: [(&str, usize); 5] =
    [("open", 0), ("1 thread", 1), ("2 threads", 2), ("4 threads", 4), ("8 threads", 8)];

/// Grows trees of growing sizes, drops them as a kill does, and opens them again and again.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let most = setup.count(100_000, 10_000_000);
    let mut table = Table::new("btree/recovery", "Opening a tree that was not closed");
    table.note(format!("wall time, page cache, nodes of {NODE_LENGTH} bytes, median of {} openings", setup.rounds));
    table.note("open: by one thread per CPU; then by fixed numbers of threads, where an opening reads leaves or logs");
    table.note("paper: rebuilding inner nodes takes 10 ms at 10^4 entries, and 10 s at 10^8");
    table.note("paper: logs of 160 M entries in 0.89 s by 48 replayers, 21 x as fast as by one");
    for count in SIZES.into_iter().filter(|count| *count <= most) {
        progress(&format!("{count} entries"));
        let keys = keys(count, setup.options.seed);
        let in_pool = time::<BTree<PersistentUnsorted, 2, 2, Native>>(setup, &keys, &THREADS[..1])?;
        let in_memory = time::<BTree<FastFairSp, 2, 2, Native>>(setup, &keys, &THREADS)?;
        let in_logs = time::<BTree<BTreeLs, 2, 2, Native>>(setup, &keys, &THREADS)?;
        let times = [("persistent_unsorted", in_pool), ("fast_fair_sp", in_memory), ("btree_ls", in_logs)];
        for (name, times) in times {
            for ((metric, _), time) in THREADS.into_iter().zip(times) {
                table.figure_in_row(&format!("{name}, {count}"), name, &json!({"count": count}), metric, time, "ns");
            }
        }
    }
    emit(table)
}

/// The times to open a tree by each number of threads.
fn time<T: PersistentMap<2, 2, Options = Options>>(
    setup: &Setup,
    keys: &[super::Key],
    threads: &[(&str, usize)],
) -> Result<Vec<f64>> {
    let folder = setup.pool_folder()?;
    let storage = RealStorage::new(folder.path());
    let mut options = options(NODE_LENGTH, PersistenceDomain::PageCache);
    let tree = T::create(&storage, NAME, &options)?;
    keys.iter().try_for_each(|key| tree.insert(key, &value(key)).map(drop))?;
    drop(tree);
    let mut times = Vec::new();
    for (_, threads) in threads {
        options.recovery_threads = *threads;
        let mut of_rounds = Vec::new();
        for _ in 0..setup.rounds {
            let start = Instant::now();
            let tree = T::open(&storage, NAME, &options)?;
            of_rounds.push(start.elapsed().as_nanos() as f64);
            drop(tree);
        }
        times.push(of_rounds);
    }
    medians(times)
}
