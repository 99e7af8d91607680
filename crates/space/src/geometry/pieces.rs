//! A segment cut into pieces where it meets the edges of areas and lines, and
//! what lies on both sides of each piece.
//!
//! Just beside a piece, a place is inside of an area or outside of it, never
//! on its boundary: so an area that has an edge along the piece is seen on one
//! of its sides. From there a ray goes along the segment, and counts the edges
//! that it passes. Where edges cross the segment is a quotient of integers, so
//! nothing is rounded.

use std::cmp::Ordering;

use geo::kernels::Orientation;
use num_bigint::BigInt;

use super::edges::EdgeTree;
use super::segment::{Segment, orientation};
use crate::{Point, Rect};

/// What lies beside one piece; of pairs, the first is the left side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// Whether the subject is there.
    pub subject: [bool; 2],
    /// Whether one of the areas is there.
    pub areas: [bool; 2],
    /// Whether a line goes along the piece.
    pub is_on_line: bool,
}

/// Whose edges are met.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Layer {
    /// The one polygon that is asked about.
    Subject,
    /// The areas of which it is asked whether they cover it.
    Areas,
}

struct Owner {
    layer: Layer,
    inside: [bool; 2],
}

enum Change {
    /// An edge of an area passes one side or both.
    Sides {
        owner: usize,
        sides: [bool; 2],
    },
    LineBegins,
    LineEnds,
}

/// Where the segment is cut.
enum Mark {
    /// At a position that lies on it.
    Vertex(Point),
    /// Where an edge crosses it, from left to right.
    Crossing(Segment),
}

/// A segment with its cuts; its ends differ.
pub(super) struct Pieces {
    segment: Segment,
    owners: Vec<Owner>,
    lines: usize,
    cuts: Vec<(Mark, Change)>,
}

impl Pieces {
    pub fn new(segment: Segment) -> Self {
        debug_assert!(segment.a != segment.b, "a point has no sides");
        Self { segment, owners: Vec::new(), lines: 0, cuts: Vec::new() }
    }

    /// Cuts at the edges that bound one area.
    pub fn cut_at_area(&mut self, layer: Layer, tree: &EdgeTree) {
        let owner = self.owners.len();
        let mut inside = [false; 2];
        let count = self.cuts.len();
        let Segment { a, b } = self.segment;
        let mut found = Vec::new();
        tree.any(&|group| self.may_pass(group), &mut |_, edge| {
            let ends = [orientation(a, b, edge.a), orientation(a, b, edge.b)];
            let passes = |side: Orientation| (ends[0] == side) != (ends[1] == side);
            // The rays run just beside the segment: what reaches it from the
            // left passes the left one, even if it ends on the segment.
            let sides = [passes(Orientation::CounterClockwise), passes(Orientation::Clockwise)];
            if sides == [false; 2] {
                return false;
            }
            let mark = match ends {
                [Orientation::Collinear, _] => Mark::Vertex(edge.a),
                [_, Orientation::Collinear] => Mark::Vertex(edge.b),
                [Orientation::CounterClockwise, _] => Mark::Crossing(*edge),
                [Orientation::Clockwise, _] => Mark::Crossing(Segment { a: edge.b, b: edge.a }),
            };
            if self.order(&mark, a) != Ordering::Greater {
                return false;
            }
            inside = [inside[0] ^ sides[0], inside[1] ^ sides[1]];
            if self.order(&mark, b) == Ordering::Less {
                found.push((mark, Change::Sides { owner, sides }));
            }
            false
        });
        self.cuts.append(&mut found);
        if inside != [false; 2] || self.cuts.len() > count {
            self.owners.push(Owner { layer, inside });
        }
    }

    /// Cuts at the ends of the edges that go along the segment.
    pub fn cut_at_lines(&mut self, tree: &EdgeTree) {
        let Segment { a, b } = self.segment;
        let rect = self.segment.rect();
        let (start, end) = (self.along(a), self.along(b));
        tree.any(&|group| group.intersects(&rect), &mut |_, edge| {
            if [edge.a, edge.b].iter().any(|vertex| orientation(a, b, *vertex) != Orientation::Collinear) {
                return false;
            }
            let is_forward = self.along(edge.a) <= self.along(edge.b);
            let (first, last) = if is_forward { (edge.a, edge.b) } else { (edge.b, edge.a) };
            if self.along(last) <= start || self.along(first) >= end {
                return false;
            }
            if self.along(first) <= start {
                self.lines += 1;
            } else {
                self.cuts.push((Mark::Vertex(first), Change::LineBegins));
            }
            if self.along(last) < end {
                self.cuts.push((Mark::Vertex(last), Change::LineEnds));
            }
            false
        });
    }

