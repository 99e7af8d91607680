//! Rows of a plan as rows of a dataset.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, Float64Builder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow_schema::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use terrane::Key;
use terrane::schema::{GeometryColumn, KeyType, Schema};
use terrane_literal::{append_uuid, is_uuid, parse_uuid, uuid_builder};
use terrane_space::geometry::{as_point, normalise};

use super::target::Target;
use crate::error::SqlError;
use crate::functions::parse_text;
use crate::geometry::{is_geometry, srid_of, srid_of_bytes, srid_of_text};
use crate::scan::points;

/// Turns batches of a plan into batches that a dataset takes: names, order and types.
#[derive(Debug)]
pub(super) struct RowShape {
    targets: Vec<Becomes>,
    schema: SchemaRef,
    /// The number of the reference system of geometries.
    srid: i64,
}

/// What a column of the plan becomes.
#[derive(Debug)]
enum Becomes {
    /// A column of the dataset.
    Column(Arc<Field>),
    /// Both coordinates of a dataset of points.
    Point,
}

impl RowShape {
    /// Shapes columns of a plan for the columns of a table with these names, in the same order.
    /// `point` is the name of the computed column of points, if the table has one.
    ///
    /// # Errors
    /// An unknown name, or one that stands twice.
    pub fn new(schema: &Schema, point: Option<&str>, names: &[String]) -> Result<Self, SqlError> {
        let arrow = schema.to_arrow();
        let mut fields: Vec<Arc<Field>> = Vec::new();
        let mut targets = Vec::new();
        for name in names {
            let target = match arrow.field_with_name(name) {
                Ok(field) => {
                    fields.push(Arc::new(field.clone()));
                    Becomes::Column(Arc::new(field.clone()))
                }
                Err(_) if Some(name.as_str()) == point => {
                    let coordinates = schema.geometry.names();
                    let found = coordinates.filter_map(|name| arrow.field_with_name(name).ok());
                    fields.extend(found.map(|field| Arc::new(field.clone())));
                    Becomes::Point
                }
                Err(_) => {
                    let known: Vec<&str> = schema.column_names().chain(point).collect();
                    return Err(SqlError::refused(format!(
                        "the table has no column {name:?}; its columns are {}",
                        known.join(", ")
                    )));
                }
            };
            targets.push(target);
        }
        for (place, field) in fields.iter().enumerate() {
            if fields[..place].iter().any(|before| before.name() == field.name()) {
                let both = match &schema.geometry {
                    GeometryColumn::Point { x, y } if [x, y].contains(&field.name()) => {
                        " (the geometry gives both coordinates)"
                    }
                    _ => "",
                };
                return Err(SqlError::refused(format!("column {:?} is given twice{both}", field.name())));
            }
        }
        // The engine tells which value must not be null.
        let fields = fields.iter().map(|field| Field::clone(field).with_nullable(true));
        let fields = Arc::new(ArrowSchema::new(fields.collect::<Vec<_>>()));
        Ok(Self { targets, schema: fields, srid: schema.srid().into() })
    }

    /// Refuses geometries of a query that are in another reference system than the column.
    ///
    /// # Errors
    /// There are some.
    pub fn check_systems(&self, schema: &Schema, source: &[Arc<Field>]) -> Result<(), SqlError> {
        for (target, field) in self.targets.iter().zip(source) {
            let is_place = match target {
                Becomes::Column(field) => is_geometry(field),
                Becomes::Point => true,
            };
            let (wanted, found) = (i64::from(schema.srid()), srid_of(field).unwrap_or(0));
            if is_place && found != 0 && found != wanted {
                return Err(SqlError::refused(format!(
                    "the geometries are in the reference system {found}, and those of the table in {wanted}; convert \
                     them with ST_Transform, or say what they are with ST_SetSRID"
                )));
            }
        }
        Ok(())
    }

    /// Number of columns of the plan.
    pub fn columns(&self) -> usize {
        self.targets.len()
    }

