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
    /// Threads that read leaves or logs when a tree with a volatile part is opened; 0 for one per
    /// CPU, if the tree is large. Each log is read by one of them.
    pub recovery_threads: usize,
}

impl Options {
    /// Nodes of 512 bytes on a medium.
    pub fn new(domain: PersistenceDomain) -> Self {
        let pool = terrane_pmem::Options::new(0, domain);
        Self { node_length: NODE_LENGTH, pool, logs: LogOptions::default(), recovery_threads: 0 }
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
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { count: 8, segment_length: 64 << 10, garbage_percent: 50, prefetched: 4 }
    }
}
