//! Reading separated values into batches, in two passes: the first checks the
//! whole file and learns the types, the second converts.

use std::io::{self, BufRead, Read};

use super::dialect::{self, Dialect};
use super::scanner::{RECORD_BYTES_MAX, Record, ScanError, Scanner, Texts};
use crate::crs::DeclaredCrs;
use crate::error::{FormatError, Location};
use crate::geometry::GeometryReader;
use crate::input::{Content, Input};
use crate::layout::{ColumnSeen, Layout, empty_columns};
use crate::pair::CoordinatePair;
use crate::rows::{ColumnPlan, Role, RowBuilder, Scalar, schema_of, text_scalar};
use crate::source::{Batch, BatchReader, Header, Opened, ReadOptions};
use crate::types::Observed;

/// Opens a file of separated values.
pub(crate) fn open(input: Input, options: &ReadOptions) -> Result<Opened, FormatError> {
    let dialect = dialect::detect(&input, options)?;
    let mut warnings: Vec<String> = dialect.preamble.warning().into_iter().collect();
    let mut scanner = scanner(&input, dialect)?;
    let mut record = Record::default();
    if !next(&input, &mut scanner, &mut record)? {
        return Err(FormatError::damaged(&input.path, Location::File, "the file holds no record"));
    }
    let fields = dialect::column_names(&input, &record, options, dialect.decimal_comma, &mut warnings)?;
    let (names, origins) = columns_of(&input, &fields, options)?;
    let mut observed: Vec<Observed> = names.iter().map(|name| Observed::for_column(name)).collect();
    let mut row_count = 0;
    let mut has_record = options.header == Header::Absent || next(&input, &mut scanner, &mut record)?;
    while has_record {
        row_count += 1;
        if let Ok(texts) = texts(&record, fields.len()) {
            observe(texts, row_count, dialect, &options.nulls, &origins, &mut observed);
        }
        has_record = next(&input, &mut scanner, &mut record)?;
    }
    let seen: Vec<ColumnSeen<'_>> =
        names.iter().zip(&observed).map(|(name, observed)| ColumnSeen { name, observed }).collect();
    let mut layout = Layout::new(&input.path, &seen, options, false)?;
    let empty_columns = empty_columns(&seen);
    layout.settle_integers(options);
    warnings.extend(layout.warnings);
    if row_count == 0 {
        warnings
            .push("there are no rows to tell the types of columns by; a new dataset takes them for text".to_string());
    }
    if dialect.decimal_comma {
        warnings.push("numbers are read with a decimal comma".to_string());
    }
    let geometry_reader =
        GeometryReader::new(&input.path, &DeclaredCrs::Undeclared, &options.coordinates, &mut warnings)?;
    let rows = RowBuilder::new(&layout.columns, &layout.geometry, Some(geometry_reader.clone()));
    let converter = Converter {
        columns: layout.columns.clone(),
        origins,
        field_count: fields.len(),
        nulls: options.nulls.clone(),
        pair: options.pair.clone(),
        geometry_reader,
        decimal_comma: dialect.decimal_comma,
    };
    let mut reader =
        CsvReader { scanner: self::scanner(&input, dialect)?, input, dialect, converter, rows, record, row: 0 };
    if options.header == Header::Present {
        next(&reader.input, &mut reader.scanner, &mut reader.record)?;
    }
    Ok(Opened {
        schema: schema_of(&layout.columns),
        geometry: layout.geometry,
        warnings,
        row_count_hint: Some(row_count),
        stored_types: Vec::new(),
        empty_columns,
        reader: Box::new(reader),
    })
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

fn next(input: &Input, scanner: &mut Scanner<Content>, record: &mut Record) -> Result<bool, FormatError> {
    let path = &input.path;
    scanner.next(record).map_err(|error| match error {
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

/// The fields of a record that can be used, or the reason why it cannot.
fn texts(record: &Record, column_count: usize) -> Result<Texts<'_>, String> {
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

fn observe(
    texts: Texts<'_>,
    row: u64,
    dialect: Dialect,
    nulls: &[String],
    origins: &[Origin],
    observed: &mut [Observed],
) {
    for (origin, observed) in origins.iter().zip(observed) {
        let Origin::Field(index) = *origin else { continue };
        let (text, _) = texts.field(index);
        if nulls.iter().any(|null| null == text) {
            continue;
        }
        let text = text.trim_matches([' ', '\t']);
        if !text.is_empty() {
            observed.text(row, text, dialect.decimal_comma);
        }
    }
}

struct CsvReader {
    input: Input,
    scanner: Scanner<Content>,
    dialect: Dialect,
    converter: Converter,
    rows: RowBuilder,
    record: Record,
    row: u64,
}

/// Where the value of a column comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Field(usize),
    /// A coordinate of the field that holds two.
    X(usize),
    Y(usize),
}

/// The columns that the fields make, and where each comes from.
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

/// Makes values of the fields of a record.
struct Converter {
    columns: Vec<ColumnPlan>,
    /// Where each column comes from.
    origins: Vec<Origin>,
    /// How many fields a record has.
    field_count: usize,
    nulls: Vec<String>,
    pair: Option<CoordinatePair>,
    geometry_reader: GeometryReader,
    decimal_comma: bool,
}

impl Converter {
    fn convert<'a>(&self, record: &'a Record) -> Result<Vec<Scalar<'a>>, String> {
        let texts = texts(record, self.field_count)?;
        let columns = self.columns.iter().zip(&self.origins);
        columns.map(|(column, origin)| self.scalar(texts, column, *origin)).collect()
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
            _ => text_scalar(text, is_quoted, column, self.decimal_comma),
        }
        .map_err(|reason| format!("column {:?}: {reason}", column.name))
    }
}

impl BatchReader for CsvReader {
    fn next_batch(&mut self) -> Result<Option<Batch>, FormatError> {
        while !self.rows.is_full() && next(&self.input, &mut self.scanner, &mut self.record)? {
            self.row += 1;
            let scalars = self.converter.convert(&self.record);
            let outcome = scalars.and_then(|scalars| self.rows.push(self.row, scalars));
            if let Err(reason) = outcome {
                let raw = self.record.to_line(self.dialect.separator);
                self.rows.reject(self.row, self.record.line, reason, raw);
            }
        }
        if self.rows.is_empty() {
            return Ok(None);
        }
        let batch = self.rows.finish().map_err(|error| {
            FormatError::damaged(
                &self.input.path,
                Location::Row(self.row),
                format!("the rows do not form a batch: {error}"),
            )
        })?;
        Ok(Some(batch))
    }

    fn notices(&self) -> Vec<String> {
        self.converter.geometry_reader.notices()
    }
}
