//! Parses the pages of a curve-keyed tree.

use crate::disk::keys::{Keys, parse_integers};
use crate::disk::page::{Page, PageKind, PagePointer};
use crate::disk::rtree::{FANOUT_MAX, Leaf, POINTS_MAX};

/// A leaf has the positions of its entries.
pub const HAS_POSITIONS: u16 = 8;

/// The positions behind the other parts of a leaf.
#[inline]
pub fn positions<'a>(leaf: &Leaf<'a>) -> Option<Keys<'a>> {
    Some(parse_integers(leaf.behind, leaf.count)?.0)
}

/// An inner page.
#[derive(Clone, Copy, Debug)]
pub struct Inner<'a> {
    /// First position below each child, ascending.
    pub firsts: Keys<'a>,
    /// Last position below each child, ascending.
    pub lasts: Keys<'a>,
    /// The children.
    pub children: &'a [PagePointer],
}

impl<'a> Inner<'a> {
    /// Parses an inner page; `None` if its parts do not fit.
    #[inline]
    pub fn parse(page: &'a Page) -> Option<Self> {
        let count = page.count();
        let (firsts, rest) = parse_integers(page.payload(), count)?;
        let (lasts, rest) = parse_integers(rest, count)?;
        let children: &[PagePointer] = bytemuck::try_cast_slice(rest).ok()?;
        (children.len() == count).then_some(Self { firsts, lasts, children })
    }

    fn is_valid(&self) -> bool {
        let count = self.children.len();
        let follow = |index: usize| index == 0 || self.lasts.integer(index - 1) <= self.firsts.integer(index);
        self.firsts.is_valid(count)
            && self.lasts.is_valid(count)
            && (0..count).all(|index| follow(index) && self.firsts.integer(index) <= self.lasts.integer(index))
    }
}

/// Verifies the structure of a page of any kind in a curve-keyed tree (I2 of the module `disk`).
pub fn validate(page: &Page) -> Result<(), String> {
    let fail = |reason: &str| Err(reason.to_owned());
    match page.kind() {
        PageKind::CurveLeaf => {
            if page.count() == 0 || page.count() > POINTS_MAX {
                return fail("a leaf cannot have this many entries");
            }
            let Some(leaf) = Leaf::parse(page) else { return fail("the parts of the leaf do not fit") };
            if !leaf.is_valid() {
                return fail("the entries of the leaf are not valid");
            }
            if page.flags() & HAS_POSITIONS == 0 {
                return Ok(());
            }
            match positions(&leaf) {
                None => fail("the positions of the leaf do not fit"),
                Some(positions) if !positions.is_valid(leaf.count) => fail("the positions of the leaf are too large"),
                Some(positions) if !(0..leaf.count).is_sorted_by_key(|index| positions.integer(index)) => {
                    fail("the positions of the leaf are out of order")
                }
                Some(_) => Ok(()),
            }
        }
        PageKind::CurveInner => {
            if page.count() == 0 || page.count() > FANOUT_MAX || page.level() == 0 {
                return fail("an inner page cannot have this many children or this level");
            }
            match Inner::parse(page) {
                None => fail("the parts of the inner page do not fit"),
                Some(inner) if !inner.is_valid() => fail("the positions of the inner page are out of order"),
                Some(_) => Ok(()),
            }
        }
        _ => fail("the page belongs to another kind of component"),
    }
}
