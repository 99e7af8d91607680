//! Distances and boxes against sampling and closed forms.

use proptest::prelude::*;

use super::*;
use crate::{Point, Rect};

const HALF_TURN_M: f64 = std::f64::consts::PI * EARTH_RADIUS_M;

fn globe() -> impl Strategy<Value = Point> {
    let longitude = prop_oneof![
        4 => -180.0..=180.0f64,
        1 => prop::sample::select(vec![-180.0, 180.0, 0.0, 90.0, -90.0, 179.9999999, -179.9999999]),
    ];
    let latitude = prop_oneof![
        4 => -90.0..=90.0f64,
        1 => prop::sample::select(vec![-90.0, 90.0, 0.0, 89.9999999, -89.9999999]),
    ];
    (longitude, latitude).prop_map(|(x, y)| Point::new(x, y))
}

fn close(a: f64, b: f64, relative: f64, absolute: f64) -> bool {
    (a - b).abs() <= absolute + relative * a.abs().max(b.abs())
}

/// The point at `share` of the great-circle arc, by spherical interpolation.
fn along_arc(a: Point, b: Point, share: f64) -> Option<Point> {
    let (u, v) = (angle::unit_vector(a), angle::unit_vector(b));
    let angle = angle::norm(angle::cross(u, v)).atan2(angle::dot(u, v));
    if !(1e-6..=3.1).contains(&angle) {
        return None;
    }
    let (s, t) = (((1.0 - share) * angle).sin(), (share * angle).sin());
    let [x, y, z]: [f64; 3] = std::array::from_fn(|i| (s * u[i] + t * v[i]) / angle.sin());
    Some(Point::new(y.atan2(x).to_degrees(), z.atan2(x.hypot(y)).to_degrees()))
}

#[test]
fn known_distances() {
    let quarter = HALF_TURN_M / 2.0;
    let origin = Point::new(0.0, 0.0);
    assert!(close(distance_m(origin, Point::new(90.0, 0.0)), quarter, 1e-15, 0.0));
    assert!(close(distance_m(origin, Point::new(12.0, 90.0)), quarter, 1e-15, 0.0));
    assert!(close(distance_m(origin, Point::new(180.0, 0.0)), HALF_TURN_M, 1e-15, 0.0));
    assert!(close(distance_m(Point::new(30.0, 40.0), Point::new(-150.0, -40.0)), HALF_TURN_M, 1e-15, 0.0));
    // Paris to New York.
    let paris = Point::new(2.3522, 48.8566);
    let new_york = Point::new(-74.0060, 40.7128);
    assert!(close(distance_m(paris, new_york), 5_837_000.0, 1e-3, 0.0));
}

#[test]
fn both_signs_of_the_antimeridian_and_all_longitudes_of_a_pole_are_one_place() {
    assert_eq!(distance_m(Point::new(-180.0, 12.0), Point::new(180.0, 12.0)), 0.0);
    assert_eq!(distance_m(Point::new(-77.0, 90.0), Point::new(103.0, 90.0)), 0.0);
    assert_eq!(distance_m(Point::new(-77.0, -90.0), Point::new(20.0, -90.0)), 0.0);
}

#[test]
fn tiny_distances_keep_their_digits() {
    let degree_m = HALF_TURN_M / 180.0;
    for step in [1e-6, 1e-9, 1e-12] {
        let a = Point::new(0.0, 0.0);
        assert!(close(distance_m(a, Point::new(step, 0.0)), degree_m * step, 1e-14, 0.0));
        assert!(close(distance_m(a, Point::new(0.0, step)), degree_m * step, 1e-14, 0.0));
        let north = distance_m(Point::new(0.0, 60.0), Point::new(step, 60.0));
        assert!(close(north, degree_m * step * 0.5, 1e-12, 0.0), "{north} for {step}");
    }
}

#[test]
fn nearly_antipodal_distances_keep_their_digits() {
    let degree_m = HALF_TURN_M / 180.0;
    let short_m = HALF_TURN_M - distance_m(Point::new(0.0, 0.0), Point::new(180.0, 1e-7));
    assert!(close(short_m, degree_m * 1e-7, 1e-6, 0.0), "{short_m}");
}

#[test]
fn boxes_over_the_antimeridian_are_reached_the_shorter_way() {
    let rect = Rect::new(170.0, -1.0, 180.0, 1.0);
    let expected_m = HALF_TURN_M / 180.0;
    assert!(close(distance_to_rect_m(Point::new(-179.0, 0.0), rect), expected_m, 1e-9, 0.0));
    assert_eq!(distance_to_rect_m(Point::new(-180.0, 0.5), rect), 0.0);
    // Over the pole: the box is on the opposite meridian.
    let beyond = Rect::new(179.0, 80.0, 180.0, 85.0);
    assert!(close(distance_to_rect_m(Point::new(0.0, 80.0), beyond), 15.0 * expected_m, 1e-3, 0.0));
}

