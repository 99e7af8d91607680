//! Whole-node write-ahead logging, the baseline of the FBR-tree: each node that an operation
//! changes is logged whole before it is changed in place (the thesis calls it legacy logging).
//!
//! Nodes are chosen, enlarged and divided as in the FBR-tree, and full ones are split on the way
//! down. An insertion takes the images of the leaf and of each node above it in which a box
//! changes; a split is a change of its own, of a node, its parent and a new node that needs no
//! image. How a change is made durable is in `log.rs`.
//!
//! One reader-writer lock for the whole tree keeps readers and writers apart: what this tree is for
//! is the cost of logging, and one log has one writer at a time. Searches write nothing and flush
//! nothing.
//!
//! Invariants, after each change: L6: a box is the smallest one around what its child holds; that
//! of an empty leaf is any, since nothing lies in it, and counts above as others do. L7: every node
//! but the root has as many entries as splits leave, unless a crash came between a deletion and the
//! mending of its leaf, or there was no space for that. Several of these can leave a leaf empty,
//! until an entry comes to it or a sibling is mended with it. Inner nodes always have a child: one
//! is unlinked only where its sibling takes over what it has.

mod check;
mod delete;
mod insert;
mod layout;
mod log;
mod node;
mod open;
mod operations;
mod options;
mod search;
#[cfg(feature = "explorer")]
mod shape;
mod tree;

pub use options::Options;
pub use tree::LoggedTree;
