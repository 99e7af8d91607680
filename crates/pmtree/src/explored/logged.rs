//! The tree that logs whole nodes as a subject of the crash explorer.

use terrane_pmem::explorer::{Checked, Place};
use terrane_storage::Storage;

use super::spread::{PlanarTree, boxed};
use super::steps::{Step, random_steps};
use super::subject::{Explored, ExploredTree, MEDIA, in_small_chunks};
use crate::logged::{LoggedTree, Logging, Options};
use crate::{PersistenceDomain, PersistentTree};

/// Entries of a node. Large nodes add no other cases.
const FAN_OUT: usize = 4;

/// Steps of a random history. They suffice for a path of more nodes than the log's first line
/// names.
const STEPS: usize = 80;

const PLACES: [Place; 20] = [
    Place::both("logged.create"),
    Place::both("logged.create.link"),
    Place::flush("logged.create.root"),
    Place::both("logged.log.apply"),
    Place::flush("logged.log.apply.root"),
    Place::both("logged.log.clear"),
    Place::both("logged.log.commit"),
    Place::fence("logged.log.extend"),
    Place::both("logged.log.extend.link"),
    Place::both("logged.log.image"),
    Place::flush("logged.log.later"),
    Place::flush("logged.log.node"),
    Place::both("logged.undo.apply"),
    Place::flush("logged.undo.apply.root"),
    Place::both("logged.undo.begin"),
    Place::both("logged.undo.commit"),
    Place::flush("logged.undo.range"),
    Place::both("logged.undo.ranges"),
    Place::both("logged.undo.restore"),
    Place::flush("logged.undo.restore.root"),
];

/// A tree of small nodes that logs them whole.
#[derive(Clone, Debug)]
pub struct Logged {
    options: Options,
}

impl ExploredTree for Logged {
    const NAME: &'static str = "logged";

    fn configurations() -> Vec<Explored<Self>> {
        let on = |name: &str, logging, (medium, domain)| {
            let mut options = Options { fan_out: FAN_OUT, logging, ..Options::new(domain) };
            in_small_chunks(&mut options.pool);
            Explored { configuration: format!("{name}{FAN_OUT}-{medium}"), tree: Self { options } }
        };
        let mut all = MEDIA.map(|medium| on("", Logging::Images, medium)).to_vec();
        all.extend(MEDIA.map(|medium| on("undo-", Logging::Ranges, medium)));
        all
    }

    fn domain(&self) -> PersistenceDomain {
        self.options.pool.domain
    }

    fn has_small_nodes(&self) -> bool {
        true
    }

    fn create(&self, storage: &dyn Storage, name: &str) -> Checked<Box<dyn PlanarTree>> {
        boxed(LoggedTree::<2, _>::create(storage, name, &self.options))
    }

    fn open(&self, storage: &dyn Storage, name: &str) -> Checked<Box<dyn PlanarTree>> {
        boxed(LoggedTree::<2, _>::open(storage, name, &self.options))
    }

    fn steps(&self, seed: u64) -> Vec<Step> {
        random_steps(seed, STEPS)
    }

    fn places() -> Vec<Place> {
        PLACES.to_vec()
    }
}
