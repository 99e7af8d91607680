//! Reads separated values into batches, in two passes: the first checks the whole file and learns
//! the types, the second converts.

use std::io::{self, BufRead, Read};
use std::sync::Arc;

use super::dialect::{self, Dialect};
use super::scanner::{RECORD_BYTES_MAX, Record, Records, ScanError, Scanner, Texts};
use crate::crs::DeclaredCrs;
use crate::error::{FormatError, Location};
use crate::geometry::GeometryReader;
use crate::input::{Content, Input};
use crate::layout::{ColumnSeen, Layout, empty_columns};
use crate::pair::CoordinatePair;
use crate::pieces::{Extent, PieceSize, PieceSource, Pieces};
use crate::rows::{ColumnPlan, Role, RowBuilder, RowPlan, Scalar, text_scalar, without_blanks};
use crate::source::{Batch, BatchReader, Header, Opened, ReadOptions};
use crate::types::Observed;

/// Opens a file of separated values.
pub(crate) fn open(input: Input, options: &ReadOptions) -> Result<Opened, FormatError> {
    let input = Arc::new(input);
    let dialect = dialect::detect(&input, options)?;
    let mut warnings: Vec<String> = dialect.preamble.warning().into_iter().collect();
    let mut source = RowSource::new(&input, dialect)?;
    let mut first = Records::default();
    if !source.read(&mut first)? {
        return Err(FormatError::damaged(&input.path, Location::File, "the file holds no record"));
    }
    let fields = dialect::column_names(&input, first.get(0), options, dialect.decimal_comma, &mut warnings)?;
    let (names, origins) = columns_of(&input, &fields, options)?;
    if options.header == Header::Absent {
        source = RowSource::new(&input, dialect)?;
    }
    let size = PieceSize::new(fields.len(), options.decoded_bytes_max());
    let survey = Survey {
        names: names.clone(),
        origins: origins.clone(),
        field_count: fields.len(),
        nulls: options.nulls.clone(),
        decimal_comma: dialect.decimal_comma,
    };
    let (observed, row_count) = survey.all(&input, source, size)?;
    let seen: Vec<ColumnSeen<'_>> =
        names.iter().zip(&observed).map(|(name, observed)| ColumnSeen { name, observed }).collect();
    let mut layout = Layout::new(&input.path, &seen, options, false)?;
    let empty_columns = empty_columns(&seen);
    layout.settle_integers(options);
    warnings.extend(layout.warnings);
    if row_count == 0 {
        warnings.push(
            "the file has no rows, so the column types are unknown; in a new dataset they become \
                text"
                .to_string(),
        );
    }
    if dialect.decimal_comma {
        warnings.push("numbers are read with a decimal comma".to_string());
    }
    let geometry_reader =
        GeometryReader::new(&input.path, &DeclaredCrs::Undeclared, &options.coordinates, &mut warnings)?;
    let rows = RowPlan::new(layout.columns, &layout.geometry, Some(geometry_reader.clone()));
    let schema = rows.schema();
    let converter = Converter {
        rows,
        origins,
        field_count: fields.len(),
        nulls: options.nulls.clone(),
        pair: options.pair.clone(),
        geometry_reader: geometry_reader.clone(),
        dialect,
    };
    let mut source = RowSource::new(&input, dialect)?;
    if options.header == Header::Present {
        source.read(&mut first)?;
    }
    let path = input.path.clone();
    let convert = move |piece: RowPiece| converter.convert_all(&piece, &input);
    let batches = Pieces::new(&path, source, size, convert);
    Ok(Opened {
        schema,
        geometry: layout.geometry,
        warnings,
        row_count_hint: Some(row_count),
        stored_types: Vec::new(),
        empty_columns,
        reader: Box::new(CsvReader { batches, geometry_reader }),
    })
}

/// The rows of a file, after its header.
struct RowSource {
    input: Arc<Input>,
    scanner: Scanner<Content>,
    row_next: u64,
}

/// A piece of consecutive records.
struct RowPiece {
    records: Records,
    first_row: u64,
}

impl RowSource {
    fn new(input: &Arc<Input>, dialect: Dialect) -> Result<RowSource, FormatError> {
        Ok(RowSource { scanner: scanner(input, dialect)?, input: Arc::clone(input), row_next: 1 })
    }

