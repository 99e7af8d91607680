//! The PM-RTREE as a subject of the crash explorer.

use terrane_pmem::explorer::{Checked, Dropped, Place};
use terrane_storage::Storage;

use super::spread::{PlanarTree, boxed};
use super::steps::{Step, random_steps};
use super::subject::{Explored, ExploredTree, MEDIA, in_small_chunks};
use crate::pmr::{Options, PmrTree, Publication};
use crate::{PersistenceDomain, Split};

/// Steps of a random history, for small leaves and for others.
const STEPS: usize = 60;
const STEPS_LARGE: usize = 230;

/// Children of an inner node.
const INNER_FAN_OUT: usize = 4;

const PLACES: [Place; 6] = [
    Place::flush("pmr.copy"),
    Place::flush("pmr.create"),
    Place::both("pmr.delete.map"),
    Place::both("pmr.insert.entry"),
    Place::both("pmr.insert.map"),
    Place::both("pmr.read.persist"),
];

/// A PM-RTREE with some options.
#[derive(Clone, Debug)]
pub struct Pmr {
    /// The options.
    pub options: Options,
    is_in_four: bool,
}

impl Pmr {
    fn configured(
        (name, interleaved, publication, split): (&str, bool, Publication, Split),
        fan_out: usize,
        (medium, domain): (&str, PersistenceDomain),
    ) -> Explored<Self> {
        let mut options =
            Options { fan_out, interleaved, publication, split, recovery_threads: 1, ..Options::new(domain) };
        options.inner_fan_out = INNER_FAN_OUT;
        in_small_chunks(&mut options.pool);
        let tree = Self { options, is_in_four: name == "four-dimensions" };
        Explored { configuration: format!("{name}-{fan_out}-{medium}"), tree }
    }
}

impl ExploredTree for Pmr {
    const NAME: &'static str = "pmr";

    /// Small leaves first, then ones with bitmaps of several words. Last come publication by
    /// descriptors, and entries of two lines, on the medium that can lose most.
    fn configurations() -> Vec<Explored<Self>> {
        let swap = Publication::CompareAndSwap;
        let small = MEDIA.map(|medium| Self::configured(("interleaved", true, swap, Split::RStar), 4, medium));
        let large = MEDIA.map(|medium| Self::configured(("interleaved", true, swap, Split::Quadratic), 100, medium));
        let others = [
            (("sequential", false, swap, Split::RStar), 100),
            (("descriptor", true, Publication::Descriptor, Split::Quadratic), 4),
            (("four-dimensions", true, swap, Split::RStar), 4),
        ];
        let others = others.map(|(form, fan_out)| Self::configured(form, fan_out, MEDIA[0]));
        small.into_iter().chain(large).chain(others).collect()
    }

    fn domain(&self) -> PersistenceDomain {
        self.options.pool.domain
    }

    fn has_small_nodes(&self) -> bool {
        self.options.fan_out < 10
    }

    fn create(&self, storage: &dyn Storage, name: &str) -> Checked<Box<dyn PlanarTree>> {
        match self.is_in_four {
            false => boxed(PmrTree::<2, _>::create(storage, name, &self.options)),
            true => boxed(PmrTree::<4, _>::create(storage, name, &self.options)),
        }
    }

    fn open(&self, storage: &dyn Storage, name: &str) -> Checked<Box<dyn PlanarTree>> {
        match self.is_in_four {
            false => boxed(PmrTree::<2, _>::open(storage, name, &self.options)),
            true => boxed(PmrTree::<4, _>::open(storage, name, &self.options)),
        }
    }

    fn steps(&self, seed: u64) -> Vec<Step> {
        random_steps(seed, if self.has_small_nodes() { STEPS } else { STEPS_LARGE })
    }

    fn places() -> Vec<Place> {
        PLACES.to_vec()
    }

    fn shown_by(Dropped { site, .. }: &Dropped) -> Option<&'static str> {
        match site.as_str() {
            // One thread leaves no word dirty.
            "pmr.read.persist" => Some("pmtree/tests/pmr_threads.rs: what_a_search_has_seen_survives_a_power_loss"),
            _ => None,
        }
    }
}
