//! R-trees as subjects of the crash explorer.

use std::fmt::Debug;
use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use terrane_pmem::explorer::{Checked, Dropped, Place, Subject};
use terrane_storage::{File, OpenMode, Storage};

use super::spread::PlanarTree;
use super::steps::{Model, Step, random_rect};
use crate::PersistenceDomain;

/// An R-tree in one configuration, as the explorer needs it.
///
/// Opening may leave interrupted changes to look-ups. The explorer treats the observation of a tree
/// after a crash as a part of recovery, and crashes there too. Histories that continue after a
/// crash begin with their first step, before anything has read the tree.
pub trait ExploredTree: Clone + Debug + Send + Sync {
    /// Name of the structure, such as `fbr`. The names of its flushes and fences begin with it.
    const NAME: &'static str;

    /// Every configuration that is explored, with its name.
    fn configurations() -> Vec<Explored<Self>>;

    /// The medium.
    fn domain(&self) -> PersistenceDomain;

    /// Whether a few entries make a tree of several nodes. Only such trees have small cases.
    fn has_small_nodes(&self) -> bool;

    /// Creates a tree.
    fn create(&self, storage: &dyn Storage, name: &str) -> Checked<Box<dyn PlanarTree>>;

    /// Opens a tree.
    fn open(&self, storage: &dyn Storage, name: &str) -> Checked<Box<dyn PlanarTree>>;

    /// A random history for a seed.
    fn steps(&self, seed: u64) -> Vec<Step>;

    /// All its flushes and fences.
    fn places() -> Vec<Place>;

    /// File and name of the test that shows the loss of a flush or fence, if no history of
    /// consecutive steps does.
    fn shown_by(dropped: &Dropped) -> Option<&'static str> {
        let _ = dropped;
        None
    }
}

/// The media, by their names in configurations.
pub(super) const MEDIA: [(&str, PersistenceDomain); 3] =
    [("adr", PersistenceDomain::Adr), ("eadr", PersistenceDomain::Eadr), ("page-cache", PersistenceDomain::PageCache)];

/// Small chunks, so that pools grow and are soon scanned.
pub(super) fn in_small_chunks(pool: &mut terrane_pmem::Options) {
    pool.chunk_length = 1 << 16;
    pool.address_space = 1 << 28;
}

/// A tree with a name for its configuration.
#[derive(Clone, Debug)]
pub struct Explored<T> {
    pub(super) configuration: String,
    /// The configured tree.
    pub tree: T,
}

/// An open tree, and its file.
#[derive(Debug)]
pub struct Run {
    tree: Box<dyn PlanarTree>,
    file: Arc<dyn File>,
}

const NAME: &str = "tree";

impl Run {
    fn new(tree: Checked<Box<dyn PlanarTree>>, storage: &dyn Storage) -> Checked<Self> {
        let tree = tree?;
        let file = storage.open(NAME, OpenMode::Write).map_err(|error| error.to_string())?;
        Ok(Self { tree, file })
    }
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Checked<()> {
    if holds { Ok(()) } else { Err(what()) }
}

impl<T: ExploredTree> Subject for Explored<T> {
    type Structure = Run;
    type Step = Step;
    type Model = Model;

    fn structure(&self) -> &'static str {
        T::NAME
    }

    fn configuration(&self) -> &str {
        &self.configuration
    }

    fn domain(&self) -> PersistenceDomain {
        self.tree.domain()
    }

    fn create(&self, storage: &dyn Storage) -> Checked<Run> {
        Run::new(self.tree.create(storage, NAME), storage)
    }

    fn open(&self, storage: &dyn Storage) -> Checked<Run> {
        Run::new(self.tree.open(storage, NAME), storage)
    }

    fn steps(&self, seed: u64) -> Vec<Step> {
        self.tree.steps(seed)
    }

    fn apply(&self, Run { tree, file }: &Run, model: &mut Model, step: &Step) -> Checked<()> {
        match step {
            Step::Insert(rect, payload) => {
                model.insert(*rect, *payload);
                tree.insert(rect, *payload)
            }
            Step::Delete(rect, payload) => {
                let (was_there, is_deleted) = (model.delete(rect, *payload), tree.delete(rect, *payload)?);
                ensure(was_there == is_deleted, || format!("{step}: deleted {is_deleted}, was there {was_there}"))
            }
            Step::LookUp(rect, payload) => {
                let (is_there, is_found) = (model.0.contains(&(*rect, *payload)), tree.contains(rect, *payload)?);
                ensure(is_there == is_found, || format!("{step}: found {is_found}, is there {is_there}"))
            }
            Step::Sync => file.sync_data().map_err(|error| error.to_string()),
        }
    }

    fn observe(&self, Run { tree, .. }: &mut Run) -> Checked<Model> {
        let model = tree.entries()?;
        for (rect, payload) in &model.0 {
            let is_found = tree.contains(rect, *payload)?;
            ensure(is_found, || format!("{payload} is in the wrong place"))?;
        }
        Ok(model)
    }

    fn check_usable(&self, run: &mut Run, mut model: Model) -> Checked<()> {
        let mut random = SmallRng::seed_from_u64(9);
        for payload in 1000..1006 {
            self.apply(run, &mut model, &Step::Insert(random_rect(&mut random), payload))?;
        }
        while let Some(&(rect, payload)) = model.0.last() {
            self.apply(run, &mut model, &Step::Delete(rect, payload))?;
        }
        let left = self.observe(run)?;
        ensure(left == model, || format!("{left:?} remain of the deleted entries"))
    }

    fn places(&self) -> Vec<Place> {
        T::places()
    }

    fn shown_by(&self, dropped: &Dropped) -> Option<&'static str> {
        T::shown_by(dropped)
    }
}
