//! Validity in the sense of the simple-features standard, as far as the predicates rely on it:
//! simple rings, holes inside their shell, parts that do not overlap. It does not check that the
//! interior of a polygon is connected.

use geo_types::{Geometry, LineString, Polygon};

use super::area::Area;
use super::boxes::{BoxTree, sort_by_place};
use super::edges::EdgeTree;
use super::pieces::{Layer, Piece, Pieces};
use super::segment::{Contact, Segment, orientation};
use crate::Point;

/// Why a geometry is not valid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum InvalidGeometry {
    /// A line that is a single point.
    #[error("a line string has fewer than 2 distinct positions")]
    DegenerateLine,
    /// A ring with no area.
    #[error("{ring} has fewer than 3 distinct positions")]
    DegenerateRing {
        /// The ring.
        ring: Ring,
    },
    /// A coordinate is NaN or infinite.
    #[error("a coordinate is not a finite number")]
    NotFinite,
    /// A ring that crosses or touches itself.
    #[error("{ring} intersects itself near ({x}, {y})")]
    SelfIntersection {
        /// The ring.
        ring: Ring,
        /// x of an end of an edge that meets another.
        x: f64,
        /// y of an end of an edge that meets another.
        y: f64,
    },
    /// A hole that is not inside of the outer ring.
    #[error("{hole} is not inside of the outer ring")]
    HoleOutside {
        /// The hole.
        hole: Ring,
    },
    /// Two holes that overlap or share a piece of their boundary.
    #[error("{first} and {second} overlap or share an edge")]
    HolesOverlap {
        /// The first.
        first: Ring,
        /// The second.
        second: Ring,
    },
    /// Two parts of a multi-polygon that overlap or share a piece of their boundary.
    #[error("polygons {first} and {second} of the multi-polygon (counted from 0) overlap or share an edge")]
    PolygonsOverlap {
        /// Index of the first.
        first: usize,
        /// Index of the second.
        second: usize,
    },
    /// A part that is not valid.
    #[error("part {index} (counted from 0): {source}")]
    Part {
        /// Index of the part.
        index: usize,
        /// What is wrong with it.
        source: Box<InvalidGeometry>,
    },
}

/// A ring of a polygon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ring {
    /// The outer one.
    Outer,
    /// A hole, counted from 0.
    Hole(usize),
}

impl std::fmt::Display for Ring {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ring::Outer => formatter.write_str("the outer ring"),
            Ring::Hole(index) => write!(formatter, "hole {index}"),
        }
    }
}

/// Accepts valid geometries, including empty ones.
///
/// # Errors
/// The first reason found, and its part.
pub fn check_valid(geometry: &Geometry<f64>) -> Result<(), InvalidGeometry> {
    match geometry {
        Geometry::Point(point) => check_finite([Point::new(point.x(), point.y())]),
        Geometry::Line(line) => check_line(&LineString(vec![line.start, line.end])),
        Geometry::LineString(line) => check_line(line),
        Geometry::Polygon(polygon) => check_polygon(polygon),
        Geometry::Rect(rect) => check_polygon(&rect.to_polygon()),
        Geometry::Triangle(triangle) => check_polygon(&triangle.to_polygon()),
        Geometry::MultiPoint(points) => check_finite(points.iter().map(|p| Point::new(p.x(), p.y()))),
        Geometry::MultiLineString(lines) => each(&lines.0, check_line),
        Geometry::MultiPolygon(polygons) => {
            each(&polygons.0, check_polygon)?;
            check_disjoint(&polygons.0)
        }
        Geometry::GeometryCollection(collection) => each(&collection.0, check_valid),
    }
}

fn each<T>(parts: &[T], check: impl Fn(&T) -> Result<(), InvalidGeometry>) -> Result<(), InvalidGeometry> {
    parts.iter().enumerate().try_for_each(|(index, part)| {
        check(part).map_err(|source| InvalidGeometry::Part { index, source: Box::new(source) })
    })
}

fn check_finite(points: impl IntoIterator<Item = Point>) -> Result<(), InvalidGeometry> {
    let is_finite = points.into_iter().all(Point::is_finite);
    if is_finite { Ok(()) } else { Err(InvalidGeometry::NotFinite) }
}

/// The positions of a line without consecutive repetitions.
fn distinct(line: &LineString<f64>) -> Vec<Point> {
    let mut points: Vec<Point> = line.0.iter().map(|coord| Point::new(coord.x, coord.y)).collect();
    points.dedup();
    points
}

fn check_line(line: &LineString<f64>) -> Result<(), InvalidGeometry> {
    let points = distinct(line);
    check_finite(points.iter().copied())?;
    if points.len() == 1 { Err(InvalidGeometry::DegenerateLine) } else { Ok(()) }
}

