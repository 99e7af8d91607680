//! Thrift's compact protocol, the encoding of footers and page headers in Parquet files.
//!
//! The decoder reads a known field by its expected type, whatever type is written before it, and
//! skips other fields by the written type. A check must see the same bytes as the decoder. It
//! therefore refuses a file if a known field has an unexpected type, or if the decoder deviates
//! from the protocol.

use std::io::{BufRead, Read, Take};

/// How deep values of unknown fields may be nested.
const DEPTH_MAX: usize = 8;

/// Types of values, as they are written.
pub(crate) const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;

/// The expected type of a value.
#[derive(Debug)]
pub(crate) enum Shape {
    Bool,
    Byte,
    I16,
    I32,
    I64,
    Double,
    Binary,
    /// A struct with its known fields; a union is a struct with one of them.
    Struct(&'static [(i64, Shape)]),
    /// A list: the type of its elements, and the bytes that the decoder takes for each.
    List(&'static Shape, usize),
}

impl Shape {
    fn is_written_as(&self, kind: u8) -> bool {
        match self {
            Shape::Bool => kind == TRUE || kind == FALSE,
            Shape::Byte => kind == BYTE,
            // Byte and bool elements are written alike.
            Shape::I16 | Shape::I32 | Shape::I64 => matches!(kind, I16 | I32 | I64),
            Shape::Double => kind == DOUBLE,
            Shape::Binary => kind == BINARY,
            Shape::Struct(_) => kind == STRUCT,
            Shape::List(..) => kind == LIST,
        }
    }
}

/// Reads at most a given number of bytes.
pub(crate) struct CompactReader<R> {
    input: Take<R>,
    length: u64,
    /// Memory that the elements of known lists take once decoded.
    pub decoded_bytes: u64,
}

impl<R: BufRead> CompactReader<R> {
    pub(crate) fn new(input: R, length: u64) -> Self {
        Self { input: input.take(length), length, decoded_bytes: 0 }
    }

    /// How many bytes were read.
    pub(crate) fn position(&self) -> u64 {
        self.length - self.input.limit()
    }

    /// The type of the next field of a struct; `None` at the end. The field's number replaces the
    /// previous one.
    pub(crate) fn next_field(&mut self, field: &mut i64) -> Result<Option<u8>, String> {
        let byte = self.byte()?;
        let (delta, kind) = (byte >> 4, byte & 0x0f);
        if kind == 0 {
            return Ok(None);
        }
        let number = match delta {
            0 => zigzag(self.variable()?),
            delta => field.saturating_add(i64::from(delta)),
        };
        // The decoder would cut off higher bits.
        *field = i64::from(i16::try_from(number).map_err(|_| format!("there is no field {number}"))?);
        Ok(Some(kind))
    }

    fn byte(&mut self) -> Result<u8, String> {
        let mut byte = [0];
        self.input.read_exact(&mut byte).map_err(|_| "it is cut short".to_string())?;
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
        Err("a number does not end".to_string())
    }

    /// A 32-bit integer, written as this type.
    pub(crate) fn integer(&mut self, kind: u8) -> Result<i32, String> {
        demand(&Shape::I32, kind)?;
        i32::try_from(zigzag(self.variable()?)).map_err(|_| "a number is too large".to_string())
    }

    /// The number of elements in a list and their type. A list with more elements than bytes are
    /// left is refused.
    pub(crate) fn list_start(&mut self) -> Result<(u64, u8), String> {
        let byte = self.byte()?;
        let count = match byte >> 4 {
            15 => self.variable()?,
            count => u64::from(count),
        };
        self.check_count(count)?;
        Ok((count, byte & 0x0f))
    }

    fn check_count(&self, count: u64) -> Result<(), String> {
        let left = self.input.limit();
        if count > left {
            return Err(format!("a list claims {count} elements, and {left} bytes are left"));
        }
        Ok(())
    }

    /// The length of the bytes that follow.
    fn binary_length(&mut self, kind: u8) -> Result<u64, String> {
        demand(&Shape::Binary, kind)?;
        let (length, left) = (self.variable()?, self.input.limit());
        if length > left {
            return Err(format!("a text claims {length} bytes, and {left} are left"));
        }
        Ok(length)
    }

    /// Bytes, written as this type.
    pub(crate) fn binary(&mut self, kind: u8) -> Result<Vec<u8>, String> {
        let length = self.binary_length(kind)?;
        let mut bytes = Vec::new();
        self.input.by_ref().take(length).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        Ok(bytes)
    }

    /// Skips bytes, written as this type; returns their number.
    pub(crate) fn pass_binary(&mut self, kind: u8) -> Result<u64, String> {
        let length = self.binary_length(kind)?;
        self.pass_bytes(length)?;
        Ok(length)
    }

    fn pass_bytes(&mut self, length: u64) -> Result<(), String> {
        let skipped = std::io::copy(&mut self.input.by_ref().take(length), &mut std::io::sink());
        match skipped {
            Ok(skipped) if skipped == length => Ok(()),
            _ => Err("it is cut short".to_string()),
        }
    }

    /// Skips a value of a known type.
    pub(crate) fn pass_known(&mut self, shape: &Shape, kind: u8) -> Result<(), String> {
        demand(shape, kind)?;
        match shape {
            Shape::Bool => Ok(()),
            Shape::Byte => self.pass_bytes(1),
            Shape::I16 | Shape::I64 => self.variable().map(drop),
            Shape::I32 => self.integer(kind).map(drop),
            Shape::Double => self.pass_bytes(8),
            Shape::Binary => self.pass_binary(kind).map(drop),
            Shape::Struct(fields) => {
                let mut field = 0;
                while let Some(kind) = self.next_field(&mut field)? {
                    match fields.iter().find(|(number, _)| *number == field) {
                        Some((_, shape)) => self.pass_known(shape, kind)?,
                        None => self.pass_unknown(kind)?,
                    }
                }
                Ok(())
            }
            Shape::List(element, element_bytes) => {
                let (count, kind) = self.list_start()?;
                self.decoded_bytes = self.decoded_bytes.saturating_add(count.saturating_mul(*element_bytes as u64));
                (0..count).try_for_each(|_| self.pass_known(element, kind))
            }
        }
    }

    /// Skips a value of an unknown field.
    pub(crate) fn pass_unknown(&mut self, kind: u8) -> Result<(), String> {
        self.pass(kind, DEPTH_MAX)
    }

    fn pass(&mut self, kind: u8, depth: usize) -> Result<(), String> {
        let depth = depth.checked_sub(1).ok_or("values are nested too deeply")?;
        match kind {
            // The type of a boolean field holds its value.
            TRUE | FALSE => Ok(()),
            BYTE => self.pass_bytes(1),
            I16 | I32 | I64 => self.variable().map(drop),
            DOUBLE => self.pass_bytes(8),
            BINARY => self.pass_binary(kind).map(drop),
            LIST | SET => {
                let (count, kind) = self.list_start()?;
                (0..count).try_for_each(|_| self.pass_element(kind, depth))
            }
            MAP => {
                let count = self.variable()?;
                self.check_count(count)?;
                let kinds = if count > 0 { self.byte()? } else { 0 };
                (0..count).try_for_each(|_| {
                    self.pass_element(kinds >> 4, depth)?;
                    self.pass_element(kinds & 0x0f, depth)
                })
            }
            STRUCT => {
                let mut field = 0;
                while let Some(kind) = self.next_field(&mut field)? {
                    self.pass(kind, depth)?;
                }
                Ok(())
            }
            _ => Err(format!("a value has the unknown type {kind}")),
        }
    }

    /// Skips an element of a list. Booleans take a byte there, which the decoder does not skip.
    fn pass_element(&mut self, kind: u8, depth: usize) -> Result<(), String> {
        if matches!(kind, TRUE | FALSE) {
            return Err("an unknown field is a list of truth values".to_string());
        }
        self.pass(kind, depth)
    }
}

/// Refuses a known value that is written as another type.
pub(crate) fn demand(shape: &Shape, kind: u8) -> Result<(), String> {
    if shape.is_written_as(kind) { Ok(()) } else { Err(format!("a known field has the wrong type {kind}")) }
}

fn zigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    static TEXTS: Shape = Shape::List(&Shape::Binary, 24);
    static KNOWN: Shape = Shape::Struct(&[(1, Shape::I32), (2, TEXTS_FIELD), (3, Shape::Bool)]);
    const TEXTS_FIELD: Shape = Shape::List(&Shape::Binary, 24);

    fn pass(shape: &Shape, kind: u8, bytes: &[u8]) -> Result<(u64, u64), String> {
        let mut reader = CompactReader::new(bytes, bytes.len() as u64);
        reader.pass_known(shape, kind)?;
        Ok((reader.position(), reader.decoded_bytes))
    }

    #[test]
    fn known_values_are_passed_over_and_what_they_take_is_counted() {
        // An integer, a list of two texts, a truth value, and an unknown list of a map, a set of
        // numbers, a double and a byte.
        let known = [&[0x15, 9, 0x19, 0x28, 1, b'a', 2, b'b', b'c', 0x11][..]].concat();
        let unknown =
            [&[0x1c, 0x1b, 1, 0x58, 2, 1, b'x', 0x1a, 0x36, 1, 2, 3, 0x17][..], &[0; 8], &[0x13, 7, 0]].concat();
        let bytes = [&known[..], &unknown, &[0]].concat();
        assert_eq!(pass(&KNOWN, STRUCT, &bytes), Ok((bytes.len() as u64, 48)));
        for length in 0..bytes.len() {
            assert!(pass(&KNOWN, STRUCT, &bytes[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn a_known_value_of_another_type_is_refused() {
        assert_eq!(pass(&KNOWN, STRUCT, &[0x16, 9, 0]), Ok((3, 0)), "integers are written alike");
        for bytes in [&[0x18, 0, 0][..], &[0x13, 9, 0], &[0x25, 9, 0], &[0x35, 9, 0], &[0x29, 0x15, 2, 0]] {
            let error = pass(&KNOWN, STRUCT, bytes).expect_err("another type");
            assert!(error.starts_with("a known field has the wrong type "), "{bytes:?}: {error}");
        }
        assert!(pass(&TEXTS, BINARY, &[1, b'a']).is_err());
    }

    #[test]
    fn counts_and_lengths_are_held_against_the_bytes_that_are_left() {
        let claim = [0xff, 0xff, 0xff, 0xff, 7];
        for (shape, kind, bytes, reason) in [
            (&TEXTS, LIST, [&[0xf8][..], &claim, &[0; 9]].concat(), "a list claims 2147483647 elements, and 9 bytes"),
            (&Shape::Binary, BINARY, [&claim[..], &[0; 9]].concat(), "a text claims 2147483647 bytes, and 9 are left"),
            (&KNOWN, STRUCT, [&[0x99, 0xf5][..], &claim, &[0; 9]].concat(), "a list claims 2147483647 elements"),
            (&KNOWN, STRUCT, [&[0x9b][..], &claim, &[0x55; 9]].concat(), "a list claims 2147483647 elements"),
            (&KNOWN, STRUCT, [&[0x98][..], &claim, &[0; 9]].concat(), "a text claims 2147483647 bytes"),
        ] {
            let error = pass(shape, kind, &bytes).expect_err(reason);
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn what_the_decoder_would_read_in_another_way_is_refused() {
        for (bytes, reason) in [
            // A field number that 16 bits cut to 1.
            (&[0x05, 0x82, 0x80, 0x08, 2, 0][..], "there is no field 65537"),
            // A known integer that 32 bits cut to 1.
            (&[0x15, 0x82, 0x80, 0x80, 0x80, 0x20, 0], "a number is too large"),
            (&[&[0x15][..], &[0xff; 10], &[0, 0]].concat(), "a number does not end"),
            (&[0x99, 0x11, 1, 0], "a list of truth values"),
            (&[0x9b, 1, 0x15, 1, 1, 0], "a list of truth values"),
            (&[0x9d, 0], "the unknown type 13"),
            (&[&[0x9c][..], &[0x1c; 20], &[0; 21]].concat(), "nested too deeply"),
        ] {
            let error = pass(&KNOWN, STRUCT, bytes).expect_err(reason);
            assert!(error.contains(reason), "{bytes:?}: {error}");
        }
    }
}
