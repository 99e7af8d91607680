//! Where lines meet.

use std::collections::HashSet;

use geo::line_intersection::{LineIntersection, line_intersection};
use geo::{Coord, Line, LineString};

use super::network::{Key, key};

/// An edge of a path. Edges without a length are left out.
pub(super) struct Edge {
    pub path: usize,
    /// Its number in the path.
    pub place: usize,
    pub line: Line<f64>,
}

/// The edges of paths, from left to right.
fn edges(paths: &[LineString<f64>]) -> Vec<Edge> {
    let mut edges: Vec<Edge> = Vec::new();
    for (path, line) in paths.iter().enumerate() {
        let kept = line.lines().filter(|edge| edge.start != edge.end);
        edges.extend(kept.enumerate().map(|(place, line)| Edge { path, place, line }));
    }
    edges.sort_by(|a, b| left(a).total_cmp(&left(b)));
    edges
}

fn left(edge: &Edge) -> f64 {
    edge.line.start.x.min(edge.line.end.x)
}

/// Two edges that share one point, or all points between two.
pub(super) struct Meeting<'e> {
    pub first: &'e Edge,
    pub second: &'e Edge,
    pub from: Coord<f64>,
    pub to: Coord<f64>,
    numbers: [usize; 2],
}

impl Meeting<'_> {
    /// Whether an edge just ends where the next one of its path begins.
    pub fn is_joint(&self, paths: &[LineString<f64>]) -> bool {
        let (path, at) = (self.first.path, self.from);
        if path != self.second.path || self.from != self.to {
            return false;
        }
        let (first, second) = match self.first.place < self.second.place {
            true => (self.first, self.second),
            false => (self.second, self.first),
        };
        let follows = first.place + 1 == second.place && first.line.end == at && second.line.start == at;
        let is_closed = paths[path].0.first() == paths[path].0.last();
        let closes = is_closed && second.line.end == at && first.line.start == at && paths[path].0.first() == Some(&at);
        follows || closes
    }
}

/// Calls a function with each meeting until it returns false.
fn each_meeting(edges: &[Edge], found: &mut dyn FnMut(Meeting<'_>) -> bool) {
    for (number, first) in edges.iter().enumerate() {
        let right = first.line.start.x.max(first.line.end.x);
        let near = edges.iter().enumerate().skip(number + 1).take_while(|(_, other)| left(other) <= right);
        for (other, second) in near {
            let (from, to) = match line_intersection(first.line, second.line) {
                None => continue,
                Some(LineIntersection::Collinear { intersection }) => (intersection.start, intersection.end),
                Some(LineIntersection::SinglePoint { intersection, .. }) => (intersection, intersection),
            };
            if !found(Meeting { first, second, from, to, numbers: [number, other] }) {
                return;
            }
        }
    }
}

/// Whether all meetings of paths are allowed.
pub(super) fn all_meetings(paths: &[LineString<f64>], is_allowed: impl Fn(&Meeting<'_>) -> bool) -> bool {
    let mut holds = true;
    each_meeting(&edges(paths), &mut |meeting| {
        holds = is_allowed(&meeting);
        holds
    });
    holds
}

/// Paths with a position wherever they meet.
pub(super) struct Noded {
    pub paths: Vec<LineString<f64>>,
    /// The positions where they meet, and their ends.
    pub nodes: HashSet<Key>,
    /// Positions that two paths share.
    pub shared: Vec<(usize, usize, Coord<f64>)>,
}

pub(super) fn place_key(place: Coord<f64>) -> Key {
    key(&[place.x, place.y, 0.0, 0.0])
}

pub(super) fn noded(paths: &[LineString<f64>]) -> Noded {
    let edges = edges(paths);
    let mut cuts: Vec<Vec<Coord<f64>>> = vec![Vec::new(); edges.len()];
    let mut nodes: HashSet<Key> = HashSet::new();
    let mut shared = Vec::new();
    each_meeting(&edges, &mut |meeting| {
        if meeting.is_joint(paths) {
            return true;
        }
        for at in [meeting.from, meeting.to] {
            meeting.numbers.into_iter().for_each(|edge| cuts[edge].push(at));
            nodes.insert(place_key(at));
            if meeting.first.path != meeting.second.path {
                shared.push((meeting.first.path, meeting.second.path, at));
            }
        }
        true
    });
    let ends = paths.iter().flat_map(|path| path.0.first().into_iter().chain(path.0.last()));
    nodes.extend(ends.map(|end| place_key(*end)));
    let mut order: Vec<usize> = (0..edges.len()).collect();
    order.sort_by_key(|edge| (edges[*edge].path, edges[*edge].place));
    let mut cut_paths: Vec<LineString<f64>> = vec![LineString(Vec::new()); paths.len()];
    for number in order {
        let Line { start, end } = edges[number].line;
        let path = &mut cut_paths[edges[number].path].0;
        let away = |place: &Coord<f64>| (place.x - start.x).hypot(place.y - start.y);
        cuts[number].sort_by(|a, b| away(a).total_cmp(&away(b)));
        for place in std::iter::once(start).chain(cuts[number].iter().copied()).chain([end]) {
            if path.last() != Some(&place) {
                path.push(place);
            }
        }
    }
    Noded { paths: cut_paths, nodes, shared }
}
