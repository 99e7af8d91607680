//! Dynamic workload 2: concurrent ingestion and queries (section 4.4.3), and the effect of memory
//! on it (section 4.4.4).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;
use terrane::{IndexKind, OnConflict};

use super::ingest::{Memory, empty_store, ingest, write_amplification};
use super::{Objects, POINT_KINDS, RADII, RECTANGLE_KINDS, Source, circles, unknown_to_indexes};
use crate::experiments::{Setup, medians};
use crate::measure;
use crate::progress::progress;
use crate::report::{Emit, Table};

/// Numbers of records after which the writer sleeps for a millisecond: rates 1 to 4.
const RATES: [usize; 4] = [1, 10, 100, 1000];
/// Names of the rates' columns: inserts and queries.
const COLUMNS: [[&str; 2]; 4] = [
    ["IPS rate 1", "QPS rate 1"],
    ["IPS rate 2", "QPS rate 2"],
    ["IPS rate 3", "QPS rate 3"],
    ["IPS rate 4", "QPS rate 4"],
];
/// Names of the columns of rates 1 and 2, and of 3 and 4: inserts and queries as percentages of the
/// R-tree's, and the CPU time of a query.
const SUMMARIES: [[&str; 3]; 2] =
    [["IPS % slow", "QPS % slow", "cpu a query slow"], ["IPS % fast", "QPS % fast", "cpu a query fast"]];
const MEMORY_LIMIT: usize = 64 << 20;

/// Inserts and queries a second as percentages of the R-tree's, slow and fast (Figure 4.23), for
/// selects by the index alone and for others. In the available text of the thesis the figure is
/// rotated. Where digits were ambiguous, the ranks decided.
const PAPER: [(IndexKind, [[[f64; 2]; 2]; 2]); 5] = [
    (IndexKind::RTree, [[[100.0, 100.0], [100.0, 100.0]], [[100.0, 100.0], [100.0, 100.0]]]),
    (IndexKind::Dhb, [[[100.0, 97.0], [88.0, 87.0]], [[100.0, 96.0], [91.0, 100.0]]]),
    (IndexKind::Dhvb, [[[100.0, 102.0], [114.0, 78.0]], [[100.0, 109.0], [120.0, 93.0]]]),
    (IndexKind::Shb, [[[100.0, 100.0], [110.0, 79.0]], [[100.0, 96.0], [111.0, 87.0]]]),
    (IndexKind::Sif, [[[82.0, 39.0], [28.0, 24.0]], [[86.0, 51.0], [31.0, 39.0]]]),
];

/// The results of a concurrent writer and reader.
#[derive(Clone, Copy, Debug)]
struct Throughput {
    /// Inserts a second.
    ips: f64,
    /// Queries a second.
    qps: f64,
    /// CPU time of a query in nanoseconds.
    query_ns: f64,
}

/// The pace of throughput.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Records after which the writer sleeps for a millisecond.
    records: usize,
    /// Whether selects are answered by the index alone.
    index_only: bool,
    seconds: f64,
}

