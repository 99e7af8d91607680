//! The PeaR-Tree's evaluation (Thamm 2021, chapter 6), on the laboratory's clustered points.

mod budgets;
mod nodes;
mod persisting;
mod recovery;
mod rides;
mod threads;

use anyhow::{Result, ensure};
use tempfile::TempDir;
use terrane_pmem::Native;
use terrane_pmtree::fbr::{self, FbrTree};
use terrane_pmtree::pear::{Budget, Options, PearTree};
use terrane_pmtree::{PersistenceDomain, PersistentRTree, Rect};
use terrane_storage::RealStorage;

use super::{Experiment, Setup};
use crate::measure;
use crate::neighbours::NeighbourTree;
use crate::workload::{self, Points};

/// The experiments. Windows and insertions of one thread beside other trees are in `grown`.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "pear/threads",
        description: "insertions and windows by 1 to 8 threads, with inner nodes in the pool and in memory",
        takes: &["rounds", "dir", "count", "full", "threads", "queries"],
        run: threads::run,
    },
    Experiment {
        name: "pear/budgets",
        description: "insertion, windows and recovery against the budget, by levels and by MiB",
        takes: &["rounds", "dir", "count", "full", "queries"],
        run: budgets::run,
    },
    Experiment {
        name: "pear/recovery",
        description: "time to rebuild inner nodes, with parent pointers and without, by numbers of threads",
        takes: &["rounds", "dir", "count", "full", "threads"],
        run: recovery::run,
    },
    Experiment {
        name: "pear/persisting",
        description: "insertion while nodes move to the pool: in place and in the background, by batches",
        takes: &["rounds", "dir", "count", "full", "threads"],
        run: persisting::run,
    },
    Experiment {
        name: "pear/nodes",
        description: "insertion and windows against the size of nodes, their least fill and alignment",
        takes: &["rounds", "dir", "count", "full", "queries"],
        run: nodes::run,
    },
    Experiment {
        name: "pear/rides",
        description: "the ten rides picked up nearest to a drop-off and after it, checked, in all three R-trees",
        takes: &["rounds", "dir", "count", "full", "queries"],
        run: rides::run,
    },
];

/// Name of the pool in its storage.
const NAME: &str = "tree";
const DOMAIN: PersistenceDomain = PersistenceDomain::PageCache;
/// All nodes lie in the pool.
const NONE: Budget = Budget::Nodes(0);
/// Inner nodes lie in memory, all of them.
const ALL: Budget = Budget::Nodes(u64::MAX);
/// Points in a window.
const HITS: usize = 100;

/// Entries to insert, and windows with their answers.
struct Data {
    points: Vec<Rect<2>>,
    windows: Vec<Rect<2>>,
    /// Sum of the payloads of all answers.
    payloads: u64,
}

impl Data {
    fn load(count: u64, windows: usize) -> Result<Self> {
        let points = Points::generate(usize::try_from(count)?)?;
        let queries = workload::windows(&points, &NeighbourTree::new(&points), HITS, windows)?;
        let rects = (0..points.len()).map(|row| points.location(row)).map(|at| Rect::point([at.x, at.y]));
        let windows = queries.queries.iter().map(|window| Rect::new([window.x0, window.y0], [window.x1, window.y1]));
        Ok(Self {
            points: rects.collect::<terrane_pmtree::Result<_>>()?,
            windows: windows.collect::<terrane_pmtree::Result<_>>()?,
            payloads: queries.id_sums.iter().fold(0, |sum, one| sum.wrapping_add(*one)),
        })
    }

    /// CPU time of a window, in nanoseconds. The answers are checked, if boxes are exact.
    fn ask(&self, tree: &dyn PersistentRTree<2, Backend = Native>, is_exact: bool) -> Result<f64> {
        let mut sum = 0_u64;
        let start = measure::thread_cpu();
        for window in &self.windows {
            tree.window(window, &mut |_, payload| sum = sum.wrapping_add(payload))?;
        }
        let spent = measure::thread_cpu() - start;
        ensure!(!is_exact || sum == self.payloads, "windows find other entries than the reference");
        Ok(spent.as_nanos() as f64 / self.windows.len() as f64)
    }
}

/// A tree in a folder of its own.
struct Grown<T> {
    tree: T,
    storage: RealStorage,
    _folder: TempDir,
}

impl<T> Grown<T> {
    fn create(setup: &Setup, create: impl FnOnce(&RealStorage) -> terrane_pmtree::Result<T>) -> Result<Self> {
        let folder = setup.pool_folder()?;
        let storage = RealStorage::new(folder.path());
        Ok(Self { tree: create(&storage)?, storage, _folder: folder })
    }
}

type Pear = PearTree<2, Native>;

/// An empty PeaR-Tree.
fn pear(setup: &Setup, options: &Options) -> Result<Grown<Pear>> {
    Grown::create(setup, |storage| PearTree::create(storage, NAME, options))
}

/// An empty FBR-tree.
fn fbr(setup: &Setup) -> Result<Grown<FbrTree<2, Native>>> {
    Grown::create(setup, |storage| FbrTree::create(storage, NAME, &fbr::Options::new(DOMAIN)))
}

fn with_budget(budget: Budget) -> Options {
    Options { budget, ..Options::new(DOMAIN) }
}

/// CPU time of an insertion, in nanoseconds.
fn insert(tree: &dyn PersistentRTree<2, Backend = Native>, points: &[Rect<2>]) -> Result<f64> {
    let start = measure::thread_cpu();
    for (payload, rect) in (0..).zip(points) {
        tree.insert(rect, payload)?;
    }
    Ok((measure::thread_cpu() - start).as_nanos() as f64 / points.len() as f64)
}

/// Numbers of threads: those that were asked for, or these.
fn thread_counts<'a>(setup: &'a Setup, default: &'a [usize]) -> &'a [usize] {
    if setup.options.threads.is_empty() { default } else { &setup.options.threads }
}