    /// Adds the next record; false at the end.
    fn read(&mut self, records: &mut Records) -> Result<bool, FormatError> {
        next(&self.input, &mut self.scanner, records)
    }
}

impl PieceSource for RowSource {
    type Piece = RowPiece;

    fn next_piece(&mut self, size: &PieceSize) -> Result<Option<RowPiece>, FormatError> {
        let mut records = Records::with_capacity(size.bytes);
        while records.len() < size.rows && records.size_bytes() < size.bytes.max(1) && self.read(&mut records)? {}
        if records.len() == 0 {
            return Ok(None);
        }
        let first_row = self.row_next;
        self.row_next += records.len() as u64;
        Ok(Some(RowPiece { records, first_row }))
    }

    fn extent(piece: &RowPiece) -> Extent {
        Extent { bytes: piece.records.size_bytes(), rows: piece.records.len(), tree_bytes: 0 }
    }
}

fn scanner(input: &Input, dialect: Dialect) -> Result<Scanner<Content>, FormatError> {
    let mut content = input.content()?;
    let head = content.fill_buf().map_err(|error| FormatError::reading(&input.path, error))?;
    if head.starts_with(b"\xef\xbb\xbf") {
        content.consume(3);
    }
    let preamble = dialect.preamble;
    io::copy(&mut content.by_ref().take(preamble.bytes as u64), &mut io::sink())
        .map_err(|error| FormatError::reading(&input.path, error))?;
    let mut scanner = Scanner::new(content, dialect.separator, dialect.quote);
    scanner.skip_lines(preamble.lines);
    Ok(scanner)
}

fn next(input: &Input, scanner: &mut Scanner<Content>, records: &mut Records) -> Result<bool, FormatError> {
    let path = &input.path;
    scanner.next(records).map_err(|error| match error {
        ScanError::Io(error) => FormatError::reading(path, error),
        ScanError::UnclosedQuote(line) => {
            FormatError::damaged(path, Location::Line(line), "a quote is opened and never closed")
        }
        ScanError::Nul(line) => FormatError::refused(
            path,
            Location::Line(line),
            "there is a NUL byte",
            "the file is not text in UTF-8; convert it, or remove the NUL bytes",
        ),
        ScanError::TooLong(line) => FormatError::refused(
            path,
            Location::Line(line),
            format!("the record is longer than {RECORD_BYTES_MAX} bytes"),
            "check that lines end with a line feed",
        ),
    })
}

/// The fields of a valid record, or the reason why it is refused.
fn texts(record: Record<'_>, column_count: usize) -> Result<Texts<'_>, String> {
    if let Some(fault) = record.fault {
        return Err(fault.to_string());
    }
    if record.len() != column_count {
        return Err(format!("the row has {} fields, the header {column_count}", record.len()));
    }
    record.texts().map_err(|(column, byte)| {
        format!("field {} is not UTF-8 (byte value 0x{byte:02X}); convert the file to UTF-8", column + 1)
    })
}

/// Learns the types of columns from their values.
struct Survey {
    names: Vec<String>,
    origins: Vec<Origin>,
    field_count: usize,
    nulls: Vec<String>,
    decimal_comma: bool,
}

impl Survey {
    /// Observations on each column over the whole file, and the number of rows.
    fn all(self, input: &Input, rows: RowSource, size: PieceSize) -> Result<(Vec<Observed>, u64), FormatError> {
        let mut all = self.nothing();
        let mut row_count = 0;
        let observe = move |piece: RowPiece| (self.observe(&piece), piece.records.len());
        let mut pieces = Pieces::new(&input.path, rows, size, observe);
        while let Some((observed, rows)) = pieces.next()? {
            all.iter_mut().zip(observed).for_each(|(all, observed)| all.merge(observed));
            row_count += rows as u64;
        }
        Ok((all, row_count))
    }

    fn nothing(&self) -> Vec<Observed> {
        self.names.iter().map(|name| Observed::for_column(name)).collect()
    }

    fn observe(&self, piece: &RowPiece) -> Vec<Observed> {
        let mut all = self.nothing();
        for (row, record) in (piece.first_row..).zip(piece.records.iter()) {
            // Refused records teach nothing.
            let Ok(texts) = texts(record, self.field_count) else { continue };
            for (origin, observed) in self.origins.iter().zip(&mut all) {
                let Origin::Field(index) = *origin else { continue };
                let (text, _) = texts.field(index);
                if self.nulls.iter().any(|null| null == text) {
                    continue;
                }
                let text = without_blanks(text);
                if !text.is_empty() {
                    observed.text(row, text, self.decimal_comma);
                }
            }
        }
        all
    }
}

/// The source of a column's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Field(usize),
    /// One of the two coordinates in a field.
    X(usize),
    Y(usize),
}

