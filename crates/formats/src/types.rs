//! The column types that this crate hands out, and how they are inferred from text.
//!
//! Types are inferred from **all** values of a column, never from a sample: no later value can fail
//! to fit. A column whose values have no narrower type in common is text, which loses nothing.

use arrow_schema::{DataType, Field, TimeUnit};
use terrane_literal::{
    Time, Timestamp, UUID_STORAGE, exact_float, json_integer, marked_uuid, parse_date, parse_timestamp,
};

use crate::geometry::{is_geojson_geometry, looks_like_geometry};
use crate::guess::is_geometry_name;
use crate::json::flat::JsonRef;
use crate::number::{self, NumberClass};
use crate::quoted::quoted;

/// A column type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
    /// Arrow `Boolean`.
    Boolean,
    /// Arrow `Int64`.
    Int64,
    /// Arrow `UInt64`, only where values exceed `Int64`.
    UInt64,
    /// Arrow `Float32`, only if the file has it or the user asks for it.
    Float32,
    /// Arrow `Float64`.
    Float64,
    /// Arrow `Utf8`.
    Utf8,
    /// Arrow `Binary`.
    Binary,
    /// Arrow `FixedSizeBinary(16)` with the mark `arrow.uuid`, only if the file has it or the user
    /// asks for it.
    Uuid,
    /// Arrow `Date32`.
    Date32,
    /// Arrow `Timestamp(Microsecond, None)`: local time.
    Timestamp,
    /// Arrow `Timestamp(Microsecond, "UTC")`.
    TimestampUtc,
}

impl ColumnType {
    /// The Arrow type.
    pub fn data_type(self) -> DataType {
        match self {
            ColumnType::Boolean => DataType::Boolean,
            ColumnType::Int64 => DataType::Int64,
            ColumnType::UInt64 => DataType::UInt64,
            ColumnType::Float32 => DataType::Float32,
            ColumnType::Float64 => DataType::Float64,
            ColumnType::Utf8 => DataType::Utf8,
            ColumnType::Binary => DataType::Binary,
            ColumnType::Uuid => UUID_STORAGE,
            ColumnType::Date32 => DataType::Date32,
            ColumnType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            ColumnType::TimestampUtc => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        }
    }

    /// The field of a column of this type, with the extension type if it has one.
    pub fn field(self, name: &str) -> Field {
        match (self, Field::new(name, self.data_type(), true)) {
            (ColumnType::Uuid, field) => marked_uuid(field),
            (_, field) => field,
        }
    }

    /// The column type of an Arrow type, if it is one of them. Only UUIDs have 16 bytes each.
    pub fn from_data_type(data_type: &DataType) -> Option<ColumnType> {
        Some(match data_type {
            DataType::Boolean => ColumnType::Boolean,
            DataType::Int64 => ColumnType::Int64,
            DataType::UInt64 => ColumnType::UInt64,
            DataType::Float32 => ColumnType::Float32,
            DataType::Float64 => ColumnType::Float64,
            DataType::Utf8 => ColumnType::Utf8,
            DataType::Binary => ColumnType::Binary,
            uuid if *uuid == UUID_STORAGE => ColumnType::Uuid,
            DataType::Date32 => ColumnType::Date32,
            DataType::Timestamp(TimeUnit::Microsecond, None) => ColumnType::Timestamp,
            DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => ColumnType::TimestampUtc,
            _ => return None,
        })
    }

    /// The type's name in messages.
    pub fn name(self) -> &'static str {
        match self {
            ColumnType::Boolean => "boolean",
            ColumnType::Int64 => "int64",
            ColumnType::UInt64 => "uint64",
            ColumnType::Float32 => "float32",
            ColumnType::Float64 => "float64",
            ColumnType::Utf8 => "text",
            ColumnType::Binary => "binary",
            ColumnType::Uuid => "uuid",
            ColumnType::Date32 => "date",
            ColumnType::Timestamp => "timestamp",
            ColumnType::TimestampUtc => "timestamp in UTC",
        }
    }
}

