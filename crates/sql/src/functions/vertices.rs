//! Geometries with fewer or moved positions.

use std::cmp::Ordering;

use datafusion::common::{Result, exec_err};
use geo::LineString;
use terrane_space::geometry::{
    Coordinates, Dimensions, GeometryKind, Tree, TreeBody, check_valid, dissolve, from_geo, to_geo,
};

use super::Kind::{Bool as B, Geometry as G, Number as N};
use super::combine::united;
use super::measure::{away, distance, part_next_to};
use super::network::{area, area_tree, halves, polygons, trace};
use super::noding::noded;
use super::relation::unreadable;
use super::tail::{Arg, Tail, Value, shape as of};

/// The functions.
pub(super) const FUNCTIONS: &[Tail] = &[
    of(&["st_simplify"], &[G, N, B], 2, simplify),
    of(&["st_simplifypreservetopology"], &[G, N], 2, simplify_carefully),
    of(&["st_reduceprecision"], &[G, N], 2, reduce_precision),
    of(&["st_normalize"], &[G], 1, |a| Ok(normal(a[0].tree()?).into())),
    of(&["st_snap"], &[G, G, N], 3, snap),
    of(&["st_makevalid"], &[G], 1, |a| Ok(valid(a[0].tree()?)?.into())),
];

type Path = Vec<Coordinates>;

fn is_same(a: &Coordinates, b: &Coordinates) -> bool {
    a[0] == b[0] && a[1] == b[1]
}

/// A tolerance. It may be 0.
fn tolerance(arg: &Arg<'_>) -> Result<f64> {
    let tolerance = arg.number()?;
    match tolerance >= 0.0 {
        true => Ok(tolerance),
        false => exec_err!("{tolerance} is not a tolerance; use a number of at least 0"),
    }
}

/// The position between two others that is farthest from the edge between them.
fn farthest(path: &[Coordinates], from: usize, to: usize) -> Option<(usize, f64)> {
    let mut found: Option<(usize, f64)> = None;
    for number in from + 1..to {
        let away = away(&path[number], &path[from], &path[to]);
        if found.is_none_or(|(_, most)| away > most) {
            found = Some((number, away));
        }
    }
    found
}

/// The positions that Douglas and Peucker keep.
fn thinned(path: &[Coordinates], tolerance: f64) -> Path {
    let Some(last) = path.len().checked_sub(1) else { return Vec::new() };
    let mut is_kept = vec![false; path.len()];
    (is_kept[0], is_kept[last]) = (true, true);
    let mut sections = vec![(0, last)];
    while let Some((from, to)) = sections.pop() {
        if let Some((at, _)) = farthest(path, from, to).filter(|(_, away)| *away > tolerance) {
            is_kept[at] = true;
            sections.extend([(from, at), (at, to)]);
        }
    }
    path.iter().zip(is_kept).filter(|(_, is_kept)| *is_kept).map(|(position, _)| *position).collect()
}

/// Changes each line and each ring. A polygon loses the holes that have too few positions left, and
/// itself with its outer ring.
fn with_paths(tree: &mut Tree, change: &mut dyn FnMut(&mut Path, bool)) {
    match &mut tree.body {
        TreeBody::Positions(positions) if tree.kind == GeometryKind::LineString => change(positions, false),
        TreeBody::Positions(_) => {}
        TreeBody::Rings(rings) => {
            rings.iter_mut().for_each(|ring| change(ring, true));
            if rings.first().is_some_and(|ring| ring.len() < 4) {
                rings.clear();
            }
            rings.retain(|ring| ring.len() > 3);
        }
        TreeBody::Members(members) => {
            members.iter_mut().for_each(|member| with_paths(member, change));
            members.retain(|member| !member.is_empty());
        }
    }
}

