//! Iterates over the entries of a component in the order of their positions, for merges.

use std::sync::Arc;

use super::{Node, SpatialTree, not_below};
use crate::Result;
use crate::disk::page::{Page, PagePointer};
use crate::disk::rtree::{Entry, Leaf};

/// A place in a component. Pages that it reads do not displace others in the cache.
#[derive(Debug)]
pub struct TreeCursor<T: SpatialTree> {
    component: Arc<T>,
    order: T::Order,
    /// Pages to visit, the next one last.
    pending: Vec<PagePointer>,
    leaf: Option<(Page, usize)>,
    position: u64,
}

impl<T: SpatialTree> TreeCursor<T> {
    /// A cursor at the first entry.
    pub fn first(component: Arc<T>, order: T::Order) -> Result<Self> {
        let pending = component.file().meta().root.into_iter().collect();
        let mut cursor = Self { component, order, pending, leaf: None, position: 0 };
        cursor.next_leaf()?;
        Ok(cursor)
    }

    fn next_leaf(&mut self) -> Result<()> {
        self.leaf = None;
        while let Some(pointer) = self.pending.pop() {
            let page = self.component.page_once(pointer)?;
            let is_leaf = match self.component.node(&page, pointer)? {
                Node::Inner(inner) => {
                    let children = T::children(&inner);
                    if children.iter().any(|child| child.offset >= pointer.offset) {
                        return Err(not_below(&*self.component, pointer));
                    }
                    self.pending.extend(children.iter().rev());
                    false
                }
                Node::Leaf(_) => true,
            };
            if is_leaf {
                self.leaf = Some((page, 0));
                break;
            }
        }
        self.locate();
        Ok(())
    }

    fn locate(&mut self) {
        if let Some((page, index)) = &self.leaf
            && let Some(leaf) = Leaf::parse(page)
        {
            self.position = self.component.position(&leaf, *index, self.order);
        }
    }

    /// The current entry; `None` behind the last one.
    pub fn entry(&self) -> Option<Entry<'_>> {
        let (page, index) = self.leaf.as_ref()?;
        Some(Leaf::parse(page)?.get(*index))
    }

    /// Begin and end number of the current entry, if the component keeps them.
    pub fn life(&self) -> Option<(u64, u64)> {
        let (page, index) = self.leaf.as_ref()?;
        Leaf::parse(page)?.life(*index)
    }

    /// Position of the current entry.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Moves on by one entry.
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
