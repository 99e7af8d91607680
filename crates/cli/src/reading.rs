//! Types that the user asks for, compared with those of a dataset.

use terrane::CoordinateSystem;
use terrane::schema::{ColumnType, KeyType, Schema};
use terrane_formats::{ColumnType as FileColumnType, DemandedType};

use crate::args::{ReadingFlags, TypeOfColumn};
use crate::failure::Failure;

/// The type of a dataset's column as files are read.
pub fn file_column_type(column_type: ColumnType) -> FileColumnType {
    match column_type {
        ColumnType::Bool => FileColumnType::Boolean,
        ColumnType::Int64 => FileColumnType::Int64,
        ColumnType::Float32 => FileColumnType::Float32,
        ColumnType::Float64 => FileColumnType::Float64,
        ColumnType::Utf8 => FileColumnType::Utf8,
        ColumnType::Binary => FileColumnType::Binary,
        ColumnType::Uuid => FileColumnType::Uuid,
        ColumnType::Date => FileColumnType::Date32,
        ColumnType::Timestamp { utc: false } => FileColumnType::Timestamp,
        ColumnType::Timestamp { utc: true } => FileColumnType::TimestampUtc,
    }
}

/// The type of a dataset's key as files are read.
pub fn file_key_type(key_type: KeyType) -> FileColumnType {
    match key_type {
        KeyType::Int64 => FileColumnType::Int64,
        KeyType::UInt64 => FileColumnType::UInt64,
        KeyType::Utf8 => FileColumnType::Utf8,
        KeyType::Binary => FileColumnType::Binary,
        KeyType::Uuid => FileColumnType::Uuid,
    }
}

/// The type of an attribute that the user asks for; `has_zone` tells whether the value has a zone.
pub fn attribute_type(demanded: &DemandedType, has_zone: bool) -> ColumnType {
    match demanded.column_type(has_zone) {
        FileColumnType::Boolean => ColumnType::Bool,
        FileColumnType::Int64 | FileColumnType::UInt64 => ColumnType::Int64,
        FileColumnType::Float32 => ColumnType::Float32,
        FileColumnType::Float64 => ColumnType::Float64,
        FileColumnType::Utf8 => ColumnType::Utf8,
        FileColumnType::Binary => ColumnType::Binary,
        FileColumnType::Uuid => ColumnType::Uuid,
        FileColumnType::Date32 => ColumnType::Date,
        FileColumnType::Timestamp => ColumnType::Timestamp { utc: false },
        FileColumnType::TimestampUtc => ColumnType::Timestamp { utc: true },
    }
}

/// Refuses flags that contradict a dataset: types of its columns, and conversions of planar
/// coordinates.
pub fn check_reading(flags: &ReadingFlags, dataset: &str, schema: &Schema) -> Result<(), Failure> {
    if schema.system == CoordinateSystem::Planar && (flags.crs.is_some() || flags.wrap_longitudes) {
        let flag = if flags.crs.is_some() { "--crs" } else { "--wrap-longitudes" };
        return Err(Failure::usage(format!(
            "dataset {dataset:?} has planar coordinates, which are never converted; omit {flag}"
        )));
    }
    for (place, TypeOfColumn { column, demanded }) in flags.types.iter().enumerate() {
        if flags.types[..place].iter().any(|earlier| earlier.column == *column) {
            return Err(Failure::usage(format!("--type names column {column:?} twice; keep one of them")));
        }
        if schema.geometry.names().any(|name| name == column) {
            return Err(Failure::usage(format!(
                "--type names column {column:?}, which holds the geometry of dataset {dataset:?}; omit that type"
            )));
        }
        let existing = match schema.column(column) {
            _ if *column == schema.key.name => {
                Some((file_key_type(schema.key.key_type), schema.key.key_type.to_string()))
            }
            Some(column) => Some((file_column_type(column.column_type), column.column_type.to_string())),
            None => None,
        };
        if let Some((_, shown)) = existing.filter(|(existing, _)| !demanded.fits(*existing)) {
            return Err(Failure::usage(format!(
                "column {column:?} of dataset {dataset:?} is {shown}, and not {demanded}; a column keeps its type"
            )));
        }
    }
    Ok(())
}
