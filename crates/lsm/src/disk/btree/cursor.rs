//! Iterates over the entries of a B-tree component in key order.

use std::sync::Arc;

use super::BTreeComponent;
use super::pages::{Entry, Leaf, validate};
use crate::Result;
use crate::disk::page::{Page, PageKind, PagePointer};

/// A position in the entries of a component.
#[derive(Debug, Default)]
pub(super) struct Position {
    /// For each level from the root down: the children of the current page, and the next one.
    path: Vec<(Vec<PagePointer>, usize)>,
    leaf: Option<(Page, usize)>,
}

impl Position {
    /// Moves to the first entry whose key is not less than `key`.
    pub fn seek(&mut self, component: &BTreeComponent, key: &[u8]) -> Result<()> {
        self.path.clear();
        self.leaf = None;
        let Some(mut pointer) = component.file().meta().root else { return Ok(()) };
        loop {
            let page = component.file().page_once(pointer, validate)?;
            if page.kind() == PageKind::BTreeInner {
                let inner = component.inner(&page, pointer)?;
                let child = inner.child_of(key, component.file().meta().has_sequences);
                pointer = inner.children[child];
                self.path.push((inner.children.to_vec(), child + 1));
                continue;
            }
            let leaf = component.leaf(&page, pointer)?;
            let index = leaf.keys.lower_bound(leaf.count, key);
            if index < leaf.count {
                self.leaf = Some((page, index));
                return Ok(());
            }
            return self.next_leaf(component);
        }
    }

    /// Moves to the first entry of the next leaf.
    fn next_leaf(&mut self, component: &BTreeComponent) -> Result<()> {
        self.leaf = None;
        while let Some((children, next)) = self.path.last_mut() {
            let Some(pointer) = children.get(*next).copied() else {
                self.path.pop();
                continue;
            };
            *next += 1;
            let page = component.file().page_once(pointer, validate)?;
            if page.kind() == PageKind::BTreeInner {
                let inner = component.inner(&page, pointer)?;
                self.path.push((inner.children.to_vec(), 0));
            } else {
                component.leaf(&page, pointer)?;
                self.leaf = Some((page, 0));
                return Ok(());
            }
        }
        Ok(())
    }

    /// The current entry.
    pub fn entry(&self) -> Option<Entry<'_>> {
        let (page, index) = self.leaf.as_ref()?;
        Some(Leaf::parse(page)?.get(*index))
    }

    /// The entries from the current one to the end of the leaf.
    pub fn rest_of_leaf(&self) -> impl Iterator<Item = Entry<'_>> {
        let here = self.leaf.as_ref().and_then(|(page, index)| Some((Leaf::parse(page)?, *index)));
        here.into_iter().flat_map(|(leaf, index)| (index..leaf.count).map(move |index| leaf.get(index)))
    }

    /// Moves on by `count` entries, but not beyond the first one of the next leaf.
    pub fn advance(&mut self, component: &BTreeComponent, count: usize) -> Result<()> {
        let Some((page, index)) = &mut self.leaf else { return Ok(()) };
        *index += count;
        if *index >= page.count() { self.next_leaf(component) } else { Ok(()) }
    }

    /// The page and the index of the current entry.
    pub fn into_leaf(self) -> Option<(Page, usize)> {
        self.leaf
    }
}

/// Iterates over the entries of a component. Pages that it reads do not displace others in the
/// cache.
#[derive(Debug)]
pub struct BTreeCursor {
    component: Arc<BTreeComponent>,
    position: Position,
}

impl BTreeCursor {
    /// A cursor at the first entry whose key is not less than `from`.
    pub fn seek(component: Arc<BTreeComponent>, from: &[u8]) -> Result<Self> {
        let mut position = Position::default();
        position.seek(&component, from)?;
        Ok(Self { component, position })
    }

    /// The current entry; `None` behind the last one.
    pub fn entry(&self) -> Option<Entry<'_>> {
        self.position.entry()
    }

    /// The entries from the current one to the end of the leaf.
    pub fn rest_of_leaf(&self) -> impl Iterator<Item = Entry<'_>> {
        self.position.rest_of_leaf()
    }

    /// Moves on by one entry.
    pub fn advance(&mut self) -> Result<()> {
        self.advance_by(1)
    }

    /// Moves on by `count` entries, but not beyond the first one of the next leaf.
    pub fn advance_by(&mut self, count: usize) -> Result<()> {
        self.position.advance(&self.component, count)
    }
}