/// Runs one writer and one reader, which makes at least one query.
fn run_concurrently(
    setup: &Setup,
    objects: &Objects,
    kind: IndexKind,
    pace: Pace,
    memory: Memory,
) -> Result<Throughput> {
    let folder = setup.pool_folder()?;
    let (store, dataset) = empty_store(folder.path(), objects, Some(kind), 1, memory)?;
    let queries: Vec<_> = RADII.iter().flat_map(|radius| circles(objects, *radius, 20, setup.options.seed)).collect();
    let ended = AtomicBool::new(false);
    let start = Instant::now();
    let (inserts, (asked, query_cpu)) = std::thread::scope(|scope| -> Result<_> {
        let reader = scope.spawn(|| -> Result<(u64, Duration)> {
            let (mut asked, before) = (0, measure::thread_cpu());
            loop {
                // Radii alternate.
                let query = queries[(asked as usize * 20 + asked as usize / 5) % queries.len()].clone();
                let query = query.using_index(kind.name());
                dataset.snapshot().count(&if pace.index_only {
                    query
                } else {
                    query.condition(unknown_to_indexes())
                })?;
                asked += 1;
                if ended.load(Ordering::Relaxed) {
                    return Ok((asked, measure::thread_cpu() - before));
                }
            }
        });
        let write = || -> Result<usize> {
            let mut row = 0;
            while start.elapsed().as_secs_f64() < pace.seconds && row < objects.len() {
                let end = objects.len().min(row + pace.records);
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
    Ok(Throughput {
        ips: inserts as f64 / elapsed,
        qps: asked as f64 / elapsed,
        query_ns: query_cpu.as_nanos() as f64 / asked as f64,
    })
}

/// Inserts and queries a second at four rates, of points and of rectangles.
pub fn rates(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    for (source, kinds) in
        [(Source::Points, &POINT_KINDS[..]), (Source::Houses, &RECTANGLE_KINDS), (Source::Lakes, &RECTANGLE_KINDS)]
    {
        let seconds = setup.options.seconds.unwrap_or(if setup.options.full { 5.0 } else { 0.3 });
        let count = (1_000_000.0 * seconds) as u64;
        let objects = Objects::load(source, count.clamp(10_000, 900_000), setup.options.seed)?;
        for index_only in [true, false] {
            // The boxes of rectangles do not decide.
            if index_only && source != Source::Points {
                continue;
            }
            emit(rates_of(setup, &objects, (source, kinds), index_only, seconds)?)?;
        }
    }
    Ok(())
}

fn rates_of(
    setup: &Setup,
    objects: &Objects,
    (source, kinds): (Source, &[IndexKind]),
    index_only: bool,
    seconds: f64,
) -> Result<Table> {
    let mode = if index_only { "index-only" } else { "with records" };
    let mut table = Table::new(
        "lsm/mixed",
        format!("Inserts (IPS) and circle selects (QPS) of {} a second, {mode}, {seconds} s each", source.name()),
    );
    table
        .note("one writer that sleeps 1 ms after every 1, 10, 100, 1000 records (rates 1 to 4), one reader; wall time");
    table.note(format!(
        "selects of all five radii in turn; durability none; median of {} alternating rounds; centres: {}",
        setup.rounds, objects.origin
    ));
    table.note("slow: rates 1 and 2, fast: 3 and 4, as percentages of rtree; paper: Figure 4.23, points alone");
    let params = json!({"objects": source.name(), "index_only": index_only, "seconds": seconds,
        "memory_limit": MEMORY_LIMIT, "seed": setup.options.seed});
    // By rate, kind and round.
    let mut measured: Vec<Vec<Throughput>> = Vec::new();
    for records in RATES {
        progress(&format!("{} with {records} records a millisecond, {mode}", source.name()));
        let mut of_rate = vec![Vec::new(); kinds.len()];
        for round in 0..setup.rounds {
            for number in 0..kinds.len() {
                let number = (number + round) % kinds.len();
                let pace = Pace { records, index_only, seconds };
                of_rate[number].push(run_concurrently(
                    setup,
                    objects,
                    kinds[number],
                    pace,
                    Memory::within(MEMORY_LIMIT),
                )?);
            }
        }
        measured.push(of_rate.iter().map(|rounds| median_of(rounds)).collect::<Result<_>>()?);
    }
    for (number, kind) in kinds.iter().enumerate() {
        let name = kind.name();
        for ([inserts, queries], of_rate) in COLUMNS.into_iter().zip(&measured) {
            table.figure(name, &params, inserts, of_rate[number].ips, "1/s");
            table.figure(name, &params, queries, of_rate[number].qps, "1/s");
        }
        let known = PAPER.iter().find(|(paper, _)| paper == kind && source == Source::Points);
        let known = known.map(|(_, paper)| paper[usize::from(!index_only)]);
        for (half, [inserts, queries, cpu]) in SUMMARIES.into_iter().enumerate() {
            let of_half = &measured[half * 2..half * 2 + 2];
            let mean = |of_rate: &dyn Fn(&Vec<Throughput>) -> f64| of_half.iter().map(of_rate).sum::<f64>() / 2.0;
            let shares = [
                (inserts, mean(&|of_rate| 100.0 * of_rate[number].ips / of_rate[0].ips)),
                (queries, mean(&|of_rate| 100.0 * of_rate[number].qps / of_rate[0].qps)),
            ];
            for (place, (metric, share)) in shares.into_iter().enumerate() {
                let figure = table.figure(name, &params, metric, share, "%");
                if let Some(known) = known {
                    figure.paper(known[half][place]);
                }
            }
            table.figure(name, &params, cpu, mean(&|of_rate| of_rate[number].query_ns), "ns");
        }
    }
    Ok(table)
}

/// The medians of several rounds.
fn median_of(rounds: &[Throughput]) -> Result<Throughput> {
    let of = |part: fn(&Throughput) -> f64| rounds.iter().map(part).collect::<Vec<f64>>();
    let found = medians(vec![
        of(|throughput| throughput.ips),
        of(|throughput| throughput.qps),
        of(|throughput| throughput.query_ns),
    ])?;
    Ok(Throughput { ips: found[0], qps: found[1], query_ns: found[2] })
}

/// Units of memory for components and for the page cache (Table 4.5, where a unit is a GB of a
/// node).
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
            let pace = Pace { records: RATES[2], index_only: true, seconds };
            let Throughput { ips, qps, query_ns } = run_concurrently(setup, &objects, kind, pace, memory)?;
            let mut add = |metric, value, unit| {
                table.figure_in_row(&row, kind.name(), &params, metric, value, unit);
            };
            add("cpu a record", ingestion.cpu_ns / count as f64, "ns");
            add("flushes", ingestion.counters.flushes as f64, "");
            add("merges", ingestion.counters.merges as f64, "");
            add("write amplification", write_amplification(&ingestion.counters), "x");
            add("IPS", ips, "1/s");
            add("QPS", qps, "1/s");
            add("cpu a query", query_ns, "ns");
        }
    }
    emit(table)
}
