//! R-trees, and what they share.

mod blocks;
mod choose;
mod closest;
mod creation;
pub mod fbr;
mod limits;
pub mod logged;
mod rect;
#[cfg(feature = "explorer")]
pub(crate) mod shape;
mod split;
pub mod tree;

pub use rect::Rect;
pub use split::Split;
