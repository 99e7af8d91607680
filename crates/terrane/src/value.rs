//! Attribute values, owned and borrowed.
//!
//! Dates count days and timestamps microseconds since 1970-01-01 in the proleptic Gregorian
//! calendar. Equality and hashing compare floats by their bits, so a value equals its stored copy,
//! NaN included. The text forms are ISO 8601 for dates and timestamps, base64 (RFC 4648, padded)
//! for binary data, and lower-case digits with hyphens for UUIDs.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

pub(crate) use terrane_literal::exact_float;
use terrane_literal::json_integer;
use terrane_literal::{UuidBytes, format_uuid, parse_uuid, shortest};
pub use terrane_literal::{format_date, format_timestamp};

use crate::schema::ColumnType;

/// An owned attribute value.
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// No value.
    #[default]
    Null,
    /// True or false.
    Bool(bool),
    /// A 64-bit integer.
    Int(i64),
    /// A 32-bit float.
    Float32(f32),
    /// A 64-bit float.
    Float64(f64),
    /// Text.
    Utf8(String),
    /// Bytes.
    Binary(Vec<u8>),
    /// The 16 bytes of a UUID.
    Uuid(UuidBytes),
    /// Days since 1970-01-01.
    Date(i32),
    /// Microseconds since 1970-01-01T00:00:00.
    Timestamp(i64),
}

