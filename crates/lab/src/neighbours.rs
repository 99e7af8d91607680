//! A k-d tree over the workload's points: the independent reference.
//!
//! It sizes the windows when a workload is generated, and gives the expected answer for every
//! system. It is a plain implicit median tree, simple enough to be trusted. Its own test is a
//! linear scan.

use crate::workload::{Location, Points, Window};

const LEAF_POINTS: usize = 8;

/// A distance measure, as a number that orders like the distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// The larger of the two coordinate differences.
    Chebyshev,
    /// The square of the straight-line distance.
    EuclideanSquared,
}

impl Metric {
    fn between(self, dx: f64, dy: f64) -> f64 {
        match self {
            Metric::Chebyshev => dx.abs().max(dy.abs()),
            Metric::EuclideanSquared => dx * dx + dy * dy,
        }
    }
}

/// One neighbour: its distance under the given metric, and its position in the points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Neighbour {
    /// Distance in the units of the metric.
    pub distance: f64,
    /// Row number in [`Points`].
    pub row: u32,
}

/// An implicit k-d tree: the middle of each range splits it, x and y in turn.
pub struct NeighbourTree<'a> {
    points: &'a Points,
    rows: Vec<u32>,
}

impl<'a> NeighbourTree<'a> {
    /// Builds the tree in O(n log n).
    pub fn new(points: &'a Points) -> Self {
        let count = u32::try_from(points.len()).expect("a workload has fewer than 2^32 points");
        let mut rows: Vec<u32> = (0..count).collect();
        arrange(points, &mut rows, 0);
        Self { points, rows }
    }

    /// The `count` nearest points, nearest first; fewer if there are fewer points.
    pub fn nearest(&self, at: Location, count: usize, metric: Metric) -> Vec<Neighbour> {
        let mut best = Vec::with_capacity(count + 1);
        if count > 0 {
            self.descend(at, count, metric, 0, self.rows.len(), 0, &mut best);
        }
        best
    }

    /// Rows of all points inside the closed window, in no order.
    pub fn window(&self, window: &Window) -> Vec<u32> {
        let mut found = Vec::new();
        self.collect(window, 0, self.rows.len(), 0, &mut found);
        found
    }

    #[allow(clippy::too_many_arguments)]
    fn descend(
        &self,
        at: Location,
        count: usize,
        metric: Metric,
        low: usize,
        high: usize,
        depth: usize,
        best: &mut Vec<Neighbour>,
    ) {
        if high - low <= LEAF_POINTS {
            for &row in &self.rows[low..high] {
                self.offer(at, count, metric, row, best);
            }
            return;
        }
        let middle = low + (high - low) / 2;
        let row = self.rows[middle];
        let offset = axis(at, depth) - axis(self.points.location(row as usize), depth);
        self.offer(at, count, metric, row, best);
        let (near, far) =
            if offset < 0.0 { ((low, middle), (middle + 1, high)) } else { ((middle + 1, high), (low, middle)) };
        self.descend(at, count, metric, near.0, near.1, depth + 1, best);
        let reach = metric.between(offset, 0.0);
        if best.len() < count || best.last().is_some_and(|worst| reach <= worst.distance) {
            self.descend(at, count, metric, far.0, far.1, depth + 1, best);
        }
    }

    fn offer(&self, at: Location, count: usize, metric: Metric, row: u32, best: &mut Vec<Neighbour>) {
        let location = self.points.location(row as usize);
        let distance = metric.between(at.x - location.x, at.y - location.y);
        if best.len() == count && best.last().is_some_and(|worst| worst.distance <= distance) {
            return;
        }
        let place = best.partition_point(|other| other.distance <= distance);
        best.insert(place, Neighbour { distance, row });
        best.truncate(count);
    }

    fn collect(&self, window: &Window, low: usize, high: usize, depth: usize, found: &mut Vec<u32>) {
        if high - low <= LEAF_POINTS {
            for &row in &self.rows[low..high] {
                if window.contains(self.points.location(row as usize)) {
                    found.push(row);
                }
            }
            return;
        }
        let middle = low + (high - low) / 2;
        let row = self.rows[middle];
        let location = self.points.location(row as usize);
        if window.contains(location) {
            found.push(row);
        }
        let split = axis(location, depth);
        let (from, to) = if depth.is_multiple_of(2) { (window.x0, window.x1) } else { (window.y0, window.y1) };
        if from <= split {
            self.collect(window, low, middle, depth + 1, found);
        }
        if to >= split {
            self.collect(window, middle + 1, high, depth + 1, found);
        }
    }
}

fn axis(location: Location, depth: usize) -> f64 {
    if depth.is_multiple_of(2) { location.x } else { location.y }
}

fn arrange(points: &Points, rows: &mut [u32], depth: usize) {
    if rows.len() <= LEAF_POINTS {
        return;
    }
    let middle = rows.len() / 2;
    rows.select_nth_unstable_by(middle, |&a, &b| {
        axis(points.location(a as usize), depth).total_cmp(&axis(points.location(b as usize), depth))
    });
    let (left, right) = rows.split_at_mut(middle);
    arrange(points, left, depth + 1);
    arrange(points, &mut right[1..], depth + 1);
}

#[cfg(test)]
#[path = "neighbours_tests.rs"]
mod tests;
