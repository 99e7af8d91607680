//! Detects the format of a file: by its content first, then by its name if the content leaves a
//! choice.

use std::fmt;
use std::path::Path;

use crate::error::{FormatError, Location};
use crate::input::{Compression, Input, said_by_name};
use crate::json::probe::{JsonShape, shape_of};
use crate::source::DECODED_BYTES_MAX;

/// Bytes of a file that detection reads.
pub(crate) const HEAD_BYTES: usize = 64 << 10;

/// A file format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// Separated values with a header.
    Csv,
    /// One JSON object per line.
    Ndjson,
    /// One JSON array of objects.
    JsonArray,
    /// One GeoJSON document.
    GeoJson,
    /// One GeoJSON feature per line or record (RFC 8142).
    GeoJsonSeq,
    /// Apache Parquet.
    Parquet,
    /// Parquet with `geo` metadata.
    GeoParquet,
    /// An Arrow IPC file ("Feather version 2").
    ArrowFile,
    /// An Arrow IPC stream.
    ArrowStream,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Format::Csv => "CSV",
            Format::Ndjson => "NDJSON",
            Format::JsonArray => "JSON array",
            Format::GeoJson => "GeoJSON",
            Format::GeoJsonSeq => "GeoJSON text sequence",
            Format::Parquet => "Parquet",
            Format::GeoParquet => "GeoParquet",
            Format::ArrowFile => "Arrow IPC file",
            Format::ArrowStream => "Arrow IPC stream",
        })
    }
}

/// Leading bytes of unsupported formats that no text begins with.
const FOREIGN: [(&[u8], &str); 9] = [
    (b"SQLite format 3\0", "SQLite or GeoPackage"),
    (b"fgb\x03", "FlatGeobuf"),
    (b"\x89HDF\r\n\x1a\n", "HDF5"),
    (b"CDF\x01", "NetCDF"),
    (b"\0\0\x27\x0a", "a Shapefile"),
    (b"PK\x03\x04", "a ZIP archive (also XLSX, KMZ, zipped Shapefiles)"),
    (b"Obj\x01", "Avro"),
    (b"%PDF", "PDF"),
    (b"\xfd7zXZ", "xz compression"),
];

/// Leading bytes of unsupported formats that a column name may begin with. They count only if the
/// bytes behind are not text.
const FOREIGN_LETTERS: [(&[u8], &str); 3] =
    [(b"PARE", "encrypted Parquet"), (b"ORC", "ORC"), (b"BZh", "bzip2 compression")];

/// Extensions of unsupported formats, for files whose content tells nothing.
const FOREIGN_EXTENSIONS: [(&str, &str); 14] = [
    (".fgb", "FlatGeobuf"),
    (".gpkg", "GeoPackage"),
    (".sqlite", "SQLite"),
    (".kml", "KML"),
    (".kmz", "KMZ"),
    (".gml", "GML"),
    (".gpx", "GPX"),
    (".shp", "a Shapefile"),
    (".shx", "a Shapefile"),
    (".dbf", "a Shapefile"),
    (".h5", "HDF5"),
    (".he5", "HDF-EOS5"),
    (".hdf5", "HDF5"),
    (".xlsx", "XLSX"),
];

/// The format of the file at `path`. Opening the file later tells Parquet with geometry from
/// Parquet without.
///
/// # Errors
/// When the file cannot be read, is empty, or has an unsupported format.
pub fn detect(path: &Path) -> Result<Format, FormatError> {
    detect_input(&Input::new(path, None, DECODED_BYTES_MAX)?)
}

