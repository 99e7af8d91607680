//! Rows and reports on standard output.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use serde::Serialize;
use terrane::CoordinateSystem;
use terrane::schema::{GeometryColumn, Schema};
use terrane_formats::{GeometryColumns, OutputFormat, WriteOptions, Writer, writer};

use crate::args::{QueryFormat, ReportFormat};
use crate::failure::Failure;
use crate::messages::{Messages, escaped};

/// Bytes of rows that are collected before they are written.
const BUFFER_BYTES: usize = 1 << 16;

/// The format of rows. The default is a table on a terminal, else NDJSON.
pub fn row_format(format: Option<QueryFormat>) -> Result<OutputFormat, Failure> {
    let is_terminal = io::stdout().is_terminal();
    let format = match format {
        None if is_terminal => OutputFormat::Table,
        None | Some(QueryFormat::Ndjson | QueryFormat::Json) => OutputFormat::Ndjson,
        Some(QueryFormat::Table) => OutputFormat::Table,
        Some(QueryFormat::Csv) => OutputFormat::Csv,
        Some(QueryFormat::Geojson) => OutputFormat::GeoJson,
        Some(QueryFormat::Arrow) => OutputFormat::Arrow,
        Some(QueryFormat::Parquet) => OutputFormat::Parquet,
        Some(QueryFormat::Map) => OutputFormat::Map,
    };
    if is_terminal && matches!(format, OutputFormat::Arrow | OutputFormat::Parquet | OutputFormat::Map) {
        return Err(Failure::usage(format!("{format} is not for a terminal; redirect the output to a file")));
    }
    Ok(format)
}

/// Most bytes of a row group of Parquet, and the least, for a small memory limit.
const ROW_GROUP_BYTES: std::ops::RangeInclusive<usize> = 1 << 20..=64 << 20;

fn row_group_bytes(working_memory: usize) -> usize {
    (working_memory / 2).clamp(*ROW_GROUP_BYTES.start(), *ROW_GROUP_BYTES.end())
}

/// Options of a writer for a dataset's rows within a memory limit. `name` maps a column of the
/// dataset to its name in the rows.
fn write_options(schema: &Schema, name: &dyn Fn(&str) -> String, working_memory: usize) -> WriteOptions {
    WriteOptions {
        row_group_bytes_max: row_group_bytes(working_memory),
        geometry: match &schema.geometry {
            GeometryColumn::Point { x, y } => GeometryColumns::Coordinates { x: name(x), y: name(y) },
            GeometryColumn::Geometry { name: geometry } => GeometryColumns::Column { name: name(geometry) },
            GeometryColumn::None => GeometryColumns::None,
        },
        planar: schema.system == CoordinateSystem::Planar,
        srid: schema.srid(),
        ..WriteOptions::default()
    }
}

/// A writer of a dataset's rows to standard output.
pub fn rows_to_stdout(format: OutputFormat, schema: &Schema, working_memory: usize) -> Box<dyn Writer> {
    renamed_rows_to_stdout(format, schema, &str::to_owned, working_memory)
}

/// Like [`rows_to_stdout`], for columns with other names than in the dataset.
pub fn renamed_rows_to_stdout(
    format: OutputFormat,
    schema: &Schema,
    name: &dyn Fn(&str) -> String,
    working_memory: usize,
) -> Box<dyn Writer> {
    let output = BufWriter::with_capacity(BUFFER_BYTES, io::stdout());
    writer(format, output, write_options(schema, name, working_memory))
}

/// A writer of a dataset's rows to a file.
pub fn rows_to(file: File, format: OutputFormat, schema: &Schema, working_memory: usize) -> Box<dyn Writer> {
    let output = BufWriter::with_capacity(BUFFER_BYTES, file);
    writer(format, output, write_options(schema, &str::to_owned, working_memory))
}

/// A writer of any rows to standard output.
#[cfg(feature = "sql")]
pub fn answers_to_stdout(format: OutputFormat, options: WriteOptions, working_memory: usize) -> Box<dyn Writer> {
    let output = BufWriter::with_capacity(BUFFER_BYTES, io::stdout());
    writer(format, output, WriteOptions { row_group_bytes_max: row_group_bytes(working_memory), ..options })
}

/// Writes all batches of a result with this schema, and prints notices on what the format cannot
/// express.
pub fn print_batches<E: Into<Failure>>(
    schema: &SchemaRef,
    batches: &mut impl Iterator<Item = Result<RecordBatch, E>>,
    mut writer: Box<dyn Writer>,
    messages: &Messages,
) -> Result<(), Failure> {
    writer.begin(schema)?;
    for batch in batches {
        writer.write(&batch.map_err(Into::into)?)?;
    }
    writer.finish()?;
    if let Some(notice) = writer.notice() {
        messages.warn(notice);
    }
    Ok(())
}

/// Prints a text on standard output as it is.
pub fn print_text(text: &str) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).map_err(|error| Failure::stdout(&error))
}

/// Prints one line on standard output.
pub fn print_line(line: impl std::fmt::Display) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).map_err(|error| Failure::stdout(&error))
}

/// Prints a report as text or as JSON.
pub fn print_report(format: ReportFormat, report: &(impl Serialize + std::fmt::Display)) -> Result<(), Failure> {
    match format {
        ReportFormat::Text => print_line(escaped(report)),
        ReportFormat::Json => print_line(to_json(report)?),
    }
}

/// A report as one JSON object.
pub fn to_json(report: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(report)
        .map_err(|error| Failure::new(Failure::FAILURE, format!("the report cannot be written as JSON: {error}")))
}
