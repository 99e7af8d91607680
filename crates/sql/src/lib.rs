//! SQL over a Terrane store: Apache DataFusion with datasets as tables and spatial functions.
//!
//! A [`Session`] runs the statements of a [`Script`] in order. Each sees the state of the store at
//! its start. Filters on geometries and attributes are answered by the engine's
//! indexes; `EXPLAIN` shows how.

#![forbid(unsafe_code)]

mod answer;
mod arithmetic;
mod catalog;
mod chains;
mod comparisons;
mod counts;
mod dialect;
mod error;
mod files;
mod forms;
mod functions;
mod geographies;
mod geometry;
mod join;
mod kept;
mod lateral;
mod nearest;
mod operators;
mod prepared;
mod pushdown;
mod runner;
mod scan;
mod session;
mod sort;
mod statement;
mod streamed;
mod sums;
mod table;
mod words;
mod write;

pub use answer::{Again, Answer};
pub use error::SqlError;
pub use files::{CallerTable, CallerTables};
pub use geometry::srid_of;
pub use prepared::Param;
pub use session::{Script, Session, SessionOptions};
pub use sort::{Sorting, order_of};
pub use statement::{SQL_BYTES_MAX, SQL_TOKENS_MAX, ends_with_semicolon};
pub use table::table_of;
pub use write::write_options;
