//! The motivating query of the thesis (section 1.1): the rides picked up nearest to a drop-off, and
//! after it.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, TimestampMicrosecondType};
use serde_json::json;
use terrane_formats::{CoordinateOptions, ReadOptions};
use terrane_pmem::Native;
use terrane_pmtree::pmr::{self, PmrTree};
use terrane_pmtree::{NearestSearch, Rect};

use super::{ALL, DOMAIN, Grown, NAME, fbr, insert, pear, with_budget};
use crate::experiments::lsm::sample_file;
use crate::experiments::{Setup, medians};
use crate::measure::{self, Pin};
use crate::report::{Emit, Table};
use crate::workload::Points;

const FILE: &str = "sf_cab_rides_2008.parquet";
/// Rides in an answer.
const NEAREST: usize = 10;
/// Answers that are compared with a scan of all rides.
const COMPARED: usize = 100;

/// Rides, column by column.
#[derive(Default)]
struct Rides {
    picked_up: Vec<([f64; 2], i64)>,
    dropped_off: Vec<([f64; 2], i64)>,
}

/// Asks each tree for the rides after some.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let (mut rides, origin) = match sample_file(FILE) {
        Some(path) => (read(&path).with_context(|| path.display().to_string())?, FILE),
        None => (drawn(setup.count(100_000, 300_000))?, "drawn, as TERRANE_DATA names no folder with rides"),
    };
    if let Some(count) = setup.options.count {
        rides.picked_up.truncate(usize::try_from(count)?);
    }
    let boxes = rides.picked_up.iter().map(|(place, _)| Rect::point(*place));
    let boxes: Vec<Rect<2>> = boxes.collect::<terrane_pmtree::Result<_>>()?;
    let (count, queries) = (boxes.len(), setup.options.queries.unwrap_or(2000).min(boxes.len()));
    let mut table =
        Table::new("pear/rides", format!("The {NEAREST} rides picked up nearest to a drop-off, and after it"));
    table.note(format!("{count} rides: {origin}; {queries} queries, {COMPARED} answers are those of a scan"));
    table.note(format!("cpu: a query on the page cache, median of {} alternating runs", setup.rounds));
    let (in_pool, in_memory) = (pear(setup, &with_budget(super::NONE))?, pear(setup, &with_budget(ALL))?);
    let pmr = Grown::create(setup, |storage| PmrTree::<2, Native>::create(storage, NAME, &pmr::Options::new(DOMAIN)))?;
    let fbr = fbr(setup)?;
    let mut trees: [(&str, &dyn NearestSearch<2, Backend = Native>); 4] = [
        ("pear-tree", &in_pool.tree),
        ("pear-tree-in-memory", &in_memory.tree),
        ("pmr-tree", &pmr.tree),
        ("fbr-tree", &fbr.tree),
    ];
    for (_, tree) in trees {
        insert(tree, &boxes)?;
    }
    let _pin = Pin::to_one_core()?;
    let step = count / queries;
    let runs = measure::alternate(setup.rounds, &mut trees, |(name, tree)| {
        let start = measure::thread_cpu();
        let mut answers = Vec::new();
        for ride in (0..count).step_by(step).take(queries) {
            let found = nearest_after(&rides, *tree, ride)?;
            if answers.len() < COMPARED {
                answers.push((ride, found));
            }
        }
        let spent = measure::thread_cpu() - start;
        for (ride, found) in answers {
            ensure!(found == scan(&rides, ride), "{name} gives other rides than a scan after ride {ride}");
        }
        Ok(spent.as_nanos() as f64 / queries as f64)
    })?;
    for ((name, _), cpu) in trees.iter().zip(medians(runs)?) {
        table.figure(name, &json!({"rides": count, "queries": queries}), "cpu", cpu, "ns");
    }
    emit(table)
}

/// Squares of the distances of the rides after one, closest first.
fn nearest_after(rides: &Rides, tree: &dyn NearestSearch<2, Backend = Native>, ride: usize) -> Result<Vec<f64>> {
    let (place, time) = rides.dropped_off[ride];
    let is_later = |_: &Rect<2>, other: u64| rides.picked_up[other as usize].1 > time;
    Ok(tree.nearest(&place, NEAREST, &is_later)?.into_iter().map(|(distance, ..)| distance).collect())
}

fn scan(rides: &Rides, ride: usize) -> Vec<f64> {
    let (place, time) = rides.dropped_off[ride];
    let later = rides.picked_up.iter().filter(|(_, other)| *other > time);
    let mut distances: Vec<f64> =
        later.map(|(other, _)| (other[0] - place[0]).powi(2) + (other[1] - place[1]).powi(2)).collect();
    distances.sort_unstable_by(f64::total_cmp);
    distances.truncate(NEAREST);
    distances
}

fn read(path: &Path) -> Result<Rides> {
    let columns = ReadOptions {
        x: Some("pickup_lon".into()),
        y: Some("pickup_lat".into()),
        coordinates: CoordinateOptions::planar(),
        ..ReadOptions::default()
    };
    let mut source = terrane_formats::open(path, &columns)?;
    let mut rides = Rides::default();
    while let Some(batch) = source.next_batch()? {
        for (name, ends) in [("pickup", &mut rides.picked_up), ("dropoff", &mut rides.dropped_off)] {
            ends.extend(ends_of(&batch.batch, name)?);
        }
    }
    Ok(rides)
}

/// Places and times of the columns that begin with a name.
fn ends_of(batch: &RecordBatch, name: &str) -> Result<Vec<([f64; 2], i64)>> {
    let column = |part: &str| {
        let name = format!("{name}_{part}");
        batch.column_by_name(&name).with_context(|| format!("there is no column {name}"))
    };
    let number = |part: &str| {
        column(part)?.as_primitive_opt::<Float64Type>().with_context(|| format!("{name}_{part} is no float64"))
    };
    let times = column("ts")?.as_primitive_opt::<TimestampMicrosecondType>().context("times are no timestamps")?;
    let (x, y) = (number("lon")?, number("lat")?);
    Ok(x.values().iter().zip(y.values()).zip(times.values()).map(|((x, y), time)| ([*x, *y], *time)).collect())
}

/// Rides between random points, each until some later ones begin.
fn drawn(count: u64) -> Result<Rides> {
    const DURATION_US: i64 = 600_000_000;
    let points = Points::generate(usize::try_from(count)?)?;
    let place = |row: usize| [points.x[row], points.y[row]];
    let rows = 0..points.len();
    let picked_up = rows.clone().map(|row| (place(row), points.time_us[row])).collect();
    let dropped_off = rows.map(|row| (place(points.len() - 1 - row), points.time_us[row] + DURATION_US)).collect();
    Ok(Rides { picked_up, dropped_off })
}
