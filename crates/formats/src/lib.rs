//! Reads files of every supported format into Arrow batches, and writes Arrow batches to files.
//!
//! [`open`] detects the format of a file and returns a [`Source`]. Its batches have few column
//! types ([`ColumnType`]), and its geometry is either one column of little-endian ISO WKB or two
//! columns of coordinates. Refused rows are returned beside the good ones; damage to the file is an
//! error. [`writer`] returns a [`Writer`] for an output format.
//!
//! Memory is bounded by the batch, never by the file. Hostile input ends in an error.

#![forbid(unsafe_code)]

mod arrow_json;
mod columnar;
mod crs;
mod csv;
mod datum;
mod demand;
mod error;
mod format;
mod geometry;
mod guess;
mod input;
mod json;
mod layout;
mod number;
mod pair;
mod pieces;
mod place;
mod quoted;
mod reprojection;
mod rows;
mod source;
mod transformation;
mod types;
mod wkb_transform;
mod write;

use std::path::Path;

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};

pub use crs::foreign_crs;
pub use demand::DemandedType;
pub use error::{FormatError, Location, SUPPORTED_FORMATS};
pub use format::{Format, detect};
pub use geometry::CoordinateOptions;
pub use guess::{GeometryColumns, Guess, detect_coordinates, detect_coordinates_by_name, detect_key};
pub use input::Compression;
pub use json::{
    ForeignMembers, JsonError, JsonErrorKind, JsonRecord, JsonValue, RecordOptions, RecordReader, parse_strict,
};
pub use layout::unique_name;
pub use pair::CoordinatePair;
pub use reprojection::Crs;
pub use source::{
    BATCH_BYTES_SOFT, BATCH_ROWS_MAX, Batch, DECODED_BYTES_MAX, Header, Quote, ReadOptions, RejectedRow, Source,
};
pub use transformation::Transformation;
pub use types::ColumnType;
pub use write::{OutputFormat, WriteError, WriteOptions, Writer, writer};

/// Reads batches of another program, such as a data frame, like those of a file. `name` stands for
/// the file in messages.
///
/// # Errors
/// When columns repeat, the reference system is not supported, or something is missing that the
/// options name. Those of the batches come from the source.
pub fn open_batches(
    name: &str,
    schema: &SchemaRef,
    batches: impl Iterator<Item = Result<RecordBatch, ArrowError>> + Send + 'static,
    options: &ReadOptions,
) -> Result<Source, FormatError> {
    let path = Path::new(name);
    let opened = columnar::table::open(path, schema, Box::new(batches), options)?;
    Ok(Source::new(path.to_path_buf(), Format::ArrowStream, opened))
}

/// Opens a file for reading.
///
/// # Errors
/// When the file cannot be read, is damaged (opening checks text formats as a whole), has an
/// unsupported format or reference system, or lacks something that the options name.
pub fn open(path: impl AsRef<Path>, options: &ReadOptions) -> Result<Source, FormatError> {
    let path = path.as_ref();
    let input = input::Input::new(path, options.content.as_deref(), options.decoded_bytes_max())?;
    let format = match options.format {
        Some(format) => format,
        None => format::detect_input(&input)?,
    };
    let (format, opened) = match format {
        Format::Csv => (format, csv::open(input, options)?),
        Format::Ndjson | Format::JsonArray | Format::GeoJson | Format::GeoJsonSeq => {
            (format, json::open(input, format, options)?)
        }
        Format::Parquet | Format::GeoParquet => columnar::parquet::open(&input, options)?,
        Format::ArrowFile | Format::ArrowStream => (format, columnar::ipc::open(&input, format, options)?),
    };
    Ok(Source::new(path.to_path_buf(), format, opened))
}
