//! The PM-RTREE's evaluation (Lavinsky and Zhang 2022, section 5).

mod data;
mod data_size;
mod insert_cost;
mod mixes;
mod optimisations;
mod overall;
mod recovery;
mod threads;

use anyhow::Result;
use terrane_pmem::Backend;
use terrane_pmtree::fbr::{self, FbrTree};
use terrane_pmtree::logged::{self, LoggedTree, Logging};
use terrane_pmtree::pmr::{self, LeafForm, PmrTree, Publication};
use terrane_pmtree::{PersistenceDomain, PersistentTree};
use terrane_storage::Storage;

use super::Experiment;
use super::insertions::{RandomBoxes, Tree};

/// The experiments.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "pmr/overall",
        description: "insertion, search and deletion on Random, fires, boundaries and Zipf, beside all other R-trees",
        takes: &["rounds", "dir", "count", "full", "queries", "seed"],
        run: overall::run,
    },
    Experiment {
        name: "pmr/data-size",
        description: "the same on Random, and opening after a kill, against the number of entries",
        takes: &["rounds", "dir", "count", "full", "queries", "seed"],
        run: data_size::run,
    },
    Experiment {
        name: "pmr/insert-cost",
        description: "insertion of Random boxes against leaf size and options: lines flushed, reflushes, fences, CPU",
        takes: &["rounds", "dir", "count", "full", "seed"],
        run: insert_cost::run,
    },
    Experiment {
        name: "pmr/optimisations",
        description: "insertion of Random boxes with each optimisation alone and together, and where caches are durable",
        takes: &["rounds", "dir", "count", "full", "seed"],
        run: optimisations::run,
    },
    Experiment {
        name: "pmr/mixes",
        description: "many searches beside insertions, and the reverse, by several threads",
        takes: &["rounds", "dir", "count", "full", "threads", "seed"],
        run: mixes::run,
    },
    Experiment {
        name: "pmr/threads",
        description: "insertions of Random boxes by 1 to 8 threads, beside the FBR-tree, and the time in locks",
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
    /// An R-tree that neither logs nor flushes.
    Volatile,
    /// An R-tree that logs the old values of each range it changes.
    Undo,
    /// The FBR-tree.
    Fbr,
    Pmr,
    /// Consecutive entries have bits in one word.
    Sequential,
    /// Each entry is published by a multi-word compare-and-swap, as in the paper.
    Descriptor,
    /// Both.
    SequentialDescriptor,
    /// Entries have no bits in the pool.
    SelfValidating,
}

/// A tree of one kind and leaf size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
            Kind::Volatile => "volatile-rtree",
            Kind::Undo => "undo-rtree",
            Kind::Fbr => "fbr-tree",
            Kind::Pmr => "pmr-tree",
            Kind::Sequential => "pmr-sequential",
            Kind::Descriptor => "pmr-descriptor",
            Kind::SequentialDescriptor => "pmr-sequential-descriptor",
            Kind::SelfValidating => "pmr-self-validating",
        }
    }

    fn row(&self) -> String {
        format!("{}, {}", self.name(), self.fan_out)
    }

    fn pmr_options(&self, domain: PersistenceDomain) -> pmr::Options {
        let is_sequential = [Kind::Sequential, Kind::SequentialDescriptor].contains(&self.kind);
        let is_by_descriptor = [Kind::Descriptor, Kind::SequentialDescriptor].contains(&self.kind);
        pmr::Options {
            fan_out: self.fan_out,
            leaves: if self.kind == Kind::SelfValidating { LeafForm::SelfValidating } else { LeafForm::Bitmap },
            interleaved: !is_sequential,
            publication: if is_by_descriptor { Publication::Descriptor } else { Publication::CompareAndSwap },
            ..pmr::Options::new(domain)
        }
    }

    fn fbr_options(&self, domain: PersistenceDomain) -> fbr::Options {
        fbr::Options { fan_out: self.fan_out, ..fbr::Options::new(domain) }
    }

    fn logged_options(&self, domain: PersistenceDomain) -> logged::Options {
        let logging = if self.kind == Kind::Undo { Logging::Ranges } else { Logging::None };
        logged::Options { fan_out: self.fan_out, logging, ..logged::Options::new(domain) }
    }
}

fn create<B: Backend + 'static>(storage: &dyn Storage, shape: &Shape, domain: PersistenceDomain) -> Result<Tree<B>> {
    Ok(match shape.kind {
        Kind::Volatile | Kind::Undo => Box::new(LoggedTree::create(storage, NAME, &shape.logged_options(domain))?),
        Kind::Fbr => Box::new(FbrTree::create(storage, NAME, &shape.fbr_options(domain))?),
        Kind::Pmr | Kind::Sequential | Kind::Descriptor | Kind::SequentialDescriptor | Kind::SelfValidating => {
            Box::new(PmrTree::create(storage, NAME, &shape.pmr_options(domain))?)
        }
    })
}
