//! Cuts a byte stream into records and fields.
//!
//! A record ends at LF, CRLF or CR outside quotes. A field that starts with a
//! quote ends at the next single quote; two quotes stand for one. A quote
//! inside an unquoted field is an ordinary character. Blank lines are skipped.

use std::io::{self, BufRead};

/// Most bytes of a record.
pub(crate) const RECORD_BYTES_MAX: usize = 64 << 20;

/// Most fields of a record: several times the columns of a dataset.
const FIELDS_MAX: usize = 10_000;

/// The fault of a record with more fields.
const TOO_MANY_FIELDS: &str = "the row has too many fields";

/// The byte behind a field that was not taken verbatim.
const FIELD_END: u8 = b'\n';

/// Consecutive records.
#[derive(Debug, Default)]
pub(crate) struct Records {
    /// The texts of the fields, each followed by one ASCII byte.
    bytes: Vec<u8>,
    fields: Vec<FieldEnd>,
    records: Vec<RecordPlace>,
}

/// The end of a field in the bytes, and whether it was quoted.
#[derive(Debug, Clone, Copy)]
struct FieldEnd {
    end: usize,
    is_quoted: bool,
}

#[derive(Debug, Clone, Copy)]
struct RecordPlace {
    /// Number of fields and bytes up to the end of the record.
    fields_end: usize,
    bytes_end: usize,
    line: u64,
    fault: Option<&'static str>,
}

impl Records {
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Memory that they take.
    pub(crate) fn size_bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&self.fields[..]) + size_of_val(&self.records[..])
    }

    /// With capacity for about this many bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Records {
        Records { bytes: Vec::with_capacity(bytes), ..Records::default() }
    }

    pub(crate) fn get(&self, index: usize) -> Record<'_> {
        let (first_field, first_byte) = self.end_of(index);
        let RecordPlace { fields_end, bytes_end, line, fault } = self.records[index];
        let fields = &self.fields[first_field..fields_end];
        Record { bytes: &self.bytes[first_byte..bytes_end], start: first_byte, fields, line, fault }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Record<'_>> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Number of fields and bytes of the first records.
    fn end_of(&self, count: usize) -> (usize, usize) {
        match count {
            0 => (0, 0),
            _ => (self.records[count - 1].fields_end, self.records[count - 1].bytes_end),
        }
    }

    /// Bytes so far of the record being read.
    fn open_len(&self) -> usize {
        self.bytes.len() - self.end_of(self.len()).1
    }

    fn end_field(&mut self, open: &mut OpenRecord, is_quoted: bool) {
        if self.fields.len() - self.end_of(self.len()).0 < FIELDS_MAX {
            self.fields.push(FieldEnd { end: self.bytes.len(), is_quoted });
        } else {
            open.fault = Some(TOO_MANY_FIELDS);
        }
        self.bytes.push(FIELD_END);
    }

    /// Adds a record without quotes, and without the end of its line.
    fn push_plain(&mut self, line: u64, bytes: &[u8], separator: u8) {
        let mut open = OpenRecord { line, fault: None };
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.bytes.push(FIELD_END);
        let fields_start = self.fields.len();
        let ends = memchr::memchr_iter(separator, bytes).chain(std::iter::once(bytes.len()));
        self.fields.extend(ends.map(|end| FieldEnd { end: start + end, is_quoted: false }));
        if self.fields.len() - fields_start > FIELDS_MAX {
            self.fields.truncate(fields_start + FIELDS_MAX);
            open.fault = Some(TOO_MANY_FIELDS);
        }
        self.end_record(open);
    }

    fn end_record(&mut self, open: OpenRecord) {
        self.records.push(RecordPlace {
            fields_end: self.fields.len(),
            bytes_end: self.bytes.len(),
            line: open.line,
            fault: open.fault,
        });
    }
}

/// The record being read.
struct OpenRecord {
    line: u64,
    fault: Option<&'static str>,
}

/// One record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record<'r> {
    bytes: &'r [u8],
    /// Offset of these bytes in the bytes that field ends refer to.
    start: usize,
    fields: &'r [FieldEnd],
    /// The line on which the record starts, counted from 1.
    pub line: u64,
    /// Why the record cannot be used, if so.
    pub fault: Option<&'static str>,
}

impl<'r> Record<'r> {
    pub(crate) fn len(&self) -> usize {
        self.fields.len()
    }

    fn field_place(&self, index: usize) -> (usize, usize, bool) {
        let start = match index {
            0 => 0,
            _ => self.fields[index - 1].end + 1 - self.start,
        };
        let FieldEnd { end, is_quoted } = self.fields[index];
        (start, end - self.start, is_quoted)
    }

    /// The bytes of a field and whether it was quoted.
    pub(crate) fn field(&self, index: usize) -> (&'r [u8], bool) {
        let (start, end, is_quoted) = self.field_place(index);
        (&self.bytes[start..end], is_quoted)
    }

