//! Converts the batches of a columnar file to the batches that this crate hands out.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{Decimal128Type, Float64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, Float64Array, RecordBatch, RecordBatchOptions};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use arrow_select::filter::filter_record_batch;
use terrane_literal::decimal::is_decimal;
use terrane_space::Point;

use super::demanded;
use super::gathered::{is_shared, shared_bytes};
use super::geo_metadata::{Declared, DeclaredGeometry, Encoding};
use super::guard::guarded;
use super::int96::UnfitRows;
use super::native::NativeColumn;
use super::normalise::{self, Conversion};
use crate::crs::DeclaredCrs;
use crate::error::{FormatError, Location};
use crate::geometry::GeometryReader;
use crate::guess::GeometryColumns;
use crate::guess::detect_coordinates;
use crate::layout::named_geometry;
use crate::rows::ColumnPlan;
use crate::source::{BATCH_BYTES_SOFT, BATCH_ROWS_MAX, Batch, BatchReader, Opened, ReadOptions, RejectedRow};
use crate::types::ColumnType;

/// The batches of a file, as its decoder gives them.
pub(crate) type RawBatches = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send>;

#[derive(Debug, Clone)]
enum Plan {
    Value(Conversion),
    /// Converted so, and then to the type that the user asks for.
    Demanded(Conversion, ColumnPlan),
    Geometry(Encoding),
}

/// How a file's columns become those of the result.
pub(crate) struct ColumnarPlan {
    schema: SchemaRef,
    /// For each column of the result: its ordinal in the file and its conversion.
    columns: Vec<(usize, Plan)>,
    geometry: GeometryColumns,
    /// Names and types of the columns as the file has them.
    stored_types: Vec<(String, DataType)>,
    warnings: Vec<String>,
    geometry_reader: GeometryReader,
    /// Most bytes that a row may take.
    bytes_max: u64,
    /// Rows that the decoder would return with wrong values.
    pub(crate) unfit_rows: UnfitRows,
}

impl ColumnarPlan {
    /// Plans the columns of a file with this schema. `declared` returns the file's declaration of
    /// the named geometry column, or of its own choice for `None`. `fits_int64` tells for the
    /// column of decimal numbers at an ordinal whether all are known to be 64-bit integers.
    ///
    /// # Errors
    /// When columns repeat, the options do not fit, or the reference system cannot be converted.
    pub(crate) fn new(
        path: &Path,
        schema: &Schema,
        declared: impl FnOnce(Option<&GeometryColumns>, &mut Vec<String>) -> Result<Declared, FormatError>,
        options: &ReadOptions,
        fits_int64: impl Fn(usize) -> bool,
        mut warnings: Vec<String>,
    ) -> Result<ColumnarPlan, FormatError> {
        let mut names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        check_unique(path, &names)?;
        if let Some(pair) = &options.pair {
            let what = format!("column {:?} cannot be read as two coordinates from this format", pair.column);
            return Err(FormatError::usage(path, what));
        }
        let named = named_geometry(path, &names, options, false)?;
        let Declared { geometry: declared, coverings } = declared(named.as_ref(), &mut warnings)?;
        let declared = match (&named, declared) {
            (Some(GeometryColumns::Column { name }), None) => Some(undeclared(path, schema, name)?),
            (_, declared) => declared,
        };
        names.retain(|&name| !coverings.iter().any(|covering| covering == name));
        let mut columns = Vec::new();
        let mut fields = Vec::new();
        for (index, field) in schema.fields().iter().enumerate() {
            if !names.contains(&field.name().as_str()) {
                continue;
            }
            let (plan, column_type) = match &declared {
                Some(declared) if declared.column == *field.name() => {
                    (Plan::Geometry(declared.encoding), ColumnType::Binary)
                }
                _ => {
                    let demanded = options.demanded_type(field.name());
                    let conversion = match coordinate_conversion(field, named.as_ref()) {
                        Some(conversion) => conversion,
                        // A float would have lost digits of its text.
                        None if demanded.is_some() && is_decimal(field.data_type()) => {
                            Conversion::Cast(ColumnType::Utf8)
                        }
                        None => Conversion::of_column(field, fits_int64(index), demanded),
                    };
                    warnings.extend(normalise::warning(field.name(), field.data_type(), &conversion));
                    let column_type = conversion.column_type();
                    check_uuids(path, field.name(), column_type, options)?;
                    match demanded.and_then(|demanded| demanded::plan(field.name(), column_type, demanded)) {
                        Some(plan) => {
                            let column_type = plan.role.column_type();
                            (Plan::Demanded(conversion, plan), column_type)
                        }
                        None => (Plan::Value(conversion), column_type),
                    }
                }
            };
            fields.push(column_type.field(field.name()));
            columns.push((index, plan));
        }
        let crs = declared.as_ref().map_or(DeclaredCrs::Undeclared, |declared| declared.crs.clone());
        let geometry_reader = GeometryReader::new(path, &crs, &options.coordinates, &mut warnings)?;
        let mut result = Schema::new(fields);
        let geometry = match (named, declared) {
            (Some(named), _) => named,
            (None, Some(declared)) => GeometryColumns::Column { name: declared.column },
            (None, None) if options.no_guessed_coordinates => GeometryColumns::None,
            (None, None) => guess_geometry(&result, &mut warnings),
        };
        if let GeometryColumns::Coordinates { x, y } = &geometry {
            result = with_float_coordinates(&result, &mut columns, [x, y]);
        }
        let stored_types =
            schema.fields().iter().map(|field| (field.name().clone(), field.data_type().clone())).collect();
        let schema = Arc::new(result);
        let bytes_max = options.decoded_bytes_max();
        let unfit_rows = UnfitRows::new();
        Ok(ColumnarPlan { schema, columns, geometry, stored_types, warnings, geometry_reader, bytes_max, unfit_rows })
    }

