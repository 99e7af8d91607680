//! Triangles between the vertices of a geometry, and hulls made of them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use datafusion::common::{Result, exec_datafusion_err, exec_err};
use spade::{DelaunayTriangulation, Point2, Triangulation};
use terrane_space::geometry::{Coordinates, Dimensions, GeometryKind, Tree};

use super::Kind::{Bool as B, Geometry as G, Int as I, Number as N};
use super::measure::distance;
use super::network::{Key, area_tree, key, polygons, trace};
use super::overlay::convex_hull;
use super::tail::{Arg, Tail, Value, shape as of};

/// The functions.
pub(super) const FUNCTIONS: &[Tail] = &[
    of(&["st_delaunaytriangles"], &[G, N, I], 1, delaunay_triangles),
    of(&["st_concavehull"], &[G, N, B], 2, concave_hull),
];

/// Turns left.
type Triangle = [Coordinates; 3];

/// The Delaunay triangles of all positions.
fn triangles(tree: &Tree) -> Result<Vec<Triangle>> {
    let mut places = Vec::new();
    tree.visit(&mut |position| places.push(Point2::new(position[0], position[1])));
    let triangulation = DelaunayTriangulation::<Point2<f64>>::bulk_load(places)
        .map_err(|error| exec_datafusion_err!("the positions cannot be triangulated: {error}"))?;
    let corner = |place: Point2<f64>| [place.x, place.y, 0.0, 0.0];
    Ok(triangulation.inner_faces().map(|face| face.positions().map(corner)).collect())
}

fn ends(a: &Coordinates, b: &Coordinates) -> [Key; 2] {
    let (a, b) = (key(a), key(b));
    [a.min(b), a.max(b)]
}

