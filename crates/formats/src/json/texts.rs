//! The texts of the records of a file, cut into pieces.

use std::sync::{Arc, OnceLock};

use super::document::DocumentReader;
use super::lines::{LineReader, advice_on_values_of_lines};
use super::record::{RawRecord, replace_nulls};
use super::record_text::{RecordText, RecordTexts};
use super::strict::{JsonErrorKind, JsonValue, parse_strict};
use crate::crs::DeclaredCrs;
use crate::error::{FormatError, Location};
use crate::format::Format;
use crate::input::Input;
use crate::pieces::{Extent, PieceSize, PieceSource};
use crate::source::ReadOptions;

/// The records of a file, from its start.
pub(super) enum Records {
    Lines(LineReader),
    Document(Box<DocumentReader>),
}

impl Records {
    pub(super) fn new(input: &Input, format: Format) -> Result<Records, FormatError> {
        Ok(match format {
            Format::GeoJson | Format::JsonArray => Records::Document(Box::new(DocumentReader::new(input)?)),
            _ => Records::Lines(LineReader::new(input)?),
        })
    }

    fn next(&mut self, texts: &mut RecordTexts) -> Result<bool, FormatError> {
        match self {
            Records::Lines(reader) => reader.next(texts),
            Records::Document(reader) => reader.next(texts),
        }
    }

    /// The reference system that the file names; complete after the last record.
    pub(super) fn crs(&self) -> DeclaredCrs {
        match self {
            Records::Lines(_) => DeclaredCrs::Undeclared,
            Records::Document(reader) => reader.crs(),
        }
    }
}

/// Some records of a file.
pub(super) struct TextPiece {
    texts: RecordTexts,
    first_row: u64,
    /// Whether more lines follow the last record, each of them another record.
    is_followed: bool,
}

/// A record's text, its row, and whether its line is followed by another one.
pub(super) struct Row<'t> {
    pub number: u64,
    pub text: RecordText<'t>,
    is_followed: bool,
}

impl TextPiece {
    pub(super) fn len(&self) -> usize {
        self.texts.len()
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        let last = self.first_row + self.len() as u64 - 1;
        (self.first_row..).zip(self.texts.iter()).map(move |(number, text)| Row {
            number,
            text,
            is_followed: number < last || self.is_followed,
        })
    }
}

/// Cuts a file into pieces.
pub(super) struct TextSource {
    pub records: Records,
    row_next: u64,
}

impl TextSource {
    pub(super) fn new(input: &Input, format: Format) -> Result<TextSource, FormatError> {
        Ok(TextSource { records: Records::new(input, format)?, row_next: 1 })
    }
}

impl PieceSource for TextSource {
    type Piece = TextPiece;

    fn next_piece(&mut self, size: &PieceSize) -> Result<Option<TextPiece>, FormatError> {
        let mut texts = RecordTexts::default();
        while texts.len() < size.rows && texts.size_bytes() < size.bytes.max(1) && self.records.next(&mut texts)? {}
        if texts.len() == 0 {
            return Ok(None);
        }
        let is_followed = match &mut self.records {
            Records::Lines(reader) => reader.is_followed()?,
            Records::Document(_) => false,
        };
        let first_row = self.row_next;
        self.row_next += texts.len() as u64;
        Ok(Some(TextPiece { texts, first_row, is_followed }))
    }

    fn extent(piece: &TextPiece) -> Extent {
        let tree_bytes = piece.texts.iter().map(|text| text.bytes.len()).max().unwrap_or(0);
        Extent { bytes: piece.texts.size_bytes(), rows: piece.len(), tree_bytes }
    }
}

/// Makes records of their texts.
pub(super) struct Parser {
    pub input: Input,
    pub format: Format,
    pub options: ReadOptions,
    /// Advice for a file with values of several lines, computed once.
    advice: OnceLock<&'static str>,
}

impl Parser {
    pub(super) fn new(input: Input, format: Format, options: &ReadOptions) -> Arc<Parser> {
        Arc::new(Parser { input, format, options: options.clone(), advice: OnceLock::new() })
    }

    /// Whether records may lack a separate geometry.
    pub(super) fn is_plain(&self) -> bool {
        matches!(self.format, Format::Ndjson | Format::JsonArray)
    }

    /// Whether records of scalars consist of their members alone.
    pub(super) fn is_flat(&self) -> bool {
        self.is_plain() && self.options.nulls.is_empty() && !self.options.settles_members()
    }

    /// A record's text as a value. Bad syntax inside a document is damage to the document; in a
    /// line it spoils only that record.
    pub(super) fn parse(&self, row: &Row<'_>) -> Result<Result<RawRecord, String>, FormatError> {
        let text = &row.text;
        let is_document = matches!(self.format, Format::GeoJson | Format::JsonArray);
        let mut value = match parse_strict(text.bytes) {
            Ok(value) => value,
            Err(error) => {
                if error.kind != JsonErrorKind::Content && is_document {
                    let offset = text.offset + error.offset.unwrap_or(0) as u64;
                    return Err(FormatError::damaged(&self.input.path, Location::Byte(offset), error.reason));
                }
                let goes_on = error.kind == JsonErrorKind::Unfinished && row.is_followed;
                let reason = if goes_on { self.value_of_lines()? } else { error.to_string() };
                return Ok(Err(reason));
            }
        };
        if text.must_be_feature && value.get("type").and_then(JsonValue::as_str) != Some("Feature") {
            return Ok(Err("an element of \"features\" is not a Feature".to_string()));
        }
        replace_nulls(&mut value, &self.options.nulls);
        Ok(RawRecord::from_value(value).and_then(|mut record| {
            self.options.settle_members(&mut record.fields)?;
            Ok(record)
        }))
    }

    /// The error about a text that ends inside a value although another line follows.
    fn value_of_lines(&self) -> Result<String, FormatError> {
        let advice = match self.advice.get() {
            Some(advice) => advice,
            None => self.advice.get_or_init({
                let advice = advice_on_values_of_lines(&self.input)?;
                || advice
            }),
        };
        Ok(format!("the line ends inside a JSON value, which is cut short or continues on the next line; {advice}"))
    }
}