    /// The open file.
    pub(crate) fn open(self, path: &Path, row_count: Option<u64>, batches: RawBatches) -> Opened {
        let coordinates = match &self.geometry {
            GeometryColumns::Coordinates { x, y } => {
                let index = |name: &str| self.schema.index_of(name).ok();
                index(x).zip(index(y)).map(|(x, y)| [x, y])
            }
            _ => None,
        };
        Opened {
            schema: Arc::clone(&self.schema),
            geometry: self.geometry,
            warnings: self.warnings,
            row_count_hint: row_count,
            stored_types: self.stored_types,
            empty_columns: Vec::new(),
            reader: Box::new(ColumnarReader {
                path: path.to_path_buf(),
                batches: Some(batches),
                current: None,
                schema: self.schema,
                columns: self.columns,
                coordinates,
                geometry_reader: self.geometry_reader,
                bytes_max: self.bytes_max,
                unfit_rows: self.unfit_rows,
                row: 0,
            }),
        }
    }
}

fn check_unique(path: &Path, names: &[&str]) -> Result<(), FormatError> {
    let mut sorted = names.to_vec();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(FormatError::refused(
            path,
            Location::File,
            format!("two columns are called {:?}", pair[0]),
            "give every column a name of its own",
        )),
        None => Ok(()),
    }
}

/// A geometry column that the user names and the file does not describe.
fn undeclared(path: &Path, schema: &Schema, name: &str) -> Result<DeclaredGeometry, FormatError> {
    let data_type = schema.field_with_name(name).map(Field::data_type);
    let encoding = match data_type {
        Ok(DataType::Binary | DataType::LargeBinary | DataType::BinaryView) => Encoding::Wkb,
        Ok(DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) => Encoding::Wkt,
        _ => {
            return Err(FormatError::usage(
                path,
                format!("column {name:?} is neither binary (WKB) nor text (WKT, GeoJSON)"),
            ));
        }
    };
    Ok(DeclaredGeometry { column: name.to_string(), encoding, crs: DeclaredCrs::Undeclared })
}

/// Coordinate columns that the user names become float64, whatever their number type.
fn coordinate_conversion(field: &Field, named: Option<&GeometryColumns>) -> Option<Conversion> {
    match named {
        Some(GeometryColumns::Coordinates { x, y })
            if (field.name() == x || field.name() == y) && *field.data_type() != DataType::Float64 =>
        {
            Some(Conversion::Cast(ColumnType::Float64))
        }
        _ => None,
    }
}

