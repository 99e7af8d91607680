//! R-trees that log their changes, the baselines of the other trees. There are three ways:
//! - Whole-node write-ahead logging. Each node that an operation changes is logged whole before it
//!   is changed in place (the thesis of the FBR-tree calls it legacy logging).
//! - Old values of each range that changes (the paper of the PM-RTREE has it as the R-tree of
//!   PMDK).
//! - No log at all, as in an R-tree for volatile memory.
//!
//! Nodes are chosen, enlarged and divided as in the FBR-tree, and full ones are split on the way
//! down. An insertion logs images of the leaf and of each node above it whose box changes. A split
//! is a separate change of a node, its parent and a new node, which needs no image. `log.rs` makes
//! changes durable.
//!
//! One reader-writer lock protects the whole tree. The tree serves to measure the cost of logging,
//! and one log has one writer at a time. Searches write and flush nothing.
//!
//! Invariants after each change:
//! - L6: a box is the smallest one around its child's contents. The box of an empty leaf is
//!   arbitrary, since nothing lies in it; above, it counts like others.
//! - L7: every node except the root has at least as many entries as splits leave. The exceptions: a
//!   crash came between a deletion and the repair of its leaf, or there was no space for that.
//!   Several of these can leave a leaf empty, until an entry is added or a sibling is repaired with
//!   it. Inner nodes always have a child, since one is unlinked only when its sibling takes over
//!   its contents.

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
mod undo;

pub use options::{Logging, Options};
pub use tree::LoggedTree;
