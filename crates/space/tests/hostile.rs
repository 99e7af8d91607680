//! Random and damaged input: results or errors, never a panic. Accepted input stays the same when
//! it is read again.

use proptest::prelude::*;
use serde_json::Value;
use terrane_space::geometry::*;
use terrane_space::{CoordinateSystem, Point};

/// Every function on stored bytes, called on bytes that may be damaged.
fn use_everywhere(bytes: &[u8]) {
    let _ = as_point(bytes);
    let _ = to_geo(bytes);
    let _ = cut_at_antimeridian(bytes);
    let _ = to_wkt(bytes);
    let _ = to_geojson(bytes);
    for system in [CoordinateSystem::Planar, CoordinateSystem::LonLat] {
        let _ = summarise(bytes, system);
        let _ = distance_bytes(system, Point::new(1.0, 2.0), bytes);
        let square = from_wkt("POLYGON ((0 0, 4 0, 4 4, 0 4, 0 0))").unwrap();
        let query = QueryGeometry::new(&square, system).unwrap();
        let _ = query.intersects(bytes);
        let _ = QueryGeometry::new(bytes, system).map(|query| query.intersects(&square));
    }
}

fn accepted(bytes: &[u8]) {
    use_everywhere(bytes);
    if let Ok(parsed) = parse_wkb(bytes) {
        assert!(parsed.bytes.len() <= bytes.len());
        assert_eq!(parse_wkb(&parsed.bytes).unwrap().bytes, parsed.bytes);
        let text = to_wkt(&parsed.bytes).unwrap();
        let again = from_wkt(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(to_wkt(&again).unwrap(), text);
        let value = to_geojson(&parsed.bytes).unwrap();
        assert!(from_geojson(&value).is_ok(), "{text} as {value}");
    }
}

/// A well-formed geometry whose bytes are then damaged.
fn seed_geometry() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(vec![
        "POINT Z (1 2 3)",
        "LINESTRING (1 2, 3 4, 5 6)",
        "POLYGON ((0 0, 4 0, 4 4, 0 0), (2 1, 3 1, 3 2, 2 1))",
        "MULTIPOINT ((1 2), (3 4), EMPTY)",
        "MULTIPOLYGON M (((0 0 1, 4 0 1, 4 4 1, 0 0 1)))",
        "GEOMETRYCOLLECTION (POINT (1 2), GEOMETRYCOLLECTION (MULTILINESTRING ((1 2, 3 4))))",
    ])
    .prop_map(|text| from_wkt(text).unwrap())
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        4 => (-200i32..200).prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
        1 => Just(Value::Null),
        1 => Just(Value::from("1")),
    ];
    leaf.prop_recursive(5, 60, 5, |inner| prop::collection::vec(inner, 0..5).prop_map(Value::from))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        accepted(&bytes);
    }

    #[test]
    fn random_bodies_after_a_plausible_header(
        order in 0u8..2, code in 1u32..8, dimension in 0u32..4, count in 0u32..4,
        body in prop::collection::vec(prop_oneof![Just(0u8), Just(1), any::<u8>()], 0..200),
    ) {
        let mut bytes = vec![order];
        let words = [code + 1000 * dimension, count];
        bytes.extend(words.iter().flat_map(|word| if order == 1 { word.to_le_bytes() } else { word.to_be_bytes() }));
        bytes.extend(body);
        accepted(&bytes);
    }

    #[test]
    fn damaged_geometries(bytes in seed_geometry(), damage in prop::collection::vec((any::<usize>(), any::<u8>()), 1..4)) {
        let mut bytes = bytes;
        for (place, value) in damage {
            let length = bytes.len();
            bytes[place % length] = value;
        }
        accepted(&bytes);
    }

    #[test]
    fn random_text(text in "(POINT|LINESTRING|MULTIPOINT|POLYGON|GEOMETRYCOLLECTION|EMPTY| Z | M |[(), .0-9eE+-]|[a-z\u{0}é]){0,30}") {
        if let Ok(bytes) = from_wkt(&text) {
            accepted(&bytes);
        }
    }

    #[test]
    fn random_json(kind in "(Point|LineString|Polygon|MultiPoint|MultiLineString|MultiPolygon|GeometryCollection)", content in json_value()) {
        let value = serde_json::json!({"type": kind, "coordinates": content, "geometries": content});
        if let Ok(bytes) = from_geojson(&value) {
            accepted(&bytes);
        }
    }
}
