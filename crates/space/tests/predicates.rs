//! Prepared queries against the DE-9IM matrix, on random geometries of a small grid. Contacts,
//! shared edges and nested parts are common there.

use crate::relate::relate;
use geo_types::{
    Coord, Geometry, GeometryCollection, LineString, MultiLineString, MultiPoint, MultiPolygon, Point as GeoPoint,
    Polygon,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terrane_space::geometry::*;
use terrane_space::{CoordinateSystem, Point, Rect};

const PLANAR: CoordinateSystem = CoordinateSystem::Planar;
const LONLAT: CoordinateSystem = CoordinateSystem::LonLat;

fn coord(random: &mut SmallRng) -> Coord<f64> {
    Coord { x: f64::from(random.random_range(0..7)), y: f64::from(random.random_range(0..7)) }
}

fn line(random: &mut SmallRng) -> LineString<f64> {
    let count = random.random_range(2..5);
    LineString((0..count).map(|_| coord(random)).collect())
}

fn ring(random: &mut SmallRng) -> LineString<f64> {
    let count = random.random_range(3..7);
    let mut coords: Vec<_> = (0..count).map(|_| coord(random)).collect();
    coords.push(coords[0]);
    LineString(coords)
}

fn polygon(random: &mut SmallRng) -> Polygon<f64> {
    let holes = random.random_range(0..2);
    let exterior = if random.random_bool(0.3) {
        let side = f64::from(random.random_range(4..7));
        Polygon::from(geo_types::Rect::new((0.0, 0.0), (side, side))).exterior().clone()
    } else {
        ring(random)
    };
    Polygon::new(exterior, (0..holes).map(|_| ring(random)).collect())
}

fn geometry(random: &mut SmallRng) -> Geometry<f64> {
    let count = random.random_range(0..3);
    match random.random_range(0..7) {
        0 => Geometry::Point(GeoPoint(coord(random))),
        1 => Geometry::LineString(line(random)),
        2 => Geometry::MultiPoint(MultiPoint((0..count).map(|_| GeoPoint(coord(random))).collect())),
        3 => Geometry::MultiLineString(MultiLineString((0..count).map(|_| line(random)).collect())),
        4 => Geometry::MultiPolygon(MultiPolygon((0..count).map(|_| polygon(random)).collect())),
        _ => Geometry::Polygon(polygon(random)),
    }
}

fn valid_geometry(random: &mut SmallRng) -> Geometry<f64> {
    loop {
        let candidate = geometry(random);
        if check_valid(&candidate).is_ok() {
            return candidate;
        }
    }
}

fn wkt(text: &str) -> Vec<u8> {
    from_wkt(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn query(text: &str, system: CoordinateSystem) -> QueryGeometry {
    QueryGeometry::new(&wkt(text), system).unwrap()
}

#[test]
fn prepared_queries_agree_with_the_matrix() {
    for seed in 0..20_000 {
        let mut random = SmallRng::seed_from_u64(seed);
        let (a, b) = (valid_geometry(&mut random), valid_geometry(&mut random));
        let (a_bytes, b_bytes) = (from_geo(&a), from_geo(&b));
        let Some(matrix) = relate(&b, &a) else {
            // Debug builds of `geo` reject some rounded intersections.
            continue;
        };
        let prepared = QueryGeometry::new(&a_bytes, PLANAR).unwrap();
        let context = || {
            format!(
                "seed {seed} (rerun with 0..20_000 narrowed to it)\n  query  {}\n  stored {}",
                to_wkt(&a_bytes).unwrap(),
                to_wkt(&b_bytes).unwrap()
            )
        };
        let intersects = prepared.intersects(&b_bytes).unwrap();
        assert_eq!(intersects, matrix.is_intersects(), "intersects, {}", context());
        assert_eq!(prepared.within(&b_bytes), Ok(matrix.is_within()), "within, {}", context());
        assert_eq!(prepared.covers(&b_bytes), Ok(matrix.is_coveredby()), "covers, {}", context());
        if let Some(point) = as_point(&b_bytes) {
            assert_eq!(prepared.intersects_point(point), matrix.is_intersects(), "{}", context());
            assert_eq!(prepared.within_point(point), matrix.is_within(), "{}", context());
        }
        let rect = summarise(&b_bytes, PLANAR).unwrap().index_rect;
        let is_candidate = prepared.rects().iter().any(|window| window.intersects(&rect));
        assert!(is_candidate || !intersects, "not a candidate, {}", context());
        assert_eq!(terrane_space::geometry::intersects(&a, &b), Ok(intersects));
        assert_eq!(terrane_space::geometry::within(&b, &a), Ok(matrix.is_within()));
    }
}

#[test]
fn invalid_geometries_give_an_answer() {
    for seed in 0..20_000 {
        let mut random = SmallRng::seed_from_u64(seed);
        let members = vec![geometry(&mut random), geometry(&mut random)];
        let stored = Geometry::GeometryCollection(GeometryCollection(members));
        let prepared = QueryGeometry::new(&from_geo(&geometry(&mut random)), PLANAR).unwrap();
        let intersects = prepared.intersects(&from_geo(&stored)).unwrap();
        let within = prepared.within(&from_geo(&stored)).unwrap();
        assert!(intersects || !within, "seed {seed}: within, and apart");
    }
}

#[test]
fn the_boundary_of_a_polygon_intersects_but_is_not_within() {
    let square = query("POLYGON ((0 0, 4 0, 4 4, 0 4, 0 0), (1 1, 2 1, 2 2, 1 2, 1 1))", PLANAR);
    for (x, y, intersects, within) in [
        (3.0, 3.0, true, true),
        (4.0, 2.0, true, false),
        (0.0, 0.0, true, false),
        (1.0, 1.5, true, false),
        (1.5, 1.5, false, false),
        (4.0f64.next_up(), 2.0, false, false),
    ] {
        let point = Point::new(x, y);
        assert_eq!(square.intersects_point(point), intersects, "{x} {y}");
        assert_eq!(square.within_point(point), within, "{x} {y}");
    }
    assert_eq!(square.within(&wkt("LINESTRING (4 0, 4 4)")), Ok(false));
    assert_eq!(square.within(&wkt("LINESTRING (4 0, 4 4, 3 3)")), Ok(true));
    assert_eq!(square.within(&wkt("MULTIPOINT ((4 0), (3 3))")), Ok(true));
    assert_eq!(square.within(&wkt("POLYGON ((0 0, 4 0, 4 4, 0 4, 0 0))")), Ok(false));
    assert_eq!(square.within(&wkt("POLYGON ((2 2, 4 2, 4 4, 2 4, 2 2))")), Ok(true));
}

#[test]
fn predicates_are_exact_next_to_nothing() {
    for scale in ["1e-90", "1e-154", "1e-170", "1e-300"] {
        let scaled = |text: &str| text.replace('@', scale.strip_prefix('1').unwrap());
        let triangle = query(&scaled("POLYGON ((0 0, 1@ 0, 0 1@, 0 0))"), PLANAR);
        for (text, intersects, within) in [
            ("POINT (0.4@ 0.4@)", true, true),
            ("POINT (0.5@ 0.5@)", true, false),
            ("POINT (0.9@ 0.9@)", false, false),
            ("LINESTRING (0.9@ 0.2@, 0.2@ 0.9@)", false, false),
            ("LINESTRING (0.1@ 0.2@, 0.2@ 0.1@)", true, true),
            ("LINESTRING (0 0, 0.9@ 0.9@)", true, false),
        ] {
            let other = wkt(&scaled(text));
            assert_eq!(triangle.intersects(&other), Ok(intersects), "{} at {scale}", scaled(text));
            assert_eq!(triangle.within(&other), Ok(within), "{} at {scale}", scaled(text));
        }
    }
}

#[test]
fn empty_geometries_meet_nothing() {
    let square = query("POLYGON ((0 0, 4 0, 4 4, 0 4, 0 0))", PLANAR);
    for empty in ["POINT EMPTY", "POLYGON EMPTY", "GEOMETRYCOLLECTION (POINT EMPTY)"] {
        assert_eq!(square.intersects(&wkt(empty)), Ok(false), "{empty}");
        assert_eq!(square.within(&wkt(empty)), Ok(false), "{empty}");
        let nothing = query(empty, LONLAT);
        assert!(nothing.rects().is_empty());
        assert_eq!(nothing.intersects(&wkt("POINT (1 1)")), Ok(false));
        assert_eq!(nothing.within(&wkt("POINT (1 1)")), Ok(false));
    }
}

#[test]
fn collections_are_the_union_of_their_parts() {
    let mixed =
        query("GEOMETRYCOLLECTION (POLYGON ((0 0, 2 0, 2 2, 0 2, 0 0)), LINESTRING (5 5, 9 9), POINT (20 0))", PLANAR);
    for (text, intersects, within) in [
        ("POINT (1 1)", true, true),
        ("POINT (7 7)", true, true),
        ("POINT (20 0)", true, true),
        ("POINT (20 1)", false, false),
        ("POLYGON ((6 5, 8 5, 8 9, 6 5))", true, false),
        ("POLYGON ((19 -1, 21 -1, 20 5, 19 -1))", true, false),
        ("LINESTRING (2 1, 5 1)", true, false),
    ] {
        assert_eq!(mixed.intersects(&wkt(text)), Ok(intersects), "{text}");
        assert_eq!(mixed.within(&wkt(text)), Ok(within), "{text}");
    }
}

#[test]
fn lines_cover_lines_across_their_own_crossings() {
    let crossing = query("LINESTRING (1 0, 0 2, 0 0, 1 1, 3 3)", PLANAR);
    assert_eq!(crossing.within(&wkt("LINESTRING (0 0, 2 2)")), Ok(true));
    assert_eq!(crossing.within(&wkt("LINESTRING (0 0, 4 4)")), Ok(false));
    assert_eq!(crossing.within(&wkt("POINT (1 0)")), Ok(false));
    assert_eq!(crossing.within(&wkt("MULTIPOINT ((1 0), (2 2))")), Ok(true));
    let closed = query("LINESTRING (0 0, 4 0, 4 4, 0 0)", PLANAR);
    assert_eq!(closed.within(&wkt("POINT (0 0)")), Ok(true));
}

#[test]
fn the_antimeridian_has_two_names() {
    let west = query("POLYGON ((-180 0, -170 0, -170 10, -180 10, -180 0))", LONLAT);
    let east_side = Point::new(180.0, 5.0);
    assert!(west.intersects_point(east_side));
    assert!(west.rects().iter().any(|rect| rect.contains_point(east_side)));
    assert_eq!(west.intersects(&wkt("LINESTRING (170 5, 180 5)")), Ok(true));
    assert_eq!(west.intersects(&wkt("LINESTRING (170 15, 180 15)")), Ok(false));
    assert_eq!(west.intersects(&wkt("POLYGON ((170 0, 180 0, 180 10, 170 10, 170 0))")), Ok(true));
    assert!(!west.within_point(east_side));
    let point = query("POINT (180 5)", LONLAT);
    assert_eq!(point.intersects(&wkt("POLYGON ((-180 0, -170 0, -170 10, -180 10, -180 0))")), Ok(true));
    assert!(point.within_point(Point::new(-180.0, 5.0)));
    let meridian = query("LINESTRING (-180 0, -180 10)", LONLAT);
    assert_eq!(meridian.within(&wkt("LINESTRING (180 2, 180 3)")), Ok(true));
    // In the plane the two are far apart.
    assert!(!query("POINT (180 5)", PLANAR).intersects_point(Point::new(-180.0, 5.0)));
}

#[test]
fn a_geometry_cut_at_the_antimeridian_has_a_window_on_each_side() {
    let fiji = query(
        "MULTIPOLYGON (((177 -19, 180 -19, 180 -16, 177 -16, 177 -19)), ((-180 -19, -178 -19, -178 -16, -180 -16, -180 -19)))",
        LONLAT,
    );
    let holds = |x: f64| fiji.rects().iter().any(|rect| rect.contains_point(Point::new(x, -17.0)));
    assert!(holds(178.0) && holds(-179.0) && holds(180.0) && holds(-180.0));
    assert!(!holds(0.0) && !holds(170.0));
}

#[test]
fn index_boxes_hold_the_arcs_of_edges() {
    let edge = wkt("LINESTRING (-45 60, 45 60)");
    let lonlat = summarise(&edge, LONLAT).unwrap();
    assert_eq!(lonlat.planar_rect, Rect::new(-45.0, 60.0, 45.0, 60.0));
    assert!(lonlat.index_rect.y1 > 67.7 && lonlat.index_rect.y0 == 60.0);
    let planar = summarise(&edge, PLANAR).unwrap();
    assert_eq!(planar.index_rect, planar.planar_rect);
    // Points have no edges between them.
    let points = summarise(&wkt("MULTIPOINT ((-45 60), (45 60))"), LONLAT).unwrap();
    assert_eq!(points.index_rect, points.planar_rect);
    assert_eq!((points.kind, points.vertex_count), (GeometryKind::MultiPoint, 2));
    // A new line does not begin at the end of the last.
    let lines = summarise(&wkt("MULTILINESTRING ((-45 60, -44 60), (44 60, 45 60))"), LONLAT).unwrap();
    assert!(lines.index_rect.y1 < 60.01);
}

#[test]
fn positions_off_the_globe_are_refused_with_their_number() {
    let error = summarise(&wkt("LINESTRING (0 0, 48 -122)"), LONLAT).unwrap_err();
    assert!(matches!(error, GeometryError::Coordinate { vertex: 1, .. }));
    assert!(error.to_string().contains("did you swap"), "{error}");
    assert!(QueryGeometry::new(&wkt("POINT (200 0)"), LONLAT).is_err());
    assert!(summarise(&wkt("LINESTRING (0 0, 48 -122)"), PLANAR).is_ok());
}

#[test]
fn summaries_count_what_is_there() {
    let summary = summarise(&wkt("GEOMETRYCOLLECTION (POINT Z (1 2 3), POINT M (1 2 3))"), PLANAR).unwrap();
    assert!(summary.has_z && summary.has_m && !summary.is_empty);
    let empty = summarise(&wkt("POLYGON EMPTY"), LONLAT).unwrap();
    assert!(empty.is_empty && empty.index_rect.is_empty() && empty.vertex_count == 0);
}
