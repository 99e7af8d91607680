//! What an R-tree is made of.

/// What a check has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Entries of leaves.
    pub entries: u64,
    /// Leaves.
    pub leaves: u64,
    /// Nodes that are no leaves.
    pub inner_nodes: u64,
    /// Nodes other than the root that have fewer entries than splits leave; crashes inside of
    /// deletions leave them, deletions without space, and deletions of several threads that take
    /// each other's siblings or parents.
    pub underfull: u64,
    /// Level of the root; 0 if it is a leaf.
    pub height: u64,
}
