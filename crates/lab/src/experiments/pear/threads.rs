//! Insertions and windows by several threads (section 6.3).

use std::thread;

use anyhow::{Result, ensure};
use serde_json::json;
use terrane_pmem::Native;
use terrane_pmtree::PersistentRTree;

use super::{ALL, Data, NONE, fbr, pear, thread_counts, with_budget};
use crate::experiments::workers::in_threads;
use crate::experiments::{Setup, medians};
use crate::measure;
use crate::progress::progress;
use crate::report::{Emit, Table};

const SYSTEMS: [&str; 3] = ["pear-tree", "pear-tree-in-memory", "fbr-tree"];

/// Measures each tree with each number of threads.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let count = setup.count(100_000, 1_000_000);
    let data = Data::load(count, setup.options.queries.unwrap_or(10_000))?;
    let cores = thread::available_parallelism().map_or(0, usize::from);
    let mut table = Table::new("pear/threads", format!("{count} insertions, then windows, by several threads"));
    table.note(format!("wall time, page cache, {cores} cores, median of {} alternating runs", setup.rounds));
    table.note("paper, 18 cores: with inner nodes in memory up to 10 % more insertions a second, windows the same");
    let numbers = thread_counts(setup, &[1, 2, 4, 8]);
    for &number in numbers {
        progress(&format!("{number} threads"));
        let mut systems = SYSTEMS;
        let rates = measure::alternate(setup.rounds, &mut systems, |system| match *system {
            "pear-tree" => rates(&pear(setup, &with_budget(NONE))?.tree, &data, number),
            "pear-tree-in-memory" => rates(&pear(setup, &with_budget(ALL))?.tree, &data, number),
            _ => rates(&fbr(setup)?.tree, &data, number),
        })?;
        for (system, rates) in systems.iter().zip(rates) {
            let of = |part: usize| rates.iter().map(|rates| rates[part]).collect();
            let rates = medians(vec![of(0), of(1)])?;
            let params = json!({"count": count, "threads": number});
            let row = format!("{system}, {number}");
            table.figure_in_row(&row, system, &params, "insertions a second", rates[0], "1/s");
            table.figure_in_row(&row, system, &params, "windows a second", rates[1], "1/s");
        }
    }
    emit(table)
}

/// Insertions and windows a second.
fn rates(tree: &dyn PersistentRTree<2, Backend = Native>, data: &Data, threads: usize) -> Result<[f64; 2]> {
    let length = data.points.len().div_ceil(threads);
    let inserting = in_threads(threads, |number| {
        let first = number * length;
        let part = data.points.iter().zip(0..).skip(first).take(length);
        Ok(part.into_iter().try_for_each(|(rect, payload)| tree.insert(rect, payload))?)
    })?;
    let length = data.windows.len().div_ceil(threads);
    let asking = in_threads(threads, |number| {
        let mut found = 0;
        let part = data.windows.iter().skip(number * length).take(length);
        let asked = part.len();
        for window in part {
            tree.window(window, &mut |_, _| found += 1)?;
        }
        ensure!(found == asked * super::HITS, "{asked} windows find {found} entries");
        Ok(())
    })?;
    let rate = |operations: usize, wall: std::time::Duration| operations as f64 / wall.as_secs_f64();
    Ok([rate(data.points.len(), inserting.wall), rate(data.windows.len(), asking.wall)])
}
