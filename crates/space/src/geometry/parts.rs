//! The parts of a query geometry, taken as one set of points: what they
//! contain, and what is within them.
//!
//! Areas are united. What lies in an area counts for nothing else; of the
//! rest, what lies on a line counts for no point. Boundaries are those of the
//! united areas and, beside them, the ends that an odd number of lines share.

use super::area::{Area, Place};
use super::lines::Lines;
use super::pieces::{Layer, Piece, Pieces};
use super::segment::{Location, Segment, edges};
use super::shape::Shape;
use crate::Point;

#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub areas: Vec<Area>,
    pub lines: Lines,
    pub points: Vec<Point>,
}

/// Whether areas lie wherever the subject does.
fn is_covered(piece: &Piece) -> bool {
    (0..2).all(|side| piece.areas[side] || !piece.subject[side])
}

impl Parts {
    /// Whether `point` belongs to a part.
    pub fn holds(&self, point: Point) -> bool {
        self.areas.iter().any(|area| area.tree.locate(point) != Location::Outside)
            || self.lines.tree.holds(point)
            || self.points.contains(&point)
    }

    /// The place of `point` with respect to all parts together.
    pub fn locate(&self, point: Point) -> Location {
        let mut boundary_count = 0;
        for area in &self.areas {
            match area.tree.locate(point) {
                Location::Inside => return Location::Inside,
                Location::Boundary => boundary_count += 1,
                Location::Outside => {}
            }
        }
        if boundary_count > 0 {
            let is_inside = boundary_count > 1 && self.surround(point);
            return if is_inside { Location::Inside } else { Location::Boundary };
        }
        if self.lines.tree.holds(point) {
            return if self.lines.is_boundary(point) { Location::Boundary } else { Location::Inside };
        }
        if self.points.contains(&point) { Location::Inside } else { Location::Outside }
    }

    /// Whether areas lie on both sides of every edge that leaves `point`,
    /// which is on the boundary of some: then they leave no gap around it.
    fn surround(&self, point: Point) -> bool {
        let has_gap = |edge: &Segment| {
            let ends = [edge.a, edge.b].into_iter().filter(|end| *end != point);
            edge.contains(point)
                && ends
                    .map(|b| self.areas_beside(Segment { a: point, b }).first())
                    .any(|piece| piece.areas != [true; 2])
        };
        let holds = |area: &Area| area.tree.any(&|group| group.contains_point(point), &mut |_, edge| has_gap(edge));
        !self.areas.iter().any(holds)
    }

    fn areas_beside(&self, segment: Segment) -> Pieces {
        let mut pieces = Pieces::new(segment);
        self.areas.iter().for_each(|area| pieces.cut_at_area(Layer::Areas, &area.tree));
        pieces
    }

    /// The area, if there is one and nothing else.
    fn only_area(&self) -> Option<&Area> {
        match self.areas.as_slice() {
            [area] if self.points.is_empty() && self.lines.is_empty() => Some(area),
            _ => None,
        }
    }

    /// Whether `shape` is within the parts (OGC): none of its points lies
    /// outside, and one of its interior lies in their interior.
    pub fn cover(&self, shape: &Shape) -> bool {
        for area in &self.areas {
            match area.place(shape) {
                Place::Inside => return true,
                Place::NotWithin if self.only_area().is_some() => return false,
                Place::NotWithin | Place::OnBoundary => {}
            }
        }
        // An area that is covered lies inside; what covers it is an area, too.
        let mut meets_interior = !shape.polygons.is_empty();
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
            let mut pieces = self.areas_beside(edge);
            pieces.cut_at_lines(&self.lines.tree);
            let is_covered = pieces.all(|piece| {
                // On the boundary of areas, one side is free.
                let [left, right] = piece.areas;
                meets_interior |= left == right && (left || piece.is_on_line);
                left || right || piece.is_on_line
            });
            if !is_covered {
                return false;
            }
        }
        shape.polygons.iter().all(|rings| self.cover_polygon(rings)) && meets_interior
    }

    /// Whether the areas cover a polygon: if they did not, what they leave
    /// would lie beside an edge, of the polygon or of an area inside of it.
    fn cover_polygon(&self, rings: &[Vec<Point>]) -> bool {
        if self.areas.iter().any(|area| area.place_of_polygon(rings) == Place::Inside) {
            return true;
        }
        let polygon = Area::new(rings.iter());
        let all_pieces = |edge: &Segment, test: fn(Piece) -> bool| {
            let mut pieces = self.areas_beside(*edge);
            pieces.cut_at_area(Layer::Subject, &polygon.tree);
            pieces.all(test)
        };
        let rect = polygon.tree.rect();
        let mut edges = polygon.tree.edges().iter().filter(|edge| edge.a != edge.b);
        edges.all(|edge| all_pieces(edge, |piece| piece.areas != [false; 2] && is_covered(&piece)))
            && !self.areas.iter().any(|area| {
                area.tree.any(&|group| group.intersects(&rect), &mut |_, edge| {
                    edge.a != edge.b && edge.rect().intersects(&rect) && !all_pieces(edge, |piece| is_covered(&piece))
                })
            })
    }
}
