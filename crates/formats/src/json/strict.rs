//! Parses one JSON value strictly.

use std::cell::Cell;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number};
use thiserror::Error;

use crate::quoted::quoted;

/// A JSON value. Members keep their order.
pub type JsonValue = serde_json::Value;

/// What kind of fault a JSON text has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonErrorKind {
    /// It is not JSON.
    Syntax,
    /// It ends inside a JSON value.
    Unfinished,
    /// It is valid JSON, but not the expected content.
    Content,
}

/// Why a JSON text is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{reason}{}", .offset.map(|offset| format!(" (byte {offset})")).unwrap_or_default())]
pub struct JsonError {
    /// The kind of fault.
    pub kind: JsonErrorKind,
    /// What is wrong.
    pub reason: String,
    /// The byte offset in the text, where one is known.
    pub offset: Option<usize>,
}

impl JsonError {
    pub(crate) fn content(reason: impl Into<String>) -> JsonError {
        JsonError { kind: JsonErrorKind::Content, reason: reason.into(), offset: None }
    }
}

/// Most values in one text. The largest record of a store, 16 MiB of coordinates, has about three
/// million. A value takes dozens of times its length as text, which may be two bytes.
pub(crate) const VALUES_MAX: usize = 4 << 20;
/// How deep the parser allows arrays and objects to be nested.
pub(super) const DEPTH_MAX: u32 = 127;
/// A member counts as this many values, for its name.
const MEMBER_VALUES: usize = 4;

/// Parses exactly one JSON value.
///
/// # Errors
/// When the text has a syntax error, invalid UTF-8, a lone surrogate, a number beyond float64,
/// nesting deeper than 127, a duplicate member name, more than four million values, or an integer
/// of more than 64 bits.
pub fn parse_strict(text: &[u8]) -> Result<JsonValue, JsonError> {
    let text = std::str::from_utf8(text).map_err(|error| {
        let offset = error.valid_up_to();
        JsonError {
            kind: JsonErrorKind::Syntax,
            reason: format!(
                "invalid UTF-8 (byte value 0x{:02X}); convert the file to UTF-8",
                text.get(offset).copied().unwrap_or_default()
            ),
            offset: Some(offset),
        }
    })?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let left = Cell::new(VALUES_MAX);
    let value =
        StrictValue { left: &left }.deserialize(&mut deserializer).and_then(|value| deserializer.end().map(|()| value));
    let error = match value {
        // The text is valid JSON, so a run of digits outside of strings is a number.
        Ok(value) => return oversized_integer(text).map_or(Ok(value), |offset| Err(oversized(offset))),
        Err(error) => error,
    };
    if without_position(&error.to_string()) == OUT_OF_RANGE
        && let Some(offset) = oversized_integer(up_to_word(text, offset_of(text, &error)))
    {
        return Err(oversized(offset));
    }
    let kind = match error.classify() {
        serde_json::error::Category::Data => JsonErrorKind::Content,
        serde_json::error::Category::Eof if !ends_by_itself(text, &error) => JsonErrorKind::Unfinished,
        _ => JsonErrorKind::Syntax,
    };
    let (reason, offset) = explained(text, &error);
    Err(JsonError { kind, reason, offset: Some(offset) })
}

/// The parser's message for a number beyond float64.
const OUT_OF_RANGE: &str = "number out of range";

fn oversized(offset: usize) -> JsonError {
    JsonError {
        kind: JsonErrorKind::Content,
        reason: "an integer of more than 64 bits would lose digits; write it as a string".to_string(),
        offset: Some(offset),
    }
}

const NO_ESCAPE: &str = "there is no such escape; in text, write a backslash as \\\\, and others as \\\", \\/, \\b, \\f, \\n, \
                         \\r, \\t or \\u with four hexadecimal digits";

