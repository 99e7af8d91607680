//! Verifies a whole R-tree component.

use terrane_space::{CoordinateSystem, Rect, hilbert};

use super::RTreeComponent;
use super::pages::{Inner, Leaf, validate};
use crate::Result;
use crate::disk::page::{PageKind, PagePointer};
use crate::index::ComponentCheck;

#[derive(Debug, Default)]
struct Walk {
    found: ComponentCheck,
    last: Option<(u64, Vec<u8>)>,
}

impl RTreeComponent {
    /// Reads every page from the file. Verifies checksums, structure, order (I1), boxes (I2), and
    /// the description. Takes memory for one page per level.
    pub fn check(&self, system: CoordinateSystem) -> Result<ComponentCheck> {
        let meta = self.file().meta();
        let mut walk = Walk::default();
        let mut bounds = Rect::EMPTY;
        if let Some(root) = meta.root {
            bounds = self.walk(root, meta.height.saturating_sub(1), system, &mut walk)?;
        }
        let found = walk.found;
        let expected = ComponentCheck {
            pages: meta.pages.into(),
            entries: meta.statistics.entries,
            antimatter: meta.statistics.antimatter,
        };
        if found != expected {
            return Err(self.file().damaged(
                PagePointer::default(),
                format!("the description says {expected:?}, but the pages hold {found:?}"),
            ));
        }
        if bounds != meta.statistics.rect() {
            return Err(self
                .file()
                .damaged(PagePointer::default(), "the description's bounds are not those of the entries"));
        }
        Ok(found)
    }

    /// Returns the exact box of everything below.
    fn walk(&self, pointer: PagePointer, level: u8, system: CoordinateSystem, walk: &mut Walk) -> Result<Rect> {
        let page = self.file().load(pointer, validate)?;
        walk.found.pages += 1;
        let fail = |reason: &str| Err(self.file().damaged(pointer, reason));
        if page.level() != level {
            return fail("the page is at another level than its parent says");
        }
        let mut bounds = Rect::EMPTY;
        if level == 0 {
            let Some(leaf) = Leaf::parse(&page).filter(|_| page.kind() == PageKind::RTreeLeaf) else {
                return fail("a leaf was expected");
            };
            for entry in (0..leaf.count).map(|index| leaf.get(index)) {
                let place = (hilbert::position(system, entry.rect.center()), entry.key.to_vec());
                if walk.last.as_ref().is_some_and(|last| *last > place) {
                    return fail("the entries are not in the order of the Hilbert curve");
                }
                walk.last = Some(place);
                bounds = bounds.union(&entry.rect);
                if entry.antimatter { walk.found.antimatter += 1 } else { walk.found.entries += 1 }
            }
            return Ok(bounds);
        }
        let Some(inner) = Inner::parse(&page).filter(|_| page.kind() == PageKind::RTreeInner) else {
            return fail("an inner page was expected");
        };
        for (index, child) in inner.children.iter().enumerate() {
            if child.offset >= pointer.offset {
                return fail("a child lies behind its parent");
            }
            let below = self.walk(*child, level - 1, system, walk)?;
            if !inner.rect(index).contains_rect(&below) {
                return fail("a child's entries lie outside of its box");
            }
            bounds = bounds.union(&below);
        }
        Ok(bounds)
    }
}
