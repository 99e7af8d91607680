//! Checks that the pages of a Parquet file fit, before a decoder allocates memory by their headers.
//! The decoder decompresses one page of each column at a time, keeps the dictionary, and writes its
//! values out for every row.
//!
//! The check reads only the fields of the headers that it needs, as the decoder's own header type
//! is private.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Take};
use std::sync::Arc;

use flate2::read::MultiGzDecoder;
use lz4_flex::frame::FrameDecoder;
use parquet::basic::{Compression, Type};
use parquet::column::page::{Page, PageReader};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::serialized_reader::SerializedPageReader;

use super::thrift::{CompactReader, Shape, TRUE, demand};
use super::unfit::{LZ4_EXPANSION_MAX, Unfit, check_claim};

/// Pages of columns up to this size are what ordinary writers make, and are not counted.
const PAGE_BYTES_ORDINARY: u64 = 2 << 20;

/// The least that a value of a list takes once decoded, even a missing one: its levels and its
/// slot.
const LISTED_VALUE_BYTES: u64 = 12;

/// Most bytes that deflate makes of one.
const DEFLATE_EXPANSION_MAX: u64 = 1032;

const BROTLI_BUFFER_BYTES: usize = 4 << 10;

const DICTIONARY_PAGE: i32 = 2;

/// The encoding in which a value may repeat any part of the previous one.
const DELTA_BYTE_ARRAY: i32 = 7;

/// The fields needed of a page's header.
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
    /// Bytes of the largest page, compressed and uncompressed together.
    largest_bytes: u64,
    /// Most bytes of a value, as far as pages tell: the average in its page.
    value_bytes: u64,
    values: u64,
}

/// Checks all pages; returns the most bytes that a decoded row takes. The caller has checked that
/// the column chunks lie in the file.
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
        let (mut row_bytes, mut gathered, mut listed) = (0u64, 0u64, 0u64);
        for (column, pages) in chunks {
            let shared = shared_value_bytes(file, column, &pages, rows)
                .map_err(|reason| format!("column {}: {reason}", column.column_path()))?;
            // A row may have several values in lists.
            let values = pages.values.div_ceil(rows.max(1));
            gathered = gathered.saturating_add(shared.saturating_mul(values));
            row_bytes = row_bytes.saturating_add(shared.max(pages.value_bytes).saturating_mul(values));
            listed = listed.saturating_add(LISTED_VALUE_BYTES.saturating_mul(values));
        }
        if gathered > bytes_max {
            let what = "a row with the largest values of its columns";
            return Err(Unfit::TooLarge { what, bytes: gathered, bytes_max });
        }
        if listed > bytes_max {
            return Err(Unfit::TooLarge { what: "the lists of a row", bytes: listed, bytes_max });
        }
        row_bytes_max = row_bytes.saturating_add(listed).max(row_bytes_max);
    }
    Ok(row_bytes_max)
}

