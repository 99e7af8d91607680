//! The arguments of spatial functions, row by row.

use std::borrow::Cow;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, Float64Array};
use arrow_schema::{DataType, Field};
use datafusion::common::{Result, exec_datafusion_err, internal_datafusion_err};
use datafusion::logical_expr::ColumnarValue;
use terrane_space::geometry::{from_wkt, normalise};

use super::Kind;
use crate::geometry::is_geometry;

/// The type that an argument of a kind is cast to; `None` if the type does not fit.
pub(super) fn coerce(kind: Kind, found: &DataType) -> Option<DataType> {
    let is_number = found.is_numeric() || *found == DataType::Null;
    match (kind, found) {
        (Kind::Geometry, DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::Null) => {
            Some(DataType::Binary)
        }
        (
            Kind::Geometry | Kind::Text | Kind::IntOrText | Kind::Crs,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View,
        ) => Some(DataType::Utf8),
        (Kind::Text, DataType::Null) => Some(DataType::Utf8),
        (Kind::Number, _) if is_number => Some(DataType::Float64),
        // It stays a constant, from which the reference system of the result is known.
        (Kind::Srid | Kind::Crs, DataType::Null) => Some(DataType::Null),
        (Kind::Bool, DataType::Boolean | DataType::Null) => Some(DataType::Boolean),
        (Kind::Int | Kind::IntOrText | Kind::Srid | Kind::Crs, _) if found.is_integer() || *found == DataType::Null => {
            Some(DataType::Int64)
        }
        (Kind::Bytes, DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::Null) => {
            Some(DataType::Binary)
        }
        _ => None,
    }
}

/// An argument that holds geometries.
pub(crate) struct Geometries {
    array: ArrayRef,
    is_constant: bool,
    /// Whether the bytes are in the stored form.
    is_normal: bool,
    /// The only geometry of a constant.
    constant: Option<Vec<u8>>,
}

impl Geometries {
    pub fn new(value: &ColumnarValue, field: &Field) -> Result<Self> {
        let (array, is_constant) = match value {
            ColumnarValue::Array(array) => (array.clone(), false),
            ColumnarValue::Scalar(scalar) => (scalar.to_array()?, true),
        };
        let mut geometries = Self { array, is_constant, is_normal: is_geometry(field), constant: None };
        if is_constant {
            geometries.constant = geometries.read(0)?.map(Cow::into_owned);
        }
        Ok(geometries)
    }

    pub fn is_constant(&self) -> bool {
        self.is_constant
    }

    /// The geometry of a row as WKB in the stored form.
    pub fn get(&self, row: usize) -> Result<Option<Cow<'_, [u8]>>> {
        match self.is_constant {
            true => Ok(self.constant.as_deref().map(Cow::Borrowed)),
            false => self.read(row),
        }
    }

    fn read(&self, row: usize) -> Result<Option<Cow<'_, [u8]>>> {
        if self.array.is_null(row) {
            return Ok(None);
        }
        if let Some(texts) = self.array.as_string_opt::<i32>() {
            return parse_text(texts.value(row)).map(Cow::Owned).map(Some);
        }
        let bytes = self.array.as_binary_opt::<i32>().ok_or_else(|| internal_datafusion_err!("no geometries"))?;
        let bytes = bytes.value(row);
        match self.is_normal {
            true => Ok(Some(Cow::Borrowed(bytes))),
            false => {
                let normal = normalise(bytes).map_err(|error| exec_datafusion_err!("not a geometry: {error}"))?;
                Ok(Some(Cow::Owned(normal)))
            }
        }
    }
}

/// Reads WKT or EWKT. The number of the reference system is left out.
pub(crate) fn parse_text(text: &str) -> Result<Vec<u8>> {
    let trimmed = text.trim();
    let wkt = match trimmed.get(..5) {
        Some(prefix) if prefix.eq_ignore_ascii_case("SRID=") => trimmed.split_once(';').map_or("", |(_, wkt)| wkt),
        _ => trimmed,
    };
    let start: String = text.chars().take(40).collect();
    from_wkt(wkt).map_err(|error| exec_datafusion_err!("'{start}' is not a geometry: {error}"))
}

/// An argument that holds numbers.
pub(super) fn numbers(value: &ColumnarValue, rows: usize) -> Result<Float64Array> {
    let array = value.to_array(rows)?;
    array.as_primitive_opt::<Float64Type>().cloned().ok_or_else(|| internal_datafusion_err!("no numbers"))
}
