//! The static workload: one component of each index, selects and joins.

use anyhow::Result;
use serde_json::{Value, json};
use tempfile::TempDir;
use terrane::{IndexKind, Join, Query, Snapshot, Store};

use super::{
    FEWER, JOIN_SEEDS, OBJECTS, Objects, POINT_KINDS, RADII, RECTANGLE_KINDS, SEEDS, Source, check_same, circles,
    count_through, create, joins, size_of_index, unknown_to_indexes, warm_options,
};
use crate::experiments::{Setup, medians};
use crate::measure::{self, Pin};
use crate::progress::progress;
use crate::report::{Bound, Emit, Table};

/// Points (chapter 4).
pub fn points(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    run(setup, emit, Source::Points, "lsm/points", &POINT_KINDS)
}

/// Rectangles like houses (section 5.3.3).
pub fn houses(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    run(setup, emit, Source::Houses, "lsm/houses", &RECTANGLE_KINDS)
}

/// Rectangles like lakes (section 5.3.4).
pub fn lakes(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    run(setup, emit, Source::Lakes, "lsm/lakes", &RECTANGLE_KINDS)
}

/// The figures of the thesis for an index, as percentages of the R-tree: the summary of points
/// (Figure 4.23).
struct Paper {
    kind: IndexKind,
    size: f64,
    creation: f64,
    /// Index-only selects and joins, and others.
    selects: [f64; 2],
    joins: [f64; 2],
    /// Bytes of a point entry, from the sizes of Table 4.3.
    entry_bytes: f64,
    /// The most bytes of an entry here.
    entry_bytes_max: f64,
}

const PAPER: [Paper; 5] = [
    Paper {
        kind: IndexKind::RTree,
        size: 100.0,
        creation: 100.0,
        selects: [100.0, 100.0],
        joins: [100.0, 100.0],
        entry_bytes: 29.8,
        entry_bytes_max: 24.0,
    },
    Paper {
        kind: IndexKind::Dhb,
        size: 97.0,
        creation: 151.0,
        selects: [103.0, 100.0],
        joins: [113.0, 98.0],
        entry_bytes: 28.9,
        entry_bytes_max: 24.0,
    },
    Paper {
        kind: IndexKind::Dhvb,
        size: 125.0,
        creation: 106.0,
        selects: [103.0, 98.0],
        joins: [142.0, 100.0],
        entry_bytes: 37.3,
        entry_bytes_max: 28.0,
    },
    Paper {
        kind: IndexKind::Shb,
        size: 131.0,
        creation: 100.0,
        selects: [94.0, 97.0],
        joins: [88.0, 99.0],
        entry_bytes: 39.2,
        entry_bytes_max: 30.0,
    },
    Paper {
        kind: IndexKind::Sif,
        size: 741.0,
        creation: 273.0,
        selects: [152.0, 99.0],
        joins: [428.0, 207.0],
        entry_bytes: 221.0,
        entry_bytes_max: 120.0,
    },
];

/// The same for rectangles: bytes of an entry, size and creation as percentages of the R-tree's
/// (Tables 5.1 and 5.3).
const PAPER_RECTANGLES: [(Source, IndexKind, [f64; 3]); 4] = [
    (Source::Houses, IndexKind::RTree, [46.6, 100.0, 100.0]),
    (Source::Houses, IndexKind::Shb, [57.1, 122.6, 95.9]),
    (Source::Lakes, IndexKind::RTree, [46.6, 100.0, 100.0]),
    (Source::Lakes, IndexKind::Shb, [60.1, 128.8, 88.6]),
];

/// Names of the columns by radius.
const BY_RADIUS: [&str; 5] = ["0.00001", "0.0001", "0.001", "0.01", "0.1"];

/// A store with the objects and the seeds, and an index of each kind.
struct Loaded {
    objects: Objects,
    store: Store,
    kinds: &'static [IndexKind],
    experiment: &'static str,
    params: Value,
    seeds: i64,
    _folder: TempDir,
}

