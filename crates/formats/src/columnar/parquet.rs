//! Parquet, with or without `geo` metadata.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::{ArrowError, Schema};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::basic::{LogicalType, Type};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};

use super::footer_check::check_footer;
use super::geo_metadata::{self, Declared, DeclaredGeometry, Encoding};
use super::guard::guarded;
use super::int96;
use super::normalise;
use super::page_check::check_pages;
use super::plain;
use super::reader::ColumnarPlan;
use crate::crs::DeclaredCrs;
use crate::error::{FormatError, Location};
use crate::format::Format;
use crate::guess::GeometryColumns;
use crate::input::Input;
use crate::source::{BATCH_BYTES_SOFT, BATCH_ROWS_MAX, Opened, ReadOptions};

/// Advice for pages that are too large.
const ADVICE: &str = "rewrite it with smaller pages, or allow more memory";

/// Advice for a footer that is too large.
const FOOTER_ADVICE: &str = "rewrite it with fewer columns or larger row groups, or allow more memory";

/// Opens a Parquet file and tells whether it declares a geometry.
pub(crate) fn open(input: &Input, options: &ReadOptions) -> Result<(Format, Opened), FormatError> {
    let path = &input.path;
    guarded(path, || {
        let file = input.open()?;
        let file_length = file.metadata().map_err(|error| FormatError::reading(path, error))?.len();
        let damaged =
            |reason: String| FormatError::damaged(path, Location::File, format!("not a whole Parquet file: {reason}"));
        check_footer(&file, file_length, options.decoded_bytes_max())
            .map_err(|unfit| unfit.into_error(path, "Parquet file", FOOTER_ADVICE))?;
        let (metadata, int96_columns) = load(&file).map_err(damaged)?;
        check_extents(metadata.metadata(), file_length).map_err(damaged)?;
        let row_bytes_max = check_pages(&file, metadata.metadata(), options.decoded_bytes_max())
            .map_err(|unfit| unfit.into_error(path, "Parquet file", ADVICE))?;
        let warnings: Vec<String> = int96_columns.iter().map(|name| normalise::nanoseconds_warning(name)).collect();
        let schema = metadata.schema().clone();
        let declared = |named: Option<&GeometryColumns>, warnings: &mut Vec<String>| {
            declared_geometry(input, &file, &metadata, &schema, named, warnings)
        };
        // A geometry declared in another way does not make the file GeoParquet.
        let format = match geo_of(metadata.metadata()) {
            Some(_) => Format::GeoParquet,
            None => Format::Parquet,
        };
        let row_count = u64::try_from(metadata.metadata().file_metadata().num_rows()).ok();
        let batch_rows = batch_rows(metadata.metadata(), row_bytes_max, options.decoded_bytes_max());
        let mut plan =
            ColumnarPlan::new(path, &schema, declared, options, |index| fits_int64(&metadata, index), warnings)?;
        if !int96_columns.is_empty() {
            let file = Arc::new(file.try_clone().map_err(|error| FormatError::reading(path, error))?);
            plan.unfit_rows = int96::unfit_times(&file, metadata.metadata(), batch_rows).map_err(|column| {
                let reason = "too many of its 96-bit times are outside of the range of int64 microseconds";
                FormatError::refused(path, Location::Column(column), reason, "correct them, or leave the column out")
            })?;
        }
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
            .with_batch_size(batch_rows)
            .build()
            .map_err(|error| damaged(error.to_string()))?;
        let batches = reader.map(|batch| batch.map_err(|error| ArrowError::ExternalError(error.into())));
        Ok((format, plan.open(path, row_count, Box::new(batches))))
    })
}

/// The metadata of a file with a valid footer, and the names of columns with 96-bit times.
fn load(file: &File) -> Result<(ArrowReaderMetadata, Vec<String>), String> {
    let metadata = ArrowReaderMetadata::load(file, ArrowReaderOptions::new()).map_err(|error| error.to_string())?;
    match int96::in_microseconds(metadata.schema(), metadata.parquet_schema())? {
        None => Ok((metadata, Vec::new())),
        Some((schema, columns)) => {
            let options = ArrowReaderOptions::new().with_schema(Arc::new(schema));
            let metadata = ArrowReaderMetadata::try_new(Arc::clone(metadata.metadata()), options);
            Ok((metadata.map_err(|error| error.to_string())?, columns))
        }
    }
}

/// The metadata that make a file a GeoParquet file.
fn geo_of(metadata: &ParquetMetaData) -> Option<&str> {
    let pairs = metadata.file_metadata().key_value_metadata()?;
    pairs.iter().find(|pair| pair.key == "geo")?.value.as_deref()
}

fn declared_geometry(
    input: &Input,
    file: &File,
    metadata: &ArrowReaderMetadata,
    schema: &Schema,
    named: Option<&GeometryColumns>,
    warnings: &mut Vec<String>,
) -> Result<Declared, FormatError> {
    let path = &input.path;
    let of_file = match geo_of(metadata.metadata()) {
        Some(geo) => geo_metadata::from_geoparquet(path, geo, schema, named, warnings)?,
        None => Declared::default(),
    };
    if of_file.geometry.is_some() {
        return Ok(of_file);
    }
    let of_column = geo_metadata::from_extensions(path, schema, named, warnings, |warnings| {
        let declared = from_logical_type(metadata, named, warnings);
        let geometry = match declared {
            None if named.is_none() => plain::find(path, schema, |index| sample(path, file, metadata, index))?,
            declared => declared,
        };
        Ok(Declared { geometry, coverings: Vec::new() })
    })?;
    Ok(Declared { geometry: of_column.geometry, coverings: of_file.coverings })
}

