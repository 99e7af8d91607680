//! Relations, hulls and combinations of geometries, by the crate `geo`, which ignores Z and M.

use datafusion::common::{Result, exec_datafusion_err, exec_err};
use geo::algorithm::buffer::{BufferStyle, LineCap, LineJoin};
use geo::line_intersection::{LineIntersection, line_intersection};
use geo::relate::IntersectionMatrix;
use geo::{
    BooleanOps, Buffer, Centroid, ConvexHull, Coord, CoordsIter, Geometry, HausdorffDistance, InteriorPoint,
    Intersects, Line, LineString, MultiLineString, MultiPoint, MultiPolygon, Point, Relate,
};
use terrane_space::geometry::{Dimensions, GeometryKind, Tree, check_valid, from_geo};

use super::Kind::{Geometry as G, Int as I, Number as N, Text as T};
use super::Returns;
use super::access::{boundary_of, dimension_of};
use super::tail::{Arg, Tail, Value};

/// The function that `ST_Relate` with a pattern becomes.
pub(crate) const RELATE_PATTERN: &str = "st_relatepattern";

const fn of(
    names: &'static [&'static str],
    kinds: &'static [super::Kind],
    required: usize,
    returns: Returns,
    call: fn(&[Arg<'_>]) -> Result<Value>,
) -> Tail {
    Tail { names, kinds, required, returns, call }
}

/// The functions.
pub(super) const FUNCTIONS: &[Tail] = &[
    of(&["st_equals"], &[G, G], 2, Returns::Bool, equals),
    of(&["st_touches"], &[G, G], 2, Returns::Bool, |a| related(a, |matrix| matrix.is_touches())),
    of(&["st_crosses"], &[G, G], 2, Returns::Bool, |a| related(a, |matrix| matrix.is_crosses())),
    of(&["st_overlaps"], &[G, G], 2, Returns::Bool, |a| related(a, |matrix| matrix.is_overlaps())),
    of(&["st_relate"], &[G, G], 2, Returns::Text, |a| Ok(Value::Text(relation(a)?))),
    of(&[RELATE_PATTERN], &[G, G, T], 3, Returns::Bool, relates),
    of(&["st_relatematch"], &[T, T], 2, Returns::Bool, |a| Ok(Value::Bool(fits(a[0].text()?, a[1].text()?)?))),
    of(&["st_isvalid"], &[G], 1, Returns::Bool, |a| Ok(Value::Bool(check_valid(&a[0].geo()?).is_ok()))),
    of(&["st_isvalidreason"], &[G], 1, Returns::Text, valid_reason),
    of(&["st_issimple"], &[G], 1, Returns::Bool, |a| Ok(Value::Bool(is_simple(&a[0].geo()?)))),
    of(&["st_isring"], &[G], 1, Returns::Bool, is_ring),
    of(&["st_centroid"], &[G], 1, Returns::Geometry, centroid),
    of(&["st_pointonsurface"], &[G], 1, Returns::Geometry, |a| point(a[0].geo()?.interior_point())),
    of(&["st_convexhull"], &[G], 1, Returns::Geometry, convex_hull),
    of(&["st_hausdorffdistance"], &[G, G], 2, Returns::Number, hausdorff),
    of(&["st_buffer"], &[G, N, I], 2, Returns::Geometry, buffer),
    of(&["st_intersection"], &[G, G], 2, Returns::Geometry, |a| overlay(a, Operation::Intersection)),
    of(&["st_union"], &[G, G], 2, Returns::Geometry, |a| overlay(a, Operation::Union)),
    of(&["st_difference"], &[G, G], 2, Returns::Geometry, |a| overlay(a, Operation::Difference)),
    of(&["st_symdifference"], &[G, G], 2, Returns::Geometry, |a| overlay(a, Operation::SymDifference)),
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
    let boundary = |tree: &Tree| boundary_of(tree).map_or("F".to_owned(), |boundary| sign(&boundary));
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
    Ok(Value::Text(match check_valid(&args[0].geo()?) {
        Ok(()) => "Valid Geometry".to_owned(),
        Err(error) => error.to_string(),
    }))
}

/// Whether a geometry has no point twice. Areas are simple.
fn is_simple(geometry: &Geometry<f64>) -> bool {
    match geometry {
        Geometry::LineString(line) => has_no_crossing(std::slice::from_ref(line)),
        Geometry::MultiLineString(lines) => has_no_crossing(&lines.0),
        Geometry::MultiPoint(points) => {
            let mut sorted: Vec<[f64; 2]> = points.iter().map(|point| [point.x(), point.y()]).collect();
            sorted.sort_by(|a, b| a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1])));
            sorted.windows(2).all(|pair| pair[0] != pair[1])
        }
        Geometry::GeometryCollection(parts) => parts.iter().all(is_simple),
        _ => true,
    }
}