fn run(
    setup: &Setup,
    emit: &mut Emit<'_>,
    source: Source,
    experiment: &'static str,
    kinds: &'static [IndexKind],
) -> Result<()> {
    let count = setup.count(50_000, 900_000);
    progress(&format!("importing {count} {}", source.name()));
    let objects = Objects::load(source, count, setup.options.seed)?;
    let folder = setup.pool_folder()?;
    let store = Store::open(folder.path(), warm_options(count))?;
    objects.import(&store, OBJECTS, objects.len())?;
    let seeds = 10_000.min(objects.len() / 10);
    objects.import(&store, SEEDS, seeds)?;
    let params = json!({"count": count, "objects": source.name(), "seed": setup.options.seed});
    let loaded = Loaded { objects, store, kinds, experiment, params, seeds: seeds as i64, _folder: folder };
    emit(loaded.create_indexes(source)?)?;
    let queries = setup.options.queries.unwrap_or(1000);
    for index_only in [true, false] {
        // The boxes of rectangles do not decide, so their records are always read.
        if index_only && source != Source::Points {
            continue;
        }
        progress(if index_only { "index-only selects" } else { "selects with records" });
        emit(loaded.selects(setup, queries, index_only)?)?;
        progress(if index_only { "index-only joins" } else { "joins with records" });
        emit(loaded.joins(setup, queries.div_ceil(10), index_only)?)?;
    }
    progress("what selects and joins visit");
    emit(loaded.visits(queries.min(20), source)?)
}

impl Loaded {
    /// The common parameters of all figures, and additional ones.
    fn params_with(&self, more: Value) -> Value {
        let mut params = self.params.clone();
        for (name, value) in more.as_object().into_iter().flatten() {
            params[name] = value.clone();
        }
        params
    }

    fn table(&self, title: String) -> Table {
        Table::new(self.experiment, title)
    }

    /// Creates each index, one after the other, and reports their sizes.
    fn create_indexes(&self, source: Source) -> Result<Table> {
        let count = self.objects.len() as f64;
        let mut table = self.table(format!("Indexes of {} {}", self.objects.len(), source.name()));
        table.note(format!("centres: {}; paper: 1.6 billion, Tables 4.3, 5.1 and 5.3", self.objects.origin));
        table.note("creation from the records there are, CPU of all threads; size and creation % are of rtree");
        let dataset = self.store.dataset(OBJECTS)?;
        let mut base = None;
        for &kind in self.kinds {
            progress(&format!("creating {}", kind.name()));
            let start = measure::process_cpu();
            create(&dataset, kind)?;
            let creation = (measure::process_cpu() - start).as_nanos() as f64;
            let (bytes, entries) = size_of_index(&self.store, kind.name())?;
            let (bytes, entries) = (bytes as f64, entries as f64);
            let (base_bytes, base_creation) = *base.get_or_insert((bytes, creation));
            let name = kind.name();
            let of_points = PAPER.iter().find(|paper| paper.kind == kind && source == Source::Points);
            let paper = match of_points {
                Some(paper) => Some([paper.entry_bytes, paper.size, paper.creation]),
                None => PAPER_RECTANGLES.iter().find(|paper| (paper.0, paper.1) == (source, kind)).map(|paper| paper.2),
            };
            let mut add = |metric, value, unit, paper: Option<f64>| {
                let figure = table.figure(name, &self.params, metric, value, unit);
                if let Some(paper) = paper {
                    figure.paper(paper);
                }
            };
            let entries_paper = of_points.map(|_| if kind == IndexKind::Sif { 6.0 } else { 1.0 });
            add("bytes", bytes, "bytes", None);
            add("an object", bytes / count, "bytes/point", paper.map(|[bytes, ..]| bytes));
            add("entries an object", entries / count, "", entries_paper);
            add("size %", 100.0 * bytes / base_bytes, "%", paper.map(|[_, size, _]| size));
            add("creation", creation, "ns", None);
            add("creation %", 100.0 * creation / base_creation, "%", paper.map(|[.., creation]| creation));
            if let Some(paper) = of_points {
                table.target(name, "an object", Bound::AtMost(paper.entry_bytes_max), "bytes/point");
            }
        }
        Ok(table)
    }

