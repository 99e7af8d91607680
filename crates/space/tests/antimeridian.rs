//! Geometries that continue beyond 180 degrees are cut there.

use geo::{Area, Euclidean, Length};
use geo_types::{Coord, Geometry, GeometryCollection, LineString, MultiPoint, Polygon};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terrane_space::geometry::*;
use terrane_space::{CoordinateSystem, Point};

fn cut(text: &str) -> Result<String, AntimeridianError> {
    cut_at_antimeridian(&from_wkt(text).unwrap()).map(|bytes| to_wkt(&bytes).unwrap())
}

#[test]
fn known_geometries_are_cut_as_they_should() {
    for (text, expected) in [
        ("LINESTRING (170 1, 180 2, 170 3)", "LINESTRING (170 1, 180 2, 170 3)"),
        ("LINESTRING (178 0, 182 4)", "MULTILINESTRING ((178 0, 180 2), (-180 2, -178 4))"),
        ("LINESTRING (-178 0, -182 4)", "MULTILINESTRING ((180 2, 178 4), (-178 0, -180 2))"),
        ("LINESTRING Z (178 0 10, 182 4 20)", "MULTILINESTRING Z ((178 0 10, 180 2 15), (-180 2 15, -178 4 20))"),
        ("LINESTRING (181 0, 182 4)", "LINESTRING (-179 0, -178 4)"),
        ("LINESTRING (181 0, 180 1, 180 3, 185 3)", "LINESTRING (-179 0, -180 1, -180 3, -175 3)"),
        ("LINESTRING (179 0, 180 1, 180 3, 181 3)", "MULTILINESTRING ((179 0, 180 1, 180 3), (-180 3, -179 3))"),
        ("LINESTRING (181 0, 180 1, 181 2)", "LINESTRING (-179 0, -180 1, -179 2)"),
        (
            "POLYGON ((179 -17, 181 -17, 181 -16, 179 -16, 179 -17))",
            "MULTIPOLYGON (((180 -16, 179 -16, 179 -17, 180 -17, 180 -16)), ((-180 -17, -179 -17, -179 -16, -180 -16, -180 -17)))",
        ),
        ("POLYGON ((180 0, 190 0, 190 9, 180 9, 180 0))", "POLYGON ((-180 0, -170 0, -170 9, -180 9, -180 0))"),
        // The world, from a map that is a little too wide.
        (
            "POLYGON ((-180.0000005 -80, 180.0000005 -80, 180.0000005 80, -180.0000005 80, -180.0000005 -80))",
            "POLYGON ((-180 -80, 180 -80, 180 80, -180 80, -180 -80))",
        ),
        (
            "GEOMETRYCOLLECTION (POINT (1 2), MULTILINESTRING ((178 0, 182 4), (0 0, 1 1)))",
            "GEOMETRYCOLLECTION (POINT (1 2), MULTILINESTRING ((178 0, 180 2), (-180 2, -178 4), (0 0, 1 1)))",
        ),
    ] {
        assert_eq!(cut(text).unwrap_or_else(|error| panic!("{text}: {error}")), expected, "{text}");
    }
}

#[test]
fn holes_are_brought_to_their_ring_and_cut_with_it() {
    let found = cut("POLYGON ((175 0, 185 0, 185 9, 175 9, 175 0), (-181 1, -179 1, -179 2, -181 2, -181 1), (-178 4, -177 4, -177 5, -178 5, -178 4), (176 4, 177 4, 177 5, 176 5, 176 4))").unwrap();
    let Geometry::MultiPolygon(parts) = to_geo(&from_wkt(&found).unwrap()).unwrap() else { panic!("{found}") };
    let holes: Vec<usize> = parts.iter().map(|part| part.interiors().len()).collect();
    assert_eq!(holes, [1, 1], "{found}");
    assert_eq!(parts.unsigned_area(), 90.0 - 4.0, "{found}");
}

#[test]
fn what_cannot_be_cut_soundly_is_refused() {
    for text in [
        "POLYGON ((175 0, 185 0, 185 9, 175 9, 175 0), (100 1, 101 1, 101 2, 100 1))",
        "POLYGON ((175 0, 184 9, 184 0, 175 9, 175 0))",
        // Valid only on paper: on the globe it overlaps itself.
        "POLYGON ((-40 -80, 330 -80, 330 80, -40 80, -40 -80))",
        // It touches itself, before it is cut.
        "POLYGON ((175 0, 185 0, 185 9, 178 0, 175 9, 175 0))",
        "LINESTRING (0 0, 1e9 0)",
    ] {
        assert!(cut(text).is_err(), "{text}: {:?}", cut(text));
    }
}

