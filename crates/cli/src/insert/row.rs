//! A JSON record as a row of a dataset.

use serde_json::Value as Json;
use terrane::record::{GeometryRef, RowGeometry};
use terrane::schema::{Column, ColumnType, GeometryColumn, Schema};
use terrane::{CoordinateSystem, Key, Value};
use terrane_formats::{
    ColumnType as FileColumnType, DemandedType, JsonRecord, RecordReader, detect_coordinates_by_name, unique_name,
};
use terrane_literal::{Time, TimePattern, parse_timestamp};
use terrane_space::Point;
use terrane_space::geometry::{as_flat_point, point_wkb};

/// Name of the column for the ids of features.
pub const FEATURE_ID_COLUMN: &str = "id";

/// A record that fits its dataset, once the dataset has the columns of `added` and those of
/// `widened` are float64.
#[derive(Debug, PartialEq)]
pub struct Row {
    /// Line of the input.
    pub line: u64,
    /// The position in the source behind it, if positions are kept.
    pub position: u64,
    /// The key, if the record brings one.
    pub key: Option<Key>,
    /// The geometry as WKB.
    pub geometry: Option<Vec<u8>>,
    /// The attributes that are not null, by name.
    pub values: Vec<(String, Value)>,
    /// Attributes that the dataset lacks.
    pub added: Vec<Column>,
    /// int64 attributes for which this record has a number that is no int64.
    pub widened: Vec<String>,
    /// Notices on how values were read, each with its attribute.
    pub notices: Vec<(String, &'static str)>,
}

/// How records are read.
#[derive(Debug)]
pub struct Reading {
    /// For the dataset's coordinates.
    pub records: RecordReader,
    /// Types that the user asks for, if values do not tell.
    pub demanded: Vec<(String, DemandedType)>,
}

impl Reading {
    fn demanded(&self, name: &str) -> Option<&DemandedType> {
        self.demanded.iter().find(|(column, _)| column == name).map(|(_, demanded)| demanded)
    }

    /// Whether a column shall hold UUIDs. In JSON those are ordinary texts.
    pub fn demands_uuid(&self, name: &str) -> bool {
        self.demanded(name) == Some(&DemandedType::Plain(FileColumnType::Uuid))
    }

    fn pattern(&self, name: &str) -> Option<&TimePattern> {
        self.demanded(name)?.pattern().map(AsRef::as_ref)
    }

    /// The type of a new column for a value; `None` for null, which has no type.
    pub fn column_type_of(&self, name: &str, value: &Json) -> Option<ColumnType> {
        match self.demanded(name) {
            Some(_) if value.is_null() => None,
            Some(demanded) => {
                let timestamp = value.as_str().and_then(|text| parse_timestamp(text).ok());
                Some(terrane_load::attribute_type(demanded, timestamp.is_some_and(|timestamp| timestamp.has_zone)))
            }
            None => column_type_of(value),
        }
    }

    /// A date or timestamp by its column's pattern.
    fn by_pattern(&self, name: &str, text: &str, column_type: ColumnType) -> Result<Value, String> {
        let Some(pattern) = self.pattern(name) else {
            return Err(format!("{text:?} has no pattern"));
        };
        let value = match column_type {
            ColumnType::Date => pattern.parse_date(text).map(Value::Date),
            _ => pattern.parse(text).map(|timestamp| Value::Timestamp(timestamp.microseconds)),
        };
        value.map_err(|reason| format!("{text:?} is not {}: {reason}", column_type.description()))
    }
}

/// The type of a new column for a value; `None` for null, which has no type.
fn column_type_of(value: &Json) -> Option<ColumnType> {
    match value {
        Json::Null => None,
        Json::Bool(_) => Some(ColumnType::Bool),
        // An integer that is too large is refused, not rounded.
        Json::Number(number) if number.is_u64() || Value::from_json(value, ColumnType::Int64).is_ok() => {
            Some(ColumnType::Int64)
        }
        Json::Number(_) => Some(ColumnType::Float64),
        Json::String(text) => Some(match Time::of(text) {
            Some(Time::Date) => ColumnType::Date,
            Some(Time::Timestamp(timestamp)) => ColumnType::Timestamp { utc: timestamp.has_zone },
            None => ColumnType::Utf8,
        }),
        // Nested values are kept as JSON text.
        Json::Array(_) | Json::Object(_) => Some(ColumnType::Utf8),
    }
}

/// Fits a record to a schema, or returns why it is refused.
pub fn convert(mut record: JsonRecord, schema: &Schema, reading: &Reading, line: u64) -> Result<Row, String> {
    take_id(&mut record, &schema.key.name)?;
    let key = key_of(&record, schema)?;
    let Geometry { wkb, members } = Geometry::of(&record, schema, &reading.records)?;
    let is_taken =
        |(name, json): &(String, Json)| *name == schema.key.name || members.contains(&name.as_str()) || json.is_null();
    let taken: Vec<bool> = record.fields.iter().map(is_taken).collect();
    let mut row = Row {
        line,
        position: 0,
        key,
        geometry: wkb,
        values: Vec::with_capacity(record.fields.len()),
        added: Vec::new(),
        widened: Vec::new(),
        notices: Vec::new(),
    };
    // Values are moved, as they may be long.
    for ((name, json), _) in record.fields.drain(..).zip(taken).filter(|(_, is_taken)| !is_taken) {
        row.add(&name, json, schema, reading).map_err(|reason| format!("column {name:?}: {reason}"))?;
    }
    Ok(row)
}

impl Row {
    /// Whether the row calls for a change of the dataset's schema.
    pub fn changes_schema(&self) -> bool {
        !self.added.is_empty() || !self.widened.is_empty()
    }

