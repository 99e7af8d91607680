//! What the trees of boxes have in common: leaves of an R-tree's layout, how they are built, searched and gone over.
//! Only the inner pages differ, which tell where to look.

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

/// A window, prepared for what trees ask of it.
#[derive(Debug)]
pub struct WindowQuery {
    /// The window.
    pub rect: Rect,
    /// Its sides as leaves and boxes are compared with them.
    pub bits: WindowBits,
    /// Its places on a curve; of curve-keyed trees.
    pub probe: Option<Probe>,
}

/// A component whose leaves hold boxes with keys.
pub trait SpatialTree: Debug {
    /// An inner page.
    type Inner<'a>;
    /// Tells which entries of a leaf stand for their objects.
    type Filter<'a>;
    /// What positions of entries follow from, besides the component.
    type Order: Copy + Debug;

    /// The file underneath.
    fn file(&self) -> &Arc<ComponentFile>;

    /// Checks the structure of a page that enters memory.
    fn validate(page: &Page) -> std::result::Result<(), String>;

    /// What a page holds.
    fn node<'a>(&self, page: &'a Page, pointer: PagePointer) -> Result<Node<'a, Self::Inner<'a>>>;

    /// The children of an inner page, in order.
    fn children<'i>(inner: &'i Self::Inner<'_>) -> &'i [PagePointer];

    /// Adds to a query what this tree asks for.
    fn prepare(&self, query: &mut WindowQuery);

    /// Hands over the children that may have entries in the window.
    fn mark(&self, inner: &Self::Inner<'_>, query: &WindowQuery, child: impl FnMut(PagePointer));

    /// What decides in a leaf which entries stand for their objects.
    fn filter<'a>(&self, leaf: &Leaf<'a>, query: &WindowQuery) -> Self::Filter<'a>;

    /// Whether an entry in the window is the one that stands for its object.
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

/// Pages are written after those below them. Whoever goes down relies on it to come to an end, whatever a
/// page says.
#[cold]
fn not_below(component: &impl SpatialTree, pointer: PagePointer) -> Error {
    component.file().damaged(pointer, "a child lies behind its parent")
}