    /// A batch for the dataset. `first` is the number of its first row, for messages.
    ///
    /// # Errors
    /// A value that the column's type does not hold.
    pub fn shape(&self, columns: &[ArrayRef], rows: usize, first: u64) -> Result<RecordBatch, SqlError> {
        let mut shaped = Vec::with_capacity(self.schema.fields().len());
        for (target, column) in self.targets.iter().zip(columns) {
            let named = |(row, reason): (usize, String), name: &str| {
                SqlError::Refused(format!("row {}, column {name:?}: {reason}", first + row as u64 + 1))
            };
            match target {
                Becomes::Column(field) => {
                    shaped.push(converted(column, field, self.srid).map_err(|error| named(error, field.name()))?);
                }
                Becomes::Point => {
                    let (x, y) = coordinates(column, self.srid).map_err(|error| named(error, "geometry"))?;
                    shaped.extend([x, y]);
                }
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), shaped, &options)
            .map_err(|error| SqlError::Execution(error.to_string()))
    }
}

/// The values as the type of a field. The error has the row.
fn converted(column: &ArrayRef, field: &Field, srid: i64) -> Result<ArrayRef, (usize, String)> {
    if column.data_type().is_null() {
        return Ok(arrow_array::new_null_array(field.data_type(), column.len()));
    }
    if is_geometry(field) {
        return geometries(column, srid);
    }
    if is_uuid(field) && is_text(column.data_type()) {
        return uuids(column);
    }
    let wanted = field.data_type();
    if *wanted == DataType::Binary && is_text(column.data_type()) {
        return bytes_of_texts(column);
    }
    if column.data_type() == wanted {
        return Ok(column.clone());
    }
    let refused = |row: usize| {
        let value = shown(column, row);
        let advice = if wanted.is_integer() && column.data_type().is_floating() { "; use round(…)" } else { "" };
        (row, format!("{value} is not {}{advice}", described(wanted)))
    };
    // A value that does not fit becomes null.
    let options = CastOptions { safe: true, ..CastOptions::default() };
    let cast = cast_with_options(column, wanted, &options).map_err(|_| refused(0))?;
    let lost = (0..column.len()).find(|row| cast.is_null(*row) && column.is_valid(*row));
    if let Some(row) = lost {
        return Err(refused(row));
    }
    if let (Some(before), Some(after)) =
        (column.as_primitive_opt::<Float64Type>(), cast.as_primitive_opt::<Float32Type>())
        && let Some(row) =
            (0..column.len()).find(|row| before.value(*row).is_finite() && !after.value(*row).is_finite())
    {
        return Err((row, format!("{} is out of the range of real", shown(column, row))));
    }
    // Integers do not lose fractions silently.
    if wanted.is_integer()
        && (column.data_type().is_floating() || terrane_literal::decimal::is_decimal(column.data_type()))
    {
        let exact = |array: &ArrayRef| cast_with_options(array, &DataType::Float64, &options);
        if let (Ok(before), Ok(after)) = (exact(column), exact(&cast)) {
            let (before, after) = (before.as_primitive::<Float64Type>(), after.as_primitive::<Float64Type>());
            if let Some(row) =
                (0..column.len()).find(|row| column.is_valid(*row) && before.value(*row) != after.value(*row))
            {
                return Err(refused(row));
            }
        }
    }
    Ok(cast)
}

fn described(wanted: &DataType) -> String {
    match wanted {
        DataType::Int64 => "an integer of 64 bits".to_owned(),
        DataType::UInt64 => "an unsigned integer of 64 bits".to_owned(),
        DataType::Float32 | DataType::Float64 => "a number".to_owned(),
        DataType::Boolean => "true or false".to_owned(),
        DataType::Date32 => "a date".to_owned(),
        DataType::Timestamp(..) => "a timestamp".to_owned(),
        DataType::Utf8 => "a text".to_owned(),
        DataType::Binary => "binary".to_owned(),
        other => format!("of type {other}"),
    }
}

