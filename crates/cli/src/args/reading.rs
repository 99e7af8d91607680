//! The flags on how values and coordinates are read, for the commands that read records.

use std::path::Path;

use clap::Args;
use terrane_formats::{CoordinateOptions, Crs, DemandedType};

/// A column and its type.
#[derive(Clone, Debug)]
pub struct TypeOfColumn {
    pub column: String,
    pub demanded: DemandedType,
}

/// How values and coordinates are read.
#[derive(Debug, Default, Args)]
pub struct ReadingFlags {
    /// Type of a column, if the guess is wrong (repeatable): bool, int64, float32, float64, utf8,
    /// binary, uuid, date, timestamp. Dates and timestamps are read as ISO 8601, or by a strftime
    /// pattern, such as day=date:%d.%m.%Y or at='timestamp:%m/%d/%Y %H:%M'.
    #[arg(long = "type", value_name = "COLUMN=TYPE[:FORMAT]", value_parser = parse_type)]
    pub types: Vec<TypeOfColumn>,
    /// Text that stands for null in fields of CSV and strings of JSON, quoted or not (repeatable).
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub null: Vec<String>,
    /// Reference system of the coordinates, overriding the input's: EPSG:N, PROJJSON or WKT with a
    /// code, or @FILE with one of them. They are converted to longitude and latitude.
    #[arg(long, value_name = "CRS|@FILE", value_parser = parse_crs, conflicts_with = "planar")]
    pub crs: Option<Crs>,
    /// Accept longitudes from 0 to 360 degrees: 235.5 is -124.5. A geometry that crosses 180
    /// degrees is cut there.
    #[arg(long, conflicts_with = "planar")]
    pub wrap_longitudes: bool,
}

impl ReadingFlags {
    pub fn coordinates(&self, planar: bool) -> CoordinateOptions {
        CoordinateOptions { planar, plane: None, crs: self.crs.clone(), wrap_longitudes: self.wrap_longitudes }
    }

    pub fn demanded_types(&self) -> Vec<(String, DemandedType)> {
        self.types.iter().map(|TypeOfColumn { column, demanded }| (column.clone(), demanded.clone())).collect()
    }
}

/// The character that encloses the fields of a CSV file.
#[derive(Clone, Copy, Debug)]
pub struct QuoteFlag(pub terrane_formats::Quote);

pub fn parse_quote(text: &str) -> Result<QuoteFlag, String> {
    match text {
        "none" => Ok(QuoteFlag(terrane_formats::Quote::None)),
        other => parse_character(other).map(|byte| QuoteFlag(terrane_formats::Quote::Character(byte))),
    }
}

/// One ASCII character; a tab also as `tab` or `\t`.
pub fn parse_character(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"tab" | b"\\t" => Ok(b'\t'),
        [byte] if byte.is_ascii() && !matches!(byte, b'\n' | b'\r' | 0) => Ok(*byte),
        _ => Err(format!("{text:?} is not one ASCII character; write for example ';', or tab")),
    }
}

fn parse_type(text: &str) -> Result<TypeOfColumn, String> {
    // Names of columns may contain an equals sign; types contain none before their pattern.
    let splits = text.match_indices('=').map(|(place, _)| (&text[..place], &text[place + 1..]));
    let mut refused = None;
    for (column, demanded) in splits {
        match demanded.parse() {
            Ok(demanded) if !column.is_empty() => return Ok(TypeOfColumn { column: column.to_owned(), demanded }),
            Ok(_) => {}
            Err(reason) => _ = refused.get_or_insert(reason),
        }
    }
    Err(refused.unwrap_or_else(|| "write COLUMN=TYPE, for example zip=utf8".to_owned()))
}

fn parse_crs(text: &str) -> Result<Crs, String> {
    match text.strip_prefix('@') {
        None => Crs::parse(text),
        Some(path) => {
            let text = std::fs::read_to_string(Path::new(path)).map_err(|error| format!("{path}: {error}"))?;
            Crs::parse(&text)
        }
    }
}
