//! The budget for nodes in memory, and the nodes that are there.

use std::collections::{BTreeMap, BTreeSet};

use terrane_storage::sync::{AtomicU64, Mutex, Ordering};

use super::options::{Budget, Options, Persisting};

/// The budget, and the nodes that it lets lie in memory.
#[derive(Debug)]
pub(super) struct Placement {
    /// Level-bound budgets have [`BY_LEVELS`].
    budget: AtomicU64,
    pub(super) persisting: Persisting,
    pub(super) batch: usize,
    /// Nodes in memory, with those that are about to be made.
    pub(super) count: AtomicU64,
    /// The most of them so far.
    pub(super) count_max: AtomicU64,
    /// The nodes in memory by level.
    pub(super) nodes: Mutex<BTreeMap<u64, BTreeSet<u64>>>,
    /// The highest level with all its nodes in the pool, while the root is not there.
    pub(super) complete: AtomicU64,
    /// One thread moves nodes at a time.
    pub(super) moving: Mutex<()>,
}

const BY_LEVELS: u64 = 1 << 63;

fn encode(budget: Budget) -> u64 {
    match budget {
        Budget::Levels(levels) => levels.min(BY_LEVELS - 1) | BY_LEVELS,
        Budget::Nodes(nodes) => nodes.min(BY_LEVELS - 1),
    }
}

impl Placement {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            budget: AtomicU64::new(encode(options.budget)),
            persisting: options.persisting,
            batch: options.batch.max(1),
            count: AtomicU64::new(0),
            count_max: AtomicU64::new(0),
            nodes: Mutex::default(),
            complete: AtomicU64::new(0),
            moving: Mutex::new(()),
        }
    }

    pub(super) fn set_budget(&self, budget: Budget) {
        self.budget.store(encode(budget), Ordering::Release);
    }

    pub(super) fn budget(&self) -> Budget {
        match self.budget.load(Ordering::Acquire) {
            levels if levels & BY_LEVELS != 0 => Budget::Levels(levels & !BY_LEVELS),
            nodes => Budget::Nodes(nodes),
        }
    }

    /// The lowest level with nodes in memory.
    pub(super) fn lowest(&self) -> Option<u64> {
        self.nodes.lock().first_key_value().map(|(level, _)| *level)
    }
}
