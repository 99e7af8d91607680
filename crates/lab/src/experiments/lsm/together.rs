//! Dynamic workload 2: ingestion and queries at once (section 4.4.3), and what memory does to it (section 4.4.4).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;
use terrane::{IndexKind, OnConflict};

use super::ingest::{Memory, empty_store, ingest, write_amplification};
use super::{Objects, POINT_KINDS, RADII, Source, circles};
use crate::experiments::Setup;
use crate::progress::progress;
use crate::report::{Emit, Table};

/// Records after each of which the writer sleeps for a millisecond: rates 1 to 4.
const RATES: [usize; 4] = [1, 10, 100, 1000];
/// Names of the rates' columns: inserts and queries.
const COLUMNS: [[&str; 2]; 4] = [
    ["IPS rate 1", "QPS rate 1"],
    ["IPS rate 2", "QPS rate 2"],
    ["IPS rate 3", "QPS rate 3"],
    ["IPS rate 4", "QPS rate 4"],
];
const MEMORY_LIMIT: usize = 64 << 20;

/// Inserts and queries a second of one writer and one reader.
fn run_both(
    setup: &Setup,
    objects: &Objects,
    kind: IndexKind,
    records: usize,
    memory: Memory,
    seconds: f64,
) -> Result<(f64, f64)> {
    let folder = setup.pool_folder()?;
    let (store, dataset) = empty_store(folder.path(), objects, Some(kind), 1, memory)?;
    let queries: Vec<_> = RADII.iter().flat_map(|radius| circles(objects, *radius, 20, setup.options.seed)).collect();
    let ended = AtomicBool::new(false);
    let start = Instant::now();
    let (inserts, asked) = std::thread::scope(|scope| -> Result<(usize, u64)> {
        let reader = scope.spawn(|| -> Result<u64> {
            let mut asked = 0;
            while !ended.load(Ordering::Relaxed) {
                // Radii alternate.
                let query = queries[(asked as usize * 20 + asked as usize / 5) % queries.len()].clone();
                dataset.snapshot().count(&query.using_index(kind.name()))?;
                asked += 1;
            }
            Ok(asked)
        });
        let write = || -> Result<usize> {
            let mut row = 0;
            while start.elapsed().as_secs_f64() < seconds && row < objects.len() {
                let end = objects.len().min(row + records);
                dataset.write_batch(&objects.batch(row..end)?, OnConflict::Refuse)?;
                row = end;
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(row)
        };
        let inserts = write();
        ended.store(true, Ordering::Relaxed);
        let asked = reader.join().ok().context("the reader has panicked")??;
        Ok((inserts?, asked))
    })?;
    let elapsed = start.elapsed().as_secs_f64();
    drop(dataset);
    store.close()?;
    Ok((inserts as f64 / elapsed, asked as f64 / elapsed))
}

/// Inserts and queries a second at four rates.
pub fn rates(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let seconds = setup.options.seconds.unwrap_or(if setup.options.full { 20.0 } else { 0.3 });
    let count = (1_000_000.0 * seconds) as u64;
    let objects = Objects::load(Source::Points, count.clamp(10_000, 900_000), setup.options.seed)?;
    let mut table =
        Table::new("lsm/mixed", format!("Inserts (IPS) and circle selects (QPS) a second, {seconds} s each"));
    table
        .note("one writer that sleeps 1 ms after every 1, 10, 100, 1000 records (rates 1 to 4), one reader; wall time");
    table.note("index-only selects of all five radii in turn; durability none; centres as in lsm/points");
    let params = json!({"seconds": seconds, "memory_limit": MEMORY_LIMIT, "seed": setup.options.seed});
    for kind in POINT_KINDS {
        for (records, [inserts, queries]) in RATES.into_iter().zip(COLUMNS) {
            progress(&format!("{} with {records} records a millisecond", kind.name()));
            let (ips, qps) = run_both(setup, &objects, kind, records, Memory::within(MEMORY_LIMIT), seconds)?;
            table.figure(kind.name(), &params, inserts, ips, "1/s");
            table.figure(kind.name(), &params, queries, qps, "1/s");
        }
    }
    table.ratios = Some(("rtree".to_owned(), vec!["IPS rate 4", "QPS rate 4"]));
    emit(table)
}

/// Units of memory for components and for the page cache (Table 4.5, where a unit is a GB of a node).
const BUDGETS: [(&str, usize, usize); 5] =
    [("M1D1", 1, 1), ("M1D3", 1, 3), ("M1D7", 1, 7), ("M2D1", 2, 1), ("M2D3", 2, 3)];

/// Ingestion, alone and beside queries, under the memory budgets of the thesis.
pub fn memory(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let count = setup.count(100_000, 900_000);
    let seconds = setup.options.seconds.unwrap_or(if setup.options.full { 10.0 } else { 0.3 });
    let objects = Objects::load(Source::Points, count, setup.options.seed)?;
    let unit = if setup.options.full { 16 << 20 } else { 4 << 20 };
    let mut table = Table::new("lsm/memory", format!("Ingestion of {count} points under different memory budgets"));
    table.note(format!(
        "M: memory components, D: page cache, in units of {} MiB; in the thesis, of 1 GB for an eighth of 1.6 billion \
         records",
        unit >> 20
    ));
    table.note("IPS and QPS: both at once, with 100 records a millisecond; the other figures: ingestion alone");
    for kind in POINT_KINDS {
        for (budget, components, cache) in BUDGETS {
            progress(&format!("{} under {budget}", kind.name()));
            let row = format!("{}, {budget}", kind.name());
            let (components, cache) = (components * unit, cache * unit);
            let params = json!({"count": count, "component_memory": components, "page_cache": cache,
                "seconds": seconds, "seed": setup.options.seed});
            let memory = Memory::divided(components, cache);
            let ingestion = ingest(setup, &objects, Some(kind), 1, memory)?;
            let (ips, qps) = run_both(setup, &objects, kind, RATES[2], memory, seconds)?;
            let mut add = |metric, value, unit| {
                table.figure_in_row(&row, kind.name(), &params, metric, value, unit);
            };
            add("cpu a record", ingestion.cpu_ns / count as f64, "ns");
            add("flushes", ingestion.counters.flushes as f64, "");
            add("merges", ingestion.counters.merges as f64, "");
            add("write amplification", write_amplification(&ingestion.counters), "x");
            add("IPS", ips, "1/s");
            add("QPS", qps, "1/s");
        }
    }
    emit(table)
}
