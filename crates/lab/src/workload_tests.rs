use std::collections::HashSet;

use super::*;

const COUNT: usize = 5_000;

fn points() -> Points {
    Points::generate(COUNT).unwrap()
}

#[test]
fn the_same_size_gives_the_same_points_with_dense_ids_and_rising_times() {
    let points = points();
    assert_eq!(points, self::points());
    assert_eq!(points.id, (0..COUNT as i64).collect::<Vec<_>>());
    let steps: HashSet<i64> = points.time_us.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(steps, HashSet::from([0, 1_000_000, 2_000_000]));
}

/// Figures of different days are comparable only over the same data. A dependency may not change it
/// unnoticed.
#[test]
fn the_workload_is_the_one_of_record() {
    let mut digest = 0_u64;
    for record in points().records() {
        for bits in [record.location.x.to_bits(), record.location.y.to_bits(), record.time_us as u64] {
            digest = digest.rotate_left(7) ^ bits;
        }
    }
    assert_eq!(digest, 6_942_996_498_938_878_423);
}

#[test]
fn points_fill_the_extent_and_crowd_around_centres() {
    let points = points();
    let tree = NeighbourTree::new(&points);
    assert_eq!(tree.window(&EXTENT).len(), COUNT);
    // If all points were uniform, such a window would hold two points.
    let crowded = (0..COUNT).filter(|&row| tree.window(&Window::around(points.location(row), 0.3)).len() > 10).count();
    assert!(crowded > COUNT / 4, "{crowded} of {COUNT} are crowded");
    let alone = (0..COUNT).filter(|&row| tree.window(&Window::around(points.location(row), 0.3)).len() <= 3).count();
    assert!(alone > COUNT / 50, "{alone} of {COUNT} stand alone");
}

#[test]
fn windows_have_as_many_hits_as_asked_for() {
    let points = points();
    let tree = NeighbourTree::new(&points);
    for hits in [10, 100] {
        let drawn = windows(&points, &tree, hits, 50).unwrap();
        assert_eq!(drawn.queries.len(), 50);
        for (window, &id_sum) in drawn.queries.iter().zip(&drawn.id_sums) {
            let inside: Vec<Record> = points.records().filter(|record| window.contains(record.location)).collect();
            assert_eq!(inside.len(), hits, "{window:?}");
            let sum: i64 = inside.iter().map(|record| record.id).sum();
            assert_eq!(sum as u64, id_sum, "{window:?}");
        }
    }
}

#[test]
fn windows_of_more_hits_than_points_are_refused() {
    let points = Points::generate(50).unwrap();
    let tree = NeighbourTree::new(&points);
    assert!(windows(&points, &tree, 100, 1).is_err());
    assert!(nearest(&points, &tree, 50, 1).is_err());
}

#[test]
fn coinciding_points_end_in_an_error_instead_of_endless_redraws() {
    let mut points = Points::default();
    for id in 0..200 {
        points.push(Record { id, time_us: 0, location: Location { x: 1.0, y: 1.0 } });
    }
    let tree = NeighbourTree::new(&points);
    assert!(windows(&points, &tree, 10, 1).is_err());
    assert!(nearest(&points, &tree, 10, 1).is_err());
}

#[test]
fn nearest_answers_are_those_of_a_linear_scan() {
    let points = points();
    let tree = NeighbourTree::new(&points);
    let drawn = nearest(&points, &tree, 10, 50).unwrap();
    for (from, &id_sum) in drawn.queries.iter().zip(&drawn.id_sums) {
        let mut ranked: Vec<(f64, i64)> = points
            .records()
            .map(|record| {
                let (dx, dy) = (record.location.x - from.x, record.location.y - from.y);
                (dx * dx + dy * dy, record.id)
            })
            .collect();
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
        let sum: i64 = ranked[..10].iter().map(|(_, id)| id).sum();
        assert_eq!(sum as u64, id_sum, "{from:?}");
    }
}

#[test]
fn dealing_loses_and_repeats_nothing_and_spreads_every_part() {
    let points = points();
    let parts = points.deal(5);
    assert_eq!(parts.len(), 5);
    let mut ids: Vec<i64> = parts.iter().flat_map(|part| part.id.clone()).collect();
    ids.sort_unstable();
    assert_eq!(ids, points.id);
    for part in &parts {
        assert_eq!(part.len(), COUNT / 5);
        let west = part.x.iter().filter(|&&x| x < -95.75).count();
        assert!((100..900).contains(&west), "{west} of 1000 in the west");
        let row = part.len() / 2;
        assert_eq!(part.record(row), points.record(part.id[row] as usize));
    }
}

#[test]
fn random_keys_are_distinct_and_change_nothing_else() {
    let points = points();
    let random = points.with_random_keys();
    assert_eq!(random.x, points.x);
    let distinct: HashSet<i64> = random.id.iter().copied().collect();
    assert_eq!(distinct.len(), COUNT);
    let negative = random.id.iter().filter(|&&id| id < 0).count();
    assert!((COUNT * 2 / 5..COUNT * 3 / 5).contains(&negative));
}

#[test]
fn a_parquet_file_gives_the_points_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("points.parquet");
    // More than one batch, the last one not full.
    let points = Points::generate(20_001).unwrap();
    crate::parquet_file::write(&points, &path).unwrap();
    assert_eq!(crate::parquet_file::read_points(&path).unwrap(), points);
}
