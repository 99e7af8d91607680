//! The PeaR-Tree as a subject of the crash explorer.

use terrane_pmem::Instruction;
use terrane_pmem::explorer::{Checked, Dropped, Place};
use terrane_storage::Storage;

use super::spread::{PlanarTree, boxed};
use super::steps::{Step, random_steps, steps_in_turn};
use super::subject::{Explored, ExploredTree, MEDIA, in_small_chunks};
use crate::pear::{Budget, Options, PearTree, Persisting};
use crate::{PersistenceDomain, Split};

/// Steps of a random history, for small nodes and for others.
const STEPS: usize = 60;
const STEPS_LARGE: usize = 230;

const PLACES: [Place; 37] = [
    Place::both("pear.chain.dying"),
    Place::flush("pear.chain.dying.branch"),
    Place::flush("pear.chain.dying.clear"),
    Place::both("pear.chain.fill"),
    Place::both("pear.chain.link"),
    Place::both("pear.chain.link.first"),
    Place::flush("pear.chain.previous"),
    Place::both("pear.chain.unlink"),
    Place::flush("pear.chain.unlink.previous"),
    Place::both("pear.create"),
    Place::both("pear.create.link"),
    Place::both("pear.delete.map"),
    Place::both("pear.insert.enlarge"),
    Place::both("pear.insert.entry"),
    Place::both("pear.insert.map"),
    Place::flush("pear.insert.rely"),
    Place::flush("pear.merge.box"),
    Place::fence("pear.merge.copy"),
    Place::flush("pear.merge.copy.entry"),
    Place::flush("pear.merge.done"),
    Place::both("pear.merge.gain"),
    Place::both("pear.merge.lose"),
    Place::both("pear.merge.mark"),
    Place::both("pear.open.clean"),
    Place::both("pear.read.persist"),
    Place::flush("pear.recover.dying.branch"),
    Place::both("pear.recover.dying.clear"),
    Place::fence("pear.redistribute.copy"),
    Place::both("pear.redistribute.gain"),
    Place::both("pear.redistribute.lose"),
    Place::both("pear.repair.merge"),
    Place::both("pear.repair.split"),
    Place::both("pear.repair.unmark"),
    Place::both("pear.split.branch"),
    Place::both("pear.split.branch.map"),
    Place::both("pear.split.done"),
    Place::both("pear.top"),
];

/// A PeaR-Tree with some options.
#[derive(Clone, Debug)]
pub struct Pear {
    /// The options.
    pub options: Options,
    is_in_four: bool,
}

impl Pear {
    fn configured(
        (name, budget): (&str, Budget),
        fan_out: usize,
        (medium, domain): (&str, PersistenceDomain),
    ) -> Explored<Self> {
        let split = if fan_out < 10 { Split::RStar } else { Split::Quadratic };
        let mut options = Options { fan_out, budget, split, recovery_threads: 1, ..Options::new(domain) };
        options.inner_fan_out = 4;
        options.recovers_by_parents = name != "without-parents";
        if name == "background" {
            options.persisting = Persisting::Background;
        }
        in_small_chunks(&mut options.pool);
        let tree = Self { options, is_in_four: name == "four-dimensions" };
        Explored { configuration: format!("{name}-{fan_out}-{medium}"), tree }
    }
}

impl ExploredTree for Pear {
    const NAME: &'static str = "pear";

    /// Without memory first; then with room for a root, for a mixed level, and for all. The last
    /// ones recover without parents, and have entries of more words.
    fn configurations() -> Vec<Explored<Self>> {
        let none = Budget::Nodes(0);
        let small = MEDIA.map(|medium| Self::configured(("pool", none), 4, medium));
        let mixed = MEDIA.map(|medium| Self::configured(("mixed", Budget::Nodes(2)), 4, medium));
        let others = [
            (("large", none), 12),
            (("root", Budget::Nodes(1)), 4),
            (("level", Budget::Levels(1)), 4),
            (("background", Budget::Nodes(1)), 4),
            (("without-parents", Budget::Levels(9)), 4),
            (("four-dimensions", Budget::Nodes(3)), 4),
        ];
        let others = others.map(|(form, fan_out)| Self::configured(form, fan_out, MEDIA[0]));
        small.into_iter().chain(mixed).chain(others).collect()
    }

