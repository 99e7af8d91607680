//! Cuts a segment into pieces where it meets the edges of areas and lines. Tells what lies on both
//! sides of each piece.
//!
//! Directly beside a piece, a place is inside or outside of an area, never on its boundary. An area
//! with an edge along the piece is therefore on one of its sides. The sides at the segment's start
//! are located by search. From there, only edges that touch the segment change them. The crossing
//! of an edge is a quotient of integers, so nothing is rounded.

use std::cmp::Ordering;

use geo::kernels::Orientation;
use num_bigint::BigInt;

use super::area::{Area, Areas};
use super::edges::EdgeTree;
use super::segment::{Segment, integers, orientation};
use crate::Point;

/// What lies beside one piece, as pairs of the left and the right side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// Whether the subject is there.
    pub subject: [bool; 2],
    /// Whether one of the areas is there.
    pub areas: [bool; 2],
    /// Whether a line goes along the piece.
    pub is_on_line: bool,
}

/// The owner of edges that cut the segment.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Layer {
    /// The polygons in question.
    Subject,
    /// The areas that may cover them.
    Areas,
}

struct Owner {
    layer: Layer,
    inside: [bool; 2],
}

enum Change {
    /// An edge of an area crosses one side or both.
    Sides {
        owner: usize,
        sides: [bool; 2],
    },
    LineBegins,
    LineEnds,
}

/// A place at which the segment is cut.
enum Mark {
    /// At a position that lies on it.
    Vertex(Point),
    /// Where an edge crosses it, from left to right.
    Crossing(Segment, Share),
}

/// A segment with its cuts. Its ends differ.
pub(super) struct Pieces {
    course: Course,
    owners: Vec<Owner>,
    /// The number of owners of each layer on each side.
    counts: [[usize; 2]; 2],
    lines: usize,
    cuts: Vec<(Mark, Change)>,
}

impl Pieces {
    pub fn new(segment: Segment) -> Self {
        debug_assert!(segment.a != segment.b, "a point has no sides");
        Self { course: Course(segment), owners: Vec::new(), counts: [[0; 2]; 2], lines: 0, cuts: Vec::new() }
    }

    /// Counts an area only beside the first piece.
    pub fn begin_at_area(&mut self, layer: Layer, area: &Area) {
        let inside = area.beside(&self.course.0);
        self.owners.push(Owner { layer, inside: [false; 2] });
        self.pass(self.owners.len() - 1, inside);
    }

    /// Cuts at the edges of one area.
    pub fn cut_at_area(&mut self, layer: Layer, area: &Area) {
        self.begin_at_area(layer, area);
        let owner = self.owners.len() - 1;
        let course = self.course;
        let Course(Segment { a, b }) = course;
        let rect = course.0.rect();
        area.any(&rect, &mut |edge| {
            if !edge.rect().intersects(&rect) {
                return false;
            }
            let ends = [orientation(a, b, edge.a), orientation(a, b, edge.b)];
            // An edge from the left crosses the left side, even if it ends on the segment.
            let passes = |side: Orientation| (ends[0] == side) != (ends[1] == side);
            let sides = [passes(Orientation::CounterClockwise), passes(Orientation::Clockwise)];
            if sides == [false; 2] {
                return false;
            }
            let mark = match ends {
                [Orientation::Collinear, _] => course.at_vertex(edge.a),
                [_, Orientation::Collinear] => course.at_vertex(edge.b),
                [Orientation::CounterClockwise, _] => course.at_crossing(*edge),
                [Orientation::Clockwise, _] => course.at_crossing(Segment { a: edge.b, b: edge.a }),
            };
            self.cuts.extend(mark.map(|mark| (mark, Change::Sides { owner, sides })));
            false
        });
    }

    /// Cuts at the edges of all nearby areas.
    pub fn cut_at_areas(&mut self, layer: Layer, areas: &Areas) {
        areas.any(&self.course.0.rect(), &mut |area| {
            self.cut_at_area(layer, area);
            false
        });
    }

    /// Crosses an edge of an area, which changes the sides that it crosses.
    fn pass(&mut self, owner: usize, sides: [bool; 2]) {
        let Owner { layer, inside } = &mut self.owners[owner];
        let counts = &mut self.counts[*layer as usize];
        for side in (0..2).filter(|side| sides[*side]) {
            inside[side] = !inside[side];
            if inside[side] {
                counts[side] += 1;
            } else {
                counts[side] -= 1;
            }
        }
    }

