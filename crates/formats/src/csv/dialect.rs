//! Detects the separator and the decimal sign of a file from its first records.

use std::collections::HashSet;

use super::scanner::{Record, Records, Scanner};
use crate::error::{FormatError, Location};
use crate::input::Input;
use crate::number::{self, NumberClass};
use crate::quoted::quoted;
use crate::source::{Header, Quote, ReadOptions};

const SAMPLE_BYTES: usize = 256 << 10;

const SEPARATORS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dialect {
    pub separator: u8,
    pub decimal_comma: bool,
    /// The character that encloses fields, if any.
    pub quote: Option<u8>,
    pub preamble: Preamble,
}

/// Lines before the header that are no records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Preamble {
    /// Bytes of those lines, without a byte order mark.
    pub bytes: usize,
    pub lines: u64,
    /// How many of them are comments.
    pub comments: u64,
}

impl Preamble {
    /// Notices for the user.
    pub(crate) fn warning(&self) -> Option<String> {
        match self.comments {
            0 => None,
            1 => Some("the first line begins with # and is skipped".to_string()),
            count => Some(format!("the first {count} lines begin with # and are skipped")),
        }
    }
}

/// Detects the dialect from the start of the file.
///
/// # Errors
/// When the file is empty or not text in UTF-8.
pub(crate) fn detect(input: &Input, options: &ReadOptions) -> Result<Dialect, FormatError> {
    let head = input.head(SAMPLE_BYTES)?;
    let is_whole = head.len() < SAMPLE_BYTES;
    if head.starts_with(&[0xff, 0xfe]) || head.starts_with(&[0xfe, 0xff]) {
        return Err(FormatError::refused(
            &input.path,
            Location::File,
            "the text is encoded as UTF-16",
            "convert it to UTF-8, for example with `iconv -f UTF-16 -t UTF-8`",
        ));
    }
    let sample = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&head);
    if sample.trim_ascii().is_empty() {
        return Err(FormatError::damaged(&input.path, Location::File, "the file is empty"));
    }
    let quote = match options.quote {
        Quote::Character(quote) => Some(quote),
        Quote::None => None,
    };
    let (preamble, said) = preamble_of(sample, options.separator);
    let sample = &sample[preamble.bytes..];
    let separator = options.separator.or(said).unwrap_or_else(|| detect_separator(sample, quote, is_whole));
    let decimal_comma = options.decimal_comma.unwrap_or_else(|| separator == b';' && has_decimal_commas(sample, quote));
    Ok(Dialect { separator, decimal_comma, quote, preamble })
}

/// The lines before the header, and the separator if one of them names it as Excel does.
fn preamble_of(sample: &[u8], separator: Option<u8>) -> (Preamble, Option<u8>) {
    let (mut preamble, mut said) = (Preamble::default(), None);
    loop {
        let rest = &sample[preamble.bytes..];
        let Some(length) = rest.iter().position(|&byte| byte == b'\n') else {
            return (preamble, said);
        };
        let (line, next) = (rest[..length].trim_ascii(), &rest[length + 1..]);
        if let Some(named) = named_separator(line).filter(|_| preamble.lines == 0) {
            said = Some(named);
        } else if line.starts_with(b"#") && !is_header_of(line, next, separator.or(said)) {
            preamble.comments += 1;
        } else {
            return (preamble, said);
        }
        preamble.bytes += length + 1;
        preamble.lines += 1;
    }
}

/// The separator of a line `sep=;`.
fn named_separator(line: &[u8]) -> Option<u8> {
    let line = line.strip_prefix(b"\"").and_then(|line| line.strip_suffix(b"\"")).unwrap_or(line);
    match line {
        [s, e, p, b'=', separator] if [s, e, p].map(u8::to_ascii_lowercase) == *b"sep" => {
            Some(*separator).filter(u8::is_ascii)
        }
        // A tab at the end is trimmed as a blank.
        [s, e, p, b'='] if [s, e, p].map(u8::to_ascii_lowercase) == *b"sep" => Some(b'\t'),
        _ => None,
    }
}

/// Whether a line that begins with `#` is the header: it has as many fields as the next line.
fn is_header_of(line: &[u8], next: &[u8], separator: Option<u8>) -> bool {
    let next = next.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let separators = separator.as_ref().map_or(&SEPARATORS[..], std::slice::from_ref);
    separators.iter().any(|separator| {
        let [own, others] = [line, next].map(|line| line.iter().filter(|byte| *byte == separator).count());
        own > 0 && own == others
    })
}

