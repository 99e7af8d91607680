//! Leaves as chains of records in logs: the study's `btree_ls`.
//!
//! Decision 42 has the invariants:
//! - L1: the newest base whose range has a key owns the key.
//! - L2: a line counts if its stamp is the number of its segment.
//! - L3: records become durable in the order of their places in a log.
//! - L4: a segment is linked before records are written to it, and unlinked when none is live.
//! - L5: the leaf of a record is locked from before the append until its row leads to the record.
//! - L6: every segment but an open log's last one states its end.

mod collect;
mod leaf;
mod logs;
mod method;
mod record;
mod replay;
mod restore;
mod rows;

pub use method::BTreeLs;
pub(super) use replay::{Replay, replay};
pub(super) use rows::{Chains, Shape, heads_length, prefetched, shape, shape_of};
