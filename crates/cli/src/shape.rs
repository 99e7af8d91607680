//! Parses windows, circles, positions, geometries and conditions from the command line.

use std::fs::File;
use std::io::Read;

use terrane::schema::Schema;
use terrane::{Condition, CoordinateSystem};
use terrane_formats::{JsonValue, foreign_crs, parse_strict};
use terrane_space::geometry::{from_geojson, from_wkt};

use crate::failure::Failure;
use crate::messages::Messages;

/// Largest file that holds the geometry of a query.
const GEOMETRY_FILE_BYTES_MAX: u64 = 256 << 20;

fn parse_numbers<const N: usize>(text: &str, form: &str) -> Result<[f64; N], String> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    if parts.len() != N {
        return Err(format!("{text:?} is not {form}; write {N} numbers with commas between them"));
    }
    let mut numbers = [0.0; N];
    for ((number, part), name) in numbers.iter_mut().zip(parts).zip(form.split(',')) {
        let finite = part.parse().ok().filter(|value: &f64| value.is_finite());
        *number = finite.ok_or_else(|| format!("{name} of {form} is {part:?}, which is not a finite number"))?;
    }
    Ok(numbers)
}

/// Reads `x0,y0,x1,y1`.
pub fn parse_window(text: &str) -> Result<[f64; 4], String> {
    parse_numbers(text, "x0,y0,x1,y1")
}

/// Reads `x,y,R`.
pub fn parse_circle(text: &str) -> Result<[f64; 3], String> {
    parse_numbers(text, "x,y,R")
}

/// Reads `x,y`.
pub fn parse_place(text: &str) -> Result<[f64; 2], String> {
    parse_numbers(text, "x,y")
}

/// Reads the condition of a flag such as `--where`.
///
/// # Errors
/// When the text is no condition.
pub fn parse_condition(flag: &str, text: &str) -> Result<Condition, Failure> {
    Condition::parse(text).map_err(|error| Failure::usage(format!("{flag}: {error}")))
}

/// Adds a hint if the user may have meant something else.
pub fn warn_of_condition(text: Option<&String>, schema: &Schema, messages: &Messages) {
    let condition = text.and_then(|text| Condition::parse(text).ok());
    for notice in condition.iter().flat_map(|condition| condition.notices(schema)) {
        messages.warn(notice);
    }
}

/// The reference system that a geometry of the command line declares.
#[derive(Debug, PartialEq)]
pub struct DeclaredSystem {
    flag: &'static str,
    /// The declared system, if it is not WGS 84.
    foreign: Option<String>,
}

impl DeclaredSystem {
    /// Refuses a system that is not the dataset's. Planar datasets have none.
    pub fn check(&self, system: CoordinateSystem) -> Result<(), Failure> {
        match (&self.foreign, system) {
            (Some(crs), CoordinateSystem::LonLat) => Err(Failure::usage(format!(
                "{}: the geometry is declared to be in {crs}; transform it to longitude and latitude (EPSG:4326)",
                self.flag
            ))),
            _ => Ok(()),
        }
    }
}

/// Reads a geometry for the flag `flag`, as WKB: WKT, GeoJSON, or `@FILE` with one of them.
///
/// # Errors
/// When the file cannot be read, or the text is no geometry.
pub fn parse_geometry(flag: &'static str, text: &str) -> Result<(Vec<u8>, DeclaredSystem), Failure> {
    let (wkb, foreign) = match text.strip_prefix('@') {
        Some("") => Err("the name of a file is missing after @".into()),
        Some(path) => parse_text(&read_file(flag, path)?).map_err(|reason| format!("{path}: {reason}")),
        None => parse_text(text),
    }
    .map_err(|reason| Failure::usage(format!("{flag}: {reason}")))?;
    Ok((wkb, DeclaredSystem { flag, foreign }))
}

