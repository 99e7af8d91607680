//! Errors of trees, and what to do about them.

/// Result of calls of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure. The tree's contents are unchanged, unless the variant says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The pool: files, space, damage.
    #[error(transparent)]
    Pool(#[from] terrane_pmem::Error),
    /// A coordinate that is not finite.
    #[error("the coordinate {value} on axis {axis} (from 0) is not a finite number")]
    NotFinite {
        /// The axis, from 0.
        axis: usize,
        /// The coordinate.
        value: f64,
    },
    /// Coordinates that form no box.
    #[error("a box cannot reach from {min} to {max} on axis {axis} (from 0): exchange the two")]
    InvalidRect {
        /// The axis, from 0.
        axis: usize,
        /// Lower coordinate.
        min: f64,
        /// Upper coordinate.
        max: f64,
    },
    /// A fan-out that nodes cannot have.
    #[error("nodes cannot have {fan_out} entries: use {least} to {most}")]
    FanOut {
        /// Entries asked for.
        fan_out: usize,
        /// Fewest possible.
        least: usize,
        /// Most possible.
        most: usize,
    },
    /// Nodes of this alignment are impossible.
    #[error("nodes cannot be aligned to {alignment} bytes: use a power of two from 64 to 4096")]
    Alignment {
        /// The alignment.
        alignment: u64,
    },
    /// A minimum fill that two halves of a node cannot both have.
    #[error("a minimum fill of {percent} % is impossible, since full nodes are split in two: use at most {most}")]
    FillMin {
        /// Percent asked for.
        percent: u8,
        /// Most possible.
        most: u8,
    },
    /// Entries that are too long to validate themselves, for which they have to lie in one line.
    #[error(
        "entries in {dimensions} dimensions are longer than a line and cannot validate themselves: use leaves with bitmaps"
    )]
    LongEntries {
        /// Dimensions of the tree.
        dimensions: usize,
    },
    /// A number of logs that a B+-tree cannot have.
    #[error("a tree cannot have {count} logs: use 1 to {most}")]
    LogCount {
        /// Logs asked for.
        count: u64,
        /// Most possible.
        most: u64,
    },
    /// Nodes of a B+-tree that cannot hold such entries.
    #[error(
        "nodes of {node_length} bytes cannot hold keys of {key_length} and values of {value_length} bytes: use a \
         multiple of 64 from 128 to 4096, with room for two entries and four children"
    )]
    NodeLength {
        /// Bytes of a node asked for.
        node_length: u64,
        /// Bytes of a key.
        key_length: u64,
        /// Bytes of a value.
        value_length: u64,
    },
    /// A key that is longer than the keys of a map can be.
    #[error(
        "a key has {length} bytes, and keys of this map have up to {most}: shorten it, or create a map with longer slots"
    )]
    KeyTooLong {
        /// Bytes of the key.
        length: usize,
        /// Most possible.
        most: usize,
    },
    /// A value that is longer than values of a map can be.
    #[error("a value has {length} bytes, and values have up to {most}: divide it among several keys")]
    ValueTooLong {
        /// Bytes of the value.
        length: usize,
        /// Most possible.
        most: usize,
    },
    /// A slot for keys that a map cannot have.
    #[error("slots for keys cannot have {length} bytes: use 8, 16, 32 or 64")]
    KeySlot {
        /// Bytes asked for.
        length: u64,
    },
    /// A tree whose operations are not durable, and that was not closed.
    #[error(
        "{pool} was not closed, and a tree of the kind {tree} keeps nothing then; restore the file from a copy, or \
         use a durable kind"
    )]
    NotClosed {
        /// The file.
        pool: String,
        /// The kind of tree.
        tree: &'static str,
    },
    /// The tree in the pool has another shape than the program expects.
    #[error("{pool} holds a tree of {found}, not of {expected}; open it with the former")]
    OtherShape {
        /// The file.
        pool: String,
        /// Its shape.
        found: String,
        /// The expected shape.
        expected: String,
    },
    /// The pool's contents are not a tree: something else has changed the file. No further changes
    /// are made.
    #[error("the tree in {pool} is damaged at byte {offset}: {reason}; restore the file from a copy")]
    Damaged {
        /// The file.
        pool: String,
        /// Where.
        offset: u64,
        /// What is wrong there.
        reason: String,
    },
}