/// The columns that the fields become, and the source of each.
fn columns_of(
    input: &Input,
    fields: &[String],
    options: &ReadOptions,
) -> Result<(Vec<String>, Vec<Origin>), FormatError> {
    let mut origins: Vec<Origin> = (0..fields.len()).map(Origin::Field).collect();
    let mut names = fields.to_vec();
    if let Some(pair) = &options.pair {
        let shown: Vec<&str> = fields.iter().map(String::as_str).collect();
        pair.check(&input.path, &shown)?;
        let place = fields.iter().position(|name| *name == pair.column).unwrap_or_default();
        names.splice(place..=place, pair.names.clone());
        origins.splice(place..=place, [Origin::X(place), Origin::Y(place)]);
    }
    Ok((names, origins))
}

/// Converts the fields of a record to values.
struct Converter {
    rows: RowPlan,
    /// The source of each column.
    origins: Vec<Origin>,
    /// Number of fields in a record.
    field_count: usize,
    nulls: Vec<String>,
    pair: Option<CoordinatePair>,
    geometry_reader: GeometryReader,
    dialect: Dialect,
}

impl Converter {
    fn convert_all(&self, piece: &RowPiece, input: &Input) -> Result<Batch, FormatError> {
        let mut rows = RowBuilder::new(&self.rows, piece.records.len());
        for (row, record) in (piece.first_row..).zip(piece.records.iter()) {
            if let Err(reason) = self.convert(record).and_then(|scalars| rows.push(row, scalars)) {
                rows.reject(row, record.line, reason, record.to_line(self.dialect.separator));
            }
        }
        rows.finish(&input.path)
    }

    fn convert<'a>(&self, record: Record<'a>) -> Result<Vec<Scalar<'a>>, String> {
        let texts = texts(record, self.field_count)?;
        let mut scalars = Vec::with_capacity(self.origins.len());
        for (column, origin) in self.rows.columns.iter().zip(&self.origins) {
            scalars.push(self.scalar(texts, column, *origin)?);
        }
        Ok(scalars)
    }

    fn scalar<'a>(&self, texts: Texts<'a>, column: &ColumnPlan, origin: Origin) -> Result<Scalar<'a>, String> {
        let (Origin::Field(index) | Origin::X(index) | Origin::Y(index)) = origin;
        let (text, is_quoted) = texts.field(index);
        if self.nulls.iter().any(|null| null == text) {
            return Ok(Scalar::Null);
        }
        if let (Origin::X(_) | Origin::Y(_), Some(pair)) = (origin, &self.pair) {
            let coordinate = pair.place(text)?.map(|place| if origin == Origin::X(index) { place.x } else { place.y });
            return Ok(coordinate.map_or(Scalar::Null, Scalar::Float64));
        }
        match column.role {
            Role::Geometry if text.trim().is_empty() => Ok(Scalar::Null),
            Role::Geometry => self.geometry_reader.text(text).map(|wkb| Scalar::Binary(wkb.into())),
            _ => text_scalar(text, is_quoted, column, self.dialect.decimal_comma),
        }
        .map_err(|reason| format!("column {:?}: {reason}", column.name))
    }
}

struct CsvReader {
    batches: Pieces<RowSource, Result<Batch, FormatError>>,
    geometry_reader: GeometryReader,
}

impl BatchReader for CsvReader {
    fn next_batch(&mut self) -> Result<Option<Batch>, FormatError> {
        self.batches.next()?.transpose()
    }

    fn notices(&self) -> Vec<String> {
        self.geometry_reader.notices()
    }
}
