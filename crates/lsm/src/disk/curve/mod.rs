//! The curve-keyed trees of a disk component: B+-trees of points or rectangles in the order of
//! their positions on a curve, for the kinds of [`crate::curve`].
//!
//! Layouts of the pages' payloads. Every part is padded to 8 bytes.
//! - leaf: as in an R-tree · positions of the entries (if flagged), packed like integer keys.
//! - inner: first position of each child · last position of each child, both packed like integer
//!   keys · pointers.
//!
//! Inner pages hold positions in all kinds. Those of `dhb` are computed once, when a page is
//! written, so no comparison of a search accesses an entry. `dhb` thus saves the position in every
//! entry, where most of the space is. Leaves are filtered by coordinates, as in an R-tree.
//!
//! I1 Entries ascend in (position, key) over the whole tree.
//! I2 An inner entry has the first and the last position below it.
//! I3 Every object has an entry under each of its positions, and no other.

mod build;
mod check;
mod pages;
mod search;

use std::sync::Arc;

pub use build::CurveBuilder;
pub use pages::Inner;
pub use search::Filter;

use super::component::ComponentFile;
use super::rtree::Leaf;
use super::spatial::TreeCursor;
use crate::curve::Curve;
use crate::{Error, Result};

/// An open component of a curve-keyed kind.
#[derive(Debug)]
pub struct CurveComponent {
    file: Arc<ComponentFile>,
    curve: Curve,
}

/// Iterates over the entries of a component in the order of their positions.
pub type CurveCursor = TreeCursor<CurveComponent>;

impl CurveComponent {
    /// Wraps a component file of this kind.
    pub fn open(file: Arc<ComponentFile>, curve: Curve) -> Result<Self> {
        if file.meta().kind != curve.kind() {
            return Err(Error::damaged(
                file.name(),
                0,
                format!("it is a component of kind {} where {} was expected", file.meta().kind, curve.kind()),
            ));
        }
        Ok(Self { file, curve })
    }

    /// The underlying file.
    pub fn file(&self) -> &Arc<ComponentFile> {
        &self.file
    }

    /// The kind with its options.
    pub fn curve(&self) -> &Curve {
        &self.curve
    }

    /// The position of an entry, stored or computed from its coordinates.
    #[inline]
    fn position_of(&self, leaf: &Leaf<'_>, index: usize) -> u64 {
        if self.curve.stores_positions() {
            // Validated when the page entered memory.
            return pages::positions(leaf).map_or(0, |positions| positions.integer(index));
        }
        self.curve.computed_position(&leaf.rect(index))
    }
}