/// `true`, `True`, `TRUE` and their opposites.
pub(crate) fn parse_boolean(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

/// Whether a text starts like a date, even if there is no such day.
fn looks_like_date(text: &str) -> bool {
    let (date, rest) = text.as_bytes().split_at(text.len().min("YYYY-MM-DD".len()));
    let is_date = date.iter().zip(b"0000-00-00").all(|(byte, shape)| match shape {
        b'0' => byte.is_ascii_digit(),
        shape => byte == shape,
    });
    is_date && date.len() == "YYYY-MM-DD".len() && matches!(rest.first(), None | Some(b'T' | b't' | b' '))
}

/// The date type that texts such as `31.12.2020` and `01/02/2020 10:30` may have.
fn date_shape(text: &str) -> Option<&'static str> {
    const LENGTH_MAX: usize = "31.12.2020 23:59:59.000000".len();
    let bytes = text.as_bytes();
    if bytes.len() < "1.1.2020".len() || bytes.len() > LENGTH_MAX || !bytes[0].is_ascii_digit() {
        return None;
    }
    let digits = |bytes: &[u8]| bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let first = digits(bytes);
    let separator = *bytes.get(first).filter(|byte| b"./-".contains(byte))?;
    let rest = &bytes[first + 1..];
    let second = digits(rest);
    let rest = rest.get(second..)?.strip_prefix(&[separator])?;
    if !(1..=2).contains(&first) || !(1..=2).contains(&second) || digits(rest) != 4 {
        return None;
    }
    let (has_time, has_seconds) = match &rest[4..] {
        [] => (false, false),
        [b' ' | b'T', time @ ..] if digits(time) > 0 => (true, time.iter().filter(|byte| **byte == b':').count() > 1),
        _ => return None,
    };
    // With slashes, a day above 12 tells the order.
    let day_first = separator != b'/' || text[..first].parse().is_ok_and(|day: u32| day > 12);
    Some(match (separator, day_first, has_time, has_seconds) {
        (b'.', _, false, _) => "date:%d.%m.%Y",
        (b'.', _, true, false) => "timestamp:%d.%m.%Y %H:%M",
        (b'.', _, true, true) => "timestamp:%d.%m.%Y %H:%M:%S",
        (b'-', _, false, _) => "date:%d-%m-%Y",
        (b'-', _, true, false) => "timestamp:%d-%m-%Y %H:%M",
        (b'-', _, true, true) => "timestamp:%d-%m-%Y %H:%M:%S",
        (_, true, false, _) => "date:%d/%m/%Y",
        (_, true, true, false) => "timestamp:%d/%m/%Y %H:%M",
        (_, true, true, true) => "timestamp:%d/%m/%Y %H:%M:%S",
        (_, false, false, _) => "date:%m/%d/%Y",
        (_, false, true, false) => "timestamp:%m/%d/%Y %H:%M",
        (_, false, true, true) => "timestamp:%m/%d/%Y %H:%M:%S",
    })
}

/// Observations on one column.
#[derive(Debug, Clone, Default)]
pub(crate) struct Observed {
    booleans: u64,
    integers: u64,
    integers_beyond_i64: u64,
    /// Integers beyond int64 that float64 holds exactly.
    exact_beyond_i64: u64,
    floats: u64,
    non_finite: u64,
    dates: u64,
    timestamps: u64,
    timestamps_utc: u64,
    texts: u64,
    /// Texts that are numbers in a column of numbers.
    codes: u64,
    nested: u64,
    has_negative: bool,
    has_inexact_integer: bool,
    /// The notice of the first timestamp with one, on how it is read.
    timestamp_notice: Option<&'static str>,
    /// The notice on a date or timestamp without a zone, which is read as UTC.
    zone_notice: Option<&'static str>,
    /// Whether the column has the name of a geometry.
    may_be_geometry: bool,
    geometry_texts: u64,
    geometry_objects: u64,
    /// The first text of such a column that is no geometry, with its row.
    first_other_text: Option<(u64, String)>,
    /// Texts that look like failed numbers or dates.
    near_misses: u64,
    /// Texts that are dates in another order, and the first of them with its likely pattern.
    dates_otherwise: u64,
    date_otherwise: Option<(String, &'static str)>,
    /// The first value that is text, with its row.
    first_text: Option<(u64, String)>,
}

impl Observed {
    /// For a column of this name.
    pub(crate) fn for_column(name: &str) -> Observed {
        Observed { may_be_geometry: is_geometry_name(name), ..Observed::default() }
    }

