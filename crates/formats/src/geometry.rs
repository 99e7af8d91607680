//! Converts geometries of every notation to the stored one: little-endian ISO WKB in the
//! coordinates of the dataset.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use terrane_space::geometry::{
    GeometryKind, cut_at_antimeridian, from_geojson, from_wkt, parse_wkb, summarise, to_geojson, to_wkt,
};
use terrane_space::{CoordinateSystem, Point};

use crate::crs::{DeclaredCrs, visit_declared};
use crate::error::FormatError;
use crate::json::flat::JsonRef;
use crate::json::parse_strict;
use crate::place::{Notes, fit_geometry, fit_point};
use crate::quoted::quoted;
use crate::reprojection::{Conversion, Crs, Reprojection, conversion_from};
use crate::wkb_transform::transform_coordinates;

/// How the coordinates of a file or a stream of records are read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CoordinateOptions {
    /// They stay in the file's own reference system.
    pub planar: bool,
    /// The EPSG number of the plane that they are in. A file that declares another system is
    /// refused.
    pub plane: Option<u32>,
    /// Their reference system, which overrides the file's.
    pub crs: Option<Crs>,
    /// Wraps longitudes beyond 180 degrees by whole turns, and cuts geometries that cross 180
    /// degrees there.
    pub wrap_longitudes: bool,
}

impl CoordinateOptions {
    /// Planar coordinates, unchanged.
    pub fn planar() -> CoordinateOptions {
        CoordinateOptions { planar: true, ..CoordinateOptions::default() }
    }
}

/// Converts the coordinates and geometries of one file.
#[derive(Debug, Clone, Default)]
pub(crate) struct GeometryReader {
    reprojection: Option<Arc<Reprojection>>,
    /// The system of the file as a whole, or the one that overrides it.
    declared: DeclaredCrs,
    /// Whether that system overrides those of single geometries.
    is_given: bool,
    /// Whether the system of a single geometry must be that of the file, or one that can be
    /// converted.
    is_lonlat: bool,
    /// The number of the plane that the coordinates must be in.
    plane: Option<u32>,
    wraps: bool,
    notes: Arc<Notes>,
    /// The conversions from systems of single geometries.
    others: Arc<Mutex<BTreeMap<u32, Conversion>>>,
}

impl GeometryReader {
    /// A reader for a file that declares `crs`.
    ///
    /// # Errors
    /// When the system cannot be converted and the import is not planar.
    pub(crate) fn new(
        path: &Path,
        crs: &DeclaredCrs,
        options: &CoordinateOptions,
        warnings: &mut Vec<String>,
    ) -> Result<GeometryReader, FormatError> {
        if options.planar {
            let plane = options.plane.map(DeclaredCrs::from_srid);
            match (crs, plane) {
                (DeclaredCrs::Undeclared, _) => {}
                (crs, Some(plane)) if *crs == plane => {}
                (crs, Some(plane)) => {
                    let (path, crs) = (path.to_path_buf(), crs.to_string());
                    return Err(FormatError::OtherPlane { path, crs, plane: plane.to_string() });
                }
                (crs, None) => warnings.push(format!("coordinates are kept in the file's reference system, {crs}")),
            }
            return Ok(GeometryReader { plane: options.plane, ..GeometryReader::default() });
        }
        let given = options.crs.as_ref().map(Crs::declared);
        if let Some(given) = given.filter(|given| *given != crs && *crs != DeclaredCrs::Undeclared) {
            warnings.push(format!("the file declares {crs}, but its coordinates are read as {given}, as requested"));
        }
        let reader = GeometryReader::of(given.unwrap_or(crs), options);
        let reader =
            reader.map_err(|reason| FormatError::Crs { path: path.to_path_buf(), crs: crs.to_string(), reason })?;
        if let (Some(reprojection), declared) = (&reader.reprojection, &reader.declared) {
            warnings.push(converted(declared));
            warnings.extend(reprojection.caveat().map(|caveat| format!("{declared}: {caveat}")));
        }
        Ok(reader)
    }

    /// A reader for records that belong to no file.
    ///
    /// # Errors
    /// When the reference system cannot be converted.
    pub(crate) fn of_records(options: &CoordinateOptions) -> Result<GeometryReader, String> {
        match options.planar {
            true => Ok(GeometryReader { plane: options.plane, ..GeometryReader::default() }),
            false => {
                let given = options.crs.as_ref().map_or(&DeclaredCrs::Undeclared, Crs::declared);
                GeometryReader::of(given, options)
            }
        }
    }

    fn of(declared: &DeclaredCrs, options: &CoordinateOptions) -> Result<GeometryReader, String> {
        Ok(GeometryReader {
            reprojection: conversion_from(declared)?,
            declared: declared.clone(),
            is_given: options.crs.is_some(),
            is_lonlat: true,
            wraps: options.wrap_longitudes,
            ..GeometryReader::default()
        })
    }

    /// Notices on changes to the coordinates so far.
    pub(crate) fn notices(&self) -> Vec<String> {
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let converted_here = others.iter().filter(|(_, conversion)| matches!(conversion, Ok(Some(_))));
        let codes: Vec<u32> = converted_here.map(|(code, _)| *code).collect();
        codes.into_iter().map(|code| converted(&DeclaredCrs::Epsg(code))).chain(self.notes.messages()).collect()
    }

