//! Checks that the pages of a Parquet file fit, before a decoder allocates memory by their headers:
//! it decompresses a page at a time of each column, keeps the dictionary, and writes its values out for
//! every row.
//!
//! The headers are in Thrift's compact protocol; only the fields that are wanted are taken
//! out of them, as the decoder keeps its own reading to itself.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Take};
use std::sync::Arc;

use flate2::read::MultiGzDecoder;
use lz4_flex::frame::FrameDecoder;
use parquet::basic::{Compression, Type};
use parquet::column::page::{Page, PageReader};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::serialized_reader::SerializedPageReader;

use super::unfit::{LZ4_EXPANSION_MAX, Unfit, check_claim};

/// Pages of columns up to this size are what ordinary writers make, and are not counted.
const PAGE_BYTES_ORDINARY: u64 = 2 << 20;

/// How deep values of a header may be nested.
const DEPTH_MAX: usize = 8;

/// To how many bytes deflate expands one at most.
const DEFLATE_EXPANSION_MAX: u64 = 1032;

const BROTLI_BUFFER_BYTES: usize = 4 << 10;

const DICTIONARY_PAGE: i32 = 2;

/// The encoding in which a value may repeat any part of the one before.
const DELTA_BYTE_ARRAY: i32 = 7;

/// What is wanted of a page's header.
#[derive(Debug, Default, PartialEq)]
struct PageHeader {
    page_type: i32,
    uncompressed_len: i32,
    compressed_len: i32,
    values: i32,
    encoding: i32,
    /// Lengths of the two kinds of levels, which are not compressed in pages of version 2.
    level_lens: [i32; 2],
    is_plain: bool,
}

/// What the pages of a column chunk hold.
#[derive(Default)]
struct Pages {
    dictionary_bytes: u64,
    /// Of the largest page, compressed and not.
    largest_bytes: u64,
    /// Most bytes of a value, where pages themselves tell; on average in its page.
    value_bytes: u64,
    values: u64,
}

/// Checks all pages; returns the most bytes that a row takes when decoded. The column chunks are
/// known to lie in the file.
pub(crate) fn check_pages(file: &File, metadata: &ParquetMetaData, bytes_max: u64) -> Result<u64, Unfit> {
    let mut input = BufReader::with_capacity(4 << 10, file);
    let mut row_bytes_max = 0;
    for row_group in metadata.row_groups() {
        let (mut bytes, mut chunks) = (0u64, Vec::new());
        for column in row_group.columns() {
            let pages = column_pages(&mut input, column, bytes_max)
                .map_err(|reason| format!("column {}: {reason}", column.column_path()))?;
            let needed = pages.dictionary_bytes.saturating_add(pages.largest_bytes);
            if needed > PAGE_BYTES_ORDINARY {
                bytes = bytes.saturating_add(needed);
            }
            chunks.push((column, pages));
        }
        if bytes > bytes_max {
            return Err(Unfit::TooLarge { what: "the pages of a row group's columns", bytes, bytes_max });
        }
        let rows = u64::try_from(row_group.num_rows()).unwrap_or(0);
        let (mut row_bytes, mut gathered) = (0u64, 0u64);
        for (column, pages) in chunks {
            let shared = shared_value_bytes(file, column, &pages, rows)
                .map_err(|reason| format!("column {}: {reason}", column.column_path()))?;
            // Lists have several values in a row.
            let values = pages.values.div_ceil(rows.max(1));
            gathered = gathered.saturating_add(shared.saturating_mul(values));
            row_bytes = row_bytes.saturating_add(shared.max(pages.value_bytes).saturating_mul(values));
        }
        if gathered > bytes_max {
            let what = "a row with the largest values of its columns";
            return Err(Unfit::TooLarge { what, bytes: gathered, bytes_max });
        }
        row_bytes_max = row_bytes.max(row_bytes_max);
    }
    Ok(row_bytes_max)
}

