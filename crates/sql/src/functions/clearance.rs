//! Distances between vertices and edges.

use datafusion::common::{Result, exec_err};
use terrane_space::geometry::{Coordinates, Dimensions, GeometryKind, Tree, TreeBody};

use super::Kind::{Geometry as G, Number as N};
use super::Returns;
use super::measure::{between, distance, part_next_to};
use super::tail::{Arg, Tail, Value};

/// The functions.
pub(super) const FUNCTIONS: &[Tail] = &[
    Tail {
        names: &["st_hausdorffdistance"],
        kinds: &[G, G, N],
        required: 2,
        returns: Returns::Number,
        call: hausdorff_distance,
    },
    Tail { names: &["st_minimumclearance"], kinds: &[G], required: 1, returns: Returns::Number, call: clearance },
    Tail {
        names: &["st_minimumclearanceline"],
        kinds: &[G],
        required: 1,
        returns: Returns::Geometry,
        call: clearance_line,
    },
];

pub(super) type Edge = [Coordinates; 2];

/// The edges of all lines and rings. A point is an edge without a length.
pub(super) fn edges(tree: &Tree) -> Vec<Edge> {
    let of = |path: &Vec<Coordinates>| match path.as_slice() {
        [one] => vec![[*one, *one]],
        path => path.windows(2).map(|pair| [pair[0], pair[1]]).collect(),
    };
    match &tree.body {
        TreeBody::Positions(path) => of(path),
        TreeBody::Rings(rings) => rings.iter().flat_map(of).collect(),
        TreeBody::Members(members) => members.iter().flat_map(edges).collect(),
    }
}

pub(super) fn nearest(place: &Coordinates, [a, b]: &Edge) -> Coordinates {
    between(a, b, part_next_to(place, a, b))
}

/// The greatest distance of a vertex of one geometry to the edges of the other. A share cuts each
/// edge into equal parts, whose ends count as vertices.
fn hausdorff_distance(args: &[Arg<'_>]) -> Result<Value> {
    /// Most parts of an edge.
    const PARTS_MAX: f64 = 10_000.0;
    let (a, b) = (edges(&args[0].tree()?), edges(&args[1].tree()?));
    let share = args.get(2).map_or(Ok(1.0), Arg::number)?;
    let parts = (1.0 / share).round();
    if !(share > 0.0 && share <= 1.0 && parts <= PARTS_MAX) {
        return exec_err!("{share} is not a share of an edge; use a number from {} to 1", 1.0 / PARTS_MAX);
    }
    if a.is_empty() || b.is_empty() {
        return Ok(Value::Null);
    }
    let directed = |from: &[Edge], to: &[Edge]| {
        let mut farthest = 0.0_f64;
        for [start, end] in from {
            for part in 0..=parts as usize {
                let place = between(start, end, part as f64 / parts);
                // Once an edge is nearer than the farthest vertex, the vertex does not matter.
                let mut least = f64::INFINITY;
                for edge in to {
                    least = least.min(distance(&place, &nearest(&place, edge)));
                    if least <= farthest {
                        break;
                    }
                }
                farthest = farthest.max(least);
            }
        }
        farthest
    };
    Ok(Value::Number(directed(&a, &b).max(directed(&b, &a))))
}

/// The shortest way by which a vertex has to move to make the geometry invalid.
fn shortest_move(tree: &Tree) -> Option<(f64, Edge)> {
    let mut vertices: Vec<Coordinates> = Vec::new();
    tree.visit(&mut |position| vertices.push(*position));
    let edges = edges(tree);
    let mut found: Option<(f64, Edge)> = None;
    let mut offer = |way: Edge| {
        let length = distance(&way[0], &way[1]);
        if found.is_none_or(|(least, _)| length < least) {
            found = Some((length, way));
        }
    };
    let is_same = |a: &Coordinates, b: &Coordinates| a[..2] == b[..2];
    for [a, b] in edges.iter().filter(|[a, b]| !is_same(a, b)) {
        offer([*a, *b]);
    }
    for vertex in &vertices {
        for edge in &edges {
            if !edge.iter().any(|end| is_same(end, vertex)) {
                offer([*vertex, nearest(vertex, edge)]);
            }
        }
    }
    found
}

fn clearance(args: &[Arg<'_>]) -> Result<Value> {
    Ok(Value::Number(shortest_move(&args[0].tree()?).map_or(f64::INFINITY, |(length, _)| length)))
}

fn clearance_line(args: &[Arg<'_>]) -> Result<Value> {
    Ok(match shortest_move(&args[0].tree()?) {
        Some((_, way)) => Tree::of_positions(GeometryKind::LineString, Dimensions::XY, way.to_vec()),
        None => Tree::empty(GeometryKind::LineString, Dimensions::XY),
    }
    .into())
}
