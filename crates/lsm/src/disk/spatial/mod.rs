//! Common parts of the trees of boxes: leaves in an R-tree's layout, and how to build, search and
//! iterate over them. Only the inner pages differ, which guide a search.

pub(super) mod build;
mod cursor;
mod search;

use std::fmt::Debug;
use std::sync::Arc;

use terrane_space::Rect;

pub use cursor::TreeCursor;
pub use search::{WindowSearch, part_meeting};

use super::component::ComponentFile;
use super::page::{Page, PagePointer, PageRef};
use super::rtree::{Leaf, WindowBits};
use super::slot::ReadGuard;
use crate::curve::Probe;
use crate::{Error, Result};

/// A page of a tree.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it lives on the stack for one visit, and leaves are the common case")]
pub enum Node<'a, I> {
    /// Children.
    Inner(I),
    /// Entries.
    Leaf(Leaf<'a>),
}

/// A window, prepared for all kinds of trees.
#[derive(Debug)]
pub struct WindowQuery {
    /// The window.
    pub rect: Rect,
    /// Its sides, in the forms for comparisons with leaves and boxes.
    pub bits: WindowBits,
    /// Its positions on a curve; for curve-keyed trees.
    pub probe: Option<Probe>,
}

/// A component whose leaves hold boxes with keys.
pub trait SpatialTree: Debug {
    /// An inner page.
    type Inner<'a>;
    /// The rule for which entries of a leaf represent their objects.
    type Filter<'a>;
    /// The data, besides the component, from which positions of entries are computed.
    type Order: Copy + Debug;

    /// The underlying file.
    fn file(&self) -> &Arc<ComponentFile>;

    /// Checks the structure of a page that enters memory.
    fn validate(page: &Page) -> std::result::Result<(), String>;

    /// The content of a page.
    fn node<'a>(&self, page: &'a Page, pointer: PagePointer) -> Result<Node<'a, Self::Inner<'a>>>;

    /// The children of an inner page, in order.
    fn children<'i>(inner: &'i Self::Inner<'_>) -> &'i [PagePointer];

    /// Adds the parts that this tree needs to a query.
    fn prepare(&self, query: &mut WindowQuery);

    /// Passes the children that may have entries in the window to `child`.
    fn mark(&self, inner: &Self::Inner<'_>, query: &WindowQuery, child: impl FnMut(PagePointer));

    /// The rule for which entries of a leaf represent their objects.
    fn filter<'a>(&self, leaf: &Leaf<'a>, query: &WindowQuery) -> Self::Filter<'a>;

    /// Whether an entry in the window represents its object.
    fn reports(&self, filter: &Self::Filter<'_>, leaf: &Leaf<'_>, index: usize, query: &WindowQuery) -> bool;

    /// The position of an entry.
    fn position(&self, leaf: &Leaf<'_>, index: usize, order: Self::Order) -> u64;

    /// Reads a page.
    #[inline]
    fn page<'g>(&self, pointer: PagePointer, guard: &'g ReadGuard) -> Result<PageRef<'g>> {
        self.file().page(pointer, Self::validate, guard)
    }

    /// Reads a page that will not be needed again soon.
    fn page_once(&self, pointer: PagePointer) -> Result<Page> {
        self.file().page_once(pointer, Self::validate)
    }
}

/// Pages are written after those below them. A descent relies on this to end, whatever a page
/// contains.
#[cold]
fn not_below(component: &impl SpatialTree, pointer: PagePointer) -> Error {
    component.file().damaged(pointer, "a child lies behind its parent")
}
