//! Dissolves rings that share edges or touch themselves into polygons that do neither.

use std::collections::HashMap;

use super::band::{Ring, Vertex, ring_points};
use super::edges::EdgeTree;
use super::segment::{Segment, turn};
use super::tree::Coordinates;
use crate::{Point, Rect};

fn point(vertex: &Vertex) -> Point {
    Point::new(vertex[0], vertex[1])
}

type Key = [u64; 2];

fn key(vertex: &Vertex) -> Key {
    // -0 is the same place as 0.
    [(vertex[0] + 0.0).to_bits(), (vertex[1] + 0.0).to_bits()]
}

/// Splits each edge at the positions of other edges that lie inside it.
pub(super) fn add_touching_vertices(rings: &mut [Ring]) {
    let trees: Vec<EdgeTree> = rings.iter().map(|ring| EdgeTree::of_ring(&ring_points(ring))).collect();
    let vertices: Vec<Vertex> = rings.iter().flat_map(|ring| ring.iter().skip(1)).copied().collect();
    for (ring, tree) in rings.iter_mut().zip(trees) {
        let mut found: Vec<(usize, f64, Vertex)> = Vec::new();
        for vertex in &vertices {
            let place = point(vertex);
            tree.any(&Rect::from_point(place), &mut |index, edge| {
                if place != edge.a && place != edge.b && edge.contains(place) {
                    let share = (place.x - edge.a.x).abs() + (place.y - edge.a.y).abs();
                    found.push((index, share, *vertex));
                }
                false
            });
        }
        found.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        // From the end, so that indexes before it stay valid.
        for (index, _, vertex) in found.into_iter().rev() {
            if point(&ring[index + 1]) != point(&vertex) {
                ring.insert(index + 1, vertex);
            }
        }
    }
}

/// The polygons that closed rings bound together, each with its outer ring first. No two rings may
/// cross. An edge that two of them share bounds nothing.
pub fn dissolve(mut rings: Vec<Vec<Coordinates>>) -> Vec<Vec<Vec<Coordinates>>> {
    add_touching_vertices(&mut rings);
    let edges = rings.iter().flat_map(|ring| ring.windows(2).map(|edge| [edge[0], edge[1]]));
    let mut single: HashMap<[Key; 2], usize> = HashMap::new();
    let edges: Vec<[Vertex; 2]> = edges.filter(|[a, b]| key(a) != key(b)).collect();
    for (index, [a, b]) in edges.iter().enumerate() {
        let mut ends = [key(a), key(b)];
        ends.sort();
        if single.remove(&ends).is_none() {
            single.insert(ends, index);
        }
    }
    let mut kept: Vec<usize> = single.into_values().collect();
    kept.sort();
    let kept: Vec<[Vertex; 2]> = kept.into_iter().map(|index| edges[index]).collect();
    nest(paths(&kept).into_iter().flat_map(simple_loops).collect())
}

/// Joins edges to closed paths that may touch themselves and each other, but do not cross.
fn paths(edges: &[[Vertex; 2]]) -> Vec<Ring> {
    // The directed edges that leave a position: twice the edge's index, plus one at its end.
    let mut leaving: HashMap<Key, Vec<usize>> = HashMap::new();
    let start = |half: usize| edges[half / 2][half % 2];
    for half in 0..2 * edges.len() {
        leaving.entry(key(&start(half))).or_default().push(half);
    }
    // Neighbours around a position belong together.
    let mut partners: Vec<Option<usize>> = vec![None; 2 * edges.len()];
    for halves in leaving.values_mut() {
        let here = point(&start(halves[0]));
        halves.sort_by(|a, b| turn(here, point(&start(a ^ 1)), point(&start(b ^ 1))));
        for pair in halves.chunks_exact(2) {
            partners[pair[0]] = Some(pair[1]);
            partners[pair[1]] = Some(pair[0]);
        }
    }
    let mut is_used = vec![false; edges.len()];
    let mut paths = Vec::new();
    for first in 0..edges.len() {
        let mut path: Ring = Vec::new();
        let mut half = Some(2 * first);
        while let Some(next) = half.filter(|half| !is_used[half / 2]) {
            is_used[next / 2] = true;
            path.push(start(next));
            half = partners[next ^ 1];
        }
        path.extend(path.first().copied());
        paths.push(path);
    }
    paths
}

/// Divides a closed path wherever it returns to a position.
fn simple_loops(path: Ring) -> Vec<Ring> {
    let mut loops = Vec::new();
    let mut open: Ring = Vec::new();
    let mut places: HashMap<Key, usize> = HashMap::new();
    for vertex in path {
        if let Some(place) = places.get(&key(&vertex)).copied() {
            let mut closed = open.split_off(place);
            for vertex in &closed {
                places.remove(&key(vertex));
            }
            closed.push(vertex);
            loops.push(closed);
        }
        places.insert(key(&vertex), open.len());
        open.push(vertex);
    }
    loops
}

/// Sorts rings that share only points into outer rings, each with its holes.
fn nest(rings: Vec<Ring>) -> Vec<Vec<Ring>> {
    let trees: Vec<EdgeTree> = rings.iter().map(|ring| EdgeTree::of_ring(&ring_points(ring))).collect();
    let starts: Vec<Segment> = trees.iter().filter_map(|tree| tree.edges().first().copied()).collect();
    let around = |index: usize| {
        let is_inside = |other: &EdgeTree| other.beside(&starts[index]) == [true; 2];
        (0..trees.len()).filter(|other| *other != index && is_inside(&trees[*other])).collect::<Vec<usize>>()
    };
    let around: Vec<Vec<usize>> = (0..starts.len()).map(around).collect();
    let depth = |index: usize| around[index].len();
    let mut polygons: Vec<Vec<Ring>> = vec![Vec::new(); starts.len()];
    // Outer rings come first, at even depths; their holes are one deeper.
    for (parity, rings) in [(0, rings.clone()), (1, rings)] {
        for (index, ring) in rings.into_iter().enumerate().filter(|(index, _)| depth(*index) % 2 == parity) {
            let shell =
                if parity == 0 { Some(index) } else { around[index].iter().copied().max_by_key(|other| depth(*other)) };
            if let Some(shell) = shell {
                polygons[shell].push(ring);
            }
        }
    }
    polygons.retain(|polygon| !polygon.is_empty());
    polygons
}
