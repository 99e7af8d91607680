//! The log-structured tree: its number of logs, its garbage, and the prefetching of deltas.

use anyhow::{Result, ensure};
use serde_json::json;
use terrane_pmem::{Eviction, LINE_LENGTH, Native};
use terrane_pmtree::PersistenceDomain;
use terrane_pmtree::btree::{BTree, BTreeLs, LogOptions, Options};
use terrane_storage::RealStorage;

use super::profile::counted;
use super::{Key, Kind, NAME, keys, value};
use crate::experiments::{Setup, medians};
use crate::measure::{self, Pin};
use crate::progress::progress;
use crate::report::{Bound, Emit, Table};

const NODE_LENGTH: u64 = 512;
const SYSTEM: &str = "btree_ls";
const COUNTS: [u64; 6] = [1, 2, 4, 8, 16, 48];
const GARBAGE: [u64; 3] = [25, 50, 75];
const PREFETCHED: [usize; 4] = [0, 1, 4, 8];

type Tree = BTree<BTreeLs, 2, 2, Native>;

fn options(domain: PersistenceDomain, logs: LogOptions) -> Options {
    Options { node_length: NODE_LENGTH, logs, ..Options::new(domain) }
}

/// Measures each parameter in a table of its own.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let count = setup.count(200_000, 10_000_000);
    count_logs(setup, emit, count.min(1_000_000))?;
    time_operations(setup, emit, count)
}

fn count_logs(setup: &Setup, emit: &mut Emit<'_>, count: u64) -> Result<()> {
    let mut table = Table::new("btree/logs", format!("btree_ls by its number of logs, an insertion of {count}"));
    table.note("counted by a back-end and a model, after a warm-up of the same number; no device");
    table.note("paper: amplification 1.4 to 1.7 from few to many logs; speeds by 48 threads are not measured");
    let seed = setup.options.seed;
    let models = [("random", Eviction::Random { seed }), ("lru", Eviction::Lru)];
    for ((model, eviction), logs) in models.into_iter().flat_map(|model| COUNTS.map(|logs| (model, logs))) {
        progress(&format!("{logs} logs, {model}"));
        let options = options(PersistenceDomain::Adr, LogOptions { count: logs, ..LogOptions::default() });
        let counters = counted(Kind::BTreeLs, &options, count, seed, eviction)?;
        let written = (counters.flushes + counters.lines_evicted) * LINE_LENGTH;
        let row = format!("{logs} logs, {model}");
        let mut put = |metric: &'static str, value: f64, unit: &'static str| {
            let params = json!({"count": count, "logs": logs, "model": model});
            table.figure_in_row(&row, SYSTEM, &params, metric, value, unit);
        };
        put("flushes", counters.flushes as f64 / count as f64, "");
        put("fences", counters.fences as f64 / count as f64, "");
        put("written", written as f64 / count as f64, "B");
        put("amplification", counters.media_bytes() as f64 / written as f64, "x");
    }
    table.note("the cache evicts random lines, or the least recently used one");
    table.target("8 logs, random", "amplification", Bound::AtMost(1.2), "x");
    emit(table)
}

/// Insertions, updates and look-ups by one thread.
fn time_operations(setup: &Setup, emit: &mut Emit<'_>, count: u64) -> Result<()> {
    let title = format!("btree_ls by the garbage that is left and by the deltas that are prefetched, {count} entries");
    let mut table = Table::new("btree/garbage", title);
    table.note(format!("CPU of an operation, one thread, page cache, median of {} alternating runs", setup.rounds));
    table.note("each entry is inserted, then updated, then looked up");
    table.note(
        "paper: less garbage costs 7 % of insertions and gains 20 % of reads; prefetching of 8 deltas gains 26 %",
    );
    let of = |garbage_percent, prefetched| LogOptions { garbage_percent, prefetched, ..LogOptions::default() };
    let default = LogOptions::default();
    let mut shapes: Vec<(String, LogOptions)> = GARBAGE
        .map(|percent| (format!("{percent} % garbage"), of(percent, default.prefetched)))
        .into_iter()
        .chain(PREFETCHED.map(|deltas| (format!("{deltas} deltas prefetched"), of(default.garbage_percent, deltas))))
        .collect();
    let keys = keys(count, setup.options.seed);
    let pin = Pin::to_one_core()?;
    let runs = measure::alternate(setup.rounds, &mut shapes, |(name, logs)| {
        progress(name);
        let folder = setup.pool_folder()?;
        let tree: Tree = grown(folder.path(), &options(PersistenceDomain::PageCache, logs.clone()), &[])?;
        let timed = |work: &mut dyn FnMut(&Key) -> Result<()>| -> Result<f64> {
            let start = measure::thread_cpu();
            keys.iter().try_for_each(work)?;
            Ok((measure::thread_cpu() - start).as_nanos() as f64 / count as f64)
        };
        let inserted = timed(&mut |key| Ok(tree.insert(key, &value(key)).map(drop)?))?;
        let updated = timed(&mut |key| Ok(tree.update(key, &value(key)).map(drop)?))?;
        let found = timed(&mut |key| {
            ensure!(tree.get(key)? == Some(value(key)), "{key:?} has another value");
            Ok(())
        })?;
        anyhow::Ok([inserted, updated, found, tree.pool().length() as f64 / count as f64])
    })?;
    drop(pin);
    for ((name, logs), runs) in shapes.iter().zip(runs) {
        let of = |part: usize| runs.iter().map(|figures| figures[part]).collect();
        let figures = medians((0..4).map(of).collect())?;
        let params = json!({"count": count, "garbage": logs.garbage_percent, "prefetched": logs.prefetched});
        let metrics = [("insertion", "ns"), ("update", "ns"), ("look-up", "ns"), ("bytes an entry", "B")];
        for ((metric, unit), figure) in metrics.into_iter().zip(figures) {
            table.figure_in_row(name, SYSTEM, &params, metric, figure, unit);
        }
    }
    emit(table)
}

fn grown(folder: &std::path::Path, options: &Options, keys: &[Key]) -> Result<Tree> {
    let tree: Tree = BTree::create(&RealStorage::new(folder), NAME, options)?;
    keys.iter().try_for_each(|key| tree.insert(key, &value(key)).map(drop))?;
    Ok(tree)
}
