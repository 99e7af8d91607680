//! An area of a query geometry. Tells the location of whole shapes in it, as long as that needs no
//! edges to be cut.

use super::boxes::{BoxTree, sort_by_place};
use super::edges::EdgeTree;
use super::segment::{Contact, Location, Segment, edges};
use super::shape::Shape;
use crate::{Point, Rect};

/// What rings bound, by the even-odd rule.
#[derive(Clone, Debug)]
pub(super) struct Area {
    rings: Vec<EdgeTree>,
    boxes: BoxTree,
}

/// The location of a part in an area, as known without cutting edges.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Place {
    Inside,
    NotWithin,
    OnBoundary,
}

impl Area {
    pub fn new<'a>(rings: impl IntoIterator<Item = &'a Vec<Point>>) -> Self {
        let mut rings: Vec<EdgeTree> = rings.into_iter().map(|ring| EdgeTree::of_ring(ring)).collect();
        sort_by_place(&mut rings, EdgeTree::rect);
        let boxes = BoxTree::new(&rings, EdgeTree::rect);
        Self { rings, boxes }
    }

    /// The box of the area.
    pub fn rect(&self) -> Rect {
        self.boxes.rect()
    }

    pub fn edges(&self) -> impl Iterator<Item = &Segment> {
        self.rings.iter().flat_map(EdgeTree::edges)
    }

    /// A position of each ring.
    pub fn ring_starts(&self) -> impl Iterator<Item = Point> {
        self.rings.iter().filter_map(|ring| ring.edges().first().map(|edge| edge.a))
    }

    /// Whether `test` holds for a ring near `rect`.
    fn any_ring(&self, rect: &Rect, test: &mut impl FnMut(&EdgeTree) -> bool) -> bool {
        self.boxes.any(&|group, _| group.intersects(rect), &mut |index| test(&self.rings[index]))
    }

    /// Whether `test` holds for an edge near `rect`.
    pub fn any(&self, rect: &Rect, test: &mut impl FnMut(&Segment) -> bool) -> bool {
        self.any_ring(rect, &mut |ring| ring.any(rect, &mut |_, edge| test(edge)))
    }

    /// Whether `segment` intersects one of the edges.
    pub fn meets(&self, segment: &Segment) -> bool {
        self.any_ring(&segment.rect(), &mut |ring| ring.meets(segment))
    }

    /// The closest contact of `segment` with one of the edges.
    pub fn contact(&self, segment: &Segment) -> Contact {
        let mut closest = Contact::None;
        self.any(&segment.rect(), &mut |edge| {
            closest = closest.max(edge.contact(segment));
            closest == Contact::Cross
        });
        closest
    }

    pub fn locate(&self, point: Point) -> Location {
        let mut location = Location::Outside;
        self.any_ring(&Rect::from_point(point), &mut |ring| {
            location = match (ring.locate(point), location) {
                (Location::Boundary, _) => Location::Boundary,
                (Location::Outside, _) => location,
                (Location::Inside, Location::Inside) => Location::Outside,
                (Location::Inside, _) => Location::Inside,
            };
            location == Location::Boundary
        });
        location
    }

    /// Whether the area lies directly beside the start of `segment`, on its left and on its right.
    /// The ends of `segment` must differ.
    pub fn beside(&self, segment: &Segment) -> [bool; 2] {
        let mut sides = [false; 2];
        self.any_ring(&Rect::from_point(segment.a), &mut |ring| {
            let inside = ring.beside(segment);
            sides = [sides[0] ^ inside[0], sides[1] ^ inside[1]];
            false
        });
        sides
    }

    /// The location of a whole shape: if one part is not within, neither is the shape.
    pub fn place(&self, shape: &Shape) -> Place {
        if !self.rect().contains_rect(&shape.rect) {
            return Place::NotWithin;
        }
        let mut all_inside = true;
        let mut any_point_inside = false;
        for point in &shape.points {
            match self.locate(*point) {
                Location::Outside => return Place::NotWithin,
                Location::Inside => any_point_inside = true,
                Location::Boundary => all_inside = false,
            }
        }
        if shape.lines.is_empty() && shape.polygons.is_empty() {
            return if any_point_inside { Place::Inside } else { Place::NotWithin };
        }
        let lines = shape.lines.iter().map(|line| self.place_of_path(line));
        let polygons = shape.polygons.iter().map(|rings| self.place_of_polygon(rings));
        for place in lines.chain(polygons) {
            match place {
                Place::NotWithin => return Place::NotWithin,
                Place::OnBoundary => all_inside = false,
                Place::Inside => {}
            }
        }
        if all_inside { Place::Inside } else { Place::OnBoundary }
    }

    fn place_of_path(&self, path: &[Point]) -> Place {
        if path.first().is_some_and(|start| self.locate(*start) == Location::Outside) {
            return Place::NotWithin;
        }
        let mut closest = Contact::None;
        for edge in edges(path) {
            closest = closest.max(self.contact(&edge));
            if closest == Contact::Cross {
                return Place::NotWithin;
            }
        }
        match closest {
            Contact::None => Place::Inside,
            _ if path.iter().any(|point| self.locate(*point) == Location::Outside) => Place::NotWithin,
            _ => Place::OnBoundary,
        }
    }

    fn place_of_polygon(&self, rings: &[Vec<Point>]) -> Place {
        let mut place = Place::Inside;
        for ring in rings {
            match self.place_of_path(ring) {
                Place::NotWithin => return Place::NotWithin,
                Place::OnBoundary => place = Place::OnBoundary,
                Place::Inside => {}
            }
        }
        // A hole of this area that lies inside of the polygon.
        let has_hole = any_located(rings, self.ring_starts(), |location| location == Location::Inside);
        if has_hole { Place::NotWithin } else { place }
    }
}

