//! Intersections, unions and differences of geometries, which lose Z and M.

use std::collections::HashMap;

use datafusion::common::Result;
use geo::coordinate_position::{CoordPos, CoordinatePosition};
use geo::orient::{Direction, Orient};
use geo::{
    BooleanOps, Coord, Distance, Euclidean, Geometry, Intersects, LineString, MultiLineString, MultiPoint,
    MultiPolygon, Point, unary_union,
};
use terrane_space::geometry::{Dimensions, GeometryKind, Tree, check_valid, from_geo, to_geo};

use super::Kind::Geometry as G;
use super::network::Key;
use super::noding::{noded, place_key};
use super::overlay::is_simple;
use super::relation::unreadable;
use super::tail::{Arg, Tail, Value, shape as of};

/// The functions.
pub(super) const FUNCTIONS: &[Tail] = &[
    of(&["st_intersection"], &[G, G], 2, |a| combined(a, Operation::Intersection)),
    of(&["st_union"], &[G, G], 2, |a| combined(a, Operation::Union)),
    of(&["st_difference"], &[G, G], 2, |a| combined(a, Operation::Difference)),
    of(&["st_symdifference"], &[G, G], 2, |a| combined(a, Operation::SymDifference)),
    of(&["st_unaryunion"], &[G], 1, |a| Ok(Value::Geometry(united(a[0].wkb()?.to_vec(), &a[0].geo()?)))),
];

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
    lines: Vec<LineString<f64>>,
    areas: MultiPolygon<f64>,
}

impl Default for Parts {
    fn default() -> Self {
        Self { points: Vec::new(), lines: Vec::new(), areas: MultiPolygon(Vec::new()) }
    }
}

impl Parts {
    fn of(geometry: &Geometry<f64>) -> Self {
        let mut parts = Self::default();
        parts.add(geometry);
        // The members of a collection may overlap.
        if matches!(geometry, Geometry::GeometryCollection(_)) && parts.areas.0.len() > 1 {
            parts.areas = unary_union(&parts.areas.0);
        }
        parts
    }

    fn add(&mut self, geometry: &Geometry<f64>) {
        match geometry {
            Geometry::Point(point) => self.points.push(*point),
            Geometry::MultiPoint(points) => self.points.extend(&points.0),
            Geometry::LineString(line) => self.lines.extend(Some(line.clone()).filter(|line| line.0.len() > 1)),
            Geometry::MultiLineString(lines) => self.lines.extend(lines.0.iter().filter(|l| l.0.len() > 1).cloned()),
            Geometry::Polygon(polygon) => {
                self.areas.0.extend(Some(polygon.clone()).filter(|p| !p.exterior().0.is_empty()))
            }
            Geometry::MultiPolygon(polygons) => self.areas.0.extend(polygons.0.iter().cloned()),
            Geometry::GeometryCollection(members) => members.iter().for_each(|member| self.add(member)),
            _ => {}
        }
    }

    fn is_empty(&self) -> bool {
        self.points.is_empty() && self.lines.is_empty() && self.areas.0.is_empty()
    }

    fn dimension(&self) -> usize {
        match (self.areas.0.is_empty(), self.lines.is_empty()) {
            (false, _) => 2,
            (_, false) => 1,
            _ => 0,
        }
    }

    fn meets(&self, point: &Point<f64>) -> bool {
        self.points.contains(point)
            || self.lines.iter().any(|line| line.intersects(point))
            || self.areas.intersects(point)
    }

    /// Whether a position is next to a line or an area, as near as rounding puts it.
    fn is_near(&self, place: Coord<f64>) -> bool {
        let (point, limit) = (Point(place), 1e-8 * place.x.abs().max(place.y.abs()).max(1e-3));
        self.lines.iter().any(|line| Euclidean.distance(&point, line) <= limit)
            || self.areas.iter().any(|area| Euclidean.distance(&point, area) <= limit)
    }

    /// The geometry. An empty one has a dimension.
    fn into_wkb(mut self, dimension: usize) -> Vec<u8> {
        self.points.sort_by(|a, b| a.x().total_cmp(&b.x()).then(a.y().total_cmp(&b.y())));
        self.points.dedup();
        let mut members: Vec<Geometry<f64>> = self.points.into_iter().map(Geometry::Point).collect();
        members.extend(self.lines.into_iter().map(Geometry::LineString));
        members.extend(self.areas.0.into_iter().map(Geometry::Polygon));
        let empty = [GeometryKind::Point, GeometryKind::LineString, GeometryKind::Polygon][dimension];
        match members.len() {
            0 => Tree::empty(empty, Dimensions::XY).to_wkb(),
            1 => from_geo(&members.remove(0)),
            _ => from_geo(&gathered(members)),
        }
    }
}

