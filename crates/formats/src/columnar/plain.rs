//! Recognises geometry columns that a file does not declare, by their names and first values.

use std::path::Path;

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use arrow_cast::cast;
use arrow_schema::{DataType, Schema};
use base64::Engine;
use terrane_space::geometry::parse_wkb;

use super::geo_metadata::{DeclaredGeometry, Encoding};
use crate::crs::DeclaredCrs;
use crate::error::{FormatError, Location};
use crate::geometry::GeometryReader;
use crate::guess::is_geometry_name;

/// Number of values in a sample.
pub(crate) const SAMPLE_ROWS: usize = 64;

/// The first column with the name of a geometry whose sampled values are all geometries. `sample`
/// returns the first values of the column at an ordinal.
///
/// # Errors
/// When the values are WKB in base64, or `sample` fails.
pub(crate) fn find(
    path: &Path,
    schema: &Schema,
    mut sample: impl FnMut(usize) -> Result<Option<ArrayRef>, FormatError>,
) -> Result<Option<DeclaredGeometry>, FormatError> {
    for (index, field) in schema.fields().iter().enumerate().filter(|(_, field)| is_geometry_name(field.name())) {
        let Some(values) = sample(index)? else { continue };
        let encoding = match field.data_type() {
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => binary_encoding(&values),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => text_encoding(&values),
            _ => Found::Nothing,
        };
        let encoding = match encoding {
            Found::Geometry(encoding) => encoding,
            Found::Nothing => continue,
            Found::Base64 => {
                return Err(FormatError::refused(
                    path,
                    Location::Column(field.name().clone()),
                    "the values are WKB in base64, which is not supported",
                    "write them as binary, as hexadecimal text or as WKT",
                ));
            }
        };
        return Ok(Some(DeclaredGeometry { column: field.name().clone(), encoding, crs: DeclaredCrs::Undeclared }));
    }
    Ok(None)
}

/// The kind of the sampled values.
enum Found {
    Geometry(Encoding),
    Base64,
    Nothing,
}

fn binary_encoding(values: &ArrayRef) -> Found {
    let Ok(values) = cast(values, &DataType::LargeBinary) else { return Found::Nothing };
    let mut values = values.as_binary::<i64>().iter().flatten().peekable();
    match values.peek().is_some() && values.all(|value| parse_wkb(value).is_ok()) {
        true => Found::Geometry(Encoding::Wkb),
        false => Found::Nothing,
    }
}

fn text_encoding(values: &ArrayRef) -> Found {
    let Ok(values) = cast(values, &DataType::LargeUtf8) else { return Found::Nothing };
    let texts: Vec<&str> =
        values.as_string::<i64>().iter().flatten().map(str::trim).filter(|text| !text.is_empty()).collect();
    let is_base64 = |text: &str| {
        let bytes = base64::engine::general_purpose::STANDARD.decode(text);
        bytes.is_ok_and(|bytes| parse_wkb(&bytes).is_ok())
    };
    let reader = GeometryReader::default();
    if texts.is_empty() {
        Found::Nothing
    } else if texts.iter().all(|text| reader.text(text).is_ok()) {
        Found::Geometry(Encoding::Wkt)
    } else if texts.iter().all(|text| is_base64(text)) {
        Found::Base64
    } else {
        Found::Nothing
    }
}
