//! The FBR-tree: an R-tree that is changed by 8-byte stores in an order that lets it be used after
//! a crash at any instant (Cho 2020, "Failure-Atomic Byte-Addressable R-tree for Persistent
//! Memory").
//!
//! Invariants, after each store that has become durable:
//! - F1: an entry whose bit is set is whole, and durably so before the bit is set; of one that
//!   validates itself, its tag is the bit.
//! - F2: the box of a child contains all that can be found below it, durably so before it can be.
//! - F3: a node that is reachable is linked by one valid entry, by the root word, or by a committed
//!   log entry.
//! - F4: what changes more than one word at once is said by a log entry that commits with one word;
//!   until that entry is cleared, the nodes that it names have the bitmaps that it holds.
//! - F5: sequence numbers, words of the log in nodes, marks, and the flag "dirty" are volatile.
//!   They become durable with their lines; so they, or the log word beside the flag, carry the
//!   number of the session, and who opens the pool ignores them.
//!
//! And what a thread may build upon before its own fence, which covers what it has flushed itself
//! alone:
//! - F6: a box contains what is stored in its place now also in every state in which a power loss
//!   may leave it, unless it has a mark of this use of the pool. So boxes shrink without a flush,
//!   one coordinate after the other inwards; they grow with a mark, or while their node is locked
//!   until they are durable; and who relies on a box with a mark flushes its line.
//!
//! - F7: a commitment, of the log or the root word, is visible before it is durable. Until it is
//!   both and complete, its writer holds the locks of all nodes that it changes or links: of the
//!   parent (or of the root), of the old nodes and of the new ones. Insertions come by the parent,
//!   deletions change what is below a node with its lock. So until then nobody has built on the one
//!   side what a power loss that leaves the other side would take away: the nodes of both hold the
//!   same, and a search may go by either.
//!
//! Writers hold the locks of a node and its parent while they link, unlink or move entries, taken
//! from the root downwards (crabbing). Readers take none but where writers overtake them again and
//! again; see `search.rs`.

mod access;
mod check;
mod delete;
mod entry;
mod insert;
mod layout;
mod locks;
mod log;
mod look;
mod merge;
mod node;
mod open;
mod options;
mod recover;
mod search;
#[cfg(feature = "explorer")]
mod shape;
mod split;
mod tags;
#[cfg(all(test, not(shuttle)))]
mod tests;
mod traits;
mod tree;
mod underfull;

pub use layout::LeafForm;
pub use options::{Options, Rebalancing};
pub use search::SearchMode;
pub use tree::FbrTree;