/// A value for messages.
fn shown(column: &ArrayRef, row: usize) -> String {
    const SHOWN_MAX: usize = 60;
    let options = datafusion::arrow::util::display::FormatOptions::default();
    let formatter = datafusion::arrow::util::display::ArrayFormatter::try_new(column, &options);
    let text = formatter.map_or_else(|_| "the value".to_owned(), |formatter| formatter.value(row).to_string());
    let shown: String = text.chars().take(SHOWN_MAX).collect();
    if is_text(column.data_type()) { format!("{shown:?}") } else { shown }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// The values as text.
fn texts(column: &ArrayRef) -> Result<ArrayRef, (usize, String)> {
    datafusion::arrow::compute::cast(column, &DataType::Utf8).map_err(|error| (0, error.to_string()))
}

/// The bytes of texts: those of `\x` and digits, or those of the text.
fn bytes_of_texts(column: &ArrayRef) -> Result<ArrayRef, (usize, String)> {
    let texts = texts(column)?;
    let texts = texts.as_string::<i32>();
    let mut builder = BinaryBuilder::new();
    for row in 0..texts.len() {
        match (texts.is_valid(row), texts.value(row)) {
            (false, _) => builder.append_null(),
            (true, text) => match text.strip_prefix("\\x") {
                Some(digits) => builder.append_value(bytes_of_digits(digits).ok_or_else(|| {
                    (row, format!("{} is not \\x and pairs of hexadecimal digits", shown(column, row)))
                })?),
                None => builder.append_value(text),
            },
        }
    }
    Ok(Arc::new(builder.finish()))
}

fn bytes_of_digits(digits: &str) -> Option<Vec<u8>> {
    let byte = |pair: &[u8]| Some((char::from(pair[0]).to_digit(16)? << 4 | char::from(pair[1]).to_digit(16)?) as u8);
    digits.len().is_multiple_of(2).then(|| digits.as_bytes().chunks(2).map(byte).collect())?
}

fn uuids(column: &ArrayRef) -> Result<ArrayRef, (usize, String)> {
    let texts = texts(column)?;
    let texts = texts.as_string::<i32>();
    let mut builder = uuid_builder();
    for row in 0..texts.len() {
        match texts.is_valid(row) {
            true => {
                let uuid = parse_uuid(texts.value(row));
                append_uuid(&mut builder, uuid.map_err(|reason| (row, format!("{:?}: {reason}", texts.value(row))))?);
            }
            false => builder.append_null(),
        }
    }
    Ok(Arc::new(builder.finish()))
}

/// Geometries as WKB in the stored form: of WKB, or of WKT. One that says that it is in another
/// reference system is refused.
fn geometries(column: &ArrayRef, srid: i64) -> Result<ArrayRef, (usize, String)> {
    let mut builder = BinaryBuilder::new();
    let wkb = match column.data_type() {
        DataType::Null => return Ok(arrow_array::new_null_array(&DataType::Binary, column.len())),
        data_type if is_text(data_type) => None,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            Some(datafusion::arrow::compute::cast(column, &DataType::Binary).map_err(|error| (0, error.to_string()))?)
        }
        other => return Err((0, format!("a value of type {other} is not a geometry"))),
    };
    match wkb {
        Some(wkb) => {
            let wkb = wkb.as_binary::<i32>();
            for row in 0..wkb.len() {
                match wkb.is_valid(row) {
                    true => {
                        check_system(srid_of_bytes(wkb.value(row)), srid).map_err(|reason| (row, reason))?;
                        builder.append_value(normalise(wkb.value(row)).map_err(|error| (row, error.to_string()))?);
                    }
                    false => builder.append_null(),
                }
            }
        }
        None => {
            let texts = texts(column)?;
            let texts = texts.as_string::<i32>();
            for row in 0..texts.len() {
                match texts.is_valid(row) {
                    true => {
                        let text = texts.value(row);
                        check_system(srid_of_text(text), srid).map_err(|reason| (row, reason))?;
                        builder.append_value(parse_text(text).map_err(|error| (row, error.message().into_owned()))?);
                    }
                    false => builder.append_null(),
                }
            }
        }
    }
    Ok(Arc::new(builder.finish()))
}

fn check_system(found: Option<i64>, wanted: i64) -> Result<(), String> {
    match found {
        Some(found) if found != 0 && found != wanted => Err(format!(
            "the geometry is in the reference system {found}, and the column in {wanted}; convert it with ST_Transform"
        )),
        _ => Ok(()),
    }
}

