//! Trees as texts, to tell them apart.

use std::fmt::Write as _;

use crate::{Rect, Result};

/// A tree whose nodes can be told.
pub(crate) trait Shape {
    /// The nodes with their entries; the same for trees that differ only in where nodes lie and
    /// entries in them. Nobody else can use the tree meanwhile.
    fn shape(&self) -> Result<String>;
}

/// A node: the boxes of its entries, each with what it leads to, whatever the entries' order.
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