/// Refuses text where the dataset has UUIDs, and UUIDs where it has text, unless the user asks for
/// a type.
fn check_uuids(path: &Path, name: &str, found: ColumnType, options: &ReadOptions) -> Result<(), FormatError> {
    let wanted = options.column_type(name).filter(|_| options.demanded_type(name).is_none());
    let (reason, type_name) = match (found, wanted) {
        (ColumnType::Utf8, Some(ColumnType::Uuid)) => ("it is text, but the dataset has UUIDs", "uuid"),
        (ColumnType::Uuid, Some(ColumnType::Utf8)) => ("it has UUIDs, but the dataset has text", "utf8"),
        _ => return Ok(()),
    };
    let advice = format!("convert it with --type {name}={type_name}");
    Err(FormatError::refused(path, Location::Column(name.to_owned()), reason, advice))
}

fn guess_geometry(schema: &Schema, warnings: &mut Vec<String>) -> GeometryColumns {
    if let Some((x, y)) = detect_coordinates(schema) {
        return GeometryColumns::Coordinates { x, y };
    }
    let binary = schema
        .fields()
        .iter()
        .find(|field| *field.data_type() == DataType::Binary && crate::guess::is_geometry_name(field.name()));
    if let Some(field) = binary {
        warnings.push(format!(
            "column {:?} is plain binary: the file does not declare it as geometry; name it as \
             the geometry column if it holds WKB",
            field.name()
        ));
    }
    GeometryColumns::None
}

/// Detected coordinates may be stored as integers; they become float64 too.
fn with_float_coordinates(schema: &Schema, columns: &mut [(usize, Plan)], coordinates: [&String; 2]) -> Schema {
    let fields: Vec<Field> = schema
        .fields()
        .iter()
        .zip(columns)
        .map(|(field, (_, plan))| {
            if coordinates.contains(&field.name()) && *field.data_type() != DataType::Float64 {
                *plan = Plan::Value(Conversion::Cast(ColumnType::Float64));
                Field::new(field.name(), DataType::Float64, true)
            } else {
                field.as_ref().clone()
            }
        })
        .collect();
    Schema::new(fields)
}

struct ColumnarReader {
    path: PathBuf,
    /// `None` after the end of the file or an error.
    batches: Option<RawBatches>,
    /// The current batch, and the row up to which it has been handed out.
    current: Option<(RecordBatch, usize)>,
    schema: SchemaRef,
    columns: Vec<(usize, Plan)>,
    coordinates: Option<[usize; 2]>,
    geometry_reader: GeometryReader,
    bytes_max: u64,
    unfit_rows: UnfitRows,
    /// The last data row handed out.
    row: u64,
}

impl BatchReader for ColumnarReader {
    fn next_batch(&mut self) -> Result<Option<Batch>, FormatError> {
        loop {
            if let Some((batch, start)) = self.current.take() {
                let count = rows_that_fit(&batch, start, self.bytes_max).map_err(|bytes| {
                    FormatError::refused(
                        &self.path,
                        Location::Row(self.row + 1),
                        format!("the row takes {bytes} bytes when decoded, but only {} are available", self.bytes_max),
                        "write its values in several rows, or allow more memory",
                    )
                })?;
                if count > 0 {
                    let piece = batch.slice(start, count);
                    if start + count < batch.num_rows() {
                        self.current = Some((batch, start + count));
                    }
                    return self.convert(&piece).map(Some);
                }
            }
            let Some(mut batches) = self.batches.take() else {
                return Ok(None);
            };
            let path = self.path.clone();
            let row = self.row;
            let next = guarded(&path, || {
                batches.next().transpose().map_err(|error| {
                    FormatError::decoding(error, |error| {
                        let reason = format!("the data cannot be decoded: {error}");
                        FormatError::damaged(&path, Location::Row(row + 1), reason)
                    })
                })
            })?;
            if let Some(batch) = next {
                self.batches = Some(batches);
                self.current = Some((batch, 0));
            }
        }
    }

    fn notices(&self) -> Vec<String> {
        self.geometry_reader.notices()
    }
}

/// How many rows of a batch are handed out at once, at least one. An error with the bytes of the
/// first row if that row alone is too large.
fn rows_that_fit(batch: &RecordBatch, start: usize, bytes_max: u64) -> Result<usize, u64> {
    let columns = batch.columns().iter();
    let own_bytes: usize =
        columns.filter(|column| !is_shared(column.data_type())).map(Array::get_array_memory_size).sum();
    let own_bytes = (own_bytes / batch.num_rows().max(1)) as u64;
    let piece = batch.slice(start, BATCH_ROWS_MAX.min(batch.num_rows() - start));
    let budget = (BATCH_BYTES_SOFT as u64).min(bytes_max);
    let (mut bytes, mut count) = (0u64, 0);
    for shared in shared_bytes(&piece) {
        if count == 0 && shared > bytes_max {
            return Err(shared);
        }
        bytes = bytes.saturating_add(shared).saturating_add(own_bytes);
        if count > 0 && bytes > budget {
            break;
        }
        count += 1;
    }
    Ok(count)
}