fn simplify(args: &[Arg<'_>]) -> Result<Value> {
    let (mut tree, tolerance) = (args[0].tree()?, tolerance(&args[1])?);
    let keeps_collapsed = args.get(2).map_or(Ok(false), Arg::bool)?;
    if tree.is_empty() {
        return Ok(tree.into());
    }
    with_paths(&mut tree, &mut |path, is_ring| {
        let thin = thinned(path, tolerance);
        if !(is_ring && keeps_collapsed && thin.len() < 4) {
            *path = thin;
        }
    });
    Ok(if tree.is_empty() { Value::Null } else { tree.into() })
}

/// The edges of a geometry while its paths are made simpler.
struct Edges {
    edges: Vec<Option<[Coordinates; 2]>>,
}

impl Edges {
    /// Whether an edge touches one of the others, except at an end that both have.
    fn meets(&self, edge: [Coordinates; 2], except: std::ops::Range<usize>) -> bool {
        let side =
            |edge: &[Coordinates; 2], axis: usize| (edge[0][axis].min(edge[1][axis]), edge[0][axis].max(edge[1][axis]));
        let boxes = [side(&edge, 0), side(&edge, 1)];
        let may_meet = |other: &[Coordinates; 2]| {
            (0..2).all(|axis| {
                let (least, most) = side(other, axis);
                least <= boxes[axis].1 && boxes[axis].0 <= most
            })
        };
        let others = self.edges.iter().enumerate().filter(|(number, _)| !except.contains(number));
        others
            .filter_map(|(_, other)| other.as_ref())
            .filter(|other| may_meet(other))
            .any(|other| touches(&edge, other))
    }
}

/// Whether edges share a point that is not an end of both.
fn touches(a: &[Coordinates; 2], b: &[Coordinates; 2]) -> bool {
    use geo::line_intersection::{LineIntersection, line_intersection};
    let line = |edge: &[Coordinates; 2]| {
        geo::Line::new(geo::Coord { x: edge[0][0], y: edge[0][1] }, geo::Coord { x: edge[1][0], y: edge[1][1] })
    };
    match line_intersection(line(a), line(b)) {
        None => false,
        Some(LineIntersection::Collinear { .. }) => true,
        Some(LineIntersection::SinglePoint { intersection, .. }) => {
            let is_end =
                |edge: &[Coordinates; 2]| edge.iter().any(|end| end[0] == intersection.x && end[1] == intersection.y);
            !(is_end(a) && is_end(b))
        }
    }
}

/// Simplifies lines and rings so that none meets another one anew, and rings keep an area.
fn simplify_carefully(args: &[Arg<'_>]) -> Result<Value> {
    let (mut tree, tolerance) = (args[0].tree()?, tolerance(&args[1])?);
    let mut edges = Edges { edges: Vec::new() };
    // Rings without an area go first, so that both passes have the same paths.
    with_paths(&mut tree, &mut |_, _| {});
    with_paths(&mut tree, &mut |path, _| edges.edges.extend(path.windows(2).map(|edge| Some([edge[0], edge[1]]))));
    let mut first = 0;
    with_paths(&mut tree, &mut |path, is_ring| {
        let count = path.len().saturating_sub(1);
        *path = thinned_carefully(path, tolerance, is_ring, &mut edges, first);
        first += count;
    });
    Ok(tree.into())
}

/// The edges of the path begin at a number. An edge that replaces several takes the place of the
/// first of them.
fn thinned_carefully(path: &[Coordinates], tolerance: f64, is_ring: bool, edges: &mut Edges, first: usize) -> Path {
    let size_min = if is_ring { 4 } else { 2 };
    let Some(last) = path.len().checked_sub(1).filter(|last| *last > 0) else { return path.to_vec() };
    let mut kept = vec![path[0]];
    // Sections from the start to the end of the path, with the number of divisions above them.
    let mut sections = vec![(0, last, 1)];
    while let Some((from, to, depth)) = sections.pop() {
        let far = farthest(path, from, to);
        let is_short = kept.len() < size_min && depth + 1 < size_min;
        let edge = [path[from], path[to]];
        let range = first + from..first + to;
        match far {
            Some((at, away)) if is_short || away > tolerance || edges.meets(edge, range.clone()) => {
                sections.extend([(at, to, depth + 1), (from, at, depth + 1)]);
            }
            _ => {
                edges.edges[range.clone()].fill(None);
                edges.edges[range.start] = Some(edge);
                kept.push(path[to]);
            }
        }
    }
    kept
}

/// Coordinates that are multiples of a size, and a valid geometry.
fn reduce_precision(args: &[Arg<'_>]) -> Result<Value> {
    let (tree, size) = (args[0].tree()?, args[1].number()?);
    match size > 0.0 {
        true => Ok(on_grid(tree, size)?.into()),
        false => Ok(tree.into()),
    }
}

pub(super) fn on_grid(mut tree: Tree, size: f64) -> Result<Tree> {
    let scale = 1.0 / size;
    tree.change(&|position| {
        for number in &mut position[..2] {
            let rounded = (*number * scale + 0.5).floor();
            *number = if size < 1.0 { rounded / scale } else { rounded * size };
        }
    });
    let is_empty = tree.is_empty();
    with_paths(&mut tree, &mut |path, _| {
        path.dedup_by(|a, b| is_same(a, b));
        if path.len() < 2 {
            path.clear();
        }
    });
    match is_empty {
        true => Ok(tree),
        false => valid(tree),
    }
}

/// The same area as valid polygons: a place is inside that an odd number of rings surrounds.
pub(super) fn valid(tree: Tree) -> Result<Tree> {
    if let (GeometryKind::GeometryCollection, TreeBody::Members(members)) = (tree.kind, &tree.body) {
        let members = members.iter().cloned().map(valid).collect::<Result<Vec<Tree>>>()?;
        return Ok(Tree::of_members(tree.kind, tree.dimensions, members));
    }
    let geometry = to_geo(&tree.to_wkb()).map_err(unreadable)?;
    let invalid: Vec<&geo::Polygon<f64>> = match &geometry {
        _ if check_valid(&geometry).is_ok() => return Ok(tree),
        geo::Geometry::Polygon(polygon) => vec![polygon],
        geo::Geometry::MultiPolygon(polygons) => polygons.iter().collect(),
        _ => return Ok(tree),
    };
    let rings = invalid.iter().flat_map(|area| std::iter::once(area.exterior()).chain(area.interiors()));
    let rings: Vec<LineString<f64>> = rings.cloned().collect();
    let closed = noded(&rings).paths.into_iter().map(|ring| ring.0.iter().map(|at| [at.x, at.y, 0.0, 0.0]).collect());
    let closed: Vec<Path> = closed.filter(|ring: &Path| ring.len() > 3).collect();
    let mut outlines: Vec<Path> = Vec::new();
    for rings in dissolve(closed) {
        for (number, mut ring) in rings.into_iter().enumerate() {
            // The area is on the left of its rings.
            if (area(&ring) > 0.0) != (number == 0) {
                ring.reverse();
            }
            outlines.push(ring);
        }
    }
    let parts = polygons(trace(&halves(&outlines)));
    let mut areas: Vec<Tree> = parts.into_iter().map(|rings| area_tree(rings, Dimensions::XY)).collect();
    let repaired = match areas.len() {
        0 => return flat(rings),
        1 => areas.remove(0),
        _ => Tree::of_members(GeometryKind::MultiPolygon, Dimensions::XY, areas),
    };
    match check_valid(&to_geo(&repaired.to_wkb()).map_err(unreadable)?) {
        Ok(()) => Ok(repaired),
        Err(error) => exec_err!("the rings of the geometry cannot be repaired: {error}"),
    }
}

/// The lines or the point to which rings have collapsed.
fn flat(rings: Vec<LineString<f64>>) -> Result<Tree> {
    let places: Vec<geo::Coord<f64>> = rings.iter().flat_map(|ring| ring.0.iter().copied()).collect();
    let geometry = match places.as_slice() {
        [first, others @ ..] if others.iter().all(|other| other == first) => geo::Geometry::Point(geo::Point(*first)),
        _ => geo::Geometry::MultiLineString(geo::MultiLineString(rings)),
    };
    Tree::parse(&united(from_geo(&geometry), &geometry)).map_err(unreadable)
}

fn order(a: &Coordinates, b: &Coordinates) -> Ordering {
    a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1]))
}