    /// Circle selects of each radius through each index.
    fn selects(&self, setup: &Setup, queries: usize, index_only: bool) -> Result<Table> {
        let mode = if index_only { "index-only" } else { "with records" };
        let mut table = self.table(format!("Circle selects, {mode}: CPU of one, by radius in degrees"));
        table.note(format!(
            "{queries} queries of each radius, in memory; median of {} alternating rounds",
            setup.rounds
        ));
        let snapshot = self.store.dataset(OBJECTS)?.snapshot();
        let sets: Vec<Vec<Query>> = (0..5)
            .map(|number| circles(&self.objects, RADII[number], at_radius(queries, number), setup.options.seed))
            .collect();
        let times = self.times(setup, &sets, &mut |kind, set| count_through(&snapshot, set, kind, index_only))?;
        let params = self.params_with(json!({"operation": "select", "index_only": index_only, "queries": queries}));
        self.add_times(&mut table, &params, &times, queries, |paper| paper.selects[usize::from(!index_only)]);
        if index_only {
            // Rows of radii, so that each can have its target.
            for (radius, name) in BY_RADIUS.into_iter().enumerate() {
                let fastest = times.iter().map(|of_kind| of_kind[radius]).fold(f64::INFINITY, f64::min);
                let row = format!("rtree at {name}");
                let mut params = params.clone();
                params["radius"] = json!(RADII[radius]);
                table.figure_in_row(&row, "rtree", &params, "to fastest", times[0][radius] / fastest, "x");
                table.target(&row, "to fastest", Bound::AtMost(1.03), "x");
            }
        }
        Ok(table)
    }

    /// Joins of each radius but the last through each index.
    fn joins(&self, setup: &Setup, queries: usize, index_only: bool) -> Result<Table> {
        let mode = if index_only { "index-only" } else { "with records" };
        let mut table = self.table(format!("Joins of {JOIN_SEEDS} seeds, {mode}: CPU of one, by radius in degrees"));
        table.note(format!(
            "{queries} joins of the smallest radius to {} of the largest, in memory; median of {} alternating rounds",
            at_radius(queries, 3),
            setup.rounds
        ));
        let (outer, inner) = self.store.dataset(SEEDS)?.snapshot_with(&self.store.dataset(OBJECTS)?)?;
        let times = self.times(setup, &[0, 1, 2, 3], &mut |kind, number: &usize| {
            let queries = at_radius(queries, *number);
            let joins = joins(self.seeds, RADII[*number], queries, setup.options.seed, index_only, kind);
            count_pairs(&outer, &inner, &joins)
        })?;
        let params = json!({"operation": "join", "index_only": index_only, "queries": queries, "seeds": JOIN_SEEDS});
        let params = self.params_with(params);
        self.add_times(&mut table, &params, &times, queries, |paper| paper.joins[usize::from(!index_only)]);
        Ok(table)
    }

    /// Times of each kind for each set. The answers must be the same.
    fn times<S>(
        &self,
        setup: &Setup,
        sets: &[S],
        run: &mut dyn FnMut(IndexKind, &S) -> Result<u64>,
    ) -> Result<Vec<Vec<f64>>> {
        let mut times = vec![Vec::new(); self.kinds.len()];
        for set in sets {
            let warm: Result<Vec<u64>> = self.kinds.iter().map(|kind| run(*kind, set)).collect();
            check_same(&warm?, "a set of queries")?;
            let pin = Pin::to_one_core()?;
            let mut kinds = self.kinds.to_vec();
            let of_set = medians(measure::alternate(setup.rounds, &mut kinds, |kind| {
                let start = measure::thread_cpu();
                run(*kind, set)?;
                Ok((measure::thread_cpu() - start).as_nanos() as f64)
            })?)?;
            drop(pin);
            times.iter_mut().zip(of_set).for_each(|(times, time)| times.push(time));
        }
        Ok(times)
    }

