//! An area of a query geometry, and the place of whole shapes in it as far as
//! no edge has to be cut for it.

use super::edges::EdgeTree;
use super::segment::{Contact, Location, edges, locate_in_rings};
use super::shape::Shape;
use crate::{Point, Rect};

/// What rings bound, by the even-odd rule.
#[derive(Clone, Debug)]
pub(super) struct Area {
    pub tree: EdgeTree,
    pub ring_starts: Vec<Point>,
}

/// What is known of a part's place in an area without cutting edges.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Place {
    Inside,
    NotWithin,
    OnBoundary,
}

impl Area {
    pub fn new<'a>(rings: impl Iterator<Item = &'a Vec<Point>> + Clone) -> Self {
        Self {
            tree: EdgeTree::new(rings.clone().flat_map(|ring| edges(ring)).collect()),
            ring_starts: rings.filter_map(|ring| ring.first().copied()).collect(),
        }
    }

    /// The place of a whole shape: as soon as one part is not within, none is.
    pub fn place(&self, shape: &Shape) -> Place {
        let mut all_inside = true;
        let mut any_point_inside = false;
        for point in &shape.points {
            match self.tree.locate(*point) {
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
        if path.first().is_some_and(|start| self.tree.locate(*start) == Location::Outside) {
            return Place::NotWithin;
        }
        let mut closest = Contact::None;
        for edge in edges(path) {
            closest = closest.max(self.tree.contact(&edge));
            if closest == Contact::Cross {
                return Place::NotWithin;
            }
        }
        match closest {
            Contact::None => Place::Inside,
            _ if path.iter().any(|point| self.tree.locate(*point) == Location::Outside) => Place::NotWithin,
            _ => Place::OnBoundary,
        }
    }

    pub fn place_of_polygon(&self, rings: &[Vec<Point>]) -> Place {
        let mut place = Place::Inside;
        for ring in rings {
            match self.place_of_path(ring) {
                Place::NotWithin => return Place::NotWithin,
                Place::OnBoundary => place = Place::OnBoundary,
                Place::Inside => {}
            }
        }
        // A hole of this area that lies inside of the polygon.
        let rect = path_rect(rings.first().map_or(&[], Vec::as_slice));
        let has_hole = self
            .ring_starts
            .iter()
            .any(|start| rect.contains_point(*start) && locate_in_rings(rings, *start) == Location::Inside);
        if has_hole { Place::NotWithin } else { place }
    }
}

/// The box of a path.
pub(super) fn path_rect(path: &[Point]) -> Rect {
    path.iter().fold(Rect::EMPTY, |rect, point| rect.union(&Rect::from_point(*point)))
}
