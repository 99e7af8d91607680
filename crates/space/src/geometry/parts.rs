//! The parts of a query geometry as one set of points: tests of what contains and covers others.
//!
//! The set is the union of its areas, lines and points. A point in an area counts as area;
//! otherwise a point on a line counts as line. The boundary is that of the united areas, plus line
//! ends outside of them that an odd number of lines share.

use super::area::{Area, Areas, Place};
use super::edges::EdgeTree;
use super::lines::Lines;
use super::pieces::{Layer, Piece, Pieces};
use super::segment::{Location, Segment, edges};
use super::shape::Shape;
use crate::{Point, Rect};

#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub areas: Areas,
    pub lines: Lines,
    pub points: EdgeTree,
}

/// Whether areas lie wherever the subject does.
fn is_covered(piece: &Piece) -> bool {
    (0..2).all(|side| piece.areas[side] || !piece.subject[side])
}

impl Parts {
    /// Whether `point` belongs to a part.
    pub fn holds(&self, point: Point) -> bool {
        self.areas.any_location(point, |location| location != Location::Outside)
            || self.lines.tree.holds(point)
            || self.points.holds(point)
    }

    /// The location of `point` with respect to all parts together.
    pub fn locate(&self, point: Point) -> Location {
        match self.locate_in_areas(point) {
            Location::Outside if self.lines.tree.holds(point) => match self.lines.is_boundary(point) {
                true => Location::Boundary,
                false => Location::Inside,
            },
            Location::Outside if self.points.holds(point) => Location::Inside,
            location => location,
        }
    }

    /// The location of `point` with respect to all areas together.
    pub fn locate_in_areas(&self, point: Point) -> Location {
        let mut boundary_count = 0;
        let is_inside = self.areas.any(&Rect::from_point(point), &mut |area| {
            let location = area.locate(point);
            boundary_count += u32::from(location == Location::Boundary);
            location == Location::Inside
        });
        if is_inside {
            return Location::Inside;
        }
        match boundary_count {
            0 => Location::Outside,
            1 => Location::Boundary,
            _ if self.surround(point) => Location::Inside,
            _ => Location::Boundary,
        }
    }

    /// Whether areas lie on both sides of every edge that leaves `point`, which is on the boundary
    /// of some area. They leave no gap around it then.
    fn surround(&self, point: Point) -> bool {
        let here = Rect::from_point(point);
        let has_gap = |edge: &Segment| {
            let mut ends = [edge.a, edge.b].into_iter().filter(|end| *end != point);
            edge.contains(point)
                && ends.any(|b| {
                    let mut pieces = Pieces::new(Segment { a: point, b });
                    self.areas.any(&here, &mut |area| {
                        pieces.begin_at_area(Layer::Areas, area);
                        false
                    });
                    pieces.current().areas != [true; 2]
                })
        };
        !self.areas.any(&here, &mut |area| area.any(&here, &mut |edge| has_gap(edge)))
    }

    /// Whether areas leave no gap directly beside `point` in the western, or else the eastern, half
    /// of the plane. All edges that leave it must be in that half.
    pub fn surround_half(&self, point: Point, is_western: bool) -> bool {
        let here = Rect::from_point(point);
        let areas_beside = |b: Point| {
            let mut pieces = Pieces::new(Segment { a: point, b });
            self.areas.any(&here, &mut |area| {
                pieces.begin_at_area(Layer::Areas, area);
                false
            });
            pieces.current().areas
        };
        // The half lies on opposite sides of the northward and the southward direction.
        let [left, right] = [usize::from(!is_western), usize::from(is_western)];
        let north = areas_beside(Point::new(point.x, point.y + 1.0))[left];
        let south = areas_beside(Point::new(point.x, point.y - 1.0))[right];
        let has_gap = |edge: &Segment| {
            let mut ends = [edge.a, edge.b].into_iter().filter(|end| end.x != point.x);
            edge.contains(point) && ends.any(|b| areas_beside(b) != [true; 2])
        };
        north && south && !self.areas.any(&here, &mut |area| area.any(&here, &mut |edge| has_gap(edge)))
    }

    /// The segment, cut at the areas beside it.
    fn areas_beside(&self, segment: &Segment) -> Pieces {
        let mut pieces = Pieces::new(*segment);
        pieces.cut_at_areas(Layer::Areas, &self.areas);
        pieces
    }

    /// The area, if there is exactly one part, an area.
    fn only_area(&self) -> Option<&Area> {
        self.areas.only().filter(|_| self.points.edges().is_empty() && self.lines.is_empty())
    }

    /// Whether `shape` is within the parts (OGC): none of its points lies outside, and one of its
    /// interior points lies in their interior.
    ///
    /// With `boundary_suffices`, all of its points may lie on the boundary, if the shape has more
    /// than points.
    pub fn cover(&self, shape: &Shape, boundary_suffices: bool) -> bool {
        if let Some(area) = self.only_area() {
            match area.place(shape) {
                Place::Inside => return true,
                Place::NotWithin => return false,
                Place::OnBoundary => {}
            }
        } else if self.areas.any(&shape.rect, &mut |area| area.place(shape) == Place::Inside) {
            return true;
        }
        // An area that is covered lies inside, since its cover is an area, too.
        let mut meets_interior = boundary_suffices || !shape.polygons.is_empty();
        for point in &shape.points {
            match self.locate(*point) {
                Location::Outside => return false,
                Location::Inside => meets_interior = true,
                Location::Boundary => {}
            }
        }
        for edge in shape.lines.iter().flat_map(|line| edges(line)) {
            if edge.a == edge.b {
                match self.locate(edge.a) {
                    Location::Outside => return false,
                    Location::Inside => meets_interior = true,
                    Location::Boundary => {}
                }
                continue;
            }
            let mut pieces = self.areas_beside(&edge);
            pieces.cut_at_lines(&self.lines.tree);
            let is_covered = pieces.all(|piece| {
                // On the boundary of the areas, one side is free.
                let [left, right] = piece.areas;
                meets_interior |= left == right && (left || piece.is_on_line);
                left || right || piece.is_on_line
            });
            if !is_covered {
                return false;
            }
        }
        self.cover_polygons(&shape.polygons) && meets_interior
    }

    /// Whether the areas cover polygons. If not, an uncovered place would lie beside an edge, of a
    /// polygon or of an area inside one.
    fn cover_polygons(&self, polygons: &[Vec<Vec<Point>>]) -> bool {
        let subject = Areas::new(polygons.iter().map(Area::new).collect());
        let is_right = |edge: &Segment, test: fn(Piece) -> bool| {
            if edge.a == edge.b {
                return true;
            }
            let mut pieces = self.areas_beside(edge);
            if pieces.is_uncut() && pieces.current().areas == [true; 2] {
                return true;
            }
            pieces.cut_at_areas(Layer::Subject, &subject);
            pieces.all(test)
        };
        let mut edges = subject.iter().flat_map(Area::edges);
        edges.all(|edge| is_right(edge, |piece| piece.areas != [false; 2] && is_covered(&piece)))
            && !self.areas.any(&subject.rect(), &mut |area| {
                area.any(&subject.rect(), &mut |edge| {
                    subject.any(&edge.rect(), &mut |_| true) && !is_right(edge, |piece| is_covered(&piece))
                })
            })
    }
}
