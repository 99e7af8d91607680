//! Tells a JSON document from lines of JSON, by whether a second value follows the first.

use std::borrow::Cow;
use std::io::{self, BufRead};
use std::ops::Range;

use super::document::ValueScan;
use super::record_text::RECORD_BYTES_MAX;
use super::strict::{JsonValue, parse_strict};
use crate::error::FormatError;
use crate::geometry::is_geometry_type;
use crate::input::Input;

/// What a JSON file looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JsonShape {
    /// A value, then another one.
    Lines {
        /// Whether the first value is a GeoJSON feature.
        features: bool,
    },
    /// One value for the whole file, as far as can be seen.
    Document {
        /// Whether it is a GeoJSON object.
        geojson: bool,
    },
}

/// The shape of a file whose first character opens an object; `head` is its start.
///
/// A value that is longer than a record may be is a document.
pub(crate) fn shape_of(input: &Input, head: &[u8]) -> Result<JsonShape, FormatError> {
    let Some(first) = first_value(input)? else {
        return Ok(JsonShape::Document { geojson: looks_like_geojson(head) });
    };
    if !first.is_followed && first.range.end > head.len() {
        return Ok(JsonShape::Document { geojson: looks_like_geojson(head) });
    }
    let text = match head.get(first.range.clone()) {
        Some(text) => Cow::Borrowed(text),
        None => Cow::Owned(input.head(first.range.end)?.split_off(first.range.start)),
    };
    let value = parse_strict(&text).unwrap_or(JsonValue::Null);
    let kind = value.get("type").and_then(JsonValue::as_str).unwrap_or("");
    if first.is_followed {
        return Ok(JsonShape::Lines { features: kind == "Feature" });
    }
    let geojson = match kind {
        "FeatureCollection" | "Feature" => true,
        kind => is_geometry_type(kind) && value.get("properties").is_none(),
    } || value.get("features").is_some_and(JsonValue::is_array);
    Ok(JsonShape::Document { geojson })
}

fn looks_like_geojson(head: &[u8]) -> bool {
    let words = ["\"FeatureCollection\"", "\"features\"", "\"Feature\"", "\"coordinates\""];
    words.iter().any(|word| head.windows(word.len()).any(|window| window == word.as_bytes()))
}

/// The first value of a file.
struct FirstValue {
    /// Its bytes.
    range: Range<usize>,
    /// Whether another object follows.
    is_followed: bool,
}

/// Looks for the end of the first value, up to the maximum length of a record. Nothing is kept of
/// it.
fn first_value(input: &Input) -> Result<Option<FirstValue>, FormatError> {
    let mut content = input.content()?;
    let mut scan = ValueScan::default();
    let (mut offset, mut start, mut end) = (0, None, None);
    loop {
        let available = match content.fill_buf() {
            Ok(available) => available,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(FormatError::reading(&input.path, error)),
        };
        if available.is_empty() || offset > start.unwrap_or(0) + RECORD_BYTES_MAX {
            let range = start.zip(end).map(|(start, end)| start..end);
            return Ok(range.map(|range| FirstValue { range, is_followed: false }));
        }
        let mut bytes = available;
        if start.is_none() {
            // The value is an object; a byte order mark and blanks may precede it.
            let before = bytes.iter().take_while(|byte| **byte != b'{').count();
            start = (before < bytes.len()).then_some(offset + before);
            bytes = &bytes[before..];
        }
        if end.is_none() {
            let (count, is_complete) = scan.advance(bytes);
            end = is_complete.then_some(offset + available.len() - bytes.len() + count);
            bytes = &bytes[count..];
        }
        if let (Some(start), Some(end)) = (start, end)
            && let Some(next) = bytes.iter().find(|byte| !byte.is_ascii_whitespace())
        {
            return Ok(Some(FirstValue { range: start..end, is_followed: *next == b'{' }));
        }
        let length = available.len();
        content.consume(length);
        offset += length;
    }
}
