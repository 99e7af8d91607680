//! Cutting a byte stream into records and fields.
//!
//! A record ends at LF, CRLF or CR outside quotes. A field that starts with a
//! quote ends at the next single quote; two quotes stand for one. A quote
//! inside an unquoted field is an ordinary character. Blank lines are skipped.

use std::io::{self, BufRead};

/// How long one record may be.
pub(crate) const RECORD_BYTES_MAX: usize = 64 << 20;

/// How many fields one record may have: several times as many as a dataset has columns.
const FIELDS_MAX: usize = 10_000;

/// One record. The buffers are used again for the next.
#[derive(Debug, Default)]
pub(crate) struct Record {
    bytes: Vec<u8>,
    /// Where each field ends in `bytes`, and whether it was quoted.
    fields: Vec<(usize, bool)>,
    /// The line on which the record starts, counted from 1.
    pub line: u64,
    /// Why the record cannot be used, if so.
    pub fault: Option<&'static str>,
}

impl Record {
    pub(crate) fn len(&self) -> usize {
        self.fields.len()
    }

    /// The bytes of a field and whether it was quoted.
    pub(crate) fn field(&self, index: usize) -> (&[u8], bool) {
        let start = match index {
            0 => 0,
            _ => self.fields[index - 1].0,
        };
        let (end, is_quoted) = self.fields[index];
        (&self.bytes[start..end], is_quoted)
    }

    /// The fields as text, or the first one that is not UTF-8, and its byte that is not.
    pub(crate) fn texts(&self) -> Result<Texts<'_>, (usize, u8)> {
        let texts = std::str::from_utf8(&self.bytes).ok().map(|text| Texts { text, fields: &self.fields });
        // Bytes of two fields may be a character together.
        let is_whole = |texts: &Texts<'_>| self.fields.iter().all(|(end, _)| texts.text.is_char_boundary(*end));
        match texts.filter(is_whole) {
            Some(texts) => Ok(texts),
            None => Err(self.first_fault()),
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
    pub(crate) fn to_line(&self, separator: u8) -> String {
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

    fn clear(&mut self, line: u64) {
        self.bytes.clear();
        self.fields.clear();
        self.line = line;
        self.fault = None;
    }

    fn end_field(&mut self, is_quoted: bool) {
        if self.fields.len() < FIELDS_MAX {
            self.fields.push((self.bytes.len(), is_quoted));
        } else {
            self.fault = Some("the row has too many fields");
        }
    }
}

/// The fields of a record as texts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Texts<'r> {
    text: &'r str,
    fields: &'r [(usize, bool)],
}

impl<'r> Texts<'r> {
    /// A field, and whether it was quoted.
    pub(crate) fn field(&self, index: usize) -> (&'r str, bool) {
        let start = match index {
            0 => 0,
            _ => self.fields[index - 1].0,
        };
        let (end, is_quoted) = self.fields[index];
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
    /// What encloses fields, if anything does.
    quote: Option<u8>,
    line: u64,
    /// The last byte was a CR that ended a record; an LF belongs to it.
    after_return: bool,
}

impl<R: BufRead> Scanner<R> {
    pub(crate) fn new(content: R, separator: u8, quote: Option<u8>) -> Scanner<R> {
        Scanner { content, separator, quote, line: 1, after_return: false }
    }

    /// Counts lines that were taken from the content before.
    pub(crate) fn skip_lines(&mut self, count: u64) {
        self.line += count;
    }

    /// Reads the next record; `false` at the end.
    pub(crate) fn next(&mut self, record: &mut Record) -> Result<bool, ScanError> {
        record.clear(self.line);
        let mut state = State::RecordStart;
        let mut quote_line = self.line;
        loop {
            let available = match self.content.fill_buf() {
                Ok(available) => available,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(ScanError::Io(error)),
            };
            if available.is_empty() {
                return Self::end_of_file(record, state, quote_line);
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
                    record.bytes.extend_from_slice(&available[index..index + run]);
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
                        byte => record.bytes.push(byte),
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
                    record.end_field(matches!(state, State::QuoteSeen | State::AfterQuote));
                    is_complete = true;
                    break;
                }
                if byte == self.separator {
                    record.end_field(matches!(state, State::QuoteSeen | State::AfterQuote));
                    state = State::FieldStart;
                    continue;
                }
                match (state, byte) {
                    (State::RecordStart | State::FieldStart, byte) if self.quote == Some(byte) => {
                        quote_line = self.line;
                        state = State::Quoted;
                    }
                    (State::QuoteSeen, byte) if self.quote == Some(byte) => {
                        record.bytes.push(byte);
                        state = State::Quoted;
                    }
                    (State::QuoteSeen | State::AfterQuote, byte) => {
                        record.fault = Some("there is text after a closing quote");
                        record.bytes.push(byte);
                        state = State::AfterQuote;
                    }
                    (_, byte) => {
                        record.bytes.push(byte);
                        state = State::Unquoted;
                    }
                }
            }
            self.content.consume(index);
            if is_complete {
                return Ok(true);
            }
            if record.bytes.len() > RECORD_BYTES_MAX {
                return Err(match state {
                    State::Quoted => ScanError::UnclosedQuote(quote_line),
                    _ => ScanError::TooLong(record.line),
                });
            }
        }
    }

    fn end_of_file(record: &mut Record, state: State, quote_line: u64) -> Result<bool, ScanError> {
        match state {
            State::RecordStart => Ok(false),
            State::Quoted => Err(ScanError::UnclosedQuote(quote_line)),
            _ => {
                record.end_field(matches!(state, State::QuoteSeen | State::AfterQuote));
                Ok(true)
            }
        }
    }
}

fn run_length(bytes: &[u8], is_end: impl Fn(u8) -> bool) -> usize {
    bytes.iter().position(|&byte| is_end(byte)).unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(text: &str) -> Result<Vec<Vec<(String, bool)>>, ScanError> {
        // A tiny buffer makes every token straddle its edges.
        let content = io::BufReader::with_capacity(3, text.as_bytes());
        let mut scanner = Scanner::new(content, b',', Some(b'"'));
        let mut record = Record::default();
        let mut all = Vec::new();
        while scanner.next(&mut record)? {
            all.push(
                (0..record.len())
                    .map(|index| {
                        let (bytes, is_quoted) = record.field(index);
                        (String::from_utf8_lossy(bytes).into_owned(), is_quoted)
                    })
                    .collect(),
            );
        }
        Ok(all)
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
        let mut record = Record::default();
        let mut lines = Vec::new();
        while scanner.next(&mut record).expect("valid") {
            lines.push(record.line);
        }
        assert_eq!(lines, [1, 2, 6, 7]);
    }
}
