//! JSON texts separated by line ends, or by record separators (RFC 8142).

use std::io::{self, BufRead};
use std::path::PathBuf;

use super::probe::{JsonShape, shape_of};
use super::record_text::{RECORD_BYTES_MAX, RecordText, RecordTexts};
use crate::error::{FormatError, Location};
use crate::format::HEAD_BYTES;
use crate::input::{Content, Input};

const RECORD_SEPARATOR: u8 = 0x1e;

/// Reads one text after another.
pub(super) struct LineReader {
    path: PathBuf,
    content: Content,
    separator: u8,
    line_next: u64,
    offset_next: u64,
    buffer: Vec<u8>,
}

impl LineReader {
    pub(super) fn new(input: &Input) -> Result<LineReader, FormatError> {
        let mut content = input.content()?;
        let head = content.fill_buf().map_err(|error| FormatError::reading(&input.path, error))?;
        let bom_length = if head.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        let separator = if head[bom_length..].first() == Some(&RECORD_SEPARATOR) { RECORD_SEPARATOR } else { b'\n' };
        content.consume(bom_length);
        Ok(LineReader {
            path: input.path.clone(),
            content,
            separator,
            line_next: 1,
            offset_next: bom_length as u64,
            buffer: Vec::new(),
        })
    }

    /// Adds the next text that is not blank; false at the end.
    pub(super) fn next(&mut self, texts: &mut RecordTexts) -> Result<bool, FormatError> {
        loop {
            self.buffer.clear();
            let count = self.read_text()?;
            if count == 0 {
                return Ok(false);
            }
            let (line, offset) = (self.line_next, self.offset_next);
            self.offset_next += count as u64;
            self.line_next += match self.separator {
                b'\n' => 1,
                _ => self.buffer.iter().filter(|&&byte| byte == b'\n').count() as u64,
            };
            let text = self.buffer.strip_suffix(&[self.separator]).unwrap_or(&self.buffer);
            let text = text.strip_prefix(&[RECORD_SEPARATOR]).unwrap_or(text);
            let text = text.trim_ascii();
            if !text.is_empty() {
                texts.push(RecordText { line, offset, must_be_feature: false, bytes: text });
                return Ok(true);
            }
        }
    }

    /// Whether another line that is not blank follows, in a file with one record per line. Consumes
    /// the blanks before it.
    pub(super) fn is_followed(&mut self) -> Result<bool, FormatError> {
        if self.separator != b'\n' {
            return Ok(false);
        }
        loop {
            let available = match self.content.fill_buf() {
                Ok(available) => available,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(FormatError::reading(&self.path, error)),
            };
            if available.is_empty() || !available.iter().all(u8::is_ascii_whitespace) {
                return Ok(!available.is_empty());
            }
            let count = available.len();
            self.line_next += available.iter().filter(|&&byte| byte == b'\n').count() as u64;
            self.offset_next += count as u64;
            self.content.consume(count);
        }
    }

    /// Reads up to and including the separator; returns the number of bytes.
    fn read_text(&mut self) -> Result<usize, FormatError> {
        loop {
            let available = match self.content.fill_buf() {
                Ok(available) => available,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(FormatError::reading(&self.path, error)),
            };
            let end = memchr::memchr(self.separator, available);
            let count = end.map_or(available.len(), |end| end + 1);
            if self.buffer.len() + count > RECORD_BYTES_MAX {
                return Err(FormatError::refused(
                    &self.path,
                    Location::Line(self.line_next),
                    format!("a record is longer than {RECORD_BYTES_MAX} bytes"),
                    "write one record per line",
                ));
            }
            self.buffer.extend_from_slice(&available[..count]);
            self.content.consume(count);
            if end.is_some() || count == 0 {
                return Ok(self.buffer.len());
            }
        }
    }
}

/// Advice for a file with a value that takes several lines.
pub(super) fn advice_on_values_of_lines(input: &Input) -> Result<&'static str, FormatError> {
    let head = input.head(HEAD_BYTES)?;
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&head).trim_ascii_start();
    Ok(match text.first() {
        Some(b'[') => {
            "NDJSON has one record per line: write each element of the array on a line of its own, without the brackets \
             and the commas between"
        }
        Some(b'{') if matches!(shape_of(input, &head)?, JsonShape::Document { geojson: true }) => {
            "NDJSON has one record per line: as the file is one GeoJSON document, give it a name in .geojson or .json"
        }
        _ => "NDJSON has one record per line: write each record on one line",
    })
}