/// Whether `test` holds for the location of one of `points` in a polygon.
pub(super) fn any_located(
    rings: &[Vec<Point>],
    mut points: impl Iterator<Item = Point>,
    test: impl Fn(Location) -> bool,
) -> bool {
    let rect = path_rect(rings.first().map_or(&[], Vec::as_slice));
    let mut polygon = None;
    points
        .any(|point| rect.contains_point(point) && test(polygon.get_or_insert_with(|| Area::new(rings)).locate(point)))
}

/// The union of several areas, searchable by box.
#[derive(Clone, Debug)]
pub(super) struct Areas {
    areas: Vec<Area>,
    boxes: BoxTree,
}

impl Areas {
    pub fn new(mut areas: Vec<Area>) -> Self {
        sort_by_place(&mut areas, Area::rect);
        let boxes = BoxTree::new(&areas, Area::rect);
        Self { areas, boxes }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Area> {
        self.areas.iter()
    }

    /// The area, if there is exactly one.
    pub fn only(&self) -> Option<&Area> {
        self.areas.first().filter(|_| self.areas.len() == 1)
    }

    pub fn rect(&self) -> Rect {
        self.boxes.rect()
    }

    /// Whether `test` holds for an area near `rect`.
    pub fn any(&self, rect: &Rect, test: &mut impl FnMut(&Area) -> bool) -> bool {
        self.boxes.any(&|group, _| group.intersects(rect), &mut |index| {
            let area = &self.areas[index];
            area.rect().intersects(rect) && test(area)
        })
    }

    /// Whether `test` holds for the location of `point` in one of the areas.
    pub fn any_location(&self, point: Point, test: impl Fn(Location) -> bool) -> bool {
        self.any(&Rect::from_point(point), &mut |area| test(area.locate(point)))
    }
}

/// The box of a path.
pub(super) fn path_rect(path: &[Point]) -> Rect {
    path.iter().fold(Rect::EMPTY, |rect, point| rect.union(&Rect::from_point(*point)))
}
