//! Geometries with other members, rings or positions.

use datafusion::common::{Result, exec_err};
use terrane_space::geometry::{Coordinates, GeometryKind, Tree, TreeBody};

use super::Kind::{Geometry as G, Int as I};
use super::Returns;
use super::access::dimension_of;
use super::measure::{line, point};
use super::network::area;
use super::tail::{Arg, Tail, Value, of, shape};

/// The functions.
pub(super) const FUNCTIONS: &[Tail] = &[
    shape(&["st_collectionextract"], &[G, I], 1, extract),
    shape(&["st_forcecollection"], &[G], 1, collection),
    shape(&["st_forcepolygoncw", "st_forcerhr"], &[G], 1, |a| turned(a, true)),
    shape(&["st_forcepolygonccw"], &[G], 1, |a| turned(a, false)),
    of(&["st_ispolygoncw"], &[G], 1, Returns::Bool, |a| Ok(Value::Bool(is_turned(&a[0].tree()?, true)))),
    of(&["st_ispolygonccw"], &[G], 1, Returns::Bool, |a| Ok(Value::Bool(is_turned(&a[0].tree()?, false)))),
    shape(&["st_addpoint"], &[G, G, I], 2, add),
    shape(&["st_setpoint"], &[G, I, G], 3, set),
    shape(&["st_removepoint"], &[G, I], 2, remove),
];

fn simple_kinds(dimension: i64) -> [GeometryKind; 2] {
    match dimension {
        0 => [GeometryKind::Point, GeometryKind::MultiPoint],
        1 => [GeometryKind::LineString, GeometryKind::MultiLineString],
        _ => [GeometryKind::Polygon, GeometryKind::MultiPolygon],
    }
}