#[test]
fn caps_over_a_pole_have_all_longitudes() {
    let windows = cap_windows(Point::new(10.0, 89.0), 200_000.0);
    assert_eq!(windows.len(), 1);
    assert_eq!((windows[0].x0, windows[0].x1, windows[0].y1), (-180.0, 180.0, 90.0));
    let whole = cap_windows(Point::new(10.0, 5.0), HALF_TURN_M);
    assert_eq!(*whole, [Rect::new(-180.0, -90.0, 180.0, 90.0)]);
    assert_eq!(cap_windows(Point::new(179.99, 0.0), 10_000.0).len(), 2);
    assert!(cap_windows(Point::new(0.0, 0.0), -1.0).is_empty());
    assert!(cap_windows(Point::new(0.0, 0.0), f64::NAN).is_empty());
}

#[test]
fn a_cap_is_not_much_larger_than_needed() {
    let windows = cap_windows(Point::new(0.0, 60.0), 111_195.0);
    let rect = windows[0];
    assert!((rect.y1 - 61.0).abs() < 1e-4 && (rect.x1 - 2.0004).abs() < 1e-3, "{rect:?}");
}

#[test]
fn arcs_bulge_poleward() {
    let rect = arc_rect(Point::new(-45.0, 60.0), Point::new(45.0, 60.0));
    let top = (60f64.to_radians().tan() / 45f64.to_radians().cos()).atan().to_degrees();
    assert!(close(rect.y1, top, 1e-12, 0.0) && rect.y0 == 60.0, "{rect:?}");
    let south = arc_rect(Point::new(-45.0, -60.0), Point::new(45.0, -60.0));
    assert_eq!((south.y0, south.y1), (-rect.y1, -rect.y0));
    // The highest point is an end: no bulge. Stores hold these boxes, so they must never change by
    // a bit.
    let bits = |a: (f64, f64), b: (f64, f64)| arc_rect(Point::new(a.0, a.1), Point::new(b.0, b.1)).y1.to_bits();
    assert_eq!(bits((-73.98, 40.75), (-73.95, 40.75)), 0x4044_6000_0825_21b1);
    assert_eq!(bits((0.0, 1e-3), (1.0, 1e-3)), 0x3f50_6276_b620_3782);
    assert_eq!(bits((-10.0, 51.5), (25.0, 47.25)), 0x4049_c941_866d_f1de);
    assert_eq!(bits((100.0, 89.0), (-100.0, 88.5)), 0x4056_72ab_8e30_e045);
    let sloped = arc_rect(Point::new(0.0, 60.0), Point::new(90.0, 0.0));
    assert_eq!(sloped, Rect::new(0.0, 0.0, 90.0, 60.0));
    let over_pole = arc_rect(Point::new(-90.0, 70.0), Point::new(90.0, 80.0));
    assert_eq!(over_pole, Rect::new(-180.0, 70.0, 180.0, 90.0));
    let antipodal = arc_rect(Point::new(0.0, 10.0), Point::new(180.0, -10.0));
    assert_eq!(antipodal, Rect::new(-180.0, -90.0, 180.0, 90.0));
    let other_way = arc_rect(Point::new(-170.0, 50.0), Point::new(170.0, 50.0));
    assert_eq!((other_way.x0, other_way.x1), (-180.0, 180.0));
}

