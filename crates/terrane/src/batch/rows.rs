//! Rows of an input batch as keys and stored records.

use arrow_array::{Array, ArrayRef, RecordBatch};
use terrane_literal::stores_uuids;
use terrane_space::Point;

use super::column::{ColumnValues, type_error};
use super::{BatchError, RowError, RowGeometry};
use crate::key::{self, Key, KeyError, KeyType};
use crate::record::{Encoder, GeometryRef, check_point, check_wkb, compact};
use crate::schema::{ColumnType, GeometryColumn, Layout, Schema};
use crate::value::{ValueRef, exact_float};

/// The rows of a record batch under a dataset's schema.
///
/// Attributes missing from the batch are null. A column unknown to the dataset is refused, so that
/// no data is dropped silently. Integers are accepted as floats.
pub struct BatchRecords<'a> {
    schema: &'a Schema,
    layout: Layout,
    rows: usize,
    key: Option<ColumnValues>,
    geometry: GeometryValues,
    columns: Vec<ColumnValues>,
    /// Normal form of the current row's geometry.
    normal: Vec<u8>,
}

enum GeometryValues {
    Missing,
    Point { x: ColumnValues, y: ColumnValues },
    Wkb(ColumnValues),
}

impl<'a> BatchRecords<'a> {
    /// Resolves the columns of a batch.
    ///
    /// # Errors
    /// A type that does not fit, with the column and both types; an unknown column; a missing key
    /// column, unless keys are generated; one coordinate column without the other.
    pub fn new(batch: &RecordBatch, schema: &'a Schema) -> Result<Self, BatchError> {
        check_names(batch, schema)?;
        let key = match batch.column_by_name(&schema.key.name) {
            Some(array) => Some(key_values(&schema.key.name, array, schema.key.key_type)?),
            None if schema.key.generated => None,
            None => return Err(missing(&schema.key.name, "key")),
        };
        let columns = schema
            .columns
            .iter()
            .map(|column| match batch.column_by_name(&column.name) {
                Some(array) => ColumnValues::new(&column.name, array, column.column_type),
                None => Ok(ColumnValues::Missing),
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            schema,
            layout: Layout::new(&schema.columns),
            rows: batch.num_rows(),
            key,
            geometry: geometry_values(batch, schema)?,
            columns,
            normal: Vec::new(),
        })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Whether the batch has keys. Without them, the caller numbers the records.
    pub fn has_keys(&self) -> bool {
        self.key.is_some()
    }

    /// Appends the encoded key of a row to `key_out`, if the batch has keys, and its stored record
    /// to `value_out`. After an error both are unchanged.
    pub fn encode_row(
        &mut self,
        row: usize,
        key_out: &mut Vec<u8>,
        value_out: &mut Vec<u8>,
    ) -> Result<RowGeometry, RowError> {
        if row >= self.rows {
            let reason = format!("there is no row {row} in a batch of {} rows", self.rows);
            return Err(RowError { column: None, reason });
        }
        let start = key_out.len();
        if let Some(key) = &self.key {
            encode_key(key, row, key_out).map_err(|reason| RowError::new(&self.schema.key.name, reason))?;
        }
        let result = self.encode_record(row, value_out);
        if result.is_err() {
            key_out.truncate(start);
        }
        result
    }

    /// The integers of a row that a float64 cannot hold exactly, each with its attribute's ordinal.
    pub(crate) fn inexact_integers(&self, row: usize) -> impl Iterator<Item = (usize, i64)> {
        let attributes = self.columns.iter().zip(&self.schema.columns).enumerate();
        let integers = attributes.filter(|(_, (_, column))| column.column_type == ColumnType::Int64);
        integers.filter_map(move |(place, (values, _))| match values.value(row, ColumnType::Int64) {
            Ok(ValueRef::Int(integer)) if exact_float(integer).is_none() => Some((place, integer)),
            _ => None,
        })
    }

    fn encode_record(&mut self, row: usize, out: &mut Vec<u8>) -> Result<RowGeometry, RowError> {
        self.normal.clear();
        let (indexed, geometry) = self.geometry.read(row, self.schema, &mut self.normal)?;
        let mut encoder = Encoder::begin(out, self.schema, &self.layout, geometry)?;
        for (values, column) in self.columns.iter().zip(&self.schema.columns) {
            let value = values.value(row, column.column_type).map_err(|reason| RowError::new(&column.name, reason))?;
            encoder.push(value)?;
        }
        encoder.finish()?;
        Ok(indexed)
    }
}

impl GeometryValues {
    /// The row's stored form, and the parts that indexes hold.
    fn read<'n>(
        &self,
        row: usize,
        schema: &Schema,
        normal: &'n mut Vec<u8>,
    ) -> Result<(RowGeometry, Option<GeometryRef<'n>>), RowError> {
        match (self, &schema.geometry) {
            (Self::Point { x, y }, GeometryColumn::Point { x: x_name, y: y_name }) => {
                let coordinate =
                    |values: &ColumnValues, name| values.coordinate(row).map_err(|reason| RowError::new(name, reason));
                match (coordinate(x, x_name)?, coordinate(y, y_name)?) {
                    (None, None) => Ok((RowGeometry::None, None)),
                    (Some(x), Some(y)) => {
                        let point = Point::new(x, y);
                        let indexed = check_point(point, schema)?;
                        Ok((indexed, Some(GeometryRef::Point(point))))
                    }
                    (None, Some(_)) => Err(RowError::new(x_name, format_args!("it is null, but {y_name:?} is not"))),
                    (Some(_), None) => Err(RowError::new(y_name, format_args!("it is null, but {x_name:?} is not"))),
                }
            }
            (Self::Wkb(values), GeometryColumn::Geometry { name }) => match values.value(row, ColumnType::Binary) {
                Ok(ValueRef::Binary(wkb)) => {
                    let indexed =
                        check_wkb(wkb, schema.system, normal).map_err(|reason| RowError::new(name, reason))?;
                    Ok((indexed, Some(compact(normal, indexed))))
                }
                Ok(_) => Ok((RowGeometry::None, None)),
                Err(reason) => Err(RowError::new(name, reason)),
            },
            _ => Ok((RowGeometry::None, None)),
        }
    }
}