pub(crate) fn detect_input(input: &Input) -> Result<Format, FormatError> {
    let unsupported = |found: &str| FormatError::Unsupported { path: input.path.clone(), found: found.to_string() };
    let name = input.inner_name.as_str();
    let head = input.head(HEAD_BYTES)?;
    if let Some(found) = foreign(&head, name) {
        return Err(unsupported(found));
    }
    if head.is_empty() {
        return Err(FormatError::damaged(&input.path, Location::File, "the file is empty"));
    }
    let binary = if head.starts_with(b"PAR1") {
        Some(Format::Parquet)
    } else if head.starts_with(b"ARROW1") {
        Some(Format::ArrowFile)
    } else if head.starts_with(&[0xff, 0xff, 0xff, 0xff]) {
        Some(Format::ArrowStream)
    } else {
        None
    };
    if let Some(format) = binary {
        if input.compression != Compression::None {
            return Err(FormatError::refused(
                &input.path,
                Location::File,
                format!("a compressed {format} cannot be read"),
                "decompress it first: the format compresses by itself",
            ));
        }
        return Ok(format);
    }
    if let Some((_, format)) = [(".parquet", "Parquet"), (".geoparquet", "GeoParquet"), (".arrow", "Arrow")]
        .iter()
        .find(|(extension, _)| name.ends_with(extension))
    {
        return Err(FormatError::damaged(&input.path, Location::Byte(0), said_by_name(format)));
    }
    detect_text(input, &head, name)
}

fn foreign(head: &[u8], name: &str) -> Option<&'static str> {
    let is_text = !head.iter().any(|byte| byte.is_ascii_control() && !byte.is_ascii_whitespace());
    let letters = if is_text { &[][..] } else { &FOREIGN_LETTERS };
    if let Some((_, found)) = FOREIGN.iter().chain(letters).find(|(magic, _)| head.starts_with(magic)) {
        return Some(found);
    }
    if let Some((_, found)) = FOREIGN_EXTENSIONS.iter().find(|(extension, _)| name.ends_with(extension)) {
        return Some(found);
    }
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let start: Vec<u8> = text.iter().take(200).map(u8::to_ascii_lowercase).collect();
    let contains = |word: &str| start.windows(word.len()).any(|window| window == word.as_bytes());
    if start.first() != Some(&b'<') {
        None
    } else if contains("<kml") {
        Some("KML")
    } else if contains("<gpx") {
        Some("GPX")
    } else if contains("<html") || contains("<!doctype html") {
        Some("an HTML page (an error page saved under this name?)")
    } else {
        Some("XML (also GML)")
    }
}

fn detect_text(input: &Input, head: &[u8], name: &str) -> Result<Format, FormatError> {
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let has_extension = |extensions: &[&str]| extensions.iter().any(|end| name.ends_with(end));
    let is_csv_name = has_extension(&[".csv", ".tsv", ".tab", ".psv"]);
    let is_json_name =
        has_extension(&[".json", ".geojson", ".ndjson", ".jsonl", ".geojsonl", ".geojsons", ".geojsonseq"]);
    if has_extension(&[".geojsonl", ".geojsons", ".geojsonseq"]) {
        return Ok(Format::GeoJsonSeq);
    }
    if has_extension(&[".ndjson", ".jsonl"]) {
        return Ok(Format::Ndjson);
    }
    let first = text.trim_ascii_start().first().copied();
    match first {
        Some(b'{' | b'[' | 0x1e) if !is_csv_name => {}
        _ if has_extension(&[".geojson", ".json"]) => return Ok(Format::GeoJson),
        None => {
            return Err(FormatError::damaged(&input.path, Location::File, "the file holds nothing but blanks"));
        }
        _ => return Ok(Format::Csv),
    }
    match first {
        Some(0x1e) => return Ok(Format::GeoJsonSeq),
        Some(b'[') => {
            let inner = text.trim_ascii_start()[1..].trim_ascii_start().first();
            let is_array = is_json_name || matches!(inner, Some(b'{' | b']'));
            return Ok(if is_array { Format::JsonArray } else { Format::Csv });
        }
        _ => {}
    }
    Ok(match shape_of(input, head)? {
        JsonShape::Lines { features: true } => Format::GeoJsonSeq,
        JsonShape::Lines { features: false } => Format::Ndjson,
        JsonShape::Document { geojson: true } => Format::GeoJson,
        JsonShape::Document { geojson: false } if name.ends_with(".geojson") => Format::GeoJson,
        JsonShape::Document { geojson: false } => Format::Ndjson,
    })
}
