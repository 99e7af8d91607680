//! Well-known text.

mod parse;
mod print;

pub use parse::from_wkt;
pub use print::to_wkt;
