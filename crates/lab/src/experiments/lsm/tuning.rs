//! The number of cells in the levels of a grid (section 5.3.2, Figures 5.2 and 5.3).

use anyhow::{Context, Result};
use serde_json::json;
use terrane::{IndexKind, IndexOptions, Store};

use super::{OBJECTS, Objects, RADII, Source, circles, size_of_index, unknown_to_indexes, warm_options};
use crate::experiments::{Setup, medians};
use crate::measure::{self, Pin};
use crate::progress::progress;
use crate::report::{Emit, Table};

/// Levels, and the number of cells at the bottom as a power of two.
const SETTINGS: [(&str, &str); 7] = [
    ("h,h,h,h,l,l", "2^40"),
    ("l,l,m,m,m,h", "2^34"),
    ("l,l,l,l,h,h", "2^32"),
    ("l,l,l,l,h,m", "2^30"),
    ("l,l,l,l,m,m", "2^28"),
    ("l,l,l,l,l,m", "2^26"),
    ("l,l,l,l,l,l", "2^24"),
];

const BY_RADIUS: [&str; 5] = ["0.00001", "0.0001", "0.001", "0.01", "0.1"];

/// Builds shb with each setting on houses and on lakes.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    for source in [Source::Houses, Source::Lakes] {
        emit(measure(setup, source)?)?;
    }
    Ok(())
}

fn measure(setup: &Setup, source: Source) -> Result<Table> {
    let count = setup.count(20_000, 500_000);
    let queries = setup.options.queries.unwrap_or(50);
    let objects = Objects::load(source, count, setup.options.seed)?;
    let folder = setup.pool_folder()?;
    let store = Store::open(folder.path(), warm_options(count))?;
    objects.import(&store, OBJECTS, objects.len())?;
    let dataset = store.dataset(OBJECTS)?;
    let mut table = Table::new("lsm/grid", format!("Levels of the grid of shb on {count} {}", source.name()));
    table.note(format!(
        "selects with records, CPU of one by radius in degrees; median of {} alternating rounds",
        setup.rounds
    ));
    table.note("paper: 2^30 cells at the bottom are the best for both; the share of 2^30 is beside each radius");
    let params =
        |levels: &str| json!({"count": count, "objects": source.name(), "levels": levels, "seed": setup.options.seed});
    for (levels, cells) in SETTINGS {
        progress(&format!("shb with levels {levels} on {}", source.name()));
        let options = IndexOptions::default().domain(-180.0, -90.0, 180.0, 90.0);
        let options = options.levels(levels.parse().ok().context("no levels")?);
        let start = measure::process_cpu();
        dataset.create_index_with(cells, IndexKind::Shb, &[], &options)?;
        let creation = (measure::process_cpu() - start).as_nanos() as f64;
        let (bytes, entries) = size_of_index(&store, cells)?;
        let row = format!("{cells} ({levels})");
        let mut add = |metric, value, unit| {
            table.figure_in_row(&row, "shb", &params(levels), metric, value, unit);
        };
        add("an object", bytes as f64 / count as f64, "bytes/point");
        add("entries an object", entries as f64 / count as f64, "");
        add("creation", creation, "ns");
    }
    let snapshot = dataset.snapshot();
    for (radius, name) in RADII.into_iter().zip(BY_RADIUS) {
        let queries = if radius < 0.01 { queries } else { queries.div_ceil(10) };
        let set = circles(&objects, radius, queries, setup.options.seed);
        let mut settings = SETTINGS.to_vec();
        let pin = Pin::to_one_core()?;
        let times = medians(measure::alternate(setup.rounds, &mut settings, |(_, cells)| {
            let start = measure::thread_cpu();
            for query in &set {
                snapshot.count(&query.clone().using_index(*cells).condition(unknown_to_indexes()))?;
            }
            Ok((measure::thread_cpu() - start).as_nanos() as f64 / queries as f64)
        })?)?;
        drop(pin);
        for ((levels, cells), time) in SETTINGS.into_iter().zip(times) {
            table.figure_in_row(&format!("{cells} ({levels})"), "shb", &params(levels), name, time, "ns");
        }
    }
    table.ratios = Some(("2^30 (l,l,l,l,h,m)".to_owned(), BY_RADIUS.to_vec()));
    Ok(table)
}
