//! A tree as the explorer uses it, whichever it is.

use std::fmt::Debug;

use terrane_pmem::explorer::Checked;
use terrane_pmem::{Dropping, Traced};
use terrane_storage::Storage;

use super::{Model, text};
use crate::rtree::shape::Shape;
use crate::{FbrTree, LoggedTree, Options, PersistentRTree, Rect, SearchMode};

/// The trees that are explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// [`FbrTree`].
    Fbr,
    /// [`LoggedTree`].
    Logged,
}

/// What the explorer asks of a tree.
pub(super) trait Tree: Debug + Send + Sync {
    fn insert(&self, rect: &Rect<2>, payload: u64) -> Checked<()>;
    fn delete(&self, rect: &Rect<2>, payload: u64) -> Checked<bool>;
    fn contains(&self, rect: &Rect<2>, payload: u64) -> Checked<bool>;

    /// All entries, after a check of the structure.
    fn entries(&mut self) -> Checked<Model>;

    /// What tells trees apart.
    fn shape(&self) -> Checked<String>;
}

impl<T: PersistentRTree<2, Backend = Dropping<Traced>> + Shape> Tree for T {
    fn insert(&self, rect: &Rect<2>, payload: u64) -> Checked<()> {
        PersistentRTree::insert(self, rect, payload).map_err(text)
    }

    fn delete(&self, rect: &Rect<2>, payload: u64) -> Checked<bool> {
        PersistentRTree::delete(self, rect, payload).map_err(text)
    }

    fn contains(&self, rect: &Rect<2>, payload: u64) -> Checked<bool> {
        PersistentRTree::contains(self, rect, payload).map_err(text)
    }

    fn entries(&mut self) -> Checked<Model> {
        self.check().map_err(text)?;
        let everything = Rect::raw([f64::MIN; 2], [f64::MAX; 2]);
        let mut model = Model::default();
        let mut collect = |rect: &Rect<2>, payload| model.insert(*rect, payload);
        self.window(&everything, SearchMode::Validated, &mut collect).map_err(text)?;
        Ok(model)
    }

    fn shape(&self) -> Checked<String> {
        Shape::shape(self).map_err(text)
    }
}

impl Kind {
    pub(super) fn create(self, storage: &dyn Storage, name: &str, options: &Options) -> Checked<Box<dyn Tree>> {
        match self {
            Self::Fbr => boxed(<FbrTree<2, _> as PersistentRTree<2>>::create(storage, name, options)),
            Self::Logged => boxed(<LoggedTree<2, _> as PersistentRTree<2>>::create(storage, name, options)),
        }
    }

    pub(super) fn open(self, storage: &dyn Storage, name: &str, options: &Options) -> Checked<Box<dyn Tree>> {
        match self {
            Self::Fbr => boxed(<FbrTree<2, _> as PersistentRTree<2>>::open(storage, name, options)),
            Self::Logged => boxed(<LoggedTree<2, _> as PersistentRTree<2>>::open(storage, name, options)),
        }
    }
}

fn boxed<T: PersistentRTree<2, Backend = Dropping<Traced>> + Shape + 'static>(
    tree: crate::Result<T>,
) -> Checked<Box<dyn Tree>> {
    Ok(Box::new(tree.map_err(text)?))
}
