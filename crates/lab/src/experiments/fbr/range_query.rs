//! Range queries against the size of nodes (section 5.1, Figure 9(d)).

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use terrane_pmem::Native;
use terrane_pmtree::{PersistenceDomain, Rect};
use terrane_storage::{OpenMode, RealStorage, Storage};
use terrane_testkit::MemoryStorage;

use super::{Boxes, Counting, FAN_OUTS, NAME, Queries, SELECTIVITY, Shape, Tree, count_in_window, create, open};
use crate::experiments::{Setup, medians};
use crate::measure::{self, Pin};
use crate::progress::progress;
use crate::report::{Emit, Table};

/// The most queries whose lines are counted, which takes longer than timing them.
const COUNTED_MAX: usize = 50;

/// Runs the same queries on trees of every kind and size.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let count = setup.count(100_000, 1_000_000);
    let queries: Vec<Rect<3>> =
        Queries::new(setup.options.seed, SELECTIVITY).take(setup.options.queries.unwrap_or(200)).collect();
    let title = format!("Range queries that find {:.1} % of {count} random boxes", SELECTIVITY * 100.0);
    let mut table = Table::new("fbr/range-query", title);
    table.note(format!(
        "{} queries, validated without locks (logging: under its lock); cpu on the page cache, median of {} alternating runs",
        queries.len(),
        setup.rounds
    ));
    table
        .note("lines read: different ones of a query; paper: fastest with 183 entries a node, and alike for all trees");
    let mut answers = None;
    for &fan_out in setup.fan_outs(&FAN_OUTS) {
        progress(&format!("queries of trees with {fan_out} entries a node"));
        let folder = setup.pool_folder()?;
        let shapes = setup.shapes(fan_out);
        let mut trees: Vec<(Shape, Tree<Native>)> = Vec::new();
        for shape in shapes {
            let storage = storage_of(folder.path(), &shape)?;
            let tree = create(&storage, &shape, PersistenceDomain::PageCache)?;
            for (payload, rect) in (0..count).zip(Boxes::new(setup.options.seed)) {
                tree.insert(&rect, payload)?;
            }
            let found = ask(&tree, &queries)?;
            let expected = *answers.get_or_insert(found);
            ensure!(found == expected, "{} found {found:?}, not {expected:?} hits and their sum", shape.row());
            trees.push((shape, tree));
        }
        let cpu = cpu_of_a_query(setup, &mut trees, &queries)?;
        // Leaves with self-validating entries are now read by their tags, as long as nothing writes
        // to them.
        let mut reopened = Vec::new();
        for (shape, tree) in trees {
            tree.close()?;
            reopened.push((shape, open(&storage_of(folder.path(), &shape)?, &shape, PersistenceDomain::PageCache)?));
        }
        let cpu_reopened = cpu_of_a_query(setup, &mut reopened, &queries)?;
        for ((shape, tree), (cpu, cpu_reopened)) in reopened.into_iter().zip(cpu.into_iter().zip(cpu_reopened)) {
            tree.close()?;
            let counted = &queries[..queries.len().min(COUNTED_MAX)];
            let lines = lines_read(&storage_of(folder.path(), &shape)?, &shape, counted)?;
            let params = json!({"fan_out": fan_out, "count": count, "queries": queries.len(),
                                "split": shape.split_name(), "seed": setup.options.seed});
            let (row, system) = (shape.row(), shape.kind.name());
            let hits = answers.map_or(0, |(hits, _)| hits) as f64 / queries.len() as f64;
            table.figure_in_row(&row, system, &params, "hits", hits, "");
            table.figure_in_row(&row, system, &params, "lines read", lines, "");
            table.figure_in_row(&row, system, &params, "cpu", cpu, "ns");
            table.figure_in_row(&row, system, &params, "cpu reopened", cpu_reopened, "ns");
        }
    }
    emit(table)
}

/// CPU time of a query of each tree, in nanoseconds.
fn cpu_of_a_query(setup: &Setup, trees: &mut [(Shape, Tree<Native>)], queries: &[Rect<3>]) -> Result<Vec<f64>> {
    let _pin = Pin::to_one_core()?;
    medians(measure::alternate(setup.rounds, trees, |(_, tree)| {
        let start = measure::thread_cpu();
        ask(tree, queries)?;
        Ok((measure::thread_cpu() - start).as_nanos() as f64 / queries.len() as f64)
    })?)
}

/// A folder of its own for each tree.
fn storage_of(folder: &Path, shape: &Shape) -> Result<RealStorage> {
    let own = folder.join(shape.kind.name());
    std::fs::create_dir_all(&own).with_context(|| format!("cannot make {}", own.display()))?;
    Ok(RealStorage::new(&own))
}

/// Hits of all queries, and the sum of their payloads.
fn ask(tree: &Tree<Native>, queries: &[Rect<3>]) -> Result<(u64, u64)> {
    queries.iter().try_fold((0, 0_u64), |(hits, sum), query| {
        let (more, payloads) = count_in_window(tree, query)?;
        Ok((hits + more, sum.wrapping_add(payloads)))
    })
}

/// Number of distinct lines that a query reads on average, on a copy in memory that counts them.
fn lines_read(storage: &RealStorage, shape: &Shape, queries: &[Rect<3>]) -> Result<f64> {
    let file = storage.open(NAME, OpenMode::Read)?;
    let mut bytes = vec![0; usize::try_from(file.len()?)?];
    file.read_exact_at(&mut bytes, 0)?;
    let memory = MemoryStorage::new();
    memory.open(NAME, OpenMode::CreateNew)?.write_all_at(&bytes, 0)?;
    drop(bytes);
    let tree: Tree<Counting> = open(&memory, shape, PersistenceDomain::PageCache)?;
    let mut lines = 0;
    for query in queries {
        tree.pool().backend().take();
        tree.window(query, &mut |_, _| ())?;
        lines += tree.pool().backend().take().lines_read;
    }
    Ok(lines as f64 / queries.len() as f64)
}
