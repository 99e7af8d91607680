//! Predicates on collections: within them, and collections within others.

use std::cell::Cell;

use geo_types::{Coord, Geometry, GeometryCollection, LineString, MultiPoint, Polygon, Rect};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terrane_space::geometry::*;
use terrane_space::{CoordinateSystem, Point};

const PLANAR: CoordinateSystem = CoordinateSystem::Planar;

fn query(geometry: &Geometry<f64>) -> QueryGeometry {
    QueryGeometry::new(&from_geo(geometry), PLANAR).unwrap()
}

#[test]
fn known_cases_hold_at_every_scale() {
    let text = include_str!("within_cases.txt");
    let cases: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(cases.len() > 50);
    let mut failures = Vec::new();
    for case in cases {
        let mut fields = case.split('|').map(str::trim);
        let (expected, stored, queried) = (fields.next().unwrap(), fields.next().unwrap(), fields.next().unwrap());
        // Powers of two round nothing.
        for scale in [1.0, 2f64.powi(-300), 2f64.powi(400)] {
            let scaled = |text: &str| -> Vec<u8> {
                use geo::MapCoords;
                let geometry = to_geo(&from_wkt(text).unwrap()).unwrap();
                from_geo(&geometry.map_coords(|coord| Coord { x: coord.x * scale, y: coord.y * scale }))
            };
            let found = QueryGeometry::new(&scaled(queried), PLANAR).unwrap().within(&scaled(stored)).unwrap();
            if found != (expected == "yes") {
                failures.push(format!("expected {expected} at scale {scale:e}: {stored} within {queried}"));
            }
        }
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

fn coord(random: &mut SmallRng) -> Coord<f64> {
    Coord { x: f64::from(random.random_range(0..9)), y: f64::from(random.random_range(0..9)) }
}

fn path(random: &mut SmallRng, lengths: std::ops::Range<usize>) -> LineString<f64> {
    let count = random.random_range(lengths);
    LineString((0..count).map(|_| coord(random)).collect())
}

fn simple(random: &mut SmallRng) -> Geometry<f64> {
    loop {
        let candidate = match random.random_range(0..4) {
            0 => Geometry::MultiPoint(MultiPoint::from(path(random, 1..4).0)),
            1 => Geometry::LineString(path(random, 2..4)),
            _ => Geometry::Polygon(Polygon::new(path(random, 3..6), Vec::new())),
        };
        if check_valid(&candidate).is_ok() {
            return candidate;
        }
    }
}

fn collection(members: Vec<Geometry<f64>>) -> Geometry<f64> {
    Geometry::GeometryCollection(GeometryCollection(members))
}

fn rectangle(x0: i32, y0: i32, x1: i32, y1: i32) -> Geometry<f64> {
    let corner = |x, y| Coord { x: f64::from(x), y: f64::from(y) };
    Geometry::Polygon(Rect::new(corner(x0, y0), corner(x1, y1)).to_polygon())
}

#[test]
fn a_negative_zero_lies_where_zero_does() {
    let text = include_str!("within_cases.txt");
    for case in text.lines().filter(|line| !line.starts_with('#')) {
        let mut fields = case.split('|').map(str::trim);
        let (expected, stored, queried) = (fields.next().unwrap(), fields.next().unwrap(), fields.next().unwrap());
        // The axes through one of the coordinates, some of them negative.
        for origin in [1.0, 2.0, 4.0, 5.0] {
            let count = Cell::new(0);
            let moved = |text: &str| -> Vec<u8> {
                use geo::MapCoords;
                let sign = |value: f64| {
                    count.set(count.get() + 1);
                    if value == 0.0 && count.get() % 3 == 0 { -0.0 } else { value }
                };
                let geometry = to_geo(&from_wkt(text).unwrap()).unwrap();
                from_geo(&geometry.map_coords(|coord| Coord { x: sign(coord.x - origin), y: sign(coord.y - origin) }))
            };
            let found = QueryGeometry::new(&moved(queried), PLANAR).unwrap().within(&moved(stored)).unwrap();
            assert_eq!(found, expected == "yes", "from {origin}: {stored} within {queried}");
        }
    }
}

#[test]
fn an_area_in_tiles_is_the_area() {
    let mut count = [0; 2];
    for seed in 0..4_000 {
        let mut random = SmallRng::seed_from_u64(seed);
        let (x, y) = (random.random_range(1..7), random.random_range(1..7));
        let whole = rectangle(0, 0, 8, 8);
        let mut tiles =
            vec![rectangle(0, 0, x, y), rectangle(x, 0, 8, y), rectangle(x, y, 8, 8), rectangle(0, y, x, 8)];
        if random.random_bool(0.5) {
            // Parts in an area change nothing, and neither does an overlap.
            tiles.push(simple(&mut random));
            tiles.push(rectangle(0, 0, 8, random.random_range(1..8)));
        }
        let stored = if random.random_bool(0.5) {
            simple(&mut random)
        } else {
            collection((0..random.random_range(1..4)).map(|_| simple(&mut random)).collect())
        };
        let (whole, tiled) = (query(&whole), query(&collection(tiles)));
        let bytes = from_geo(&stored);
        let expected = whole.within(&bytes).unwrap();
        assert_eq!(tiled.within(&bytes), Ok(expected), "seed {seed}: {}", to_wkt(&bytes).unwrap());
        if let Some(point) = as_point(&bytes) {
            assert_eq!(tiled.within_point(point), expected, "seed {seed}: {point:?}");
        }
        count[usize::from(expected)] += 1;
    }
    assert!(count.iter().all(|count| *count > 100), "{count:?}");
}

#[test]
fn a_member_is_within_its_collection() {
    for seed in 0..4_000 {
        let mut random = SmallRng::seed_from_u64(seed);
        let members: Vec<_> = (0..random.random_range(2..6)).map(|_| simple(&mut random)).collect();
        let whole = collection(members.clone());
        let prepared = query(&whole);
        let context = || format!("seed {seed}: {}", to_wkt(&from_geo(&whole)).unwrap());
        assert_eq!(prepared.within(&from_geo(&whole)), Ok(true), "{}", context());
        for member in members.iter().filter(|member| matches!(member, Geometry::Polygon(_))) {
            assert_eq!(prepared.within(&from_geo(member)), Ok(true), "{}", context());
            assert_eq!(
                query(member).within(&from_geo(&whole)).unwrap(),
                {
                    let is_covered = |other| query(member).within(&from_geo(&collection(vec![member.clone(), other])));
                    members.iter().all(|other| is_covered(other.clone()).unwrap())
                },
                "{}",
                context()
            );
        }
    }
}

/// Each edge in halves, quarters and so on, in exact positions.
fn subdivided(geometry: &Geometry<f64>, halvings: u32) -> Geometry<f64> {
    let ring = |line: &LineString<f64>| {
        let mut coords = line.0.clone();
        for _ in 0..halvings {
            let first = coords[0];
            let halves = coords.windows(2).flat_map(|edge| [(edge[0] + edge[1]) / 2.0, edge[1]]);
            coords = std::iter::once(first).chain(halves).collect();
        }
        LineString(coords)
    };
    match geometry {
        Geometry::LineString(line) => Geometry::LineString(ring(line)),
        Geometry::Polygon(polygon) => {
            let holes = polygon.interiors().iter().map(ring).collect();
            Geometry::Polygon(Polygon::new(ring(polygon.exterior()), holes))
        }
        Geometry::GeometryCollection(members) => {
            collection(members.iter().map(|member| subdivided(member, halvings)).collect())
        }
        other => other.clone(),
    }
}

#[test]
fn positions_along_edges_change_nothing() {
    let mut count = [0; 2];
    for seed in 0..1_000 {
        let mut random = SmallRng::seed_from_u64(seed);
        let [stored, queried] = [1, 2].map(|least| {
            let members = (0..random.random_range(least..4)).map(|_| simple(&mut random)).collect();
            collection(members)
        });
        let queried = if random.random_bool(0.3) { collection(vec![queried, stored.clone()]) } else { queried };
        let expected = query(&queried).within(&from_geo(&stored)).unwrap();
        let context = || {
            format!("seed {seed}: {} in {}", to_wkt(&from_geo(&stored)).unwrap(), to_wkt(&from_geo(&queried)).unwrap())
        };
        for (halvings_stored, halvings_queried) in [(3, 0), (0, 3), (2, 3)] {
            let prepared = query(&subdivided(&queried, halvings_queried));
            let found = prepared.within(&from_geo(&subdivided(&stored, halvings_stored)));
            assert_eq!(found, Ok(expected), "{halvings_stored}, {halvings_queried}, {}", context());
        }
        count[usize::from(expected)] += 1;
    }
    assert!(count.iter().all(|count| *count > 100), "{count:?}");
}

#[test]
fn one_vertex_of_many_decides() {
    let count = 1_000;
    let mut random = SmallRng::seed_from_u64(1);
    let heights: Vec<f64> = (0..count).map(|_| random.random_range(1.0..9.0)).collect();
    let terrain = |changed: usize, change: f64| {
        let height = |index: usize| heights[index] + if index == changed { change } else { 0.0 };
        let mut coords: Vec<_> = (0..count).map(|index| Coord { x: index as f64, y: height(index) }).collect();
        coords.extend([Coord { x: count as f64 - 1.0, y: 0.0 }, Coord { x: 0.0, y: 0.0 }]);
        Geometry::Polygon(Polygon::new(LineString(coords), Vec::new()))
    };
    let prepared = query(&terrain(0, 0.0));
    for index in (0..count).step_by(83).chain([count - 1]) {
        let epsilon = heights[index] * f64::EPSILON;
        for (change, expected) in [(-0.5, true), (-epsilon, true), (0.0, true), (epsilon, false), (0.5, false)] {
            let found = prepared.within(&from_geo(&terrain(index, change)));
            assert_eq!(found, Ok(expected), "vertex {index} by {change}");
            let found = query(&terrain(index, change)).within(&from_geo(&terrain(0, 0.0)));
            assert_eq!(found, Ok(change >= 0.0), "vertex {index} by {change}, the other way round");
        }
    }
}

#[test]
fn crossings_are_ordered_without_rounding() {
    // The second area begins where the first ends, with a gap or overlap of one part in 2^52.
    let end = 1.0;
    for (start, expected) in [(end, true), (1.0f64.next_up(), false), (1.0f64.next_down(), true)] {
        let text = format!(
            "GEOMETRYCOLLECTION (POLYGON ((0 -1, {end} -1, {end} 3, 0 3, 0 -1)), POLYGON (({start} -7, 9 -7, 9 7, {start} 7, {start} -7)))"
        );
        let prepared = QueryGeometry::new(&from_wkt(&text).unwrap(), PLANAR).unwrap();
        assert_eq!(prepared.within(&from_wkt("LINESTRING (0 0.1, 3 1.7)").unwrap()), Ok(expected), "{start}");
        let is_between = prepared.within_point(Point::new(1.0, 0.5));
        assert_eq!(is_between, expected, "{start}");
    }
}
