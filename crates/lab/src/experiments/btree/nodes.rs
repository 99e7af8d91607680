//! The size of nodes.

use anyhow::Result;
use serde_json::json;
use terrane_pmem::Native;
use terrane_pmtree::PersistenceDomain;
use terrane_storage::RealStorage;

use super::{Kind, Tree, insert, keys, options};
use crate::experiments::{Setup, medians};
use crate::measure::{self, Pin};
use crate::progress::progress;
use crate::report::{Emit, Table};

const KINDS: [Kind; 3] = [Kind::BTree, Kind::PersistentUnsorted, Kind::FastFair];
const LENGTHS: [u64; 6] = [128, 256, 512, 1024, 2048, 4096];

/// Measures each tree with nodes of each size that it can have.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let count = setup.count(100_000, 2_000_000);
    let keys = keys(count, setup.options.seed);
    let mut table = Table::new("btree/nodes", format!("Sizes of nodes, {count} entries: CPU time"));
    table.note(format!("one thread, page cache, median of {} alternating runs", setup.rounds));
    let mut shapes: Vec<(Kind, u64)> = KINDS
        .into_iter()
        .flat_map(|kind| LENGTHS.map(|length| (kind, length)))
        // Two entries with tags take more.
        .filter(|shape| *shape != (Kind::FastFair, 128))
        .collect();
    let pin = Pin::to_one_core()?;
    let runs = measure::alternate(setup.rounds, &mut shapes, |(kind, length)| {
        progress(&format!("{}, {length}", kind.name()));
        let folder = setup.pool_folder()?;
        let storage = RealStorage::new(folder.path());
        let tree: Tree<Native> = kind.create(&storage, &options(*length, PersistenceDomain::PageCache))?;
        let start = measure::thread_cpu();
        insert(&tree, &keys)?;
        let inserted = measure::thread_cpu();
        keys.iter().try_for_each(|key| tree.get(key).map(drop))?;
        let asked = measure::thread_cpu();
        let per = |time: std::time::Duration| time.as_nanos() as f64 / count as f64;
        anyhow::Ok([per(inserted - start), per(asked - inserted), tree.pool().length() as f64 / count as f64])
    })?;
    drop(pin);
    for ((kind, length), runs) in shapes.iter().zip(runs) {
        let of = |part: usize| runs.iter().map(|figures| figures[part]).collect();
        let figures = medians((0..3).map(of).collect())?;
        let (row, params) = (format!("{}, {length}", kind.name()), json!({"count": count, "node_length": length}));
        table.figure_in_row(&row, kind.name(), &params, "insertion", figures[0], "ns");
        table.figure_in_row(&row, kind.name(), &params, "look-up", figures[1], "ns");
        table.figure_in_row(&row, kind.name(), &params, "bytes an entry", figures[2], "B");
    }
    emit(table)
}