fn check_polygon(polygon: &Polygon<f64>) -> Result<(), InvalidGeometry> {
    let holes = polygon.interiors().iter().enumerate();
    let rings = std::iter::once((Ring::Outer, polygon.exterior()))
        .chain(holes.map(|(index, hole)| (Ring::Hole(index), hole)))
        .filter(|(_, line)| !line.0.is_empty());
    let mut areas: Vec<(Ring, Area)> = Vec::new();
    for (ring, line) in rings {
        let points = distinct(line);
        check_finite(points.iter().copied())?;
        if points.len() < 4 {
            return Err(InvalidGeometry::DegenerateRing { ring });
        }
        check_simple(ring, &EdgeTree::of_ring(&points))?;
        areas.push((ring, Area::new([&points])));
    }
    let mut areas = areas.into_iter();
    let Some((_, shell)) = areas.next() else {
        return Ok(());
    };
    let (names, holes): (Vec<Ring>, Vec<Area>) = areas.unzip();
    if let Some(outside) = holes.iter().position(|hole| !contains(&shell, hole)) {
        return Err(InvalidGeometry::HoleOutside { hole: names[outside] });
    }
    match overlap(holes) {
        Some((first, second)) => Err(InvalidGeometry::HolesOverlap { first: names[first], second: names[second] }),
        None => Ok(()),
    }
}

fn check_simple(ring: Ring, tree: &EdgeTree) -> Result<(), InvalidGeometry> {
    let count = tree.edges().len();
    for (index, edge) in tree.edges().iter().enumerate() {
        let rect = edge.rect();
        let is_bad = tree.any(&rect, &mut |other_index, other| {
            if other_index <= index {
                return false;
            }
            if other_index == index + 1 {
                turns_back(edge, other)
            } else if index == 0 && other_index == count - 1 {
                turns_back(other, edge)
            } else {
                edge.contact(other) != Contact::None
            }
        });
        if is_bad {
            return Err(InvalidGeometry::SelfIntersection { ring, x: edge.a.x, y: edge.a.y });
        }
    }
    Ok(())
}

/// Whether the edge `next`, which begins where `edge` ends, runs back over it.
fn turns_back(edge: &Segment, next: &Segment) -> bool {
    use geo::kernels::Orientation;
    let (corner, before, after) = (edge.b, edge.a, next.b);
    let dot = (before.x - corner.x) * (after.x - corner.x) + (before.y - corner.y) * (after.y - corner.y);
    dot > 0.0 && orientation(before, corner, after) == Orientation::Collinear
}

fn check_disjoint(polygons: &[Polygon<f64>]) -> Result<(), InvalidGeometry> {
    let rings = |polygon: &Polygon<f64>| -> Vec<Vec<Point>> {
        std::iter::once(polygon.exterior()).chain(polygon.interiors()).map(distinct).collect()
    };
    let areas = polygons.iter().map(|polygon| Area::new(&rings(polygon))).collect();
    match overlap(areas) {
        Some((first, second)) => Err(InvalidGeometry::PolygonsOverlap { first, second }),
        None => Ok(()),
    }
}

/// Two of `areas`, by index, that share more than points of their boundaries.
fn overlap(areas: Vec<Area>) -> Option<(usize, usize)> {
    let mut areas: Vec<(usize, Area)> = areas.into_iter().enumerate().collect();
    sort_by_place(&mut areas, |(_, area)| area.rect());
    let boxes = BoxTree::new(&areas, |(_, area)| area.rect());
    let mut found = None;
    areas.iter().enumerate().any(|(place, (index, area))| {
        let rect = area.rect();
        boxes.any(&|group, items| items.start < place && group.intersects(&rect), &mut |other_place| {
            let (other_index, other) = &areas[other_place];
            if other_place < place && (goes_into(area, other) || goes_into(other, area)) {
                found = Some((*index.min(other_index), *index.max(other_index)));
            }
            found.is_some()
        })
    });
    found
}

/// Whether the boundary of `area` has a piece in `other` or along its boundary.
fn goes_into(area: &Area, other: &Area) -> bool {
    area.any(&other.rect(), &mut |edge| !all_pieces(edge, other, |piece| piece.areas == [false; 2]))
}

/// Whether `hole` lies inside and meets the boundary at most in points.
fn contains(shell: &Area, hole: &Area) -> bool {
    hole.edges().all(|edge| all_pieces(edge, shell, |piece| piece.areas == [true; 2]))
}

/// Whether `test` holds for every piece of an edge that is cut at `area`.
fn all_pieces(edge: &Segment, area: &Area, test: impl FnMut(Piece) -> bool) -> bool {
    let mut pieces = Pieces::new(*edge);
    pieces.cut_at_area(Layer::Areas, area);
    pieces.all(test)
}
