//! A lock for each node, outside of the pool. No lock outlives the process.

use terrane_storage::sync::RwLock;

use crate::table::Table;

/// Locks by the offsets of blocks of one length. They are made on demand.
#[derive(Debug)]
pub(super) struct Locks {
    node_length: u64,
    nodes: Table<RwLock<()>>,
    pub(super) root: RwLock<()>,
}

impl Locks {
    pub(super) fn new(node_length: u64) -> Self {
        Self { node_length, nodes: Table::new(), root: RwLock::new(()) }
    }

    /// The lock of a node. Distinct nodes have distinct locks.
    pub(super) fn of(&self, node: u64) -> &RwLock<()> {
        // Two blocks begin at least a node's length apart.
        self.nodes.get(node / self.node_length)
    }
}