fn order_of_paths(a: &[Coordinates], b: &[Coordinates]) -> Ordering {
    let differing = a.iter().zip(b).map(|(a, b)| order(a, b)).find(|order| order.is_ne());
    differing.unwrap_or_else(|| a.len().cmp(&b.len()))
}

/// The order of geometries: by kind, then by positions.
fn order_of_trees(a: &Tree, b: &Tree) -> Ordering {
    let rank = |kind: GeometryKind| match kind {
        GeometryKind::Point => 0,
        GeometryKind::MultiPoint => 1,
        GeometryKind::LineString => 2,
        GeometryKind::MultiLineString => 3,
        GeometryKind::Polygon => 4,
        GeometryKind::MultiPolygon => 5,
        GeometryKind::GeometryCollection => 6,
    };
    let by_kind = rank(a.kind).cmp(&rank(b.kind)).then(b.is_empty().cmp(&a.is_empty()));
    by_kind.then_with(|| match (&a.body, &b.body) {
        (TreeBody::Positions(a), TreeBody::Positions(b)) => order_of_paths(a, b),
        (TreeBody::Rings(a), TreeBody::Rings(b)) => first_difference(a, b, |a, b| order_of_paths(a, b)),
        (TreeBody::Members(a), TreeBody::Members(b)) => first_difference(a, b, order_of_trees),
        _ => Ordering::Equal,
    })
}

fn first_difference<T>(a: &[T], b: &[T], order: impl Fn(&T, &T) -> Ordering) -> Ordering {
    let differing = a.iter().zip(b).map(|(a, b)| order(a, b)).find(|order| order.is_ne());
    differing.unwrap_or_else(|| a.len().cmp(&b.len()))
}

/// Starts a ring at its least position, and gives it a direction.
fn turn_ring(ring: &mut Path, is_clockwise: bool) {
    ring.pop();
    let start = (0..ring.len()).min_by(|a, b| order(&ring[*a], &ring[*b])).unwrap_or(0);
    ring.rotate_left(start);
    ring.extend(ring.first().copied());
    let turns = |pair: &[Coordinates]| (pair[1][0] - pair[0][0]) * (pair[1][1] + pair[0][1] - 2.0 * ring[0][1]);
    if (ring.windows(2).map(turns).sum::<f64>() > 0.0) != is_clockwise {
        ring.reverse();
    }
}

