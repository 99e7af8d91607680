//! The structure check: the tree's invariants, verified over all nodes.

use super::Tree;
use super::extent::Extent;
use super::inner::{Children, Node};
use super::key::Order;
use super::leaf::Columns;
use crate::{Error, Result};

/// Counts of a structure check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Inner nodes reachable from the root.
    pub inner_nodes: usize,
    /// Leaves reachable from the root.
    pub leaves: usize,
    /// Entries in these leaves.
    pub entries: usize,
    /// Levels of inner nodes.
    pub height: usize,
}

impl<C: Columns> Tree<C> {
    /// Verifies levels, counts, the order of separators and entries, and that every extent covers
    /// its subtree. Waits for the latch.
    ///
    /// # Errors
    /// [`Error::Invalid`] that names the first violation.
    pub(in crate::memory) fn check(&self) -> Result<CheckReport> {
        let _latch = self.write();
        let root = self.root().children();
        let mut report = CheckReport { height: root.level() as usize, ..CheckReport::default() };
        self.check_inner(root, None, None, &mut report)?;
        Ok(report)
    }

    fn check_inner(
        &self,
        inner: Children<'_, C>,
        low: Option<Order<'_>>,
        high: Option<Order<'_>>,
        report: &mut CheckReport,
    ) -> Result<C::Extent> {
        report.inner_nodes += 1;
        let len = inner.len();
        if len == 0 || len > self.shape.fanout {
            return violation(format!("an inner node of level {} has {len} children", inner.level()));
        }
        let separators: Vec<_> = (0..len).map(|index| inner.separator(index)).collect();
        let mut all = C::Extent::EMPTY;
        for index in 0..len {
            let bound = |at: usize| separators.get(at).map(|separator| separator.rest.order(separator.head));
            // The first child of the root takes everything below the second.
            let from = if index == 0 && low.is_none() { None } else { bound(index) };
            let to = bound(index + 1).or(high);
            if from < low || matches!((from, to), (Some(from), Some(to)) if from > to) {
                return violation(format!("separator {index} of a node of level {} is out of order", inner.level()));
            }
            let found = match inner.get(index) {
                Node::Inner(child) => {
                    let below = child.children();
                    if below.level() + 1 != inner.level() {
                        return violation(format!(
                            "a node of level {} under one of level {}",
                            below.level(),
                            inner.level()
                        ));
                    }
                    self.check_inner(below, from, to, report)?
                }
                Node::Leaf(leaf) => {
                    report.leaves += 1;
                    if leaf.len() > self.shape.leaf_slots {
                        return violation(format!("a leaf has {} entries", leaf.len()));
                    }
                    let mut extent = C::Extent::EMPTY;
                    for view in leaf.views() {
                        for cell in (0..view.len()).map(|slot| view.cell(slot)) {
                            let order = cell.order();
                            if from.is_some_and(|from| order < from) || to.is_some_and(|to| order > to) {
                                return violation(format!(
                                    "an entry with head {} lies outside of its leaf's interval",
                                    order.head
                                ));
                            }
                            extent = extent.union(C::extent(&C::item(cell)));
                            report.entries += 1;
                        }
                    }
                    extent
                }
            };
            let kept = C::Extent::load(inner.extent(index));
            if kept.union(found) != kept {
                return violation(format!(
                    "the extent of child {index} of a node of level {} does not cover it",
                    inner.level()
                ));
            }
            all = all.union(kept);
        }
        Ok(all)
    }
}

fn violation<T>(what: String) -> Result<T> {
    Err(Error::Invalid(format!("memory tree: {what}; please report this as a bug")))
}
