//! The lines of a query geometry.

use super::area::path_rect;
use super::boxes::sort_by_place;
use super::edges::EdgeTree;
use super::segment::edges;
use crate::Point;

/// Lines as one set of edges, with their OGC boundary: the ends that an odd number of lines share.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    pub tree: EdgeTree,
    pub starts: Vec<Point>,
    boundary: EdgeTree,
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
        let mut paths: Vec<&Vec<Point>> = lines.iter().collect();
        sort_by_place(&mut paths, |path| path_rect(path));
        Self {
            tree: EdgeTree::new(paths.into_iter().flat_map(|line| edges(line)).collect()),
            starts: lines.iter().filter_map(|line| line.first().copied()).collect(),
            boundary: EdgeTree::of_points(&boundary),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Whether `point` is one of the ends that bound the lines.
    pub fn is_boundary(&self, point: Point) -> bool {
        self.boundary.holds(point)
    }
}
