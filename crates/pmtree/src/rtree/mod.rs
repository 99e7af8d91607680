//! R-trees, and their common parts.

mod census;
mod choose;
pub mod fbr;
#[cfg(feature = "baselines")]
pub mod logged;
mod nearest;
pub mod pmr;
mod rect;
mod search;
#[cfg(feature = "explorer")]
pub(crate) mod shape;
mod split;
mod tree;

pub use census::Census;
pub use rect::Rect;
pub use split::Split;
pub use tree::{NearestSearch, PersistentRTree};