    fn domain(&self) -> PersistenceDomain {
        self.options.pool.domain
    }

    fn has_small_nodes(&self) -> bool {
        self.options.fan_out < 10
    }

    fn create(&self, storage: &dyn Storage, name: &str) -> Checked<Box<dyn PlanarTree>> {
        match self.is_in_four {
            false => boxed(PearTree::<2, _>::create(storage, name, &self.options)),
            true => boxed(PearTree::<4, _>::create(storage, name, &self.options)),
        }
    }

    fn open(&self, storage: &dyn Storage, name: &str) -> Checked<Box<dyn PlanarTree>> {
        match self.is_in_four {
            false => boxed(PearTree::<2, _>::open(storage, name, &self.options)),
            true => boxed(PearTree::<4, _>::open(storage, name, &self.options)),
        }
    }

    /// Odd seeds delete and insert in turn, so that blocks are used again.
    fn steps(&self, seed: u64) -> Vec<Step> {
        match self.has_small_nodes() {
            true if seed % 2 == 1 => steps_in_turn(seed, 2 * STEPS),
            true => random_steps(seed, STEPS),
            false => random_steps(seed, STEPS_LARGE),
        }
    }

    fn places() -> Vec<Place> {
        PLACES.to_vec()
    }

    fn shown_by(Dropped { instruction, site }: &Dropped) -> Option<&'static str> {
        Some(match site.as_str() {
            // The fence of the entry follows, if the thread does not stop.
            "pear.insert.enlarge" if *instruction == Instruction::Fence => {
                "pmtree/tests/pear_threads.rs: an_insertion_into_a_box_that_another_one_calls_durable_stays"
            }
            "pear.insert.rely" => "pmtree/tests/pear_threads.rs: an_insertion_into_a_box_that_is_not_durable_yet_stays",
            // One thread of one session leaves nothing that is not durable.
            "pear.read.persist" => {
                "pmtree/tests/pear_threads.rs: what_a_search_of_a_pear_tree_has_seen_survives_a_power_loss"
            }
            "pear.split.done" => {
                "pmtree/tests/pear_fences.rs: halves_that_come_below_two_parents_are_in_no_recovery_state"
            }
            "pear.open.clean" => "pmtree/tests/pear_fences.rs: a_tree_that_was_opened_is_not_clean_any_more",
            "pear.recover.dying.clear" => {
                "pmtree/tests/pear_fences.rs: a_block_that_a_removed_node_has_left_is_not_removed_again"
            }
            // Long histories show these three, and seldom.
            "pear.chain.dying.clear" => {
                "pmtree/tests/pear_fences.rs: a_block_that_a_merged_node_has_left_is_not_removed_again"
            }
            "pear.chain.previous" => {
                "pmtree/tests/pear_fences.rs: a_leaf_never_names_a_block_as_the_one_before_it_that_comes_behind_it"
            }
            "pear.merge.done" => "pmtree/tests/pear_fences.rs: a_leaf_is_not_taken_for_the_one_whose_block_it_has",
            // Few histories have a change of one node in the pool and one in memory.
            "pear.merge.copy" | "pear.redistribute.copy" => {
                "pmtree/tests/pear_fences.rs: copies_are_durable_before_they_count_if_the_other_node_is_in_memory"
            }
            // The next fence of the thread makes it durable.
            "pear.redistribute.lose" if *instruction == Instruction::Fence => {
                "pmtree/tests/pear_fences.rs: entries_that_move_to_a_sibling_are_not_in_both_leaves"
            }
            "pear.repair.split" => "pmtree/tests/pear_repairs.rs: a_split_that_was_completed_is_not_completed_again",
            "pear.repair.unmark" => "pmtree/tests/pear_repairs.rs: a_redistribution_that_was_undone_stays_undone",
            _ => return None,
        })
    }
}
