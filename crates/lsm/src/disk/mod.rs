//! Immutable disk components: written once by bulk load, read through the page cache.
//!
//! A component is one file of checksummed pages of varying length. Its tree (B-tree, R-tree or
//! curve-keyed tree) is written bottom-up in one pass, with one open page per level. Memory for
//! building is therefore proportional to the height of the tree, not to its size.
//!
//! I1 A page's checksum covers the file's id and stamp, the page's number and its contents. A page
//!    of another file, position or store is therefore never accepted.
//! I2 A page's structure is validated once, when it enters memory. Code that reads a page may rely
//!    on its counts and offsets.
//! I3 A component file is complete and synced before a manifest names it. A file that no manifest
//!    names is a stray; it is removed when the store is opened for writing.
//! I4 No two files named in manifests of a store share an id; strays may.

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
mod times;
mod writer;

pub use cache::{CacheCounters, PageCache};
pub use component::{ComponentFile, ComponentMeta, Statistics, component_name};
pub use keys::Key;
pub use page::{Page, PageKind, PagePointer, PageRef};
pub use slot::ReadGuard;
pub use times::{RecordTimes, TimeRange};
pub use writer::ComponentWriter;
