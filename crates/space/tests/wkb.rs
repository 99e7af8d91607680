//! Well-known binary: every flavour in, one form out, and errors.

use terrane_space::Point;
use terrane_space::geometry::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(char::is_ascii_hexdigit).collect();
    let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// A little-endian geometry of `code`, a count and coordinates.
fn wkb(code: u32, count: Option<u32>, numbers: &[f64]) -> Vec<u8> {
    let mut bytes = vec![1];
    bytes.extend(code.to_le_bytes());
    bytes.extend(count.iter().flat_map(|count| count.to_le_bytes()));
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    bytes
}

/// A polygon whose rings have the given positions.
fn polygon(rings: &[&[f64]]) -> Vec<u8> {
    let mut bytes = wkb(3, Some(rings.len() as u32), &[]);
    for ring in rings {
        bytes.extend((ring.len() as u32 / 2).to_le_bytes());
        bytes.extend(ring.iter().flat_map(|number| number.to_le_bytes()));
    }
    bytes
}

#[test]
fn big_endian_becomes_little_endian() {
    let big = hex("00 00000001 3FF0000000000000 4000000000000000");
    let parsed = parse_wkb(&big).unwrap();
    assert_eq!(parsed.bytes, point_wkb(Point::new(1.0, 2.0)));
    assert_eq!((parsed.kind, parsed.srid), (GeometryKind::Point, None));
    // Byte orders may differ between a multi-geometry and its members.
    let mut mixed = hex("00 00000004 00000002");
    mixed.extend(point_wkb(Point::new(1.0, 2.0)));
    mixed.extend(&big);
    let expected = from_wkt("MULTIPOINT (1 2, 1 2)").unwrap();
    assert_eq!(normalise(&mixed).unwrap(), expected);
}

#[test]
fn extended_flags_become_iso_codes_and_the_srid_is_reported() {
    for (flags, iso) in [(0x8000_0000, 1000), (0x4000_0000, 2000), (0xC000_0000, 3000)] {
        let count = if iso == 3000 { 4 } else { 3 };
        let numbers = &[1.0, 2.0, 3.0, 4.0][..count];
        let parsed = parse_wkb(&wkb(1 | flags, None, numbers)).unwrap();
        assert_eq!(parsed.bytes, wkb(1 + iso, None, numbers));
        assert_eq!(parsed.dimensions.has_z, iso != 2000);
        assert_eq!(parsed.dimensions.has_m, iso != 1000);
        assert_eq!(as_point(&parsed.bytes), Some(Point::new(1.0, 2.0)));
    }
    let with_srid = parse_wkb(&wkb(1 | 0x2000_0000, Some(4326), &[1.0, 2.0])).unwrap();
    assert_eq!(with_srid.srid, Some(4326));
    assert_eq!(with_srid.bytes, point_wkb(Point::new(1.0, 2.0)));
}

#[test]
fn normalising_is_idempotent_and_other_readers_agree() {
    use geo_types::Geometry;
    for text in [
        "POINT Z (1 2 3)",
        "LINESTRING M (1 2 3, 4 5 6)",
        "POLYGON ((0 0, 4 0, 4 4, 0 0), (2 1, 3 1, 3 2, 2 1))",
        "MULTIPOINT ((1 2), (3 4))",
        "MULTILINESTRING ((1 2, 3 4), EMPTY)",
        "MULTIPOLYGON ZM (((0 0 1 2, 4 0 1 2, 4 4 1 2, 0 0 1 2)))",
        "GEOMETRYCOLLECTION (POINT (1 2), GEOMETRYCOLLECTION (LINESTRING (1 2, 3 4)))",
    ] {
        let bytes = from_wkt(text).unwrap();
        assert_eq!(normalise(&bytes).unwrap(), bytes);
        wkb::reader::read_wkb(&bytes).unwrap_or_else(|error| panic!("{text}: {error}"));
        let geometry: Geometry<f64> = to_geo(&bytes).unwrap();
        assert_eq!(to_geo(&from_geo(&geometry)).unwrap(), geometry);
        let mut written = Vec::new();
        wkb::writer::write_geometry(&mut written, &geometry, &Default::default()).unwrap();
        assert_eq!(written, from_geo(&geometry), "{text}");
    }
}

#[test]
fn only_empty_points_may_be_nan() {
    let empty = wkb(1, None, &[f64::NAN, f64::NAN]);
    assert_eq!(to_wkt(&empty).unwrap(), "POINT EMPTY");
    assert_eq!(as_point(&empty), None);
    for numbers in [[f64::NAN, 1.0], [1.0, f64::NAN], [f64::INFINITY, 0.0]] {
        let error = parse_wkb(&wkb(1, None, &numbers)).unwrap_err();
        assert!(matches!(error, GeometryError::NotFinite { vertex: 0, .. }));
    }
    let line = parse_wkb(&wkb(2, Some(2), &[0.0, 0.0, f64::NAN, f64::NAN])).unwrap_err();
    assert!(matches!(line, GeometryError::NotFinite { vertex: 1, .. }));
}