    /// The fields as text, or the first field that is not UTF-8 and its invalid byte.
    pub(crate) fn texts(self) -> Result<Texts<'r>, (usize, u8)> {
        match std::str::from_utf8(self.bytes) {
            Ok(text) => Ok(Texts { text, record: self }),
            Err(_) => Err(self.first_fault()),
        }
    }

    #[cold]
    fn first_fault(&self) -> (usize, u8) {
        for index in 0..self.len() {
            let (bytes, _) = self.field(index);
            if let Err(error) = std::str::from_utf8(bytes) {
                return (index, bytes[error.valid_up_to()]);
            }
        }
        (0, 0)
    }

    /// The record as a line of CSV, for reports.
    pub(crate) fn to_line(self, separator: u8) -> String {
        let mut line = String::new();
        for index in 0..self.len() {
            if index > 0 {
                line.push(char::from(separator));
            }
            let (bytes, is_quoted) = self.field(index);
            let text = String::from_utf8_lossy(bytes);
            if is_quoted {
                line.push('"');
                line.push_str(&text.replace('"', "\"\""));
                line.push('"');
            } else {
                line.push_str(&text);
            }
        }
        line
    }
}

/// The fields of a record as texts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Texts<'r> {
    text: &'r str,
    record: Record<'r>,
}

impl<'r> Texts<'r> {
    /// A field, and whether it was quoted.
    pub(crate) fn field(&self, index: usize) -> (&'r str, bool) {
        let (start, end, is_quoted) = self.record.field_place(index);
        (&self.text[start..end], is_quoted)
    }
}

/// A fault that ends the reading of the file.
#[derive(Debug)]
pub(crate) enum ScanError {
    Io(io::Error),
    /// A quote that is never closed, opened on this line.
    UnclosedQuote(u64),
    /// A NUL byte, on this line.
    Nul(u64),
    /// A record that does not end, begun on this line.
    TooLong(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    RecordStart,
    FieldStart,
    Unquoted,
    Quoted,
    /// After a quote inside a quoted field: its end, or half of a pair.
    QuoteSeen,
    /// After text that follows a closing quote.
    AfterQuote,
}

/// Reads records from `content`.
pub(crate) struct Scanner<R> {
    content: R,
    separator: u8,
    /// The character that encloses fields, if any.
    quote: Option<u8>,
    line: u64,
    /// The last byte was a CR that ended a record; a following LF belongs to it.
    after_return: bool,
}

impl<R: BufRead> Scanner<R> {
    pub(crate) fn new(content: R, separator: u8, quote: Option<u8>) -> Scanner<R> {
        Scanner { content, separator, quote, line: 1, after_return: false }
    }

    /// Counts lines that were consumed before.
    pub(crate) fn skip_lines(&mut self, count: u64) {
        self.line += count;
    }

    /// Adds the next record to `records`; `false` at the end.
    pub(crate) fn next(&mut self, records: &mut Records) -> Result<bool, ScanError> {
        let mut record = OpenRecord { line: self.line, fault: None };
        let mut state = State::RecordStart;
        let mut quote_line = self.line;
        loop {
            let available = match self.content.fill_buf() {
                Ok(available) => available,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(ScanError::Io(error)),
            };
            if available.is_empty() {
                return Self::end_of_file(records, record, state, quote_line);
            }
            if state == State::RecordStart
                && let Some((line, length)) = plain_line(available, self.quote)
            {
                records.push_plain(self.line, line, self.separator);
                self.after_return = false;
                self.line += 1;
                self.content.consume(length);
                return Ok(true);
            }
            let mut index = 0;
            let mut is_complete = false;
            while index < available.len() {
                // Runs of ordinary bytes are copied at once.
                if matches!(state, State::Unquoted | State::Quoted) {
                    let (separator, quote) = (self.separator, self.quote);
                    let run = if state == State::Quoted {
                        run_length(&available[index..], |byte| quote == Some(byte) || matches!(byte, b'\n' | 0))
                    } else {
                        run_length(&available[index..], |byte| byte == separator || matches!(byte, b'\n' | b'\r' | 0))
                    };
                    records.bytes.extend_from_slice(&available[index..index + run]);
                    index += run;
                    if index == available.len() {
                        break;
                    }
                }
                let byte = available[index];
                index += 1;
                if byte == 0 {
                    return Err(ScanError::Nul(self.line));
                }
                let was_after_return = std::mem::take(&mut self.after_return);
                if byte == b'\n' && !(was_after_return && state == State::RecordStart) {
                    self.line += 1;
                }
                if state == State::Quoted {
                    match byte {
                        byte if self.quote == Some(byte) => state = State::QuoteSeen,
                        byte => records.bytes.push(byte),
                    }
                    continue;
                }
                if byte == b'\n' || byte == b'\r' {
                    if byte == b'\r' {
                        self.after_return = true;
                        self.line += 1;
                    }
                    if state == State::RecordStart {
                        record.line = self.line;
                        continue;
                    }
                    records.end_field(&mut record, matches!(state, State::QuoteSeen | State::AfterQuote));
                    is_complete = true;
                    break;
                }
                if byte == self.separator {
                    records.end_field(&mut record, matches!(state, State::QuoteSeen | State::AfterQuote));
                    state = State::FieldStart;
                    continue;
                }
                match (state, byte) {
                    (State::RecordStart | State::FieldStart, byte) if self.quote == Some(byte) => {
                        quote_line = self.line;
                        state = State::Quoted;
                    }
                    (State::QuoteSeen, byte) if self.quote == Some(byte) => {
                        records.bytes.push(byte);
                        state = State::Quoted;
                    }
                    (State::QuoteSeen | State::AfterQuote, byte) => {
                        record.fault = Some("there is text after a closing quote");
                        records.bytes.push(byte);
                        state = State::AfterQuote;
                    }
                    (_, byte) => {
                        records.bytes.push(byte);
                        state = State::Unquoted;
                    }
                }
            }
            self.content.consume(index);
            if is_complete {
                records.end_record(record);
                return Ok(true);
            }
            if records.open_len() > RECORD_BYTES_MAX {
                return Err(match state {
                    State::Quoted => ScanError::UnclosedQuote(quote_line),
                    _ => ScanError::TooLong(record.line),
                });
            }
        }
    }