fn column_pages(file: &mut BufReader<&File>, column: &ColumnChunkMetaData, bytes_max: u64) -> Result<Pages, String> {
    let (start, length) = column.byte_range();
    let (mut position, end) = (start, start.saturating_add(length));
    let mut pages = Pages::default();
    while position < end {
        file.seek(SeekFrom::Start(position)).map_err(|error| error.to_string())?;
        let mut header = HeaderReader { input: file.by_ref().take(end - position) };
        let page = header.page_header().map_err(|reason| format!("the page at byte {position}: {reason}"))?;
        let header_len = end - position - header.input.limit();
        let length = |length: i32| u64::try_from(length).map_err(|_| "a page has a negative length".to_string());
        let (compressed, uncompressed) = (length(page.compressed_len)?, length(page.uncompressed_len)?);
        let levels = length(page.level_lens[0])?.saturating_add(length(page.level_lens[1])?);
        if page.page_type == DICTIONARY_PAGE {
            // The decoder takes no other, and there is no other to measure.
            if position > start {
                return Err("a dictionary stands behind other pages".to_string());
            }
            pages.dictionary_bytes = uncompressed;
        } else {
            let values = length(page.values)?;
            let bytes = match page.encoding {
                DELTA_BYTE_ARRAY => uncompressed,
                _ => uncompressed.div_ceil(values.max(1)),
            };
            pages.value_bytes = bytes.max(pages.value_bytes);
            pages.values = pages.values.saturating_add(values);
        }
        pages.largest_bytes = compressed.saturating_add(uncompressed).max(pages.largest_bytes);
        position = position.saturating_add(header_len).saturating_add(compressed);
        if !page.is_plain && position <= end {
            file.seek_relative(i64::try_from(levels).map_err(|error| error.to_string())?)
                .map_err(|error| error.to_string())?;
            let compressed = file.by_ref().take(compressed.saturating_sub(levels));
            let claimed = uncompressed.saturating_sub(levels);
            check_expansion(compressed, column.compression(), claimed, bytes_max)?;
        }
    }
    Ok(pages)
}

/// Refuses a page that expands to more than it claims, where its decoder does not stop there and
/// it could take more than is available.
fn check_expansion<R: BufRead>(
    compressed: Take<R>,
    compression: Compression,
    claimed: u64,
    bytes_max: u64,
) -> Result<(), String> {
    let may_exceed = |expansion_max: u64| compressed.limit().saturating_mul(expansion_max) > bytes_max;
    match compression {
        Compression::GZIP(_) if may_exceed(DEFLATE_EXPANSION_MAX) => {
            check_claim(MultiGzDecoder::new(compressed), "a page", claimed)
        }
        Compression::BROTLI(_) => {
            check_claim(brotli::Decompressor::new(compressed, BROTLI_BUFFER_BYTES), "a page", claimed)
        }
        // Three ways to frame LZ4 are tried, of which only this one does not stop.
        Compression::LZ4 if may_exceed(LZ4_EXPANSION_MAX) => {
            check_claim(FrameDecoder::new(compressed), "a page", claimed)
        }
        _ => Ok(()),
    }
}

/// Most bytes of a value that many rows may share, or that takes its place even where it is missing.
fn shared_value_bytes(file: &File, column: &ColumnChunkMetaData, pages: &Pages, rows: u64) -> Result<u64, String> {
    let descriptor = column.column_descr();
    if descriptor.physical_type() == Type::FIXED_LEN_BYTE_ARRAY {
        return u64::try_from(descriptor.type_length()).map_err(|_| "values have a negative length".to_string());
    }
    if descriptor.physical_type() != Type::BYTE_ARRAY || pages.dictionary_bytes == 0 {
        return Ok(0);
    }
    let file = Arc::new(file.try_clone().map_err(|error| error.to_string())?);
    let rows = usize::try_from(rows).map_err(|error| error.to_string())?;
    let first = SerializedPageReader::new(file, column, rows, None).and_then(|mut pages| pages.get_next_page());
    match first.map_err(|error| error.to_string())? {
        Some(Page::DictionaryPage { buf, .. }) => Ok(longest_value(&buf)),
        _ => Err("the dictionary cannot be read".to_string()),
    }
}

