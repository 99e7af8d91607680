//! The evaluation of LSM spatial indexes (Kim 2016, chapters 4 and 5), on one store of this
//! machine.
//!
//! Datasets are planar with coordinates in degrees, as in the thesis. Work that is bound to memory
//! is timed by the CPU time of a pinned thread, with everything in the page cache. The median of
//! alternating rounds counts.

mod concurrent;
mod data;
mod ingest;
mod range_scan;
mod statics;
mod tuning;
mod tweets;

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use terrane::{Condition, Dataset, Durability, IndexKind, IndexOptions, Join, JoinOn, Options, Query, Snapshot, Store};

use super::Experiment;
pub(super) use data::{Objects, Source, sample_file};

/// The experiments.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "lsm/points",
        description: "static workload of points: sizes, creation, circle selects and joins of the five spatial kinds",
        takes: &["rounds", "dir", "count", "full", "queries", "seed"],
        run: statics::points,
    },
    Experiment {
        name: "lsm/houses",
        description: "static workload of rectangles like houses: rtree and shb",
        takes: &["rounds", "dir", "count", "full", "queries", "seed"],
        run: statics::houses,
    },
    Experiment {
        name: "lsm/lakes",
        description: "static workload of rectangles like lakes: rtree and shb",
        takes: &["rounds", "dir", "count", "full", "queries", "seed"],
        run: statics::lakes,
    },
    Experiment {
        name: "lsm/ingest",
        description: "dynamic workload 1: inserts a second, write amplification, flushes and merges of each kind",
        takes: &["rounds", "dir", "count", "full"],
        run: ingest::run,
    },
    Experiment {
        name: "lsm/partitions",
        description: "dynamic workload 1 of each kind with 1 to 4 partitions and as many clients",
        takes: &["rounds", "dir", "count", "full"],
        run: ingest::partitions,
    },
    Experiment {
        name: "lsm/tweets",
        description: "records of a kilobyte into three indexes and two partitions, beside small queries",
        takes: &["rounds", "dir", "count", "full", "seed"],
        run: tweets::run,
    },
    Experiment {
        name: "lsm/mixed",
        description: "dynamic workload 2: inserts and circle selects at once, of points and rectangles, at four rates",
        takes: &["rounds", "dir", "full", "seconds", "seed"],
        run: concurrent::rates,
    },
    Experiment {
        name: "lsm/memory",
        description: "dynamic workloads 1 and 2 under the memory budgets M1D1 to M2D3",
        takes: &["dir", "count", "full", "seconds", "seed"],
        run: concurrent::memory,
    },
    Experiment {
        name: "lsm/grid",
        description: "levels of the grid of shb on houses and lakes: size, creation, entries, selects",
        takes: &["rounds", "dir", "count", "full", "queries", "seed"],
        run: tuning::run,
    },
    Experiment {
        name: "lsm/range-scan",
        description: "long scans of the curve kinds beside those of a btree on an attribute, by entry",
        takes: &["rounds", "dir", "count", "full"],
        run: range_scan::run,
    },
];

/// The kinds that hold points.
const POINT_KINDS: [IndexKind; 5] = [IndexKind::RTree, IndexKind::Dhb, IndexKind::Dhvb, IndexKind::Shb, IndexKind::Sif];
/// The kinds that hold rectangles.
const RECTANGLE_KINDS: [IndexKind; 2] = [IndexKind::RTree, IndexKind::Shb];

/// Radii of selects and joins in degrees; joins leave out the last.
const RADII: [f64; 5] = [0.00001, 0.0001, 0.001, 0.01, 0.1];

/// Divisors for the number of queries at each radius, since larger radii find many more objects.
const FEWER: [usize; 5] = [1, 1, 2, 10, 50];

/// Name of the dataset of objects.
const OBJECTS: &str = "objects";
/// Name of the dataset of seeds, from which the outer sides of joins come.
const SEEDS: &str = "seeds";
/// Seeds that a join has on its outer side.
const JOIN_SEEDS: i64 = 100;

/// Options that keep everything in memory that was read once.
fn warm_options(count: u64) -> Options {
    let memory_limit = (256 << 20).max(usize::try_from(count).unwrap_or(usize::MAX / 2048) * 1024);
    Options { memory_limit, durability: Some(Durability::None), background: false, ..Options::default() }
}

/// Options of an index of a kind over degrees.
fn index_options(kind: IndexKind) -> IndexOptions {
    match kind {
        IndexKind::Shb | IndexKind::Sif => IndexOptions::default().domain(-180.0, -90.0, 180.0, 90.0),
        _ => IndexOptions::default(),
    }
}

/// Creates an index that bears the name of its kind.
fn create(dataset: &Dataset, kind: IndexKind) -> Result<()> {
    Ok(dataset.create_index_with(kind.name(), kind, &[], &index_options(kind))?)
}

/// Bytes and entries of an index.
fn size_of_index(store: &Store, name: &str) -> Result<(u64, u64)> {
    let info = store.info()?;
    let mut indexes =
        info.datasets.iter().filter(|dataset| dataset.name == OBJECTS).flat_map(|dataset| &dataset.indexes);
    let index = indexes.find(|index| index.name == name).with_context(|| format!("no index {name}"))?;
    Ok((index.bytes, index.entries))
}

/// A condition that every object meets, and that no spatial index can decide.
fn unknown_to_indexes() -> Condition {
    Condition::on("value").at_least(0)
}

/// Circles around objects, of one radius.
fn circles(objects: &Objects, radius: f64, queries: usize, seed: u64) -> Vec<Query> {
    let mut random = StdRng::seed_from_u64(seed ^ radius.to_bits());
    let circle = |_| {
        let (x, y) = objects.centre(random.random_range(0..objects.len()));
        Query::new().circle(x, y, radius)
    };
    (0..queries).map(circle).collect()
}

/// Joins of some seeds with the objects near them, through an index.
fn joins(seeds: i64, radius: f64, queries: usize, seed: u64, index_only: bool, kind: IndexKind) -> Vec<Join> {
    let mut random = StdRng::seed_from_u64(seed ^ radius.to_bits());
    let mut join = || {
        let first = random.random_range(0..(seeds - JOIN_SEEDS).max(1));
        let outer = Query::new().condition(Condition::on("id").between(first, first + JOIN_SEEDS - 1));
        let inner = Query::new().using_index(kind.name());
        let inner = if index_only { inner } else { inner.condition(unknown_to_indexes()) };
        Join::new(JoinOn::WithinDistance(radius)).outer(outer).inner(inner)
    };
    (0..queries).map(|_| join()).collect()
}

/// Hits of queries through an index, with or without a condition that only records decide.
fn count_through(snapshot: &Snapshot, queries: &[Query], kind: IndexKind, index_only: bool) -> Result<u64> {
    let mut hits = 0;
    for query in queries {
        let query = query.clone().using_index(kind.name());
        hits += snapshot.count(&if index_only { query } else { query.condition(unknown_to_indexes()) })?;
    }
    Ok(hits)
}

/// Returns an error unless all kinds found the same.
fn check_same(hits: &[u64], what: &str) -> Result<()> {
    ensure!(hits.windows(2).all(|pair| pair[0] == pair[1]), "{what}: the kinds found {hits:?}");
    Ok(())
}

#[cfg(test)]
mod lsm_tests;
