//! Lines as a network: cut where they meet, joined at their ends, and the areas that they bound.

use std::collections::{BTreeMap, HashMap, HashSet};

use datafusion::common::Result;
use geo::{Contains, LineString, Point, Polygon};
use terrane_space::geometry::{Coordinates, Dimensions, GeometryKind, Tree, TreeBody};

use super::Kind::{Bool as B, Geometry as G};
use super::access::dimension_of;
use super::tail::{Arg, Tail, Value, shape as of};

/// The functions.
pub(super) const FUNCTIONS: &[Tail] = &[
    of(&["st_linemerge"], &[G, B], 1, line_merge),
    of(&["st_polygonize"], &[G], 1, polygonize),
    of(&["st_buildarea"], &[G], 1, build_area),
];

/// A path of positions.
pub(super) type Path = Vec<Coordinates>;

/// A position in the plane. The two zeros are one.
pub(super) type Key = [u64; 2];

pub(super) fn key(position: &Coordinates) -> Key {
    [(position[0] + 0.0).to_bits(), (position[1] + 0.0).to_bits()]
}

/// The lines, and the rings of areas.
fn paths(tree: &Tree) -> Vec<Path> {
    match &tree.body {
        TreeBody::Positions(positions) if tree.kind == GeometryKind::LineString => vec![positions.clone()],
        TreeBody::Positions(_) => Vec::new(),
        TreeBody::Rings(rings) => rings.clone(),
        TreeBody::Members(members) => members.iter().flat_map(paths).collect(),
    }
}

fn lines(tree: &Tree) -> Vec<Path> {
    match &tree.body {
        TreeBody::Rings(_) => Vec::new(),
        TreeBody::Members(members) => members.iter().flat_map(lines).collect(),
        TreeBody::Positions(_) => paths(tree),
    }
}