/// The content of the small file that a flag names.
///
/// # Errors
/// When the file cannot be read, is too large, or is no text.
pub fn read_file(flag: &str, path: &str) -> Result<String, Failure> {
    let failed = |error| Failure::usage(format!("{flag}: cannot read {path}: {error}"));
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    file.take(GEOMETRY_FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > GEOMETRY_FILE_BYTES_MAX {
        return Err(Failure::usage(format!(
            "{flag}: {path} has more than {GEOMETRY_FILE_BYTES_MAX} bytes; make it smaller"
        )));
    }
    Ok(text)
}

/// The geometry as WKB, and its declared system, if that is not WGS 84.
fn parse_text(text: &str) -> Result<(Vec<u8>, Option<String>), String> {
    let text = text.trim_start_matches('\u{feff}').trim();
    if !text.starts_with('{') {
        let wkb = from_wkt(text).map_err(|error| error.to_string())?;
        return Ok((wkb, None));
    }
    let value = parse_strict(text.as_bytes()).map_err(|error| format!("this is not GeoJSON: {error}"))?;
    let geometry = match value.get("type").and_then(JsonValue::as_str) {
        Some("Feature") => value.get("geometry").ok_or("the feature has no geometry")?,
        Some("FeatureCollection") => match value.get("features").and_then(JsonValue::as_array) {
            Some(features) if features.len() == 1 => {
                features[0].get("geometry").ok_or("the feature has no geometry")?
            }
            _ => {
                return Err("this is a feature collection; it must have exactly one feature here".into());
            }
        },
        _ => &value,
    };
    let wkb = from_geojson(geometry).map_err(|error| error.to_string())?;
    Ok((wkb, foreign_crs(&value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_counted_and_finite() {
        assert_eq!(parse_window("-180, -90,180,90"), Ok([-180.0, -90.0, 180.0, 90.0]));
        for text in ["", "1,2,3", "1,2,3,4,5", "1,2,3,x", "1,2,3,nan", "1,2,3,inf", "1 2 3 4"] {
            assert!(parse_window(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_no_geometry_is_told_once() {
        for (text, reason) in [
            ("POINT (1", "not valid WKT: "),
            ("nothing", "not valid WKT: "),
            ("LINESTRING (1 2)", "a line string has 1 position"),
            (r#"{"type":"Point","coordinates":[1]}"#, "not a valid GeoJSON geometry, "),
        ] {
            let error = parse_text(text).unwrap_err();
            assert!(error.starts_with(reason), "{error}");
        }
    }

    #[test]
    fn wkt_and_geojson_say_the_same() {
        let wkt = parse_text("POINT (1 2)");
        assert!(wkt.is_ok());
        for text in [
            r#"{"type":"Point","coordinates":[1,2]}"#,
            r#"{"type":"Feature","properties":{},"geometry":{"type":"Point","coordinates":[1,2]}}"#,
            r#"{"type":"FeatureCollection","features":[{"type":"Feature","properties":null,"geometry":{"type":"Point","coordinates":[1,2]}}]}"#,
        ] {
            assert_eq!(parse_text(text), wkt, "{text}");
        }
        let twice = r#"{"type":"Point","coordinates":[3,4],"coordinates":[1,2]}"#;
        for text in ["", "{}", "{", "POINT (1)", twice, r#"{"type":"FeatureCollection","features":[]}"#, "null"] {
            assert!(parse_text(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_geometry_in_another_system_is_for_planar_datasets_alone() {
        let crs = r#""crs":{"type":"name","properties":{"name":"EPSG:27700"}}"#;
        let point = r#""type":"Point","coordinates":[1,2]"#;
        for text in [
            format!("{{{point},{crs}}}"),
            format!(r#"{{"type":"Feature","properties":{{}},{crs},"geometry":{{{point}}}}}"#),
            format!(r#"{{"type":"Feature","properties":{{}},"geometry":{{{point},{crs}}}}}"#),
            format!(r#"{{"type":"FeatureCollection",{crs},"features":[{{"type":"Feature","geometry":{{{point}}}}}]}}"#),
        ] {
            let Ok((_, system)) = parse_geometry("--within", &text) else { panic!("{text}") };
            assert_eq!(system.foreign.as_deref(), Some("EPSG:27700"), "{text}");
            assert!(system.check(CoordinateSystem::Planar).is_ok() && system.check(CoordinateSystem::LonLat).is_err());
        }
    }
}
