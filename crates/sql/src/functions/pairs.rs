//! Lines between two geometries, distances along them, and angles, in the plane. They lose Z and M.

use datafusion::common::{Result, exec_err};
use geo::line_intersection::{LineIntersection, line_intersection};
use geo::{Coord, Geometry, Intersects, Line};
use terrane_space::geometry::{Coordinates, Dimensions, GeometryKind, Tree, TreeBody};

use super::Kind::{Geometry as G, Number as N};
use super::Returns;
use super::clearance::{Edge, edges, nearest};
use super::measure::{between, distance, point, positions};
use super::tail::{Arg, Tail, Value, of, shape};

/// The functions.
pub(super) const FUNCTIONS: &[Tail] = &[
    shape(&["st_closestpoint"], &[G, G], 2, |a| {
        Ok(shortest(a)?.map(|[from, _]| Value::from(tree(GeometryKind::Point, vec![from]))).into())
    }),
    shape(&["st_shortestline"], &[G, G], 2, |a| Ok(shortest(a)?.map(line).into())),
    shape(&["st_longestline"], &[G, G], 2, |a| Ok(longest(&a[0].tree()?, &a[1].tree()?).map(line).into())),
    of(&["st_frechetdistance"], &[G, G, N], 2, Returns::Number, frechet_distance),
    of(&["st_angle"], &[G, G, G, G], 2, Returns::Number, angle),
    shape(&["st_project"], &[G, N, N], 3, project),
];

fn tree(kind: GeometryKind, positions: Vec<Coordinates>) -> Tree {
    Tree::of_positions(kind, Dimensions::XY, positions)
}

fn line(ends: Edge) -> Value {
    tree(GeometryKind::LineString, ends.to_vec()).into()
}

fn coord(place: &Coordinates) -> Coord<f64> {
    Coord { x: place[0], y: place[1] }
}

/// The first position of each part. If no edges meet, a part lies in an area if this position does.
fn firsts(tree: &Tree, found: &mut Vec<Coordinates>) {
    match &tree.body {
        TreeBody::Positions(path) => found.extend(path.first()),
        TreeBody::Rings(rings) => found.extend(rings.first().and_then(|ring| ring.first())),
        TreeBody::Members(members) => members.iter().for_each(|member| firsts(member, found)),
    }
}

/// A position of a geometry within an area of another one.
fn inside(of: &Tree, area: &Geometry<f64>) -> Option<Coordinates> {
    let mut places = Vec::new();
    firsts(of, &mut places);
    places.into_iter().find(|place| area.intersects(&coord(place)))
}

/// The distance of the boxes of two edges, which is at most that of the edges.
fn boxes_apart(a: &Edge, b: &Edge) -> f64 {
    let gap = |axis: usize| {
        let least = |edge: &Edge| edge[0][axis].min(edge[1][axis]);
        let most = |edge: &Edge| edge[0][axis].max(edge[1][axis]);
        (least(a) - most(b)).max(least(b) - most(a)).max(0.0)
    };
    gap(0).hypot(gap(1))
}

/// A place that two edges share.
fn meeting(a: &Edge, b: &Edge) -> Option<Coordinates> {
    let line = |edge: &Edge| Line::new(coord(&edge[0]), coord(&edge[1]));
    let at = match line_intersection(line(a), line(b))? {
        LineIntersection::SinglePoint { intersection, .. } => intersection,
        LineIntersection::Collinear { intersection } => intersection.start,
    };
    Some([at.x, at.y, 0.0, 0.0])
}