    /// The schema of the dataset after the changes that the row calls for.
    pub fn schema_after(&self, schema: &Schema) -> Schema {
        let mut after = schema.clone();
        for column in after.columns.iter_mut().filter(|column| self.widened.contains(&column.name)) {
            column.column_type = ColumnType::Float64;
        }
        after.columns.extend(self.added.iter().cloned());
        after
    }

    fn add(&mut self, name: &str, json: Json, schema: &Schema, reading: &Reading) -> Result<(), String> {
        let column_type = match schema.column(name) {
            Some(column) => column.column_type,
            None => {
                let Some(column_type) = reading.column_type_of(name, &json) else {
                    return Ok(());
                };
                self.added.push(Column::new(name, column_type));
                column_type
            }
        };
        let value = match (column_type, json) {
            (ColumnType::Utf8, Json::String(text)) => Value::Utf8(text),
            (ColumnType::Utf8, nested @ (Json::Array(_) | Json::Object(_))) => Value::Utf8(nested.to_string()),
            (ColumnType::Int64, json @ Json::Number(_)) if json.is_f64() || schema.column(name).is_some() => {
                // A fraction of zeros counts as none.
                let integer = Value::from_json(&json, ColumnType::Int64);
                match (integer, Value::from_json(&json, ColumnType::Float64)) {
                    (Ok(value), _) => value,
                    (Err(_), Ok(value)) => {
                        self.widened.push(name.to_owned());
                        value
                    }
                    (Err(error), Err(_)) => return Err(error.to_string()),
                }
            }
            (ColumnType::Utf8, json @ (Json::Number(_) | Json::Bool(_))) if reading.demanded(name).is_some() => {
                Value::Utf8(json.to_string())
            }
            (ColumnType::Date | ColumnType::Timestamp { .. }, Json::String(text))
                if reading.pattern(name).is_some() =>
            {
                reading.by_pattern(name, &text, column_type)?
            }
            (_, json) => {
                if let (ColumnType::Timestamp { .. }, Json::String(text)) = (column_type, &json)
                    && let Ok(timestamp) = parse_timestamp(text)
                {
                    let zone_notice =
                        timestamp.zone_notice().filter(|_| column_type == ColumnType::Timestamp { utc: true });
                    let notices = [timestamp.notice(), zone_notice].into_iter().flatten();
                    self.notices.extend(notices.map(|notice| (name.to_owned(), notice)));
                }
                Value::from_json(&json, column_type).map_err(|error| match column_type {
                    ColumnType::Date | ColumnType::Timestamp { .. } => format!(
                        "{error}; give its format with --type {name}=TYPE:FORMAT, or make the column text in a new \
                         dataset with --type {name}=utf8"
                    ),
                    _ => error.to_string(),
                })?
            }
        };
        self.values.push((name.to_owned(), value));
        Ok(())
    }
}

/// Makes the id of a feature a member, as an import makes it a column. It is the key of a dataset
/// only if the key column has that name.
pub fn take_id(record: &mut JsonRecord, key_name: &str) -> Result<(), String> {
    let Some(id) = record.id.take() else {
        return Ok(());
    };
    match member(record, FEATURE_ID_COLUMN) {
        Some(member) if *member == id => {}
        Some(member) if key_name == FEATURE_ID_COLUMN => {
            return Err(format!("the feature's id is {id}, but its property {key_name:?} is {member}"));
        }
        _ => {
            let name = unique_name(FEATURE_ID_COLUMN, |name| member(record, name).is_some());
            record.fields.push((name, id));
        }
    }
    Ok(())
}

pub fn member<'a>(record: &'a JsonRecord, name: &str) -> Option<&'a Json> {
    record.fields.iter().find(|(field, _)| field == name).map(|(_, json)| json)
}

/// The member of the key column's name.
fn key_of(record: &JsonRecord, schema: &Schema) -> Result<Option<Key>, String> {
    let name = &schema.key.name;
    match member(record, name) {
        Some(Json::Null) | None if schema.key.generated => Ok(None),
        Some(Json::Null) | None => {
            Err(format!("column {name:?}: the record has no key; every record of this dataset needs one"))
        }
        Some(json) => {
            let key = Key::from_json(schema.key.key_type, json);
            let key = key.map_err(|error| format!("column {name:?}: {error}"))?;
            Ok(Some(key))
        }
    }
}

