//! Relations, validity and hulls of geometries, by the crate `geo`, which ignores Z and M.

use std::cell::Cell;

use datafusion::common::{Result, exec_err};
use geo::relate::IntersectionMatrix;
use geo::{Centroid, ConvexHull, Coord, Geometry, LineString, Point, Polygon, Relate};
use terrane_space::geometry::{Dimensions, GeometryKind, InvalidGeometry, Ring, Tree, check_valid, from_geo};

use super::Kind::{Geometry as G, Text as T};
use super::Returns;
use super::access::{boundary_of, dimension_of};
use super::inside::point_inside;
use super::noding::all_meetings;
use super::tail::{Arg, Tail, Value, of};

/// The function that `ST_Relate` with a pattern becomes.
pub(crate) const RELATE_PATTERN: &str = "st_relatepattern";

/// The functions.
pub(super) const FUNCTIONS: &[Tail] = &[
    of(&["st_equals"], &[G, G], 2, Returns::Bool, equals),
    of(&["st_touches"], &[G, G], 2, Returns::Bool, |a| related(a, |matrix| matrix.is_touches())),
    of(&["st_crosses"], &[G, G], 2, Returns::Bool, |a| related(a, |matrix| matrix.is_crosses())),
    of(&["st_overlaps"], &[G, G], 2, Returns::Bool, |a| related(a, |matrix| matrix.is_overlaps())),
    of(&["st_containsproperly"], &[G, G], 2, Returns::Bool, |a| Ok(Value::Bool(fits(&relation(a)?, "T**FF*FF*")?))),
    of(&["st_relate"], &[G, G], 2, Returns::Text, |a| Ok(Value::Text(relation(a)?))),
    of(&[RELATE_PATTERN], &[G, G, T], 3, Returns::Bool, relates),
    of(&["st_relatematch"], &[T, T], 2, Returns::Bool, |a| Ok(Value::Bool(fits(a[0].text()?, a[1].text()?)?))),
    of(&["st_isvalid"], &[G], 1, Returns::Bool, |a| Ok(Value::Bool(check_valid(&a[0].geo()?).is_ok()))),
    of(&["st_isvalidreason"], &[G], 1, Returns::Text, valid_reason),
    of(&["st_issimple"], &[G], 1, Returns::Bool, |a| Ok(Value::Bool(is_simple(&a[0].geo()?)))),
    of(&["st_isring"], &[G], 1, Returns::Bool, is_ring),
    of(&["st_centroid"], &[G], 1, Returns::Geometry, centroid),
    of(&["st_pointonsurface"], &[G], 1, Returns::Geometry, |a| point(point_inside(&a[0].geo()?))),
    of(&["st_convexhull"], &[G], 1, Returns::Geometry, convex_hull),
];