/// The separator with which most records have as many fields as the first. Among equals, the one
/// that gives more fields.
fn detect_separator(sample: &[u8], quote: Option<u8>, is_whole: bool) -> u8 {
    let mut best = (b',', 0.0, 1);
    for separator in SEPARATORS {
        let counts = field_counts(sample, separator, quote, is_whole);
        let Some(&width) = counts.first().filter(|&&width| width > 1) else {
            continue;
        };
        let alike = counts.iter().filter(|&&count| count == width).count();
        let share = alike as f64 / counts.len() as f64;
        if share > best.1 || (share == best.1 && width > best.2) {
            best = (separator, share, width);
        }
    }
    best.0
}

fn field_counts(sample: &[u8], separator: u8, quote: Option<u8>, is_whole: bool) -> Vec<usize> {
    let mut scanner = Scanner::new(sample, separator, quote);
    let mut records = Records::default();
    while let Ok(true) = scanner.next(&mut records) {}
    let mut counts: Vec<usize> = records.iter().map(|record| record.len()).collect();
    // The last record of a sample may be cut.
    if !is_whole && counts.len() > 1 {
        counts.pop();
    }
    counts
}

/// Whether more columns have numbers like `12,5` alone than numbers like `12.5` alone. A column
/// with both kinds is something else, such as version numbers.
fn has_decimal_commas(sample: &[u8], quote: Option<u8>) -> bool {
    #[derive(Clone, Copy, Default)]
    struct Column {
        has_comma: bool,
        has_point: bool,
    }
    let mut scanner = Scanner::new(sample, b';', quote);
    let mut records = Records::default();
    while let Ok(true) = scanner.next(&mut records) {}
    let mut columns: Vec<Column> = Vec::new();
    for record in records.iter() {
        columns.resize(columns.len().max(record.len()), Column::default());
        for (index, column) in columns.iter_mut().enumerate().take(record.len()) {
            let Ok(text) = std::str::from_utf8(record.field(index).0) else {
                continue;
            };
            column.has_point |= text.contains('.') && number::is_fraction(text, false);
            column.has_comma |= text.contains(',') && number::is_fraction(text, true);
        }
    }
    let commas = columns.iter().filter(|column| column.has_comma && !column.has_point).count();
    let points = columns.iter().filter(|column| column.has_point && !column.has_comma).count();
    commas > points
}

/// The column names, from the first record or generated.
///
/// # Errors
/// When the first record does not look like names, or names repeat.
pub(crate) fn column_names(
    input: &Input,
    first: Record<'_>,
    options: &ReadOptions,
    decimal_comma: bool,
    warnings: &mut Vec<String>,
) -> Result<Vec<String>, FormatError> {
    if options.header == Header::Absent {
        return Ok((1..=first.len()).map(|number| format!("column_{number}")).collect());
    }
    let here = Location::Line(first.line);
    if let Some(fault) = first.fault {
        return Err(FormatError::damaged(&input.path, here, fault));
    }
    if let Err((column, byte)) = first.texts() {
        return Err(FormatError::refused(
            &input.path,
            here,
            format!("column name {} is not UTF-8 (byte value 0x{byte:02X})", column + 1),
            "convert the file to UTF-8",
        ));
    }
    let mut names: Vec<String> =
        (0..first.len()).map(|index| String::from_utf8_lossy(first.field(index).0).trim().to_string()).collect();
    let classes: Vec<NumberClass> = names.iter().map(|name| number::classify(name, decimal_comma)).collect();
    let is_data = classes.iter().all(|class| *class != NumberClass::None) || classes.contains(&NumberClass::Float);
    if is_data {
        return Err(FormatError::refused(
            &input.path,
            here,
            format!("the first row holds numbers such as {}, not column names", quoted(&names[0])),
            "add a header row, or import with --no-header, which names the columns column_1, column_2, …",
        ));
    }
    let mut taken: HashSet<String> = names.iter().cloned().collect();
    for (index, name) in names.iter_mut().enumerate().filter(|(_, name)| name.is_empty()) {
        *name = crate::layout::unique_name(&format!("column_{}", index + 1), |name| taken.contains(name));
        taken.insert(name.clone());
        warnings.push(format!("column {} has no name and is called {name:?}", index + 1));
    }
    let mut sorted: Vec<&String> = names.iter().collect();
    sorted.sort();
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(FormatError::refused(
            &input.path,
            here,
            format!("two columns are called {:?}", pair[0]),
            "give every column a name of its own",
        ));
    }
    Ok(names)
}