/// A borrowed attribute value.
#[derive(Clone, Copy, Debug)]
pub enum ValueRef<'a> {
    /// No value.
    Null,
    /// True or false.
    Bool(bool),
    /// A 64-bit integer.
    Int(i64),
    /// A 32-bit float.
    Float32(f32),
    /// A 64-bit float.
    Float64(f64),
    /// Text.
    Utf8(&'a str),
    /// Bytes.
    Binary(&'a [u8]),
    /// The 16 bytes of a UUID.
    Uuid(UuidBytes),
    /// Days since 1970-01-01.
    Date(i32),
    /// Microseconds since 1970-01-01T00:00:00.
    Timestamp(i64),
}

/// Why a text or a JSON value is not a value of the expected type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found} is not {wanted}: {reason}")]
pub struct ValueError {
    /// The given value, shortened if it is long.
    pub found: String,
    /// The expected type, with its article.
    pub wanted: &'static str,
    /// The reason or the remedy.
    pub reason: &'static str,
}

/// Maximal length in characters of a refused text that an error repeats.
const FOUND_CHARACTERS_MAX: usize = 60;

impl ValueError {
    pub(crate) fn new(found: impl fmt::Display, wanted: &'static str, reason: &'static str) -> Self {
        let text = found.to_string();
        let mut found: String = text.chars().take(FOUND_CHARACTERS_MAX).collect();
        if found.len() < text.len() {
            found.push('…');
        }
        Self { found, wanted, reason }
    }
}

impl Value {
    /// The value, borrowed.
    pub fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Self::Null => ValueRef::Null,
            Self::Bool(value) => ValueRef::Bool(*value),
            Self::Int(value) => ValueRef::Int(*value),
            Self::Float32(value) => ValueRef::Float32(*value),
            Self::Float64(value) => ValueRef::Float64(*value),
            Self::Utf8(value) => ValueRef::Utf8(value),
            Self::Binary(value) => ValueRef::Binary(value),
            Self::Uuid(value) => ValueRef::Uuid(*value),
            Self::Date(value) => ValueRef::Date(*value),
            Self::Timestamp(value) => ValueRef::Timestamp(*value),
        }
    }

    /// Whether there is no value.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// Parses a value of `column_type` from text: numbers in decimal, `true` or `false`, ISO 8601
    /// dates and timestamps, base64 for binary data, hexadecimal digits for UUIDs.
    pub fn parse(text: &str, column_type: ColumnType) -> Result<Self, ValueError> {
        let refuse = |reason| ValueError::new(format_args!("{text:?}"), column_type.description(), reason);
        match column_type {
            ColumnType::Bool => match text {
                "true" => Ok(Self::Bool(true)),
                "false" => Ok(Self::Bool(false)),
                _ => Err(refuse("write true or false")),
            },
            ColumnType::Int64 => {
                text.parse().map(Self::Int).map_err(|_| refuse("write a whole number of at most 64 bits"))
            }
            ColumnType::Float32 => match text.parse::<f64>() {
                Ok(number) if !text.contains(|c: char| c.is_ascii_digit()) => Ok(Self::Float32(number as f32)),
                Ok(number) => float32(number).map(Self::Float32).ok_or_else(|| refuse(BEYOND_FLOAT32)),
                Err(_) => Err(refuse("write a decimal number")),
            },
            ColumnType::Float64 => match text.parse::<f64>() {
                Ok(number) if number.is_finite() || !text.contains(|c: char| c.is_ascii_digit()) => {
                    Ok(Self::Float64(number))
                }
                Ok(_) => Err(refuse("the number is beyond the range of a 64-bit float")),
                Err(_) => Err(refuse("write a decimal number")),
            },
            ColumnType::Utf8 => Ok(Self::Utf8(text.to_owned())),
            ColumnType::Binary => BASE64.decode(text).map(Self::Binary).map_err(|_| refuse("write padded base64")),
            ColumnType::Uuid => parse_uuid(text).map(Self::Uuid).map_err(refuse),
            ColumnType::Date => parse_date(text).map(Self::Date),
            ColumnType::Timestamp { utc } => parse_timestamp(text, utc).map(Self::Timestamp),
        }
    }

    /// Reads a value of `column_type` from JSON. A number becomes the integer or float with exactly
    /// this value, in whatever notation. Dates, timestamps, binary data and UUIDs are strings.
    pub fn from_json(json: &serde_json::Value, column_type: ColumnType) -> Result<Self, ValueError> {
        use serde_json::Value as Json;
        let refuse = |reason| ValueError::new(json, column_type.description(), reason);
        match (json, column_type) {
            (Json::Null, _) => Ok(Self::Null),
            (Json::Bool(value), ColumnType::Bool) => Ok(Self::Bool(*value)),
            (Json::Number(number), ColumnType::Int64) => {
                json_integer(number).map(Self::Int).ok_or_else(|| refuse(no_integer(number)))
            }
            (Json::Number(number), ColumnType::Float32) => {
                number.as_f64().and_then(float32).map(Self::Float32).ok_or_else(|| refuse(BEYOND_FLOAT32))
            }
            (Json::Number(number), ColumnType::Float64) => {
                if number.as_i128().is_some_and(|integer| exact_float(integer).is_none()) {
                    return Err(refuse(INEXACT));
                }
                number.as_f64().map(Self::Float64).ok_or_else(|| refuse("it is beyond the range of a 64-bit float"))
            }
            (Json::String(text), ColumnType::Utf8) => Ok(Self::Utf8(text.clone())),
            (
                Json::String(text),
                ColumnType::Binary | ColumnType::Uuid | ColumnType::Date | ColumnType::Timestamp { .. },
            ) => Self::parse(text, column_type),
            _ => Err(refuse("the JSON type does not fit")),
        }
    }

    /// See [`ValueRef::to_json`].
    pub fn to_json(&self, column_type: ColumnType) -> serde_json::Value {
        self.as_ref().to_json(column_type)
    }
}

/// Days since 1970-01-01 of a date `YYYY-MM-DD` (a year with a sign may have up to seven digits).
pub fn parse_date(text: &str) -> Result<i32, ValueError> {
    terrane_literal::parse_date(text).map_err(|reason| ValueError::new(format_args!("{text:?}"), "a date", reason))
}

/// Microseconds since 1970-01-01T00:00:00 of a timestamp in one of the forms of
/// [`terrane_literal::parse_timestamp`].
///
/// A zone is refused unless `utc`. Without a zone, a UTC timestamp is read as UTC.
pub fn parse_timestamp(text: &str, utc: bool) -> Result<i64, ValueError> {
    let read = terrane_literal::parse_timestamp(text).and_then(|read| match read.has_zone && !utc {
        true => Err("the column has no time zone; convert the time to that of the column, and leave the zone out"),
        false => Ok(read.microseconds),
    });
    read.map_err(|reason| ValueError::new(format_args!("{text:?}"), "a timestamp", reason))
}

