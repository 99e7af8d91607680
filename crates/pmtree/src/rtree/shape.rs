//! Trees as texts, to distinguish them.

use std::fmt::Write as _;

use crate::{Rect, Result};

/// A tree whose nodes can be printed.
pub(crate) trait Shape {
    /// The nodes with their entries. Trees that differ only in the places of nodes and entries have
    /// the same text. Nobody else may use the tree meanwhile.
    fn shape(&self) -> Result<String>;
}

/// A node: the boxes of its entries, each with its target, in an order that does not depend on
/// their slots.
pub(super) fn of_node<const D: usize>(entries: impl Iterator<Item = Result<(Rect<D>, String)>>) -> Result<String> {
    let mut entries = entries
        .map(|entry| entry.map(|(rect, target)| format!("{:?}-{:?}: {target}", rect.min(), rect.max())))
        .collect::<Result<Vec<_>>>()?;
    entries.sort_unstable();
    let mut text = String::from("(");
    entries.iter().for_each(|entry| _ = write!(text, "{entry}, "));
    text.push(')');
    Ok(text)
}