    fn end_of_file(
        records: &mut Records,
        mut record: OpenRecord,
        state: State,
        quote_line: u64,
    ) -> Result<bool, ScanError> {
        match state {
            State::RecordStart => Ok(false),
            State::Quoted => Err(ScanError::UnclosedQuote(quote_line)),
            _ => {
                records.end_field(&mut record, matches!(state, State::QuoteSeen | State::AfterQuote));
                records.end_record(record);
                Ok(true)
            }
        }
    }
}

/// The first line of `bytes` and its length with its end, if the line is whole, not empty, and has
/// no special byte.
fn plain_line(bytes: &[u8], quote: Option<u8>) -> Option<(&[u8], usize)> {
    let end = memchr::memchr(b'\n', bytes)?;
    let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
    let is_plain = !line.is_empty() && memchr::memchr3(quote.unwrap_or(0), b'\r', 0, line).is_none();
    is_plain.then_some((line, end + 1))
}

fn run_length(bytes: &[u8], is_end: impl Fn(u8) -> bool) -> usize {
    bytes.iter().position(|&byte| is_end(byte)).unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(text: &str) -> Result<Vec<Vec<(String, bool)>>, ScanError> {
        // A tiny buffer makes every token straddle its edges; a large one holds whole lines.
        let [small, large] = [3, 1 << 16].map(|capacity| {
            let content = io::BufReader::with_capacity(capacity, text.as_bytes());
            let mut scanner = Scanner::new(content, b',', Some(b'"'));
            let mut records = Records::default();
            while scanner.next(&mut records)? {}
            Ok(fields_of(&records))
        });
        assert_eq!(format!("{small:?}"), format!("{large:?}"), "{text:?}");
        large
    }

    fn fields_of(records: &Records) -> Vec<Vec<(String, bool)>> {
        let all = records.iter().map(|record| {
            (0..record.len())
                .map(|index| {
                    let (bytes, is_quoted) = record.field(index);
                    (String::from_utf8_lossy(bytes).into_owned(), is_quoted)
                })
                .collect()
        });
        all.collect()
    }

    fn plain(fields: &[&str]) -> Vec<(String, bool)> {
        fields.iter().map(|field| (field.to_string(), false)).collect()
    }

    #[test]
    fn line_ends_of_all_kinds_end_records() {
        let expected = vec![plain(&["a", "b"]), plain(&["c", ""]), plain(&["", "d"])];
        for text in ["a,b\nc,\n,d\n", "a,b\r\nc,\r\n,d", "a,b\rc,\r,d\r", "\n\na,b\n\nc,\r\n\r\n,d\n"] {
            assert_eq!(records(text).expect("valid"), expected, "{text:?}");
        }
    }

    #[test]
    fn quotes_protect_and_are_noticed() {
        let all = records("\"a\r\n\"\"b\"\"\",\"\",c\"d\n").expect("valid");
        assert_eq!(
            all,
            vec![vec![("a\r\n\"b\"".to_string(), true), (String::new(), true), ("c\"d".to_string(), false)]]
        );
    }

    #[test]
    fn an_unclosed_quote_names_the_line_it_opens_on() {
        assert!(matches!(records("a\nb,\"c\nd\ne\n"), Err(ScanError::UnclosedQuote(2))));
    }

    #[test]
    fn nul_bytes_are_refused() {
        assert!(matches!(records("a\nb\0"), Err(ScanError::Nul(2))));
        assert!(matches!(records("\"a\0\""), Err(ScanError::Nul(1))));
    }

    #[test]
    fn lines_are_counted_through_quoted_line_ends() {
        let mut scanner = Scanner::new("a\r\n\"b\n\n\"\r\n\r\nc\rd\n".as_bytes(), b',', Some(b'"'));
        let mut records = Records::default();
        while scanner.next(&mut records).expect("valid") {}
        let lines: Vec<u64> = records.iter().map(|record| record.line).collect();
        assert_eq!(lines, [1, 2, 6, 7]);
    }
}
