//! Literals, with which columns are compared.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

/// A literal of a condition. Two literals are equal if their text is: floats by their bits, and 1
/// is not 1.0.
#[derive(Clone, Debug)]
pub enum Literal {
    /// True or false.
    Bool(bool),
    /// An integer, for integer and float columns.
    Int(i128),
    /// A float, for integer and float columns.
    Float(f64),
    /// A text, for columns of texts, dates and timestamps (ISO 8601), and binary data (padded
    /// base64).
    Text(String),
}

impl PartialEq for Literal {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::Float(a), Self::Float(b)) => a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()),
            (Self::Text(a), Self::Text(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Literal {}

/// Writes the literal as it appears in conditions.
impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Int(value) => value.fmt(f),
            Self::Float(value) if value.is_nan() => f.write_str(NAN),
            Self::Float(value) if value.is_infinite() => {
                f.write_str(if *value < 0.0 { "-" } else { "" })?;
                f.write_str(INFINITY)
            }
            // A point or an exponent distinguishes it from an integer.
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Text(value) => quote(f, value, '\''),
        }
    }
}

/// The text of the float that is not a number.
pub(super) const NAN: &str = "nan";
/// The text of the infinite float.
pub(super) const INFINITY: &str = "infinity";

/// Writes a text between quotes. Quotes inside are doubled.
pub(super) fn quote(f: &mut fmt::Formatter<'_>, text: &str, mark: char) -> fmt::Result {
    write!(f, "{mark}")?;
    for (number, part) in text.split(mark).enumerate() {
        if number > 0 {
            write!(f, "{mark}{mark}")?;
        }
        f.write_str(part)?;
    }
    write!(f, "{mark}")
}

impl From<bool> for Literal {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i32> for Literal {
    fn from(value: i32) -> Self {
        Self::Int(value.into())
    }
}

impl From<i64> for Literal {
    fn from(value: i64) -> Self {
        Self::Int(value.into())
    }
}

impl From<u64> for Literal {
    fn from(value: u64) -> Self {
        Self::Int(value.into())
    }
}

impl From<f64> for Literal {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<&str> for Literal {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Literal {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

/// Binary data, in base64.
impl From<&[u8]> for Literal {
    fn from(value: &[u8]) -> Self {
        Self::Text(BASE64.encode(value))
    }
}
