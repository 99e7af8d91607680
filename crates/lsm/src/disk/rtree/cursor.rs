//! Going over the entries of an R-tree component in Hilbert order, as merges do.

use std::sync::Arc;

use terrane_space::{CoordinateSystem, hilbert};

use super::RTreeComponent;
use super::pages::{Entry, Leaf};
use super::search::Node;
use crate::Result;
use crate::disk::page::{Page, PagePointer};

/// A position in a component; pages it reads do not displace others in the cache.
#[derive(Debug)]
pub struct RTreeCursor {
    component: Arc<RTreeComponent>,
    system: CoordinateSystem,
    /// Pages still to be visited, the next one last.
    pending: Vec<PagePointer>,
    leaf: Option<(Page, usize)>,
    position: u64,
}

impl RTreeCursor {
    /// A cursor at the first entry.
    pub fn first(component: Arc<RTreeComponent>, system: CoordinateSystem) -> Result<Self> {
        let pending = component.root().into_iter().collect();
        let mut cursor = Self { component, system, pending, leaf: None, position: 0 };
        cursor.next_leaf()?;
        Ok(cursor)
    }

    fn next_leaf(&mut self) -> Result<()> {
        self.leaf = None;
        while let Some(pointer) = self.pending.pop() {
            let page = self.component.page_once(pointer)?;
            match self.component.node(&page, pointer)? {
                Node::Inner(inner) => self.pending.extend(inner.children.iter().rev()),
                Node::Leaf(_) => {
                    self.leaf = Some((page, 0));
                    break;
                }
            }
        }
        self.locate();
        Ok(())
    }

    fn locate(&mut self) {
        if let Some(entry) = self.entry() {
            self.position = hilbert::position(self.system, entry.rect.center());
        }
    }

    /// The entry here; `None` behind the last one.
    pub fn entry(&self) -> Option<Entry<'_>> {
        let (page, index) = self.leaf.as_ref()?;
        Some(Leaf::parse(page)?.get(*index))
    }

    /// Begin and end number of the entry here, where the component keeps them.
    pub fn life(&self) -> Option<(u64, u64)> {
        let (page, index) = self.leaf.as_ref()?;
        Leaf::parse(page)?.life(*index)
    }

    /// Hilbert position of the entry here.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Goes one entry on.
    pub fn advance(&mut self) -> Result<()> {
        let Some((page, index)) = &mut self.leaf else { return Ok(()) };
        *index += 1;
        if *index >= page.count() {
            return self.next_leaf();
        }
        self.locate();
        Ok(())
    }
}