#[test]
fn counts_are_checked_against_the_bytes_before_anything_is_made_of_them() {
    for code in 2..=7 {
        let error = parse_wkb(&wkb(code, Some(u32::MAX), &[0.0; 8])).unwrap_err();
        assert!(matches!(error, GeometryError::Truncated { offset: 9, available: 64, .. }), "{error}");
    }
    let mut ring = polygon(&[&[0.0; 8]]);
    ring[9..13].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(parse_wkb(&ring), Err(GeometryError::Truncated { .. })));
}

#[test]
fn every_truncation_and_every_extra_byte_is_refused() {
    let whole = from_wkt("GEOMETRYCOLLECTION (POLYGON ((0 0, 4 0, 4 4, 0 0)), MULTIPOINT (1 2))").unwrap();
    for length in 0..whole.len() {
        let error = parse_wkb(&whole[..length]).unwrap_err();
        assert!(matches!(error, GeometryError::Truncated { .. }), "{length}: {error}");
    }
    let mut longer = whole.clone();
    longer.push(0);
    let end = whole.len();
    assert_eq!(parse_wkb(&longer), Err(GeometryError::TrailingBytes { offset: end, count: 1 }));
}

#[test]
fn rings_must_be_closed_and_have_four_positions() {
    let open = polygon(&[&[0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 1.0]]);
    assert_eq!(parse_wkb(&open), Err(GeometryError::OpenRing { vertex: 0 }));
    let square: &[f64] = &[0.0, 0.0, 9.0, 0.0, 9.0, 9.0, 0.0, 0.0];
    let hole: &[f64] = &[1.0, 1.0, 2.0, 1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 4.0];
    assert_eq!(parse_wkb(&polygon(&[square, hole])), Err(GeometryError::OpenRing { vertex: 4 }));
    let short = polygon(&[&[0.0, 0.0, 1.0, 0.0, 0.0, 0.0], square]);
    assert_eq!(parse_wkb(&short), Err(GeometryError::ShortRing { vertex: 0, count: 3 }));
    let line = wkb(2, Some(1), &[0.0, 0.0]);
    assert_eq!(parse_wkb(&line), Err(GeometryError::ShortLine { vertex: 0 }));
}

#[test]
fn foreign_types_and_members_are_refused() {
    for code in [0, 8, 10, 15, 17, 1017, 4001, 999, 0x1000_0001] {
        let error = parse_wkb(&wkb(code, None, &[0.0; 4])).unwrap_err();
        assert_eq!(error, GeometryError::UnsupportedType { offset: 1, code });
    }
    assert_eq!(parse_wkb(&[7; 30]), Err(GeometryError::ByteOrder { offset: 0, value: 7 }));
    let mut points = wkb(4, Some(1), &[]);
    points.extend(wkb(2, Some(2), &[0.0; 4]));
    assert!(matches!(parse_wkb(&points), Err(GeometryError::Member { offset: 9, .. })));
    let mut dimensions = wkb(4, Some(1), &[]);
    dimensions.extend(wkb(1001, None, &[0.0; 3]));
    assert!(matches!(parse_wkb(&dimensions), Err(GeometryError::Member { .. })));
}

#[test]
fn nesting_is_limited() {
    let nested = |depth: u32| {
        let mut bytes: Vec<u8> = (1..depth).flat_map(|_| wkb(7, Some(1), &[])).collect();
        bytes.extend(point_wkb(Point::new(1.0, 2.0)));
        bytes
    };
    assert!(parse_wkb(&nested(NESTING_DEPTH_MAX)).is_ok());
    let limit = NESTING_DEPTH_MAX;
    assert_eq!(parse_wkb(&nested(limit + 1)), Err(GeometryError::TooDeep { limit }));
    assert_eq!(parse_wkb(&nested(1_000_000)), Err(GeometryError::TooDeep { limit }));
}

#[test]
fn the_point_fast_path_takes_points_only() {
    let point = Point::new(-0.5, 1e300);
    assert_eq!(as_point(&point_wkb(point)), Some(point));
    assert_eq!(parse_wkb(&point_wkb(point)).unwrap().bytes, point_wkb(point));
    assert_eq!(as_point(&from_wkt("POINT ZM (1 2 3 4)").unwrap()), Some(Point::new(1.0, 2.0)));
    for not_finite in [f64::NAN, f64::INFINITY] {
        for (code, numbers) in [
            (1001, vec![1.0, 2.0, not_finite]),
            (2001, vec![1.0, 2.0, not_finite]),
            (3001, vec![1.0, 2.0, 3.0, not_finite]),
        ] {
            assert_eq!(as_point(&wkb(code, None, &numbers)), None, "{code} {numbers:?}");
        }
    }
    for other in ["POINT EMPTY", "MULTIPOINT (1 2)", "LINESTRING (1 2, 3 4)"] {
        assert_eq!(as_point(&from_wkt(other).unwrap()), None, "{other}");
    }
    assert_eq!(as_point(&point_wkb(point)[..20]), None);
    assert_eq!(as_point(&[]), None);
}