/// Whether lines meet only at their ends, and each line itself only where it closes.
fn has_no_crossing(lines: &[LineString<f64>]) -> bool {
    let mut edges: Vec<(usize, usize, Line<f64>)> = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let kept = line.lines().filter(|edge| edge.start != edge.end);
        edges.extend(kept.enumerate().map(|(place, edge)| (number, place, edge)));
    }
    let ends: Vec<[Option<Coord<f64>>; 2]> =
        lines.iter().map(|line| [line.0.first().copied(), line.0.last().copied()]).collect();
    let is_closed = |line: usize| ends[line][0] == ends[line][1];
    let is_end = |line: usize, at: Coord<f64>| !is_closed(line) && ends[line].contains(&Some(at));
    let left = |edge: &Line<f64>| edge.start.x.min(edge.end.x);
    edges.sort_by(|a, b| left(&a.2).total_cmp(&left(&b.2)));
    for (number, (line, place, edge)) in edges.iter().enumerate() {
        let right = edge.start.x.max(edge.end.x);
        for (other_line, other_place, other) in edges[number + 1..].iter().take_while(|other| left(&other.2) <= right) {
            let at = match line_intersection(*edge, *other) {
                None => continue,
                Some(LineIntersection::Collinear { .. }) => return false,
                Some(LineIntersection::SinglePoint { intersection, .. }) => intersection,
            };
            let is_allowed = if line == other_line {
                let (first, second) = if place < other_place { (edge, other) } else { (other, edge) };
                let follows = place.abs_diff(*other_place) == 1 && first.end == second.start && at == first.end;
                let closes = is_closed(*line) && at == second.end && at == first.start && ends[*line][0] == Some(at);
                follows || closes
            } else {
                is_end(*line, at) && is_end(*other_line, at)
            };
            if !is_allowed {
                return false;
            }
        }
    }
    true
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

