//! Access to the entries of leaves of all forms.

use terrane_pmem::Backend;

use super::method::Method;
use super::node::Entries;
use super::tree::BTree;
use crate::Result;

impl<M: Method, const K: usize, const V: usize, B: Backend> BTree<M, K, V, B> {
    /// The slot and the value of a key in a leaf. In a chain there are no slots.
    #[inline]
    pub(super) fn find(&self, leaf: u64, key: &[u64; K]) -> Result<Option<(usize, [u64; V])>> {
        let node = self.node(leaf)?;
        match M::IN_LOGS {
            true => Ok(self.find_in_chain(node, key)?.map(|value| (0, value))),
            false => Ok(self.layout.find(node, key)),
        }
    }

    /// The entries of a leaf, sorted.
    #[inline]
    pub(super) fn entries_of(&self, leaf: u64) -> Result<Entries<K, V>> {
        let node = self.node(leaf)?;
        match M::IN_LOGS {
            true => self.entries_of_chain(node),
            false => Ok(self.layout.entries_of(node)),
        }
    }
}
