use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::workload::Record;

/// Points on a coarse grid, so that many coordinates and distances tie.
fn points(random: &mut StdRng, count: usize) -> Points {
    let mut points = Points::default();
    for id in 0..count as i64 {
        let location =
            Location { x: f64::from(random.random_range(-20..20)), y: f64::from(random.random_range(-20..20)) };
        points.push(Record { id, time_us: 0, location });
    }
    points
}

fn place(random: &mut StdRng) -> Location {
    Location { x: random.random_range(-25.0..25.0), y: random.random_range(-25.0..25.0) }
}

#[test]
fn neighbours_are_those_of_a_linear_scan() {
    for seed in 0..60 {
        let mut random = StdRng::seed_from_u64(seed);
        let count = random.random_range(0..300);
        let points = points(&mut random, count);
        let tree = NeighbourTree::new(&points);
        for metric in [Metric::Chebyshev, Metric::EuclideanSquared] {
            let from = place(&mut random);
            let k = random.random_range(0..20);
            let mut expected: Vec<f64> = (0..count)
                .map(|row| {
                    let at = points.location(row);
                    metric.between(from.x - at.x, from.y - at.y)
                })
                .collect();
            expected.sort_by(f64::total_cmp);
            expected.truncate(k);
            let found = tree.nearest(from, k, metric);
            let distances: Vec<f64> = found.iter().map(|n| n.distance).collect();
            assert_eq!(distances, expected, "seed {seed}, {metric:?}, k {k}");
            let mut rows: Vec<u32> = found.iter().map(|n| n.row).collect();
            rows.sort_unstable();
            rows.dedup();
            assert_eq!(rows.len(), expected.len(), "seed {seed}: a point came twice");
        }
    }
}

#[test]
fn windows_are_those_of_a_linear_scan() {
    for seed in 0..60 {
        let mut random = StdRng::seed_from_u64(seed);
        let count = random.random_range(0..300);
        let points = points(&mut random, count);
        let tree = NeighbourTree::new(&points);
        // Corners on the grid put points exactly on the border.
        let corner = |random: &mut StdRng| f64::from(random.random_range(-22..22));
        let (x0, y0) = (corner(&mut random), corner(&mut random));
        let window = Window {
            x0,
            y0,
            x1: x0 + f64::from(random.random_range(0..15)),
            y1: y0 + f64::from(random.random_range(0..15)),
        };
        let mut found = tree.window(&window);
        found.sort_unstable();
        let expected: Vec<u32> =
            (0..count as u32).filter(|&row| window.contains(points.location(row as usize))).collect();
        assert_eq!(found, expected, "seed {seed}, {window:?}");
    }
}
