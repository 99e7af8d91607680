//! Well-known text: legal variants, exact round trips, errors with reasons.

use std::str::FromStr;

use terrane_space::geometry::{GeometryError, from_wkt, to_wkt};

#[test]
fn legal_variants_are_read() {
    for (text, normal) in [
        ("point(1 2)", "POINT (1 2)"),
        ("  Point\n( 1\t2 )  ", "POINT (1 2)"),
        ("POINT Z (1 2 3)", "POINT Z (1 2 3)"),
        ("POINTZ(1 2 3)", "POINT Z (1 2 3)"),
        ("pointz (1 2 3)", "POINT Z (1 2 3)"),
        ("POINT M (1 2 3)", "POINT M (1 2 3)"),
        ("POINT ZM (1 2 3 4)", "POINT ZM (1 2 3 4)"),
        ("POINT EMPTY", "POINT EMPTY"),
        ("POINT Z EMPTY", "POINT Z EMPTY"),
        ("POINT(-1e3 +.5)", "POINT (-1000 0.5)"),
        ("MULTIPOINT (1 2, 3 4)", "MULTIPOINT ((1 2), (3 4))"),
        ("MULTIPOINT ((1 2), (3 4))", "MULTIPOINT ((1 2), (3 4))"),
        ("MULTIPOINT ((1 2), EMPTY)", "MULTIPOINT ((1 2), EMPTY)"),
        ("LINESTRING EMPTY", "LINESTRING EMPTY"),
        (
            "POLYGON((0 0,1 0,1 1,0 0),(0.2 0.1,0.3 0.1,0.3 0.2,0.2 0.1))",
            "POLYGON ((0 0, 1 0, 1 1, 0 0), (0.2 0.1, 0.3 0.1, 0.3 0.2, 0.2 0.1))",
        ),
        ("MULTILINESTRING((0 0,1 1),EMPTY)", "MULTILINESTRING ((0 0, 1 1), EMPTY)"),
        ("MULTIPOLYGON(((0 0,1 0,1 1,0 0)),EMPTY)", "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)), EMPTY)"),
        (
            "GEOMETRYCOLLECTION(POINT EMPTY,LINESTRING Z(0 0 1,1 1 1))",
            "GEOMETRYCOLLECTION (POINT EMPTY, LINESTRING Z (0 0 1, 1 1 1))",
        ),
        ("GEOMETRYCOLLECTION EMPTY", "GEOMETRYCOLLECTION EMPTY"),
    ] {
        let bytes = from_wkt(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(to_wkt(&bytes).unwrap(), normal);
        assert_eq!(from_wkt(normal).unwrap(), bytes);
    }
}

#[test]
fn numbers_beyond_two_need_no_tag() {
    for (text, normal) in [
        ("POINT (1 2 3)", "POINT Z (1 2 3)"),
        ("POINT (1 2 3 4)", "POINT ZM (1 2 3 4)"),
        ("MULTIPOINT (EMPTY, 1 2 3)", "MULTIPOINT Z (EMPTY, (1 2 3))"),
        ("GEOMETRYCOLLECTION (POINT (1 2 3))", "GEOMETRYCOLLECTION Z (POINT Z (1 2 3))"),
    ] {
        assert_eq!(to_wkt(&from_wkt(text).unwrap()).unwrap(), normal);
    }
}

#[test]
fn faults_are_named() {
    for (text, reason) in [
        ("", "a type of geometry, such as POINT or POLYGON, is expected, found the end at character 0"),
        ("POINT", "opening bracket or EMPTY is expected, found the end at character 5"),
        ("POINT (1)", "a number is expected, found \")\" at character 8"),
        ("POINT (1 2", "closing bracket is expected, found the end"),
        ("POINT 1 2)", "opening bracket or EMPTY is expected, found \"1\" at character 6"),
        ("POINT (1 2) POINT (3 4)", "text after the end of the geometry at character 12"),
        ("POINT (1 2);", "text after the end"),
        ("POINT EMPTY (1 2)", "text after the end"),
        ("POINT Z (1 2)", "a number is expected"),
        ("POINT (1 2 3 4 5)", "closing bracket is expected, found \"5\""),
        ("LINESTRING (1 2, 3 4 5)", "closing bracket is expected, found \"5\""),
        ("POINT (a b)", "a number is expected, found \"a\""),
        ("POINT (nan nan)", "a number is expected"),
        ("POINT (1 inf)", "a number is expected"),
        ("POINT (1,2)", "a number is expected, found \",2\""),
        ("POINT (1e999 2)", "must be finite"),
        ("POINT (1 2\u{0})", "closing bracket is expected"),
        ("POINT (１ 2)", "a number is expected"),
        ("SRID=4326;POINT (1 2)", "remove the SRID"),
        ("CIRCULARSTRING (0 0, 1 1, 2 0)", "found \"CIRCULARSTRING\""),
        ("LINESTRING (1 2)", "1 position"),
        ("POLYGON ((0 0, 1 0, 1 1, 0 1))", "not closed"),
        ("POLYGON ((0 0, 1 0, 0 0))", "needs 4 or more"),
        ("POLYGON (EMPTY)", "needs 4 or more"),
        ("MULTIPOLYGON ((0 0, 1 0, 1 1, 0 0))", "opening bracket"),
        ("MULTIPOINT (1 2,)", "a number is expected"),
    ] {
        let error = from_wkt(text).expect_err(text);
        assert!(error.to_string().contains(reason), "{text}: {error}");
    }
}

#[test]
fn the_wkt_crate_reads_the_same() {
    for text in [
        "POINT M (1 2 3)",
        "LINESTRING Z (1 2 3, 4 5 6)",
        "POLYGON ((0 0, 4 0, 4 4, 0 0), (2 1, 3 1, 3 2, 2 1))",
        "MULTIPOINT ((1 2), (3 4))",
        "MULTIPOLYGON (((0 0, 4 0, 4 4, 0 0)), ((9 9, 10 9, 10 10, 9 9)))",
        "GEOMETRYCOLLECTION (POINT (1 2), LINESTRING ZM (1 2 3 4, 5 6 7 8))",
    ] {
        // Compared through text, which both sides write.
        let theirs = wkt::Wkt::<f64>::from_str(text).unwrap().to_string();
        assert_eq!(to_wkt(&from_wkt(&theirs).unwrap()).unwrap(), text);
    }
}

#[test]
fn nesting_is_limited_without_exhausting_the_stack() {
    let nested = |depth: usize| format!("{}POINT (1 2){}", "GEOMETRYCOLLECTION (".repeat(depth), ")".repeat(depth));
    assert!(from_wkt(&nested(31)).is_ok());
    for depth in [32, 33, 100_000] {
        assert!(matches!(from_wkt(&nested(depth)), Err(GeometryError::TooDeep { .. })), "{depth}");
    }
}

#[test]
fn numbers_survive_the_round_trip() {
    for number in [0.1, -0.0, 1e-300, 1.797e308, 5e-324, 0.30000000000000004, -122.41941550000001] {
        let bytes = from_wkt(&format!("POINT ({number} {number:e})")).unwrap();
        assert_eq!(from_wkt(&to_wkt(&bytes).unwrap()).unwrap(), bytes, "{number}");
    }
}
