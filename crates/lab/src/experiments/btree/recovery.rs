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

/// Grows trees of growing sizes, drops them as a kill does, and opens them again and again.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let most = setup.count(100_000, 10_000_000);
    let mut table = Table::new("btree/recovery", "Opening a tree that was not closed");
    table.note(format!("wall time, page cache, nodes of {NODE_LENGTH} bytes, median of {} openings", setup.rounds));
    table.note("paper: rebuilding inner nodes takes 10 ms at 10^4 entries, and 10 s at 10^8");
    for count in SIZES.into_iter().filter(|count| *count <= most) {
        progress(&format!("{count} entries"));
        let keys = keys(count, setup.options.seed);
        let in_pool = time::<BTree<PersistentUnsorted, 2, 2, Native>>(setup, &keys)?;
        let in_memory = time::<BTree<FastFairSp, 2, 2, Native>>(setup, &keys)?;
        let in_logs = time::<BTree<BTreeLs, 2, 2, Native>>(setup, &keys)?;
        let times = [("persistent_unsorted", in_pool), ("fast_fair_sp", in_memory), ("btree_ls", in_logs)];
        for (name, time) in times {
            table.figure_in_row(&format!("{name}, {count}"), name, &json!({"count": count}), "open", time, "ns");
        }
    }
    emit(table)
}

fn time<T: PersistentMap<2, 2, Options = Options>>(setup: &Setup, keys: &[super::Key]) -> Result<f64> {
    let folder = setup.pool_folder()?;
    let storage = RealStorage::new(folder.path());
    let options = options(NODE_LENGTH, PersistenceDomain::PageCache);
    let tree = T::create(&storage, NAME, &options)?;
    keys.iter().try_for_each(|key| tree.insert(key, &value(key)).map(drop))?;
    drop(tree);
    let mut times = Vec::new();
    for _ in 0..setup.rounds {
        let start = Instant::now();
        let tree = T::open(&storage, NAME, &options)?;
        times.push(start.elapsed().as_nanos() as f64);
        drop(tree);
    }
    Ok(medians(vec![times])?.remove(0))
}