/// The coordinates of points.
fn coordinates(column: &ArrayRef, srid: i64) -> Result<(ArrayRef, ArrayRef), (usize, String)> {
    let wkb = geometries(column, srid)?;
    let wkb = wkb.as_binary::<i32>();
    let (mut xs, mut ys) = (Float64Builder::with_capacity(wkb.len()), Float64Builder::with_capacity(wkb.len()));
    for row in 0..wkb.len() {
        let point = match wkb.is_valid(row) {
            true => Some(as_point(wkb.value(row)).ok_or_else(|| (row, "it is not a point".to_owned()))?),
            false => None,
        };
        xs.append_option(point.map(|point| point.x));
        ys.append_option(point.map(|point| point.y));
    }
    Ok((Arc::new(xs.finish()), Arc::new(ys.finish())))
}

/// The truth of each row. Null is not true.
pub(super) fn truths(column: &ArrayRef) -> Result<Vec<bool>, SqlError> {
    let Some(values) = column.as_boolean_opt() else {
        return match column.data_type() {
            DataType::Null => Ok(vec![false; column.len()]),
            other => Err(SqlError::refused(format!("WHERE has a value of type {other}; it must be true or false"))),
        };
    };
    Ok((0..values.len()).map(|row| values.is_valid(row) && values.value(row)).collect())
}

/// The keys of rows.
pub(super) fn keys_of(rows: &RecordBatch, target: &Target) -> Result<Vec<Key>, SqlError> {
    Ok(terrane::batch::keys_of(rows, &target.schema)?)
}

/// Rows with the keys under which they are stored.
pub(super) fn with_keys(rows: &RecordBatch, keys: &[Key], target: &Target) -> Result<RecordBatch, SqlError> {
    let name = &target.schema.key.name;
    if rows.column_by_name(name).is_some() {
        return Ok(rows.clone());
    }
    // Only integers are numbered.
    let numbers: ArrayRef = match target.schema.key.key_type {
        KeyType::UInt64 => Arc::new(UInt64Array::from_iter(keys.iter().map(|key| match key {
            Key::UInt(key) => Some(*key),
            _ => None,
        }))),
        _ => Arc::new(Int64Array::from_iter(keys.iter().map(|key| match key {
            Key::Int(key) => Some(*key),
            _ => None,
        }))),
    };
    let fields = rows.schema_ref().fields().iter().cloned();
    let fields: Vec<Arc<Field>> =
        std::iter::once(Arc::new(Field::new(name, numbers.data_type().clone(), true))).chain(fields).collect();
    let columns = std::iter::once(numbers).chain(rows.columns().iter().cloned()).collect();
    RecordBatch::try_new(Arc::new(ArrowSchema::new(fields)), columns)
        .map_err(|error| SqlError::Execution(error.to_string()))
}

/// The rows with all columns of a table: null where one is missing, points of their coordinates.
pub(super) fn completed(rows: &RecordBatch, target: &Target) -> Result<RecordBatch, SqlError> {
    let failed = |reason: String| SqlError::Execution(reason);
    let column = |field: &Arc<Field>| {
        if let Some(column) = rows.column_by_name(field.name()) {
            return Ok(column.clone());
        }
        let coordinates: Vec<Option<&ArrayRef>> =
            target.schema.geometry.names().map(|name| rows.column_by_name(name)).collect();
        match coordinates.as_slice() {
            [Some(x), Some(y)] if Some(field.name()) == target.point.as_ref() => {
                points(x, y).map_err(|error| failed(error.to_string()))
            }
            _ => Ok(arrow_array::new_null_array(field.data_type(), rows.num_rows())),
        }
    };
    let columns = target.columns.fields().iter().map(column).collect::<Result<Vec<_>, SqlError>>()?;
    let fields = target.columns.fields().iter().map(|field| Field::clone(field).with_nullable(true));
    let schema = Arc::new(ArrowSchema::new(fields.collect::<Vec<_>>()));
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    RecordBatch::try_new_with_options(schema, columns, &options).map_err(|error| failed(error.to_string()))
}
