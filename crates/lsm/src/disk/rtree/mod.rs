//! The R-tree of a disk component: points or rectangles in Hilbert order, with their keys.
//!
//! Layouts of the pages' payloads. Every part is padded to 8 bytes.
//! - leaf: head of the keys · the columns of the coordinates, with integer keys in their rows ·
//!   body of other keys · anti-matter bits (if flagged) · begin and end sequence numbers (if
//!   flagged). The coordinates are x and y of points, x0, y0, x1 and y1 of rectangles.
//! - inner: x0, y0, x1, y1 of the children, four arrays of f32 rounded outward · pointers.
//!
//! I1 Entries ascend in (Hilbert position, key) over the whole tree.
//! I2 An inner entry's box encloses everything below it, anti-matter included.

mod build;
mod check;
mod distance;
mod kernels;
mod pages;
mod tree;

use std::sync::Arc;

pub use build::RTreeBuilder;
pub use distance::{BoxBounds, DistanceBounds, Origin, Surface};
pub use kernels::{SMALLEST_MAX, smallest};
pub use pages::{Entry, FANOUT_MAX, Hits, Inner, Leaf, Marks, WindowBits};
pub(super) use pages::{HAS_ANTIMATTER, HAS_SEQUENCES, POINTS_MAX, RECTANGLES, RECTANGLES_MAX};
pub use tree::{Node, RTreeCursor};

pub use super::spatial::WindowSearch;

use super::component::ComponentFile;
use crate::{Error, Result};

/// The name of this kind in component descriptions.
pub const KIND: &str = "rtree";

/// An open R-tree component.
#[derive(Debug)]
pub struct RTreeComponent {
    file: Arc<ComponentFile>,
}

impl RTreeComponent {
    /// Wraps a component file of this kind.
    pub fn open(file: Arc<ComponentFile>) -> Result<Self> {
        if file.meta().kind != KIND {
            return Err(Error::damaged(
                file.name(),
                0,
                format!("it is a {} component where an {KIND} was expected", file.meta().kind),
            ));
        }
        Ok(Self { file })
    }

    /// The underlying file.
    pub fn file(&self) -> &Arc<ComponentFile> {
        &self.file
    }
}
