//! The part of a path or a polygon between two meridians.
//!
//! New positions lie exactly on the meridians. Their other numbers are interpolated, the same for
//! both directions of an edge.

use super::edges::EdgeTree;
use super::segment::Location;
use crate::Point;

/// x, y and, if there are, z and m.
pub(super) type Vertex = [f64; 4];

/// A closed ring.
pub(super) type Ring = Vec<Vertex>;

pub(super) fn ring_points(ring: &[Vertex]) -> Vec<Point> {
    ring.iter().map(|vertex| Point::new(vertex[0], vertex[1])).collect()
}

/// Where the edge from `a` to `b` crosses `x`.
fn crossing(a: &Vertex, b: &Vertex, x: f64) -> Vertex {
    let (west, east) = if a[0] < b[0] { (a, b) } else { (b, a) };
    let share = (x - west[0]) / (east[0] - west[0]);
    let mut vertex: Vertex = std::array::from_fn(|index| west[index] + share * (east[index] - west[index]));
    vertex[0] = x;
    vertex
}

/// A path with a position wherever it crosses `x`.
fn with_crossings(path: &[Vertex], x: f64) -> Vec<Vertex> {
    let mut all: Vec<Vertex> = Vec::with_capacity(path.len() + 2);
    for vertex in path {
        if let Some(last) = all.last()
            && ((last[0] < x && x < vertex[0]) || (vertex[0] < x && x < last[0]))
        {
            all.push(crossing(last, vertex, x));
        }
        all.push(*vertex);
    }
    all
}

/// The pieces of a path between `west` and `east`. A piece along a meridian belongs to the west of
/// it, if any part of the path does.
pub(super) fn clip_path(path: &[Vertex], west: f64, east: f64) -> Vec<Vec<Vertex>> {
    let goes_west = path.iter().any(|vertex| vertex[0] < west);
    let path = with_crossings(&with_crossings(path, west), east);
    let mut pieces: Vec<Vec<Vertex>> = Vec::new();
    let mut is_open = false;
    for edge in path.windows(2) {
        let [a, b] = [edge[0], edge[1]];
        let is_between = a[0].min(b[0]) >= west && a[0].max(b[0]) <= east;
        let is_along_west = a[0] == west && b[0] == west;
        if !is_between || (is_along_west && goes_west) {
            is_open = false;
            continue;
        }
        match pieces.last_mut() {
            Some(piece) if is_open => piece.push(b),
            _ => pieces.push(vec![a, b]),
        }
        is_open = true;
    }
    // A path that only stays on a meridian leaves nothing.
    pieces.retain(|piece| piece.iter().any(|vertex| vertex[..2] != piece[0][..2]));
    pieces
}

/// The parts of a polygon between `west` and `east`, each with its outer ring first; `None` if a
/// hole lies in none of them.
pub(super) fn clip_polygon(rings: &[Ring], west: f64, east: f64) -> Option<Vec<Vec<Ring>>> {
    let mirrored = |rings: &mut [Ring]| rings.iter_mut().flatten().for_each(|vertex| vertex[0] = -vertex[0]);
    let mut parts = Vec::new();
    for mut part in clip_below(rings, east)? {
        mirrored(&mut part);
        for mut piece in clip_below(&part, -west)? {
            mirrored(&mut piece);
            parts.push(piece);
        }
    }
    Some(parts)
}

/// One end of a chain on the meridian.
struct End {
    chain: usize,
    is_last: bool,
    y: f64,
    /// How steeply the chain leaves the meridian.
    slope: f64,
}

