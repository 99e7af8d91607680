//! Coordinate reference systems that files declare.
//!
//! A file in WGS 84 longitude/latitude is read as it is, one in a system that can be converted is
//! converted, and any other file is refused. Longitude comes first in every format read here,
//! whatever the axis order in the definition.

use std::fmt;

use serde_json::Value;

/// A reference system as a file declares it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum DeclaredCrs {
    /// Longitude and latitude on WGS 84.
    Wgs84,
    /// Nothing is declared.
    #[default]
    Undeclared,
    /// A code of the EPSG registry.
    Epsg(u32),
    /// Something else, by the name that the file gives it.
    Other(String),
}

impl fmt::Display for DeclaredCrs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeclaredCrs::Wgs84 => f.write_str("EPSG:4326"),
            DeclaredCrs::Undeclared => f.write_str("(undeclared)"),
            DeclaredCrs::Epsg(code) => write!(f, "EPSG:{code}"),
            DeclaredCrs::Other(name) => f.write_str(name),
        }
    }
}

impl DeclaredCrs {
    fn epsg(code: u32) -> DeclaredCrs {
        match code {
            // 2-D, 3-D and geographic without axis order.
            4326 | 4979 => DeclaredCrs::Wgs84,
            code => DeclaredCrs::Epsg(code),
        }
    }

    /// From the number (SRID) in a PostGIS geometry.
    pub(crate) fn from_srid(srid: u32) -> DeclaredCrs {
        match srid {
            0 => DeclaredCrs::Undeclared,
            code => DeclaredCrs::epsg(code),
        }
    }

    fn authority(authority: &str, code: &str) -> Option<DeclaredCrs> {
        match authority.to_ascii_uppercase().as_str() {
            "EPSG" => code.parse().ok().map(DeclaredCrs::epsg),
            "OGC" if ["CRS84", "CRS84H"].contains(&code.to_ascii_uppercase().as_str()) => Some(DeclaredCrs::Wgs84),
            _ => None,
        }
    }

    /// From PROJJSON, by its `id`; without an `id` only WGS 84 is recognised.
    pub(crate) fn from_projjson(value: &Value) -> DeclaredCrs {
        let name = value.get("name").and_then(Value::as_str).unwrap_or("");
        if let Some(id) = value.get("id") {
            let authority = id.get("authority").and_then(Value::as_str).unwrap_or("");
            let code = match id.get("code") {
                Some(Value::String(code)) => code.clone(),
                Some(code) => code.to_string(),
                None => String::new(),
            };
            return DeclaredCrs::authority(authority, &code)
                .unwrap_or_else(|| DeclaredCrs::Other(format!("{name} ({authority}:{code})")));
        }
        let kind = value.get("type").and_then(Value::as_str);
        if kind == Some("GeographicCRS") && ["WGS 84", "WGS 84 (CRS84)"].contains(&name) {
            DeclaredCrs::Wgs84
        } else {
            DeclaredCrs::Other(if name.is_empty() { "without a name".to_string() } else { name.to_string() })
        }
    }

    /// From `EPSG:3857`, `urn:ogc:def:crs:EPSG::3857`, an OGC address, PROJJSON as text, or WKT
    /// whose outermost `ID` names a code.
    pub(crate) fn from_text(text: &str) -> DeclaredCrs {
        let text = text.trim();
        if text.is_empty() {
            return DeclaredCrs::Undeclared;
        }
        if text.starts_with('{')
            && let Ok(value) = serde_json::from_str::<Value>(text)
        {
            return DeclaredCrs::from_projjson(&value);
        }
        if text.ends_with(']') {
            return DeclaredCrs::from_wkt(text);
        }
        let upper = text.to_ascii_uppercase();
        let known = if let Some(rest) = upper.strip_prefix("URN:OGC:DEF:CRS:") {
            // Authority, version (often empty), code.
            let mut parts = rest.split(':');
            parts.next().zip(parts.next_back()).and_then(|(authority, code)| DeclaredCrs::authority(authority, code))
        } else if upper.contains("/DEF/CRS/") {
            let mut parts = upper.rsplit('/');
            let code = parts.next();
            let authority = parts.nth(1);
            authority.zip(code).and_then(|(authority, code)| DeclaredCrs::authority(authority, code))
        } else {
            upper.split_once(':').and_then(|(authority, code)| DeclaredCrs::authority(authority, code))
        };
        known.unwrap_or_else(|| DeclaredCrs::Other(text.chars().take(80).collect()))
    }