    /// What lies beside the first piece.
    pub fn first(&self) -> Piece {
        let is_beside =
            |layer: Layer, side: usize| self.owners.iter().any(|owner| owner.layer == layer && owner.inside[side]);
        Piece {
            subject: [is_beside(Layer::Subject, 0), is_beside(Layer::Subject, 1)],
            areas: [is_beside(Layer::Areas, 0), is_beside(Layer::Areas, 1)],
            is_on_line: self.lines > 0,
        }
    }

    /// Whether `test` holds for every piece.
    pub fn all(mut self, mut test: impl FnMut(Piece) -> bool) -> bool {
        if !test(self.first()) {
            return false;
        }
        let cuts = std::mem::take(&mut self.cuts);
        for group in self.sorted(cuts).chunk_by(|a, b| a.0 == b.0) {
            for (_, change) in group {
                match change {
                    Change::Sides { owner, sides } => {
                        let inside = &mut self.owners[*owner].inside;
                        *inside = [inside[0] ^ sides[0], inside[1] ^ sides[1]];
                    }
                    Change::LineBegins => self.lines += 1,
                    Change::LineEnds => self.lines -= 1,
                }
            }
            if !test(self.first()) {
                return false;
            }
        }
        true
    }

    /// Whether an edge in `rect` may pass a ray along the segment from its start.
    fn may_pass(&self, rect: &Rect) -> bool {
        let Segment { a, b } = self.segment;
        let is_behind = (b.x > a.x && rect.x1 < a.x)
            || (b.x < a.x && rect.x0 > a.x)
            || (b.y > a.y && rect.y1 < a.y)
            || (b.y < a.y && rect.y0 > a.y);
        if is_behind {
            return false;
        }
        let corner = |x: f64, y: f64| orientation(a, b, Point::new(x, y));
        let side = corner(rect.x0, rect.y0);
        side == Orientation::Collinear
            || [(rect.x1, rect.y0), (rect.x1, rect.y1), (rect.x0, rect.y1)].iter().any(|(x, y)| corner(*x, *y) != side)
    }

    /// Orders positions on the segment from its start to its end.
    fn along(&self, vertex: Point) -> f64 {
        let Segment { a, b } = self.segment;
        let (value, is_forward) = if a.x == b.x { (vertex.y, a.y < b.y) } else { (vertex.x, a.x < b.x) };
        // -0 lies where 0 does.
        if is_forward { value + 0.0 } else { 0.0 - value }
    }

    /// Whether a mark lies before, at or behind `vertex`, which lies on the segment.
    fn order(&self, mark: &Mark, vertex: Point) -> Ordering {
        match mark {
            Mark::Vertex(other) => self.along(*other).total_cmp(&self.along(vertex)),
            // The direction of the segment is left of an edge from its left to its right.
            Mark::Crossing(edge) => match orientation(edge.a, edge.b, vertex) {
                Orientation::Clockwise => Ordering::Greater,
                Orientation::Collinear => Ordering::Equal,
                Orientation::CounterClockwise => Ordering::Less,
            },
        }
    }

    /// The cuts with exact positions, in their order.
    fn sorted(&self, cuts: Vec<(Mark, Change)>) -> Vec<(Share, Change)> {
        let mut sorted: Vec<_> = cuts.into_iter().map(|(mark, change)| (self.share(&mark), change)).collect();
        sorted.sort_by(|a, b| a.0.cmp(&b.0));
        sorted
    }

    fn share(&self, mark: &Mark) -> Share {
        let Segment { a, b } = self.segment;
        match mark {
            Mark::Vertex(vertex) => {
                let [start, end, place] = integers([self.along(a), self.along(b), self.along(*vertex)]);
                Share { before: &place - start, after: end - place }
            }
            Mark::Crossing(edge) => {
                let [ax, ay, bx, by, cx, cy, dx, dy] =
                    integers([a.x, a.y, b.x, b.y, edge.a.x, edge.a.y, edge.b.x, edge.b.y]);
                let (x, y) = (dx - &cx, dy - &cy);
                Share { before: (ax - &cx) * &y - (ay - &cy) * &x, after: (by - cy) * x - (bx - cx) * y }
            }
        }
    }
}

/// A place between the ends of a segment: how much lies before it and how much
/// after it, both positive, to any scale.
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

/// Integers in the proportion of finite numbers.
fn integers<const N: usize>(values: [f64; N]) -> [BigInt; N] {
    let parts = values.map(|value| {
        let bits = value.to_bits();
        let fraction = (bits & ((1 << 52) - 1)) as i64;
        let (mantissa, exponent) = match (bits >> 52) & 0x7ff {
            0 => (fraction, 1),
            exponent => (fraction | 1 << 52, exponent),
        };
        (if value < 0.0 { -mantissa } else { mantissa }, exponent)
    });
    let least = parts.iter().filter(|(mantissa, _)| *mantissa != 0).map(|(_, exponent)| *exponent).min().unwrap_or(0);
    parts.map(|(mantissa, exponent)| BigInt::from(mantissa) << exponent.saturating_sub(least))
}