/// The parser's error and its position, in terms of the text.
fn explained(text: &str, error: &serde_json::Error) -> (String, usize) {
    let message = without_position(&error.to_string());
    if let Some(offset) = cut_escape(text, error) {
        return (NO_ESCAPE.to_string(), offset);
    }
    let offset = offset_of(text, error);
    let (start, word) = word_at(text, offset);
    let goes_beyond = start + word.len() > offset;
    let here = if goes_beyond { word } else { character_at(text, offset) };
    let no_value = || {
        let reason = format!(
            "{} is no JSON value: write an object in braces, an array in brackets, a number, true, false, null, or \
             text in double quotes",
            quoted(word)
        );
        (reason, start)
    };
    let reason = match message.as_str() {
        "expected value" if matches!(here, "," | ":" | "}" | "]") => {
            format!("a value is missing before {}", quoted(here))
        }
        "expected value" | "expected ident" | "invalid number" => return no_value(),
        _ if error.is_eof() && is_word(text) => return no_value(),
        // A character right behind a value, without blank or punctuation between, belongs to the
        // same word.
        "trailing characters" | "expected `,` or `]`" | "expected `,` or `}`" if start < offset && goes_beyond => {
            return no_value();
        }
        "key must be a string" if here == "," => {
            "a member is missing before the comma; add one, or remove the comma".to_string()
        }
        "key must be a string" => {
            return (format!("{} is not a member name; put names in double quotes", quoted(word)), start);
        }
        "trailing comma" => {
            let missing = if text.as_bytes().get(offset) == Some(&b'}') { "member" } else { "value" };
            format!("a {missing} is missing after the comma; add one, or remove the comma")
        }
        "trailing characters" => {
            format!("there is text after the end of the JSON value, from {} on; remove it", quoted(here))
        }
        "expected `,` or `]`" => format!("a comma or the closing bracket is missing before {}", quoted(here)),
        "expected `,` or `}`" => format!("a comma or the closing brace is missing before {}", quoted(here)),
        "expected `:`" => format!("the colon after the name of a member is missing before {}", quoted(word)),
        "unexpected end of hex escape" | "lone leading surrogate in hex escape" => {
            "the escape is half of a surrogate pair, and the other half is missing; write both, or the character \
             itself"
                .to_string()
        }
        "invalid escape" => NO_ESCAPE.to_string(),
        message if message.starts_with("control character") => {
            "text has a line end, a tab or another control character in it; write it as an escape, such as \\n or \\t"
                .to_string()
        }
        OUT_OF_RANGE => {
            "the number is out of range: float64 reaches to about 1.8e308; write it as a string".to_string()
        }
        "recursion limit exceeded" => {
            format!(
                "arrays and objects are nested more than {DEPTH_MAX} levels deep; write the value with fewer \
                levels"
            )
        }
        _ if text.trim_ascii().is_empty() => "there is no JSON value".to_string(),
        _ if error.is_eof() => "the text ends inside a JSON value: it is cut short".to_string(),
        _ => message,
    };
    (reason, offset)
}

/// The word around a position: the characters between blanks and punctuation. At punctuation, that
/// character.
fn word_at(text: &str, offset: usize) -> (usize, &str) {
    let is_end = |character: char| character.is_ascii_whitespace() || ",:{}[]\"".contains(character);
    let offset = text.floor_char_boundary(offset);
    let start = text[..offset].rfind(is_end).map_or(0, |end| end + 1);
    let end = text[offset..].find(is_end).map_or(text.len(), |length| offset + length);
    match start < end {
        true => (start, &text[start..end]),
        false => (offset, character_at(text, offset)),
    }
}

/// A text up to the end of the word at a position.
fn up_to_word(text: &str, offset: usize) -> &str {
    let (start, word) = word_at(text, offset);
    &text[..start + word.len()]
}

/// Whether the end of a text lacks something that would not complete it.
fn ends_by_itself(text: &str, error: &serde_json::Error) -> bool {
    is_word(text) || cut_escape(text, error).is_some()
}

/// Whether a text is no array, object or text in quotes.
fn is_word(text: &str) -> bool {
    let text = text.trim_ascii();
    !text.is_empty() && !text.starts_with(['[', '{', '"'])
}

/// The position of an escape `\u` that has fewer than four digits before the closing quote. Near
/// the end of a text, the parser reports it as the end of the text.
fn cut_escape(text: &str, error: &serde_json::Error) -> Option<usize> {
    let at = text.rfind("\\u").filter(|_| error.is_eof())?;
    let backslashes = text[..=at].bytes().rev().take_while(|byte| *byte == b'\\').count();
    let digits = text[at + 2..].bytes().take_while(u8::is_ascii_hexdigit).count();
    (backslashes % 2 == 1 && digits < 4 && text[at + 2 + digits..].starts_with('"')).then_some(at)
}

fn character_at(text: &str, offset: usize) -> &str {
    let rest = &text[text.floor_char_boundary(offset)..];
    rest.chars().next().map_or("", |character| &rest[..character.len_utf8()])
}

/// Whether a text of JSON has an integer that neither `i64` nor `u64` holds.
pub(super) fn has_oversized_integer(text: &str) -> bool {
    oversized_integer(text).is_some()
}

