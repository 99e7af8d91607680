//! Attribute values as keys: comparing the bytes compares the values, and nulls come first.
//!
//! | value | bytes |
//! |---|---|
//! | null | 0 |
//! | bool | 1, and 1 byte |
//! | int64, float64 | 2, the nearest float64 (8 bytes), what an integer has above it (2 bytes) |
//! | date | 3, and 4 bytes, big-endian with the sign bit flipped |
//! | timestamp | 4, and 8 bytes, likewise |
//! | utf8, binary | 5, the bytes (0 as 0 255), and 0 1; or as many as fit, and 0 2 |
//! | uuid | 6, and 16 bytes |
//!
//! Integers and floats have one form, so that a column that is widened needs no other index. Both
//! zeros are one value, and all NaNs another, above all numbers.
//!
//! A long text is cut off, as keys have a limit: what is found by such a key has to be looked at in
//! the record.

use crate::schema::ColumnType;
use crate::value::{ValueRef, format_date, format_timestamp};
use crate::{Error, Result};
use terrane_literal::format_uuid;

const NULL: u8 = 0;
const BOOL: u8 = 1;
const NUMBER: u8 = 2;
const DATE: u8 = 3;
const TIMESTAMP: u8 = 4;
const BYTES: u8 = 5;
const UUID: u8 = 6;
/// Begins what is no byte of a text as it is.
const ESCAPE: u8 = 0;
const ESCAPED_ZERO: u8 = 255;
const COMPLETE: u8 = 1;
const CUT: u8 = 2;

/// Most bytes of the values of an entry. With the longest key of a record, an entry's key fits into
/// the trees.
const BYTES_MAX: usize = 1024;

/// Most bytes of one value among several.
const fn bytes_max(columns: usize) -> usize {
    BYTES_MAX / columns
}

/// Appends a value of an index on so many columns.
pub(crate) fn encode(value: ValueRef<'_>, columns: usize, out: &mut Vec<u8>) {
    match value {
        ValueRef::Null => out.push(NULL),
        ValueRef::Bool(value) => out.extend_from_slice(&[BOOL, value.into()]),
        ValueRef::Int(value) => {
            let nearest = value as f64;
            // At most half of the distance of two float64 at 2^63, which is 1024.
            let above = (i128::from(value) - nearest as i128) as i16;
            encode_number(nearest, above, out);
        }
        ValueRef::Float32(value) => encode_number(value.into(), 0, out),
        ValueRef::Float64(value) => encode_number(value, 0, out),
        ValueRef::Utf8(value) => encode_bytes(value.as_bytes(), bytes_max(columns), out),
        ValueRef::Binary(value) => encode_bytes(value, bytes_max(columns), out),
        ValueRef::Uuid(value) => {
            out.push(UUID);
            out.extend_from_slice(&value);
        }
        ValueRef::Date(value) => {
            out.push(DATE);
            out.extend_from_slice(&(value as u32 ^ 1 << 31).to_be_bytes());
        }
        ValueRef::Timestamp(value) => {
            out.push(TIMESTAMP);
            out.extend_from_slice(&(value as u64 ^ 1 << 63).to_be_bytes());
        }
    }
}

/// Most bytes of a word that an entry has. Words are shortened before they are encoded, so that two
/// of one form are one.
const WORD_BYTES_MAX: usize = BYTES_MAX / 2;

/// What an entry has of a word.
pub(crate) fn shortened(word: &str) -> &str {
    &word[..word.floor_char_boundary(WORD_BYTES_MAX)]
}

/// Whether an entry that has this word has no longer one, shortened.
pub(crate) fn is_told_apart(word: &str) -> bool {
    // The bytes of a letter that is left out are at most four.
    word.len() + 3 < WORD_BYTES_MAX
}

/// Splits an entry into the values of so many columns and the record's key.
pub(crate) fn split(entry: &[u8], columns: usize) -> Result<(&[u8], &[u8])> {
    let mut rest = entry;
    for _ in 0..columns {
        rest = behind_value(rest).ok_or_else(|| damaged(entry))?;
    }
    Ok(entry.split_at(entry.len() - rest.len()))
}

/// The first value of an entry, of a column of this type, and what follows it. No value where the
/// entry does not have it as the record has: it is cut off, or some of its bytes are written as
/// others.
pub(crate) fn decode(entry: &[u8], column_type: ColumnType) -> Result<(Option<ValueRef<'_>>, &[u8])> {
    let behind = behind_value(entry).ok_or_else(|| damaged(entry))?;
    let value = match (&entry[..entry.len() - behind.len()], column_type) {
        ([NULL], _) => Some(ValueRef::Null),
        ([BOOL, value], ColumnType::Bool) => Some(ValueRef::Bool(*value != 0)),
        ([NUMBER, number @ ..], ColumnType::Int64) => integer(number).map(ValueRef::Int),
        ([NUMBER, number @ ..], ColumnType::Float32) => match decode_number(number) {
            Some((nearest, 0)) => Some(ValueRef::Float32(nearest as f32)),
            _ => None,
        },
        ([NUMBER, number @ ..], ColumnType::Float64) => match decode_number(number) {
            Some((nearest, 0)) => Some(ValueRef::Float64(nearest)),
            _ => None,
        },
        ([DATE, date @ ..], ColumnType::Date) => decode_date(date).map(ValueRef::Date),
        ([TIMESTAMP, time @ ..], ColumnType::Timestamp { .. }) => decode_timestamp(time).map(ValueRef::Timestamp),
        ([UUID, uuid @ ..], ColumnType::Uuid) => uuid.first_chunk().copied().map(ValueRef::Uuid),
        ([BYTES, bytes @ .., ESCAPE, COMPLETE], ColumnType::Utf8 | ColumnType::Binary) if !bytes.contains(&ESCAPE) => {
            match (column_type, std::str::from_utf8(bytes)) {
                (ColumnType::Binary, _) => Some(ValueRef::Binary(bytes)),
                (_, Ok(text)) => Some(ValueRef::Utf8(text)),
                (_, Err(_)) => return Err(damaged(entry)),
            }
        }
        _ => None,
    };
    Ok((value, behind))
}