impl ColumnarReader {
    fn convert(&mut self, piece: &RecordBatch) -> Result<Batch, FormatError> {
        let first_row = self.row + 1;
        self.row += piece.num_rows() as u64;
        let unfit = |row| self.unfit_rows.get(&row).cloned();
        let mut faults: Vec<Option<String>> = (first_row..).map(unfit).take(piece.num_rows()).collect();
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.columns.len());
        for ((index, plan), field) in self.columns.iter().zip(self.schema.fields()) {
            let in_column = |reason: String| format!("column {:?}: {reason}", field.name());
            let array = piece
                .columns()
                .get(*index)
                .ok_or_else(|| self.bad_column(field, first_row, "the column is missing".to_string()))?;
            let mut refuse = |row: usize, reason: String| {
                if let Some(fault) = faults.get_mut(row) {
                    fault.get_or_insert_with(|| in_column(reason));
                }
            };
            arrays.push(match plan {
                Plan::Value(conversion) | Plan::Demanded(conversion, _) => guarded(&self.path, || {
                    let mut unfit = |row, error| refuse(row, format!("the value cannot be converted: {error}"));
                    let mut converted = conversion.apply_to_each(array, &mut unfit);
                    if let (Ok(values), Plan::Demanded(_, column)) = (&converted, plan) {
                        converted = demanded::convert(values, column, &mut refuse);
                    }
                    converted.map_err(|error| self.bad_column(field, first_row, error.to_string()))
                })?,
                Plan::Geometry(encoding) => self.geometries(array, *encoding, field, &mut faults)?,
            });
        }
        if let Some(columns) = self.coordinates {
            for column in columns {
                let name = self.schema.field(column).name();
                inexact_coordinates(name, &piece.columns()[self.columns[column].0], &arrays[column], &mut faults);
            }
            self.check_coordinates(columns, &arrays, &mut faults);
            self.place_coordinates(columns, &mut arrays, &mut faults);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(piece.num_rows()));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)
            .and_then(|batch| without_faults(batch, &faults))
            .map_err(|error| FormatError::damaged(&self.path, Location::Row(first_row), error.to_string()))?;
        let mut rows = Vec::with_capacity(batch.num_rows());
        let mut rejected = Vec::new();
        for (row, fault) in (first_row..).zip(faults) {
            match fault {
                None => rows.push(row),
                Some(reason) => rejected.push(RejectedRow { row, line: None, reason, raw: None }),
            }
        }
        Ok(Batch { batch, rows, rejected })
    }

    /// Converts coordinates to those of the dataset.
    fn place_coordinates(&self, columns: [usize; 2], arrays: &mut [ArrayRef], faults: &mut [Option<String>]) {
        let [xs, ys] = columns.map(|column| arrays[column].as_primitive::<Float64Type>().clone());
        let mut placed: [Vec<Option<f64>>; 2] = [Vec::with_capacity(xs.len()), Vec::with_capacity(ys.len())];
        for ((x, y), fault) in xs.iter().zip(&ys).zip(faults) {
            let point = x.zip(y).filter(|_| fault.is_none()).map(|(x, y)| self.geometry_reader.point(Point::new(x, y)));
            let point = point.and_then(|point| point.map_err(|reason| *fault = Some(reason)).ok());
            placed[0].push(point.map_or(x, |point| Some(point.x)));
            placed[1].push(point.map_or(y, |point| Some(point.y)));
        }
        for (column, values) in columns.into_iter().zip(placed) {
            arrays[column] = Arc::new(Float64Array::from(values));
        }
    }

    fn bad_column(&self, field: &Field, first_row: u64, reason: String) -> FormatError {
        FormatError::damaged(
            &self.path,
            Location::Row(first_row),
            format!("or a row after it, column {:?}: {reason}", field.name()),
        )
    }

    /// Refuses rows with one of two coordinates, and rows with one that is no finite number.
    fn check_coordinates(&self, columns: [usize; 2], arrays: &[ArrayRef], faults: &mut [Option<String>]) {
        let named = |column: usize, reason: String| format!("column {:?}: {reason}", self.schema.field(column).name());
        for column in columns {
            let Some(values) = arrays[column].as_primitive_opt::<Float64Type>() else { continue };
            for (value, fault) in values.iter().zip(faults.iter_mut()) {
                if let Some(value) = value.filter(|value| !value.is_finite()) {
                    fault.get_or_insert_with(|| named(column, format!("{value} is not a finite number")));
                }
            }
        }
        let [x, y] = columns.map(|column| &arrays[column]);
        if x.null_count() == 0 && y.null_count() == 0 {
            return;
        }
        for (row, fault) in faults.iter_mut().enumerate() {
            if x.is_null(row) != y.is_null(row) {
                let missing = columns[usize::from(!x.is_null(row))];
                fault.get_or_insert_with(|| named(missing, "the coordinate is missing".to_string()));
            }
        }
    }

    fn geometries(
        &self,
        array: &ArrayRef,
        encoding: Encoding,
        field: &Field,
        faults: &mut [Option<String>],
    ) -> Result<ArrayRef, FormatError> {
        let wrong_type =
            |reason: String| FormatError::damaged(&self.path, Location::Column(field.name().clone()), reason);
        let cast =
            |column_type| Conversion::Cast(column_type).apply(array).map_err(|error| wrong_type(error.to_string()));
        let mut builder = BinaryBuilder::with_capacity(array.len(), 0);
        let mut take = |row: usize, wkb: Result<Option<Vec<u8>>, String>| match wkb {
            Ok(Some(wkb)) => builder.append_value(wkb),
            Ok(None) => builder.append_null(),
            Err(reason) => {
                builder.append_null();
                if let Some(fault) = faults.get_mut(row) {
                    fault.get_or_insert(format!("column {:?}: {reason}", field.name()));
                }
            }
        };
        let reader = &self.geometry_reader;
        match encoding {
            Encoding::Wkb => {
                let array = cast(ColumnType::Binary)?;
                for (row, bytes) in array.as_binary::<i32>().iter().enumerate() {
                    take(row, bytes.map(|bytes| reader.wkb(bytes)).transpose());
                }
            }
            Encoding::Wkt => {
                let array = cast(ColumnType::Utf8)?;
                for (row, text) in array.as_string::<i32>().iter().enumerate() {
                    let text = text.filter(|text| !text.trim().is_empty());
                    take(row, text.map(|text| reader.text(text)).transpose());
                }
            }
            native => {
                let (column, code_offset) = NativeColumn::new(array, native).map_err(wrong_type)?;
                for row in 0..array.len() {
                    let wkb = column.wkb(row, code_offset).and_then(|wkb| wkb.map(|wkb| reader.wkb(&wkb)).transpose());
                    take(row, wkb);
                }
            }
        }
        Ok(Arc::new(builder.finish()))
    }
}

