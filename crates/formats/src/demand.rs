//! Column types that the user asks for, instead of guessed ones.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use terrane_literal::TimePattern;

use crate::types::ColumnType;

/// A type as users write it: `int64`, `utf8`, `date`, `timestamp:%d.%m.%Y %H:%M`, ….
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DemandedType {
    /// A type without a pattern.
    Plain(ColumnType),
    /// Dates, by a pattern or in ISO 8601.
    Date(Option<Arc<TimePattern>>),
    /// Timestamps, by a pattern or in ISO 8601; in UTC where they have a zone.
    Timestamp(Option<Arc<TimePattern>>),
}

/// Names of the types.
const PLAIN: [(&str, ColumnType); 7] = [
    ("bool", ColumnType::Boolean),
    ("int64", ColumnType::Int64),
    ("float32", ColumnType::Float32),
    ("float64", ColumnType::Float64),
    ("utf8", ColumnType::Utf8),
    ("binary", ColumnType::Binary),
    ("uuid", ColumnType::Uuid),
];

impl DemandedType {
    /// The type of the column. Without a pattern, `has_zones` decides: whether one of its values
    /// has a zone.
    pub fn column_type(&self, has_zones: bool) -> ColumnType {
        match self {
            DemandedType::Plain(column_type) => *column_type,
            DemandedType::Date(_) => ColumnType::Date32,
            DemandedType::Timestamp(pattern) => {
                match pattern.as_ref().map_or(has_zones, |pattern| pattern.has_zone()) {
                    true => ColumnType::TimestampUtc,
                    false => ColumnType::Timestamp,
                }
            }
        }
    }

    /// The pattern of its dates and times, if they are not in ISO 8601.
    pub fn pattern(&self) -> Option<&Arc<TimePattern>> {
        match self {
            DemandedType::Plain(_) => None,
            DemandedType::Date(pattern) | DemandedType::Timestamp(pattern) => pattern.as_ref(),
        }
    }

    /// Whether a column of this type already is what the user asks for.
    pub fn fits(&self, column_type: ColumnType) -> bool {
        match (self, column_type) {
            (DemandedType::Timestamp(None), ColumnType::Timestamp | ColumnType::TimestampUtc) => true,
            (demanded, column_type) => demanded.column_type(false) == column_type,
        }
    }
}

impl FromStr for DemandedType {
    type Err = String;

    fn from_str(text: &str) -> Result<DemandedType, String> {
        let (name, pattern) = match text.split_once(':') {
            Some((name, pattern)) => (name, Some(Arc::new(TimePattern::new(pattern)?))),
            None => (text, None),
        };
        let plain = PLAIN.iter().find(|(known, _)| *known == name).map(|(_, column_type)| *column_type);
        match (name, plain, pattern) {
            ("date", _, pattern) => Ok(DemandedType::Date(pattern)),
            ("timestamp", _, pattern) => Ok(DemandedType::Timestamp(pattern)),
            (_, Some(column_type), None) => Ok(DemandedType::Plain(column_type)),
            (_, Some(_), Some(_)) => Err(format!("only date and timestamp have a pattern, not {name}")),
            (_, None, _) => {
                let names: Vec<&str> = PLAIN.iter().map(|(name, _)| *name).collect();
                Err(format!("{name:?} is not a type; the types are {}, date and timestamp", names.join(", ")))
            }
        }
    }
}

impl fmt::Display for DemandedType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DemandedType::Plain(column_type) => {
                let name = PLAIN.iter().find(|(_, plain)| plain == column_type).map(|(name, _)| *name);
                f.write_str(name.unwrap_or(column_type.name()))
            }
            DemandedType::Date(_) => f.write_str("date"),
            DemandedType::Timestamp(_) => f.write_str("timestamp"),
        }
    }
}
