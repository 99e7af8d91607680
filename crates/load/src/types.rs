//! The types of datasets, and those that files are read with.

use terrane::schema::{ColumnType, KeyType};
use terrane_formats::{ColumnType as FileColumnType, DemandedType};

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
