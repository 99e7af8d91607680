//! The log-structured merge framework of Terrane.
//!
//! It turns an index with inserts, deletes and bulk loads into an LSM index. It consists of the
//! write-ahead [`log`], [`memory`] components, immutable [`disk`] components, the manifest, Bloom
//! filters and merge policies. It handles keys, rectangles and opaque values; schemas, records,
//! transactions and queries belong to the crate `terrane`.
#![deny(unsafe_code)]

pub mod curve;
pub mod disk;
mod error;
pub mod index;
pub mod log;
pub mod manifest;
#[allow(unsafe_code, reason = "the concurrent trees; every block states its argument")]
pub mod memory;
pub mod operation;
pub mod parallel;
pub mod partition;
pub mod policy;
pub mod search;
mod stamp;

pub use error::{Error, Result};
