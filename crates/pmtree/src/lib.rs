//! Trees in persistent memory: R-trees that are durable at all times, without a log of their data,
//! B+-trees, and an ordered map.
//!
//! - [`fbr::FbrTree`] lies in persistent memory as a whole, and opens at once. Writers lock nodes.
//! - [`pmr::PmrTree`] has its inner nodes in memory, which opening rebuilds. No operation takes a
//!   lock, and an insertion writes less.
//! - [`pear::PearTree`] keeps inner nodes in memory up to a budget, which may be zero. The budget
//!   can change while the tree is in use.
//! - [`btree`] has B+-trees, which map keys to values of fixed widths. Five are durable at all
//!   times, and two only when they are closed.
//! - [`map::Map`] is one of these with typed keys, and values of up to 64 KiB.
//!
//! A tree lives in a mapped file. How much it survives depends on the file system:
//! - With direct access to persistent memory, insertions survive a power loss.
//! - On an ordinary file system, they survive the end of the process, including SIGKILL. After a
//!   power loss, opening refuses the file unless it was closed.
//!
//! A power loss is recognised by a restart of the machine. If only the disk goes away below an open
//! tree and comes back (pulled out, unmounted by force), the next opening does not notice, and data
//! that was not written yet is missing.
//!
//! A full disk is an error of the insertion that needs space, and loses nothing. Removals need no
//! space, except in [`btree::BTreeLs`]. The same holds for a limit on the length of files
//! (RLIMIT_FSIZE), if the process ignores or handles SIGXFSZ; otherwise that signal ends the
//! process. A PeaR-Tree that is opened on a full disk may have more nodes in memory than its
//! budget, until they can move.
//!
//! Close a tree before you copy it. A copy of an open tree may be refused. Until the machine
//! restarts it may also open like the file of a killed process, and lack some of the data written
//! meanwhile.
//!
//! Opening checks the header, the word that leads to the tree, its shape, the log or the chain of
//! leaves, and everything that recovery reads. If one of them is damaged, it returns an error and
//! leaves the file unchanged; [`pear::PearTree::open`] tells an exception. Nodes have no checksums,
//! since each insertion would have to update them. Other damage of nodes is found when an operation
//! meets something impossible, or by a tree's check, if it breaks the structure. The same holds for
//! the allocator's words. If bits of acquired blocks or a chunk's length have become 0, changes
//! overwrite nodes. So if a file may be damaged, check it before the first change. If a part of a
//! file has an earlier state, this is seldom detected.
//!
//! Each tree is a module with its own options. [`PersistentTree`], [`PersistentRTree`] and
//! [`NearestSearch`] are the common interfaces. The feature `baselines` adds the trees that others
//! are measured against.
//!
//! ```
//! use terrane_pmtree::fbr::{FbrTree, Options, SearchMode};
//! use terrane_pmtree::{PersistenceDomain, Rect};
//! use terrane_storage::RealStorage;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let is_shared = std::path::Path::new("/dev/shm").exists();
//! # let directory = tempfile::tempdir_in(if is_shared { "/dev/shm" } else { "." })?;
//! let storage = RealStorage::new(directory.path());
//! let options = Options::new(PersistenceDomain::PageCache);
//! let tree: FbrTree<2> = FbrTree::create(&storage, "tree", &options)?;
//! tree.insert(&Rect::point([13.4, 52.5])?, 1)?; // survives SIGKILL from here on
//! drop(tree); // as SIGKILL does
//! let tree: FbrTree<2> = FbrTree::open(&storage, "tree", &options)?;
//! let window = Rect::new([13.0, 52.0], [14.0, 53.0])?;
//! tree.window(&window, SearchMode::Validated, |rect, payload| {
//!     println!("{payload} at {:?}", rect.min());
//! })?;
//! # assert!(tree.contains(&Rect::point([13.4, 52.5])?, 1)?);
//! tree.close()?; // durable, also after a power loss
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod blocks;
pub mod btree;
mod creation;
mod error;
#[cfg(feature = "explorer")]
pub mod explored;
mod limits;
pub mod map;
mod parallel;
mod rtree;
mod table;
mod tree;

pub use error::{Error, Result};
#[cfg(feature = "baselines")]
pub use rtree::logged;
pub use rtree::{Census, NearestSearch, PersistentRTree, Rect, Split, fbr, pear, pmr};
/// Pools. Their [`Options`](terrane_pmem::Options) are part of a tree's options, their
/// [`Error`](terrane_pmem::Error) of its errors.
pub use terrane_pmem;
pub use terrane_pmem::PersistenceDomain;
pub use tree::{Durability, PersistentTree};