fn encode_key(key: &ColumnValues, row: usize, out: &mut Vec<u8>) -> Result<(), String> {
    let too_long = |error: KeyError| error.to_string();
    match key {
        ColumnValues::UInt(array) if array.is_valid(row) => {
            out.extend_from_slice(&key::encode_uint(array.value(row)));
        }
        ColumnValues::Int(array) if array.is_valid(row) => {
            out.extend_from_slice(&key::encode_int(array.value(row)));
        }
        ColumnValues::Utf8(array) if array.is_valid(row) => {
            let bytes = array.value(row).as_bytes();
            key::check_length(bytes).map_err(too_long)?;
            out.extend_from_slice(bytes);
        }
        ColumnValues::Binary(array) if array.is_valid(row) => {
            key::check_length(array.value(row)).map_err(too_long)?;
            out.extend_from_slice(array.value(row));
        }
        ColumnValues::Uuid(array) if array.is_valid(row) => out.extend_from_slice(array.value(row)),
        _ => return Err("the key is null; every record needs a key".to_owned()),
    }
    Ok(())
}

/// The keys of a batch.
pub(crate) struct BatchKeys<'s> {
    name: &'s str,
    values: ColumnValues,
}

impl<'s> BatchKeys<'s> {
    /// Resolves the key column.
    ///
    /// # Errors
    /// The batch has no key column, or its type differs from the dataset's keys.
    pub fn new(batch: &RecordBatch, schema: &'s Schema) -> Result<Self, BatchError> {
        let name = schema.key.name.as_str();
        let array = batch.column_by_name(name).ok_or_else(|| missing(name, "key"))?;
        Ok(Self { name, values: key_values(name, array, schema.key.key_type)? })
    }

