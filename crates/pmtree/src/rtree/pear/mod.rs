//! The PeaR-Tree: nodes in a pool or in memory, as a budget allows (Thamm 2021, "R-tree Data
//! Placement on Persistent Memory").
//!
//! Leaves lie in the pool. Inner nodes lie in memory from the root down, as far as the budget
//! reaches, and opening rebuilds those. Writers lock single nodes, and readers take no lock. A
//! crash leaves nodes in recovery states, which the first operation that meets them resolves.
//!
//! The invariants R1 to R8 are those of decision 41, which argues for each of them:
//! - R1: the word that leads to a node in its level's chain owns the node.
//! - R2: a node in the pool has children in the pool only.
//! - R3: a mark in a node says by itself, with mask and partner, what a crash has interrupted.
//! - R4: locks are taken from children to parents; a sibling is only tried.
//! - R5: a node whose entries move is odd, and its parent's sequence number changes meanwhile.
//! - R6: the boxes above an entry contain it, durably, before the entry counts.
//! - R7: one word says where the root lies, or up to which level all nodes are in the pool.
//! - R8: the nodes in memory are never more than the budget, unless an opening found a full pool.

mod budget;
mod chain;
mod check;
mod delete;
mod insert;
mod layout;
mod lock;
mod merge;
mod moves;
mod nearest;
mod node;
mod open;
mod options;
mod placement;
mod reach;
mod rebuild;
mod remove;
mod repair;
mod search;
#[cfg(feature = "explorer")]
mod shape;
mod split;
mod states;
mod tree;
mod walk;

#[cfg(feature = "explorer")]
pub use options::Gap;
pub use options::{Budget, Options, Persisting, Recovery};
pub use states::{Above, State};
pub use tree::PearTree;

super::interfaces::implement_interfaces!(PearTree, Options);