/// The parts of a polygon at or below `x`.
fn clip_below(rings: &[Ring], x: f64) -> Option<Vec<Vec<Ring>>> {
    let Some(outer) = rings.first() else {
        return Some(Vec::new());
    };
    if outer.iter().all(|vertex| vertex[0] <= x) {
        return Some(vec![rings.to_vec()]);
    }
    let (mut chains, mut holes) = (Vec::new(), Vec::new());
    for ring in rings {
        // A hole that touches the meridian in one place remains a hole. Between two such places, it
        // divides the polygon.
        let touches = ring.iter().skip(1).filter(|vertex| vertex[0] == x).count();
        if ring.iter().all(|vertex| vertex[0] <= x) && touches <= 1 {
            holes.push(ring.clone());
        } else {
            chains.append(&mut chains_below(ring, x));
        }
    }
    let mut parts: Vec<Vec<Ring>> = join(chains, x).into_iter().map(|ring| vec![ring]).collect();
    let shells: Vec<EdgeTree> = parts.iter().map(|part| EdgeTree::of_ring(&ring_points(&part[0]))).collect();
    for hole in holes {
        let points = ring_points(&hole);
        let holds = |shell: &EdgeTree| {
            let mut places = points.iter().map(|point| shell.locate(*point));
            places.find(|place| *place != Location::Boundary) != Some(Location::Outside)
        };
        parts[shells.iter().position(holds)?].push(hole);
    }
    Some(parts)
}

/// The part of a ring below `x`, as chains from meridian to meridian.
fn chains_below(ring: &[Vertex], x: f64) -> Vec<Vec<Vertex>> {
    let ring = with_crossings(ring, x);
    let Some(start) = ring.iter().position(|vertex| vertex[0] >= x) else {
        return Vec::new();
    };
    // The last position repeats the first.
    let count = ring.len() - 1;
    let at = |step: usize| &ring[(start + step) % count];
    let mut chains: Vec<Vec<Vertex>> = Vec::new();
    let mut is_open = false;
    for step in 1..=count {
        let vertex = *at(step);
        let is_below = vertex[0] < x;
        match chains.last_mut() {
            Some(chain) if is_open => chain.push(vertex),
            _ if is_below => chains.push(vec![*at(step - 1), vertex]),
            _ => {}
        }
        is_open = is_below;
    }
    chains
}

/// Joins chains to rings along the meridian. Going up directly below it, the polygon begins at the
/// first chain and ends at the second, and so on.
fn join(chains: Vec<Vec<Vertex>>, x: f64) -> Vec<Ring> {
    let mut ends: Vec<End> = Vec::new();
    for (chain, vertices) in chains.iter().enumerate() {
        let mut end = |is_last: bool, place: Option<&Vertex>, next: Option<&Vertex>| {
            if let (Some(place), Some(next)) = (place, next) {
                ends.push(End { chain, is_last, y: place[1], slope: (next[1] - place[1]) / (x - next[0]) });
            }
        };
        end(false, vertices.first(), vertices.get(1));
        end(true, vertices.last(), vertices.iter().rev().nth(1));
    }
    ends.sort_by(|a, b| a.y.total_cmp(&b.y).then(a.slope.total_cmp(&b.slope)));
    // The end at which each end continues: by chain, its first and its last end.
    let mut partners = vec![[(0, false); 2]; chains.len()];
    for pair in ends.chunks_exact(2) {
        partners[pair[0].chain][usize::from(pair[0].is_last)] = (pair[1].chain, pair[1].is_last);
        partners[pair[1].chain][usize::from(pair[1].is_last)] = (pair[0].chain, pair[0].is_last);
    }
    let mut is_used = vec![false; chains.len()];
    let mut rings = Vec::new();
    for first in 0..chains.len() {
        let mut ring: Ring = Vec::new();
        let (mut chain, mut is_backwards) = (first, false);
        while !is_used[chain] {
            is_used[chain] = true;
            let vertices = chains[chain].iter().copied();
            if is_backwards {
                ring.extend(vertices.rev())
            } else {
                ring.extend(vertices)
            }
            // A chain entered at one end is left at the other.
            (chain, is_backwards) = partners[chain][usize::from(!is_backwards)];
        }
        if let Some(start) = ring.first().copied() {
            ring.push(start);
            ring.dedup_by(|b, a| a[..2] == b[..2]);
            rings.push(ring);
        }
    }
    rings
}
