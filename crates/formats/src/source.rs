//! The common interface of readers: a schema, a geometry, and batches of rows with the refused rows
//! beside them.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, SchemaRef};

use crate::demand::DemandedType;
use crate::error::FormatError;
use crate::format::Format;
use crate::geometry::CoordinateOptions;
use crate::guess::{GeometryColumns, Guess};
use crate::pair::CoordinatePair;
use crate::types::{ColumnType, Observed};

/// Most rows of a batch.
pub const BATCH_ROWS_MAX: usize = 8192;

/// Bytes of text or geometry after which a batch is handed over early.
pub const BATCH_BYTES_SOFT: usize = 8 << 20;

/// Most bytes of a columnar file that are decoded at once, unless the options set another limit.
pub const DECODED_BYTES_MAX: u64 = 256 << 20;

/// Whether the first row of a CSV file holds the column names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Header {
    /// The first row holds the names; a row of numbers is refused.
    #[default]
    Present,
    /// There is no such row: columns are named `column_1`, `column_2`, ….
    Absent,
}

/// The character that encloses fields of a CSV file. Inside, separators and line ends are ordinary
/// characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quote {
    /// This character, an ASCII one.
    Character(u8),
    /// Nothing: quotes are ordinary characters.
    None,
}

impl Default for Quote {
    fn default() -> Quote {
        Quote::Character(b'"')
    }
}

/// How a file is read. The default detects everything.
#[derive(Debug, Clone, Default)]
pub struct ReadOptions {
    /// The path of the content, if it differs from the file's name in messages: for example a copy
    /// of a pipe.
    pub content: Option<PathBuf>,
    /// The format, if the content shall not decide.
    pub format: Option<Format>,
    /// CSV: whether there is a header row.
    pub header: Header,
    /// CSV: the separator, if it shall not be detected.
    pub separator: Option<u8>,
    /// CSV: the character that encloses fields.
    pub quote: Quote,
    /// CSV: whether numbers are written like `12,5`, if it shall not be detected.
    pub decimal_comma: Option<bool>,
    /// The column that holds the geometry: WKT, GeoJSON, or WKB (also hexadecimal).
    pub geometry: Option<String>,
    /// The name of a geometry beside the columns of a record (GeoJSON, NDJSON), instead of
    /// `geometry`. Unused if a column has it.
    pub own_geometry_name: Option<String>,
    /// Whether no column is taken as a geometry.
    pub no_geometry: bool,
    /// Arrow and Parquet: whether columns of numbers are never guessed to be coordinates.
    pub no_guessed_coordinates: bool,
    /// The column that holds the longitude (or x).
    pub x: Option<String>,
    /// The column that holds the latitude (or y).
    pub y: Option<String>,
    /// The column that holds both, instead of `x` and `y`.
    pub pair: Option<CoordinatePair>,
    /// For records with a geometry beside their columns (GeoJSON, NDJSON), if no column is called
    /// `x` or `y`: takes the coordinates from that geometry, which must be a two-dimensional point.
    pub own_points: bool,
    /// The column that holds the key, an empty name for none; guessed if not given. In text formats
    /// only the key may be uint64.
    pub key: Option<String>,
    /// Whether the geometry columns named here are those of the dataset that rows are added to, and
    /// not the user's choice. A file that lacks one is refused.
    pub of_dataset: bool,
    /// How coordinates are read.
    pub coordinates: CoordinateOptions,
    /// Column types that the user asks for, by column name.
    pub demanded_types: Vec<(String, DemandedType)>,
    /// Texts that stand for null, in fields of CSV, quoted or not, and in strings of JSON.
    pub nulls: Vec<String>,
    /// Types that columns of text formats must have, by name: those of the dataset that rows are
    /// added to. Values that do not fit are refused.
    pub column_types: Vec<(String, ColumnType)>,
    /// Those of int64 that may become float64. They do if the file has a number that is not an
    /// int64.
    pub widening: Vec<String>,
    /// Arrow and Parquet: most bytes of a piece that has to be decoded at once,
    /// [`DECODED_BYTES_MAX`] if not given. A piece is a record batch with its dictionaries, or the
    /// pages of a row group's columns. Files with larger pieces are refused.
    pub decoded_bytes_max: Option<u64>,
}

impl ReadOptions {
    pub(crate) fn decoded_bytes_max(&self) -> u64 {
        self.decoded_bytes_max.unwrap_or(DECODED_BYTES_MAX)
    }

