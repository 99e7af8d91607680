//! The PM-RTREE as a subject of the crash explorer.

use terrane_pmem::explorer::{Checked, Dropped, Place};
use terrane_storage::Storage;

use super::spread::{PlanarTree, boxed};
use super::steps::{Step, random_steps};
use super::subject::{Explored, ExploredTree, MEDIA, in_small_chunks};
use crate::pmr::{LeafForm, Options, PmrTree, Publication};
use crate::{PersistenceDomain, Split};

/// Steps of a random history, for small leaves and for others.
const STEPS: usize = 60;
const STEPS_LARGE: usize = 230;

/// Children of an inner node.
const INNER_FAN_OUT: usize = 4;

const PLACES: [Place; 9] = [
    Place::flush("pmr.copy"),
    Place::flush("pmr.create"),
    Place::both("pmr.delete.map"),
    Place::both("pmr.insert.entry"),
    Place::both("pmr.insert.map"),
    Place::both("pmr.read.persist"),
    Place::both("pmr.tags.entry"),
    Place::both("pmr.tags.restore"),
    Place::both("pmr.tags.revoke"),
];

/// A PM-RTREE with some options.
#[derive(Clone, Debug)]
pub struct Pmr {
    /// The options.
    pub options: Options,
    is_in_four: bool,
}

/// How valid entries of a leaf are marked.
#[derive(Clone, Copy)]
enum Form {
    Interleaved,
    Sequential,
    SelfValidating,
}

impl Pmr {
    fn configured(
        (name, form, publication, split): (&str, Form, Publication, Split),
        fan_out: usize,
        (medium, domain): (&str, PersistenceDomain),
    ) -> Explored<Self> {
        let (leaves, interleaved) = match form {
            Form::Interleaved => (LeafForm::Bitmap, true),
            Form::Sequential => (LeafForm::Bitmap, false),
            Form::SelfValidating => (LeafForm::SelfValidating, false),
        };
        let mut options = Options { fan_out, leaves, interleaved, publication, split, ..Options::new(domain) };
        (options.inner_fan_out, options.recovery_threads) = (INNER_FAN_OUT, 1);
        in_small_chunks(&mut options.pool);
        let tree = Self { options, is_in_four: name == "four-dimensions" };
        Explored { configuration: format!("{name}-{fan_out}-{medium}"), tree }
    }
}

impl ExploredTree for Pmr {
    const NAME: &'static str = "pmr";

    /// Small leaves first, then ones with bitmaps of several words. Last come the other options,
    /// and entries of two lines, on the medium that can lose most.
    fn configurations() -> Vec<Explored<Self>> {
        let (swap, interleaved) = (Publication::CompareAndSwap, Form::Interleaved);
        let everywhere = [
            (("interleaved", interleaved, swap, Split::RStar), 4),
            (("self-validating", Form::SelfValidating, swap, Split::Quadratic), 4),
            (("interleaved", interleaved, swap, Split::Quadratic), 100),
        ];
        let everywhere = everywhere.map(|(form, fan_out)| MEDIA.map(|medium| Self::configured(form, fan_out, medium)));
        let others = [
            (("sequential", Form::Sequential, swap, Split::RStar), 100),
            (("self-validating", Form::SelfValidating, swap, Split::RStar), 100),
            (("descriptor", interleaved, Publication::Descriptor, Split::Quadratic), 4),
            (("four-dimensions", interleaved, swap, Split::RStar), 4),
        ];
        let others = others.map(|(form, fan_out)| Self::configured(form, fan_out, MEDIA[0]));
        everywhere.into_iter().flatten().chain(others).collect()
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
            "pmr.tags.restore" => {
                Some("pmtree/tests/pmr_threads.rs: what_a_failed_operation_has_written_does_not_count")
            }
            _ => None,
        }
    }
}
