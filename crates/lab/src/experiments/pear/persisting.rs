//! Moving nodes to the pool in place and in the background, by batches (section 6.7).

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow};
use serde_json::json;
use terrane_pmtree::pear::{Budget, Options, Persisting};

use super::{Data, Pear, pear, thread_counts, with_budget};
use crate::experiments::workers::{Run, in_threads};
use crate::experiments::{Setup, medians};
use crate::measure;
use crate::progress::progress;
use crate::report::{Emit, Table};

/// Nodes that move together.
const BATCHES: [usize; 4] = [1, 4, 16, 64];
/// Points for each node of the budget: about half of the inner nodes move.
const POINTS_OF_NODE: u64 = 1200;
/// The background thread looks again after this time.
const PAUSE: Duration = Duration::from_millis(1);

/// Measures each way with each number of threads.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let count = setup.count(100_000, 1_000_000);
    let data = Data::load(count, 1)?;
    let budget = Budget::Nodes(count / POINTS_OF_NODE);
    let mut table = Table::new("pear/persisting", format!("{count} insertions while nodes move to the pool"));
    table.note(format!("wall time, page cache, budget {budget:?}, median of {} alternating runs", setup.rounds));
    table.note("background: one more thread moves nodes; nodes max: the most in memory at once");
    table.note("paper: in the background -18 %, a batch of 1 is best in place");
    for &threads in thread_counts(setup, &[1, 2]) {
        let ways = [Persisting::InPlace, Persisting::Background];
        let mut ways: Vec<_> = ways.iter().flat_map(|way| BATCHES.map(|batch| (*way, batch))).collect();
        let runs = measure::alternate(setup.rounds, &mut ways, |(persisting, batch)| {
            progress(&format!("{persisting:?}, {batch}, {threads} threads"));
            let options = Options { persisting: *persisting, batch: *batch, ..with_budget(budget) };
            let grown = pear(setup, &options)?;
            let run = insert_beside_moves(&grown.tree, &data, &options, threads)?;
            Ok([data.points.len() as f64 / run.wall.as_secs_f64(), grown.tree.volatile_nodes_max() as f64])
        })?;
        for ((persisting, batch), runs) in ways.iter().zip(runs) {
            let of = |part: usize| runs.iter().map(|figures| figures[part]).collect();
            let figures = medians(vec![of(0), of(1)])?;
            let system = if *persisting == Persisting::InPlace { "in place" } else { "background" };
            let row = format!("{system}, batch {batch}, threads {threads}");
            let params = json!({"count": count, "batch": batch, "threads": threads});
            table.figure_in_row(&row, system, &params, "insertions a second", figures[0], "1/s");
            table.figure_in_row(&row, system, &params, "nodes max", figures[1], "");
        }
    }
    emit(table)
}

/// Inserts by several threads. In the background mode another one moves nodes.
fn insert_beside_moves(tree: &Pear, data: &Data, options: &Options, threads: usize) -> Result<Run> {
    let (has_ended, length) = (&AtomicBool::new(false), data.points.len().div_ceil(threads));
    thread::scope(|scope| {
        let mover = (options.persisting == Persisting::Background).then(|| {
            scope.spawn(move || {
                while !has_ended.load(Ordering::Acquire) {
                    if tree.adapt_step(options.batch)? == 0 {
                        thread::sleep(PAUSE);
                    }
                }
                anyhow::Ok(())
            })
        });
        let run = in_threads(threads, |number| {
            let part = data.points.iter().zip(0..).skip(number * length).take(length);
            Ok(part.into_iter().try_for_each(|(rect, payload)| tree.insert(rect, payload))?)
        });
        has_ended.store(true, Ordering::Release);
        if let Some(mover) = mover {
            mover.join().map_err(|_| anyhow!("the thread that moves nodes has panicked"))??;
        }
        run
    })
}