    /// Observes a text cell that is not null.
    pub(crate) fn text(&mut self, row: u64, text: &str, decimal_comma: bool) {
        match number::classify(text, decimal_comma) {
            NumberClass::Integer(value) => self.integer(value < 0, value.unsigned_abs()),
            NumberClass::IntegerBeyondI64(value) => self.beyond_i64(value),
            NumberClass::Float => self.floats += 1,
            NumberClass::NonFinite => self.non_finite += 1,
            NumberClass::None => self.not_a_number(row, text, decimal_comma),
        }
    }

    /// Adds the observations on later rows.
    pub(crate) fn merge(&mut self, later: Observed) {
        let Observed {
            booleans,
            integers,
            integers_beyond_i64,
            exact_beyond_i64,
            floats,
            non_finite,
            dates,
            timestamps,
            timestamps_utc,
            texts,
            codes,
            nested,
            has_negative,
            has_inexact_integer,
            timestamp_notice,
            zone_notice,
            may_be_geometry,
            geometry_texts,
            geometry_objects,
            first_other_text,
            near_misses,
            dates_otherwise,
            date_otherwise,
            first_text,
        } = later;
        self.booleans += booleans;
        self.integers += integers;
        self.integers_beyond_i64 += integers_beyond_i64;
        self.exact_beyond_i64 += exact_beyond_i64;
        self.floats += floats;
        self.non_finite += non_finite;
        self.dates += dates;
        self.timestamps += timestamps;
        self.timestamps_utc += timestamps_utc;
        self.texts += texts;
        self.codes += codes;
        self.nested += nested;
        self.has_negative |= has_negative;
        self.has_inexact_integer |= has_inexact_integer;
        self.timestamp_notice = self.timestamp_notice.or(timestamp_notice);
        self.zone_notice = self.zone_notice.or(zone_notice);
        self.may_be_geometry |= may_be_geometry;
        self.geometry_texts += geometry_texts;
        self.geometry_objects += geometry_objects;
        self.first_other_text = self.first_other_text.take().or(first_other_text);
        self.near_misses += near_misses;
        self.dates_otherwise += dates_otherwise;
        if let Some((text, shape)) = date_otherwise {
            self.date_in_other_order(shape, || text);
        }
        self.first_text = self.first_text.take().or(first_text);
    }

    /// Observes a text of this pattern.
    fn date_in_other_order(&mut self, shape: &'static str, text: impl FnOnce() -> String) {
        // A day above 12 tells the order of all of them.
        let tells_order = |known: &str| shape.contains("%d/%m") && known.contains("%m/%d");
        if self.date_otherwise.as_ref().is_none_or(|(_, known)| tells_order(known)) {
            self.date_otherwise = Some((text(), shape));
        }
    }

    fn integer(&mut self, is_negative: bool, magnitude: u64) {
        self.integers += 1;
        self.has_negative |= is_negative;
        self.has_inexact_integer |= exact_float(magnitude).is_none();
    }

    fn beyond_i64(&mut self, value: u64) {
        self.integers_beyond_i64 += 1;
        self.exact_beyond_i64 += u64::from(exact_float(value).is_some());
    }

    fn not_a_number(&mut self, row: u64, text: &str, decimal_comma: bool) {
        // Most texts begin unlike any number or time.
        let begins_as_text = !matches!(text.as_bytes().first(), Some(b'0'..=b'9' | b'+' | b'-' | b'.' | b','));
        if parse_boolean(text).is_some() {
            self.booleans += 1;
        } else if begins_as_text {
            self.free_text(row, text);
        } else if !text.contains(':') && parse_date(text).is_ok() {
            self.date(text);
        } else if let Ok(timestamp) = parse_timestamp(text) {
            self.timestamp(timestamp);
        } else {
            let is_too_large = number::is_too_large(text);
            self.near_misses += u64::from(is_too_large || looks_like_date(text));
            self.exact_beyond_i64 += u64::from(is_too_large && !number::is_inexact_integer(text));
            self.codes += u64::from(number::parse_float(text, decimal_comma).is_some());
            self.free_text(row, text);
        }
    }

