//! Dynamic workload 1: ingestion alone (section 4.4.2).

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use terrane::{
    Dataset, DatasetOptions, Durability, IndexKind, MaintenanceCounters, OnConflict, Options, Store, counted,
};

use super::{OBJECTS, Objects, POINT_KINDS, Source, create};
use crate::experiments::{Setup, medians};
use crate::measure;
use crate::progress::progress;
use crate::report::{Bound, Emit, Table};

/// Inserts a second as percentages of the R-tree's (Figure 4.23).
const PAPER: [(IndexKind, f64); 5] = [
    (IndexKind::RTree, 100.0),
    (IndexKind::Dhb, 91.0),
    (IndexKind::Dhvb, 110.0),
    (IndexKind::Shb, 109.0),
    (IndexKind::Sif, 44.0),
];

/// Memory limit, small enough for several flushes.
const MEMORY_LIMIT: usize = 16 << 20;

/// The memory of a store.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    limit: usize,
    components: Option<usize>,
}

impl Memory {
    /// A limit that is divided as usual.
    pub const fn within(limit: usize) -> Self {
        Self { limit, components: None }
    }

    /// `components` bytes for memory components, and about `cache` bytes for the page cache.
    pub const fn divided(components: usize, cache: usize) -> Self {
        // They have three quarters of a limit together, in eighths.
        Self { limit: (components + cache).div_ceil(6) * 8, components: Some(components) }
    }
}

/// A store with an empty dataset of the objects. Beside the usual indexes, it has one of the kind.
pub fn empty_store(
    folder: &std::path::Path,
    objects: &Objects,
    kind: Option<IndexKind>,
    partitions: usize,
    memory: Memory,
) -> Result<(Store, Dataset)> {
    let durability = Some(Durability::None);
    let Memory { limit: memory_limit, components: component_memory } = memory;
    let options = Options { memory_limit, component_memory, durability, ..Options::default() };
    let store = Store::open(folder, options)?;
    let dataset = store.create_dataset_with(OBJECTS, objects.schema()?, &DatasetOptions { partitions })?;
    if let Some(kind) = kind {
        create(&dataset, kind)?;
    }
    Ok((store, dataset))
}

/// Costs and effects of an ingestion.
pub struct Ingestion {
    /// CPU of all threads in nanoseconds, including flushes and merges.
    pub cpu_ns: f64,
    /// Seconds until the last record was acknowledged.
    pub wall_s: f64,
    pub counters: MaintenanceCounters,
}

/// Inserts all objects into a new store. The number of clients is that of the dataset's partitions.
pub fn ingest(
    setup: &Setup,
    objects: &Objects,
    kind: Option<IndexKind>,
    partitions: usize,
    memory: Memory,
) -> Result<Ingestion> {
    let folder = setup.pool_folder()?;
    let (store, dataset) = empty_store(folder.path(), objects, kind, partitions, memory)?;
    let batches: Vec<_> = objects.batches().collect::<Result<_>>()?;
    let next = AtomicUsize::new(0);
    let write = || -> Result<()> {
        while let Some(batch) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = dataset.write_batch(batch, OnConflict::Refuse)?;
            ensure!(outcome.refused.is_empty(), "rows were refused");
        }
        Ok(())
    };
    let (cpu, wall) = (measure::process_cpu(), std::time::Instant::now());
    std::thread::scope(|scope| -> Result<()> {
        let others: Vec<_> = (1..partitions).map(|_| scope.spawn(write)).collect();
        write()?;
        others.into_iter().try_for_each(|client| client.join().ok().context("a client has panicked")?)
    })?;
    let wall_s = wall.elapsed().as_secs_f64();
    store.flush()?;
    drop(dataset);
    let counters = store.maintenance();
    store.close()?;
    Ok(Ingestion { cpu_ns: (measure::process_cpu() - cpu).as_nanos() as f64, wall_s, counters })
}

/// Bytes written for each byte that a flush wrote once.
pub fn write_amplification(counters: &MaintenanceCounters) -> f64 {
    let flushed = counters.flushed_bytes as f64;
    (flushed + counters.merge_written_bytes as f64) / flushed.max(1.0)
}

