//! R-trees, and their common parts.

mod census;
mod choose;
pub mod fbr;
mod interfaces;
mod leaf_form;
#[cfg(feature = "baselines")]
pub mod logged;
mod marks;
mod nearest;
mod pack;
pub mod pear;
pub mod pmr;
mod rect;
mod search;
#[cfg(feature = "explorer")]
pub(crate) mod shape;
mod split;
mod tree;

pub use census::Census;
pub use leaf_form::LeafForm;
pub use rect::Rect;
pub use split::Split;
pub use tree::{NearestSearch, PersistentRTree};
