//! Options for creating and opening trees.

use terrane_pmem::PersistenceDomain;

/// Bytes of a node by default.
const NODE_LENGTH: u64 = 512;

/// Options for creating or opening a tree.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of a node: a multiple of 64 from 128 to 4096. An existing tree keeps its own.
    pub node_length: u64,
    /// The medium, and how the file grows. The layout is the tree's own.
    pub pool: terrane_pmem::Options,
}

impl Options {
    /// Nodes of 512 bytes on a medium.
    pub fn new(domain: PersistenceDomain) -> Self {
        Self { node_length: NODE_LENGTH, pool: terrane_pmem::Options::new(0, domain) }
    }
}