/// Inserts all objects with an index of each kind.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let count = setup.count(100_000, 900_000);
    let objects = Objects::load(Source::Points, count, setup.options.seed)?;
    let mut table = Table::new("lsm/ingest", format!("Ingestion of {count} points, without queries"));
    table.note(format!(
        "batches, durability none, memory limit {} MiB; median of {} alternating rounds; centres: {}",
        MEMORY_LIMIT >> 20,
        setup.rounds,
        objects.origin
    ));
    table.note("beside the index that every dataset has, one of the kind; cpu of all threads, with flushes and merges");
    table.note("share of rtree: of the CPU, as inserts a CPU second; paper: inserts a second of 8 nodes");
    let mut subjects: Vec<(Option<IndexKind>, Option<Ingestion>)> =
        std::iter::once(None).chain(POINT_KINDS.map(Some)).map(|kind| (kind, None)).collect();
    let mut walls = vec![Vec::new(); subjects.len()];
    let mut turn = 0;
    let length = subjects.len();
    let cpu = medians(measure::alternate(setup.rounds, &mut subjects, |(kind, last)| {
        progress(&format!("ingestion with {}", name(*kind)));
        let ingestion = ingest(setup, &objects, *kind, 1, Memory::within(MEMORY_LIMIT))?;
        walls[(turn % length + turn / length) % length].push(ingestion.wall_s);
        turn += 1;
        let cpu = ingestion.cpu_ns;
        *last = Some(ingestion);
        Ok(cpu)
    })?)?;
    let walls = medians(walls)?;
    let params = json!({"count": count, "memory_limit": MEMORY_LIMIT});
    // Behind the one without another index.
    let base = cpu[1];
    for (number, (kind, ingestion)) in subjects.iter().enumerate() {
        let (row, counters) = (name(*kind), ingestion.as_ref().map(|ingestion| ingestion.counters).unwrap_or_default());
        let mut add = |metric, value, unit| {
            table.figure(row, &params, metric, value, unit);
        };
        add("cpu a record", cpu[number] / count as f64, "ns");
        add("inserts a second", count as f64 / walls[number], "1/s");
        add("flushes", counters.flushes as f64, "");
        add("flushed", counters.flushed_bytes as f64, "bytes");
        add("merges", counters.merges as f64, "");
        add("write amplification", write_amplification(&counters), "x");
        let figure = table.figure(row, &params, "% of rtree", 100.0 * base / cpu[number], "%");
        if let Some((_, paper)) = PAPER.iter().find(|(paper, _)| Some(*paper) == *kind) {
            figure.paper(*paper);
        }
    }
    for kind in [IndexKind::Dhvb, IndexKind::Shb] {
        table.ratio_target("rtree", "cpu a record", kind.name(), Bound::AtMost(1.0));
    }
    emit(table)
}

/// Inserts all objects into datasets of 1 to 4 partitions, with an index of each kind.
pub fn partitions(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let count = setup.count(100_000, 900_000);
    let objects = Objects::load(Source::Points, count, setup.options.seed)?;
    let mut table = Table::new("lsm/partitions", format!("Ingestion of {count} points into 1 to 4 partitions"));
    table.note(format!(
        "as many clients as partitions; with an index of the kind beside; batches, durability none, memory limit {} MiB; \
         median of {} alternating rounds; centres: {}",
        MEMORY_LIMIT >> 20,
        setup.rounds,
        objects.origin
    ));
    for kind in POINT_KINDS {
        let mut subjects: Vec<(usize, Option<Ingestion>)> = (1..=4).map(|partitions| (partitions, None)).collect();
        let mut cpus = vec![Vec::new(); subjects.len()];
        let walls = medians(measure::alternate(setup.rounds, &mut subjects, |(partitions, last)| {
            let into = counted(*partitions as u64, "partition", "partitions");
            progress(&format!("ingestion with {} into {into}", kind.name()));
            let ingestion = ingest(setup, &objects, Some(kind), *partitions, Memory::within(MEMORY_LIMIT))?;
            let wall = ingestion.wall_s;
            cpus[*partitions - 1].push(ingestion.cpu_ns);
            *last = Some(ingestion);
            Ok(wall)
        })?)?;
        let cpus = medians(cpus)?;
        for (number, (partitions, ingestion)) in subjects.iter().enumerate() {
            let row = format!("{}, {partitions}", kind.name());
            let params = json!({"count": count, "memory_limit": MEMORY_LIMIT, "partitions": partitions});
            let counters = ingestion.as_ref().map(|ingestion| ingestion.counters).unwrap_or_default();
            let mut add = |metric, value, unit| {
                table.figure_in_row(&row, kind.name(), &params, metric, value, unit);
            };
            add("inserts a second", count as f64 / walls[number], "1/s");
            add("cpu a record", cpus[number] / count as f64, "ns");
            add("flushes", counters.flushes as f64, "");
            add("merges", counters.merges as f64, "");
            add("write amplification", write_amplification(&counters), "x");
            add("of one partition", walls[0] / walls[number], "x");
        }
    }
    emit(table)
}

fn name(kind: Option<IndexKind>) -> &'static str {
    kind.map_or("none beside", IndexKind::name)
}