    pub(crate) fn demanded_type(&self, name: &str) -> Option<&DemandedType> {
        self.demanded_types.iter().find(|(column, _)| column == name).map(|(_, demanded)| demanded)
    }

    pub(crate) fn column_type(&self, name: &str) -> Option<ColumnType> {
        self.column_types.iter().find(|(column, _)| column == name).map(|&(_, column_type)| column_type)
    }

    /// The required type of a column whose values have been observed.
    pub(crate) fn column_type_for(&self, name: &str, observed: &Observed) -> Option<ColumnType> {
        match self.column_type(name) {
            Some(ColumnType::Int64) if observed.has_floats() && self.widening.iter().any(|column| column == name) => {
                Some(ColumnType::Float64)
            }
            None => self.demanded_type(name).map(|demanded| demanded.column_type(observed.has_zones())),
            other => other,
        }
    }
}

/// A row that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedRow {
    /// The data row, counted from 1; a header is not counted.
    pub row: u64,
    /// The line of a text file on which the row starts, counted from 1.
    pub line: Option<u64>,
    /// The column and value at fault, and what is wrong.
    pub reason: String,
    /// The row as it is in a text file; long rows are cut.
    pub raw: Option<String>,
}

/// Consecutive rows of a file.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The good rows.
    pub batch: RecordBatch,
    /// The data row number of each of them, counted from 1.
    pub rows: Vec<u64>,
    /// The refused rows among them.
    pub rejected: Vec<RejectedRow>,
}

/// The format-specific part of [`Source::next_batch`].
pub(crate) trait BatchReader: Send {
    fn next_batch(&mut self) -> Result<Option<Batch>, FormatError>;

    /// Notices on changes to coordinates so far.
    fn notices(&self) -> Vec<String>;
}

/// The result of opening a file.
pub(crate) struct Opened {
    pub schema: SchemaRef,
    pub geometry: GeometryColumns,
    pub warnings: Vec<String>,
    pub row_count_hint: Option<u64>,
    /// The types of its columns in the file, if the format has types.
    pub stored_types: Vec<(String, DataType)>,
    /// Columns of text formats that have no value.
    pub empty_columns: Vec<String>,
    pub reader: Box<dyn BatchReader>,
}

/// An open file.
pub struct Source {
    /// The file.
    pub path: PathBuf,
    /// Its format.
    pub format: Format,
    /// Names and types of the columns of every batch.
    pub schema: SchemaRef,
    /// Where the geometry is.
    pub geometry: GeometryColumns,
    /// Notices on how the file is read.
    pub warnings: Vec<String>,
    /// The number of data rows, if known beforehand.
    pub row_count_hint: Option<u64>,
    stored_types: Vec<(String, DataType)>,
    empty_columns: Vec<String>,
    reader: Box<dyn BatchReader>,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source")
            .field("path", &self.path)
            .field("format", &self.format)
            .field("schema", &self.schema)
            .field("geometry", &self.geometry)
            .finish_non_exhaustive()
    }
}

impl Source {
    pub(crate) fn new(path: PathBuf, format: Format, opened: Opened) -> Self {
        Source {
            path,
            format,
            schema: opened.schema,
            geometry: opened.geometry,
            warnings: opened.warnings,
            row_count_hint: opened.row_count_hint,
            stored_types: opened.stored_types,
            empty_columns: opened.empty_columns,
            reader: opened.reader,
        }
    }

    /// The next rows, or `None` at the end of the file. A batch may consist of refused rows only.
    ///
    /// # Errors
    /// When the file is damaged from here on.
    pub fn next_batch(&mut self) -> Result<Option<Batch>, FormatError> {
        self.reader.next_batch()
    }

    /// Notices on how the rows so far were read; complete after the last batch.
    pub fn notices(&self) -> Vec<String> {
        self.reader.notices()
    }

    /// The key and geometry columns that were recognised.
    pub fn guess(&self) -> Guess {
        Guess::new(&self.schema, self.geometry.clone())
    }

    /// The type of a column in the file itself, if the format has types. The type in the batches
    /// may differ.
    pub fn stored_type(&self, column: &str) -> Option<&DataType> {
        self.stored_types.iter().find(|(name, _)| name == column).map(|(_, data_type)| data_type)
    }

    /// Whether a column is known to have no value; its type is meaningless then.
    pub fn is_empty_column(&self, column: &str) -> bool {
        self.empty_columns.iter().any(|name| name == column) || self.stored_type(column) == Some(&DataType::Null)
    }

    /// The schema, shared.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
