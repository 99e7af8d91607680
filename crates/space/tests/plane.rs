//! Rectangles, outward rounding, ordered bits, coordinate checks, windows.

use proptest::prelude::*;
use terrane_space::*;

#[test]
fn the_empty_rectangle_is_neutral() {
    let rect = Rect::new(1.0, 2.0, 3.0, 5.0);
    assert_eq!(Rect::EMPTY.union(&rect), rect);
    assert!(Rect::EMPTY.is_empty() && !rect.is_empty());
    assert!(!Rect::EMPTY.intersects(&rect) && !rect.intersects(&Rect::EMPTY));
    assert!(rect.contains_rect(&Rect::EMPTY) && !Rect::EMPTY.contains_rect(&rect));
    assert_eq!((Rect::EMPTY.area(), Rect::EMPTY.margin()), (0.0, 0.0));
    assert!(!Rect::EMPTY.is_finite() && rect.is_finite());
    assert_eq!((rect.area(), rect.margin(), rect.center()), (6.0, 5.0, Point::new(2.0, 3.5)));
    assert_eq!(rect.planar_distance_squared(Point::new(4.0, 7.0)), 5.0);
}

#[test]
fn rectangles_without_area_enlarge_others() {
    let mut rect = Rect::from_point(Point::new(1.0, 1.0));
    rect.extend(Point::new(4.0, 1.0));
    assert_eq!(rect, Rect::new(1.0, 1.0, 4.0, 1.0));
    assert_eq!(rect.enlargement(&Rect::from_point(Point::new(2.0, 3.0))), 6.0);
    let infinite = Rect::new(f64::NEG_INFINITY, 0.0, f64::INFINITY, 1.0);
    assert!(!infinite.enlargement(&Rect::new(0.0, 0.0, 1.0, 2.0)).is_nan());
    assert_eq!(Rect::new(0.0, 3.0, f64::INFINITY, 3.0).area(), 0.0);
}

#[test]
fn shared_boundaries_intersect() {
    let rect = Rect::new(0.0, 0.0, 1.0, 1.0);
    assert!(rect.intersects(&Rect::new(1.0, 1.0, 2.0, 2.0)));
    assert!(!rect.intersects(&Rect::new(1.0f64.next_up(), 0.0, 2.0, 2.0)));
    assert!(rect.contains_point(Point::new(1.0, 0.0)));
}

#[test]
fn single_precision_overflows_outward() {
    assert_eq!(f32_above(1e300), f32::INFINITY);
    assert_eq!(f32_below(1e300), f32::MAX);
    assert_eq!(f32_below(-1e300), f32::NEG_INFINITY);
    assert_eq!(f32_above(-1e300), f32::MIN);
    assert_eq!(f32_below(1e-300), 0.0);
    assert_eq!(f32_above(1e-300), f32::from_bits(1));
    assert_eq!((f32_below(0.5), f32_above(0.5)), (0.5, 0.5));
}

#[test]
fn zeros_share_their_ordered_bits() {
    assert_eq!(ordered_bits(-0.0), ordered_bits(0.0));
    assert!(ordered_bits(f64::NEG_INFINITY) < ordered_bits(f64::MIN));
    assert!(ordered_bits(f64::MAX) < ordered_bits(f64::INFINITY));
}

#[test]
fn coordinates_off_the_globe_are_refused_with_a_hint() {
    let lonlat = CoordinateSystem::LonLat;
    for (x, y) in [(-180.0, -90.0), (180.0, 90.0), (0.0, -0.0)] {
        assert_eq!(check_coordinates(lonlat, x, y), Ok(()));
    }
    let swapped = check_coordinates(lonlat, 48.0, -122.0).unwrap_err();
    assert!(swapped.to_string().contains("did you swap latitude and longitude?"));
    let projected = check_coordinates(lonlat, 500_000.0, 4_649_776.0).unwrap_err();
    assert!(!projected.to_string().contains("swap"), "{projected}");
    assert!(check_coordinates(lonlat, 180.0f64.next_up(), 0.0).is_err());
    assert!(check_coordinates(CoordinateSystem::Planar, 1e12, -1e300).is_ok());
    for system in [lonlat, CoordinateSystem::Planar] {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let error = CoordinateError::NotFinite { axis: 'y', value: bad };
            let refused = check_coordinates(system, 0.0, bad).unwrap_err();
            assert_eq!(refused.to_string(), error.to_string());
            assert!(check_coordinates(system, bad, 0.0).is_err());
        }
    }
}

