//! R-trees in persistent memory: durable at all times, with no log of their data and nothing to
//! rebuild.
//!
//! A tree lives in a file that is mapped. On a file system with direct access to persistent memory,
//! what was inserted survives a power loss; on an ordinary one it survives the process, also
//! SIGKILL, and a power loss makes the next opening refuse the file, unless it was closed. A power
//! loss is told by a restart of the machine: where only the disk goes away beneath an open tree and
//! comes back (pulled out, unmounted by force), the next opening does not notice, and what the
//! system had not written yet is missing.
//!
//! A full disk is an error of the insertion that needs space, and loses nothing. So is a limit of
//! the length of files (RLIMIT_FSIZE), if the process ignores or handles SIGXFSZ; else that signal
//! ends it, as one may at any time.
//!
//! To copy a tree, close it before. A copy of an open one looks like what a killed process has
//! left, is opened as that until the machine restarts, and lacks some of what was written while it
//! was taken; or it is refused.
//!
//! Opening finds damage of the header, the word that leads to the tree, its shape, the log, and
//! what recovery meets, and refuses the file as it was. Nodes have no checksums, which each
//! insertion would have to change: what else has changed in them shows when an operation meets what
//! cannot be, and in [`fbr::FbrTree::check`] as far as it breaks the structure. The same goes for
//! the allocator's words: where bits of acquired blocks or a chunk's length have become 0, changes
//! overwrite nodes. So where a file may have been damaged, check it before the first change. A part
//! of a file that is as it was at an earlier time is seldom told from what should be there.
//!
//! Each tree is a module with options of its own. What trees have in common is in
//! [`PersistentTree`], [`PersistentRTree`] and [`NearestSearch`]. The feature `baselines` adds the
//! trees that others are measured against.
//!
//! ```
//! use terrane_pmtree::fbr::{FbrTree, Options, SearchMode};
//! use terrane_pmtree::{PersistenceDomain, Rect};
//! use terrane_storage::RealStorage;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir_in(if std::path::Path::new("/dev/shm").exists() { "/dev/shm" } else { "." })?;
//! let storage = RealStorage::new(directory.path());
//! let options = Options::new(PersistenceDomain::PageCache);
//! let tree: FbrTree<2> = FbrTree::create(&storage, "tree", &options)?;
//! tree.insert(&Rect::point([13.4, 52.5])?, 1)?; // survives SIGKILL from here on
//! drop(tree); // as SIGKILL does
//! let tree: FbrTree<2> = FbrTree::open(&storage, "tree", &options)?;
//! let window = Rect::new([13.0, 52.0], [14.0, 53.0])?;
//! tree.window(&window, SearchMode::Validated, |rect, payload| println!("{payload} at {:?}", rect.min()))?;
//! # assert!(tree.contains(&Rect::point([13.4, 52.5])?, 1)?);
//! tree.close()?; // durable, also after a power loss
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod blocks;
mod creation;
mod error;
#[cfg(feature = "explorer")]
pub mod explored;
mod limits;
mod rtree;
mod tree;

pub use error::{Error, Result};
#[cfg(feature = "baselines")]
pub use rtree::logged;
pub use rtree::{Census, NearestSearch, PersistentRTree, Rect, Split, fbr};
/// Pools, whose [`Options`](terrane_pmem::Options) are part of a tree's, and whose
/// [`Error`](terrane_pmem::Error) of its errors.
pub use terrane_pmem;
pub use terrane_pmem::PersistenceDomain;
pub use tree::{Durability, PersistentTree};
