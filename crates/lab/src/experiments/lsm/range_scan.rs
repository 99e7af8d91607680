//! Long scans of the curve kinds, which are B-trees, beside those of a B-tree on an attribute.

use anyhow::{Context, Result};
use serde_json::json;
use terrane::{Condition, Explanation, IndexKind, Query, Snapshot, Store};

use super::{OBJECTS, Objects, POINT_KINDS, Source, create, warm_options};
use crate::experiments::Setup;
use crate::measure::{self, Pin};
use crate::report::{Bound, Emit, Table};

/// The stage of an explanation in which indexes are read.
const INDEX_SEARCH: &str = "index search";
/// Scans in each round.
const RUNS: usize = 5;
/// Index on the attribute.
const ATTRIBUTE: &str = "btree";

/// Scans a quarter of the attribute's values, and windows with about as many points.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let count = setup.count(100_000, 900_000);
    let objects = Objects::load(Source::Points, count, setup.options.seed)?;
    let folder = setup.pool_folder()?;
    let store = Store::open(folder.path(), warm_options(count))?;
    objects.import(&store, OBJECTS, objects.len())?;
    let dataset = store.dataset(OBJECTS)?;
    dataset.create_index(ATTRIBUTE, IndexKind::BTree, &["value"])?;
    for kind in POINT_KINDS {
        create(&dataset, kind)?;
    }
    let mut table = Table::new("lsm/range-scan", format!("Scans of a quarter of {count} entries"));
    table.note(format!(
        "time of the stage `{INDEX_SEARCH}` by entry read, with the sorting of keys; least of {} runs",
        RUNS * setup.rounds
    ));
    table.note("btree: a quarter of the values of an attribute; others: a window with a quarter of the points");
    let snapshot = dataset.snapshot();
    let window = quarter(&objects);
    let queries: Vec<(&str, Query)> = std::iter::once((ATTRIBUTE, Query::new().condition(below_a_quarter())))
        .chain(POINT_KINDS.map(|kind| (kind.name(), window.clone())))
        .collect();
    let pin = Pin::to_one_core()?;
    let mut subjects = queries.clone();
    let times = measure::alternate(RUNS * setup.rounds, &mut subjects, |(name, query)| {
        let explanation = explained(&snapshot, &query.clone().using_index(*name))?;
        let stage = explanation.stages.iter().find(|stage| stage.name == INDEX_SEARCH).context("no index was read")?;
        Ok(stage.time_ns as f64 / explanation.entries.max(1) as f64)
    })?;
    // Stages are reported in wall time. The least is the one that nothing else interrupted.
    let times = times.into_iter().map(|times| times.into_iter().fold(f64::INFINITY, f64::min));
    drop(pin);
    let params = json!({"count": count});
    for ((name, query), time) in queries.iter().zip(times) {
        let explanation = explained(&snapshot, &query.clone().using_index(*name))?;
        table.figure(name, &params, "entries read", explanation.entries as f64, "");
        table.figure(name, &params, "an entry", time, "ns");
    }
    for kind in [IndexKind::Dhb, IndexKind::Dhvb, IndexKind::Shb] {
        table.ratio_target(kind.name(), "an entry", ATTRIBUTE, Bound::AtMost(1.2));
    }
    table.ratios = Some((ATTRIBUTE.to_owned(), vec!["an entry"]));
    emit(table)
}

/// Values are spread evenly over 24 bits.
fn below_a_quarter() -> Condition {
    Condition::on("value").between(0, (1_i64 << 22) - 1)
}

/// A window between quantiles of the coordinates that holds about a quarter of the points.
fn quarter(objects: &Objects) -> Query {
    let sorted = |axis: fn((f64, f64)) -> f64| {
        let mut values: Vec<f64> = (0..objects.len()).map(|number| axis(objects.centre(number))).collect();
        values.sort_unstable_by(f64::total_cmp);
        values
    };
    let (x, y) = (sorted(|(x, _)| x), sorted(|(_, y)| y));
    let at = |values: &[f64], share: f64| values[((values.len() - 1) as f64 * share) as usize];
    Query::new().window(at(&x, 0.25), at(&y, 0.25), at(&x, 0.75), at(&y, 0.75))
}

fn explained(snapshot: &Snapshot, query: &Query) -> Result<Explanation> {
    let mut rows = snapshot.query(&query.clone().columns(["id"]))?;
    for batch in rows.by_ref() {
        drop(batch?);
    }
    Ok(rows.explanation())
}