#[test]
fn exact_coordinates_have_a_limit() {
    let planar = CoordinateSystem::Planar;
    assert_eq!(check_exact_coordinates(planar, EXACT_COORDINATE_MAX, -EXACT_COORDINATE_MAX), Ok(()));
    let refused = check_exact_coordinates(planar, 0.0, -EXACT_COORDINATE_MAX.next_up()).unwrap_err();
    assert_eq!(refused, CoordinateError::TooLarge { axis: 'y', value: -EXACT_COORDINATE_MAX.next_up() });
    assert!(refused.to_string().contains("-1e150 to 1e150"), "{refused}");
    assert!(check_exact_coordinates(planar, f64::NAN, 0.0).is_err());
    assert!(check_exact_coordinates(CoordinateSystem::LonLat, 181.0, 0.0).is_err());
}

#[test]
fn windows_cross_the_antimeridian() {
    let crossing = windows(CoordinateSystem::LonLat, 170.0, -10.0, -160.0, 10.0).unwrap();
    assert_eq!(*crossing, [Rect::new(170.0, -10.0, 180.0, 10.0), Rect::new(-180.0, -10.0, -160.0, 10.0)]);
}

#[test]
fn windows_that_touch_the_antimeridian_match_both_signs() {
    for (x0, x1) in
        [(170.0, 180.0), (-180.0, -170.0), (180.0, 180.0), (-180.0, -180.0), (180.0, -180.0), (-180.0, 180.0)]
    {
        let found = windows(CoordinateSystem::LonLat, x0, 0.0, x1, 1.0).unwrap();
        for x in [-180.0, 180.0] {
            assert!(found.contains_point(Point::new(x, 0.5)), "{x0}..{x1} lacks {x}");
            assert!(found.intersects(&Rect::new(x, 0.5, x, 0.7)));
        }
        assert!(!found.contains_point(Point::new(180.0, 1.5)));
    }
    let inner = windows(CoordinateSystem::LonLat, -10.0, 0.0, 10.0, 1.0).unwrap();
    assert_eq!(inner.len(), 1);
}

#[test]
fn impossible_windows_are_refused() {
    let lonlat = CoordinateSystem::LonLat;
    let planar = CoordinateSystem::Planar;
    for system in [lonlat, planar] {
        assert!(matches!(windows(system, 0.0, 2.0, 1.0, 1.0), Err(WindowError::UpsideDown { .. })));
        assert!(matches!(windows(system, f64::NAN, 0.0, 1.0, 1.0), Err(WindowError::NotANumber { side: "x0" })));
    }
    assert!(matches!(windows(planar, 2.0, 0.0, 1.0, 1.0), Err(WindowError::Reversed { .. })));
    assert!(matches!(windows(lonlat, 170.0, 0.0, 190.0, 1.0), Err(WindowError::Corner(_))));
    let half_plane = windows(planar, f64::NEG_INFINITY, 0.0, f64::INFINITY, f64::INFINITY).unwrap();
    assert!(half_plane.contains_point(Point::new(-1e300, 1e300)));
}

proptest! {
    #[test]
    fn outward_rounding_is_the_nearest_bound(value in any::<f64>()) {
        prop_assume!(!value.is_nan());
        let (below, above) = (f32_below(value), f32_above(value));
        prop_assert!(f64::from(below) <= value && value <= f64::from(above));
        prop_assert!(f64::from(below.next_up()) > value || below == f32::INFINITY);
        prop_assert!(f64::from(above.next_down()) < value || above == f32::NEG_INFINITY);
    }

    #[test]
    fn ordered_bits_keep_the_order(a in any::<f64>(), b in any::<f64>()) {
        prop_assume!(!a.is_nan() && !b.is_nan());
        prop_assert_eq!(ordered_bits(a).cmp(&ordered_bits(b)), a.partial_cmp(&b).unwrap());
        prop_assert_eq!(from_ordered_bits(ordered_bits(a)), a);
    }

    #[test]
    fn single_precision_boxes_hold_the_original(x in any::<f64>(), y in any::<f64>()) {
        prop_assume!(!x.is_nan() && !y.is_nan());
        let rect = Rect::from_point(Point::new(x, y));
        let outward = RectF32::outward(rect);
        prop_assert!(Rect::from(outward).contains_rect(&rect));
        prop_assert!(outward.intersects(&outward) && outward.contains_rect(&outward));
        prop_assert_eq!(outward.union(&RectF32::EMPTY), outward);
    }
}