    fn add_times(
        &self,
        table: &mut Table,
        params: &Value,
        times: &[Vec<f64>],
        queries: usize,
        paper: impl Fn(&Paper) -> f64,
    ) {
        for (kind, of_kind) in self.kinds.iter().zip(times) {
            let name = kind.name();
            for (number, time) in of_kind.iter().enumerate() {
                let queries = at_radius(queries, number) as f64;
                table.figure(name, params, BY_RADIUS[number], time / queries, "ns");
            }
            let shares = of_kind.iter().zip(&times[0]).map(|(time, base)| 100.0 * time / base);
            let mean = shares.sum::<f64>() / of_kind.len() as f64;
            let figure = table.figure(name, params, "% of rtree", mean, "%");
            let known = PAPER.iter().find(|paper| paper.kind == *kind && self.kinds.len() == PAPER.len());
            if let Some(known) = known {
                figure.paper(paper(known));
            }
        }
        table.ratios = Some(("rtree".to_owned(), BY_RADIUS.to_vec()));
    }

    /// Pages visited and false positives of selects and joins.
    fn visits(&self, queries: usize, source: Source) -> Result<Table> {
        let mut table = self.table("Pages that a select or join visits in the index, and false positives".to_owned());
        table.note(format!(
            "means of selects ({queries}; 5 of the largest) and of a join of {JOIN_SEEDS} seeds, by radius in degrees"
        ));
        table.note("false positives: candidates that the exact condition refuses, of all candidates");
        let snapshot = self.store.dataset(OBJECTS)?.snapshot();
        let seeds = self.store.dataset(SEEDS)?.snapshot();
        for kind in self.kinds {
            for (radius, name) in RADII.iter().zip(BY_RADIUS) {
                let queries = if *radius < 0.1 { queries } else { queries.min(5) };
                let selects = circles(&self.objects, *radius, queries, 7);
                let (pages, candidates, matches) = explained_selects(&snapshot, &selects, *kind)?;
                let row = format!("{}, {name}", kind.name());
                let params = self.params_with(json!({"radius": radius, "queries": queries}));
                let mut add = |metric, value, unit| {
                    table.figure_in_row(&row, kind.name(), &params, metric, value, unit);
                };
                add("pages of a select", pages as f64 / queries as f64, "");
                add("false positives %", 100.0 * (candidates - matches) as f64 / candidates.max(1) as f64, "%");
                add("hits", matches as f64 / queries as f64, "");
                if *radius < 0.1 {
                    let join = joins(self.seeds, *radius, 1, 7, source == Source::Points, *kind).remove(0);
                    let (pairs, explanation) = seeds.count_join_explained(&snapshot, &join)?;
                    add("pages of a join", explanation.inner.pages_visited as f64, "");
                    add("pairs", pairs as f64, "");
                }
            }
        }
        Ok(table)
    }
}

/// Number of queries for a radius.
fn at_radius(queries: usize, number: usize) -> usize {
    (queries / FEWER[number]).max(1)
}

fn count_pairs(outer: &Snapshot, inner: &Snapshot, joins: &[Join]) -> Result<u64> {
    joins.iter().try_fold(0, |pairs, join| Ok(pairs + outer.count_join(inner, join)?))
}

/// Pages visited, candidates and matches of selects.
fn explained_selects(snapshot: &Snapshot, selects: &[Query], kind: IndexKind) -> Result<(u64, u64, u64)> {
    let mut sums = (0, 0, 0);
    for select in selects {
        let query = select.clone().using_index(kind.name()).columns(["id"]).condition(unknown_to_indexes());
        let mut rows = snapshot.query(&query)?;
        for batch in rows.by_ref() {
            drop(batch?);
        }
        let explanation = rows.explanation();
        sums.0 += explanation.pages_visited;
        sums.1 += explanation.candidates;
        sums.2 += explanation.matches;
    }
    Ok(sums)
}
