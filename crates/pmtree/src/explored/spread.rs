//! A tree as the explorer uses it, whichever it is, in two dimensions or in more.
//!
//! Steps and models know two; a box of them has these over and over again in a tree of more. An entry of which a part is
//! lost has others, and is told as what it is.

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
    /// [`FbrTree`] of two dimensions.
    Fbr,
    /// [`FbrTree`] of four: an entry takes two lines.
    FbrIn4,
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

/// A tree of any number of dimensions.
#[derive(Debug)]
struct In<const D: usize, T>(T);

fn spread<const D: usize>(rect: &Rect<2>) -> Rect<D> {
    let (min, max) = (rect.min(), rect.max());
    Rect::raw(std::array::from_fn(|axis| min[axis % 2]), std::array::from_fn(|axis| max[axis % 2]))
}

impl<const D: usize, T: PersistentRTree<D, Backend = Dropping<Traced>> + Shape> Tree for In<D, T> {
    fn insert(&self, rect: &Rect<2>, payload: u64) -> Checked<()> {
        self.0.insert(&spread(rect), payload).map_err(text)
    }

    fn delete(&self, rect: &Rect<2>, payload: u64) -> Checked<bool> {
        self.0.delete(&spread(rect), payload).map_err(text)
    }

    fn contains(&self, rect: &Rect<2>, payload: u64) -> Checked<bool> {
        self.0.contains(&spread(rect), payload).map_err(text)
    }

    fn entries(&mut self) -> Checked<Model> {
        self.0.check().map_err(text)?;
        let everything = Rect::raw([f64::MIN; D], [f64::MAX; D]);
        let (mut model, mut torn) = (Model::default(), None);
        let mut collect = |found: &Rect<D>, payload| {
            let rect = Rect::raw([0, 1].map(|axis| found.min()[axis]), [0, 1].map(|axis| found.max()[axis]));
            if spread(&rect) != *found {
                torn = Some(format!("{payload} has the box {found:?}"));
            }
            model.insert(rect, payload);
        };
        self.0.window(&everything, SearchMode::Validated, &mut collect).map_err(text)?;
        torn.map_or(Ok(model), Err)
    }

    fn shape(&self) -> Checked<String> {
        self.0.shape().map_err(text)
    }
}

impl Kind {
    pub(super) fn create(self, storage: &dyn Storage, name: &str, options: &Options) -> Checked<Box<dyn Tree>> {
        match self {
            Self::Fbr => boxed(FbrTree::<2, _>::create(storage, name, options)),
            Self::FbrIn4 => boxed(FbrTree::<4, _>::create(storage, name, options)),
            Self::Logged => boxed(LoggedTree::<2, _>::create(storage, name, options)),
        }
    }

    pub(super) fn open(self, storage: &dyn Storage, name: &str, options: &Options) -> Checked<Box<dyn Tree>> {
        match self {
            Self::Fbr => boxed(FbrTree::<2, _>::open(storage, name, options)),
            Self::FbrIn4 => boxed(FbrTree::<4, _>::open(storage, name, options)),
            Self::Logged => boxed(LoggedTree::<2, _>::open(storage, name, options)),
        }
    }
}

fn boxed<const D: usize, T: PersistentRTree<D, Backend = Dropping<Traced>> + Shape + 'static>(
    tree: crate::Result<T>,
) -> Checked<Box<dyn Tree>> {
    Ok(Box::new(In(tree.map_err(text)?)))
}
