//! Geometries as Arrow columns: WKB with the extension type `geoarrow.wkb`.

use std::collections::HashMap;

use arrow_schema::{DataType, Field};
use terrane_space::Point;
use terrane_space::geometry::{GeometryKind, from_geo, parse_wkb, point_wkb};

const EXTENSION_NAME: &str = "ARROW:extension:name";
const EXTENSION_METADATA: &str = "ARROW:extension:metadata";
const WKB_EXTENSION: &str = "geoarrow.wkb";
const EPSG: &str = "EPSG:";
const WGS84: &str = r#"{"crs":"OGC:CRS84","crs_type":"authority_code"}"#;

const WGS84_SPHERE: &str = r#"{"crs":"OGC:CRS84","crs_type":"authority_code","edges":"spherical"}"#;

/// The number of WGS 84, longitude first.
pub(crate) const WGS84_SRID: i64 = 4326;
/// The number of the system of web maps.
pub(crate) const WEB_MERCATOR_SRID: i64 = 3857;

/// A column of geometries in a reference system; 0 is an unknown one.
pub(crate) fn geometry_field(name: &str, srid: i64) -> Field {
    let metadata = match srid {
        0 => "{}".to_owned(),
        WGS84_SRID => WGS84.to_owned(),
        other => format!(r#"{{"crs":"{EPSG}{other}","crs_type":"authority_code"}}"#),
    };
    field_of(name, metadata)
}

/// A column of geographies: geometries in WGS 84 with great-circle arcs as edges.
pub(crate) fn geography_field(name: &str) -> Field {
    field_of(name, WGS84_SPHERE.to_owned())
}

fn field_of(name: &str, metadata: String) -> Field {
    Field::new(name, DataType::Binary, true).with_metadata(HashMap::from([
        (EXTENSION_NAME.to_owned(), WKB_EXTENSION.to_owned()),
        (EXTENSION_METADATA.to_owned(), metadata),
    ]))
}

/// Whether a column is marked as one of geometries.
pub(crate) fn is_geometry(field: &Field) -> bool {
    field.metadata().get(EXTENSION_NAME).is_some_and(|name| name == WKB_EXTENSION)
}

/// Whether a column holds geometries in WGS 84.
pub(crate) fn is_lonlat(field: &Field) -> bool {
    srid_of(field) == Some(WGS84_SRID)
}

/// Whether a column holds geographies.
pub(crate) fn is_geography(field: &Field) -> bool {
    is_geometry(field) && field.metadata().get(EXTENSION_METADATA).is_some_and(|metadata| metadata == WGS84_SPHERE)
}

/// The reference system of a column of geometries: 0 if it is unknown.
pub fn srid_of(field: &Field) -> Option<i64> {
    if !is_geometry(field) {
        return None;
    }
    let metadata = field.metadata().get(EXTENSION_METADATA).map_or("", String::as_str);
    let number = metadata.split_once(EPSG).map(|(_, rest)| rest.chars().take_while(char::is_ascii_digit).collect());
    Some(match number.and_then(|digits: String| digits.parse().ok()) {
        Some(srid) => srid,
        None if metadata == WGS84 || metadata == WGS84_SPHERE => WGS84_SRID,
        None => 0,
    })
}

/// The number in front of extended well-known text.
pub(crate) fn srid_of_text(text: &str) -> Option<i64> {
    let text = text.trim_start();
    let prefix = text.get(..5).filter(|prefix| prefix.eq_ignore_ascii_case("SRID="))?;
    text[prefix.len()..].split_once(';')?.0.trim().parse().ok()
}

/// The number in extended well-known binary.
pub(crate) fn srid_of_bytes(bytes: &[u8]) -> Option<i64> {
    parse_wkb(bytes).ok()?.srid.map(i64::from)
}

/// The polygon between two corners.
pub(crate) fn envelope_wkb(from: Point, to: Point) -> Vec<u8> {
    let ring = vec![(from.x, from.y), (from.x, to.y), (to.x, to.y), (to.x, from.y), (from.x, from.y)];
    from_geo(&geo_types::Geometry::Polygon(geo_types::Polygon::new(ring.into(), Vec::new())))
}

/// The box between two corners: a point, a line or a polygon.
pub(crate) fn box_wkb(from: Point, to: Point) -> Vec<u8> {
    match (from.x == to.x, from.y == to.y) {
        (true, true) => point_wkb(from).to_vec(),
        (false, false) => envelope_wkb(from, to),
        _ => from_geo(&geo_types::Geometry::LineString(vec![(from.x, from.y), (to.x, to.y)].into())),
    }
}

/// Well-known text as PostGIS writes it: blanks only between coordinates, and around Z and M.
pub(crate) fn as_postgis(wkt: &str) -> String {
    let mut text = String::with_capacity(wkt.len());
    let mut chars = wkt.chars().peekable();
    while let Some(char) = chars.next() {
        let is_left_out = match (char, text.chars().last()) {
            (' ', Some(',')) => true,
            (' ', Some('Z' | 'M')) => false,
            (' ', _) => chars.peek() == Some(&'('),
            _ => false,
        };
        if !is_left_out {
            text.push(char);
        }
    }
    text
}

/// The name of a kind as PostGIS gives it.
pub(crate) fn as_postgis_name(kind: GeometryKind) -> String {
    format!("ST_{}", kind.name())
}