    fn date(&mut self, text: &str) {
        self.dates += 1;
        self.note_zone(text);
    }

    fn timestamp(&mut self, timestamp: Timestamp) {
        self.timestamp_notice = self.timestamp_notice.or(timestamp.notice());
        self.zone_notice = self.zone_notice.or(timestamp.zone_notice());
        if timestamp.has_zone {
            self.timestamps_utc += 1;
        } else {
            self.timestamps += 1;
        }
    }

    fn note_zone(&mut self, text: &str) {
        if self.zone_notice.is_none() {
            self.zone_notice = parse_timestamp(text).ok().and_then(|timestamp| timestamp.zone_notice());
        }
    }

    fn free_text(&mut self, row: u64, text: &str) {
        self.texts += 1;
        if let Some(shape) = date_shape(text) {
            self.dates_otherwise += 1;
            self.date_in_other_order(shape, || text.to_string());
        }
        if self.may_be_geometry {
            match looks_like_geometry(text) {
                true => self.geometry_texts += 1,
                false => _ = self.first_other_text.get_or_insert_with(|| (row, quoted(text))),
            }
        }
        if self.first_text.is_none() {
            self.first_text = Some((row, quoted(text)));
        }
    }

    /// Observes a JSON value. Strings are text, or times if they are wholly times. Numbers and
    /// booleans have their own types in JSON.
    pub(crate) fn json(&mut self, row: u64, value: JsonRef<'_>) {
        match value {
            JsonRef::Null => {}
            JsonRef::Bool(_) => self.booleans += 1,
            JsonRef::Number(number) => {
                if let Some(value) = json_integer(number) {
                    self.integer(value < 0, value.unsigned_abs());
                } else if let Some(value) = number.as_u64() {
                    self.beyond_i64(value);
                } else {
                    self.floats += 1;
                }
            }
            JsonRef::Text(text) => match Time::of(text) {
                Some(Time::Date) => self.date(text),
                Some(Time::Timestamp(timestamp)) => self.timestamp(timestamp),
                None => {
                    // The column may be one of timestamps in the dataset.
                    if self.timestamp_notice.is_none() {
                        self.timestamp_notice = parse_timestamp(text).ok().and_then(|timestamp| timestamp.notice());
                    }
                    self.note_zone(text);
                    self.near_misses += u64::from(looks_like_date(text));
                    self.free_text(row, text);
                }
            },
            JsonRef::Nested(value) => {
                self.nested += 1;
                self.geometry_objects += u64::from(self.may_be_geometry && is_geojson_geometry(value));
            }
        }
    }

    /// Whether there are numbers that float64 holds and int64 does not.
    pub(crate) fn has_floats(&self) -> bool {
        self.floats + self.exact_beyond_i64 > 0
    }

    /// Whether there is any value but null.
    pub(crate) fn has_values(&self) -> bool {
        self.texts + self.numbers() + self.non_finite + self.others() > 0
    }

    /// Whether there are timestamps with a zone.
    pub(crate) fn has_zones(&self) -> bool {
        self.timestamps_utc > 0
    }

    fn numbers(&self) -> u64 {
        self.integers + self.integers_beyond_i64 + self.floats
    }

    fn others(&self) -> u64 {
        self.booleans + self.times() + self.nested
    }

    /// Whether a column with the name of a coordinate is one: it has at least as many numbers as
    /// other values.
    pub(crate) fn looks_like_coordinate(&self) -> bool {
        self.texts - self.codes + self.others() <= self.numbers() + self.non_finite + self.codes
    }

    /// Whether a column with the name of a geometry is one: at least half of its values are WKT,
    /// WKB or GeoJSON.
    pub(crate) fn looks_like_geometry(&self) -> bool {
        let all = self.texts + self.numbers() + self.non_finite + self.others();
        let geometries = self.geometry_texts + self.geometry_objects;
        geometries > 0 && geometries * 2 >= all
    }