    /// Appends the encoded key of a row.
    pub fn encode_row(&self, row: usize, out: &mut Vec<u8>) -> Result<(), RowError> {
        encode_key(&self.values, row, out).map_err(|reason| RowError::new(self.name, reason))
    }
}

/// The keys of a batch, in the order of its rows.
///
/// # Errors
/// There is no key column, or one of another type; a key that is null or too long.
pub fn keys_of(batch: &RecordBatch, schema: &Schema) -> crate::Result<Vec<Key>> {
    let keys = BatchKeys::new(batch, schema)?;
    let mut encoded = Vec::new();
    let key = |row| -> crate::Result<Key> {
        encoded.clear();
        keys.encode_row(row, &mut encoded)?;
        Ok(Key::decode(schema.key.key_type, &encoded)?)
    };
    (0..batch.num_rows()).map(key).collect()
}

/// Resolves the key column to exactly the dataset's key type.
fn key_values(name: &str, array: &ArrayRef, wanted: KeyType) -> Result<ColumnValues, BatchError> {
    let found = array.data_type();
    let fits = match (wanted, KeyType::from_arrow(found)) {
        (KeyType::UInt64, Some(KeyType::UInt64)) => true,
        (KeyType::UInt64, Some(KeyType::Int64)) => false,
        (KeyType::Uuid, _) => stores_uuids(found),
        (wanted, found) => found == Some(wanted),
    };
    if !fits && !is_unsigned_narrow(found, wanted) {
        return Err(type_error(name, found, &wanted));
    }
    match wanted {
        KeyType::Int64 => ColumnValues::int(array),
        KeyType::UInt64 => ColumnValues::uint(array),
        KeyType::Utf8 => ColumnValues::utf8(array),
        KeyType::Binary => ColumnValues::binary(array),
        KeyType::Uuid => ColumnValues::uuid(array),
    }
}

/// Narrow unsigned integers fit an unsigned key.
fn is_unsigned_narrow(found: &arrow_schema::DataType, wanted: KeyType) -> bool {
    use arrow_schema::DataType as D;
    wanted == KeyType::UInt64 && matches!(found, D::UInt8 | D::UInt16 | D::UInt32)
}

fn geometry_values(batch: &RecordBatch, schema: &Schema) -> Result<GeometryValues, BatchError> {
    match &schema.geometry {
        GeometryColumn::Point { x, y } => match (batch.column_by_name(x), batch.column_by_name(y)) {
            (None, None) => Ok(GeometryValues::Missing),
            (Some(x_array), Some(y_array)) => Ok(GeometryValues::Point {
                x: ColumnValues::new(x, x_array, ColumnType::Float64)?,
                y: ColumnValues::new(y, y_array, ColumnType::Float64)?,
            }),
            (None, Some(_)) => Err(missing(x, "first coordinate")),
            (Some(_), None) => Err(missing(y, "second coordinate")),
        },
        GeometryColumn::Geometry { name } => match batch.column_by_name(name) {
            None => Ok(GeometryValues::Missing),
            Some(array) => Ok(GeometryValues::Wkb(ColumnValues::new(name, array, ColumnType::Binary)?)),
        },
        GeometryColumn::None => Ok(GeometryValues::Missing),
    }
}

fn check_names(batch: &RecordBatch, schema: &Schema) -> Result<(), BatchError> {
    let known: std::collections::HashSet<&str> = schema.column_names().collect();
    let mut seen = std::collections::HashSet::new();
    for field in batch.schema_ref().fields() {
        if !known.contains(field.name().as_str()) {
            let known = schema.column_names().map(str::to_owned).collect();
            return Err(BatchError::UnknownColumn { column: field.name().clone(), known });
        }
        if !seen.insert(field.name()) {
            return Err(BatchError::DuplicateColumn { column: field.name().clone() });
        }
    }
    Ok(())
}

fn missing(column: &str, role: &'static str) -> BatchError {
    BatchError::MissingColumn { column: column.to_owned(), role }
}
