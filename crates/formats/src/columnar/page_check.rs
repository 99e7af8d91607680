//! Checks that the pages of a Parquet file fit, before a decoder allocates memory by their headers:
//! it decompresses a page at a time of each column, and keeps the dictionary.
//!
//! The headers are in Thrift's compact protocol; only the three fields that are wanted are taken
//! out of them, as the decoder keeps its own reading to itself.

use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};

use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};

use super::unfit::Unfit;

/// Pages of columns up to this size are what ordinary writers make, and are not counted.
const PAGE_BYTES_ORDINARY: u64 = 2 << 20;

/// How deep values of a header may be nested.
const DEPTH_MAX: usize = 8;

const DICTIONARY_PAGE: i32 = 2;

/// What is wanted of a page's header.
#[derive(Debug, Default, PartialEq)]
struct PageHeader {
    page_type: i32,
    uncompressed_len: i32,
    compressed_len: i32,
}

/// Checks all pages. The column chunks are known to lie in the file.
pub(crate) fn check_pages<R: Read + Seek>(file: R, metadata: &ParquetMetaData, bytes_max: u64) -> Result<(), Unfit> {
    let mut file = BufReader::with_capacity(4 << 10, file);
    for row_group in metadata.row_groups() {
        let mut bytes = 0u64;
        for column in row_group.columns() {
            let needed = column_bytes(&mut file, column)
                .map_err(|reason| format!("column {}: {reason}", column.column_path()))?;
            if needed > PAGE_BYTES_ORDINARY {
                bytes = bytes.saturating_add(needed);
            }
        }
        if bytes > bytes_max {
            return Err(Unfit::TooLarge { what: "the pages of a row group's columns", bytes, bytes_max });
        }
    }
    Ok(())
}

/// Bytes that the largest page of a column takes, compressed and not, with the dictionary.
fn column_bytes<R: Read + Seek>(file: &mut BufReader<R>, column: &ColumnChunkMetaData) -> Result<u64, String> {
    let (mut position, length) = column.byte_range();
    let end = position.saturating_add(length);
    let (mut dictionary, mut largest) = (0, 0);
    while position < end {
        file.seek(SeekFrom::Start(position)).map_err(|error| error.to_string())?;
        let mut header = HeaderReader { input: file.by_ref().take(end - position) };
        let page = header.page_header().map_err(|reason| format!("the page at byte {position}: {reason}"))?;
        let header_len = end - position - header.input.limit();
        let lengths = u64::try_from(page.compressed_len).ok().zip(u64::try_from(page.uncompressed_len).ok());
        let (compressed, uncompressed) = lengths.ok_or("a page has a negative length")?;
        if page.page_type == DICTIONARY_PAGE {
            dictionary = uncompressed.max(dictionary);
        }
        largest = (compressed + uncompressed).max(largest);
        position += header_len + compressed;
    }
    Ok(dictionary + largest)
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
                _ => self.pass(kind, DEPTH_MAX)?,
            }
        }
        Ok(header)
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

    fn skip(&mut self, length: u64) -> Result<(), String> {
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
            3 => self.skip(1),
            4..=6 => self.variable().map(|_| ()),
            7 => self.skip(8),
            8 => {
                let length = self.variable()?;
                self.skip(length)
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
        if matches!(kind, 1 | 2) { self.skip(1) } else { self.pass(kind, depth) }
    }
}

fn zigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<PageHeader, String> {
        HeaderReader { input: bytes }.page_header()
    }

    #[test]
    fn three_fields_are_taken_and_others_passed_over() {
        // A dictionary page of 300 and -1 bytes, with a checksum, a struct of a list and a map, text
        // and a field numbered in full.
        let bytes = [
            &[0x15, 4, 0x15, 0xd8, 4, 0x15, 1, 0x15, 8][..],
            &[0x1c, 0x19, 0x25, 2, 4, 0x1b, 1, 0x58, 2, 1, b'x', 0x11, 0],
            &[0x18, 2, b'a', b'b', 0x08, 0x40, 1, b'c', 0],
        ]
        .concat();
        let header = PageHeader { page_type: 2, uncompressed_len: 300, compressed_len: -1 };
        assert_eq!(read(&bytes).as_ref(), Ok(&header));
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn what_is_no_header_is_refused() {
        let deep = [&[0x1c; 100][..], &[0; 101]].concat();
        for bytes in [&deep[..], &[0x1f, 0], &[0x15, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0], &[0x16; 30], &[0x15; 1]] {
            assert!(read(bytes).is_err(), "{bytes:?}");
        }
        assert!(read(&[&[0x19, 0xf1][..], &[0xff; 9], &[1]].concat()).is_err(), "a list without an end");
    }
}