/// The length of the longest value of a dictionary, in which a length stands before each.
fn longest_value(mut dictionary: &[u8]) -> u64 {
    let mut longest = 0;
    while let Some((length, rest)) = dictionary.split_first_chunk() {
        let length = u32::from_le_bytes(*length);
        longest = length.max(longest);
        dictionary = usize::try_from(length).ok().and_then(|length| rest.get(length..)).unwrap_or_default();
    }
    u64::from(longest)
}

/// Reads Thrift's compact protocol.
struct HeaderReader<R> {
    input: R,
}

impl<R: BufRead> HeaderReader<R> {
    fn page_header(&mut self) -> Result<PageHeader, String> {
        let mut header = PageHeader::default();
        let mut field = 0;
        while let Some(kind) = self.next_field(&mut field)? {
            match (field, kind) {
                (1, 5) => header.page_type = self.integer()?,
                (2, 5) => header.uncompressed_len = self.integer()?,
                (3, 5) => header.compressed_len = self.integer()?,
                (5 | 8, 12) => self.data_page_header(field, &mut header)?,
                _ => self.pass(kind, DEPTH_MAX)?,
            }
        }
        Ok(header)
    }

    /// The header of a data page, in either version.
    fn data_page_header(&mut self, version_field: i64, header: &mut PageHeader) -> Result<(), String> {
        let mut field = 0;
        while let Some(kind) = self.next_field(&mut field)? {
            match (version_field, field, kind) {
                (_, 1, 5) => header.values = self.integer()?,
                (5, 2, 5) | (8, 4, 5) => header.encoding = self.integer()?,
                (8, 5, 5) => header.level_lens[0] = self.integer()?,
                (8, 6, 5) => header.level_lens[1] = self.integer()?,
                (8, 7, 1 | 2) => header.is_plain = kind == 2,
                _ => self.pass(kind, DEPTH_MAX)?,
            }
        }
        Ok(())
    }

    /// The type of the next field of a struct, whose number replaces the one before; `None` at the end.
    fn next_field(&mut self, field: &mut i64) -> Result<Option<u8>, String> {
        let byte = self.byte()?;
        let (delta, kind) = (byte >> 4, byte & 0x0f);
        if kind == 0 {
            return Ok(None);
        }
        *field = match delta {
            0 => zigzag(self.variable()?),
            delta => field.saturating_add(i64::from(delta)),
        };
        Ok(Some(kind))
    }

    fn byte(&mut self) -> Result<u8, String> {
        let mut byte = [0];
        self.input.read_exact(&mut byte).map_err(|_| "its header is cut short".to_string())?;
        Ok(byte[0])
    }

    fn variable(&mut self) -> Result<u64, String> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("its header has a number that does not end".to_string())
    }

    fn integer(&mut self) -> Result<i32, String> {
        i32::try_from(zigzag(self.variable()?)).map_err(|_| "its header has a number that is too large".to_string())
    }

    fn pass_bytes(&mut self, length: u64) -> Result<(), String> {
        let skipped = std::io::copy(&mut self.input.by_ref().take(length), &mut std::io::sink());
        match skipped {
            Ok(skipped) if skipped == length => Ok(()),
            _ => Err("its header is cut short".to_string()),
        }
    }

    /// Passes over a value.
    fn pass(&mut self, kind: u8, depth: usize) -> Result<(), String> {
        let depth = depth.checked_sub(1).ok_or("its header is nested too deeply")?;
        match kind {
            // Truth values of fields lie in the type.
            1 | 2 => Ok(()),
            3 => self.pass_bytes(1),
            4..=6 => self.variable().map(|_| ()),
            7 => self.pass_bytes(8),
            8 => {
                let length = self.variable()?;
                self.pass_bytes(length)
            }
            9 | 10 => {
                let byte = self.byte()?;
                let count = match byte >> 4 {
                    15 => self.variable()?,
                    count => u64::from(count),
                };
                for _ in 0..count {
                    self.pass_element(byte & 0x0f, depth)?;
                }
                Ok(())
            }
            11 => {
                let count = self.variable()?;
                let kinds = if count > 0 { self.byte()? } else { 0 };
                for _ in 0..count {
                    self.pass_element(kinds >> 4, depth)?;
                    self.pass_element(kinds & 0x0f, depth)?;
                }
                Ok(())
            }
            12 => {
                let mut field = 0;
                while let Some(kind) = self.next_field(&mut field)? {
                    self.pass(kind, depth)?;
                }
                Ok(())
            }
            _ => Err(format!("its header has a value of the unknown type {kind}")),
        }
    }

    /// Passes over an element of a list, in which truth values take a byte.
    fn pass_element(&mut self, kind: u8, depth: usize) -> Result<(), String> {
        if matches!(kind, 1 | 2) { self.pass_bytes(1) } else { self.pass(kind, depth) }
    }
}