/// Integers that no float64 holds are faults: a binary number means its exact value, as a
/// coordinate too.
fn inexact_coordinates(name: &str, stored: &ArrayRef, converted: &ArrayRef, faults: &mut [Option<String>]) {
    let value_type = match stored.data_type() {
        DataType::Dictionary(_, values) => values,
        other => other,
    };
    if !matches!(value_type, DataType::Int64 | DataType::UInt64) {
        return;
    }
    let Ok(integers) = cast(stored, &DataType::Decimal128(20, 0)) else { return };
    let (integers, floats) = (integers.as_primitive::<Decimal128Type>(), converted.as_primitive::<Float64Type>());
    for ((integer, float), fault) in integers.iter().zip(floats).zip(faults) {
        if let Some((integer, _)) = integer.zip(float).filter(|(integer, float)| *float as i128 != *integer) {
            fault.get_or_insert_with(|| {
                format!(
                    "column {name:?}: float64 cannot hold {integer} exactly; store the \
                column as float64"
                )
            });
        }
    }
}

fn without_faults(batch: RecordBatch, faults: &[Option<String>]) -> Result<RecordBatch, ArrowError> {
    if faults.iter().all(Option::is_none) {
        return Ok(batch);
    }
    let keep = BooleanArray::from(faults.iter().map(Option::is_none).collect::<Vec<_>>());
    filter_record_batch(&batch, &keep)
}
