//! Adaptive persistence: the budget against insertion, windows and recovery (section 6.4).

use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::json;
use terrane_pmtree::pear::{Budget, PearTree};

use super::{ALL, Data, NAME, NONE, Pear, insert, pear, with_budget};
use crate::experiments::{Setup, medians};
use crate::measure::{self, Pin};
use crate::progress::progress;
use crate::report::{Emit, Table};

const MIB: f64 = (1 << 20) as f64;
/// Budgets in MiB. Those are left out that hold all inner nodes.
const SIZES_MIB: [f64; 7] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0];

/// Measures each budget.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let count = setup.count(100_000, 1_000_000);
    let data = Data::load(count, setup.options.queries.unwrap_or(10_000))?;
    let mut budgets = budgets(setup, &data)?;
    let mut table = Table::new("pear/budgets", format!("Budgets for inner nodes in memory, {count} points"));
    table.note(format!("cpu: an operation of one thread, page cache, median of {} alternating runs", setup.rounds));
    table.note("read, rebuilt: nodes at the opening after a kill; open: its wall time with all processors");
    table.note("paper, 200 M entries: insertion +6 % from 0 to 390 MiB, +7 to 8 % from 3 to 5 levels; windows +6 %");
    let pin = Pin::to_one_core()?;
    let runs = measure::alternate(setup.rounds, &mut budgets, |(name, budget)| {
        progress(name);
        measure(setup, &data, *budget)
    })?;
    drop(pin);
    for ((name, budget), runs) in budgets.iter().zip(runs) {
        let of = |part: usize| runs.iter().map(|figures| figures[part]).collect::<Vec<f64>>();
        let figures = medians((0..7).map(of).collect())?;
        let params = json!({"count": count, "budget": name});
        let metrics = [
            ("insertion cpu", "ns"),
            ("window cpu", "ns"),
            ("nodes in memory", ""),
            ("MiB", ""),
            ("read", ""),
            ("rebuilt", ""),
            ("open", "ns"),
        ];
        for ((metric, unit), value) in metrics.into_iter().zip(&figures) {
            table.figure_in_row(name, "pear-tree", &params, metric, *value, unit);
        }
        if let Budget::Nodes(most) = budget {
            ensure!(figures[2] <= *most as f64, "{name} has {} nodes in memory", figures[2]);
        }
    }
    emit(table)
}

/// No nodes, levels, sizes, all nodes.
fn budgets(setup: &Setup, data: &Data) -> Result<Vec<(String, Budget)>> {
    let mut whole = pear(setup, &with_budget(ALL))?;
    insert(&whole.tree, &data.points)?;
    let nodes = whole.tree.volatile_nodes();
    let of_node = whole.tree.memory_bytes() as f64 / nodes as f64;
    let height = whole.tree.check()?.height;
    let levels = (1..height).map(|levels| (format!("{levels} levels"), Budget::Levels(levels)));
    let sizes = SIZES_MIB.into_iter().map(|mib| (format!("{mib} MiB"), Budget::Nodes((mib * MIB / of_node) as u64)));
    let sizes = sizes.filter(|(_, budget)| matches!(budget, Budget::Nodes(most) if *most < nodes));
    let none = [("none".to_owned(), NONE)];
    Ok(none.into_iter().chain(levels).chain(sizes).chain([("all".to_owned(), ALL)]).collect())
}

fn measure(setup: &Setup, data: &Data, budget: Budget) -> Result<[f64; 7]> {
    let options = with_budget(budget);
    let grown = pear(setup, &options)?;
    let insertion = insert(&grown.tree, &data.points)?;
    if let Budget::Nodes(most) = budget {
        let nodes = grown.tree.volatile_nodes_max();
        ensure!(nodes <= most, "there were {nodes} nodes in memory, and the budget is {most}");
    }
    let window = data.ask(&grown.tree, true)?;
    let (nodes, bytes) = (grown.tree.volatile_nodes(), grown.tree.memory_bytes());
    let super::Grown { tree, storage, _folder } = grown;
    // As a kill does.
    drop(tree);
    let start = Instant::now();
    let tree: Pear = PearTree::open(&storage, NAME, &options)?;
    let open = start.elapsed();
    let recovery = tree.recovery();
    let counts = [nodes as f64, bytes as f64 / MIB, recovery.nodes_read as f64, recovery.nodes_rebuilt as f64];
    let [nodes, mib, read, rebuilt] = counts;
    Ok([insertion, window, nodes, mib, read, rebuilt, open.as_nanos() as f64])
}
