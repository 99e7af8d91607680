//! Measures of geometries, in the units of their coordinates.

use datafusion::common::{Result, exec_err};
use terrane_space::geometry::{Coordinates, Dimensions, GeometryKind, Tree, TreeBody};

use super::Kind::{Bool as B, Geometry as G, Number as N};
use super::Returns;
use super::change::POSITIONS_MAX;
use super::tail::{Arg, Tail, Value};

const fn number(
    names: &'static [&'static str],
    kinds: &'static [super::Kind],
    call: fn(&[Arg<'_>]) -> Result<Value>,
) -> Tail {
    Tail { names, kinds, required: kinds.len(), returns: Returns::Number, call }
}

/// The functions.
pub(super) const FUNCTIONS: &[Tail] = &[
    number(&["st_area"], &[G], |a| Ok(Value::Number(area_of(&a[0].tree()?)))),
    number(&["st_length", "st_length2d"], &[G], |a| Ok(Value::Number(paths(&a[0].tree()?, false)))),
    number(&["st_perimeter", "st_perimeter2d"], &[G], |a| Ok(Value::Number(paths(&a[0].tree()?, true)))),
    number(&["st_azimuth"], &[G, G], azimuth),
    number(&["st_maxdistance"], &[G, G], distance_max),
    number(&["st_linelocatepoint"], &[G, G], locate),
    Tail {
        names: &["st_lineinterpolatepoint"],
        kinds: &[G, N],
        required: 2,
        returns: Returns::Geometry,
        call: interpolate,
    },
    Tail {
        names: &["st_lineinterpolatepoints"],
        kinds: &[G, N, B],
        required: 2,
        returns: Returns::Geometry,
        call: interpolate_all,
    },
    Tail { names: &["st_linesubstring"], kinds: &[G, N, N], required: 3, returns: Returns::Geometry, call: substring },
];

fn ring_area(ring: &[Coordinates]) -> f64 {
    let Some(origin) = ring.first() else { return 0.0 };
    let twice = |pair: &[Coordinates]| {
        (pair[0][0] - origin[0]) * (pair[1][1] - origin[1]) - (pair[1][0] - origin[0]) * (pair[0][1] - origin[1])
    };
    ring.windows(2).map(twice).sum::<f64>().abs() / 2.0
}

fn area_of(tree: &Tree) -> f64 {
    match &tree.body {
        TreeBody::Positions(_) => 0.0,
        TreeBody::Rings(rings) => match rings.split_first() {
            Some((outer, holes)) => ring_area(outer) - holes.iter().map(|hole| ring_area(hole)).sum::<f64>(),
            None => 0.0,
        },
        TreeBody::Members(members) => members.iter().map(area_of).sum(),
    }
}

pub(super) fn distance(a: &Coordinates, b: &Coordinates) -> f64 {
    (b[0] - a[0]).hypot(b[1] - a[1])
}

/// The place on an edge that is next to a position, as a part of the edge, from 0 to 1.
pub(super) fn part_next_to(place: &Coordinates, a: &Coordinates, b: &Coordinates) -> f64 {
    let (dx, dy) = (b[0] - a[0], b[1] - a[1]);
    let square = dx * dx + dy * dy;
    if square > 0.0 { (((place[0] - a[0]) * dx + (place[1] - a[1]) * dy) / square).clamp(0.0, 1.0) } else { 0.0 }
}

/// The position at a part of an edge.
pub(super) fn between(a: &Coordinates, b: &Coordinates, part: f64) -> Coordinates {
    if part == 1.0 { *b } else { std::array::from_fn(|index| a[index] + (b[index] - a[index]) * part) }
}

/// The distance of a position to an edge.
pub(super) fn away(place: &Coordinates, a: &Coordinates, b: &Coordinates) -> f64 {
    distance(place, &between(a, b, part_next_to(place, a, b)))
}

fn length(path: &[Coordinates]) -> f64 {
    path.windows(2).map(|pair| distance(&pair[0], &pair[1])).sum()
}

/// The length of all lines, or that of all rings.
fn paths(tree: &Tree, of_rings: bool) -> f64 {
    match &tree.body {
        TreeBody::Positions(positions) if tree.kind == GeometryKind::LineString && !of_rings => length(positions),
        TreeBody::Positions(_) => 0.0,
        TreeBody::Rings(rings) if of_rings => rings.iter().map(|ring| length(ring)).sum(),
        TreeBody::Rings(_) => 0.0,
        TreeBody::Members(members) => members.iter().map(|member| paths(member, of_rings)).sum(),
    }
}

pub(super) fn point(arg: &Arg<'_>, name: &str) -> Result<Option<Coordinates>> {
    match arg.tree_of(GeometryKind::Point)? {
        Some(point) => Ok(point.positions().first().copied()),
        None => exec_err!("the argument of {name} must be a point"),
    }
}

fn azimuth(args: &[Arg<'_>]) -> Result<Value> {
    let (Some(a), Some(b)) = (point(&args[0], "st_azimuth")?, point(&args[1], "st_azimuth")?) else {
        return Ok(Value::Null);
    };
    let (dx, dy) = (b[0] - a[0], b[1] - a[1]);
    Ok(if dx == 0.0 && dy == 0.0 { Value::Null } else { Value::Number(dx.atan2(dy).rem_euclid(std::f64::consts::TAU)) })
}

pub(super) fn positions(tree: &Tree) -> Vec<Coordinates> {
    let mut all = Vec::new();
    tree.visit(&mut |position| all.push(*position));
    all
}

fn distance_max(args: &[Arg<'_>]) -> Result<Value> {
    let (a, b) = (positions(&args[0].tree()?), positions(&args[1].tree()?));
    let all = a.iter().flat_map(|a| b.iter().map(|b| distance(a, b)));
    Ok(all.reduce(f64::max).map(Value::Number).into())
}

pub(super) fn line(arg: &Arg<'_>, name: &str) -> Result<Tree> {
    match arg.tree_of(GeometryKind::LineString)? {
        Some(line) => Ok(line),
        None => exec_err!("the argument of {name} must be a line"),
    }
}

/// The part of a line's length in front of the place next to a point.
fn locate(args: &[Arg<'_>]) -> Result<Value> {
    let line = line(&args[0], "st_linelocatepoint")?;
    let Some(place) = point(&args[1], "st_linelocatepoint")? else { return Ok(Value::Null) };
    let total = length(line.positions());
    let (mut nearest, mut found, mut before) = (f64::INFINITY, None, 0.0);
    for pair in line.positions().windows(2) {
        let [a, b] = [pair[0], pair[1]];
        let part = part_next_to(&place, &a, &b);
        let away = distance(&place, &between(&a, &b, part));
        let step = distance(&a, &b);
        if away < nearest {
            nearest = away;
            found = Some(if total > 0.0 { (before + step * part) / total } else { 0.0 });
        }
        before += step;
    }
    Ok(found.map(Value::Number).into())
}

pub(super) fn fraction(arg: &Arg<'_>) -> Result<f64> {
    let fraction = arg.number()?;
    match (0.0..=1.0).contains(&fraction) {
        true => Ok(fraction),
        false => exec_err!("{fraction} is not a part of a line; use a number from 0 to 1"),
    }
}

/// The position at a part of a line's length, and the number of positions in front of it.
fn at(path: &[Coordinates], part: f64) -> Option<(Coordinates, usize)> {
    let wanted = length(path) * part;
    let mut before = 0.0;
    for (number, pair) in path.windows(2).enumerate() {
        let step = distance(&pair[0], &pair[1]);
        if before + step >= wanted && step > 0.0 {
            let part = ((wanted - before) / step).clamp(0.0, 1.0);
            return Some((between(&pair[0], &pair[1], part), number + 1));
        }
        before += step;
    }
    path.last().map(|last| (*last, path.len()))
}

fn interpolate(args: &[Arg<'_>]) -> Result<Value> {
    let line = line(&args[0], "st_lineinterpolatepoint")?;
    let found = at(line.positions(), fraction(&args[1])?);
    Ok(match found {
        Some((position, _)) => Tree::of_positions(GeometryKind::Point, line.dimensions, vec![position]).into(),
        None => Tree::empty(GeometryKind::Point, Dimensions::XY).into(),
    })
}

/// The positions at all multiples of a part of a line's length.
fn interpolate_all(args: &[Arg<'_>]) -> Result<Value> {
    let line = line(&args[0], "st_lineinterpolatepoints")?;
    let part = fraction(&args[1])?;
    let repeats = args.get(2).map_or(Ok(true), Arg::bool)?;
    let count = (1.0 / part).floor();
    if !repeats || part == 0.0 || count < 2.0 {
        return interpolate(args);
    }
    if count > POSITIONS_MAX {
        return exec_err!("the part {part} would give more than {POSITIONS_MAX} positions; use a larger one");
    }
    let path = line.positions();
    let total = length(path);
    let (mut found, mut before) = (Vec::new(), 0.0);
    for pair in path.windows(2) {
        let step = distance(&pair[0], &pair[1]);
        loop {
            let wanted = total * part * (found.len() + 1) as f64;
            if found.len() as f64 >= count || before + step < wanted || step == 0.0 {
                break;
            }
            found.push(between(&pair[0], &pair[1], ((wanted - before) / step).clamp(0.0, 1.0)));
        }
        before += step;
    }
    // Rounding may put the last ones behind the end.
    if let Some(last) = path.last() {
        found.resize(count as usize, *last);
    }
    let point = |position| Tree::of_positions(GeometryKind::Point, line.dimensions, vec![position]);
    Ok(match found.is_empty() {
        true => Tree::empty(GeometryKind::Point, line.dimensions),
        false => Tree::of_members(GeometryKind::MultiPoint, line.dimensions, found.into_iter().map(point).collect()),
    }
    .into())
}

fn substring(args: &[Arg<'_>]) -> Result<Value> {
    let line = line(&args[0], "st_linesubstring")?;
    let (from, to) = (fraction(&args[1])?, fraction(&args[2])?);
    if from > to {
        return exec_err!("the part of a line from {from} to {to} would be reversed; exchange them");
    }
    let path = line.positions();
    if path.is_empty() {
        return Ok(Value::Null);
    }
    let (Some((first, begin)), Some((last, end))) = (at(path, from), at(path, to)) else {
        return Ok(Tree::empty(GeometryKind::LineString, line.dimensions).into());
    };
    if from == to {
        return Ok(Tree::of_positions(GeometryKind::Point, line.dimensions, vec![first]).into());
    }
    let mut cut = vec![first];
    cut.extend(path.get(begin..end).into_iter().flatten());
    cut.push(last);
    cut.dedup();
    if cut.len() == 1 {
        return Ok(Tree::of_positions(GeometryKind::Point, line.dimensions, cut).into());
    }
    Ok(Tree::of_positions(GeometryKind::LineString, line.dimensions, cut).into())
}
