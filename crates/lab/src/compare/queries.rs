//! Windows and nearest neighbours: CPU time of one pinned core, everything warm.

use anyhow::{Result, ensure};
use serde_json::json;
use tempfile::TempDir;

use super::{Emit, Laboratory, TERRANE, describe, progress};
use crate::measure::{self, Pin};
use crate::neighbours::NeighbourTree;
use crate::report::{Bound, Table};
use crate::system::{Reader, Role, Visitor};
use crate::workload::{self, Points, Queries};

pub(super) const HITS: [usize; 2] = [10, 100];
pub(super) const NEIGHBOURS: usize = 10;
const COMPONENTS: usize = 5;
/// The figures of every system are divided by those of this system.
const BASELINE: &str = "geo-index";

pub(super) struct Instance {
    pub row: String,
    pub system: &'static str,
    pub components: usize,
    pub reader: Box<dyn Reader>,
    /// Holds the instance's files as long as it is read.
    pub _folder: TempDir,
}

/// Runs the window queries, the nearest queries, or both.
pub fn run(laboratory: &Laboratory, windows: bool, nearest: bool, emit: &mut Emit<'_>) -> Result<()> {
    let points = laboratory.points()?;
    progress("generating queries with the reference answers");
    let tree = NeighbourTree::new(points);
    let count = workload::query_count(points.len());
    let mut window_sets = Vec::new();
    if windows {
        for hits in HITS {
            window_sets.push((hits, workload::windows(points, &tree, hits, count)?));
        }
    }
    let nearest_set = if nearest { Some(workload::nearest(points, &tree, NEIGHBOURS, count)?) } else { None };
    drop(tree);

    let mut compact = build(laboratory, points, 1)?;
    let mut measure = |instances: &mut Vec<Instance>, role: Role| -> Result<()> {
        let layout = match role {
            Role::FiveComponents => "five components, each a random fifth",
            _ => "in one piece",
        };
        // Five components are compared with geo-index in one piece, in the issue and here.
        let limits = match role {
            Role::FiveComponents => (Some(2.5), None),
            _ => (Some(1.0), Some(0.5)),
        };
        for (hits, queries) in &window_sets {
            let title = format!("Windows of {hits} hits, {layout}: CPU per window");
            let mut table = Table::new("windows", title);
            let params = json!({"points": points.len(), "hits": hits, "queries": count});
            let values = compare(laboratory, instances, queries, |reader, window, visit| reader.window(window, visit))?;
            fill(&mut table, instances, &params, values, laboratory, BASELINE);
            aim(&mut table, instances, limits.0);
            describe(&mut table, laboratory.with_role(role));
            emit(table)?;
        }
        if let Some(queries) = &nearest_set {
            let title = format!("Nearest {NEIGHBOURS}, {layout}: CPU per query");
            let mut table = Table::new("nearest", title);
            let params = json!({"points": points.len(), "k": NEIGHBOURS, "queries": count});
            let values = compare(laboratory, instances, queries, |reader, from, visit| {
                reader.nearest(*from, NEIGHBOURS, visit)
            })?;
            fill(&mut table, instances, &params, values, laboratory, BASELINE);
            aim(&mut table, instances, limits.1);
            describe(&mut table, laboratory.with_role(role));
            emit(table)?;
        }
        Ok(())
    };
    measure(&mut compact, Role::Queries)?;

    let mut live = build(laboratory, points, COMPONENTS)?;
    if live.is_empty() {
        return Ok(());
    }
    live.extend(compact.into_iter().filter(|instance| instance.row == BASELINE));
    measure(&mut live, Role::FiveComponents)
}