#[test]
fn polygons_round_the_earth_have_no_seam() {
    let area = |text: &str| {
        let found = cut(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let geometry = to_geo(&from_wkt(&found).unwrap()).unwrap();
        assert_eq!(check_valid(&geometry), Ok(()), "{found}");
        // Nothing begins or ends at the edge of the map.
        let query = QueryGeometry::new(&from_wkt(&found).unwrap(), CoordinateSystem::LonLat).unwrap();
        assert!(query.within_point(Point::new(-30.0, 5.0)), "{found}");
        assert!(query.intersects_point(Point::new(180.0, 5.0)), "{found}");
        geometry.unsigned_area()
    };
    assert_eq!(area("POLYGON ((-30 -80, 330 -80, 330 80, -30 80, -30 -80))"), 360.0 * 160.0);
    assert_eq!(area("POLYGON ((-30 -80, 100 0, 330 -80, 330 0, 330 80, -30 80, -30 -80))"), 360.0 * 120.0);
    let rounded = area(
        "POLYGON ((-30.0000000001 -80, 330.0000000002 -80, 330.0000000002 80, -30.0000000001 80, -30.0000000001 -80))",
    );
    assert_eq!(rounded, 360.0 * 160.0);
    // A vertex on one side of the seam only stays.
    assert_eq!(area("POLYGON ((-30 -10, 330 -20, 330 10, -30 20, -30 -10))"), 360.0 * 30.0);
    let hole = "(170 -10, 190 -10, 190 -20, 170 -20, 170 -10)";
    assert_eq!(area(&format!("POLYGON ((-30 -80, 330 -80, 330 80, -30 80, -30 -80), {hole})")), 360.0 * 160.0 - 200.0);
}

#[test]
fn what_covers_places_twice_is_refused_with_advice() {
    let error = cut("POLYGON ((-40 -80, 330 -80, 330 80, -40 80, -40 -80))").unwrap_err();
    assert!(matches!(error, AntimeridianError::Overlap { degrees: 370.0 }), "{error}");
    assert!(error.to_string().contains("divide it"), "{error}");
}

fn ring(random: &mut SmallRng, count: usize) -> LineString<f64> {
    let mut coords: Vec<_> = (0..count)
        .map(|_| Coord { x: f64::from(random.random_range(174..187)), y: f64::from(random.random_range(0..13)) })
        .collect();
    coords.push(coords[0]);
    LineString(coords)
}

#[test]
fn cut_polygons_hold_the_same_places() {
    let (mut cut_count, mut hole_count) = (0, 0);
    for seed in 0..30_000 {
        let mut random = SmallRng::seed_from_u64(seed);
        let vertices = random.random_range(3..9);
        let holes = (0..random.random_range(0..3)).map(|_| ring(&mut random, 3)).collect();
        let outer = if random.random_bool(0.5) {
            let corner = |x, y| Coord { x, y };
            // Around all holes, so that few touch it.
            geo_types::Rect::new(corner(173.0, -1.0), corner(187.0, 13.0)).to_polygon().exterior().clone()
        } else {
            ring(&mut random, vertices)
        };
        let polygon = Polygon::new(outer, holes);
        let whole = Geometry::Polygon(polygon.clone());
        if check_valid(&whole).is_err() {
            continue;
        }
        let bytes = from_geo(&whole);
        let context = || format!("seed {seed}: {}", to_wkt(&bytes).unwrap());
        let parts = match cut_at_antimeridian(&bytes) {
            Ok(parts) => parts,
            Err(error) => panic!("{error}: {}", context()),
        };
        let query = |bytes: &[u8], system| QueryGeometry::new(bytes, system).unwrap();
        let (before, after) = (query(&bytes, CoordinateSystem::Planar), query(&parts, CoordinateSystem::LonLat));
        // Between the grid's positions, so that no rounded edge decides.
        for step in 0..15 * 15 {
            let (x, y) = (172.0 + f64::from(step % 15) + 0.437_1, f64::from(step / 15) - 1.728_1);
            let wrapped = if x > 180.0 { x - 360.0 } else { x };
            let expected = before.intersects_point(Point::new(x, y));
            assert_eq!(after.intersects_point(Point::new(wrapped, y)), expected, "({x}, {y}) of {}", context());
        }
        let geometry = to_geo(&parts).unwrap();
        assert_eq!(check_valid(&geometry), Ok(()), "{}", context());
        assert!((geometry.unsigned_area() - polygon.unsigned_area()).abs() < 1e-9, "{}", context());
        cut_count += usize::from(parts != bytes);
        hole_count += usize::from(!polygon.interiors().is_empty());
    }
    assert!(cut_count > 1_000 && hole_count > 100, "{cut_count} cut, {hole_count} with holes");
}

#[test]
fn cut_lines_keep_their_length() {
    for seed in 0..5_000 {
        let mut random = SmallRng::seed_from_u64(seed);
        let line = LineString(ring(&mut random, 5).0.into_iter().skip(1).collect());
        let bytes = from_geo(&Geometry::LineString(line.clone()));
        let parts = to_geo(&cut_at_antimeridian(&bytes).unwrap()).unwrap();
        let lines = match parts {
            Geometry::LineString(line) => vec![line],
            Geometry::MultiLineString(lines) => lines.0,
            other => panic!("seed {seed}: {other:?}"),
        };
        let length: f64 = lines.iter().map(|line| Euclidean.length(line)).sum();
        assert!((length - Euclidean.length(&line)).abs() < 1e-9, "seed {seed}: {lines:?}");
        assert!(lines.iter().flatten().all(|coord| coord.x.abs() <= 180.0), "seed {seed}: {lines:?}");
    }
}

/// Part of a query that meets the antimeridian only at multiples of a half, where nothing is
/// rounded.
fn part_near_180(random: &mut SmallRng) -> Geometry<f64> {
    let corner = |random: &mut SmallRng| Coord {
        x: 180.0 + 2.0 * f64::from(random.random_range(-1..=1)),
        y: f64::from(random.random_range(0..6)),
    };
    loop {
        let path = |random: &mut SmallRng, count| LineString((0..count).map(|_| corner(random)).collect());
        let candidate = match random.random_range(0..8) {
            // Points have only one representation from the beginning.
            0 => path(random, 2)
                .0
                .iter()
                .map(|coord| geo_types::Point::new(coord.x.min(180.0), coord.y))
                .collect::<MultiPoint>()
                .into(),
            1 | 2 => Geometry::LineString(path(random, 3)),
            _ => {
                let count = random.random_range(3..8);
                Geometry::Polygon(Polygon::new(path(random, count), Vec::new()))
            }
        };
        if check_valid(&candidate).is_ok() {
            return candidate;
        }
    }
}

#[test]
fn what_lies_on_the_antimeridian_is_within_what_was_cut_there() {
    let mut counts = [0; 2];
    for seed in 0..3_000 {
        let mut random = SmallRng::seed_from_u64(seed);
        let count = random.random_range(1..4);
        let parts: Vec<Geometry<f64>> = (0..count).map(|_| part_near_180(&mut random)).collect();
        let whole = match count {
            1 => parts[0].clone(),
            _ => Geometry::GeometryCollection(GeometryCollection(parts)),
        };
        let bytes = from_geo(&whole);
        let Ok(cut) = cut_at_antimeridian(&bytes) else { continue };
        let before = QueryGeometry::new(&bytes, CoordinateSystem::Planar).unwrap();
        let after = QueryGeometry::new(&cut, CoordinateSystem::LonLat).unwrap();
        let context = || format!("seed {seed}: {}, cut {}", to_wkt(&bytes).unwrap(), to_wkt(&cut).unwrap());
        let names = |y: f64| [Point::new(180.0, y), Point::new(-180.0, y)];
        for step in 0..28 {
            let y = f64::from(step) / 4.0 - 0.5;
            let expected = before.within_point(Point::new(180.0, y));
            counts[usize::from(expected)] += 1;
            for point in names(y) {
                assert_eq!(after.within_point(point), expected, "{point:?} of {}", context());
                assert_eq!(after.within(&point_wkb(point)), Ok(expected), "{point:?} of {}", context());
            }
        }
        let ys = [0; 2].map(|_| f64::from(random.random_range(0..12)) / 2.0);
        let points = |place: &dyn Fn(f64, usize) -> Point| {
            let points = ys.iter().enumerate().map(|(index, y)| place(*y, index));
            from_geo(&Geometry::MultiPoint(points.map(|point| geo_types::Point::new(point.x, point.y)).collect()))
        };
        let expected = before.within(&points(&|y, _| Point::new(180.0, y))).unwrap();
        let mixed = points(&|y, index| names(y)[index]);
        assert_eq!(after.within(&mixed), Ok(expected), "{ys:?} of {}", context());
    }
    assert!(counts.iter().all(|count| *count > 5_000), "{counts:?}");
}