    /// Why a column with the name of a geometry is not used as one.
    pub(crate) fn geometry_warning(&self, name: &str) -> Option<String> {
        let (row, value) = self.first_other_text.as_ref().filter(|_| !self.looks_like_geometry())?;
        let others = self.texts - self.geometry_texts;
        Some(format!(
            "column {name:?} is not used as geometry because {others} value(s) like {value} (row {row}) are \
             neither WKT nor hexadecimal WKB nor GeoJSON"
        ))
    }

    fn times(&self) -> u64 {
        self.dates + self.timestamps + self.timestamps_utc
    }

    /// The narrowest type for all values. Dates beside timestamps are midnights.
    pub(crate) fn column_type(&self) -> ColumnType {
        let numbers = self.numbers();
        let all = numbers + self.non_finite + self.others() + self.texts;
        if all == 0 || self.texts + self.nested > 0 {
            ColumnType::Utf8
        } else if self.booleans == all {
            ColumnType::Boolean
        } else if numbers > 0 && numbers + self.non_finite == all {
            self.number_type()
        } else if self.dates == all {
            ColumnType::Date32
        } else if self.times() == all {
            // Times without a zone beside others are taken as UTC, with a warning.
            if self.timestamps_utc > 0 { ColumnType::TimestampUtc } else { ColumnType::Timestamp }
        } else {
            ColumnType::Utf8
        }
    }

    /// Whether the narrowest type is a type of times.
    pub(crate) fn are_times(&self) -> bool {
        matches!(self.column_type(), ColumnType::Date32 | ColumnType::Timestamp | ColumnType::TimestampUtc)
    }

    fn number_type(&self) -> ColumnType {
        if self.floats + self.non_finite > 0 {
            // No number type holds both fractions and such integers, and nothing is rounded
            // unasked.
            let is_exact = self.integers_beyond_i64 == 0 && !self.has_inexact_integer;
            if is_exact { ColumnType::Float64 } else { ColumnType::Utf8 }
        } else if self.integers_beyond_i64 == 0 {
            ColumnType::Int64
        } else if self.has_negative {
            ColumnType::Utf8
        } else {
            ColumnType::UInt64
        }
    }

    /// The notice to the user if the column gets this type.
    pub(crate) fn warnings(&self, name: &str, column_type: ColumnType) -> Vec<String> {
        match column_type {
            ColumnType::Utf8 => self.text_warning(name).into_iter().collect(),
            _ => self.timestamp_warnings(name, column_type),
        }
    }

    /// The same for texts of timestamps, whether the type was inferred or given.
    pub(crate) fn timestamp_warnings(&self, name: &str, column_type: ColumnType) -> Vec<String> {
        let is_utc = column_type == ColumnType::TimestampUtc;
        let is_timestamp = is_utc || column_type == ColumnType::Timestamp;
        let notices = [self.timestamp_notice.filter(|_| is_timestamp), self.zone_notice.filter(|_| is_utc)];
        notices.into_iter().flatten().map(|notice| format!("column {name:?}: {notice}")).collect()
    }

    /// The notice on how to read a column of dates in another order.
    fn date_warning(&self, name: &str) -> Option<String> {
        let (example, pattern) = self.date_otherwise.as_ref().filter(|_| self.dates_otherwise == self.texts)?;
        Some(format!(
            "column {name:?} is text, though its values look like dates ({}); --type '{name}={pattern}' reads them as such",
            quoted(example)
        ))
    }

    fn text_warning(&self, name: &str) -> Option<String> {
        if let Some(warning) = self.date_warning(name) {
            return Some(warning);
        }
        let others = self.numbers() + self.others() - self.nested;
        if let Some((row, value)) = &self.first_text {
            // A text column is worth a notice only if text is the exception, occurs beside times,
            // or looks like a failed number or date.
            let is_unexpected =
                others > self.texts || self.times() > 0 || (others > 0 && self.near_misses == self.texts);
            return is_unexpected.then(|| {
                format!(
                    "column {name:?} is text because of {} value(s) like {value} (row {row}); \
                     {others} other(s) are numbers, dates or booleans",
                    self.texts
                )
            });
        }
        if others > 0 && others == self.numbers() {
            return Some(format!("column {name:?} is text because no number type holds all of its numbers exactly"));
        }
        (others > 0)
            .then(|| format!("column {name:?} is text because its values have types with nothing narrower in common"))
    }
}