/// Whether the statistics of a column of decimal numbers without a fraction show that all are
/// 64-bit integers.
fn fits_int64(metadata: &ArrowReaderMetadata, index: usize) -> bool {
    let parquet = metadata.metadata();
    let Some(column) = metadata.parquet_schema().root_schema().get_fields().get(index) else { return false };
    let leaves = metadata.parquet_schema().columns();
    let Some(leaf) = leaves.iter().position(|leaf| leaf.path().parts() == [column.name().to_string()]) else {
        return false;
    };
    let of_group = |group: &RowGroupMetaData| {
        let chunk = group.columns().get(leaf)?;
        let statistics = chunk.statistics()?;
        if statistics.null_count_opt() == Some(group.num_rows() as u64) {
            return Some(true);
        }
        let bound = |bytes: Option<&[u8]>| decimal_of(statistics.physical_type(), bytes?);
        let fits = |value: i128| i64::try_from(value).is_ok();
        Some(fits(bound(statistics.min_bytes_opt())?) && fits(bound(statistics.max_bytes_opt())?))
    };
    parquet.row_groups().iter().all(|group| of_group(group).unwrap_or(false))
}

/// A bound of the statistics as a number: little-endian as an integer, big-endian as bytes.
fn decimal_of(physical: Type, bytes: &[u8]) -> Option<i128> {
    match physical {
        Type::INT32 => Some(i32::from_le_bytes(bytes.try_into().ok()?).into()),
        Type::INT64 => Some(i64::from_le_bytes(bytes.try_into().ok()?).into()),
        Type::FIXED_LEN_BYTE_ARRAY | Type::BYTE_ARRAY if (1..=16).contains(&bytes.len()) => {
            let sign = if bytes[0] >= 0x80 { u8::MAX } else { 0 };
            let mut extended = [sign; 16];
            extended[16 - bytes.len()..].copy_from_slice(bytes);
            Some(i128::from_be_bytes(extended))
        }
        _ => None,
    }
}

/// The first values of a column.
fn sample(
    path: &Path,
    file: &File,
    metadata: &ArrowReaderMetadata,
    index: usize,
) -> Result<Option<ArrayRef>, FormatError> {
    let damaged = |error: &dyn std::fmt::Display| {
        FormatError::damaged(path, Location::File, format!("the data cannot be decoded: {error}"))
    };
    let file = file.try_clone().map_err(|error| FormatError::reading(path, error))?;
    let projection = ProjectionMask::roots(metadata.parquet_schema(), [index]);
    let mut batches = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata.clone())
        .with_projection(projection)
        .with_batch_size(plain::SAMPLE_ROWS)
        .with_limit(plain::SAMPLE_ROWS)
        .build()
        .map_err(|error| damaged(&error))?;
    let batch = batches.next().transpose().map_err(|error| damaged(&error))?;
    Ok(batch.map(|batch| batch.column(0).clone()))
}

/// Parquet's own geometry type, which stores WKB: that of the column `named`, or of the first
/// column that has it.
fn from_logical_type(
    metadata: &ArrowReaderMetadata,
    named: Option<&GeometryColumns>,
    warnings: &mut Vec<String>,
) -> Option<DeclaredGeometry> {
    let is_candidate = |name: &str| match named {
        None => true,
        Some(GeometryColumns::Column { name: wanted }) => wanted == name,
        Some(_) => false,
    };
    let root = metadata.parquet_schema().root_schema();
    root.get_fields().iter().filter(|column| is_candidate(column.name())).find_map(|column| {
        let crs = match column.get_basic_info().logical_type_ref()? {
            LogicalType::Geometry(geometry) => &geometry.crs,
            LogicalType::Geography(geography) => {
                let edges =
                    geography.algorithm.map_or("spherical".to_string(), |edges| edges.to_string().to_lowercase());
                geo_metadata::warn_of_edges(column.name(), Some(&edges), warnings);
                &geography.crs
            }
            _ => return None,
        };
        Some(DeclaredGeometry {
            column: column.name().to_string(),
            encoding: Encoding::Wkb,
            crs: crs.as_deref().map_or(DeclaredCrs::Wgs84, DeclaredCrs::from_text),
        })
    })
}

/// Column chunks must lie inside the file, or their sizes cannot be trusted.
fn check_extents(metadata: &ParquetMetaData, file_length: u64) -> Result<(), String> {
    for (group, row_group) in metadata.row_groups().iter().enumerate() {
        for column in row_group.columns() {
            let offset = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
            let extent = u64::try_from(offset)
                .ok()
                .zip(u64::try_from(column.compressed_size()).ok())
                .and_then(|(offset, length)| offset.checked_add(length));
            if extent.is_none_or(|end| end > file_length) {
                return Err(format!("column {} of row group {group} lies outside of the file", column.column_path()));
            }
        }
        if row_group.num_rows() < 0 {
            return Err(format!("row group {group} has a negative number of rows"));
        }
    }
    Ok(())
}

/// The number of rows to decode at once. They stay small once decoded, and fit a share of the
/// available memory even if every row is as large as the largest. The pages and the converted batch
/// take the rest.
fn batch_rows(metadata: &ParquetMetaData, row_bytes_max: u64, bytes_max: u64) -> usize {
    let row_bytes_mean = metadata
        .row_groups()
        .iter()
        .map(|row_group| row_group.total_byte_size() / row_group.num_rows().max(1))
        .max()
        .unwrap_or(0);
    let row_bytes = usize::try_from(row_bytes_mean).unwrap_or(0).max(1);
    let rows_max = usize::try_from(bytes_max / 4 / row_bytes_max.max(1)).unwrap_or(BATCH_ROWS_MAX);
    (BATCH_BYTES_SOFT / row_bytes).clamp(64, BATCH_ROWS_MAX).min(rows_max.max(1))
}
