//! Any tree as the explorer uses it, in two or more dimensions.
//!
//! Steps and models have two. In a tree of more, a box has these repeatedly. So if a part of an
//! entry is lost, its dimensions differ, and the entry is reported as it is.

use std::fmt::Debug;

use terrane_pmem::explorer::Checked;
use terrane_pmem::{Backend, Dropping, Traced};

use super::steps::Model;
use crate::rtree::shape::Shape;
use crate::{Durability, PersistentRTree, Rect};

/// The operations that the explorer needs.
pub trait PlanarTree: Debug + Send + Sync {
    /// Inserts an entry.
    fn insert(&self, rect: &Rect<2>, payload: u64) -> Checked<()>;

    /// Deletes an entry. Gives whether it was there.
    fn delete(&self, rect: &Rect<2>, payload: u64) -> Checked<bool>;

    /// Whether an entry is there.
    fn contains(&self, rect: &Rect<2>, payload: u64) -> Checked<bool>;

    /// All entries, after a check of the structure.
    fn entries(&mut self) -> Checked<Model>;

    /// The text that distinguishes trees.
    fn shape(&self) -> Checked<String>;
}

fn text(error: crate::Error) -> String {
    error.to_string()
}

/// A tree of any number of dimensions.
#[derive(Debug)]
struct In<const D: usize, T>(T);

fn spread<const D: usize>(rect: &Rect<2>) -> Rect<D> {
    let (min, max) = (rect.min(), rect.max());
    Rect::raw(std::array::from_fn(|axis| min[axis % 2]), std::array::from_fn(|axis| max[axis % 2]))
}

impl<const D: usize, T: PersistentRTree<D, Backend = Dropping<Traced>> + Shape> PlanarTree for In<D, T> {
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
        self.0.window(&everything, &mut collect).map_err(text)?;
        torn.map_or(Ok(model), Err)
    }

    fn shape(&self) -> Checked<String> {
        self.0.shape().map_err(text)
    }
}

/// A tree as the explorer uses it, if it was made or opened.
pub(super) fn boxed<const D: usize, T: PersistentRTree<D, Backend = Dropping<Traced>> + Shape + 'static>(
    tree: crate::Result<T>,
) -> Checked<Box<dyn PlanarTree>> {
    let tree = tree.map_err(text)?;
    let (stated, searched) = (tree.durability(), Durability::of_medium(tree.pool().backend().domain()));
    match stated == searched {
        true => Ok(Box::new(In(tree))),
        false => Err(format!("it states {stated:?}, and the search is for {searched:?}")),
    }
}