/// The members of one dimension: 1 for points, 2 for lines, 3 for polygons, or else the highest.
fn extract(args: &[Arg<'_>]) -> Result<Value> {
    let tree = args[0].tree()?;
    let dimension = match args.get(1).map(Arg::int).transpose()? {
        Some(number @ 1..=3) => number - 1,
        Some(other) => return exec_err!("{other} is not a kind; use 1 for points, 2 for lines, 3 for polygons"),
        None => match highest(&tree) {
            Some(dimension) => dimension,
            None => return Ok(tree.into()),
        },
    };
    let one = simple_kinds(dimension)[0];
    Ok(match &tree.body {
        TreeBody::Members(_) => extracted(&tree, dimension),
        _ if tree.kind == one => tree,
        _ => Tree::empty(one, tree.dimensions),
    }
    .into())
}

/// A collection without the members of lower dimensions; other geometries as they are.
pub(super) fn of_highest_dimension(tree: Tree) -> Tree {
    match (tree.kind, highest(&tree)) {
        (GeometryKind::GeometryCollection, Some(dimension)) => extracted(&tree, dimension),
        _ => tree,
    }
}

fn highest(tree: &Tree) -> Option<i64> {
    match &tree.body {
        TreeBody::Members(members) => members.iter().filter_map(highest).max(),
        _ => (!tree.is_empty()).then(|| dimension_of(tree)),
    }
}

/// A multi-geometry of all members of a dimension.
fn extracted(tree: &Tree, dimension: i64) -> Tree {
    fn gather(tree: &Tree, kind: GeometryKind, found: &mut Vec<Tree>) {
        match &tree.body {
            TreeBody::Members(members) => members.iter().for_each(|member| gather(member, kind, found)),
            _ if tree.kind == kind && !tree.is_empty() => found.push(tree.clone()),
            _ => {}
        }
    }
    let [one, many] = simple_kinds(dimension);
    let mut found = Vec::new();
    gather(tree, one, &mut found);
    Tree::of_members(many, tree.dimensions, found)
}

fn collection(args: &[Arg<'_>]) -> Result<Value> {
    let tree = args[0].tree()?;
    let members = if tree.is_empty() { Vec::new() } else { tree.members().to_vec() };
    Ok(Tree::of_members(GeometryKind::GeometryCollection, tree.dimensions, members).into())
}

/// Outer rings in one direction, inner ones in the other.
fn turned(args: &[Arg<'_>], is_clockwise: bool) -> Result<Value> {
    fn turn(tree: &mut Tree, is_clockwise: bool) {
        match &mut tree.body {
            TreeBody::Positions(_) => {}
            TreeBody::Rings(rings) => {
                for (number, ring) in rings.iter_mut().enumerate() {
                    if is_wrong(ring, is_clockwise == (number == 0)) {
                        ring.reverse();
                    }
                }
            }
            TreeBody::Members(members) => members.iter_mut().for_each(|member| turn(member, is_clockwise)),
        }
    }
    let mut tree = args[0].tree()?;
    turn(&mut tree, is_clockwise);
    Ok(tree.into())
}

/// Whether a ring has the other direction. One without an area has both.
fn is_wrong(ring: &[Coordinates], is_clockwise: bool) -> bool {
    let area = area(ring);
    if is_clockwise { area > 0.0 } else { area < 0.0 }
}

fn is_turned(tree: &Tree, is_clockwise: bool) -> bool {
    match &tree.body {
        TreeBody::Positions(_) => true,
        TreeBody::Rings(rings) => {
            rings.iter().enumerate().all(|(number, ring)| !is_wrong(ring, is_clockwise == (number == 0)))
        }
        TreeBody::Members(members) => members.iter().all(|member| is_turned(member, is_clockwise)),
    }
}

fn place(arg: &Arg<'_>, name: &str) -> Result<Coordinates> {
    match point(arg, name)? {
        Some(place) => Ok(place),
        None => exec_err!("the point of {name} is empty"),
    }
}

/// A line with one more position: at a number from 0, or at the end.
fn add(args: &[Arg<'_>]) -> Result<Value> {
    let (line, place) = (line(&args[0], "st_addpoint")?, place(&args[1], "st_addpoint")?);
    let mut path = line.positions().to_vec();
    let number = match args.get(2).map_or(Ok(-1), Arg::int)? {
        -1 => Some(path.len()),
        number => usize::try_from(number).ok().filter(|number| *number <= path.len()),
    };
    let Some(number) = number else {
        return exec_err!("a position is added at a number from 0 to {}, or -1 for the end", path.len());
    };
    path.insert(number, place);
    Ok(Tree::of_positions(GeometryKind::LineString, line.dimensions, path).into())
}

/// A number from 0, or from the end below 0.
fn number_in(path: &[Coordinates], number: i64) -> Result<usize> {
    let from_start = if number < 0 { number.checked_add(path.len() as i64) } else { Some(number) };
    let found = from_start.and_then(|number| usize::try_from(number).ok()).filter(|number| *number < path.len());
    match found {
        Some(found) => Ok(found),
        None => exec_err!("the line has no position {number}; it has {} positions, from 0", path.len()),
    }
}

fn set(args: &[Arg<'_>]) -> Result<Value> {
    let (line, place) = (line(&args[0], "st_setpoint")?, place(&args[2], "st_setpoint")?);
    let mut path = line.positions().to_vec();
    let number = number_in(&path, args[1].int()?)?;
    path[number] = place;
    Ok(Tree::of_positions(GeometryKind::LineString, line.dimensions, path).into())
}

fn remove(args: &[Arg<'_>]) -> Result<Value> {
    let line = line(&args[0], "st_removepoint")?;
    let mut path = line.positions().to_vec();
    let number = args[1].int()?;
    if path.len() < 3 || number < 0 {
        return exec_err!("only a line of more than 2 positions can lose one, by its number from 0");
    }
    path.remove(number_in(&path, number)?);
    Ok(Tree::of_positions(GeometryKind::LineString, line.dimensions, path).into())
}
