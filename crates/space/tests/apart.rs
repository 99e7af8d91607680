//! Distances between geometries, and the windows of their neighbourhoods, against scans and
//! sampling.

use proptest::prelude::*;
use terrane_space::geometry::*;
use terrane_space::sphere::{
    arcs_cross, cap_windows, distance_between_rects_m, distance_m, distance_to_arc_m, reach_windows,
};
use terrane_space::{CoordinateSystem, Point, Rect};

const SYSTEMS: [CoordinateSystem; 2] = [CoordinateSystem::Planar, CoordinateSystem::LonLat];

fn edges(system: CoordinateSystem, text: &str) -> Edges {
    Edges::new(&from_wkt(text).unwrap_or_else(|error| panic!("{text}: {error}")), system).unwrap()
}

/// A longitude and a latitude on a coarse grid, many at the antimeridian and the poles.
fn place() -> impl Strategy<Value = (f64, f64)> {
    let x = prop_oneof![-720..=720i32, 700..=720i32, -720..=-700i32, -8..=8i32];
    let y = prop_oneof![-360..=360i32, 330..=360i32, -8..=8i32];
    (x, y).prop_map(|(x, y)| (f64::from(x) / 4.0, f64::from(y) / 4.0))
}

/// A path of a few positions that are not far from each other.
fn path() -> impl Strategy<Value = Vec<(f64, f64)>> {
    let steps = prop::collection::vec((-24..=24i32, -24..=24i32), 1..5);
    (place(), steps).prop_map(|((x, y), steps)| {
        let mut path = vec![(x, y)];
        for (dx, dy) in steps {
            let (x, y) = path[path.len() - 1];
            path.push(((x + f64::from(dx) / 4.0).clamp(-180.0, 180.0), (y + f64::from(dy) / 4.0).clamp(-90.0, 90.0)));
        }
        path
    })
}

fn line(path: &[(f64, f64)]) -> String {
    let positions: Vec<String> = path.iter().map(|(x, y)| format!("{x} {y}")).collect();
    format!("LINESTRING({})", positions.join(","))
}

fn points(path: &[(f64, f64)]) -> Vec<Point> {
    path.iter().map(|(x, y)| Point::new(*x, *y)).collect()
}

