//! The types of `CREATE TABLE`.

use datafusion::sql::sqlparser::ast::{DataType, TimezoneInfo};
use terrane::CoordinateSystem;
use terrane::schema::ColumnType;

use crate::error::SqlError;
use crate::geometry::WGS84_SRID;

/// What a declared column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Declared {
    Attribute(ColumnType),
    /// Geometries in a reference system, which has a number unless it is an unknown plane.
    Geometry(CoordinateSystem, u32),
    /// Integers that the store numbers.
    Serial,
}

/// The column of a declared type.
///
/// # Errors
/// A type that datasets do not have, with the one to take.
pub(super) fn declared(name: &str, data_type: &DataType) -> Result<Declared, SqlError> {
    use DataType as D;
    let attribute = |column_type| Ok(Declared::Attribute(column_type));
    match data_type {
        D::Boolean | D::Bool => attribute(ColumnType::Bool),
        D::SmallInt(_)
        | D::Int(_)
        | D::Integer(_)
        | D::BigInt(_)
        | D::Int2(_)
        | D::Int4(_)
        | D::Int8(_)
        | D::TinyInt(_)
        | D::Int64
        | D::Int32
        | D::Int16 => attribute(ColumnType::Int64),
        D::Real | D::Float4 | D::Float32 => attribute(ColumnType::Float32),
        D::Double(_) | D::DoublePrecision | D::Float(_) | D::Float8 | D::Float64 => attribute(ColumnType::Float64),
        D::Text | D::Varchar(_) | D::CharacterVarying(_) | D::CharVarying(_) | D::String(_) => {
            attribute(ColumnType::Utf8)
        }
        D::Bytea | D::Blob(_) | D::Binary(_) | D::Varbinary(_) => attribute(ColumnType::Binary),
        D::Uuid => attribute(ColumnType::Uuid),
        D::Date => attribute(ColumnType::Date),
        D::Timestamp(_, zone) => {
            let utc = matches!(zone, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz);
            attribute(ColumnType::Timestamp { utc })
        }
        D::Custom(custom, modifiers) => match custom.to_string().to_lowercase().as_str() {
            "geometry" => geometry(name, modifiers, 0),
            "geography" => geometry(name, modifiers, WGS84_SRID),
            "serial" | "bigserial" | "serial8" | "serial4" => Ok(Declared::Serial),
            "timestamptz" => attribute(ColumnType::Timestamp { utc: true }),
            _ => Err(unknown(name, data_type)),
        },
        _ => Err(unknown(name, data_type)),
    }
}

fn unknown(name: &str, data_type: &DataType) -> SqlError {
    let advice = match data_type {
        DataType::Numeric(_) | DataType::Decimal(_) | DataType::Dec(_) => "take double precision",
        DataType::Char(_) | DataType::Character(_) => "take text",
        DataType::JSON | DataType::JSONB | DataType::Array(_) => "take text with JSON",
        DataType::Time(..) | DataType::Interval { .. } => "take bigint or double precision",
        _ => {
            "the types are boolean, bigint, real, double precision, text, bytea, uuid, date, timestamp, timestamptz, \
             geometry and geography"
        }
    };
    SqlError::refused(format!("column {name:?} has the type {data_type}, which is not available; {advice}"))
}

/// A column of geometries: `geometry`, `geometry(Point)`, `geometry(Point, 4326)`.
fn geometry(name: &str, modifiers: &[String], srid: i64) -> Result<Declared, SqlError> {
    let srid = match modifiers {
        [_, number] => number.trim().parse::<i64>().map_err(|_| {
            SqlError::refused(format!("column {name:?}: {number:?} is not the number of a reference system"))
        })?,
        _ => srid,
    };
    let system = if srid == WGS84_SRID { CoordinateSystem::LonLat } else { CoordinateSystem::Planar };
    match u32::try_from(srid) {
        Ok(srid) => Ok(Declared::Geometry(system, srid)),
        Err(_) => Err(SqlError::refused(format!("column {name:?}: {srid} is not the number of a reference system"))),
    }
}
