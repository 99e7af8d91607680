//! B+-trees: a map from keys to values of fixed widths, in one family (Ni and others 2020, "Closing
//! the Performance Gap between DRAM and PM for In-Memory Index Structures").
//!
//! A tree is a [`BTree`] with a method: a form of leaves, and a way of making changes durable.
//! Keys and values are arrays of words.
//!
//! The invariants are those of decision 42, which argues for each of them:
//! - T1: an entry of a bitmap leaf is durable before its bit.
//! - T2: an entry of a FAST leaf counts if its tag differs from that of the slot before it.
//! - T3: a log entry is committed when all its lines have its stamp.
//! - T4: a log entry is cleared durably before its nodes are unlocked.
//! - T5: a log entry owns the blocks of its change.
//! - T6: locks are not in the pool.
//! - T7: a node is unlocked after its change is durable.
//! - T9: the log entry of a split may name the parent, which links the new node by a shift.
//! - T10: nothing in a FAST leaf counts from the first slot on whose tag is zero.
//!
//! T8 is about long values of maps, in `map`.
//!
//! Those of leaves in logs, L1 to L6, are in `chain/mod.rs`.

mod bitmap;
mod chain;
mod change;
mod check;
mod checks;
mod fast;
mod inner;
mod join;
mod layout;
mod leaf;
mod log;
mod many;
mod map;
mod method;
mod node;
mod open;
mod operations;
mod options;
mod place;
mod range;
mod rebuild;
mod recover;
mod sorted;
mod split;
mod stores;
mod traits;
mod tree;
mod versions;

pub use bitmap::{PersistentUnsorted, Unsorted, UnsortedLeaf};
pub use chain::BTreeLs;
pub use check::Census;
pub use fast::{Fast, FastFair, FastFairSp};
pub use map::{PersistentMap, Visit};
pub(crate) use open::{Extension, key_words};
pub use operations::Compared;
pub use options::{LogOptions, Options};
pub use sorted::{BTreeWal, GroupFlushingBTree, Sorted, VolatileBTree};
pub use tree::BTree;
