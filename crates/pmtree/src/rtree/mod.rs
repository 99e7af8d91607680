//! R-trees, and what they share.

mod choose;
mod closest;
pub mod fbr;
pub mod logged;
mod rect;
#[cfg(feature = "explorer")]
pub(crate) mod shape;
mod split;
pub mod tree;

pub use rect::Rect;
pub use split::Split;
