//! The curve against brute force on small orders, and the tables against the bitwise definition.

use proptest::prelude::*;

use super::window::next_in_window_of_order;
use super::*;

fn grid_point_strategy() -> impl Strategy<Value = GridPoint> {
    (any::<u32>(), any::<u32>()).prop_map(|(x, y)| GridPoint { x, y })
}

#[test]
fn the_curve_visits_every_cell_once_and_moves_one_cell_at_a_time() {
    for order in 1..=7 {
        let cells = 1u64 << (2 * order);
        let mut previous: Option<(u32, u32)> = None;
        for value in 0..cells {
            let (x, y) = coordinates_of_order(value, order);
            assert_eq!(value_of_order(x, y, order), value, "order {order}");
            if let Some((px, py)) = previous {
                assert_eq!(px.abs_diff(x) + py.abs_diff(y), 1, "order {order}, value {value}");
            }
            previous = Some((x, y));
        }
    }
}

#[test]
fn the_curve_of_the_first_order_is_the_papers() {
    let cells: Vec<_> = (0..4).map(|value| coordinates_of_order(value, 1)).collect();
    assert_eq!(cells, [(0, 0), (0, 1), (1, 1), (1, 0)]);
}

#[test]
fn next_in_window_agrees_with_a_scan_for_every_window_of_a_small_curve() {
    let order = 3;
    let side = 1u32 << order;
    for x0 in 0..side {
        for x1 in x0..side {
            for y0 in 0..side {
                for y1 in y0..side {
                    let window = GridRect { x0, y0, x1, y1 };
                    let mut expected = None;
                    for value in (0..1u64 << (2 * order)).rev() {
                        let (x, y) = coordinates_of_order(value, order);
                        if window.contains(x, y) {
                            expected = Some(value);
                        }
                        let found = next_in_window_of_order(value, window, order);
                        assert_eq!(found, expected, "{window:?} from {value}");
                    }
                }
            }
        }
    }
}

#[test]
fn ranges_hold_every_window_of_a_small_curve_and_nothing_else_where_they_may_be_many() {
    let order = 3;
    let side = 1u32 << order;
    let windows = (0..side).flat_map(|x0| (x0..side).flat_map(move |x1| (0..side).map(move |y0| (x0, x1, y0))));
    for (x0, x1, y0) in windows {
        for y1 in y0..side {
            let window = GridRect { x0, y0, x1, y1 };
            let inside = |value: u64| {
                let (x, y) = coordinates_of_order(value, order);
                window.contains(x, y)
            };
            for ranges_max in [1, 2, 3, 5, 64] {
                let ranges = ranges_in_window(window, order, ranges_max);
                assert!(ranges.is_sorted_by(|a, b| a.1 + 1 < b.0), "{window:?}: {ranges:?}");
                assert!(ranges.len() <= ranges_max);
                for value in 0..1u64 << (2 * order) {
                    let held = ranges.iter().any(|(first, last)| (*first..=*last).contains(&value));
                    assert!(held || !inside(value), "{window:?} misses {value} with {ranges_max}");
                    assert!(ranges_max < 64 || !held || inside(value), "{window:?} has {value} outside");
                }
            }
        }
    }
    let all = GridRect { x0: 0, y0: 0, x1: u32::MAX, y1: u32::MAX };
    assert_eq!(ranges_in_window(all, ORDER_BITS, 5), [(0, u64::MAX)]);
    let outside = GridRect { x0: 8, y0: 0, x1: 9, y1: 0 };
    assert!(ranges_in_window(outside, order, 5).is_empty());
}

#[test]
fn next_in_window_handles_the_ends_of_the_full_curve() {
    let all = GridRect { x0: 0, y0: 0, x1: u32::MAX, y1: u32::MAX };
    assert_eq!(next_in_window(0, all), Some(0));
    assert_eq!(next_in_window(u64::MAX, all), Some(u64::MAX));
    let origin = GridRect { x0: 0, y0: 0, x1: 0, y1: 0 };
    assert_eq!(next_in_window(0, origin), Some(0));
    assert_eq!(next_in_window(1, origin), None);
    let end = GridRect { x0: u32::MAX, y0: 0, x1: u32::MAX, y1: 0 };
    assert_eq!(next_in_window(1, end), Some(u64::MAX));
}

#[test]
fn the_limits_of_the_globe_fall_into_the_outer_cells() {
    let system = CoordinateSystem::LonLat;
    assert_eq!(grid_point(system, Point::new(-180.0, -90.0)), GridPoint { x: 0, y: 0 });
    assert_eq!(grid_point(system, Point::new(180.0, 90.0)), GridPoint { x: u32::MAX, y: u32::MAX });
}

proptest! {
    #[test]
    fn the_tables_agree_with_the_bitwise_definition(point in grid_point_strategy()) {
        let expected = value_of_order(point.x, point.y, ORDER_BITS);
        prop_assert_eq!(value(point.x, point.y), expected);
        prop_assert_eq!(coordinates(expected), (point.x, point.y));
        prop_assert_eq!(coordinates_of_order(expected, ORDER_BITS), (point.x, point.y));
    }

    #[test]
    fn a_prefix_of_the_value_is_the_value_of_the_enclosing_square(
        point in grid_point_strategy(), cut in 1u32..32,
    ) {
        let square = value_of_order(point.x >> cut, point.y >> cut, ORDER_BITS - cut);
        prop_assert_eq!(value(point.x, point.y) >> (2 * cut), square);
    }

    #[test]
    fn compare_agrees_with_the_values(a in grid_point_strategy(), flips in any::<(u32, u32)>(), shift in 0u32..33) {
        let keep = |flip: u32| flip.checked_shr(shift).unwrap_or(0);
        let b = GridPoint { x: a.x ^ keep(flips.0), y: a.y ^ keep(flips.1) };
        prop_assert_eq!(compare(a, b), value(a.x, a.y).cmp(&value(b.x, b.y)));
    }

    #[test]
    fn next_in_window_is_in_the_window_and_nothing_is_skipped(
        start in any::<u64>(), a in grid_point_strategy(), size in (0u32..50, 0u32..50),
    ) {
        let window = GridRect {
            x0: a.x, y0: a.y, x1: a.x.saturating_add(size.0), y1: a.y.saturating_add(size.1),
        };
        let expected = (window.x0..=window.x1)
            .flat_map(|x| (window.y0..=window.y1).map(move |y| value(x, y)))
            .filter(|value| *value >= start)
            .min();
        prop_assert_eq!(next_in_window(start, window), expected);
    }

    #[test]
    fn grid_cells_are_monotone(a in any::<f64>(), b in any::<f64>()) {
        prop_assume!(!a.is_nan() && !b.is_nan());
        let (low, high) = (a.min(b), a.max(b));
        let column = |x| grid_point(CoordinateSystem::Planar, Point::new(x, 0.0)).x;
        prop_assert!(column(low) <= column(high));
    }
}