/// The least distance from a position of one to the other.
fn from_positions(system: CoordinateSystem, a: &[(f64, f64)], b: &[(f64, f64)]) -> f64 {
    let to = |positions: &[(f64, f64)], other: &[(f64, f64)]| {
        let other = from_wkt(&line(other)).unwrap();
        let each = points(positions).into_iter().map(|point| distance_bytes(system, point, &other).unwrap().unwrap());
        each.fold(f64::INFINITY, f64::min)
    };
    to(a, b).min(to(b, a))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_distance_is_that_of_the_nearest_position_unless_edges_cross(a in path(), b in path()) {
        for system in SYSTEMS {
            let shape = QueryGeometry::new(&from_wkt(&line(&a)).unwrap(), system).unwrap();
            prop_assume!(!shape.intersects(&from_wkt(&line(&b)).unwrap()).unwrap());
            let (first, second) = (edges(system, &line(&a)), edges(system, &line(&b)));
            let found = first.distance_at_most(&second, f64::INFINITY).unwrap();
            let wanted = from_positions(system, &a, &b);
            let crosses = system == CoordinateSystem::LonLat
                && points(&a).windows(2).any(|a| points(&b).windows(2).any(|b| arcs_cross(a[0], a[1], b[0], b[1])));
            if crosses {
                prop_assert_eq!(found, 0.0);
            } else {
                prop_assert!((found - wanted).abs() <= 1e-9 * wanted.max(1.0), "{} instead of {}", found, wanted);
            }
            // The bound is inclusive, and nothing beyond it is found.
            prop_assert_eq!(first.distance_at_most(&second, found), Some(found));
            prop_assert_eq!(second.distance_at_most(&first, found), Some(found));
            if found > 0.0 {
                prop_assert_eq!(first.distance_at_most(&second, found * (1.0 - 1e-6)), None);
            }
        }
    }

    #[test]
    fn what_is_near_has_a_box_in_a_window(a in path(), b in path(), share in 0.5..2.0f64) {
        for system in SYSTEMS {
            let (first, second) = (from_wkt(&line(&a)).unwrap(), from_wkt(&line(&b)).unwrap());
            let distance = edges(system, &line(&a)).distance_at_most(&edges(system, &line(&b)), f64::INFINITY).unwrap();
            let rect = summarise(&second, system).unwrap().index_rect;
            let windows = reach(&first, system, distance * share).unwrap();
            let is_met = windows.iter().any(|window| window.intersects(&rect));
            prop_assert!(is_met || share < 1.0, "{:?} and {:?} at {}: {:?}", first, rect, distance, windows);
        }
    }

    #[test]
    fn boxes_are_at_most_as_far_apart_as_what_is_in_them(a in path(), b in path(), across in 0..40usize) {
        let rect = |path: &[(f64, f64)]| {
            path.iter().fold(Rect::EMPTY, |rect, (x, y)| rect.union(&Rect::from_point(Point::new(*x, *y))))
        };
        let (first, second) = (rect(&a), rect(&b));
        let bound = distance_between_rects_m(&first, &second);
        let at = |rect: &Rect, step: usize| {
            let share = |step: usize, low: f64, high: f64| low + (high - low) * step as f64 / 6.0;
            Point::new(share(step % 7, rect.x0, rect.x1), share(step / 7, rect.y0, rect.y1))
        };
        for step in 0..49 {
            let distance = distance_m(at(&first, step), at(&second, (step + across) % 49));
            prop_assert!(bound <= distance, "{} above {} of {:?} {:?}", bound, distance, first, second);
        }
    }

    #[test]
    fn what_is_near_a_box_is_in_a_window_around_it(a in path(), step in 0..49usize, (x, y) in place(), share in 1.0..1.5f64) {
        let rect = a.iter().fold(Rect::EMPTY, |rect, (x, y)| rect.union(&Rect::from_point(Point::new(*x, *y))));
        let inside = Point::new(
            rect.x0 + (rect.x1 - rect.x0) * (step % 7) as f64 / 6.0,
            rect.y0 + (rect.y1 - rect.y0) * (step / 7) as f64 / 6.0,
        );
        let near = Point::new(x, y);
        let windows = reach_windows(&rect, distance_m(inside, near) * share);
        prop_assert!(windows.contains_point(near), "{:?} near {:?}: {:?}", near, rect, windows);
    }
}

#[test]
fn arcs_cross_inside_of_both_and_nowhere_else() {
    let cross = |a: (f64, f64), b: (f64, f64), c: (f64, f64), d: (f64, f64)| {
        let [a, b, c, d] = [a, b, c, d].map(|(x, y)| Point::new(x, y));
        let found = arcs_cross(a, b, c, d);
        for (a, b, c, d) in [(b, a, c, d), (a, b, d, c), (c, d, a, b), (d, c, b, a)] {
            assert_eq!(arcs_cross(a, b, c, d), found, "{a:?} {b:?} {c:?} {d:?}");
        }
        found
    };
    assert!(cross((-1.0, -1.0), (1.0, 1.0), (-1.0, 1.0), (1.0, -1.0)));
    // Over the antimeridian and over a pole.
    assert!(cross((179.0, -1.0), (-179.0, 1.0), (179.0, 1.0), (-179.0, -1.0)));
    assert!(cross((0.0, 89.0), (180.0, 89.0), (90.0, 89.0), (-90.0, 89.0)));
    // Arcs bulge over their parallel, where straight edges would not meet.
    assert!(cross((-40.0, 60.0), (40.0, 60.0), (0.0, 62.0), (0.0, 80.0)));
    // The crossings of their circles are on the other side, or outside of one.
    assert!(!cross((-1.0, -1.0), (1.0, 1.0), (179.0, 1.0), (-179.0, -1.0)));
    assert!(!cross((-1.0, -1.0), (1.0, 1.0), (2.0, 1.0), (4.0, -1.0)));
    // On one meridian, one after the other or overlapping.
    assert!(!cross((180.0, 10.0), (180.0, 12.0), (-180.0, 14.0), (180.0, 15.0)));
    assert!(!cross((33.3, 10.0), (33.3, 12.0), (33.3, 11.0), (33.3, 15.0)));
    assert!(!cross((0.0, 0.0), (1.0, 1.0), (1.0, 1.0), (2.0, 0.0)));
}