    fn from_wkt(text: &str) -> DeclaredCrs {
        let name = || {
            let name = text.split('"').nth(1).unwrap_or("without a name");
            DeclaredCrs::Other(name.chars().take(80).collect())
        };
        // The identifier of the whole is the last element of the outermost bracket.
        let inner = text.trim_end_matches(']');
        if text.len() - inner.len() != 2 {
            return name();
        }
        let identifier = inner.rsplit('[').next().unwrap_or("").replace('"', "");
        identifier
            .split_once(',')
            .and_then(|(authority, code)| DeclaredCrs::authority(authority.trim(), code.trim()))
            .unwrap_or_else(name)
    }

    /// From the `crs` member of GeoJSON as it was before RFC 7946.
    pub(crate) fn from_geojson(value: &Value) -> DeclaredCrs {
        match value {
            Value::Null => DeclaredCrs::Undeclared,
            value => match value.pointer("/properties/name").and_then(Value::as_str) {
                Some(name) => DeclaredCrs::from_text(name),
                None => DeclaredCrs::Other(value.to_string().chars().take(80).collect()),
            },
        }
    }
}

/// Visits the declarations of a GeoJSON object and of each object inside it.
pub(crate) fn visit_declared(value: &Value, visit: &mut impl FnMut(DeclaredCrs)) {
    if let Some(crs) = value.get("crs") {
        visit(DeclaredCrs::from_geojson(crs));
    }
    if let Some(geometry) = value.get("geometry") {
        visit_declared(geometry, visit);
    }
    for members in ["geometries", "features"] {
        for inner in value.get(members).and_then(Value::as_array).into_iter().flatten() {
            visit_declared(inner, visit);
        }
    }
}

/// The first declared system of a GeoJSON object, or of one inside it, that is not longitude and
/// latitude on WGS 84.
pub fn foreign_crs(value: &Value) -> Option<String> {
    let mut found = None;
    visit_declared(value, &mut |crs| {
        if !matches!(crs, DeclaredCrs::Wgs84 | DeclaredCrs::Undeclared) {
            found.get_or_insert_with(|| crs.to_string());
        }
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_wgs84_are_recognised() {
        for text in [
            "EPSG:4326",
            "epsg:4326",
            "OGC:CRS84",
            "urn:ogc:def:crs:OGC:1.3:CRS84",
            "urn:ogc:def:crs:EPSG::4326",
            "http://www.opengis.net/def/crs/OGC/1.3/CRS84",
            r#"GEOGCRS["WGS 84",DATUM["World Geodetic System 1984",ELLIPSOID["WGS 84",6378137,298.25]],ID["EPSG",4326]]"#,
            r#"{"type":"GeographicCRS","name":"WGS 84 (CRS84)","id":{"authority":"OGC","code":"CRS84"}}"#,
        ] {
            assert_eq!(DeclaredCrs::from_text(text), DeclaredCrs::Wgs84, "{text}");
        }
    }

    #[test]
    fn other_systems_keep_code_or_name() {
        for text in ["EPSG:3857", "urn:ogc:def:crs:EPSG:9.9:3857"] {
            assert_eq!(DeclaredCrs::from_text(text), DeclaredCrs::Epsg(3857), "{text}");
        }
        assert_eq!(
            DeclaredCrs::from_text(r#"LOCAL_CS["Site grid",UNIT["m",1]]"#),
            DeclaredCrs::Other("Site grid".to_string())
        );
        // The identifier of a part is not the identifier of the whole.
        assert_eq!(
            DeclaredCrs::from_text(r#"PROJCRS["mine",BASEGEOGCRS["x",ID["EPSG",4326]],CS[Cartesian,2]]"#),
            DeclaredCrs::Other("mine".to_string())
        );
    }
}
