//! The PM-RTREE's evaluation (Lavinsky and Zhang 2022, section 5), on the paper's *Random* boxes.

mod insert_cost;
mod recovery;
mod threads;

use anyhow::Result;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use terrane_pmem::Backend;
use terrane_pmtree::fbr::{self, FbrTree};
use terrane_pmtree::pmr::{self, PmrTree, Publication};
use terrane_pmtree::{PersistenceDomain, Rect};
use terrane_storage::Storage;

use super::Experiment;
use super::insertions::Tree;

/// The experiments.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "pmr/insert-cost",
        description: "insertion of Random boxes against leaf size and options: lines flushed, reflushes, fences, CPU",
        takes: &["rounds", "dir", "count", "full", "seed"],
        run: insert_cost::run,
    },
    Experiment {
        name: "pmr/threads",
        description: "insertions of Random boxes by 1 to 8 threads, beside the FBR-tree",
        takes: &["rounds", "dir", "count", "full", "threads", "seed"],
        run: threads::run,
    },
    Experiment {
        name: "pmr/recovery",
        description: "time to open a tree whose process was killed, by threads that read the leaves",
        takes: &["rounds", "dir", "count", "full", "threads", "seed"],
        run: recovery::run,
    },
];

/// Name of the pool in its storage.
const NAME: &str = "tree";

/// The trees that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The FBR-tree with its 55 entries a node.
    Fbr,
    Pmr,
    /// Consecutive entries have bits in one word.
    Sequential,
    /// Each entry is published by a multi-word compare-and-swap, as in the paper.
    Descriptor,
}

/// A tree of one kind and leaf size.
#[derive(Clone, Copy, Debug)]
struct Shape {
    kind: Kind,
    fan_out: usize,
}

impl Shape {
    const FBR: Self = Self { kind: Kind::Fbr, fan_out: 55 };

    fn pmr(fan_out: usize) -> Self {
        Self { kind: Kind::Pmr, fan_out }
    }

    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Fbr => "fbr-tree",
            Kind::Pmr => "pmr-tree",
            Kind::Sequential => "pmr-sequential",
            Kind::Descriptor => "pmr-descriptor",
        }
    }

    fn row(&self) -> String {
        format!("{}, {}", self.name(), self.fan_out)
    }

    fn pmr_options(&self, domain: PersistenceDomain) -> pmr::Options {
        pmr::Options {
            fan_out: self.fan_out,
            interleaved: self.kind != Kind::Sequential,
            publication: match self.kind {
                Kind::Descriptor => Publication::Descriptor,
                Kind::Fbr | Kind::Pmr | Kind::Sequential => Publication::CompareAndSwap,
            },
            ..pmr::Options::new(domain)
        }
    }
}

fn create<B: Backend + 'static>(storage: &dyn Storage, shape: &Shape, domain: PersistenceDomain) -> Result<Tree<B>> {
    Ok(match shape.kind {
        Kind::Fbr => {
            let options = fbr::Options { fan_out: shape.fan_out, ..fbr::Options::new(domain) };
            Box::new(FbrTree::create(storage, NAME, &options)?)
        }
        Kind::Pmr | Kind::Sequential | Kind::Descriptor => {
            Box::new(PmrTree::create(storage, NAME, &shape.pmr_options(domain))?)
        }
    })
}

/// The paper's *Random* boxes: lower corners uniform from 0 to 1, upper ones from 1 to 2.
#[derive(Clone, Debug)]
struct RandomBoxes(StdRng);

impl RandomBoxes {
    fn new(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }
}

impl Iterator for RandomBoxes {
    type Item = Rect<3>;

    fn next(&mut self) -> Option<Rect<3>> {
        let mut corner = |least: f64| std::array::from_fn(|_| least + self.0.random_range(0.0..1.0));
        Rect::new(corner(0.0), corner(1.0)).ok()
    }
}
