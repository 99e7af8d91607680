//! The lines of a query geometry, and what is within them.

use geo::kernels::Orientation;

use super::edges::EdgeTree;
use super::segment::{Segment, edges, orientation};
use crate::Point;

/// Lines as one set of edges with the boundary that OGC gives them: the ends
/// that an odd number of lines share.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    pub tree: EdgeTree,
    pub starts: Vec<Point>,
    boundary: Vec<Point>,
}

impl Lines {
    pub fn new(lines: &[Vec<Point>]) -> Self {
        let mut boundary: Vec<Point> = Vec::new();
        let ends = lines.iter().flat_map(|line| line.first().into_iter().chain(line.last()));
        let mut ends: Vec<Point> = ends.map(|end| Point::new(end.x + 0.0, end.y + 0.0)).collect();
        ends.sort_by(|a, b| a.x.total_cmp(&b.x).then(a.y.total_cmp(&b.y)));
        for group in ends.chunk_by(|a, b| a == b) {
            boundary.extend(group.first().filter(|_| group.len() % 2 == 1));
        }
        Self {
            tree: EdgeTree::new(lines.iter().flat_map(|line| edges(line)).collect()),
            starts: lines.iter().filter_map(|line| line.first().copied()).collect(),
            boundary,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Whether `point` is one of the ends that bound the lines.
    pub fn is_boundary(&self, point: Point) -> bool {
        self.boundary.contains(&point)
    }

    /// Whether every edge of `path` is covered by edges along it.
    pub fn cover_path(&self, path: &[Point]) -> bool {
        edges(path).all(|edge| self.cover(&edge))
    }

    /// Along an edge, the ends of the edges that cover it are compared by one
    /// of their own coordinates: no intersection is computed.
    fn cover(&self, edge: &Segment) -> bool {
        let rect = edge.rect();
        if edge.a == edge.b {
            return self.tree.holds(edge.a);
        }
        let is_flat = rect.x1 - rect.x0 >= rect.y1 - rect.y0;
        let along = |point: Point| if is_flat { point.x } else { point.y };
        let mut spans: Vec<(f64, f64)> = Vec::new();
        self.tree.any(&|group| group.intersects(&rect), &mut |_, other| {
            let is_along =
                [other.a, other.b].iter().all(|end| orientation(edge.a, edge.b, *end) == Orientation::Collinear);
            if is_along && other.rect().intersects(&rect) {
                let (a, b) = (along(other.a), along(other.b));
                spans.push((a.min(b), a.max(b)));
            }
            false
        });
        spans.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut reached, end) = (along(edge.a).min(along(edge.b)), along(edge.a).max(along(edge.b)));
        for (first, last) in spans {
            if first > reached {
                return false;
            }
            reached = reached.max(last);
        }
        reached >= end
    }
}
