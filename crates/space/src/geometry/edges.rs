//! Edges of a geometry in a tree of boxes.

use std::cell::Cell;
use std::cmp::Ordering;

use super::boxes::{BoxTree, sort_by_place};
use super::segment::{Contact, Location, Segment, edges, turn};
use crate::{Point, Rect};

/// Edges, searchable by box.
#[derive(Clone, Debug)]
pub(super) struct EdgeTree {
    edges: Vec<Segment>,
    boxes: BoxTree,
}

impl EdgeTree {
    /// From edges whose neighbours in order are near each other.
    pub fn new(edges: Vec<Segment>) -> Self {
        let boxes = BoxTree::new(&edges, Segment::rect);
        Self { edges, boxes }
    }

    /// The edges of a closed ring, in order. Only trees of rings can tell what they surround.
    pub fn of_ring(ring: &[Point]) -> Self {
        Self::new(edges(ring).collect())
    }

    /// Points, as edges of no length.
    pub fn of_points(points: &[Point]) -> Self {
        let mut edges: Vec<Segment> = points.iter().map(|point| Segment { a: *point, b: *point }).collect();
        sort_by_place(&mut edges, Segment::rect);
        Self::new(edges)
    }

    pub fn edges(&self) -> &[Segment] {
        &self.edges
    }

    /// The box of all edges.
    pub fn rect(&self) -> Rect {
        self.boxes.rect()
    }

    /// Whether `test` holds for an edge near `rect`.
    pub fn any(&self, rect: &Rect, test: &mut impl FnMut(usize, &Segment) -> bool) -> bool {
        self.boxes.any(&|group, _| group.intersects(rect), &mut |index| test(index, &self.edges[index]))
    }

    /// Whether `segment` intersects one of the edges.
    pub fn meets(&self, segment: &Segment) -> bool {
        self.any(&segment.rect(), &mut |_, edge| edge.contact(segment) != Contact::None)
    }

    /// Whether `point` lies on one of the edges.
    pub fn holds(&self, point: Point) -> bool {
        self.any(&Rect::from_point(point), &mut |_, edge| edge.contains(point))
    }

    /// The location of `point` in the area that the ring surrounds.
    pub fn locate(&self, point: Point) -> Location {
        let mut is_on_boundary = false;
        let is_inside = self.surrounds(point, &mut |_| {
            is_on_boundary = true;
            true
        });
        match (is_on_boundary, is_inside) {
            (true, _) => Location::Boundary,
            (false, true) => Location::Inside,
            (false, false) => Location::Outside,
        }
    }

    /// Whether the ring surrounds the places directly beside the start of `segment`, on its left
    /// and on its right. The ends of `segment` must differ.
    pub fn beside(&self, segment: &Segment) -> [bool; 2] {
        let Segment { a, b } = *segment;
        let mut passed = [false; 2];
        let is_inside = self.surrounds(a, &mut |edge| {
            for end in [edge.a, edge.b].into_iter().filter(|end| *end != a) {
                let order = turn(a, end, b);
                passed[0] ^= order != Ordering::Greater;
                passed[1] ^= order == Ordering::Less;
            }
            false
        });
        passed.map(|is_passed| is_inside ^ is_passed)
    }

    /// Whether the ring surrounds the place directly beside `point`, to the right and slightly
    /// above. Edges that hold the point are passed to `on_edge`, which may end the search.
    fn surrounds(&self, point: Point, on_edge: &mut impl FnMut(&Segment) -> bool) -> bool {
        // A ray to the right counts the edges that it crosses.
        let is_inside = Cell::new(false);
        let is_divided = |low: &Segment, high: &Segment| (low.a.y > point.y) != (high.b.y > point.y);
        self.boxes.any(
            &|group, items| {
                if group.y0 > point.y || group.y1 < point.y || group.x1 < point.x {
                    return false;
                }
                if group.x0 > point.x {
                    // It crosses every edge that separates its ends: for a path, comparing its ends
                    // suffices.
                    let (first, last) = (&self.edges[items.start], &self.edges[items.end - 1]);
                    is_inside.set(is_inside.get() ^ is_divided(first, last));
                    return false;
                }
                true
            },
            &mut |index| {
                let edge = &self.edges[index];
                if edge.contains(point) {
                    return on_edge(edge);
                }
                is_inside.set(is_inside.get() ^ edge.is_right_of(point));
                false
            },
        );
        is_inside.get()
    }
}