fn delaunay_triangles(args: &[Arg<'_>]) -> Result<Value> {
    let tree = args[0].tree()?;
    let snap = args.get(1).map_or(Ok(0.0), Arg::number)?;
    if snap != 0.0 {
        return exec_err!("st_delaunaytriangles with a tolerance is not available; use 0");
    }
    let triangles = triangles(&tree)?;
    let corners = |triangle: Triangle| vec![triangle[0], triangle[1], triangle[2], triangle[0]];
    Ok(match args.get(2).map_or(Ok(0), Arg::int)? {
        0 => {
            let members = triangles.into_iter().map(|three| area_tree(vec![corners(three)], Dimensions::XY)).collect();
            Tree::of_members(GeometryKind::GeometryCollection, Dimensions::XY, members)
        }
        1 => {
            let mut seen = std::collections::HashSet::new();
            let edges = triangles.iter().flat_map(|[a, b, c]| [[*a, *b], [*b, *c], [*c, *a]]);
            let edges = edges.filter(|[a, b]| seen.insert(ends(a, b)));
            let line =
                |edge: [Coordinates; 2]| Tree::of_positions(GeometryKind::LineString, Dimensions::XY, edge.to_vec());
            Tree::of_members(GeometryKind::MultiLineString, Dimensions::XY, edges.map(line).collect())
        }
        other => return exec_err!("{other} is not a form of the triangles; use 0 for polygons or 1 for lines"),
    }
    .into())
}

/// A positive number, ordered by its bits.
fn ordered(length: f64) -> u64 {
    length.to_bits()
}

/// The triangles of a hull.
struct Hull {
    triangles: Vec<Triangle>,
    is_removed: Vec<bool>,
    /// The triangles at each edge.
    beside: HashMap<[Key; 2], Vec<usize>>,
}

impl Hull {
    fn edges(&self, triangle: usize) -> [[Key; 2]; 3] {
        let [a, b, c] = &self.triangles[triangle];
        [ends(a, b), ends(b, c), ends(c, a)]
    }

    fn longest(&self, triangle: usize) -> f64 {
        let [a, b, c] = &self.triangles[triangle];
        distance(a, b).max(distance(b, c)).max(distance(c, a))
    }

    /// The length of its edges on the border.
    fn outer_length(&self, triangle: usize) -> f64 {
        let [a, b, c] = &self.triangles[triangle];
        let outer = [(a, b), (b, c), (c, a)].into_iter().filter(|(a, b)| self.kept_beside(&ends(a, b)) == 1);
        outer.map(|(a, b)| distance(a, b)).sum()
    }

    fn neighbours(&self, triangle: usize) -> Vec<usize> {
        let around = self.edges(triangle).into_iter().filter_map(|edge| self.beside.get(&edge)).flatten().copied();
        around.filter(|other| *other != triangle && !self.is_removed[*other]).collect()
    }

    /// The vertices on the border.
    fn border(&self) -> std::collections::HashSet<Key> {
        let kept = (0..self.triangles.len()).filter(|triangle| !self.is_removed[*triangle]);
        let edges = kept.flat_map(|triangle| self.edges(triangle));
        edges.filter(|edge| self.kept_beside(edge) == 1).flatten().collect()
    }

    fn kept_beside(&self, edge: &[Key; 2]) -> usize {
        self.beside.get(edge).map_or(0, |beside| beside.iter().filter(|other| !self.is_removed[**other]).count())
    }

    /// Takes triangles with long edges away from the border, as long as the rest stays one area
    /// with all vertices.
    fn erode(&mut self, length_max: f64) {
        let mut border = self.border();
        let mut queue: BinaryHeap<(u64, Reverse<usize>)> = BinaryHeap::new();
        let is_candidate = |hull: &Self, triangle: usize| hull.neighbours(triangle).len() == 2;
        for triangle in (0..self.triangles.len()).filter(|triangle| is_candidate(self, *triangle)) {
            queue.push((ordered(self.outer_length(triangle)), Reverse(triangle)));
        }
        while let Some((length, Reverse(triangle))) = queue.pop() {
            if length < ordered(length_max) {
                break;
            }
            if self.is_removed[triangle] || !is_candidate(self, triangle) {
                continue;
            }
            let Some(outer) = self.edges(triangle).into_iter().find(|edge| self.kept_beside(edge) == 1) else {
                continue;
            };
            let inner = self.triangles[triangle].iter().map(key).find(|corner| !outer.contains(corner));
            let Some(inner) = inner.filter(|inner| !border.contains(inner)) else { continue };
            self.is_removed[triangle] = true;
            border.insert(inner);
            for other in self.neighbours(triangle).into_iter().filter(|other| is_candidate(self, *other)) {
                queue.push((ordered(self.outer_length(other)), Reverse(other)));
            }
        }
    }

    /// Makes holes of triangles with long edges that touch no border.
    fn hollow(&mut self, length_max: f64) {
        let mut long: Vec<usize> = (0..self.triangles.len())
            .filter(|triangle| !self.is_removed[*triangle] && self.longest(*triangle) >= length_max)
            .collect();
        long.sort_by(|a, b| self.longest(*b).total_cmp(&self.longest(*a)));
        let mut border = self.border();
        for triangle in long {
            let touches = self.triangles[triangle].iter().any(|corner| border.contains(&key(corner)));
            if self.is_removed[triangle] || touches {
                continue;
            }
            self.is_removed[triangle] = true;
            self.erode(length_max);
            border = self.border();
        }
    }
}

fn concave_hull(args: &[Arg<'_>]) -> Result<Value> {
    let (tree, ratio) = (args[0].tree()?, args[1].number()?);
    let has_holes = args.get(2).map_or(Ok(false), Arg::bool)?;
    if !(0.0..=1.0).contains(&ratio) {
        return exec_err!("{ratio} is not a share of the longest edge; use a number from 0 to 1");
    }
    let triangles = triangles(&tree)?;
    if triangles.is_empty() || ratio == 1.0 {
        return convex_hull(args);
    }
    let mut beside: HashMap<[Key; 2], Vec<usize>> = HashMap::new();
    let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
    for (number, [a, b, c]) in triangles.iter().enumerate() {
        for (from, to) in [(a, b), (b, c), (c, a)] {
            beside.entry(ends(from, to)).or_default().push(number);
            least = least.min(distance(from, to));
            most = most.max(distance(from, to));
        }
    }
    let length_max = ratio * (most - least) + least;
    let mut hull = Hull { is_removed: vec![false; triangles.len()], triangles, beside };
    hull.erode(length_max);
    if has_holes {
        hull.hollow(length_max);
    }
    let kept = (0..hull.triangles.len()).filter(|triangle| !hull.is_removed[*triangle]);
    let halves = kept.flat_map(|triangle| {
        let [a, b, c] = hull.triangles[triangle];
        [[a, b], [b, c], [c, a]]
    });
    let outer: Vec<[Coordinates; 2]> = halves.filter(|[a, b]| hull.kept_beside(&ends(a, b)) == 1).collect();
    let Some(rings) = polygons(trace(&outer)).into_iter().next() else { return convex_hull(args) };
    Ok(area_tree(rings, Dimensions::XY).into())
}
