//! GeoJSON geometries: reading, writing, and errors that name the path.

use serde_json::{Value, json};
use terrane_space::geometry::{from_geojson, from_wkt, to_geojson, to_wkt};

fn wkt(value: &Value) -> String {
    let bytes = from_geojson(value).unwrap_or_else(|error| panic!("{value}: {error}"));
    to_wkt(&bytes).unwrap()
}

#[test]
fn all_kinds_go_both_ways() {
    for text in [
        "POINT (1 2)",
        "POINT Z (1 2 3)",
        "LINESTRING (1 2, 3 4.5)",
        "POLYGON ((0 0, 4 0, 4 4, 0 0), (2 1, 3 1, 3 2, 2 1))",
        "MULTIPOINT Z ((1 2 3), (3 4 5))",
        "MULTILINESTRING ((1 2, 3 4), (5 6, 7 8))",
        "MULTIPOLYGON (((0 0, 4 0, 4 4, 0 0)), ((9 9, 10 9, 10 10, 9 9)))",
        "GEOMETRYCOLLECTION (POINT (1 2), GEOMETRYCOLLECTION (LINESTRING (1 2, 3 4)))",
        "GEOMETRYCOLLECTION Z (POINT Z (1 2 3))",
        "GEOMETRYCOLLECTION EMPTY",
        "POINT EMPTY",
        "POLYGON EMPTY",
        "MULTIPOLYGON EMPTY",
    ] {
        let bytes = from_wkt(text).unwrap();
        let value = to_geojson(&bytes).unwrap();
        assert_eq!(from_geojson(&value).unwrap(), bytes, "{text} as {value}");
        if !text.contains("POINT EMPTY") {
            // Another reader accepts it too.
            let parsed = serde_json::from_value::<geojson::Geometry>(value.clone());
            assert!(parsed.is_ok(), "{value}: {parsed:?}");
        }
    }
}

#[test]
fn measures_are_dropped() {
    let value = to_geojson(&from_wkt("LINESTRING ZM (1 2 3 4, 5 6 7 8)").unwrap()).unwrap();
    assert_eq!(value, json!({"type": "LineString", "coordinates": [[1.0, 2.0, 3.0], [5.0, 6.0, 7.0]]}));
    let value = to_geojson(&from_wkt("POINT M (1 2 3)").unwrap()).unwrap();
    assert_eq!(value["coordinates"], json!([1.0, 2.0]));
}

#[test]
fn empty_coordinates_are_empty_geometries() {
    for (kind, expected) in [
        ("Point", "POINT EMPTY"),
        ("LineString", "LINESTRING EMPTY"),
        ("Polygon", "POLYGON EMPTY"),
        ("MultiPoint", "MULTIPOINT EMPTY"),
        ("MultiLineString", "MULTILINESTRING EMPTY"),
        ("MultiPolygon", "MULTIPOLYGON EMPTY"),
    ] {
        assert_eq!(wkt(&json!({"type": kind, "coordinates": []})), expected);
    }
    assert_eq!(wkt(&json!({"type": "MultiPolygon", "coordinates": [[]]})), "MULTIPOLYGON (EMPTY)");
}

#[test]
fn foreign_members_are_ignored() {
    let value = json!({"type": "Point", "coordinates": [1, 2], "bbox": [1, 2, 1, 2], "crs": null});
    assert_eq!(wkt(&value), "POINT (1 2)");
}

#[test]
fn faults_are_named_with_their_path() {
    for (value, path, reason) in [
        (json!(null), "", "found null"),
        (json!([1, 2]), "", "found an array"),
        (json!({"coordinates": [1, 2]}), "", "\"type\" is missing"),
        (json!({"type": 3}), "type", "found a number"),
        (json!({"type": "point", "coordinates": [1, 2]}), "type", "case-sensitive"),
        (json!({"type": "Feature", "geometry": null}), "type", "inside of a feature"),
        (json!({"type": "Point"}), "", "\"coordinates\" is missing"),
        (json!({"type": "Point", "coordinates": null}), "coordinates", "found null"),
        (json!({"type": "Point", "coordinates": [1]}), "coordinates", "found 1"),
        (json!({"type": "Point", "coordinates": [1, 2, 3, 4]}), "coordinates", "found 4"),
        (json!({"type": "Point", "coordinates": ["1", 2]}), "coordinates[0]", "found a string"),
        (json!({"type": "Point", "coordinates": [1, null]}), "coordinates[1]", "found null"),
        (json!({"type": "Point", "coordinates": [[1, 2]]}), "coordinates", "found 1"),
        (json!({"type": "LineString", "coordinates": [1, 2]}), "coordinates[0]", "found a number"),
        (json!({"type": "LineString", "coordinates": [[1, 2], [1, 2, 3]]}), "coordinates[1]", "two and with three"),
        (json!({"type": "Polygon", "coordinates": [[1, 2], [3, 4]]}), "coordinates[0][0]", "found a number"),
        (
            json!({"type": "GeometryCollection", "geometries": [{"type": "Point", "coordinates": [1, true]}]}),
            "geometries[0].coordinates[1]",
            "found a boolean",
        ),
    ] {
        let error = from_geojson(&value).expect_err(&value.to_string()).to_string();
        let place = if path.is_empty() { "geometry: ".to_string() } else { format!("geometry, at {path}: ") };
        assert!(error.contains(&place) && error.contains(reason), "{value}: {error}");
    }
}

#[test]
fn faulty_rings_are_refused() {
    for (ring, reason) in [
        (json!([[0, 0], [1, 0], [1, 1], [0, 1]]), "not closed"),
        (json!([[0, 0], [1, 0], [0, 0]]), "needs 4"),
        (json!([]), "needs 4"),
    ] {
        // A second ring keeps the byte counts plausible.
        let square = [[0, 0], [9, 0], [9, 9], [0, 9], [0, 0]];
        let error = from_geojson(&json!({"type": "Polygon", "coordinates": [ring, square]})).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[test]
fn collections_nest_to_a_limit() {
    let nested = |depth: usize| {
        (0..depth).fold(
            json!({"type": "Point", "coordinates": [1, 2]}),
            |inner, _| json!({"type": "GeometryCollection", "geometries": [inner]}),
        )
    };
    assert!(from_geojson(&nested(31)).is_ok());
    assert!(from_geojson(&nested(32)).unwrap_err().to_string().contains("nested deeper"));
}
