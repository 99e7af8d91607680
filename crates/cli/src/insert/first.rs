//! The schema of a new dataset, from its first record.

use serde_json::Value;
use terrane::schema::{Column, GENERATED_KEY_COLUMN, GeometryColumn, KeyColumn, KeyType, Schema};
use terrane::{CoordinateSystem, Key};
use terrane_formats::{JsonRecord, detect_coordinates_by_name};

use super::row::{FEATURE_ID_COLUMN, Reading, member, take_id};

/// Names of members that become the key.
const KEY_NAMES: [&str; 2] = ["key", FEATURE_ID_COLUMN];
/// Name of the column for geometries.
const GEOMETRY_COLUMN: &str = "geometry";

/// The schema that a record calls for. The id of a feature becomes a member of the record.
pub fn schema_of(record: &mut JsonRecord, planar: bool, reading: &Reading) -> Result<Schema, String> {
    let key_name = KEY_NAMES.into_iter().find(|name| member(record, name).is_some()).unwrap_or(FEATURE_ID_COLUMN);
    take_id(record, key_name)?;
    let key = key_column(record, reading)?;
    let geometry = geometry_column(record)?;
    let system = match planar {
        true => CoordinateSystem::Planar,
        false => CoordinateSystem::LonLat,
    };
    let mut columns = Vec::new();
    for (name, value) in &record.fields {
        let is_taken = *name == key.name || geometry.names().any(|taken| taken == name);
        if let Some(column_type) = reading.column_type_of(name, value).filter(|_| !is_taken) {
            columns.push(Column::new(name, column_type));
        }
    }
    Schema::new(key, geometry, system, columns).map_err(|error| error.to_string())
}

fn key_column(record: &JsonRecord, reading: &Reading) -> Result<KeyColumn, String> {
    let Some((name, value)) = KEY_NAMES.into_iter().find_map(|name| Some((name, member(record, name)?))) else {
        return Ok(KeyColumn { name: GENERATED_KEY_COLUMN.into(), key_type: KeyType::Int64, generated: true });
    };
    let key_type = match value {
        Value::Number(_) if Key::from_json(KeyType::Int64, value).is_ok() => KeyType::Int64,
        Value::Number(number) if number.is_u64() => KeyType::UInt64,
        Value::String(_) if reading.demands_uuid(name) => KeyType::Uuid,
        Value::String(_) => KeyType::Utf8,
        other => {
            return Err(format!("column {name:?}: {other} cannot be a key; a key is a whole number or a text"));
        }
    };
    Ok(KeyColumn { name: name.into(), key_type, generated: false })
}

fn geometry_column(record: &JsonRecord) -> Result<GeometryColumn, String> {
    let geometry = || GeometryColumn::Geometry { name: GEOMETRY_COLUMN.into() };
    if record.geometry.is_some() {
        return Ok(geometry());
    }
    let numbers = record.fields.iter().filter(|(_, value)| value.is_number());
    let names: Vec<&str> = numbers.map(|(name, _)| name.as_str()).collect();
    if let Some((x, y)) = detect_coordinates_by_name(&names) {
        return Ok(GeometryColumn::Point { x: x.into(), y: y.into() });
    }
    // A null geometry tells where geometries will be.
    match record.has_null_geometry {
        true => Ok(geometry()),
        false => Err(
            "the first record of a dataset needs a position: numbers lon and lat, longitude and latitude or x and y, \
             or a member geometry"
                .into(),
        ),
    }
}

/// The description of a new dataset, as a message.
pub fn description(name: &str, schema: &Schema) -> String {
    let key = match schema.key.generated {
        true => "row numbers".to_string(),
        false => format!("{} ({})", schema.key.name, schema.key.key_type),
    };
    let geometry: Vec<&str> = schema.geometry.names().collect();
    let system = match schema.system {
        CoordinateSystem::LonLat => "longitude and latitude (WGS 84)",
        CoordinateSystem::Planar => "planar coordinates",
    };
    format!("new dataset {name}; key: {key}, geometry: {}, {system}", geometry.join(", "))
}