/// Why a number is not accepted as an integer.
fn no_integer(number: &serde_json::Number) -> &'static str {
    const INT64_END: f64 = (1_u64 << 63) as f64;
    match number.as_f64().filter(|_| number.is_f64()) {
        Some(float) if float.fract() != 0.0 => "it has a fraction",
        Some(float) if float.abs() < INT64_END => {
            "a number of this size with a point or an exponent may be rounded; write it without"
        }
        _ => "it is beyond the range of int64",
    }
}

/// The nearest float32 to a number, if it is finite.
pub(crate) fn float32(number: f64) -> Option<f32> {
    Some(number as f32).filter(|rounded| rounded.is_finite())
}

/// Why a number is not accepted as a float32.
pub(crate) const BEYOND_FLOAT32: &str = "the number is beyond the range of a 32-bit float, about 3.4e38";

/// Why an integer is not accepted as a float.
pub(crate) const INEXACT: &str = "a float64 cannot hold this integer exactly; write a fraction if it may be rounded";

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.as_ref() == other.as_ref()
    }
}

impl Eq for Value {}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_ref().fmt(f)
    }
}

impl<'a> ValueRef<'a> {
    /// Copies the value.
    pub fn to_owned(self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(value),
            Self::Int(value) => Value::Int(value),
            Self::Float32(value) => Value::Float32(value),
            Self::Float64(value) => Value::Float64(value),
            Self::Utf8(value) => Value::Utf8(value.to_owned()),
            Self::Binary(value) => Value::Binary(value.to_vec()),
            Self::Uuid(value) => Value::Uuid(value),
            Self::Date(value) => Value::Date(value),
            Self::Timestamp(value) => Value::Timestamp(value),
        }
    }

    /// Whether there is no value.
    pub fn is_null(self) -> bool {
        matches!(self, Self::Null)
    }

    /// The JSON form: integers as JSON integers, NaN and infinities as null, dates and timestamps
    /// in ISO 8601 (with `Z` in a UTC column), binary data in base64, UUIDs as text.
    pub fn to_json(self, column_type: ColumnType) -> serde_json::Value {
        match self {
            Self::Null => serde_json::Value::Null,
            Self::Bool(value) => value.into(),
            Self::Int(value) => value.into(),
            Self::Float32(value) => shortest(value).into(),
            Self::Float64(value) => value.into(),
            Self::Utf8(value) => value.into(),
            Self::Binary(value) => BASE64.encode(value).into(),
            Self::Uuid(value) => format_uuid(value).into(),
            Self::Date(value) => format_date(value).into(),
            Self::Timestamp(value) => {
                format_timestamp(value, matches!(column_type, ColumnType::Timestamp { utc: true })).into()
            }
        }
    }

    /// The kind of the value, for messages.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int64",
            Self::Float32(_) => "float32",
            Self::Float64(_) => "float64",
            Self::Utf8(_) => "utf8",
            Self::Binary(_) => "binary",
            Self::Uuid(_) => "uuid",
            Self::Date(_) => "date",
            Self::Timestamp(_) => "timestamp",
        }
    }
}

impl PartialEq for ValueRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int(a), Self::Int(b)) | (Self::Timestamp(a), Self::Timestamp(b)) => a == b,
            (Self::Float32(a), Self::Float32(b)) => a.to_bits() == b.to_bits(),
            (Self::Float64(a), Self::Float64(b)) => a.to_bits() == b.to_bits(),
            (Self::Utf8(a), Self::Utf8(b)) => a == b,
            (Self::Binary(a), Self::Binary(b)) => a == b,
            (Self::Uuid(a), Self::Uuid(b)) => a == b,
            (Self::Date(a), Self::Date(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for ValueRef<'_> {}

impl fmt::Display for ValueRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => value.fmt(f),
            Self::Int(value) => value.fmt(f),
            Self::Float32(value) => value.fmt(f),
            Self::Float64(value) => value.fmt(f),
            Self::Utf8(value) => f.write_str(value),
            Self::Binary(value) => f.write_str(&BASE64.encode(value)),
            Self::Uuid(value) => f.write_str(&format_uuid(*value)),
            Self::Date(value) => f.write_str(&format_date(*value)),
            Self::Timestamp(value) => f.write_str(&format_timestamp(*value, false)),
        }
    }
}
