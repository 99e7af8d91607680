//! The log-structured merge framework of Terrane.
//!
//! It turns an index that can insert, delete and bulk-load into an LSM index: the
//! write-ahead [`log`], [`memory`] components, immutable [`disk`] components, the
//! manifest, Bloom filters and merge policies. It sees keys, rectangles and opaque
//! values; schemas, records, transactions and queries belong to the crate `terrane`.
#![deny(unsafe_code)]

mod error;
pub mod log;
#[allow(unsafe_code, reason = "the concurrent trees; every block states its argument")]
pub mod memory;
pub mod sync;

pub use error::{Error, Result};
