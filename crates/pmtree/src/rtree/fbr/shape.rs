//! Trees as texts, to tell them apart.

use std::fmt::Write as _;

use terrane_pmem::Backend;

use super::FbrTree;
use super::node::Node;
use crate::Result;

impl<const D: usize, B: Backend> FbrTree<D, B> {
    /// The nodes with their entries; the same for trees that differ only in where nodes lie and entries in them.
    /// Nobody else can use the tree meanwhile.
    pub(crate) fn shape(&self) -> Result<String> {
        self.shape_of(&self.root()?)
    }

    fn shape_of(&self, node: &Node<'_, D, B>) -> Result<String> {
        let mut entries = Vec::new();
        for slot in self.locked_metadata(node)?.slots() {
            let rect = node.rect(slot);
            let target = match node.level() {
                0 => node.target(slot).to_string(),
                level => self.shape_of(&self.child(level, node.target(slot))?)?,
            };
            entries.push(format!("{:?}-{:?}: {target}", rect.min(), rect.max()));
        }
        entries.sort_unstable();
        let mut text = String::from("(");
        entries.iter().for_each(|entry| _ = write!(text, "{entry}, "));
        text.push(')');
        Ok(text)
    }
}
