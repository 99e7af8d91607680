//! Geometries of every notation to the one that leaves this crate:
//! little-endian ISO WKB in the coordinates of the dataset.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use terrane_space::CoordinateSystem;
use terrane_space::geometry::{
    GeometryKind, cut_at_antimeridian, from_geojson, from_wkt, parse_wkb, summarise, to_geojson, to_wkt,
};

use crate::crs::{DeclaredCrs, visit_declared};
use crate::error::FormatError;
use crate::json::parse_strict;
use crate::reprojection::Reprojection;
use crate::source::quoted;
use crate::wkb_transform::transform_coordinates;

/// Converts the geometries of one file.
#[derive(Debug, Clone, Default)]
pub(crate) struct GeometryReader {
    reprojection: Option<Arc<Reprojection>>,
    /// What the file as a whole declares.
    declared: DeclaredCrs,
    /// Whether a system that a geometry names must be that of the file, or WGS 84.
    is_lonlat: bool,
}

impl GeometryReader {
    /// A reader for a file that declares `crs`.
    ///
    /// # Errors
    /// When the system cannot be converted and the import is not planar.
    pub(crate) fn new(
        path: &Path,
        crs: &DeclaredCrs,
        planar: bool,
        warnings: &mut Vec<String>,
    ) -> Result<GeometryReader, FormatError> {
        if planar {
            if !matches!(crs, DeclaredCrs::Undeclared) {
                warnings.push(format!("coordinates are kept in the file's reference system, {crs}"));
            }
            return Ok(GeometryReader::default());
        }
        let refuse = |reason: String| FormatError::Crs { path: path.to_path_buf(), crs: crs.to_string(), reason };
        let reprojection = match crs {
            DeclaredCrs::Wgs84 | DeclaredCrs::Undeclared => None,
            DeclaredCrs::Epsg(code) => {
                let reprojection = Reprojection::from_epsg(*code).map_err(refuse)?;
                warnings.push(format!("coordinates are converted from {crs} to longitude and latitude (EPSG:4326)"));
                warnings.extend(reprojection.caveat().map(|caveat| format!("{crs}: {caveat}")));
                Some(Arc::new(reprojection))
            }
            DeclaredCrs::Other(_) => {
                return Err(refuse("it has no EPSG code to convert it by".to_string()));
            }
        };
        Ok(GeometryReader { reprojection, declared: crs.clone(), is_lonlat: true })
    }

    /// A reader for records that belong to no file.
    pub(crate) fn of_records(planar: bool) -> GeometryReader {
        GeometryReader { is_lonlat: !planar, ..GeometryReader::default() }
    }

    /// From WKB of either byte order, also EWKB.
    pub(crate) fn wkb(&self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        let parsed = parse_wkb(bytes).map_err(|error| error.to_string())?;
        if let Some(srid) = parsed.srid {
            self.check_srid(srid)?;
        }
        self.finish(parsed.bytes)
    }

    /// From WKT (also with an `SRID=…;` prefix), hexadecimal WKB or GeoJSON.
    pub(crate) fn text(&self, text: &str) -> Result<Vec<u8>, String> {
        let text = text.trim();
        if text.starts_with('{') {
            return self.geojson(&parse_strict(text.as_bytes()).map_err(|error| error.to_string())?);
        }
        if let Some(bytes) = hexadecimal(text) {
            return self.wkb(&bytes);
        }
        let mut wkt = text;
        if let Some((prefix, rest)) = text.split_once(';')
            && let Some((name, srid)) = prefix.split_once('=')
            && name.trim().eq_ignore_ascii_case("SRID")
        {
            let srid =
                srid.trim().parse().map_err(|_| format!("{:?} is not a reference system number", srid.trim()))?;
            self.check_srid(srid)?;
            wkt = rest;
        }
        self.finish(from_wkt(wkt).map_err(|error| error.to_string())?)
    }

    /// From a value of a JSON record: a GeoJSON geometry object, or a text; null and blank text are none.
    pub(crate) fn json(&self, value: &Value) -> Result<Option<Vec<u8>>, String> {
        match value {
            Value::Null => Ok(None),
            Value::String(text) if text.trim().is_empty() => Ok(None),
            Value::String(text) => self.text(text).map(Some),
            Value::Object(_) => self.geojson(value).map(Some),
            other => Err(format!("{} is not a geometry; write GeoJSON or WKT", quoted(&other.to_string()))),
        }
    }

    /// From a GeoJSON geometry object.
    pub(crate) fn geojson(&self, value: &Value) -> Result<Vec<u8>, String> {
        let mut refused = None;
        visit_declared(value, &mut |crs| {
            if !self.takes(&crs) {
                refused.get_or_insert(crs);
            }
        });
        if let Some(crs) = refused {
            return Err(format!("the geometry is declared to be in {crs}, which is not converted for one geometry"));
        }
        self.finish(from_geojson(value).map_err(|error| error.to_string())?)
    }

