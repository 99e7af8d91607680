//! Immutable disk components: written once by bulk load, read through the page cache.
//!
//! A component is one file of checksummed pages of varying length. Its tree (B-tree,
//! R-tree or curve-keyed tree) is written bottom-up in one pass, with one open page per level, so building
//! takes memory for the height of the tree and not for its size.
//!
//! I1 A page's checksum covers the file's id and stamp, the page's number and its contents, so a
//!    page of another file, place or store is never taken for this one.
//! I2 A page's structure is validated once, when it enters memory; code that reads a page
//!    may rely on its counts and offsets.
//! I3 A component file is complete and synced before a manifest names it; a file that no
//!    manifest names is a stray and is removed when the store is opened for writing.
//! I4 No two files that manifests of a store have named share an id; strays may.

pub mod bloom;
pub mod btree;
mod cache;
mod column;
mod component;
pub mod curve;
mod keys;
mod page;
pub mod rtree;
#[allow(unsafe_code, reason = "reclamation of cached pages; every block states its argument")]
mod slot;
pub mod spatial;
mod writer;

pub use cache::{CacheCounters, PageCache};
pub use component::{ComponentFile, ComponentMeta, Statistics, component_name};
pub use keys::Key;
pub use page::{Page, PageKind, PagePointer, PageRef};
pub use slot::ReadGuard;
pub use writer::ComponentWriter;