/// The shortest line from the first geometry to the second one; `None` if one is empty.
fn shortest(args: &[Arg<'_>]) -> Result<Option<Edge>> {
    let (a, b) = (args[0].tree()?, args[1].tree()?);
    if a.is_empty() || b.is_empty() {
        return Ok(None);
    }
    if let Some(place) = inside(&a, &args[1].geo()?).or(inside(&b, &args[0].geo()?)) {
        return Ok(Some([place, place]));
    }
    let (a, b) = (edges(&a), edges(&b));
    let mut found: Option<(f64, Edge)> = None;
    for first in &a {
        for second in &b {
            if found.is_some_and(|(least, _)| boxes_apart(first, second) >= least) {
                continue;
            }
            if let Some(place) = meeting(first, second) {
                return Ok(Some([place, place]));
            }
            let from_first = first.iter().map(|end| [*end, nearest(end, second)]);
            let from_second = second.iter().map(|end| [nearest(end, first), *end]);
            for way in from_first.chain(from_second) {
                let length = distance(&way[0], &way[1]);
                if found.is_none_or(|(least, _)| length < least) {
                    found = Some((length, way));
                }
            }
        }
    }
    Ok(found.map(|(_, way)| way))
}

/// The longest line from a vertex of one geometry to one of the other.
fn longest(a: &Tree, b: &Tree) -> Option<Edge> {
    let (a, b) = (positions(a), positions(b));
    let mut found: Option<(f64, Edge)> = None;
    for from in &a {
        for to in &b {
            let length = distance(from, to);
            if found.is_none_or(|(most, _)| length > most) {
                found = Some((length, [*from, *to]));
            }
        }
    }
    found.map(|(_, way)| way)
}

/// The positions of a geometry in order, with each edge cut into equal parts.
fn densified(tree: &Tree, parts: usize) -> Vec<Coordinates> {
    match &tree.body {
        TreeBody::Members(members) => members.iter().flat_map(|member| densified(member, parts)).collect(),
        TreeBody::Positions(path) => densified_path(path, parts),
        TreeBody::Rings(rings) => rings.iter().flat_map(|ring| densified_path(ring, parts)).collect(),
    }
}

fn densified_path(path: &[Coordinates], parts: usize) -> Vec<Coordinates> {
    let cut = |pair: &[Coordinates]| {
        let [a, b] = [pair[0], pair[1]];
        (0..parts).map(move |part| between(&a, &b, part as f64 / parts as f64))
    };
    path.windows(2).flat_map(cut).chain(path.last().copied()).collect()
}

/// The discrete Fréchet distance (Eiter and Mannila, 1994) of the vertices in their order. A share
/// cuts each edge into equal parts.
fn frechet_distance(args: &[Arg<'_>]) -> Result<Value> {
    /// Most parts of an edge.
    const PARTS_MAX: f64 = 10_000.0;
    let parts = match args.get(2).map(Arg::number).transpose()? {
        None => 1.0,
        Some(share) if share > 0.0 && share <= 1.0 && (1.0 / share).ceil() <= PARTS_MAX => (1.0 / share).ceil(),
        Some(share) => {
            return exec_err!("{share} is not a share of an edge; use a number from {} to 1", 1.0 / PARTS_MAX);
        }
    };
    let [a, b] = [args[0].tree()?, args[1].tree()?].map(|tree| densified(&tree, parts as usize));
    // The coupling distance of the positions of `a` so far with each prefix of `b`.
    let mut row: Vec<f64> = Vec::new();
    for place in &a {
        let before = std::mem::take(&mut row);
        for (number, other) in b.iter().enumerate() {
            let previous = number.checked_sub(1);
            let ways = [
                before.get(number).copied(),
                previous.and_then(|number| before.get(number)).copied(),
                previous.and_then(|number| row.get(number)).copied(),
            ];
            let least = ways.into_iter().flatten().reduce(f64::min);
            row.push(distance(place, other).max(least.unwrap_or(0.0)));
        }
    }
    Ok(row.last().copied().map(Value::Number).into())
}

/// The angle from one direction to another, clockwise, in radians: at the second of three points,
/// between the lines of two pairs of points, or between two lines from their start to their end.
fn angle(args: &[Arg<'_>]) -> Result<Value> {
    let ends = if args.len() == 2 {
        let mut ends = Vec::new();
        for arg in args {
            let line = super::measure::line(arg, "st_angle with two arguments")?;
            ends.extend(line.positions().first().into_iter().chain(line.positions().last()).map(|end| Some(*end)));
        }
        ends
    } else {
        let mut points = args.iter().map(|arg| point(arg, "st_angle")).collect::<Result<Vec<_>>>()?;
        if let [a, b, c] = points[..] {
            points = vec![b, a, b, c];
        }
        points
    };
    let [Some(a), Some(b), Some(c), Some(d)] = ends[..] else { return Ok(Value::Null) };
    let north = |from: Coordinates, to: Coordinates| {
        let (dx, dy) = (to[0] - from[0], to[1] - from[1]);
        (dx != 0.0 || dy != 0.0).then(|| dx.atan2(dy))
    };
    Ok(match (north(a, b), north(c, d)) {
        (Some(from), Some(to)) => Value::Number((to - from).rem_euclid(std::f64::consts::TAU)),
        _ => Value::Null,
    })
}

/// The point at a distance in a direction, which is in radians, clockwise from the north.
fn project(args: &[Arg<'_>]) -> Result<Value> {
    let (length, azimuth) = (args[1].number()?, args[2].number()?);
    let Some(from) = point(&args[0], "st_project")? else { return Ok(Value::Null) };
    let (sin, cos) = azimuth.sin_cos();
    let to = [from[0] + length * sin, from[1] + length * cos, 0.0, 0.0];
    match to.iter().all(|number| number.is_finite()) {
        true => Ok(tree(GeometryKind::Point, vec![to]).into()),
        false => exec_err!("the coordinates of the result are not finite"),
    }
}
