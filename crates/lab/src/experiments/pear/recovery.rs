//! Time to rebuild inner nodes after a kill (section 6.6).

use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::json;
use terrane_pmtree::pear::{Options, PearTree};

use super::{ALL, Data, Grown, NAME, Pear, insert, pear, thread_counts, with_budget};
use crate::experiments::{Setup, medians};
use crate::measure;
use crate::progress::progress;
use crate::report::{Bound, Emit, Table};

/// Grows a tree with all inner nodes in memory, drops it as a kill does, and opens it again and
/// again.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let count = setup.count(100_000, 10_000_000);
    let mut table = Table::new("pear/recovery", format!("Rebuilding all inner nodes of {count} points after a kill"));
    table.note(format!("wall time, page cache, median of {} alternating runs", setup.rounds));
    table.note("paper: without parent pointers 1.72 x the time; 320 K nodes are rebuilt at 200 M entries");
    progress("growing");
    let data = Data::load(count, 1)?;
    let Grown { tree, storage, _folder } = pear(setup, &with_budget(ALL))?;
    insert(&tree, &data.points)?;
    drop(tree);
    let threads = thread_counts(setup, &[1, 2]);
    let mut shapes: Vec<(usize, bool)> =
        threads.iter().flat_map(|&threads| [true, false].map(|by_parents| (threads, by_parents))).collect();
    let runs = measure::alternate(setup.rounds, &mut shapes, |&mut (recovery_threads, recovers_by_parents)| {
        let open = |recovers_by_parents| -> Result<_> {
            let options = Options { recovery_threads, recovers_by_parents, ..with_budget(ALL) };
            let start = Instant::now();
            let tree: Pear = PearTree::open(&storage, NAME, &options)?;
            Ok((start.elapsed(), tree.recovery()))
        };
        let measured = open(recovers_by_parents)?;
        // Parent words name parents that insertions made, as far as grouping can tell.
        if !recovers_by_parents {
            open(true)?;
        }
        Ok(measured)
    })?;
    for ((threads, by_parents), runs) in shapes.iter().zip(runs) {
        let system = if *by_parents { "by parents" } else { "by place" };
        let row = format!("{system}, {threads}");
        let params = json!({"count": count, "threads": threads});
        let times = runs.iter().map(|(time, _)| time.as_nanos() as f64).collect();
        let time = medians(vec![times])?.remove(0);
        let (_, recovery) = runs.last().context("no rounds")?;
        table.figure_in_row(&row, system, &params, "open", time, "ns");
        table.figure_in_row(&row, system, &params, "nodes read", recovery.nodes_read as f64, "");
        table.figure_in_row(&row, system, &params, "nodes rebuilt", recovery.nodes_rebuilt as f64, "");
    }
    for threads in threads {
        let [by_parents, by_place] = ["by parents", "by place"].map(|system| format!("{system}, {threads}"));
        table.ratio_target(&by_parents, "open", &by_place, Bound::AtMost(0.75));
    }
    emit(table)
}