fn line_merge(args: &[Arg<'_>]) -> Result<Value> {
    let tree = args[0].tree()?;
    if tree.is_empty() {
        return Ok(tree.into());
    }
    let is_directed = args.get(1).map_or(Ok(false), Arg::bool)?;
    let of = |path| Tree::of_positions(GeometryKind::LineString, tree.dimensions, path);
    let mut merged: Vec<Tree> = merged(lines(&tree), is_directed).into_iter().map(of).collect();
    Ok(match merged.len() {
        0 => Tree::empty(GeometryKind::GeometryCollection, Dimensions::XY),
        1 => merged.remove(0),
        _ => Tree::of_members(GeometryKind::MultiLineString, tree.dimensions, merged),
    }
    .into())
}

/// Joins lines where the ends of exactly two meet.
fn merged(lines: Vec<Path>, is_directed: bool) -> Vec<Path> {
    let lines: Vec<Path> = lines.into_iter().filter(|line| line.len() > 1).collect();
    // An end is twice the number of its line, plus one if it is the last position.
    let place = |end: usize| {
        let line = &lines[end / 2];
        if end.is_multiple_of(2) { line[0] } else { line[line.len() - 1] }
    };
    let mut ends: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
    (0..2 * lines.len()).for_each(|end| ends.entry(key(&place(end))).or_default().push(end));
    let partner = |end: usize| match ends.get(&key(&place(end))).map(Vec::as_slice) {
        Some([a, b]) if a / 2 != b / 2 && (!is_directed || a % 2 != b % 2) => Some(if *a == end { *b } else { *a }),
        _ => None,
    };
    let mut is_used = vec![false; lines.len()];
    let mut joined = Vec::new();
    let starts =
        (0..2 * lines.len()).filter(|end| partner(*end).is_none()).chain((0..lines.len()).map(|line| 2 * line));
    for start in starts {
        let mut path: Path = Vec::new();
        let (mut end, mut turned) = (Some(start), 0_i64);
        while let Some(entry) = end.filter(|end| !is_used[end / 2]) {
            is_used[entry / 2] = true;
            let line = &lines[entry / 2];
            let skipped = usize::from(!path.is_empty());
            if entry.is_multiple_of(2) {
                path.extend(line.iter().skip(skipped));
                turned -= 1;
            } else {
                path.extend(line.iter().rev().skip(skipped));
                turned += 1;
            }
            end = partner(entry ^ 1);
        }
        // Most lines keep their direction.
        if turned > 0 {
            path.reverse();
        }
        if !path.is_empty() {
            joined.push(path);
        }
    }
    joined
}

/// A directed edge.
pub(super) type Half = [Coordinates; 2];

pub(super) fn halves(paths: &[Path]) -> Vec<Half> {
    let edges = paths.iter().flat_map(|path| path.windows(2).map(|pair| [pair[0], pair[1]]));
    edges.filter(|[a, b]| key(a) != key(b)).collect()
}

/// The rings with a face of the directed edges on their left: outer rings turn left, holes right.
pub(super) fn trace(halves: &[Half]) -> Vec<Path> {
    let mut leaving: HashMap<Key, Vec<(f64, usize)>> = HashMap::new();
    let angle = |a: &Coordinates, b: &Coordinates| (b[1] - a[1]).atan2(b[0] - a[0]);
    for (number, [a, b]) in halves.iter().enumerate() {
        leaving.entry(key(a)).or_default().push((angle(a, b), number));
    }
    leaving.values_mut().for_each(|around| around.sort_by(|a, b| a.0.total_cmp(&b.0)));
    // The next edge is the first one clockwise of the way back.
    let next = |[a, b]: &Half| {
        let (around, back) = (leaving.get(&key(b))?, angle(b, a));
        around.iter().rev().find(|(angle, _)| *angle < back).or_else(|| around.last()).map(|(_, number)| *number)
    };
    let mut is_used = vec![false; halves.len()];
    let mut rings = Vec::new();
    for first in 0..halves.len() {
        let mut cycle: Path = Vec::new();
        let mut half = Some(first);
        while let Some(number) = half.filter(|number| !is_used[*number]) {
            is_used[number] = true;
            cycle.push(halves[number][0]);
            half = next(&halves[number]);
        }
        cycle.extend(cycle.first().copied());
        rings.extend(loops(cycle));
    }
    rings
}

/// Divides a closed path wherever it returns to a position.
fn loops(path: Path) -> Vec<Path> {
    let (mut closed, mut open): (Vec<Path>, Path) = (Vec::new(), Vec::new());
    let mut places: HashMap<Key, usize> = HashMap::new();
    for position in path {
        if let Some(place) = places.get(&key(&position)).copied() {
            let mut ring = open.split_off(place);
            ring.iter().for_each(|position| {
                places.remove(&key(position));
            });
            ring.push(position);
            if ring.len() > 3 {
                closed.push(ring);
            }
        }
        places.insert(key(&position), open.len());
        open.push(position);
    }
    closed
}

/// Without the edges that bound no area.
fn bounding(paths: &[Path]) -> Vec<Half> {
    let mut seen: HashSet<[Key; 2]> = HashSet::new();
    let mut edges: Vec<Half> = halves(paths);
    edges.retain(|[a, b]| {
        let (a, b) = (key(a), key(b));
        seen.insert([a.min(b), a.max(b)])
    });
    let both = edges.iter().flat_map(|[a, b]| [[*a, *b], [*b, *a]]);
    // An edge with the same face on both sides belongs to no ring after the division into loops.
    let rings = trace(&both.collect::<Vec<Half>>());
    halves(&rings)
}

/// The area of a ring that turns left; below 0 if it turns right.
pub(super) fn area(ring: &[Coordinates]) -> f64 {
    let origin = ring.first().copied().unwrap_or_default();
    let twice = |pair: &[Coordinates]| {
        (pair[0][0] - origin[0]) * (pair[1][1] - origin[1]) - (pair[1][0] - origin[0]) * (pair[0][1] - origin[1])
    };
    ring.windows(2).map(twice).sum::<f64>() / 2.0
}

/// Polygons of the rings: each hole is in the smallest outer ring around it.
pub(super) fn polygons(rings: Vec<Path>) -> Vec<Vec<Path>> {
    let (shells, holes): (Vec<Path>, Vec<Path>) = rings.into_iter().partition(|ring| area(ring) > 0.0);
    let outline = |ring: &Path| {
        let places: Vec<(f64, f64)> = ring.iter().map(|position| (position[0], position[1])).collect();
        Polygon::new(LineString::from(places), Vec::new())
    };
    let areas: Vec<(Polygon<f64>, HashSet<Key>, f64)> =
        shells.iter().map(|shell| (outline(shell), shell.iter().map(key).collect(), area(shell))).collect();
    let mut polygons: Vec<Vec<Path>> = shells.into_iter().map(|shell| vec![shell]).collect();
    for hole in holes {
        let holds = |(outline, vertices, size): &(Polygon<f64>, HashSet<Key>, f64)| {
            let place = hole.iter().find(|position| !vertices.contains(&key(position)));
            *size > -area(&hole) && place.is_some_and(|place| outline.contains(&Point::new(place[0], place[1])))
        };
        let around = (0..areas.len()).filter(|shell| holds(&areas[*shell]));
        if let Some(shell) = around.min_by(|a, b| areas[*a].2.total_cmp(&areas[*b].2)) {
            polygons[shell].push(hole);
        }
    }
    polygons
}

fn faces(tree: &Tree) -> Vec<Vec<Path>> {
    polygons(trace(&bounding(&paths(tree))))
}

pub(super) fn area_tree(rings: Vec<Path>, dimensions: Dimensions) -> Tree {
    Tree { kind: GeometryKind::Polygon, dimensions, body: TreeBody::Rings(rings) }
}

fn polygonize(args: &[Arg<'_>]) -> Result<Value> {
    let tree = args[0].tree()?;
    let members = faces(&tree).into_iter().map(|rings| area_tree(rings, tree.dimensions)).collect();
    Ok(Tree::of_members(GeometryKind::GeometryCollection, tree.dimensions, members).into())
}

/// The area that lines bound: a face in a hole of another one is left out.
fn build_area(args: &[Arg<'_>]) -> Result<Value> {
    let tree = args[0].tree()?;
    if !tree.is_empty() && dimension_of(&tree) == 0 {
        return Ok(Value::Null);
    }
    let faces = faces(&tree);
    let outline = |ring: &Path| {
        let mut keys: Vec<Key> = ring.iter().map(key).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    };
    let mut around: HashMap<Vec<Key>, usize> = HashMap::new();
    for (number, face) in faces.iter().enumerate() {
        face.iter().skip(1).for_each(|hole| {
            around.insert(outline(hole), number);
        });
    }
    let parents: Vec<Option<usize>> = faces.iter().map(|face| around.get(&outline(&face[0])).copied()).collect();
    let depth = |face: usize| std::iter::successors(parents[face], |parent| parents[*parent]).take(faces.len()).count();
    let kept: Vec<Path> =
        (0..faces.len()).filter(|face| depth(*face).is_multiple_of(2)).flat_map(|face| faces[face].clone()).collect();
    let all = halves(&kept);
    let directed: HashSet<[Key; 2]> = all.iter().map(|[a, b]| [key(a), key(b)]).collect();
    let outer: Vec<Half> = all.into_iter().filter(|[a, b]| !directed.contains(&[key(b), key(a)])).collect();
    let mut areas: Vec<Tree> =
        polygons(trace(&outer)).into_iter().map(|rings| area_tree(rings, tree.dimensions)).collect();
    Ok(match areas.len() {
        0 => Tree::empty(GeometryKind::Polygon, tree.dimensions),
        1 => areas.remove(0),
        _ => Tree::of_members(GeometryKind::MultiPolygon, tree.dimensions, areas),
    }
    .into())
}