fn matrix(args: &[Arg<'_>]) -> Result<IntersectionMatrix> {
    Ok(args[0].geo()?.relate(&args[1].geo()?))
}

fn related(args: &[Arg<'_>], holds: fn(&IntersectionMatrix) -> bool) -> Result<Value> {
    let is_empty = args[0].tree()?.is_empty() || args[1].tree()?.is_empty();
    Ok(Value::Bool(!is_empty && holds(&matrix(args)?)))
}

fn equals(args: &[Arg<'_>]) -> Result<Value> {
    let (a, b) = (args[0].tree()?, args[1].tree()?);
    Ok(Value::Bool(match (a.is_empty(), b.is_empty()) {
        (true, true) => true,
        (false, false) => matrix(args)?.is_equal_topo(),
        _ => false,
    }))
}

/// The matrix as nine signs.
fn pattern_of(matrix: &IntersectionMatrix) -> String {
    format!("{matrix:?}").chars().filter(|sign| matches!(sign, 'F' | '0' | '1' | '2')).collect()
}

/// The relation of two geometries as nine signs.
fn relation(args: &[Arg<'_>]) -> Result<String> {
    let (a, b) = (args[0].tree()?, args[1].tree()?);
    if !a.is_empty() && !b.is_empty() {
        return Ok(pattern_of(&matrix(args)?));
    }
    let sign = |tree: &Tree| if tree.is_empty() { "F".to_owned() } else { dimension_of(tree).to_string() };
    let boundary = |tree: &Tree| sign(&boundary_of(tree));
    Ok(format!("FF{}FF{}{}{}2", sign(&a), boundary(&a), sign(&b), boundary(&b)))
}

/// Whether a matrix fits a pattern.
fn fits(matrix: &str, pattern: &str) -> Result<bool> {
    if pattern.chars().count() != 9 || matrix.chars().count() != 9 {
        return exec_err!("a matrix and a pattern have 9 signs each");
    }
    let fits = |(found, wanted): (char, char)| match wanted.to_ascii_uppercase() {
        '*' => Ok(true),
        'T' => Ok(found != 'F'),
        wanted @ ('F' | '0' | '1' | '2') => Ok(found == wanted),
        other => exec_err!("{other} is not a sign of a pattern; use T, F, *, 0, 1 or 2"),
    };
    Ok(matrix.chars().zip(pattern.chars()).map(fits).collect::<Result<Vec<bool>>>()?.into_iter().all(|fits| fits))
}

/// Whether two geometries are related as a pattern says.
fn relates(args: &[Arg<'_>]) -> Result<Value> {
    Ok(Value::Bool(fits(&relation(args)?, args[2].text()?)?))
}

fn valid_reason(args: &[Arg<'_>]) -> Result<Value> {
    let geometry = args[0].geo()?;
    Ok(Value::Text(match check_valid(&geometry) {
        Ok(()) => "Valid Geometry".to_owned(),
        Err(error) => self_intersection(&geometry, &error).unwrap_or_else(|| error.to_string()),
    }))
}

/// Where a ring meets itself, in the words of PostGIS.
fn self_intersection(geometry: &Geometry<f64>, error: &InvalidGeometry) -> Option<String> {
    match (geometry, error) {
        (Geometry::Polygon(polygon), InvalidGeometry::SelfIntersection { ring, .. }) => {
            let ring = match ring {
                Ring::Outer => polygon.exterior(),
                Ring::Hole(number) => polygon.interiors().get(*number)?,
            };
            let found = Cell::new(None);
            let ring = std::slice::from_ref(ring);
            all_meetings(ring, |meeting| {
                let is_joint = meeting.is_joint(ring);
                if !is_joint {
                    let is_end = |line: geo::Line<f64>| line.start == meeting.from || line.end == meeting.from;
                    found.set(Some((meeting.from, is_end(meeting.first.line) && is_end(meeting.second.line))));
                }
                is_joint
            });
            let (at, is_vertex) = found.get()?;
            Some(format!(
                "{}[{} {}]",
                if is_vertex { "Ring Self-intersection" } else { "Self-intersection" },
                at.x,
                at.y
            ))
        }
        (Geometry::MultiPolygon(polygons), InvalidGeometry::Part { index, source }) => {
            self_intersection(&Geometry::Polygon(polygons.0.get(*index)?.clone()), source)
        }
        (Geometry::GeometryCollection(members), InvalidGeometry::Part { index, source }) => {
            self_intersection(members.0.get(*index)?, source)
        }
        _ => None,
    }
}

/// Whether a geometry has no point twice. Each ring of an area counts alone.
pub(super) fn is_simple(geometry: &Geometry<f64>) -> bool {
    match geometry {
        Geometry::LineString(line) => has_no_crossing(std::slice::from_ref(line)),
        Geometry::MultiLineString(lines) => has_no_crossing(&lines.0),
        Geometry::MultiPoint(points) => {
            let mut sorted: Vec<[f64; 2]> = points.iter().map(|point| [point.x(), point.y()]).collect();
            sorted.sort_by(|a, b| a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1])));
            sorted.windows(2).all(|pair| pair[0] != pair[1])
        }
        Geometry::Polygon(polygon) => rings_are_simple(polygon),
        Geometry::MultiPolygon(polygons) => polygons.iter().all(rings_are_simple),
        Geometry::GeometryCollection(parts) => parts.iter().all(is_simple),
        _ => true,
    }
}

fn rings_are_simple(polygon: &Polygon<f64>) -> bool {
    let mut rings = std::iter::once(polygon.exterior()).chain(polygon.interiors());
    rings.all(|ring| has_no_crossing(std::slice::from_ref(ring)))
}

/// Whether lines meet only at their ends, and each line itself only where it closes.
fn has_no_crossing(lines: &[LineString<f64>]) -> bool {
    let is_end = |line: usize, at: Coord<f64>| {
        let (first, last) = (lines[line].0.first(), lines[line].0.last());
        first != last && (first == Some(&at) || last == Some(&at))
    };
    all_meetings(lines, |meeting| {
        let (first, second) = (meeting.first.path, meeting.second.path);
        let ends = || meeting.from == meeting.to && is_end(first, meeting.from) && is_end(second, meeting.from);
        meeting.is_joint(lines) || first != second && ends()
    })
}

fn is_ring(args: &[Arg<'_>]) -> Result<Value> {
    let tree = args[0].tree()?;
    if tree.kind != GeometryKind::LineString {
        return match tree.is_empty() {
            true => Ok(Value::Bool(false)),
            false => exec_err!("the argument of st_isring must be a line"),
        };
    }
    let is_closed = !tree.is_empty() && tree.positions().first() == tree.positions().last();
    Ok(Value::Bool(is_closed && is_simple(&args[0].geo()?)))
}

fn point(found: Option<Point<f64>>) -> Result<Value> {
    Ok(match found {
        Some(point) => Value::Geometry(from_geo(&Geometry::Point(point))),
        None => Tree::empty(GeometryKind::Point, Dimensions::XY).into(),
    })
}

fn centroid(args: &[Arg<'_>]) -> Result<Value> {
    point(args[0].geo()?.centroid())
}

pub(super) fn convex_hull(args: &[Arg<'_>]) -> Result<Value> {
    let geometry = args[0].geo()?;
    let mut corners: Vec<Coord<f64>> = geometry.convex_hull().exterior().0.clone();
    if corners.first() == corners.last() {
        corners.pop();
    }
    corners.dedup();
    let is_flat = corners.windows(3).all(|three| {
        let [a, b, c] = [three[0], three[1], three[2]];
        (b.x - a.x) * (c.y - a.y) == (b.y - a.y) * (c.x - a.x)
    });
    let hull = match corners.as_slice() {
        [] => return Ok(Tree::empty(GeometryKind::GeometryCollection, Dimensions::XY).into()),
        [one] => Geometry::Point(Point(*one)),
        [first, .., last] if is_flat => Geometry::LineString(LineString(vec![*first, *last])),
        _ => Geometry::Polygon(geometry.convex_hull()),
    };
    Ok(Value::Geometry(from_geo(&hull)))
}
