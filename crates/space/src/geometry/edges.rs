//! A static tree of boxes over the edges of a geometry, in their own order:
//! consecutive edges are near each other, so no sorting is needed.

use super::segment::{Contact, Location, Segment};
use crate::{Point, Rect};

const FANOUT: usize = 8;

/// Edges, searchable by box.
#[derive(Clone, Debug)]
pub(super) struct EdgeTree {
    edges: Vec<Segment>,
    /// `levels[0]` has a box for every eight edges, each further level one for
    /// every eight boxes of the level before; the last has one box.
    levels: Vec<Vec<Rect>>,
}

fn union(rects: impl Iterator<Item = Rect>) -> Rect {
    rects.fold(Rect::EMPTY, |union, rect| union.union(&rect))
}

impl EdgeTree {
    pub fn new(edges: Vec<Segment>) -> Self {
        let groups = edges.chunks(FANOUT).map(|group| union(group.iter().map(Segment::rect)));
        let mut levels: Vec<Vec<Rect>> = vec![groups.collect()];
        while let Some(last) = levels.last().filter(|last| last.len() > 1) {
            let groups = last.chunks(FANOUT).map(|group| union(group.iter().copied()));
            let next = groups.collect();
            levels.push(next);
        }
        Self { edges, levels }
    }

    pub fn edges(&self) -> &[Segment] {
        &self.edges
    }

    /// The box of all edges.
    pub fn rect(&self) -> Rect {
        let root = self.levels.last().and_then(|level| level.first());
        root.copied().unwrap_or(Rect::EMPTY)
    }

    /// Whether `test` holds for an edge whose groups all satisfy `may_hold`.
    pub fn any(&self, may_hold: &impl Fn(&Rect) -> bool, test: &mut impl FnMut(usize, &Segment) -> bool) -> bool {
        !self.edges.is_empty() && self.any_below(self.levels.len(), 0, may_hold, test)
    }

    /// As [`any`](Self::any), for the group `index` of `level`; level 0 are the edges.
    fn any_below(
        &self,
        level: usize,
        index: usize,
        may_hold: &impl Fn(&Rect) -> bool,
        test: &mut impl FnMut(usize, &Segment) -> bool,
    ) -> bool {
        let Some(below) = level.checked_sub(1) else {
            return self.edges.get(index).is_some_and(|edge| test(index, edge));
        };
        if !self.levels[below].get(index).is_some_and(may_hold) {
            return false;
        }
        let count = if below == 0 { self.edges.len() } else { self.levels[below - 1].len() };
        (index * FANOUT..count.min((index + 1) * FANOUT)).any(|child| self.any_below(below, child, may_hold, test))
    }

    /// Whether `segment` meets one of the edges.
    pub fn meets(&self, segment: &Segment) -> bool {
        let rect = segment.rect();
        self.any(&|group| group.intersects(&rect), &mut |_, edge| edge.contact(segment) != Contact::None)
    }

    /// The closest way in which `segment` meets one of the edges.
    pub fn contact(&self, segment: &Segment) -> Contact {
        let rect = segment.rect();
        let mut closest = Contact::None;
        self.any(&|group| group.intersects(&rect), &mut |_, edge| {
            closest = closest.max(edge.contact(segment));
            closest == Contact::Cross
        });
        closest
    }

    /// Whether `point` lies on one of the edges.
    pub fn holds(&self, point: Point) -> bool {
        self.any(&|group| group.contains_point(point), &mut |_, edge| edge.contains(point))
    }

    /// Locates `point` in the area that the edges bound (even-odd rule).
    pub fn locate(&self, point: Point) -> Location {
        let mut is_inside = false;
        let reaches = |group: &Rect| group.y0 <= point.y && point.y <= group.y1 && point.x <= group.x1;
        let is_on_boundary = self.any(&reaches, &mut |_, edge| {
            if edge.contains(point) {
                return true;
            }
            is_inside ^= edge.is_right_of(point);
            false
        });
        match (is_on_boundary, is_inside) {
            (true, _) => Location::Boundary,
            (false, true) => Location::Inside,
            (false, false) => Location::Outside,
        }
    }
}
