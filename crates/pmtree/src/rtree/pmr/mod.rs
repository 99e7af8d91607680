//! The PM-RTREE: leaves in a pool, inner nodes in memory, and no locks (Lavinsky and Zhang 2022,
//! "PM-RTREE: A Highly-Efficient Crash-Consistent R-tree for Persistent Memory").
//!
//! Leaves form a chain, from which an opening rebuilds the inner nodes. Insertions, deletions and
//! searches of several threads never wait for each other, except inside of the allocator.
//!
//! The invariants P1 to P7 are those of decision 40, which argues for each of them:
//! - P1: a slot is used once in the life of a leaf.
//! - P2: a word of a bitmap is dirty until it is durable. Readers make it so.
//! - P3: no bit of a frozen leaf changes.
//! - P4: a leaf is replaced by the change of its own next word.
//! - P5: the children of an inner node are fixed, apart from copies of a child.
//! - P6: an inner node is frozen before it is copied.
//! - P7: boxes grow coordinate by coordinate, and never shrink in place.
//! - P8: where entries validate themselves, a tag changes durably before the bit in memory.

mod chain;
mod check;
mod copy;
mod delete;
mod gaps;
mod inner;
mod insert;
mod layout;
mod leaf;
mod merge;
mod nearest;
mod open;
mod options;
mod recover;
mod replace;
mod search;
#[cfg(feature = "explorer")]
mod shape;
mod tags;
mod tree;
#[cfg(feature = "baselines")]
mod unpartitioned;

#[cfg(feature = "explorer")]
pub use options::Gap;
pub use options::{Options, Publication};
pub use tree::PmrTree;
#[cfg(feature = "baselines")]
pub use unpartitioned::UnpartitionedTree;

pub use super::LeafForm;

super::interfaces::implement_interfaces!(PmrTree, Options);
