//! The FBR-tree: an R-tree that is changed by 8-byte stores, in an order that keeps it usable after
//! a crash at any instant (Cho 2020, "Failure-Atomic Byte-Addressable R-tree for Persistent
//! Memory").
//!
//! Invariants, after each store that has become durable:
//! - F1: an entry is durably whole before its bit is set. For an entry that validates itself, its
//!   tag is the bit.
//! - F2: the box of a child contains every entry that can be found below it, durably before it can
//!   be found.
//! - F3: a node that is reachable is linked by one valid entry, by the root word, or by a committed
//!   log entry.
//! - F4: a log entry describes a change of more than one word, and commits with one word. Until
//!   that entry is cleared, the nodes that it names have the bitmaps that it holds.
//! - F5: sequence numbers, log words of nodes, marks, and the flag "dirty" are volatile. They
//!   become durable with their lines. So they, or the log word beside the flag, carry the number of
//!   the session, and later sessions ignore them.
//!
//! A thread's own fence covers only its own flushes. Before it, a thread may rely on these:
//! - F6: in every state that a power loss may leave, a box contains its present value, unless it
//!   has a mark of this session. So boxes shrink without a flush, each coordinate inwards. They
//!   grow with a mark, or while their node is locked until they are durable. A writer that relies
//!   on a marked box flushes its line.
//! - F7: a commitment, of the log or the root word, is visible before it is durable. Until it is
//!   both durable and complete, its writer holds the locks of all nodes that it changes or links:
//!   the parent (or the root), the old nodes and the new ones. Insertions come through the parent,
//!   and deletions lock a node to change its children. So until then nobody has stored anything on
//!   one side that a power loss would lose by leaving the other side. Both sides hold the same, and
//!   a search may use either.
//!
//! Writers hold the locks of a node and its parent while they link, unlink or move entries. They
//! take locks from the root downwards (crabbing). Readers take locks only if writers overtake them
//! again and again; see `search.rs`.

mod access;
mod check;
mod delete;
mod entry;
mod insert;
mod layout;
mod locks;
mod log;
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
mod tree;
mod underfull;
mod verify;

pub use options::{Options, Rebalancing};
pub use search::SearchMode;
pub use tree::FbrTree;

pub use super::LeafForm;

super::interfaces::implement_interfaces!(FbrTree, Options, SearchMode::Validated);
