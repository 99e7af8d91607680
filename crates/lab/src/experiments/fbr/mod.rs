//! The FBR-tree's evaluation (Cho 2020, section 5), with random boxes in three dimensions.

mod concurrency;
mod hdf5;
mod insert_cost;
mod range_query;
mod reflush;
pub mod reopen;

use anyhow::Result;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use terrane_pmem::Backend;
use terrane_pmtree::fbr::{self, FbrTree, LeafForm, Rebalancing};
use terrane_pmtree::logged::{self, LoggedTree};
use terrane_pmtree::{PersistenceDomain, PersistentTree, Rect, Split};
use terrane_storage::Storage;

use super::insertions::{Counting, Tree};
use super::{Experiment, Setup};

/// The experiments.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "fbr/insert-cost",
        description: "insertion against node size: lines flushed, fences, bytes, bit flips, media blocks, CPU",
        takes: &["rounds", "dir", "count", "full", "fan_outs", "split", "seed"],
        run: insert_cost::run,
    },
    Experiment {
        name: "fbr/reflush",
        description: "lines flushed again at once, against the number of insertions",
        takes: &["count", "full", "fan_outs", "split", "seed"],
        run: reflush::run,
    },
    Experiment {
        name: "fbr/range-query",
        description: "range queries against node size: CPU and lines read",
        takes: &["rounds", "dir", "count", "full", "fan_outs", "queries", "split", "seed"],
        run: range_query::run,
    },
    Experiment {
        name: "fbr/concurrency",
        description: "insertions, queries and 3:7 of them by 1 to 8 threads, without locks and with shared ones",
        takes: &["rounds", "dir", "count", "full", "fan_outs", "threads", "seconds", "selectivities", "split", "seed"],
        run: concurrency::run,
    },
    Experiment {
        name: "fbr/reopen",
        description: "open after SIGKILL: time until it is open and to the first answer, nothing lost",
        takes: &["rounds", "dir", "count", "full", "fan_outs", "split", "seed"],
        run: reopen::run,
    },
    Experiment {
        name: "fbr/hdf5",
        description: "range queries over an HDF5 file, by an index of its coordinates and by reading all of it",
        takes: &["rounds", "dir", "file", "queries", "fan_outs", "split", "seed"],
        run: hdf5::run,
    },
];

/// Sizes of bitmaps that the thesis measures, as numbers of entries: 7, 15, … 63 bytes, with one
/// byte for the flags.
const FAN_OUTS: [usize; 8] = [55, 119, 183, 247, 311, 375, 439, 503];

/// The size that the thesis uses for the other measurements.
const FASTEST_FAN_OUT: usize = 183;

/// The rules for dividing full nodes: name and description.
const SPLITS: [(&str, &str, Split); 2] = [
    ("quadratic", "Guttman's quadratic split, as in the thesis", Split::Quadratic),
    ("r-star", "As in the R*-tree, the default of the library", Split::RStar),
];

/// Parses the rule for dividing full nodes.
pub fn split_parser() -> impl TypedValueParser<Value = Split> {
    let names = SPLITS.map(|(name, help, _)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(names).map(|given| {
        // The parser has refused all others.
        SPLITS.iter().find(|(name, ..)| *name == given).map_or_else(Split::default, |&(.., split)| split)
    })
}

/// The trees that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    InPlace,
    CopyOnWrite,
    /// In place, with leaves whose entries validate themselves.
    SelfValidating,
    Logging,
}

impl Kind {
    const ALL: [Self; 4] = [Self::InPlace, Self::CopyOnWrite, Self::SelfValidating, Self::Logging];

    fn name(self) -> &'static str {
        match self {
            Self::InPlace => "in-place",
            Self::CopyOnWrite => "copy-on-write",
            Self::SelfValidating => "self-validating",
            Self::Logging => "logging",
        }
    }
}

/// The properties that distinguish trees of one experiment.
#[derive(Clone, Copy, Debug)]
struct Shape {
    kind: Kind,
    fan_out: usize,
    split: Split,
}

impl Shape {
    fn row(&self) -> String {
        format!("{}, {}", self.kind.name(), self.fan_out)
    }

    /// The options of an FBR-tree.
    fn fbr_options(&self, domain: PersistenceDomain) -> fbr::Options {
        fbr::Options {
            fan_out: self.fan_out,
            rebalancing: match self.kind {
                Kind::CopyOnWrite => Rebalancing::CopyOnWrite,
                Kind::InPlace | Kind::SelfValidating | Kind::Logging => Rebalancing::InPlace,
            },
            leaves: match self.kind {
                Kind::SelfValidating => LeafForm::SelfValidating,
                Kind::InPlace | Kind::CopyOnWrite | Kind::Logging => LeafForm::Bitmap,
            },
            split: self.split,
            ..fbr::Options::new(domain)
        }
    }

