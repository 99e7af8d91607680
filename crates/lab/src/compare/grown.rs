//! Indexes that grow entry by entry: the cost of an insertion, and the quality of the resulting
//! tree.

use anyhow::{Context, Result};
use serde_json::json;

use super::queries::{HITS, Instance, NEIGHBOURS, compare, fill};
use super::{Emit, Laboratory, describe, progress};
use crate::measure::{self, Pin};
use crate::neighbours::NeighbourTree;
use crate::report::{Bound, Table};
use crate::system::{Role, System};
use crate::workload;

/// The system whose targets are judged: the tree with its defaults. Its other form is shown beside
/// it.
const FBR_TREE: &str = "fbr-tree";
/// The PeaR-Tree without nodes in memory, and with all inner nodes there.
const PEAR_TREE: &str = "pear-tree";
const PEAR_TREE_IN_MEMORY: &str = "pear-tree-in-memory";
/// The figures of every tree are divided by those of this system.
const BASELINE: &str = "rstar-dynamic";
/// A tree that was packed at once. It is searched faster than a grown one.
const PACKED: &str = "rstar";

/// Grows each tree once per round, and asks those of the last round.
pub fn run(laboratory: &Laboratory, emit: &mut Emit<'_>) -> Result<()> {
    let mut subjects: Vec<(&dyn System, Option<Instance>)> =
        laboratory.with_role(Role::Grown).map(|system| (system, None)).collect();
    if subjects.is_empty() {
        return Ok(());
    }
    let points = laboratory.points()?;
    let parts = [points.clone()];
    progress("growing trees entry by entry");
    let pin = Pin::to_one_core()?;
    let grown = measure::alternate(laboratory.rounds, &mut subjects, |(system, instance)| {
        // The tree of the previous round is dropped before the next one takes memory.
        *instance = None;
        let folder = laboratory.folder()?;
        let start = measure::thread_cpu();
        let reader = system.build(&parts, folder.path())?;
        let spent = measure::thread_cpu() - start;
        let name = system.name();
        *instance = Some(Instance { row: name.to_owned(), system: name, components: 1, reader, _folder: folder });
        Ok(spent.as_nanos() as f64 / points.len() as f64)
    })?;
    drop(pin);

    let mut table = Table::new("grown", "Trees that grow entry by entry: CPU per insertion");
    table.note(format!("{} points by one thread, median of {} alternating runs", points.len(), laboratory.rounds));
    describe(&mut table, laboratory.with_role(Role::Grown));
    table.ratios = Some((BASELINE.to_owned(), vec!["cpu"]));
    let params = json!({"points": points.len()});
    for ((system, instance), mut rounds) in subjects.iter().zip(grown) {
        let cpu = measure::median(&mut rounds).context("no rounds")?;
        table.figure(system.name(), &params, "cpu", cpu, "ns");
        if let Some(instance) = instance {
            let bytes: u64 = instance.reader.footprint()?.iter().map(|(_, bytes)| bytes).sum();
            table.figure(system.name(), &params, "bytes per point", bytes as f64 / points.len() as f64, "B");
        }
    }
    table.ratio_target(FBR_TREE, "cpu", BASELINE, Bound::AtMost(1.5));
    table.ratio_target(PEAR_TREE, "cpu", BASELINE, Bound::AtMost(1.0));
    table.ratio_target(PEAR_TREE, "cpu", FBR_TREE, Bound::AtMost(0.8));
    table.ratio_target(PEAR_TREE_IN_MEMORY, "cpu", BASELINE, Bound::AtMost(0.7));
    emit(table)?;

    let mut instances: Vec<Instance> = subjects.into_iter().filter_map(|(_, instance)| instance).collect();
    for system in laboratory.with_role(Role::Packed) {
        let (name, folder) = (system.name(), laboratory.folder()?);
        let reader = system.build(&parts, folder.path())?;
        instances.push(Instance { row: name.to_owned(), system: name, components: 1, reader, _folder: folder });
    }
    let tree = NeighbourTree::new(points);
    let count = workload::query_count(points.len());
    for hits in HITS {
        let queries = workload::windows(points, &tree, hits, count)?;
        let values =
            compare(laboratory, &mut instances, &queries, |reader, window, visit| reader.window(window, visit))?;
        let title = format!("Windows of {hits} hits in trees that grew entry by entry: CPU per window");
        let mut table = Table::new("grown", title);
        let params = json!({"points": points.len(), "hits": hits, "queries": count});
        fill(&mut table, &instances, &params, values, laboratory, BASELINE);
        table.ratio_target(FBR_TREE, "cpu", BASELINE, Bound::AtMost(1.0));
        table.ratio_target(PEAR_TREE, "cpu", FBR_TREE, Bound::AtMost(0.7));
        table.ratio_target(PEAR_TREE, "cpu", PACKED, Bound::AtMost(1.0));
        emit(table)?;
    }
    let queries = workload::nearest(points, &tree, NEIGHBOURS, count)?;
    let values =
        compare(laboratory, &mut instances, &queries, |reader, from, visit| reader.nearest(*from, NEIGHBOURS, visit))?;
    let title = format!("Nearest {NEIGHBOURS} in trees that grew entry by entry: CPU per query");
    let mut table = Table::new("grown", title);
    let params = json!({"points": points.len(), "k": NEIGHBOURS, "queries": count});
    fill(&mut table, &instances, &params, values, laboratory, BASELINE);
    emit(table)
}