#[test]
fn distances_to_arcs_in_closed_form() {
    let degree_m = HALF_TURN_M / 180.0;
    let (a, b) = (Point::new(-10.0, 0.0), Point::new(10.0, 0.0));
    assert!(close(distance_to_arc_m(Point::new(3.0, 7.0), a, b), 7.0 * degree_m, 1e-14, 0.0));
    assert!(close(distance_to_arc_m(Point::new(13.0, 0.0), a, b), 3.0 * degree_m, 1e-14, 0.0));
    assert!(distance_to_arc_m(Point::new(3.0, 0.0), a, b) < 1e-9);
    // A metre-long edge seen from a millimetre beside it.
    let (c, d) = (Point::new(10.0, 50.0), Point::new(10.0, 50.00001));
    let beside = Point::new(10.00000001, 50.000005);
    let expected_m = degree_m * 1e-8 * 50f64.to_radians().cos();
    assert!(close(distance_to_arc_m(beside, c, d), expected_m, 1e-4, 0.0));
    assert_eq!(distance_to_arc_m(c, c, c), 0.0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn distance_is_symmetric_and_bounded(a in globe(), b in globe()) {
        let ab = distance_m(a, b);
        prop_assert_eq!(ab, distance_m(b, a));
        prop_assert!((0.0..=HALF_TURN_M * (1.0 + 1e-15)).contains(&ab));
    }

    #[test]
    fn chords_and_distances_agree(a in globe(), b in globe()) {
        let chord = PreparedPoint::new(a).chord_squared(b);
        let direct = distance_m(a, b);
        prop_assert!(close(distance_m_from_chord(chord), direct, 1e-12, 0.5));
        prop_assert!(close(chord_squared_from_distance_m(direct), chord, 1e-12, 1e-15));
    }

    #[test]
    fn the_distance_to_a_box_is_a_tight_lower_bound(
        p in globe(), a in globe(), size in (0.0..90.0f64, 0.0..60.0f64), inside in (0.0..=1.0f64, 0.0..=1.0f64),
    ) {
        let rect = Rect::new(a.x, a.y, (a.x + size.0).min(180.0), (a.y + size.1).min(90.0));
        let bound = distance_to_rect_m(p, rect);
        let sample = Point::new(
            (rect.x0 + inside.0 * (rect.x1 - rect.x0)).min(rect.x1),
            (rect.y0 + inside.1 * (rect.y1 - rect.y0)).min(rect.y1),
        );
        prop_assert!(bound <= distance_m(p, sample), "{bound} > {}", distance_m(p, sample));
        let mut nearest = f64::INFINITY;
        for step in 0..=400 {
            let share = f64::from(step) / 400.0;
            let x = rect.x0 + share * (rect.x1 - rect.x0);
            let y = rect.y0 + share * (rect.y1 - rect.y0);
            for q in [Point::new(rect.x0, y), Point::new(rect.x1, y), Point::new(x, rect.y0), Point::new(x, rect.y1)] {
                let d = distance_m(p, q);
                prop_assert!(bound <= d, "{bound} > {d}");
                nearest = nearest.min(d);
            }
        }
        if rect.contains_point(p) {
            prop_assert_eq!(bound, 0.0);
        } else {
            // Samples lie at most half a step of 90 / 400 degrees off.
            prop_assert!(nearest - bound <= 14_000.0, "{nearest} and {bound}");
        }
    }

    #[test]
    fn caps_hold_all_points_within_the_radius(center in globe(), q in globe(), scale in 0.0..=1.0f64) {
        let reach = distance_m(center, q);
        prop_assert!(cap_windows(center, reach).contains_point(q));
        let near = Point::new(
            (center.x + (q.x - center.x) * scale * 1e-4).clamp(-180.0, 180.0),
            (center.y + (q.y - center.y) * scale * 1e-4).clamp(-90.0, 90.0),
        );
        prop_assert!(cap_windows(center, distance_m(center, near)).contains_point(near));
    }

    #[test]
    fn arc_boxes_hold_arc_and_segment(a in globe(), b in globe(), share in 0.0..=1.0f64) {
        let rect = arc_rect(a, b);
        prop_assert!(rect.contains_point(a) && rect.contains_point(b));
        if let Some(p) = along_arc(a, b, share) {
            let slack = 1e-9;
            let grown = Rect::new(rect.x0 - slack, rect.y0 - slack, rect.x1 + slack, rect.y1 + slack);
            let mirrored = Point::new(if p.x < 0.0 { p.x + 360.0 } else { p.x - 360.0 }, p.y);
            let at_pole = p.y.abs() > 89.9999;
            prop_assert!(
                grown.contains_point(p) || grown.contains_point(mirrored)
                    || at_pole && grown.y0 <= p.y && p.y <= grown.y1,
                "{rect:?} lacks {p:?}"
            );
        }
    }

    #[test]
    fn the_distance_to_an_arc_is_the_least_over_its_points(p in globe(), a in globe(), b in globe()) {
        let d = distance_to_arc_m(p, a, b);
        prop_assert!(d <= distance_m(p, a) && d <= distance_m(p, b));
        let mut nearest = distance_m(p, a).min(distance_m(p, b));
        let mut is_regular = true;
        for step in 1..200 {
            match along_arc(a, b, f64::from(step) / 200.0) {
                Some(q) => {
                    let sample = distance_m(p, q);
                    prop_assert!(d <= sample + 1e-4, "{d} > {sample}");
                    nearest = nearest.min(sample);
                }
                None => is_regular = false,
            }
        }
        if is_regular {
            prop_assert!(nearest - d <= HALF_TURN_M / 200.0, "{nearest} and {d}");
        }
    }

    #[test]
    fn box_distances_bound_arc_distances(p in globe(), a in globe(), b in globe()) {
        let bound = distance_to_rect_m(p, arc_rect(a, b));
        prop_assert!(bound <= distance_to_arc_m(p, a, b) + 1e-6);
    }
}