#[test]
fn windows_around_boxes_reach_over_the_antimeridian_and_the_poles() {
    let contains =
        |rect: Rect, radius_m: f64, x: f64, y: f64| reach_windows(&rect, radius_m).contains_point(Point::new(x, y));
    let east = Rect::new(178.0, 10.0, 179.9, 12.0);
    assert!(contains(east, 100_000.0, -179.9, 11.0) && !contains(east, 100_000.0, -175.0, 11.0));
    assert!(contains(Rect::new(-180.0, 10.0, -179.0, 12.0), 100_000.0, 179.5, 11.0));
    assert!(contains(Rect::new(0.0, 80.0, 10.0, 89.0), 200_000.0, -120.0, 89.5));
    assert!(contains(Rect::new(0.0, -89.0, 10.0, 20.0), 200_000.0, -120.0, -89.5));
    let around = reach_windows(&Rect::new(-179.0, 0.0, 179.0, 1.0), 200_000.0);
    assert_eq!((around.len(), around[0].x0, around[0].x1), (1, -180.0, 180.0));
    assert!(reach_windows(&Rect::EMPTY, 1.0).is_empty() && reach_windows(&east, f64::NAN).is_empty());
    let center = Point::new(12.0, 47.0);
    assert_eq!(*cap_windows(center, 5000.0), *reach_windows(&Rect::from_point(center), 5000.0));
}

#[test]
fn edges_of_every_kind_of_geometry_are_measured() {
    for (first, second, wanted) in [
        ("POINT(0 0)", "MULTIPOINT((3 4),(9 9))", 5.0),
        ("POLYGON((0 0,4 0,4 4,0 4,0 0),(1 1,3 1,3 3,1 3,1 1))", "POINT(2 2.5)", 0.5),
        ("GEOMETRYCOLLECTION(POINT(0 9),LINESTRING(0 0,5 0))", "MULTILINESTRING((9 9,9 3),(3 2,8 7))", 2.0),
        ("POLYGON((0 0,4 0,4 4,0 4,0 0))", "MULTIPOLYGON(((6 1,7 1,7 2,6 1)),((9 9,10 9,10 10,9 9)))", 2.0),
    ] {
        let (first, second) = (edges(CoordinateSystem::Planar, first), edges(CoordinateSystem::Planar, second));
        assert_eq!(first.distance_at_most(&second, wanted), Some(wanted));
        assert_eq!(second.distance_at_most(&first, wanted * 0.999), None);
    }
    let nothing = edges(CoordinateSystem::Planar, "POLYGON EMPTY");
    assert_eq!(edges(CoordinateSystem::Planar, "POINT(0 0)").distance_at_most(&nothing, f64::INFINITY), None);
    assert!(reach(&from_wkt("POLYGON EMPTY").unwrap(), CoordinateSystem::LonLat, 1.0).unwrap().is_empty());
    // Like a point from an arc.
    let found = edges(CoordinateSystem::LonLat, "LINESTRING(0 50,30 50)")
        .distance_at_most(&edges(CoordinateSystem::LonLat, "POINT(15 53)"), f64::INFINITY);
    assert_eq!(found, Some(distance_to_arc_m(Point::new(15.0, 53.0), Point::new(0.0, 50.0), Point::new(30.0, 50.0))));
}
