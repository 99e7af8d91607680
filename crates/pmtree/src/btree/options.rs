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
    /// For trees whose leaves are in logs.
    pub logs: LogOptions,
}

impl Options {
    /// Nodes of 512 bytes on a medium.
    pub fn new(domain: PersistenceDomain) -> Self {
        Self { node_length: NODE_LENGTH, pool: terrane_pmem::Options::new(0, domain), logs: LogOptions::default() }
    }
}

/// Options for the logs of [`super::BTreeLs`].
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Number of logs, up to 1,024. An existing tree keeps its own.
    pub count: u64,
    /// Bytes of a segment, the unit that is added to a log and collected. A segment is long enough
    /// for a full leaf in any case. An existing tree keeps its own.
    pub segment_length: u64,
    /// Garbage in a hundred lines of a log from which on its first segment is collected.
    pub garbage_percent: u64,
    /// Newest changes of each leaf whose places are kept in memory, to announce them to the memory
    /// before a search: up to 16.
    pub prefetched: usize,
    /// Threads that read the logs when the tree is opened.
    pub replayers: usize,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { count: 8, segment_length: 64 << 10, garbage_percent: 50, prefetched: 4, replayers: 1 }
    }
}