    /// Cuts at the ends of the edges along the segment.
    pub fn cut_at_lines(&mut self, tree: &EdgeTree) {
        let course = self.course;
        let Course(Segment { a, b }) = course;
        let (start, end) = (course.along(a), course.along(b));
        tree.any(&course.0.rect(), &mut |_, edge| {
            if [edge.a, edge.b].iter().any(|vertex| orientation(a, b, *vertex) != Orientation::Collinear) {
                return false;
            }
            let is_forward = course.along(edge.a) <= course.along(edge.b);
            let (first, last) = if is_forward { (edge.a, edge.b) } else { (edge.b, edge.a) };
            if course.along(last) <= start || course.along(first) >= end {
                return false;
            }
            if course.along(first) <= start {
                self.lines += 1;
            } else {
                self.cuts.push((Mark::Vertex(first), Change::LineBegins));
            }
            if course.along(last) < end {
                self.cuts.push((Mark::Vertex(last), Change::LineEnds));
            }
            false
        });
    }

    /// What lies beside the current piece; initially the first.
    pub fn current(&self) -> Piece {
        let is_beside = |layer: Layer| self.counts[layer as usize].map(|count| count > 0);
        Piece { subject: is_beside(Layer::Subject), areas: is_beside(Layer::Areas), is_on_line: self.lines > 0 }
    }

    /// Whether there is only one piece.
    pub fn is_uncut(&self) -> bool {
        self.cuts.is_empty()
    }

    /// Whether `test` holds for every piece.
    pub fn all(mut self, mut test: impl FnMut(Piece) -> bool) -> bool {
        if !test(self.current()) {
            return false;
        }
        let course = self.course;
        let mut cuts = std::mem::take(&mut self.cuts);
        cuts.sort_by(|a, b| course.compare(&a.0, &b.0));
        for group in cuts.chunk_by(|a, b| course.compare(&a.0, &b.0) == Ordering::Equal) {
            for (_, change) in group {
                match change {
                    Change::Sides { owner, sides } => self.pass(*owner, *sides),
                    Change::LineBegins => self.lines += 1,
                    Change::LineEnds => self.lines -= 1,
                }
            }
            if !test(self.current()) {
                return false;
            }
        }
        true
    }
}

/// A segment, which orders the marks on it.
#[derive(Clone, Copy)]
struct Course(Segment);

impl Course {
    /// Orders positions on the segment from its start to its end.
    fn along(self, vertex: Point) -> f64 {
        let Segment { a, b } = self.0;
        let (value, is_forward) = if a.x == b.x { (vertex.y, a.y < b.y) } else { (vertex.x, a.x < b.x) };
        // -0 is the same place as 0.
        if is_forward { value + 0.0 } else { 0.0 - value }
    }

    /// The mark of a position on the segment's line, if it lies between the ends.
    fn at_vertex(self, vertex: Point) -> Option<Mark> {
        let place = self.along(vertex);
        (self.along(self.0.a) < place && place < self.along(self.0.b)).then_some(Mark::Vertex(vertex))
    }

    /// The mark of an edge from left to right, if it crosses between the ends.
    fn at_crossing(self, edge: Segment) -> Option<Mark> {
        let Segment { a, b } = self.0;
        let is_between = order(&edge, a) == Ordering::Greater && order(&edge, b) == Ordering::Less;
        is_between.then(|| Mark::Crossing(edge, self.share(&edge)))
    }

    fn compare(self, first: &Mark, second: &Mark) -> Ordering {
        match (first, second) {
            (Mark::Vertex(vertex), Mark::Vertex(other)) => self.along(*vertex).total_cmp(&self.along(*other)),
            (Mark::Vertex(vertex), Mark::Crossing(edge, _)) => order(edge, *vertex).reverse(),
            (Mark::Crossing(edge, _), Mark::Vertex(vertex)) => order(edge, *vertex),
            (Mark::Crossing(_, share), Mark::Crossing(_, other)) => share.cmp(other),
        }
    }

    /// The crossing with `edge`.
    fn share(self, edge: &Segment) -> Share {
        let Segment { a, b } = self.0;
        let [ax, ay, bx, by, cx, cy, dx, dy] = integers([a.x, a.y, b.x, b.y, edge.a.x, edge.a.y, edge.b.x, edge.b.y]);
        let (x, y) = (dx - &cx, dy - &cy);
        Share { before: (ax - &cx) * &y - (ay - &cy) * &x, after: (by - cy) * x - (bx - cx) * y }
    }
}

/// Whether an edge crosses a segment, from left to right, before, at or behind `vertex`, which lies
/// on the segment's line.
fn order(edge: &Segment, vertex: Point) -> Ordering {
    // The direction of the segment is left of the edge.
    match orientation(edge.a, edge.b, vertex) {
        Orientation::Clockwise => Ordering::Greater,
        Orientation::Collinear => Ordering::Equal,
        Orientation::CounterClockwise => Ordering::Less,
    }
}

/// A place between the ends of a segment: the shares before and after it, both positive, in any
/// scale.
struct Share {
    before: BigInt,
    after: BigInt,
}

impl Ord for Share {
    fn cmp(&self, other: &Self) -> Ordering {
        (&self.before * &other.after).cmp(&(&other.before * &self.after))
    }
}

impl PartialOrd for Share {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Share {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Share {}
