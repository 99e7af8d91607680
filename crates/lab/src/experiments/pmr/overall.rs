//! Insertion, search and deletion on each data set, beside the other R-trees (sections 5.2, 5.5 and
//! 5.9).

use anyhow::{Result, ensure};
use serde_json::json;
use terrane_pmem::{Backend, CPU_CACHE_LENGTH, Native};
use terrane_pmtree::PersistenceDomain;
use terrane_storage::{RealStorage, Storage};
use terrane_testkit::MemoryStorage;

use super::data::{Data, DataSet};
use super::{Kind, Shape, create};
use crate::experiments::insertions::{Counting, Tree};
use crate::experiments::{Setup, medians};
use crate::measure::{self, Pin};
use crate::progress::progress;
use crate::report::{Emit, Table};

/// One in this many entries is deleted at the end, or fewer: boxes that overlap are slow to find.
const DELETED: usize = 10;
const DELETIONS_MAX: usize = 1_000;

/// The trees: those that the paper compares, and ours with two sizes of leaves.
const SHAPES: [Shape; 6] = [
    Shape { kind: Kind::Fbr, fan_out: 55 },
    Shape { kind: Kind::Volatile, fan_out: 55 },
    Shape { kind: Kind::Undo, fan_out: 55 },
    Shape { kind: Kind::Pmr, fan_out: 96 },
    Shape { kind: Kind::Pmr, fan_out: 336 },
    Shape { kind: Kind::SelfValidating, fan_out: 96 },
];
/// Measures each data set.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let count = setup.count(50_000, 1_000_000);
    for set in DataSet::ALL {
        let Some(data) = set.load(count, setup.options.queries.unwrap_or(200), setup.options.seed)? else {
            progress(&format!("no file of {}: name the folder of sample data in TERRANE_DATA", set.name()));
            continue;
        };
        let mut table = measure(setup, "pmr/overall", (set, &data), &SHAPES)?;
        table.note("paper, 16 threads on Optane: time of the FBR-tree to the PM-RTREE's up to 9.8 x for insertions, 3.2 x for deletions, search time -19.2 %");
        if set == DataSet::Zipf {
            table.note("paper, Zipf: insertion -80 %, search -33 % of the FBR-tree's time");
        }
        emit(table)?;
    }
    Ok(())
}

/// Inserts, searches and deletes in each tree, and counts the lines that it flushes.
pub(super) fn measure(
    setup: &Setup,
    experiment: &'static str,
    (set, data): (DataSet, &Data),
    shapes: &[Shape],
) -> Result<Table> {
    let (count, queries) = (data.boxes.len(), data.queries.len());
    let mut table = Table::new(experiment, format!("{}: insertion, search and deletion, {count} entries", set.name()));
    table.note(format!("data: {}; {queries} windows; every {}th entry is deleted", data.origin, deleted_one_in(count)));
    table.note(format!("cpu: an operation on the page cache, median of {} alternating runs", setup.rounds));
    table.note("lines: flushed per operation, counted by a back-end, on no device");
    let pin = Pin::to_one_core()?;
    let mut shapes = shapes.to_vec();
    let mut hits = None;
    let times = measure::alternate(setup.rounds, &mut shapes, |shape| {
        progress(&format!("{}: {}", set.name(), shape.row()));
        let folder = setup.pool_folder()?;
        let storage = RealStorage::new(folder.path());
        let clock = |_: &Tree<Native>| measure::thread_cpu().as_nanos() as f64;
        let (found, times) = steps(&storage, shape, PersistenceDomain::PageCache, data, clock)?;
        ensure!(*hits.get_or_insert(found) == found, "{} finds {found:?}", shape.row());
        Ok(times)
    })?;
    drop(pin);
    let mut of_fbr = None;
    for (shape, times) in shapes.iter().zip(times) {
        let per_step = |step: usize| times.iter().map(|times| times[step]).collect();
        let cpu = medians((0..3).map(per_step).collect())?;
        // The counters begin anew at each step, so a step's value is its own.
        let (mut sum, mut reflush_shares) = (0.0, Vec::new());
        let (_, lines) = steps(&MemoryStorage::new(), shape, PersistenceDomain::Adr, data, |tree: &Tree<Counting>| {
            let counters = tree.pool().backend().take();
            tree.pool().backend().reset(CPU_CACHE_LENGTH);
            reflush_shares.push(counters.reflushes as f64 / counters.flushes as f64);
            sum += counters.flushes as f64;
            sum
        })?;
        let params = json!({"data": set.name(), "fan_out": shape.fan_out, "count": count, "seed": setup.options.seed});
        let (row, system) = (shape.row(), shape.name());
        let fbr = of_fbr.get_or_insert(cpu.clone()).clone();
        for (step, [cpu_of, to_fbr, lines_of]) in [
            ["insertion cpu", "insertion to fbr-tree", "insertion lines"],
            ["search cpu", "search to fbr-tree", ""],
            ["deletion cpu", "deletion to fbr-tree", "deletion lines"],
        ]
        .into_iter()
        .enumerate()
        {
            table.figure_in_row(&row, system, &params, cpu_of, cpu[step], "ns");
            table.figure_in_row(&row, system, &params, to_fbr, cpu[step] / fbr[step], "x");
            if !lines_of.is_empty() {
                table.figure_in_row(&row, system, &params, lines_of, lines[step], "");
            }
            if step == 0 {
                // The first share is that of the creation.
                table.figure_in_row(&row, system, &params, "reflush share", reflush_shares[1], "");
            }
        }
    }
    Ok(table)
}

/// One in how many entries is deleted.
fn deleted_one_in(count: usize) -> usize {
    DELETED.max(count / DELETIONS_MAX)
}

/// Inserts, searches and deletes. Gives the number and sum of all hits, and what `meter` has
/// advanced for an operation of each step.
fn steps<B: Backend + 'static>(
    storage: &dyn Storage,
    shape: &Shape,
    domain: PersistenceDomain,
    data: &Data,
    mut meter: impl FnMut(&Tree<B>) -> f64,
) -> Result<((u64, u64), [f64; 3])> {
    let tree: Tree<B> = create(storage, shape, domain)?;
    let mut last = meter(&tree);
    let mut lap = |tree: &Tree<B>, operations: usize| {
        let now = meter(tree);
        (now - std::mem::replace(&mut last, now)) / operations as f64
    };
    for (payload, rect) in (0..).zip(&data.boxes) {
        tree.insert(rect, payload)?;
    }
    let insertion = lap(&tree, data.boxes.len());
    let mut hits = (0, 0_u64);
    for query in &data.queries {
        tree.window(query, &mut |_, payload| hits = (hits.0 + 1, hits.1.wrapping_add(payload)))?;
    }
    let search = lap(&tree, data.queries.len());
    let mut deleted = 0;
    for (payload, rect) in (0..).zip(&data.boxes).step_by(deleted_one_in(data.boxes.len())) {
        ensure!(tree.delete(rect, payload)?, "entry {payload} is not found");
        deleted += 1;
    }
    Ok((hits, [insertion, search, lap(&tree, deleted)]))
}