/// The normal form: rings start at their least position, the outer ones clockwise; greater members
/// come first.
fn normal(mut tree: Tree) -> Tree {
    match &mut tree.body {
        TreeBody::Positions(line)
            if tree.kind == GeometryKind::LineString && line.len() > 3 && line.first() == line.last() =>
        {
            turn_ring(line, true);
        }
        TreeBody::Positions(line) => {
            let differing = (0..line.len() / 2).map(|place| order(&line[place], &line[line.len() - 1 - place]));
            if differing.into_iter().find(|order| order.is_ne()) == Some(Ordering::Greater) {
                line.reverse();
            }
        }
        TreeBody::Rings(rings) => {
            rings.iter_mut().enumerate().for_each(|(number, ring)| turn_ring(ring, number == 0));
            if let Some((_, holes)) = rings.split_first_mut() {
                holes.sort_by(|a, b| order_of_paths(b, a));
            }
        }
        TreeBody::Members(members) => {
            let mut sorted: Vec<Tree> = members.drain(..).map(normal).collect();
            sorted.sort_by(|a, b| order_of_trees(b, a));
            *members = sorted;
        }
    }
    tree
}

/// Moves vertices and edges to the vertices of another geometry that are nearer than a distance.
fn snap(args: &[Arg<'_>]) -> Result<Value> {
    let (mut tree, target, tolerance) = (args[0].tree()?, args[1].tree()?, tolerance(&args[2])?);
    let mut targets: Path = Vec::new();
    let mut seen = std::collections::HashSet::new();
    target.visit(&mut |position| {
        if seen.insert([position[0].to_bits(), position[1].to_bits()]) {
            targets.push(*position);
        }
    });
    snap_tree(&mut tree, &targets, tolerance);
    Ok(tree.into())
}

fn snap_tree(tree: &mut Tree, targets: &[Coordinates], tolerance: f64) {
    match &mut tree.body {
        TreeBody::Positions(path) => snap_path(path, targets, tolerance),
        TreeBody::Rings(rings) => rings.iter_mut().for_each(|ring| snap_path(ring, targets, tolerance)),
        TreeBody::Members(members) => members.iter_mut().for_each(|member| snap_tree(member, targets, tolerance)),
    }
}

fn snap_path(path: &mut Path, targets: &[Coordinates], tolerance: f64) {
    let is_closed = path.len() > 1 && path.first() == path.last();
    for target in targets {
        let free = path.len() - usize::from(is_closed);
        let near = |place: &usize| distance(&path[*place], target) < tolerance;
        let nearest =
            (0..free).filter(near).min_by(|a, b| distance(&path[*a], target).total_cmp(&distance(&path[*b], target)));
        if let Some(place) = nearest {
            put(path, place, target, is_closed);
        }
    }
    for target in targets {
        if path.iter().any(|position| is_same(position, target)) {
            continue;
        }
        let away_of = |place: usize| away(target, &path[place], &path[place + 1]);
        let near = (0..path.len().saturating_sub(1)).filter(|place| away_of(*place) < tolerance);
        if let Some(place) = near.min_by(|a, b| away_of(*a).total_cmp(&away_of(*b))) {
            snap_edge(path, place, target, is_closed);
        }
    }
}

/// Moves a vertex. The two ends of a ring stay one.
fn put(path: &mut Path, place: usize, target: &Coordinates, is_closed: bool) {
    let last = path.len() - 1;
    let both = if is_closed && (place == 0 || place == last) { [0, last] } else { [place; 2] };
    both.into_iter().for_each(|place| {
        path[place][0] = target[0];
        path[place][1] = target[1];
    });
}

/// Gives an edge a vertex at the target. If the target lies beyond an end, that end moves there,
/// and its old position stays in the nearer one of the two edges.
fn snap_edge(path: &mut Path, place: usize, target: &Coordinates, is_closed: bool) {
    let (from, to) = (path[place], path[place + 1]);
    let part = part_next_to(target, &from, &to);
    let mut vertex = *target;
    let mut at = place + 1;
    if part >= 1.0 {
        put(path, place + 1, target, is_closed);
        vertex = to;
        if let Some(next) = path.get(place + 2)
            && away(&to, target, next) < away(&to, &from, target)
        {
            at = place + 2;
        }
    } else if part <= 0.0 {
        put(path, place, target, is_closed);
        vertex = from;
        if let Some(before) = place.checked_sub(1)
            && away(&from, &path[before], target) < away(&from, target, &to)
        {
            at = place;
        }
    }
    path.insert(at, vertex);
}