fn zigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read(bytes: &[u8]) -> Result<PageHeader, String> {
        HeaderReader { input: bytes }.page_header()
    }

    #[test]
    fn fields_that_matter_are_taken_and_others_passed_over() {
        // A dictionary page of 300 and -1 bytes, with a checksum, a struct of a list and a map, text
        // and a field numbered in full.
        let bytes = [
            &[0x15, 4, 0x15, 0xd8, 4, 0x15, 1, 0x15, 8][..],
            &[0x1c, 0x19, 0x25, 2, 4, 0x1b, 1, 0x58, 2, 1, b'x', 0x11, 0],
            &[0x18, 2, b'a', b'b', 0x08, 0x40, 1, b'c', 0],
        ]
        .concat();
        let header = PageHeader { page_type: 2, uncompressed_len: 300, compressed_len: -1, ..PageHeader::default() };
        assert_eq!(read(&bytes).as_ref(), Ok(&header));
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn both_versions_of_data_pages_are_understood() {
        // Version 1: 3 values in encoding 7, and a field that is passed over.
        let first = PageHeader { values: 3, encoding: 7, ..PageHeader::default() };
        assert_eq!(read(&[0x5c, 0x15, 6, 0x15, 14, 0x15, 6, 0, 0]).as_ref(), Ok(&first));
        // Version 2: the encoding behind two counts, then levels of 5 and 6 bytes, and no compression.
        let second = PageHeader { level_lens: [5, 6], is_plain: true, ..first };
        let bytes = [0x8c, 0x15, 6, 0x15, 0, 0x15, 2, 0x15, 14, 0x15, 10, 0x15, 12, 0x12, 0, 0];
        assert_eq!(read(&bytes), Ok(second));
    }

    #[test]
    fn what_is_no_header_is_refused() {
        let deep = [&[0x1c; 100][..], &[0; 101]].concat();
        for bytes in [&deep[..], &[0x1f, 0], &[0x15, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0], &[0x16; 30], &[0x15; 1]] {
            assert!(read(bytes).is_err(), "{bytes:?}");
        }
        assert!(read(&[&[0x19, 0xf1][..], &[0xff; 9], &[1]].concat()).is_err(), "a list without an end");
    }

    #[test]
    fn framed_lz4_that_expands_to_more_than_it_claims_is_refused() {
        let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
        encoder.write_all(&[0; 1 << 20]).expect("a vector takes everything");
        let compressed = encoder.finish().expect("a vector takes everything");
        let check = |claimed, bytes_max| {
            check_expansion((&compressed[..]).take(compressed.len() as u64), Compression::LZ4, claimed, bytes_max)
        };
        assert_eq!(check(1 << 20, 1 << 10), Ok(()));
        assert_eq!(check(64, 1 << 10), Err("a page expands to more than the 64 bytes that it claims".to_string()));
        assert_eq!(check(64, 4 << 20), Ok(()), "it cannot take more than is available");
    }

    #[test]
    fn the_longest_value_of_a_dictionary_is_found() {
        assert_eq!(longest_value(&[1, 0, 0, 0, b'a', 3, 0, 0, 0, b'a', b'b', b'c', 0, 0, 0, 0]), 3);
        assert_eq!(longest_value(&[9, 0, 0, 0, b'a']), 9, "one that is cut short");
        assert_eq!(longest_value(&[]), 0);
    }
}