/// The geometry of a record, and the members that it was taken from.
struct Geometry<'a> {
    wkb: Option<Vec<u8>>,
    members: Vec<&'a str>,
}

impl<'a> Geometry<'a> {
    fn of(record: &'a JsonRecord, schema: &'a Schema, reader: &RecordReader) -> Result<Self, String> {
        let geometry = match &schema.geometry {
            GeometryColumn::Point { x, y } => Self::of_point(record, schema, [x, y], reader)?,
            GeometryColumn::Geometry { name } => Self::of_any(record, schema, name, reader)?,
            GeometryColumn::None => match record.geometry {
                None => Self { wkb: None, members: Vec::new() },
                Some(_) => return Err("the dataset has no geometry, and the record has one".into()),
            },
        };
        check(geometry.wkb.as_deref(), schema.system)?;
        Ok(geometry)
    }

    /// For a dataset of points: two numbers, or a geometry that is a point.
    fn of_point(
        record: &'a JsonRecord,
        schema: &Schema,
        names: [&'a str; 2],
        reader: &RecordReader,
    ) -> Result<Self, String> {
        let members = names.to_vec();
        let [x, y] = names;
        let (x, y) = (number(record, x)?, number(record, y)?);
        let wkb = match (x, y, &record.geometry) {
            (None, None, None) => {
                refuse_other_names(record, schema, &members)?;
                None
            }
            (Some(x), Some(y), None) => {
                let (x, y) = reader.point(x, y)?;
                Some(point_wkb(Point::new(x, y)).to_vec())
            }
            (None, None, Some(wkb)) if as_flat_point(wkb).is_some() => Some(wkb.clone()),
            (None, None, Some(_)) => {
                return Err(
                    "the dataset holds two-dimensional points; other geometries need a dataset with a geometry column"
                        .into(),
                );
            }
            (_, _, Some(_)) => {
                return Err("the record has coordinates and a geometry; leave one of them out".into());
            }
            (missing_x, _, None) => {
                let missing = members[usize::from(missing_x.is_some())];
                return Err(format!("column {missing:?}: the coordinate is missing"));
            }
        };
        Ok(Self { wkb, members })
    }

    /// For a dataset of any geometries: a geometry, or two numbers that make a point.
    fn of_any(record: &'a JsonRecord, schema: &Schema, name: &'a str, reader: &RecordReader) -> Result<Self, String> {
        let from_member = member(record, name).map(|json| reader.geometry(json)).transpose();
        let from_member = from_member.map_err(|error| format!("column {name:?}: {error}"))?.flatten();
        if from_member.is_some() && record.geometry.is_some() {
            return Err(format!("the record has a geometry and a member {name:?}; leave one of them out"));
        }
        if let Some(wkb) = from_member.or_else(|| record.geometry.clone()) {
            return Ok(Self { wkb: Some(wkb), members: vec![name] });
        }
        let names = unknown_numbers(record, schema);
        match detect_coordinates_by_name(&names) {
            Some((x, y)) => {
                let geometry = Self::of_point(record, schema, [x, y], reader)?;
                Ok(Self { wkb: geometry.wkb, members: vec![name, x, y] })
            }
            None => Ok(Self { wkb: None, members: vec![name] }),
        }
    }
}

/// The members that are numbers but no columns of the dataset.
fn unknown_numbers<'a>(record: &'a JsonRecord, schema: &Schema) -> Vec<&'a str> {
    let unknown = record
        .fields
        .iter()
        .filter(|(field, json)| json.is_number() && *field != schema.key.name && schema.column(field).is_none());
    unknown.map(|(field, _)| field.as_str()).collect()
}

/// Refuses a record without a position whose coordinates have other names than the dataset's.
/// Longer names, such as `start_lon`, belong to other positions.
fn refuse_other_names(record: &JsonRecord, schema: &Schema, wanted: &[&str]) -> Result<(), String> {
    let mut names = unknown_numbers(record, schema);
    names.retain(|name| !wanted.contains(name) && name.chars().all(char::is_alphabetic));
    match detect_coordinates_by_name(&names) {
        Some((x, y)) => Err(format!(
            "the coordinates are in {x:?} and {y:?}, but the dataset takes them from {:?} and {:?}; rename the members",
            wanted[0], wanted[1]
        )),
        None => Ok(()),
    }
}

fn number(record: &JsonRecord, name: &str) -> Result<Option<f64>, String> {
    match record.fields.iter().find(|(field, _)| field == name).map(|(_, json)| json) {
        None | Some(Json::Null) => Ok(None),
        Some(json) => match json.as_f64() {
            Some(number) => Ok(Some(number)),
            None => Err(format!("column {name:?}: {json} is not a coordinate; write a number")),
        },
    }
}

/// Refuses a geometry outside of the coordinate system before a column is added for its record.
fn check(wkb: Option<&[u8]>, system: CoordinateSystem) -> Result<(), String> {
    RowGeometry::of(wkb.map(GeometryRef::Wkb), system).map(|_| ())
}

#[cfg(test)]
#[path = "row_tests.rs"]
mod tests;