    /// A position in the coordinates of the dataset.
    ///
    /// # Errors
    /// When no place on the earth has this position in the file's reference system.
    pub(crate) fn point(&self, point: Point) -> Result<Point, String> {
        match &self.reprojection {
            _ if !self.is_lonlat => Ok(point),
            Some(reprojection) => {
                let converted = reprojection.convert(point.x, point.y)?;
                Ok(Point::new(converted.longitude, converted.latitude))
            }
            None => Ok(fit_point(point, self.wraps, &self.notes)),
        }
    }

    /// From WKB of either byte order, also EWKB.
    pub(crate) fn wkb(&self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        let parsed = parse_wkb(bytes).map_err(|error| error.to_string())?;
        self.of_system(parsed.bytes, parsed.srid)
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
        let (mut wkt, mut declared) = (text, None);
        if let Some((prefix, rest)) = text.split_once(';')
            && let Some((name, srid)) = prefix.split_once('=')
            && name.trim().eq_ignore_ascii_case("SRID")
        {
            let srid =
                srid.trim().parse().map_err(|_| format!("{:?} is not a reference system number", srid.trim()))?;
            declared = Some(srid);
            wkt = rest;
        }
        self.of_system(from_wkt(wkt).map_err(|error| error.to_string())?, declared)
    }

    /// From a value of a JSON record: a GeoJSON geometry object, or a text. Null and blank text are
    /// `None`.
    pub(crate) fn json(&self, value: JsonRef<'_>) -> Result<Option<Vec<u8>>, String> {
        match value {
            JsonRef::Null => Ok(None),
            JsonRef::Text(text) if text.trim().is_empty() => Ok(None),
            JsonRef::Text(text) => self.text(text).map(Some),
            JsonRef::Nested(value) if value.is_object() => self.geojson(value).map(Some),
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
            return Err(format!("the geometry declares {crs}, but a single geometry is not converted"));
        }
        let geometry = from_geojson(value).or_else(|error| {
            let shortened = without_further_numbers(value).ok_or(error)?;
            self.notes.note_further();
            from_geojson(&shortened)
        });
        self.finish(geometry.map_err(|error| error.to_string())?, self.reprojection.as_deref())
    }

    /// Whether a geometry that declares a system is in the coordinates of the file.
    fn takes(&self, crs: &DeclaredCrs) -> bool {
        match crs {
            _ if !self.is_lonlat || self.is_given => true,
            DeclaredCrs::Undeclared => true,
            DeclaredCrs::Wgs84 => self.reprojection.is_none(),
            DeclaredCrs::Epsg(_) => *crs == self.declared,
            DeclaredCrs::Other(_) => false,
        }
    }

    /// A geometry that may name its system by a number.
    fn of_system(&self, wkb: Vec<u8>, srid: Option<u32>) -> Result<Vec<u8>, String> {
        let declared = DeclaredCrs::from_srid(srid.unwrap_or(0));
        if let Some(plane) = self.plane.map(DeclaredCrs::from_srid)
            && declared != DeclaredCrs::Undeclared
            && declared != plane
        {
            return Err(format!("the geometry is in {declared}, the dataset in {plane}; convert it first"));
        }
        if self.takes(&declared) {
            return self.finish(wkb, self.reprojection.as_deref());
        }
        let DeclaredCrs::Epsg(code) = declared else {
            return self.finish(wkb, None);
        };
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        let conversion = others.entry(code).or_insert_with(|| conversion_from(&declared)).clone();
        drop(others);
        let reprojection = conversion.map_err(|reason| {
            format!("the geometry names EPSG:{code}, which cannot be converted: {reason}; convert it first, or keep its coordinates in a planar dataset")
        })?;
        self.finish(wkb, reprojection.as_deref())
    }

    fn finish(&self, wkb: Vec<u8>, reprojection: Option<&Reprojection>) -> Result<Vec<u8>, String> {
        let Some(reprojection) = reprojection else {
            return if self.is_lonlat { fit_geometry(wkb, self.wraps, &self.notes) } else { Ok(wkb) };
        };
        match transform_coordinates(&wkb, reprojection)? {
            (transformed, true) => cut_at_antimeridian(&transformed).map_err(|error| error.to_string()),
            (transformed, false) => Ok(transformed),
        }
    }
}

fn converted(crs: &DeclaredCrs) -> String {
    format!("coordinates are converted from {crs} to longitude and latitude (EPSG:4326)")
}

/// A GeoJSON geometry whose positions are cut to their first three numbers, if some have more.
fn without_further_numbers(value: &Value) -> Option<Value> {
    fn shorten(value: &mut Value) -> bool {
        match value {
            Value::Array(items) if items.first().is_some_and(Value::is_number) => {
                let is_longer = items.len() > 3;
                items.truncate(3);
                is_longer
            }
            Value::Array(items) => items.iter_mut().fold(false, |any, item| shorten(item) | any),
            Value::Object(members) => {
                let inner =
                    members.iter_mut().filter(|(name, _)| ["coordinates", "geometries"].contains(&name.as_str()));
                inner.fold(false, |any, (_, member)| shorten(member) | any)
            }
            _ => false,
        }
    }
    let mut shortened = value.clone();
    shorten(&mut shortened).then_some(shortened)
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

/// Whether a value is an object with a GeoJSON geometry type.
pub(crate) fn is_geojson_geometry(value: &Value) -> bool {
    let kind = value.get("type").and_then(Value::as_str);
    kind.is_some_and(is_geometry_type) && (value.get("coordinates").is_some() || value.get("geometries").is_some())
}

/// Whether `kind` names a GeoJSON geometry.
pub(crate) fn is_geometry_type(kind: &str) -> bool {
    GeometryKind::from_name(kind).is_some()
}

/// Whether a text starts as WKT or hexadecimal WKB does, or is a GeoJSON geometry.
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
