//! Verifies a whole component of a curve-keyed kind.

use std::hash::Hasher;

use terrane_space::Rect;
use xxhash_rust::xxh3::Xxh3;

use super::CurveComponent;
use super::pages::{Inner, validate};
use crate::Result;
use crate::disk::page::{PageKind, PagePointer};
use crate::disk::rtree::Leaf;
use crate::disk::spatial::{Node, SpatialTree};
use crate::index::ComponentCheck;

#[derive(Debug, Default)]
struct Walk {
    found: ComponentCheck,
    last: Option<(u64, Vec<u8>)>,
    bounds: Option<Rect>,
    /// Sum of the hashes of all entries, and of the entries expected from the first entry of each
    /// object. The sums are equal if every object has all of its entries, in any order.
    entries: u64,
    expected: u64,
}

impl CurveComponent {
    /// Reads every page from the file. Verifies checksums, structure, order (I1), the positions of
    /// inner pages (I2) and entries (I3), and the description. Takes memory for one page per level.
    pub fn check(&self) -> Result<ComponentCheck> {
        let meta = self.file().meta();
        let mut walk = Walk::default();
        if let Some(root) = meta.root {
            self.walk(root, meta.height.saturating_sub(1), &mut walk)?;
        }
        let expected = ComponentCheck {
            pages: meta.pages.into(),
            entries: meta.statistics.entries,
            antimatter: meta.statistics.antimatter,
        };
        let found = walk.found;
        let fail = |reason: String| Err(self.file().damaged(PagePointer::default(), reason));
        if found != expected {
            return fail(format!("the description says {expected:?}, but the pages hold {found:?}"));
        }
        if walk.bounds.unwrap_or(Rect::EMPTY) != meta.statistics.rect() {
            return fail("the description's bounds are not those of the entries".into());
        }
        if walk.entries != walk.expected {
            return fail("an object lacks entries under some of its positions".into());
        }
        Ok(found)
    }

    /// Returns the first and the last position below.
    fn walk(&self, pointer: PagePointer, level: u8, walk: &mut Walk) -> Result<(u64, u64)> {
        let page = self.file().load(pointer, validate)?;
        walk.found.pages += 1;
        let fail = |reason: &str| Err(self.file().damaged(pointer, reason));
        if page.level() != level {
            return fail("the page is at another level than its parent says");
        }
        if (page.kind() == PageKind::CurveLeaf) != (level == 0) {
            return fail("leaves are not where the tree ends");
        }
        match self.node(&page, pointer)? {
            Node::Leaf(leaf) => self.walk_leaf(pointer, &leaf, walk),
            Node::Inner(inner) => self.walk_inner(pointer, &inner, level, walk),
        }
    }

    fn walk_inner(&self, pointer: PagePointer, inner: &Inner<'_>, level: u8, walk: &mut Walk) -> Result<(u64, u64)> {
        for (index, child) in inner.children.iter().enumerate() {
            if child.offset >= pointer.offset {
                return Err(self.file().damaged(pointer, "a child lies behind its parent"));
            }
            let below = self.walk(*child, level - 1, walk)?;
            if below != (inner.firsts.integer(index), inner.lasts.integer(index)) {
                return Err(self.file().damaged(pointer, "a child's positions are not those that its parent names"));
            }
        }
        Ok((inner.firsts.integer(0), inner.lasts.integer(inner.children.len() - 1)))
    }

    fn walk_leaf(&self, pointer: PagePointer, leaf: &Leaf<'_>, walk: &mut Walk) -> Result<(u64, u64)> {
        let fail = |reason: &str| Err(self.file().damaged(pointer, reason));
        for index in 0..leaf.count {
            let (entry, position) = (leaf.get(index), self.position_of(leaf, index));
            if self.curve.points() && (entry.rect.x0 != entry.rect.x1 || entry.rect.y0 != entry.rect.y1) {
                return fail("a component of points holds a rectangle");
            }
            let place = (position, entry.key.to_vec());
            if walk.last.as_ref().is_some_and(|last| *last > place) {
                return fail("the entries are not in the order of the curve");
            }
            walk.last = Some(place);
            let positions = self.curve.positions(&entry.rect);
            if positions.binary_search(&position).is_err() {
                return fail("an entry is not at a position of its object");
            }
            let hash = |position: u64| hash(position, leaf, index);
            walk.entries = walk.entries.wrapping_add(hash(position));
            if positions.first() == Some(&position) {
                walk.expected = positions.iter().fold(walk.expected, |sum, other| sum.wrapping_add(hash(*other)));
            }
            walk.bounds = Some(walk.bounds.unwrap_or(Rect::EMPTY).union(&entry.rect));
            if entry.antimatter { walk.found.antimatter += 1 } else { walk.found.entries += 1 }
        }
        Ok((self.position_of(leaf, 0), self.position_of(leaf, leaf.count - 1)))
    }
}

/// A hash of the content of a leaf's entry, under some position.
fn hash(position: u64, leaf: &Leaf<'_>, index: usize) -> u64 {
    let entry = leaf.get(index);
    let Rect { x0, y0, x1, y1 } = entry.rect;
    let mut hasher = Xxh3::new();
    hasher.write_u64(position);
    for corner in [x0, y0, x1, y1] {
        hasher.write_u64(corner.to_bits());
    }
    let (begin, end) = leaf.life(index).unwrap_or_default();
    hasher.write_u64(begin);
    hasher.write_u64(end);
    hasher.write_u8(entry.antimatter.into());
    hasher.write(&entry.key);
    hasher.digest()
}
