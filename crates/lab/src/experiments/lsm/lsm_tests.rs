use super::*;
use crate::experiments::Setup;
use crate::report::Table;

fn setup() -> Setup {
    let options = super::super::Options {
        count: Some(2000),
        full: false,
        fan_outs: Vec::new(),
        queries: Some(10),
        threads: Vec::new(),
        seconds: Some(0.02),
        selectivities: Vec::new(),
        split: None,
        file: None,
        seed: 42,
    };
    Setup { options, rounds: 1, dir: None }
}

/// The tables of an experiment.
fn tables(name: &str) -> Vec<Table> {
    let experiment = EXPERIMENTS.iter().find(|experiment| experiment.name == name).expect("an experiment");
    let mut tables = Vec::new();
    (experiment.run)(&setup(), &mut |table| {
        tables.push(table);
        Ok(())
    })
    .unwrap_or_else(|error| panic!("{name}: {error:#}"));
    assert!(tables.iter().all(|table| !table.figures.is_empty() && table.experiment == name));
    tables
}

fn value(tables: &[Table], row: &str, metric: &str) -> f64 {
    let figures = tables.iter().flat_map(|table| &table.figures);
    let mut found = figures.filter(|figure| figure.row == row && figure.metric == metric);
    found.next().map(|figure| figure.value).unwrap_or_else(|| panic!("{row} has no {metric}"))
}

#[test]
fn the_static_workload_of_points_measures_every_kind_with_the_figures_of_the_thesis() {
    let tables = tables("lsm/points");
    for kind in POINT_KINDS {
        assert!(value(&tables, kind.name(), "bytes") > 2000.0 * 8.0);
        let papers = tables.iter().flat_map(|table| &table.figures).filter(|figure| figure.row == kind.name());
        assert!(papers.filter(|figure| figure.paper.is_some()).count() >= 6, "{}", kind.name());
    }
    assert!(value(&tables, "sif", "entries an object") > 1.0);
    assert_eq!(value(&tables, "rtree", "entries an object"), 1.0);
    // The results do not depend on the kind.
    let hits = POINT_KINDS.map(|kind| value(&tables, &format!("{}, 0.1", kind.name()), "hits"));
    assert!(hits[0] > 0.0 && hits.iter().all(|found| *found == hits[0]), "{hits:?}");
}

#[test]
fn rectangles_are_squares_of_the_sizes_that_are_drawn() {
    let houses = Objects::load(Source::Houses, 2000, 1).unwrap();
    let lakes = Objects::load(Source::Lakes, 2000, 1).unwrap();
    let mean = |objects: &Objects| objects.areas_m2().iter().sum::<f64>() / objects.len() as f64;
    // 2000 square feet. For a density that falls with the fourth power, the mean is half above the
    // least.
    assert!((170.0..205.0).contains(&mean(&houses)), "{}", mean(&houses));
    assert!((1400.0..1700.0).contains(&mean(&lakes)), "{}", mean(&lakes));
    for name in ["lsm/houses", "lsm/lakes"] {
        let tables = tables(name);
        assert!(value(&tables, "shb", "entries an object") >= 1.0);
        let papers = tables.iter().flat_map(|table| &table.figures).filter(|figure| figure.paper.is_some());
        assert_eq!(papers.count(), 6, "{name}: size, its share and creation of both kinds");
    }
}

#[test]
fn ingestion_is_measured_alone_and_beside_queries() {
    let alone = tables("lsm/ingest");
    for kind in POINT_KINDS {
        assert!(value(&alone, kind.name(), "flushes") >= 1.0);
        assert!(value(&alone, kind.name(), "write amplification") >= 1.0);
    }
    let memory = tables("lsm/memory");
    assert!(value(&memory, "dhb, M1D7", "IPS") > 0.0);
    let both = tables("lsm/mixed");
    assert_eq!(both.len(), 4, "points by the index alone and with records, houses, lakes");
    for table in both.chunks(1) {
        let kinds = if table[0].title.contains("points") { &POINT_KINDS[..] } else { &RECTANGLE_KINDS };
        assert!(kinds.iter().all(|kind| value(table, kind.name(), "QPS rate 4") > 0.0));
        let papers = table[0].figures.iter().filter(|figure| figure.paper.is_some()).count();
        assert_eq!(papers, if kinds.len() == 5 { 20 } else { 0 });
    }
}

#[test]
fn partitions_and_records_like_tweets_are_ingested() {
    let partitions = tables("lsm/partitions");
    for kind in POINT_KINDS {
        (1..=4).for_each(|number| {
            let row = format!("{}, {number}", kind.name());
            assert!(value(&partitions, &row, "inserts a second") > 0.0, "{row}");
        });
    }
    let tweets = tables("lsm/tweets");
    assert!(value(&tweets, "tweets", "bytes written a record") > 1024.0, "they are in the log, at least");
    assert_eq!(tweets[0].targets.len(), 3);
}

#[test]
fn grids_and_scans_are_measured() {
    let grids = tables("lsm/grid");
    assert_eq!(grids.len(), 2);
    assert!(value(&grids, "2^40 (h,h,h,h,l,l)", "entries an object") >= 1.0);
    let scans = tables("lsm/range-scan");
    // A quarter of the values, and a window between quartiles.
    let read = value(&scans, "btree", "entries read");
    assert!((350.0..650.0).contains(&read), "{read}");
    assert!(value(&scans, "dhb", "entries read") > 100.0);
}