/// A multi-geometry of members of one kind, or else a collection.
fn gathered(members: Vec<Geometry<f64>>) -> Geometry<f64> {
    let mut parts = Parts::default();
    members.iter().for_each(|member| parts.add(member));
    let count = members.len();
    if parts.points.len() == count {
        Geometry::MultiPoint(MultiPoint(parts.points))
    } else if parts.lines.len() == count {
        Geometry::MultiLineString(MultiLineString(parts.lines))
    } else if parts.areas.0.len() == count {
        Geometry::MultiPolygon(parts.areas)
    } else {
        Geometry::GeometryCollection(members.into_iter().collect())
    }
}

fn combined(args: &[Arg<'_>], operation: Operation) -> Result<Value> {
    let parts = [Parts::of(&args[0].geo()?), Parts::of(&args[1].geo()?)];
    let [a, b] = &parts;
    let (first, second) =
        (|| Ok(Value::Geometry(args[0].wkb()?.to_vec())), || Ok(Value::Geometry(args[1].wkb()?.to_vec())));
    match (operation, [a.is_empty(), b.is_empty()]) {
        (Operation::Union | Operation::SymDifference, [true, _]) => return second(),
        (Operation::Union | Operation::SymDifference | Operation::Difference, [_, true]) => return first(),
        (_, [true, _]) => return Ok(Tree::empty(args[0].tree()?.kind, Dimensions::XY).into()),
        (_, [_, true]) => return Ok(Tree::empty(args[1].tree()?.kind, Dimensions::XY).into()),
        _ => {}
    }
    let dimension = match operation {
        Operation::Intersection => a.dimension().min(b.dimension()),
        Operation::Union | Operation::SymDifference => a.dimension().max(b.dimension()),
        Operation::Difference => a.dimension(),
    };
    Ok(Value::Geometry(combination(a, b, operation).into_wkb(dimension)))
}

/// The part of a geometry in a box, with the dimension of the geometry.
pub(super) fn within_box(wkb: &[u8], window: &[u8]) -> Result<Vec<u8>> {
    let read = |wkb: &[u8]| to_geo(wkb).map_err(unreadable);
    let [a, b] = [Parts::of(&read(wkb)?), Parts::of(&read(window)?)];
    let dimension = a.dimension();
    Ok(combination(&a, &b, Operation::Intersection).into_wkb(dimension))
}

/// The union of all parts of a geometry. One that is its own union stays as it is.
pub(super) fn united(wkb: Vec<u8>, geometry: &Geometry<f64>) -> Vec<u8> {
    let is_united = match geometry {
        Geometry::Polygon(_) => check_valid(geometry).is_ok(),
        Geometry::GeometryCollection(_) | Geometry::MultiPolygon(_) => false,
        _ => is_simple(geometry),
    };
    let mut parts = Parts::of(geometry);
    if is_united || parts.is_empty() {
        return wkb;
    }
    if !parts.areas.0.is_empty() {
        parts.areas = unary_union(&parts.areas.0);
    }
    let dimension = parts.dimension();
    combination(&parts, &Parts::default(), Operation::Union).into_wkb(dimension)
}

fn combination(a: &Parts, b: &Parts, operation: Operation) -> Parts {
    let areas = match operation {
        _ if a.areas.0.is_empty() && b.areas.0.is_empty() => MultiPolygon(Vec::new()),
        Operation::Intersection => a.areas.intersection(&b.areas),
        Operation::Union | Operation::SymDifference if b.areas.0.is_empty() => a.areas.clone(),
        Operation::Union | Operation::SymDifference if a.areas.0.is_empty() => b.areas.clone(),
        Operation::Union => a.areas.union(&b.areas),
        Operation::SymDifference => a.areas.xor(&b.areas),
        Operation::Difference if b.areas.0.is_empty() => a.areas.clone(),
        Operation::Difference => a.areas.difference(&b.areas),
    };
    let mut result = Parts { areas, ..Parts::default() };
    let has_lines = !a.lines.is_empty() || !b.lines.is_empty();
    let (chains, shared) = match has_lines || operation == Operation::Intersection {
        true => chains(a, b),
        false => (Vec::new(), Vec::new()),
    };
    result.lines = chains.into_iter().filter(|chain| chain.is_in(operation, a, b)).map(|chain| chain.line).collect();
    let alone = |of: &Parts, other: &Parts| {
        let own = |point: &Point<f64>| of.lines.iter().any(|line| line.intersects(point)) || of.areas.intersects(point);
        of.points.iter().filter(|point| !own(point) && !other.meets(point)).copied().collect::<Vec<_>>()
    };
    let common =
        || a.points.iter().filter(|point| b.meets(point)).chain(b.points.iter().filter(|point| a.meets(point)));
    match operation {
        Operation::Intersection => {
            let all = shared.into_iter().map(Point).chain(common().copied());
            result.points = all.filter(|point| !result.is_near(point.0)).collect();
        }
        Operation::Difference => result.points = alone(a, b),
        Operation::SymDifference => result.points = [alone(a, b), alone(b, a)].concat(),
        Operation::Union => {
            let all = a.points.iter().chain(&b.points);
            result.points = all.filter(|point| !result.meets(point)).copied().collect();
        }
    }
    result
}

/// Where a chain comes from, on one side.
#[derive(Clone, Copy, Default)]
struct Source {
    is_line: bool,
    is_ring: bool,
    /// Of the chain, against that of rings with their area on the left.
    direction: i32,
}

/// A line between two places where lines and rings meet.
struct Chain {
    line: LineString<f64>,
    sources: [Source; 2],
}

impl Chain {
    /// Whether its inner points lie in areas.
    fn is_inside(&self, areas: &MultiPolygon<f64>) -> bool {
        let edge = self.line.lines().next();
        let middle =
            edge.map(|edge| Coord { x: edge.start.x.midpoint(edge.end.x), y: edge.start.y.midpoint(edge.end.y) });
        middle.is_some_and(|middle| areas.coordinate_position(&middle) != CoordPos::Outside)
    }

    fn is_in(&self, operation: Operation, a: &Parts, b: &Parts) -> bool {
        let [first, second] = self.sources;
        if !first.is_line && !second.is_line {
            // Areas may lie on opposite sides of a common edge.
            let is_between = first.direction != 0 && first.direction == -second.direction;
            return operation == Operation::Intersection && is_between;
        }
        let is_in_a = first.is_ring || self.is_inside(&a.areas);
        let is_in_b = second.is_ring || self.is_inside(&b.areas);
        match operation {
            Operation::Intersection => (first.is_line || is_in_a) && (second.is_line || is_in_b),
            _ if is_in_a || is_in_b => false,
            Operation::Union => true,
            Operation::Difference => first.is_line && !second.is_line,
            Operation::SymDifference => first.is_line != second.is_line,
        }
    }
}

/// The lines and rings of both sides, cut where they meet; and places where the sides meet.
fn chains(a: &Parts, b: &Parts) -> (Vec<Chain>, Vec<Coord<f64>>) {
    let mut paths: Vec<LineString<f64>> = Vec::new();
    let mut kinds: Vec<(usize, bool)> = Vec::new();
    for (side, parts) in [a, b].into_iter().enumerate() {
        let oriented = parts.areas.orient(Direction::Default);
        let rings = oriented.iter().flat_map(|area| std::iter::once(area.exterior()).chain(area.interiors()));
        let all = parts.lines.iter().map(|line| (line, false)).chain(rings.map(|ring| (ring, true)));
        for (path, is_ring) in all {
            paths.push(path.clone());
            kinds.push((side, is_ring));
        }
    }
    let noded = noded(&paths);
    let mut found: HashMap<Vec<Key>, usize> = HashMap::new();
    let mut chains: Vec<Chain> = Vec::new();
    for (path, (side, is_ring)) in noded.paths.iter().zip(&kinds) {
        let mut begin = 0;
        for place in 1..path.0.len() {
            if !noded.nodes.contains(&place_key(path.0[place])) {
                continue;
            }
            let line: Vec<Coord<f64>> = path.0[begin..=place].to_vec();
            begin = place;
            let keys: Vec<Key> = line.iter().map(|place| place_key(*place)).collect();
            let reverse: Vec<Key> = keys.iter().rev().copied().collect();
            let (least, direction) = if keys <= reverse { (keys, 1) } else { (reverse, -1) };
            let number = *found.entry(least).or_insert_with(|| {
                chains.push(Chain { line: LineString(line), sources: [Source::default(); 2] });
                chains.len() - 1
            });
            let source = &mut chains[number].sources[*side];
            match is_ring {
                true => {
                    source.is_ring = true;
                    source.direction += direction;
                }
                false => source.is_line = true,
            }
        }
    }
    let shared = noded.shared.into_iter().filter(|(first, second, _)| kinds[*first].0 != kinds[*second].0);
    (chains, shared.map(|(_, _, place)| place).collect())
}
