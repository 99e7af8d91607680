//! Validity against the checker of `geo`, and the reasons given.

use geo::{Area, Validation};
use geo_types::{Coord, Geometry, LineString, MultiPolygon, Polygon};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terrane_space::geometry::{InvalidGeometry, Ring, check_valid, from_wkt, to_geo};

fn check(text: &str) -> Result<(), InvalidGeometry> {
    check_valid(&to_geo(&from_wkt(text).unwrap_or_else(|error| panic!("{text}: {error}"))).unwrap())
}

#[test]
fn invalid_polygons_are_named_with_their_reason() {
    let bowtie = check("POLYGON ((0 0, 2 2, 2 0, 0 2, 0 0))").unwrap_err();
    assert!(matches!(bowtie, InvalidGeometry::SelfIntersection { ring: Ring::Outer, .. }));
    assert!(bowtie.to_string().starts_with("the outer ring intersects itself near ("));
    let hole = check("POLYGON ((0 0, 2 0, 2 2, 0 2, 0 0), (5 5, 6 5, 6 6, 5 5))").unwrap_err();
    assert_eq!(hole, InvalidGeometry::HoleOutside { hole: Ring::Hole(0) });
    let spike = check("POLYGON ((0 0, 4 0, 4 4, 2 4, 2 6, 2 4, 0 4, 0 0))");
    assert!(matches!(spike, Err(InvalidGeometry::SelfIntersection { .. })));
    let flat = check("POLYGON ((0 0, 1 1, 2 2, 0 0))");
    assert!(matches!(flat, Err(InvalidGeometry::SelfIntersection { .. })));
    let point = check("POLYGON ((1 1, 1 1, 1 1, 1 1))");
    assert!(matches!(point, Err(InvalidGeometry::DegenerateRing { .. })));
    let holes = check("POLYGON ((0 0, 9 0, 9 9, 0 9, 0 0), (1 1, 4 1, 4 4, 1 1), (2 1.5, 5 1, 5 3, 2 1.5))");
    assert!(matches!(holes, Err(InvalidGeometry::HolesOverlap { .. })));
    let parts = check("MULTIPOLYGON (((0 0, 2 0, 2 2, 0 0)), ((5 5, 6 5, 6 6, 5 5)), ((1 0.2, 9 0, 9 1, 1 0.2)))");
    assert_eq!(parts, Err(InvalidGeometry::PolygonsOverlap { first: 0, second: 2 }));
    let nested = check("GEOMETRYCOLLECTION (POINT (1 1), LINESTRING (1 1, 1 1))").unwrap_err();
    assert!(nested.to_string().contains("part 1"), "{nested}");
}

#[test]
fn contacts_in_single_points_are_valid() {
    for text in [
        "POLYGON ((0 0, 4 1, 4 4, 0 4, 0 0), (0 2, 2 1, 3 2, 2 3, 0 2))",
        "MULTIPOLYGON (((0 0, 2 0, 2 2, 0 0)), ((2 2, 4 2, 4 4, 2 2)))",
        "POLYGON ((0 0, 2 0, 2 0, 2 2, 0 0))",
        "POLYGON EMPTY",
        "GEOMETRYCOLLECTION EMPTY",
        "LINESTRING (0 0, 2 2, 2 0, 0 2)",
        "POINT EMPTY",
    ] {
        assert_eq!(check(text), Ok(()), "{text}");
    }
}

#[test]
fn a_polygon_of_many_vertices_is_checked_in_less_than_quadratic_work() {
    // A comb whose teeth span the whole width, with 200,000 edges. Comparing all pairs would take
    // hours in a debug build.
    let teeth = 100_000;
    let right = (0..teeth).map(|i| Coord { x: if i % 2 == 0 { 1.0 } else { 1e6 }, y: f64::from(i) });
    let mut coords: Vec<_> = right.collect();
    coords.push(Coord { x: 0.0, y: f64::from(teeth) });
    coords.push(Coord { x: 0.0, y: -1.0 });
    coords.push(coords[0]);
    let polygon = Geometry::Polygon(Polygon::new(LineString(coords), vec![]));
    assert_eq!(check_valid(&polygon), Ok(()));
}

fn has_flat_ring(geometry: &Geometry<f64>) -> bool {
    let is_flat = |polygon: &Polygon<f64>| {
        let rings = std::iter::once(polygon.exterior()).chain(polygon.interiors());
        rings.map(|ring| Polygon::new(ring.clone(), vec![])).any(|ring| ring.unsigned_area() == 0.0)
    };
    match geometry {
        Geometry::Polygon(polygon) => is_flat(polygon),
        Geometry::MultiPolygon(polygons) => polygons.iter().any(is_flat),
        _ => false,
    }
}

#[test]
fn the_verdict_is_that_of_geo() {
    let mut valid = 0;
    for seed in 0..30_000 {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut ring = |low: i32, high: i32| {
            let count = random.random_range(3..7);
            let mut side = || f64::from(random.random_range(low..high));
            let mut coords: Vec<_> = (0..count).map(|_| Coord { x: side(), y: side() }).collect();
            coords.push(coords[0]);
            LineString(coords)
        };
        let first = Polygon::new(ring(0, 8), vec![ring(1, 5)]);
        let second = Polygon::new(ring(3, 9), vec![]);
        for geometry in [
            Geometry::Polygon(first.clone()),
            Geometry::MultiPolygon(MultiPolygon(vec![Polygon::new(first.exterior().clone(), vec![]), second])),
        ] {
            let expected = std::panic::catch_unwind(|| geometry.is_valid());
            let Ok(expected) = expected else { continue };
            let found = check_valid(&geometry);
            valid += usize::from(found.is_ok());
            if expected && found.is_err() && has_flat_ring(&geometry) {
                // `geo` accepts rings without area as valid.
                continue;
            }
            assert_eq!(found.is_ok(), expected, "seed {seed}: {found:?} for {geometry:?}");
        }
    }
    assert!(valid > 300, "{valid} valid ones are too few to tell");
}
