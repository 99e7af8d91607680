//! Files in projected coordinates: the antimeridian, the poles, and positions beyond the earth.

use crate::support::{Whole, read_text, wkt};

fn read(code: u32, geometry: &str) -> Whole {
    let text = format!(
        r#"{{"type":"FeatureCollection","crs":{{"type":"name","properties":{{"name":"EPSG:{code}"}}}},"features":[{{"type":"Feature","properties":{{}},"geometry":{geometry}}}]}}"#
    );
    read_text("a.geojson", text).expect("a file")
}

/// The geometry with its numbers rounded to a thousandth.
fn converted(code: u32, geometry: &str) -> String {
    let whole = read(code, geometry);
    let refused: Vec<_> = whole.rejected.iter().map(|row| &row.reason).collect();
    assert!(refused.is_empty(), "{geometry}: {refused:?}");
    let text = wkt(&whole)[0].clone().expect("a geometry");
    let mut rounded = String::new();
    let mut number = String::new();
    for character in text.chars().chain([' ']) {
        if character.is_ascii_digit() || "-.e".contains(character) {
            number.push(character);
            continue;
        }
        if let Ok(value) = number.parse::<f64>() {
            rounded += &((value * 1000.0).round() / 1000.0 + 0.0).to_string();
        }
        number.clear();
        rounded.push(character);
    }
    rounded.trim_end().to_string()
}

fn refused(code: u32, geometry: &str) -> String {
    let whole = read(code, geometry);
    assert_eq!(whole.rejected.len(), 1, "EPSG:{code} {geometry}");
    whole.rejected[0].reason.clone()
}

#[test]
fn what_crosses_the_antimeridian_is_cut() {
    for (code, geometry, expected) in [
        (
            3832,
            r#"{"type":"Polygon","coordinates":[[[3228265.233,-1908339.067],[3450904.215,-1908339.067],[3450904.215,-1792951.697],[3228265.233,-1792951.697],[3228265.233,-1908339.067]]]}"#,
            "MULTIPOLYGON (((180 -16, 179 -16, 179 -17, 180 -17, 180 -16)), ((-180 -17, -179 -17, -179 -16, -180 -16, -180 -17)))",
        ),
        (
            3857,
            r#"{"type":"LineString","coordinates":[[19926188.85,0],[20148827.83,111325.14]]}"#,
            "MULTILINESTRING ((179 0, 180 0.5), (-180 0.5, -179 1))",
        ),
        (
            3857,
            r#"{"type":"LineString","coordinates":[[20037508.3428,0],[20148827.83,111325.14]]}"#,
            "LINESTRING (-180 0, -179 1)",
        ),
        (3857, r#"{"type":"Point","coordinates":[20148827.83,111325.14]}"#, "POINT (-179 1)"),
        // The world, up to the end of the map and slightly beyond.
        (
            3857,
            r#"{"type":"Polygon","coordinates":[[[-20037508.35,0],[20037508.35,0],[20037508.35,111325.14],[-20037508.35,111325.14],[-20037508.35,0]]]}"#,
            "POLYGON ((-180 0, 180 0, 180 1, -180 1, -180 0))",
        ),
        (
            3857,
            r#"{"type":"LineString","coordinates":[[-16697923.62,0],[16697923.62,0]]}"#,
            "LINESTRING (-150 0, 150 0)",
        ),
        // New Zealand's map reaches beyond; its degrees stay as written.
        (4269, r#"{"type":"LineString","coordinates":[[-179,0],[179,0]]}"#, "LINESTRING (-179 0, 179 0)"),
    ] {
        assert_eq!(converted(code, geometry), expected, "EPSG:{code} {geometry}");
    }
}

#[test]
fn rings_around_a_pole_are_refused() {
    let around = r#"{"type":"Polygon","coordinates":[[[-1e6,-1e6],[1e6,-1e6],[1e6,1e6],[-1e6,1e6],[-1e6,-1e6]]]}"#;
    for code in [3413, 3031] {
        let reason = refused(code, around);
        assert!(reason.contains("surrounds a pole"), "EPSG:{code}: {reason}");
    }
    let beside = r#"{"type":"Polygon","coordinates":[[[1e5,1e5],[1e6,1e5],[1e6,1e6],[1e5,1e6],[1e5,1e5]]]}"#;
    for code in [3413, 3031] {
        assert!(read(code, beside).rejected.is_empty(), "EPSG:{code}");
    }
    let over = refused(3413, r#"{"type":"LineString","coordinates":[[-1e6,0],[1e6,0]]}"#);
    assert!(over.contains("over a pole"), "{over}");
    // From the end of one path to the start of the next there is no edge.
    for apart in [
        r#"{"type":"MultiPoint","coordinates":[[-1e6,0],[1e6,0]]}"#,
        r#"{"type":"MultiLineString","coordinates":[[[-2e6,0],[-1e6,0]],[[1e6,0],[2e6,0]]]}"#,
    ] {
        assert!(read(3413, apart).rejected.is_empty(), "{apart}");
    }
}

#[test]
fn places_that_are_not_on_the_earth_are_refused() {
    for (code, x, y) in [(3857, 3e7, 0.0), (3857, 1e30, 1e30), (32633, 5e6, 5e7)] {
        let reason = refused(code, &format!(r#"{{"type":"Point","coordinates":[{x:e},{y:e}]}}"#));
        assert!(reason.contains("no place on the earth") || reason.contains("cannot be converted"), "{reason}");
    }
}

#[test]
fn an_approximate_conversion_is_said_to_be() {
    for (code, is_approximate) in [(3003, true), (5514, true), (32633, false), (25832, false)] {
        let whole = read(code, r#"{"type":"Polygon","coordinates":[]}"#);
        let warnings = whole.source.warnings.join("\n");
        assert!(warnings.contains("are converted from EPSG"), "{warnings}");
        assert_eq!(warnings.contains("one approximate shift"), is_approximate, "EPSG:{code}: {warnings}");
    }
}

#[test]
fn a_band_round_the_earth_on_a_map_of_the_pacific_has_no_seam() {
    let band = r#"{"type":"Polygon","coordinates":[[[-20037508.3428,0],[20037508.3428,0],[20037508.3428,111325.14],[-20037508.3428,111325.14],[-20037508.3428,0]]]}"#;
    assert_eq!(converted(3832, band), "POLYGON ((180 1.007, -30 1.007, -180 1.007, -180 0, -30 0, 180 0, 180 1.007))");
}