fn build(laboratory: &Laboratory, points: &Points, components: usize) -> Result<Vec<Instance>> {
    let role = if components == 1 { Role::Queries } else { Role::FiveComponents };
    let parts = if components == 1 { vec![points.clone()] } else { points.deal(components) };
    laboratory
        .with_role(role)
        .map(|system| {
            let name = system.name();
            progress(&format!("building {name} in {components} component(s)"));
            let folder = laboratory.folder()?;
            let row = if components == 1 { name.to_owned() } else { format!("{name}, {components} components") };
            Ok(Instance {
                row,
                system: name,
                components,
                reader: system.build(&parts, folder.path())?,
                _folder: folder,
            })
        })
        .collect()
}

fn id_sum<Q>(
    reader: &dyn Reader,
    query: &Q,
    ask: &impl Fn(&dyn Reader, &Q, &mut Visitor<'_>) -> Result<()>,
) -> Result<u64> {
    let mut sum = 0_u64;
    ask(reader, query, &mut |id| sum = sum.wrapping_add(id as u64))?;
    Ok(sum)
}

/// Fails at the first answer whose id-sum differs from the reference's.
pub(super) fn check_answers<Q: std::fmt::Debug>(
    row: &str,
    reader: &dyn Reader,
    queries: &Queries<Q>,
    ask: &impl Fn(&dyn Reader, &Q, &mut Visitor<'_>) -> Result<()>,
) -> Result<()> {
    for (query, &expected) in queries.queries.iter().zip(&queries.id_sums) {
        let found = id_sum(reader, query, ask)?;
        ensure!(found == expected, "{row} answers {query:?} with an id-sum of {found}, the reference with {expected}");
    }
    Ok(())
}

/// Checks every answer of every instance, then measures; nanoseconds of CPU per query by instance
/// and round.
pub(super) fn compare<Q: std::fmt::Debug>(
    laboratory: &Laboratory,
    instances: &mut [Instance],
    queries: &Queries<Q>,
    ask: impl Fn(&dyn Reader, &Q, &mut Visitor<'_>) -> Result<()>,
) -> Result<Vec<Vec<f64>>> {
    for instance in instances.iter() {
        check_answers(&instance.row, instance.reader.as_ref(), queries, &ask)?;
    }
    let total = queries.id_sums.iter().fold(0_u64, |sum, &one| sum.wrapping_add(one));
    let _pin = Pin::to_one_core()?;
    measure::alternate(laboratory.rounds, instances, |instance| {
        let reader = instance.reader.as_ref();
        let start = measure::thread_cpu();
        let mut sum = 0_u64;
        for query in &queries.queries {
            ask(reader, query, &mut |id| sum = sum.wrapping_add(id as u64))?;
        }
        let spent = measure::thread_cpu() - start;
        ensure!(sum == total, "{}: answers changed between runs", instance.row);
        Ok(spent.as_nanos() as f64 / queries.queries.len() as f64)
    })
}

pub(super) fn fill(
    table: &mut Table,
    instances: &[Instance],
    params: &serde_json::Value,
    values: Vec<Vec<f64>>,
    laboratory: &Laboratory,
    baseline: &str,
) {
    table.note(format!(
        "{} queries, median of {} alternating runs, all id-sums equal the reference's",
        params["queries"], laboratory.rounds
    ));
    table.ratios = Some((baseline.to_owned(), vec!["cpu"]));
    for (instance, mut rounds) in instances.iter().zip(values) {
        let mut params = params.clone();
        params["components"] = json!(instance.components);
        let fastest = rounds.iter().copied().fold(f64::INFINITY, f64::min);
        if let Some(median) = measure::median(&mut rounds) {
            let (row, system) = (&instance.row, instance.system);
            table.figure_in_row(row, system, &params, "cpu", median, "ns");
            table.figure_in_row(row, system, &params, "fastest run", fastest, "ns");
        }
    }
}

/// States the target for Terrane's CPU time, relative to the baseline's.
fn aim(table: &mut Table, instances: &[Instance], limit: Option<f64>) {
    let row = instances.iter().find(|instance| instance.system == TERRANE).map_or(TERRANE, |instance| &instance.row);
    if let Some(limit) = limit {
        table.ratio_target(row, "cpu", BASELINE, Bound::AtMost(limit));
    }
}