fn column_pages(file: &mut BufReader<&File>, column: &ColumnChunkMetaData, bytes_max: u64) -> Result<Pages, String> {
    let (start, length) = column.byte_range();
    let (mut position, end) = (start, start.saturating_add(length));
    let mut pages = Pages::default();
    while position < end {
        file.seek(SeekFrom::Start(position)).map_err(|error| error.to_string())?;
        let mut header = CompactReader::new(file.by_ref(), end - position);
        let page = page_header(&mut header);
        let page = page.map_err(|reason| format!("the header of the page at byte {position}: {reason}"))?;
        let header_len = header.position();
        let length = |length: i32| u64::try_from(length).map_err(|_| "a page has a negative length".to_string());
        let (compressed, uncompressed) = (length(page.compressed_len)?, length(page.uncompressed_len)?);
        let levels = length(page.level_lens[0])?.saturating_add(length(page.level_lens[1])?);
        if page.page_type == DICTIONARY_PAGE {
            // The decoder accepts no other dictionary, and there is no other to measure.
            if position > start {
                return Err("a dictionary stands behind other pages".to_string());
            }
            // The decoder allocates that many values before it reads any.
            if length(page.values)? > uncompressed.max(1) {
                return Err(format!("a dictionary claims {} values in {uncompressed} bytes", page.values));
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

/// Refuses a page that expands to more than it claims. Checked only where the decoder does not stop
/// at the claimed size, and the page could take more than is available.
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
        // The decoder tries three framings of LZ4. Only this one does not stop at the claimed size.
        Compression::LZ4 if may_exceed(LZ4_EXPANSION_MAX) => {
            check_claim(FrameDecoder::new(compressed), "a page", claimed)
        }
        _ => Ok(()),
    }
}

/// Most bytes of a value that many rows may share, or that takes space even if missing.
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

/// The longest value of a dictionary, in which each value is preceded by its length.
fn longest_value(mut dictionary: &[u8]) -> u64 {
    let mut longest = 0;
    while let Some((length, rest)) = dictionary.split_first_chunk() {
        let length = u32::from_le_bytes(*length);
        longest = length.max(longest);
        dictionary = usize::try_from(length).ok().and_then(|length| rest.get(length..)).unwrap_or_default();
    }
    u64::from(longest)
}

fn page_header<R: BufRead>(reader: &mut CompactReader<R>) -> Result<PageHeader, String> {
    let mut header = PageHeader::default();
    let mut field = 0;
    while let Some(kind) = reader.next_field(&mut field)? {
        match field {
            1 => header.page_type = reader.integer(kind)?,
            2 => header.uncompressed_len = reader.integer(kind)?,
            3 => header.compressed_len = reader.integer(kind)?,
            4 => reader.pass_known(&Shape::I32, kind)?,
            5 | 8 => data_page_header(reader, kind, field, &mut header)?,
            6 => reader.pass_known(&Shape::Struct(&[]), kind)?,
            7 => dictionary_page_header(reader, kind, &mut header)?,
            _ => reader.pass_unknown(kind)?,
        }
    }
    Ok(header)
}

/// The header of a data page, in either version.
fn data_page_header<R: BufRead>(
    reader: &mut CompactReader<R>,
    kind: u8,
    version_field: i64,
    header: &mut PageHeader,
) -> Result<(), String> {
    demand(&Shape::Struct(&[]), kind)?;
    let mut field = 0;
    while let Some(kind) = reader.next_field(&mut field)? {
        match (version_field, field) {
            (_, 1) => header.values = reader.integer(kind)?,
            (5, 2) | (8, 4) => header.encoding = reader.integer(kind)?,
            (8, 5) => header.level_lens[0] = reader.integer(kind)?,
            (8, 6) => header.level_lens[1] = reader.integer(kind)?,
            (5, 3 | 4) | (8, 2 | 3) => reader.pass_known(&Shape::I32, kind)?,
            (8, 7) => {
                reader.pass_known(&Shape::Bool, kind)?;
                header.is_plain = kind != TRUE;
            }
            _ => reader.pass_unknown(kind)?,
        }
    }
    Ok(())
}

fn dictionary_page_header<R: BufRead>(
    reader: &mut CompactReader<R>,
    kind: u8,
    header: &mut PageHeader,
) -> Result<(), String> {
    demand(&Shape::Struct(&[]), kind)?;
    let mut field = 0;
    while let Some(kind) = reader.next_field(&mut field)? {
        match field {
            1 => header.values = reader.integer(kind)?,
            2 => reader.pass_known(&Shape::I32, kind)?,
            3 => reader.pass_known(&Shape::Bool, kind)?,
            _ => reader.pass_unknown(kind)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read(bytes: &[u8]) -> Result<PageHeader, String> {
        page_header(&mut CompactReader::new(bytes, bytes.len() as u64))
    }

    #[test]
    fn fields_that_matter_are_taken_and_others_passed_over() {
        // A dictionary page of 300 and -1 bytes, with a checksum, a struct of a list and a map,
        // text and a field numbered in full.
        let bytes = [
            &[0x15, 4, 0x15, 0xd8, 4, 0x15, 1, 0x15, 8][..],
            &[0x5c, 0x19, 0x25, 2, 4, 0x1b, 1, 0x58, 2, 1, b'x', 0x11, 0],
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
        // Version 1: 3 values in encoding 7, and a field that is skipped.
        let first = PageHeader { values: 3, encoding: 7, ..PageHeader::default() };
        assert_eq!(read(&[0x5c, 0x15, 6, 0x15, 14, 0x15, 6, 0, 0]).as_ref(), Ok(&first));
        // Version 2: the encoding behind two counts, then levels of 5 and 6 bytes, and no
        // compression.
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