    /// Whether a geometry that declares a system is in the coordinates of the file.
    fn takes(&self, crs: &DeclaredCrs) -> bool {
        match crs {
            _ if !self.is_lonlat => true,
            DeclaredCrs::Undeclared => true,
            DeclaredCrs::Wgs84 => self.reprojection.is_none(),
            DeclaredCrs::Epsg(_) => *crs == self.declared,
            DeclaredCrs::Other(_) => false,
        }
    }

    fn check_srid(&self, srid: u32) -> Result<(), String> {
        let declared = match srid {
            0 => DeclaredCrs::Undeclared,
            4326 | 4979 => DeclaredCrs::Wgs84,
            other => DeclaredCrs::Epsg(other),
        };
        match self.takes(&declared) {
            true => Ok(()),
            false => Err(format!(
                "the geometry names EPSG:{srid}, and the file is read as {}; bring its coordinates into that system, or keep \
                 them as they are in a planar dataset",
                match &self.declared {
                    DeclaredCrs::Epsg(code) => format!("EPSG:{code}"),
                    _ => "longitude and latitude of WGS 84".to_owned(),
                }
            )),
        }
    }

    fn finish(&self, wkb: Vec<u8>) -> Result<Vec<u8>, String> {
        let Some(reprojection) = &self.reprojection else {
            return Ok(wkb);
        };
        match transform_coordinates(&wkb, reprojection)? {
            (transformed, true) => cut_at_antimeridian(&transformed).map_err(|error| error.to_string()),
            (transformed, false) => Ok(transformed),
        }
    }
}

/// The geometry of a record that belongs to no file: GeoJSON, or a text of WKT, EWKT, hexadecimal WKB or GeoJSON, as
/// little-endian ISO WKB; `None` for null and blank text.
///
/// # Errors
/// When it is none; unless it is planar, when it names a system other than WGS 84.
pub fn parse_geometry(value: &Value, planar: bool) -> Result<Option<Vec<u8>>, String> {
    GeometryReader::of_records(planar).json(value)
}

/// The bytes of hexadecimal WKB, which always starts with a byte order of 00 or 01.
fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    if text.len() < 10 || !text.len().is_multiple_of(2) || !text.starts_with('0') {
        return None;
    }
    text.as_bytes()
        .chunks_exact(2)
        .map(|pair| {
            let high = (pair[0] as char).to_digit(16)?;
            let low = (pair[1] as char).to_digit(16)?;
            Some((high * 16 + low) as u8)
        })
        .collect()
}

/// Whether a value is an object of a type of GeoJSON geometries.
pub(crate) fn is_geojson_geometry(value: &Value) -> bool {
    let kind = value.get("type").and_then(Value::as_str);
    kind.is_some_and(is_geometry_type) && (value.get("coordinates").is_some() || value.get("geometries").is_some())
}

/// Whether `kind` names a GeoJSON geometry.
pub(crate) fn is_geometry_type(kind: &str) -> bool {
    GeometryKind::from_name(kind).is_some()
}

/// Whether a text starts as WKT or hexadecimal WKB does, or is GeoJSON of a geometry.
pub(crate) fn looks_like_geometry(text: &str) -> bool {
    let text = text.trim();
    if text.starts_with('{') {
        return parse_strict(text.as_bytes()).is_ok_and(|value| is_geojson_geometry(&value));
    }
    if hexadecimal(text).is_some() {
        return true;
    }
    let text = match text.split_once(';') {
        Some((prefix, rest)) if prefix.len() < 20 && prefix.contains('=') => rest,
        _ => text,
    };
    let letters = text.bytes().take_while(u8::is_ascii_alphabetic).count();
    let word = text[..letters].to_ascii_uppercase();
    let word = ["ZM", "Z", "M"].iter().find_map(|suffix| word.strip_suffix(suffix)).unwrap_or(&word);
    let rest = text[letters..].trim_start().to_ascii_uppercase();
    GeometryKind::from_name_of_any_case(word).is_some()
        && ["(", "EMPTY", "Z", "M"].iter().any(|start| rest.starts_with(start))
}

/// WKT of stored WKB, for output.
pub(crate) fn wkt_of(wkb: &[u8]) -> Result<String, String> {
    to_wkt(wkb).map_err(|error| error.to_string())
}

/// The GeoJSON geometry of stored WKB, for output.
pub(crate) fn geojson_of(wkb: &[u8]) -> Result<Value, String> {
    to_geojson(wkb).map_err(|error| error.to_string())
}

/// Whether stored WKB has an M, which GeoJSON has no place for.
pub(crate) fn has_measures(wkb: &[u8]) -> bool {
    summarise(wkb, CoordinateSystem::Planar).is_ok_and(|summary| summary.has_m)
}