/// What follows the first value.
fn behind_value(entry: &[u8]) -> Option<&[u8]> {
    let (tag, rest) = entry.split_first()?;
    match *tag {
        NULL => Some(rest),
        BOOL => rest.get(1..),
        NUMBER => rest.get(10..),
        DATE => rest.get(4..),
        TIMESTAMP => rest.get(8..),
        UUID => rest.get(16..),
        BYTES => {
            let mut rest = rest;
            loop {
                rest = &rest[rest.iter().position(|byte| *byte == ESCAPE)?..];
                match rest.get(1)? {
                    &ESCAPED_ZERO => rest = &rest[2..],
                    _ => return rest.get(2..),
                }
            }
        }
        _ => None,
    }
}

/// The values of an entry as text, for messages.
pub(super) fn describe(entry: &[u8], columns: usize) -> String {
    let mut rest = entry;
    let mut values = Vec::with_capacity(columns);
    for _ in 0..columns {
        let Some(behind) = behind_value(rest) else { return format!("{entry:02x?}") };
        values.push(describe_value(&rest[..rest.len() - behind.len()]));
        rest = behind;
    }
    format!("({})", values.join(", "))
}

fn describe_value(value: &[u8]) -> String {
    let described = match value {
        [NULL] => Some("null".to_owned()),
        [BOOL, value] => Some((*value != 0).to_string()),
        [NUMBER, number @ ..] => match (decode_number(number), integer(number)) {
            (Some((nearest, above)), integer) if above == 0 || integer.is_none() => Some(nearest.to_string()),
            (_, integer) => integer.map(|integer| integer.to_string()),
        },
        [DATE, date @ ..] => decode_date(date).map(format_date),
        [TIMESTAMP, time @ ..] => decode_timestamp(time).map(|time| format_timestamp(time, false)),
        [UUID, uuid @ ..] => uuid.first_chunk().copied().map(format_uuid),
        [BYTES, text @ .., _, end] => {
            let more = if *end == CUT { "…" } else { "" };
            Some(format!("{:?}{more}", String::from_utf8_lossy(text)))
        }
        _ => None,
    };
    described.unwrap_or_else(|| format!("{value:02x?}"))
}

/// The nearest float64, and what an integer has above it.
fn decode_number(number: &[u8]) -> Option<(f64, i16)> {
    let (ordered, above) = number.split_first_chunk::<8>()?;
    let ordered = u64::from_be_bytes(*ordered);
    let nearest = f64::from_bits(if ordered >> 63 == 1 { ordered ^ 1 << 63 } else { !ordered });
    Some((nearest, (u16::from_be_bytes(*above.first_chunk()?) ^ 1 << 15) as i16))
}

/// The integer, if the number is one.
fn integer(number: &[u8]) -> Option<i64> {
    let (nearest, above) = decode_number(number)?;
    let whole = nearest as i128;
    if whole as f64 == nearest { i64::try_from(whole + i128::from(above)).ok() } else { None }
}

fn decode_date(date: &[u8]) -> Option<i32> {
    date.first_chunk().map(|date| (u32::from_be_bytes(*date) ^ 1 << 31) as i32)
}

fn decode_timestamp(time: &[u8]) -> Option<i64> {
    time.first_chunk().map(|time| (u64::from_be_bytes(*time) ^ 1 << 63) as i64)
}

#[cold]
fn damaged(entry: &[u8]) -> Error {
    Error::damaged_record(format!("an index has an entry of {} bytes that are not values and a key", entry.len()))
}

fn encode_number(nearest: f64, above: i16, out: &mut Vec<u8>) {
    let bits = if nearest.is_nan() { f64::NAN.to_bits() } else { (nearest + 0.0).to_bits() };
    // Descending where the sign is set.
    let ordered = if bits >> 63 == 1 { !bits } else { bits ^ 1 << 63 };
    out.push(NUMBER);
    out.extend_from_slice(&ordered.to_be_bytes());
    out.extend_from_slice(&(above as u16 ^ 1 << 15).to_be_bytes());
}

fn encode_bytes(bytes: &[u8], bytes_max: usize, out: &mut Vec<u8>) {
    // Of the byte in front, and the two that close the value.
    let end = out.len() + bytes_max - 2;
    out.push(BYTES);
    for &byte in bytes {
        let length = if byte == ESCAPE { 2 } else { 1 };
        if out.len() + length > end {
            return out.extend_from_slice(&[ESCAPE, CUT]);
        }
        out.push(byte);
        if byte == ESCAPE {
            out.push(ESCAPED_ZERO);
        }
    }
    out.extend_from_slice(&[ESCAPE, COMPLETE]);
}

#[cfg(test)]
mod tests;
