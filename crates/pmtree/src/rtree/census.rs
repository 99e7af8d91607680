//! Statistics of an R-tree.

/// The results of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Entries of leaves.
    pub entries: u64,
    /// Leaves.
    pub leaves: u64,
    /// Nodes that are not leaves.
    pub inner_nodes: u64,
    /// Nodes other than the root that have fewer entries than splits leave. They come from crashes
    /// inside of deletions, from deletions without space, and from concurrent deletions that take
    /// each other's siblings or parents.
    pub underfull: u64,
    /// Level of the root; 0 if it is a leaf.
    pub height: u64,
}
