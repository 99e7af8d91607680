//! The structures that can be explored. A new one is a line in each of two lists.

use std::collections::BTreeSet;

use terrane_pmem::PersistenceDomain;
use terrane_pmem::explorer::{Breadth, Explorer, Failure, History, Part, Subject, Tally};
use terrane_pmem::pmwcas;
use terrane_pmtree::explored::{Explored, ExploredMap, ExploredTree, Fbr, Logged, Pear, Pmr, Recoveries, small_trees};

/// Names and descriptions.
pub const ALL: [(&str, &str); 6] = [
    (Fbr::NAME, "the FBR-tree: insertions and deletions that split and merge nodes"),
    (Pmr::NAME, "the PM-RTREE: insertions and deletions that replace leaves of its chain"),
    (Pear::NAME, "the PeaR-Tree: insertions and deletions, and nodes that move between pool and memory"),
    (Logged::NAME, "the R-tree that logs whole nodes, the baseline of the FBR-tree: the same"),
    (ExploredMap::NAME, "the durable B+-trees: insertions, updates and removals that split and merge nodes"),
    (OF_WORDS, "persistent multi-word compare-and-swap, and the blocks that its words link"),
];

const OF_WORDS: &str = "pmwcas";

/// A structure in its configurations.
pub trait Structure: Subject + Sized {
    /// Its name.
    const NAME: &'static str;

    /// All configurations.
    fn configurations() -> Vec<Self>;

    /// Whether there are small cases of this configuration that [`Structure::exhaust`] tries.
    fn has_small_cases(&self) -> bool;

    /// Tries every small case of a part, optionally with crashes inside of recoveries. Gives the
    /// size of the search, also in words.
    fn exhaust(&self, part: Part, in_recoveries: bool) -> Result<(Tally, String), Box<Failure<Self::Step>>>;
}

/// An operation on any structure.
pub trait Visitor {
    /// Its result.
    type Output;

    /// Runs it.
    fn visit<S: Structure>(&mut self) -> Self::Output;
}

/// Visits the structure of a name, if there is one.
pub fn visit<V: Visitor>(name: &str, visitor: &mut V) -> Option<V::Output> {
    match name {
        Fbr::NAME => Some(visitor.visit::<Explored<Fbr>>()),
        Pmr::NAME => Some(visitor.visit::<Explored<Pmr>>()),
        Pear::NAME => Some(visitor.visit::<Explored<Pear>>()),
        Logged::NAME => Some(visitor.visit::<Explored<Logged>>()),
        ExploredMap::NAME => Some(visitor.visit::<ExploredMap>()),
        OF_WORDS => Some(visitor.visit::<pmwcas::explored::Explored>()),
        _ => None,
    }
}

impl<T: ExploredTree> Structure for Explored<T> {
    const NAME: &'static str = T::NAME;

    fn configurations() -> Vec<Self> {
        T::configurations()
    }

    /// Crashes on other media leave a subset of the states on this one.
    fn has_small_cases(&self) -> bool {
        self.tree.has_small_nodes() && self.domain() == PersistenceDomain::Adr
    }

    fn exhaust(&self, part: Part, in_recoveries: bool) -> Result<(Tally, String), Box<Failure<Self::Step>>> {
        let recoveries = if in_recoveries { Recoveries::Cut } else { Recoveries::Whole };
        let found = small_trees(self, part, recoveries)?;
        let (histories, tried, trees) = (found.histories, found.trees_tried, found.trees);
        let cut = if in_recoveries { ", cut in every recovery as well" } else { "" };
        let what = format!(
            "all {histories} histories of two operations on {tried} of {trees} trees{cut}; those that look something up first or \
             last are cut where that changes something"
        );
        Ok((found.tally, what))
    }
}

impl Structure for ExploredMap {
    const NAME: &'static str = ExploredMap::NAME;

    fn configurations() -> Vec<Self> {
        Self::configurations()
    }

    /// Crashes on other media leave a subset of the states on this one.
    fn has_small_cases(&self) -> bool {
        self.domain() == PersistenceDomain::Adr
    }

    fn exhaust(&self, part: Part, in_recoveries: bool) -> Result<(Tally, String), Box<Failure<Self::Step>>> {
        exhaust_histories(self, part, in_recoveries)
    }
}

impl Structure for pmwcas::explored::Explored {
    const NAME: &'static str = OF_WORDS;

    fn configurations() -> Vec<Self> {
        Self::configurations()
    }

    fn has_small_cases(&self) -> bool {
        true
    }

    fn exhaust(&self, part: Part, in_recoveries: bool) -> Result<(Tally, String), Box<Failure<Self::Step>>> {
        exhaust_histories(self, part, in_recoveries)
    }
}

/// Tries every cut of a part of ten random histories.
fn exhaust_histories<S: Subject>(
    subject: &S,
    part: Part,
    in_recoveries: bool,
) -> Result<(Tally, String), Box<Failure<S::Step>>> {
    let mut explorer = Explorer::new(subject);
    // Some cuts of these histories have far more, and each is stored.
    let breadth = Breadth { branches: 2048, samples: 200, seed: 0 };
    let seeds: Vec<u64> = (0..10).collect();
    let mut histories = 0;
    for &seed in part.of_all(&seeds) {
        histories += 1;
        let history = History::record(subject, subject.steps(seed), None)?;
        explorer.all_crashes(&history, 0, &breadth)?;
        if in_recoveries {
            explorer.inside_all_recoveries(&history, 0, &breadth, &mut BTreeSet::new())?;
        }
        explorer.forget();
    }
    Ok((explorer.tally, format!("every cut of {histories} histories")))
}
