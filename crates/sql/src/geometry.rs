//! Geometries as Arrow columns: WKB with the extension type `geoarrow.wkb`.

use std::collections::HashMap;

use arrow_schema::{DataType, Field};
use terrane_space::Point;
use terrane_space::geometry::{from_geo, point_wkb};

const EXTENSION_NAME: &str = "ARROW:extension:name";
const EXTENSION_METADATA: &str = "ARROW:extension:metadata";
const WKB_EXTENSION: &str = "geoarrow.wkb";
const WGS84: &str = r#"{"crs":"OGC:CRS84","crs_type":"authority_code"}"#;

/// A column of geometries.
pub(crate) fn geometry_field(name: &str, is_lonlat: bool) -> Field {
    let metadata = if is_lonlat { WGS84 } else { "{}" };
    Field::new(name, DataType::Binary, true).with_metadata(HashMap::from([
        (EXTENSION_NAME.to_owned(), WKB_EXTENSION.to_owned()),
        (EXTENSION_METADATA.to_owned(), metadata.to_owned()),
    ]))
}

/// Whether a column is marked as one of geometries.
pub(crate) fn is_geometry(field: &Field) -> bool {
    field.metadata().get(EXTENSION_NAME).is_some_and(|name| name == WKB_EXTENSION)
}

/// Whether a column holds geometries in WGS 84.
pub(crate) fn is_lonlat(field: &Field) -> bool {
    is_geometry(field) && field.metadata().get(EXTENSION_METADATA).is_some_and(|metadata| metadata == WGS84)
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
