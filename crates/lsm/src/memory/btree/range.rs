//! Key ranges, and the cursor over one.

use super::super::tree::{Cell, LeafWalk, Tree};
use super::order;
use super::version::{Newest, Version};
use std::ops::Bound;

/// A range of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyRange<'k> {
    /// Where the range begins.
    pub from: Bound<&'k [u8]>,
    /// Where the range ends.
    pub to: Bound<&'k [u8]>,
}

impl<'k> KeyRange<'k> {
    /// All keys.
    pub const ALL: KeyRange<'static> = KeyRange { from: Bound::Unbounded, to: Bound::Unbounded };

    /// One key.
    pub fn key(key: &'k [u8]) -> Self {
        Self { from: Bound::Included(key), to: Bound::Included(key) }
    }

    fn starts_after(&self, key: &[u8]) -> bool {
        match self.from {
            Bound::Included(from) => key < from,
            Bound::Excluded(from) => key <= from,
            Bound::Unbounded => false,
        }
    }

    fn ends_before(&self, key: &[u8]) -> bool {
        match self.to {
            Bound::Included(to) => key > to,
            Bound::Excluded(to) => key >= to,
            Bound::Unbounded => false,
        }
    }
}

/// Keys of a range in ascending order, with the versions that a snapshot sees. It may live as long
/// as the component; concurrent inserts do not disturb it.
pub struct Range<'a, 'k> {
    range: KeyRange<'k>,
    snapshot: u64,
    leaves: LeafWalk<'a, Newest>,
    /// Entries of the current leaf in descending order, the next one last.
    cells: Vec<Cell<'a, Newest>>,
    done: bool,
}

impl<'a, 'k> Range<'a, 'k> {
    pub(super) fn new(tree: &'a Tree<Newest>, range: KeyRange<'k>, snapshot: u64) -> Self {
        let leaves = match range.from {
            Bound::Included(from) | Bound::Excluded(from) => LeafWalk::new(tree, order(from)),
            Bound::Unbounded => LeafWalk::all(tree),
        };
        Self { range, snapshot, leaves, cells: Vec::new(), done: false }
    }
}

impl<'a> Iterator for Range<'a, '_> {
    type Item = (&'a [u8], Version<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.done {
            let Some(cell) = self.cells.pop() else {
                match self.leaves.next() {
                    Some(leaf) => leaf.sort_into(&mut self.cells),
                    None => self.done = true,
                }
                self.cells.reverse();
                continue;
            };
            let key = cell.key();
            if self.range.starts_after(key) {
                continue;
            }
            if self.range.ends_before(key) {
                self.done = true;
                break;
            }
            if let Some(version) = Newest::versions(cell).find(|version| version.begin <= self.snapshot) {
                return Some((key, version));
            }
        }
        None
    }
}