fn convex_hull(args: &[Arg<'_>]) -> Result<Value> {
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

fn hausdorff(args: &[Arg<'_>]) -> Result<Value> {
    let (a, b) = (args[0].geo()?, args[1].geo()?);
    if a.coords_count() == 0 || b.coords_count() == 0 {
        return Ok(Value::Null);
    }
    Ok(Value::Number(a.hausdorff_distance(&b)))
}

fn buffer(args: &[Arg<'_>]) -> Result<Value> {
    let distance = args[1].number()?;
    let segments = args.get(2).map_or(Ok(8), Arg::int)?.clamp(1, 1_000);
    if !distance.is_finite() {
        return exec_err!("{distance} is not a distance");
    }
    let angle = std::f64::consts::FRAC_PI_2 / segments as f64;
    let style = BufferStyle::new(distance).line_cap(LineCap::Round(angle)).line_join(LineJoin::Round(angle));
    let geometry = args[0].geo()?;
    let is_area = dimension_of(&args[0].tree()?) == 2;
    if distance <= 0.0 && !is_area || geometry.coords_count() == 0 {
        return Ok(Tree::empty(GeometryKind::Polygon, Dimensions::XY).into());
    }
    areas(geometry.buffer_with_style(style))
}

/// An area, as a polygon if it has one part.
fn areas(mut areas: MultiPolygon<f64>) -> Result<Value> {
    Ok(match areas.0.len() {
        0 => Tree::empty(GeometryKind::Polygon, Dimensions::XY).into(),
        1 => Value::Geometry(from_geo(&Geometry::Polygon(areas.0.remove(0)))),
        _ => Value::Geometry(from_geo(&Geometry::MultiPolygon(areas))),
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Intersection,
    Union,
    Difference,
    SymDifference,
}

/// The parts of a geometry by dimension.
struct Parts {
    points: Vec<Point<f64>>,
    lines: MultiLineString<f64>,
    areas: MultiPolygon<f64>,
}

fn parts(geometry: Geometry<f64>) -> Result<Parts> {
    let mut parts = Parts { points: Vec::new(), lines: MultiLineString(Vec::new()), areas: MultiPolygon(Vec::new()) };
    match geometry {
        Geometry::Point(point) => parts.points.push(point),
        Geometry::MultiPoint(MultiPoint(points)) => parts.points = points,
        Geometry::LineString(line) => parts.lines.0.push(line),
        Geometry::MultiLineString(lines) => parts.lines = lines,
        Geometry::Polygon(polygon) => parts.areas.0.push(polygon),
        Geometry::MultiPolygon(polygons) => parts.areas = polygons,
        _ => return exec_err!("combining collections of several kinds is not available"),
    }
    Ok(parts)
}

fn overlay(args: &[Arg<'_>], operation: Operation) -> Result<Value> {
    let (a, b) = (args[0].geo()?, args[1].geo()?);
    let both = [&a, &b].map(|geometry| geometry.coords_count() == 0);
    match (operation, both) {
        (Operation::Union | Operation::SymDifference, [true, _]) => {
            return Ok(Value::Geometry(args[1].wkb()?.to_vec()));
        }
        (Operation::Union | Operation::SymDifference | Operation::Difference, [_, true]) => {
            return Ok(Value::Geometry(args[0].wkb()?.to_vec()));
        }
        (_, [true, _]) => return Ok(Tree::empty(args[0].tree()?.kind, Dimensions::XY).into()),
        (_, [_, true]) => return Ok(Tree::empty(args[1].tree()?.kind, Dimensions::XY).into()),
        _ => {}
    }
    let (a_parts, b_parts) = (parts(a.clone())?, parts(b.clone())?);
    let is_area = |parts: &Parts| !parts.areas.0.is_empty();
    if is_area(&a_parts) && is_area(&b_parts) {
        let (a, b) = (&a_parts.areas, &b_parts.areas);
        return areas(match operation {
            Operation::Intersection => a.intersection(b),
            Operation::Union => a.union(b),
            Operation::Difference => a.difference(b),
            Operation::SymDifference => a.xor(b),
        });
    }
    if !a_parts.points.is_empty() || !b_parts.points.is_empty() {
        return with_points(&a, &a_parts, &b, &b_parts, operation);
    }
    match (operation, is_area(&a_parts), is_area(&b_parts)) {
        (Operation::Intersection, true, false) => lines(a_parts.areas.clip(&b_parts.lines, false)),
        (Operation::Intersection, false, true) => lines(b_parts.areas.clip(&a_parts.lines, false)),
        (Operation::Difference, false, true) => lines(b_parts.areas.clip(&a_parts.lines, true)),
        (Operation::Difference, true, false) => Ok(Value::Geometry(args[0].wkb()?.to_vec())),
        _ => Err(exec_datafusion_err!("this combination of lines is not available")),
    }
}

/// Combinations with points on one side.
fn with_points(
    a: &Geometry<f64>,
    a_parts: &Parts,
    b: &Geometry<f64>,
    b_parts: &Parts,
    operation: Operation,
) -> Result<Value> {
    let apart = |points: &[Point<f64>], other: &Geometry<f64>, meets: bool| {
        let mut kept: Vec<Point<f64>> =
            points.iter().filter(|point| other.intersects(*point) == meets).copied().collect();
        kept.sort_by(|a, b| a.x().total_cmp(&b.x()).then(a.y().total_cmp(&b.y())));
        kept.dedup();
        kept
    };
    let are_points = [!a_parts.points.is_empty(), !b_parts.points.is_empty()];
    match (operation, are_points) {
        (Operation::Intersection, [true, _]) => points(apart(&a_parts.points, b, true)),
        (Operation::Intersection, _) => points(apart(&b_parts.points, a, true)),
        (Operation::Difference, [true, _]) => points(apart(&a_parts.points, b, false)),
        (Operation::Difference, _) => Ok(Value::Geometry(from_geo(a))),
        (_, [true, true]) => {
            let mut all = apart(&a_parts.points, b, false);
            all.extend(apart(&b_parts.points, a, false));
            if operation == Operation::Union {
                all.extend(apart(&a_parts.points, b, true));
            }
            all.sort_by(|a, b| a.x().total_cmp(&b.x()).then(a.y().total_cmp(&b.y())));
            points(all)
        }
        _ => {
            let (other, outside) = match are_points {
                [true, _] => (b, apart(&a_parts.points, b, false)),
                _ => (a, apart(&b_parts.points, a, false)),
            };
            let mut members = outside.into_iter().map(Geometry::Point).collect::<Vec<_>>();
            if members.is_empty() {
                return Ok(Value::Geometry(from_geo(other)));
            }
            members.push(other.clone());
            Ok(Value::Geometry(from_geo(&Geometry::GeometryCollection(members.into_iter().collect()))))
        }
    }
}

fn points(mut points: Vec<Point<f64>>) -> Result<Value> {
    Ok(match points.len() {
        0 => Tree::empty(GeometryKind::Point, Dimensions::XY).into(),
        1 => Value::Geometry(from_geo(&Geometry::Point(points.remove(0)))),
        _ => Value::Geometry(from_geo(&Geometry::MultiPoint(MultiPoint(points)))),
    })
}

fn lines(mut lines: MultiLineString<f64>) -> Result<Value> {
    lines.0.retain(|line| line.0.len() > 1);
    Ok(match lines.0.len() {
        0 => Tree::empty(GeometryKind::LineString, Dimensions::XY).into(),
        1 => Value::Geometry(from_geo(&Geometry::LineString(lines.0.remove(0)))),
        _ => Value::Geometry(from_geo(&Geometry::MultiLineString(lines))),
    })
}
