//! Throughput and latency of each operation by several threads (the study's Figures 4, 5 and 7).

use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow};
use serde_json::json;
use terrane_pmem::Native;
use terrane_pmtree::PersistenceDomain;
use terrane_storage::RealStorage;

use super::operations::Operation;
use super::{Key, Kind, Tree, insert, keys, options};
use crate::experiments::workers::{add_latencies, in_threads, row};
use crate::experiments::{Setup, medians};
use crate::measure::{self, Latencies};
use crate::progress::progress;
use crate::report::{Emit, Table};

const NODE_LENGTH: u64 = 512;
/// Of a number of operations, this many are timed one by one, so that clocks take little time.
const TIMED_OF: usize = 8;

/// The operations a second of each kind, and the timed ones.
type Outcome = Vec<(f64, Latencies)>;

/// Measures each tree with each number of threads.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let threads: &[usize] = if setup.options.threads.is_empty() { &[1, 2, 4] } else { &setup.options.threads };
    let count = setup.count(100_000, 2_000_000);
    let keys = keys(2 * count, setup.options.seed);
    let cores = thread::available_parallelism().map_or(0, usize::from);
    let mut outcomes: Vec<(Kind, usize, Vec<Outcome>)> = Vec::new();
    for &number in threads {
        let mut kinds = Kind::ALL;
        let runs = measure::alternate(setup.rounds, &mut kinds, |kind| {
            progress(&row(kind.name(), number));
            measure(setup, *kind, &keys, number)
        })?;
        outcomes.extend(kinds.into_iter().zip(runs).map(|(kind, runs)| (kind, number, runs)));
    }
    for (part, operation) in Operation::ALL.into_iter().enumerate() {
        let title = format!("{} in trees of {count} entries by several threads", operation.name());
        let mut table = Table::new("btree/latency", title);
        table.note(format!("wall time, page cache, nodes of {NODE_LENGTH} bytes, {cores} cores"));
        table.note(format!("throughput: median of {} alternating runs; latency: all runs together", setup.rounds));
        table.note(format!("one operation in {TIMED_OF} is timed; its latency includes a reading of the clock"));
        for (kind, number, runs) in &mut outcomes {
            let name = kind.name();
            let params = json!({"count": count, "threads": number, "operation": operation.name()});
            let rates = medians(vec![runs.iter().map(|run| run[part].0).collect()])?;
            let mut latencies = Latencies::default();
            runs.iter_mut().for_each(|run| latencies.merge(std::mem::take(&mut run[part].1)));
            let row = row(name, *number);
            for rate in rates {
                table.figure_in_row(&row, name, &params, "throughput", rate, "1/s");
            }
            add_latencies(&mut table, &row, name, &params, &mut latencies);
        }
        table.ratios = Some((row(Kind::BTree.name(), threads[0]), vec!["throughput", "p50"]));
        emit(table)?;
    }
    Ok(())
}

/// The operations on one tree, which holds the first half of the keys before.
fn measure(setup: &Setup, kind: Kind, keys: &[Key], threads: usize) -> Result<Outcome> {
    let (stored, new) = keys.split_at(keys.len() / 2);
    let folder = setup.pool_folder()?;
    let storage = RealStorage::new(folder.path());
    let tree: Tree<Native> = kind.create(&storage, &options(NODE_LENGTH, PersistenceDomain::PageCache))?;
    insert(&tree, stored)?;
    let measure_one = |operation: Operation| {
        let keys = operation.keys(stored, new);
        let parts: Vec<&[Key]> = keys.chunks(keys.len().div_ceil(threads)).collect();
        let all = Mutex::new(Latencies::default());
        let run = in_threads(threads, |number| {
            let part = parts.get(number).copied().unwrap_or_default();
            let mut latencies = Latencies::with_capacity(part.len() / TIMED_OF + 1);
            for (number, key) in part.iter().enumerate() {
                if number % TIMED_OF != 0 {
                    operation.perform(&tree, key)?;
                    continue;
                }
                let start = Instant::now();
                operation.perform(&tree, key)?;
                latencies.record(start.elapsed());
            }
            all.lock().map_err(|_| anyhow!("a thread has panicked"))?.merge(latencies);
            Ok(())
        })?;
        let latencies = all.into_inner().map_err(|_| anyhow!("a thread has panicked"))?;
        anyhow::Ok((keys.len() as f64 / run.wall.as_secs_f64(), latencies))
    };
    Operation::ALL.into_iter().map(measure_one).collect()
}