/// The position of an integer literal that neither `i64` nor `u64` holds. The parser would round it
/// to a float silently.
fn oversized_integer(text: &str) -> Option<usize> {
    /// Integers of fewer digits fit.
    const DIGITS_MIN: usize = 19;
    let bytes = text.as_bytes();
    let is_digit = |index: usize| bytes.get(index).is_some_and(u8::is_ascii_digit);
    let mut strings = Strings::default();
    // A run of n digits has a digit at a multiple of n, so a probe of every n-th byte finds it.
    let mut probe = DIGITS_MIN - 1;
    while probe < bytes.len() {
        if !is_digit(probe) {
            probe += DIGITS_MIN;
            continue;
        }
        let digits_before = bytes[..probe].iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        let start = probe - digits_before;
        let end = probe + bytes[probe..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        probe = end + DIGITS_MIN;
        let before = start.checked_sub(1).map(|index| bytes[index]);
        let is_part =
            matches!(before, Some(b'.' | b'e' | b'E' | b'+')) || matches!(bytes.get(end), Some(b'.' | b'e' | b'E'));
        let signed = before == Some(b'-');
        // An exponent may have a sign too.
        let is_exponent = signed && start >= 2 && matches!(bytes[start - 2], b'e' | b'E');
        let fits =
            if signed { text[start - 1..end].parse::<i64>().is_ok() } else { text[start..end].parse::<u64>().is_ok() };
        if end - start >= DIGITS_MIN && !is_part && !is_exponent && !fits && !strings.holds(bytes, start) {
            return Some(start);
        }
    }
    None
}

/// Tells whether positions, in ascending order, lie inside strings.
#[derive(Default)]
struct Strings {
    seen: usize,
    inside: bool,
    escaped: bool,
}

impl Strings {
    fn holds(&mut self, bytes: &[u8], place: usize) -> bool {
        for byte in &bytes[self.seen..place] {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.inside => self.escaped = true,
                b'"' => self.inside = !self.inside,
                _ => {}
            }
        }
        self.seen = place;
        self.inside
    }
}

/// The message without the line and column that the library appends.
fn without_position(message: &str) -> String {
    match message.rfind(" at line ") {
        Some(end) => message[..end].to_string(),
        None => message.to_string(),
    }
}

/// The position of the parser's error. An invalid line end counts as the beginning of the next
/// line.
fn offset_of(text: &str, error: &serde_json::Error) -> usize {
    if error.is_eof() {
        return text.len();
    }
    let line_start: usize = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    (line_start + error.column()).saturating_sub(1).min(text.len())
}

/// Builds a value. Refuses duplicate member names and too many values on the way.
#[derive(Clone, Copy)]
struct StrictValue<'c> {
    /// How many more values are allowed.
    left: &'c Cell<usize>,
}

impl StrictValue<'_> {
    fn count<E: de::Error>(self, values: usize) -> Result<(), E> {
        let left = self.left.get().checked_sub(values);
        self.left.set(
            left.ok_or_else(|| {
                E::custom(format!("more than {VALUES_MAX} values in one record; split it into several"))
            })?,
        );
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for StrictValue<'_> {
    type Value = JsonValue;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<JsonValue, D::Error> {
        self.count(1)?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictValue<'_> {
    type Value = JsonValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<JsonValue, E> {
        Ok(JsonValue::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<JsonValue, E> {
        Ok(JsonValue::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<JsonValue, E> {
        Ok(JsonValue::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<JsonValue, E> {
        Ok(JsonValue::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<JsonValue, E> {
        Number::from_f64(value).map(JsonValue::Number).ok_or_else(|| E::custom("a number is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<JsonValue, E> {
        Ok(JsonValue::String(value.to_string()))
    }

    fn visit_string<E>(self, value: String) -> Result<JsonValue, E> {
        Ok(JsonValue::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<JsonValue, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = access.next_element_seed(self)? {
            // Most arrays are positions of two numbers.
            if values.is_empty() {
                values.reserve_exact(2);
            }
            values.push(value);
        }
        Ok(JsonValue::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<JsonValue, A::Error> {
        let mut members = Map::new();
        while let Some(name) = access.next_key::<String>()? {
            self.count(MEMBER_VALUES)?;
            if members.contains_key(&name) {
                return Err(de::Error::custom(format!("duplicate member name {name:?}")));
            }
            let value = access.next_value_seed(self)?;
            members.insert(name, value);
        }
        Ok(JsonValue::Object(members))
    }
}
