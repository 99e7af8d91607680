//! Writes Arrow batches to files and terminals.

mod columnar;
mod delimited;
mod error;
mod geojson;
mod map;
mod ndjson;
mod output;
mod row_json;
mod table;

use std::fmt;
use std::io;
use std::str::FromStr;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

pub use error::WriteError;

use crate::guess::GeometryColumns;

/// A format that can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputFormat {
    /// Aligned columns for people.
    Table,
    /// One JSON object per line.
    Ndjson,
    /// Comma-separated values with a header (RFC 4180).
    Csv,
    /// A GeoJSON FeatureCollection (RFC 7946).
    GeoJson,
    /// An Arrow IPC stream.
    Arrow,
    /// Parquet; GeoParquet 1.1 when there is a geometry column.
    Parquet,
    /// A web page with an interactive map, in one file.
    Map,
}

impl OutputFormat {
    /// All formats, in the order in which help texts list them.
    pub const ALL: [OutputFormat; 7] = [
        OutputFormat::Table,
        OutputFormat::Ndjson,
        OutputFormat::Csv,
        OutputFormat::GeoJson,
        OutputFormat::Arrow,
        OutputFormat::Parquet,
        OutputFormat::Map,
    ];

    /// The name by which users choose it.
    pub fn name(self) -> &'static str {
        match self {
            OutputFormat::Table => "table",
            OutputFormat::Ndjson => "ndjson",
            OutputFormat::Csv => "csv",
            OutputFormat::GeoJson => "geojson",
            OutputFormat::Arrow => "arrow",
            OutputFormat::Parquet => "parquet",
            OutputFormat::Map => "map",
        }
    }
}

impl fmt::Display for OutputFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for OutputFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let names = OutputFormat::ALL.map(OutputFormat::name);
        OutputFormat::ALL
            .into_iter()
            .find(|format| format.name() == text)
            .ok_or_else(|| format!("{text:?} is not one of {}", names.join(", ")))
    }
}

/// What a writer needs beside the batches.
#[derive(Debug, Clone)]
pub struct WriteOptions {
    /// Where the geometry is: a column of WKB, two of coordinates, or nowhere.
    pub geometry: GeometryColumns,
    /// Whether the coordinates are those of a plane, not longitude and latitude.
    pub planar: bool,
    /// The EPSG number of the plane, 0 if it is unknown.
    pub srid: u32,
    /// Tables: how wide a column may be, in characters.
    pub column_width_max: usize,
    /// Parquet: bytes in memory after which a row group is written.
    pub row_group_bytes_max: usize,
}

impl WriteOptions {
    /// The name of the reference system, if it is that of a plane and known.
    fn plane(&self) -> Option<String> {
        (self.planar && self.srid != 0).then(|| format!("EPSG:{}", self.srid))
    }
}

impl Default for WriteOptions {
    fn default() -> Self {
        WriteOptions {
            geometry: GeometryColumns::None,
            planar: false,
            srid: 0,
            column_width_max: 40,
            row_group_bytes_max: 64 << 20,
        }
    }
}

/// Writes batches of one schema: `begin` once, `write` any number of times,
/// `finish` once.
pub trait Writer: Send {
    /// Starts the output.
    ///
    /// # Errors
    /// When the output cannot be written, or the schema lacks the geometry that the format or the
    /// options need.
    fn begin(&mut self, schema: &SchemaRef) -> Result<(), WriteError>;

    /// Writes the rows of a batch of that schema.
    ///
    /// # Errors
    /// When the output cannot be written, or a value has no form in the format.
    fn write(&mut self, batch: &RecordBatch) -> Result<(), WriteError>;

    /// Completes the output and flushes it.
    ///
    /// # Errors
    /// When the output cannot be written.
    fn finish(&mut self) -> Result<(), WriteError>;

    /// Notices on information that the format could not express so far.
    fn notice(&self) -> Option<&'static str> {
        None
    }
}

/// A writer of the given format to `output`.
pub fn writer<'a>(
    format: OutputFormat,
    output: impl io::Write + Send + 'a,
    options: WriteOptions,
) -> Box<dyn Writer + 'a> {
    let output: Box<dyn io::Write + Send + 'a> = Box::new(output);
    match format {
        OutputFormat::Table => Box::new(table::TableWriter::new(output, options)),
        OutputFormat::Ndjson => Box::new(ndjson::NdjsonWriter::new(output, options)),
        OutputFormat::Csv => Box::new(delimited::CsvWriter::new(output, options)),
        OutputFormat::GeoJson => Box::new(geojson::GeoJsonWriter::new(output, options)),
        OutputFormat::Arrow => Box::new(columnar::ArrowStreamWriter::new(output, options)),
        OutputFormat::Parquet => Box::new(columnar::ParquetWriter::new(output, options)),
        OutputFormat::Map => Box::new(map::MapWriter::new(output, options)),
    }
}
