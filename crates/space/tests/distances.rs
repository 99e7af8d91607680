//! Distances from points to geometries.

use num_bigint::BigInt;
use proptest::prelude::*;
use terrane_space::geometry::*;
use terrane_space::sphere::{EARTH_RADIUS_M, distance_m, distance_to_arc_m, distance_to_rect_m};
use terrane_space::{CoordinateSystem, Point};

const DEGREE_M: f64 = EARTH_RADIUS_M * std::f64::consts::PI / 180.0;

fn measure(system: CoordinateSystem, x: f64, y: f64, text: &str) -> Option<f64> {
    let bytes = from_wkt(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let found = distance_bytes(system, Point::new(x, y), &bytes).unwrap();
    assert_eq!(distance(system, Point::new(x, y), &to_geo(&bytes).unwrap()).unwrap(), found);
    found
}

#[test]
fn planar_distances_are_euclidean() {
    for (x, y, text, expected) in [
        (0.0, 0.0, "POINT (3 4)", 5.0),
        (0.0, 0.0, "LINESTRING (-9 2, 9 2)", 2.0),
        (12.0, 6.0, "LINESTRING (-9 2, 9 2)", 5.0),
        (2.0, 2.0, "POLYGON ((0 0, 4 0, 4 4, 0 4, 0 0))", 0.0),
        (4.0, 2.0, "POLYGON ((0 0, 4 0, 4 4, 0 4, 0 0))", 0.0),
        (2.0, 2.0, "POLYGON ((0 0, 4 0, 4 4, 0 4, 0 0), (1 1, 3 1, 3 3, 1 3, 1 1))", 1.0),
        (2.0, 2.0, "GEOMETRYCOLLECTION (POINT EMPTY, MULTIPOINT (9 9, 2 5), LINESTRING (2 6, 3 7))", 3.0),
    ] {
        assert_eq!(measure(CoordinateSystem::Planar, x, y, text), Some(expected), "{text}");
    }
}

/// A record on the circle is within it.
#[test]
fn planar_distances_that_are_numbers_are_those() {
    for (x, y, text, expected) in [
        (0.05, -3.0, "LINESTRING (0 0, 0.1 0)", 3.0),
        (0.05, -3.0, "LINESTRING (3.7 0, 0 0)", 3.0),
        (0.7, 7.0, "LINESTRING (0 0, 1.3 0)", 7.0),
        (-3.0, 0.05, "LINESTRING (0 0, 0 0.1)", 3.0),
        (10.0, 20.0, "POLYGON ((9.758864387900267 25, 22.964041882966754 25, 15 33, 9.758864387900267 25))", 5.0),
        // Beyond the ends.
        (-3.0, 4.0, "LINESTRING (0.1 0, 0 0)", 5.0),
        (3.1, 4.0, "LINESTRING (0.1 0, 0 0)", 5.0),
        (4.0, -3.0, "LINESTRING (0 0, 0 0.1)", 5.0),
        (4.0, 3.5, "LINESTRING (0 0.5, 0 0)", 5.0),
    ] {
        assert_eq!(measure(CoordinateSystem::Planar, x, y, text), Some(expected), "{x} {y} {text}");
    }
    // Between points as well, whose squares have more digits than floats.
    for steps in [1, 100_000_001, (1_i64 << 45) + 1] {
        let text = format!("POINT ({} {})", 3 * steps, 4 * steps + 7);
        assert_eq!(measure(CoordinateSystem::Planar, 0.0, 7.0, &text), Some((5 * steps) as f64), "{text}");
    }
    // From a place along a line with the slope of three to four, `aside` steps to its side.
    for (length, along, aside) in [(1, 0, 1), (2, 1, 77), (1 << 40, 12_345, 3), (1 << 44, (1 << 44) - 1, 1 << 20)] {
        let steps = |(x, y): (i64, i64), count: i64| ((x * count) as f64, (y * count) as f64);
        let ((x, y), (to_x, to_y)) = (steps((-4, 3), aside), steps((3, 4), length));
        let (on_x, on_y) = steps((3, 4), along);
        let text = format!("LINESTRING (0 0, {to_x} {to_y})");
        let found = measure(CoordinateSystem::Planar, on_x + x, on_y + y, &text);
        assert_eq!(found, Some((5 * aside) as f64), "{length} {along} {aside}");
    }
}

/// A power of two changes no digit of the positions, so none of the distance either, down to
/// subnormal numbers.
#[test]
fn planar_distances_keep_their_digits_at_every_scale() {
    for (x, y, path) in [
        (0.0, 0.0, [(-9.0, 2.0), (9.0, 3.0)]),
        (12.0, 6.0, [(-9.0, 2.0), (9.0, 3.0)]),
        (-40.0, 0.5, [(-9.0, 2.0), (9.0, 3.0)]),
        (3.0, 2.0, [(1.0, 7.0), (1.0, -7.0)]),
        (5.0, 5.0, [(1.0, 1.0), (1.0, 1.0)]),
    ] {
        let at = |scale: f64| {
            let [a, b] = path.map(|(x, y)| format!("{:e} {:e}", x * scale, y * scale));
            measure(CoordinateSystem::Planar, x * scale, y * scale, &format!("LINESTRING ({a}, {b})")).unwrap()
        };
        let expected = at(1.0);
        for exponent in (-1018..=490).step_by(4) {
            let scale = 2f64.powi(exponent);
            let found = at(scale) / scale;
            assert!((found - expected).abs() <= 1e-14 * expected, "{found} instead of {expected} at {scale:e}");
        }
    }
    // A short line far away, and a long one very near.
    assert_eq!(measure(CoordinateSystem::Planar, 3.0, 4.0, "LINESTRING (0 0, 1e-300 1e-300)"), Some(5.0));
    let found = measure(CoordinateSystem::Planar, 0.0, 0.0, "LINESTRING (-1e140 1e-300, 1e140 1e-300)").unwrap();
    assert!((found / 1e-300 - 1.0).abs() < 1e-14, "{found:e}");
}

#[test]
fn lonlat_distances_are_metres_along_the_sphere() {
    for (x, y, text, degrees) in [
        (0.0, 0.0, "POINT (0 3)", 3.0),
        (0.0, 7.0, "LINESTRING (-10 0, 10 0)", 7.0),
        (-179.0, 0.0, "LINESTRING (179 -5, 179 5)", 2.0),
        (-179.0, 0.0, "POLYGON ((170 -5, 180 -5, 180 5, 170 5, 170 -5))", 1.0),
        (10.0, 88.0, "LINESTRING (-170 88, -170 80)", 4.0),
    ] {
        let found = measure(CoordinateSystem::LonLat, x, y, text).unwrap();
        assert!((found / DEGREE_M - degrees).abs() < 1e-9, "{text}: {found}");
    }
}

#[test]
fn a_point_in_a_polygon_is_at_distance_zero_under_both_names_of_the_antimeridian() {
    let polygon = "POLYGON ((170 -5, 180 -5, 180 5, 170 5, 170 -5))";
    assert_eq!(measure(CoordinateSystem::LonLat, 175.0, 0.0, polygon), Some(0.0));
    assert_eq!(measure(CoordinateSystem::LonLat, -180.0, 0.0, polygon), Some(0.0));
    // On the straight edge, although the arc between its ends runs further north.
    assert_eq!(measure(CoordinateSystem::LonLat, 0.0, 60.0, "LINESTRING (-45 60, 45 60)"), Some(0.0));
    // North of the straight edge, but south of the arc: outside, and near the arc.
    let found = measure(CoordinateSystem::LonLat, 0.0, 67.0, "POLYGON ((-45 60, 45 60, 0 50, -45 60))");
    assert!(found.is_some_and(|found| (0.0..100_000.0).contains(&found) && found > 0.0), "{found:?}");
}

#[test]
fn nothing_is_infinitely_far_away() {
    for empty in ["POINT EMPTY", "MULTIPOLYGON EMPTY", "GEOMETRYCOLLECTION (POINT EMPTY)"] {
        for system in [CoordinateSystem::Planar, CoordinateSystem::LonLat] {
            assert_eq!(measure(system, 1.0, 1.0, empty), None, "{empty}");
        }
    }
}

fn position() -> impl Strategy<Value = Point> {
    (-180.0..=180.0f64, -90.0..=90.0f64).prop_map(|(x, y)| Point::new(x, y))
}

/// Whether the root of a fraction lies between the neighbours of a float.
fn is_nearly_root(found: f64, numerator: &BigInt, denominator: &BigInt) -> bool {
    let square_by_denominator = |number: f64| {
        let (mantissa, exponent) =
            (number.to_bits() & ((1 << 52) - 1) | 1 << 52, (number.to_bits() >> 52) as i32 - 1075);
        (BigInt::from(mantissa).pow(2) * denominator, 2 * exponent)
    };
    let [(below, shift), (above, above_shift)] = [found.next_down(), found.next_up()].map(square_by_denominator);
    let at = |shift: i32| if shift < 0 { numerator << -shift } else { numerator >> shift };
    below <= at(shift) && at(above_shift) <= above
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Against fractions of integers, also for points next to lines that are a billion times as
    /// long.
    #[test]
    fn planar_distances_to_segments_have_all_digits(
        [ax, ay, bx, by, px, py] in prop::array::uniform6(prop_oneof![-99i64..99, -(1i64 << 30)..1 << 30]),
        share in 0i64..=1000,
        is_near in any::<bool>(),
    ) {
        let (dx, dy) = (bx - ax, by - ay);
        let (px, py) = if is_near { (ax + dx * share / 1000 + px % 3, ay + dy * share / 1000 + py % 3) } else { (px, py) };
        let (from_x, from_y) = (px - ax, py - ay);
        let (along, length) = (i128::from(from_x * dx) + i128::from(from_y * dy), i128::from(dx * dx) + i128::from(dy * dy));
        let square = |x: i64, y: i64| BigInt::from(x).pow(2) + BigInt::from(y).pow(2);
        let (numerator, denominator) = match along {
            ..=0 => (square(from_x, from_y), BigInt::from(1)),
            along if along >= length => (square(px - bx, py - by), BigInt::from(1)),
            _ => (BigInt::from(i128::from(dx * from_y) - i128::from(dy * from_x)).pow(2), BigInt::from(length)),
        };
        let text = format!("LINESTRING ({ax} {ay}, {bx} {by})");
        let found = measure(CoordinateSystem::Planar, px as f64, py as f64, &text).unwrap();
        if numerator == BigInt::from(0) {
            prop_assert_eq!(found, 0.0);
        } else {
            prop_assert!(is_nearly_root(found, &numerator, &denominator), "{} of {}/{}", found, numerator, denominator);
        }
    }

    #[test]
    fn the_distance_to_a_line_is_the_least_over_its_edges(from in position(), path in prop::collection::vec(position(), 2..8)) {
        let line: geo_types::LineString<f64> = path.iter().map(|p| (p.x, p.y)).collect();
        let bytes = from_geo(&line.into());
        let edges = path.windows(2).map(|pair| distance_to_arc_m(from, pair[0], pair[1]));
        let expected = edges.fold(f64::INFINITY, f64::min);
        let found = distance_bytes(CoordinateSystem::LonLat, from, &bytes).unwrap().unwrap();
        prop_assert!((found - expected).abs() <= 1e-6 * expected.max(1.0), "{found} instead of {expected}");
        let vertices = path.iter().map(|p| distance_m(from, *p)).fold(f64::INFINITY, f64::min);
        prop_assert!(found <= vertices);
        // The box distance never exceeds the distance, so an index never prunes a result.
        let rect = summarise(&bytes, CoordinateSystem::LonLat).unwrap().index_rect;
        prop_assert!(distance_to_rect_m(from, rect) <= found + 1e-6);
    }

    #[test]
    fn planar_distances_agree_with_geo(from in position(), path in prop::collection::vec(position(), 3..8)) {
        use geo::{Distance, Euclidean};
        // In the order of their directions from the mean, the positions bound a star.
        let count = path.len() as f64;
        let x = path.iter().map(|p| p.x).sum::<f64>() / count;
        let y = path.iter().map(|p| p.y).sum::<f64>() / count;
        let direction = |p: &Point| (p.y - y).atan2(p.x - x);
        let mut path = path;
        path.sort_by(|a, b| direction(a).total_cmp(&direction(b)));
        let mut ring: Vec<(f64, f64)> = path.iter().map(|p| (p.x, p.y)).collect();
        ring.push(ring[0]);
        let polygon = geo_types::Polygon::new(ring.into(), vec![]);
        let geometry = geo_types::Geometry::from(polygon);
        prop_assume!(check_valid(&geometry).is_ok());
        let expected = Euclidean.distance(&geo_types::Point::new(from.x, from.y), &geometry);
        let found = distance(CoordinateSystem::Planar, from, &geometry).unwrap().unwrap();
        prop_assert!((found - expected).abs() <= 1e-9, "{found} instead of {expected}");
    }
}