    /// The options of the tree that logs whole nodes.
    fn logged_options(&self, domain: PersistenceDomain) -> logged::Options {
        logged::Options { fan_out: self.fan_out, split: self.split, ..logged::Options::new(domain) }
    }

    /// Name of the split in parameters.
    fn split_name(&self) -> &'static str {
        SPLITS.iter().find(|(.., split)| *split == self.split).map_or("", |(name, ..)| name)
    }
}

impl Setup {
    /// The trees of one node size.
    fn shapes(&self, fan_out: usize) -> [Shape; 4] {
        Kind::ALL.map(|kind| self.shape(kind, fan_out))
    }

    fn shape(&self, kind: Kind, fan_out: usize) -> Shape {
        Shape { kind, fan_out, split: self.options.split.unwrap_or(Split::Quadratic) }
    }

    fn fan_outs<'a>(&'a self, default: &'a [usize]) -> &'a [usize] {
        if self.options.fan_outs.is_empty() { default } else { &self.options.fan_outs }
    }
}

/// Name of the pool in its storage.
const NAME: &str = "tree";

fn create<B: Backend + 'static>(storage: &dyn Storage, shape: &Shape, domain: PersistenceDomain) -> Result<Tree<B>> {
    Ok(match shape.kind {
        Kind::Logging => Box::new(LoggedTree::create(storage, NAME, &shape.logged_options(domain))?),
        Kind::InPlace | Kind::CopyOnWrite | Kind::SelfValidating => {
            Box::new(FbrTree::create(storage, NAME, &shape.fbr_options(domain))?)
        }
    })
}

fn open<B: Backend + 'static>(storage: &dyn Storage, shape: &Shape, domain: PersistenceDomain) -> Result<Tree<B>> {
    Ok(match shape.kind {
        Kind::Logging => Box::new(LoggedTree::open(storage, NAME, &shape.logged_options(domain))?),
        Kind::InPlace | Kind::CopyOnWrite | Kind::SelfValidating => {
            Box::new(FbrTree::open(storage, NAME, &shape.fbr_options(domain))?)
        }
    })
}

/// Number of a search's hits, and the sum of their payloads.
fn count_and_sum(
    search: impl FnOnce(&mut dyn FnMut(&Rect<3>, u64)) -> terrane_pmtree::Result<()>,
) -> Result<(u64, u64)> {
    let (mut count, mut sum) = (0, 0_u64);
    search(&mut |_, payload| {
        count += 1;
        sum = sum.wrapping_add(payload);
    })?;
    Ok((count, sum))
}

/// Those of a window.
fn count_in_window<B: Backend>(tree: &Tree<B>, window: &Rect<3>) -> Result<(u64, u64)> {
    count_and_sum(|visit| tree.window(window, visit))
}

/// Longest edge of a box, in a cube whose edges are 1.
const EDGE_MAX: f64 = 0.01;

/// Random boxes: lower corners uniform in the unit cube, edges uniform up to [`EDGE_MAX`].
#[derive(Clone, Debug)]
struct Boxes(StdRng);

impl Boxes {
    fn new(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }
}

impl Iterator for Boxes {
    type Item = Rect<3>;

    fn next(&mut self) -> Option<Rect<3>> {
        let min: [f64; 3] = std::array::from_fn(|_| self.0.random_range(0.0..1.0));
        let max = min.map(|lower| lower + self.0.random_range(0.0..EDGE_MAX));
        Rect::new(min, max).ok()
    }
}

/// The share of all entries that the thesis' queries find on average.
const SELECTIVITY: f64 = 0.019;

/// Cubes inside the unit cube that overlap a share of the boxes, on average.
#[derive(Clone, Debug)]
struct Queries {
    random: StdRng,
    edge: f64,
}

impl Queries {
    /// A seed that differs from that of the boxes.
    fn new(seed: u64, selectivity: f64) -> Self {
        // A box is hit if its lower corner lies in the cube, or before it by less than its edge.
        let edge = (selectivity.cbrt() - EDGE_MAX / 2.0).max(0.0);
        Self { random: StdRng::seed_from_u64(seed ^ 0x5ea_2c4), edge }
    }
}

impl Iterator for Queries {
    type Item = Rect<3>;

    fn next(&mut self) -> Option<Rect<3>> {
        let min: [f64; 3] = std::array::from_fn(|_| self.random.random_range(0.0..1.0 - self.edge));
        Rect::new(min, min.map(|lower| lower + self.edge)).ok()
    }
}
