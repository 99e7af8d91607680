//! R-trees, and what they share.

mod choose;
pub mod fbr;
mod rect;
mod split;

pub use rect::Rect;
pub use split::Split;
