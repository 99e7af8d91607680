//! The FBR-tree as a subject of the crash explorer.

use terrane_pmem::Instruction;
use terrane_pmem::explorer::{Checked, Dropped, Place};
use terrane_storage::Storage;

use super::spread::{PlanarTree, boxed};
use super::steps::{Step, random_steps};
use super::subject::{Explored, ExploredTree, MEDIA, in_small_chunks};
use crate::fbr::{FbrTree, LeafForm, Options, Rebalancing};
use crate::{PersistenceDomain, Split};

/// Steps of a random history, for small nodes and for others.
const STEPS: usize = 60;
const STEPS_LARGE: usize = 230;

const PLACES: [Place; 35] = [
    Place::both("fbr.complete.link"),
    Place::both("fbr.complete.link.entry"),
    Place::flush("fbr.complete.nodes"),
    Place::fence("fbr.complete.redistribute"),
    Place::both("fbr.complete.root"),
    Place::flush("fbr.complete.unlink"),
    Place::both("fbr.create"),
    Place::both("fbr.create.link"),
    Place::flush("fbr.create.root"),
    Place::both("fbr.delete.metadata"),
    Place::both("fbr.delete.root"),
    Place::flush("fbr.insert.enlarge"),
    Place::both("fbr.insert.entry"),
    Place::fence("fbr.insert.failed"),
    Place::both("fbr.insert.metadata"),
    Place::both("fbr.log.clear"),
    Place::both("fbr.log.commit"),
    Place::flush("fbr.log.prepare"),
    Place::flush("fbr.log.withdraw"),
    Place::flush("fbr.merge.bounds"),
    Place::both("fbr.merge.copy"),
    Place::flush("fbr.merge.copy.entry"),
    Place::both("fbr.merge.entries"),
    Place::both("fbr.search.persist"),
    Place::flush("fbr.shorten"),
    Place::both("fbr.split.copy"),
    Place::flush("fbr.split.copy.entry"),
    Place::flush("fbr.split.new-root"),
    Place::flush("fbr.split.root.copy"),
    Place::both("fbr.split.root.link"),
    Place::flush("fbr.split.root.node"),
    Place::both("fbr.split.sibling"),
    Place::both("fbr.tags.entry"),
    Place::both("fbr.tags.generation"),
    Place::fence("fbr.tags.grown"),
];

/// An FBR-tree with some options.
#[derive(Clone, Debug)]
pub struct Fbr {
    /// The options.
    pub options: Options,
    dimensions: Dimensions,
}

/// Number of dimensions. With four, an entry takes two lines.
#[derive(Clone, Copy, Debug)]
enum Dimensions {
    Two,
    Four,
}

impl Fbr {
    /// Number of dimensions of the tree.
    pub fn dimensions(&self) -> usize {
        match self.dimensions {
            Dimensions::Two => 2,
            Dimensions::Four => 4,
        }
    }

    fn configured(
        dimensions: Dimensions,
        fan_out: usize,
        (name, leaves, rebalancing, split): (&str, LeafForm, Rebalancing, Split),
        (medium, domain): (&str, PersistenceDomain),
    ) -> Explored<Self> {
        let mut options = Options { fan_out, leaves, rebalancing, split, ..Options::new(domain) };
        in_small_chunks(&mut options.pool);
        Explored { configuration: format!("{name}-{fan_out}-{medium}"), tree: Self { options, dimensions } }
    }
}

impl ExploredTree for Fbr {
    const NAME: &'static str = "fbr";

    /// Small nodes first, then nodes with bitmaps of two words. Last come self-validating leaves
    /// with copy-on-write, and entries of two lines, on the medium that can lose most.
    fn configurations() -> Vec<Explored<Self>> {
        // Each of the splits with one way to rebalance, and one of them also with the other form of
        // leaves.
        let forms = [
            ("in-place", LeafForm::Bitmap, Rebalancing::InPlace, Split::RStar),
            ("copy-on-write", LeafForm::Bitmap, Rebalancing::CopyOnWrite, Split::Quadratic),
            ("self-validating", LeafForm::SelfValidating, Rebalancing::InPlace, Split::RStar),
        ];
        let everywhere = [4, 60].into_iter().flat_map(|fan_out| forms.map(|form| (fan_out, form)));
        let copied = ("self-validating-copied", LeafForm::SelfValidating, Rebalancing::CopyOnWrite, Split::Quadratic);
        let in_4 = ("four-dimensions", LeafForm::Bitmap, Rebalancing::InPlace, Split::RStar);
        let mut all: Vec<_> = everywhere
            .flat_map(|(fan_out, form)| MEDIA.map(|medium| Self::configured(Dimensions::Two, fan_out, form, medium)))
            .collect();
        all.push(Self::configured(Dimensions::Two, 4, copied, MEDIA[0]));
        all.push(Self::configured(Dimensions::Four, 4, in_4, MEDIA[0]));
        all
    }

    fn domain(&self) -> PersistenceDomain {
        self.options.pool.domain
    }

    fn has_small_nodes(&self) -> bool {
        self.options.fan_out < 10
    }

    fn create(&self, storage: &dyn Storage, name: &str) -> Checked<Box<dyn PlanarTree>> {
        match self.dimensions {
            Dimensions::Two => boxed(FbrTree::<2, _>::create(storage, name, &self.options)),
            Dimensions::Four => boxed(FbrTree::<4, _>::create(storage, name, &self.options)),
        }
    }

    fn open(&self, storage: &dyn Storage, name: &str) -> Checked<Box<dyn PlanarTree>> {
        match self.dimensions {
            Dimensions::Two => boxed(FbrTree::<2, _>::open(storage, name, &self.options)),
            Dimensions::Four => boxed(FbrTree::<4, _>::open(storage, name, &self.options)),
        }
    }

    fn steps(&self, seed: u64) -> Vec<Step> {
        random_steps(seed, if self.has_small_nodes() { STEPS } else { STEPS_LARGE })
    }

    fn places() -> Vec<Place> {
        PLACES.to_vec()
    }

    fn shown_by(Dropped { instruction, site }: &Dropped) -> Option<&'static str> {
        match (instruction, site.as_str()) {
            (_, "fbr.search.persist") => {
                Some("pmtree/tests/interleavings.rs: what_a_search_has_seen_is_lost_if_it_does_not_make_it_durable")
            }
            // Disks are not full in histories.
            (_, "fbr.insert.failed") => {
                Some("pmtree/tests/full_disk.rs: what_a_failed_insertion_has_enlarged_is_lost_without_its_fence")
            }
            // Its blocks have to be reused before the loss does harm.
            (Instruction::Flush, "fbr.log.withdraw") => {
                Some("pmtree/tests/crash.rs: a_change_that_was_undone_stays_undone_when_its_blocks_are_used_again")
            }
            // Histories make no trees in the older format.
            (_, "fbr.shorten") => {
                Some("pmtree/tests/marks.rs: an_older_tree_is_one_for_ever_if_it_is_not_flushed_that_it_is_none")
            }
            _ => None,
        }
    }
}
