//! Telling a JSON document from lines of JSON by the start of a file.

use super::strict::{JsonValue, parse_strict};
use crate::geometry::is_geometry_type;

/// What the start of a JSON file looks like.
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

/// Where the JSON value that `text` starts with ends, if it does.
fn value_end(text: &[u8]) -> Option<usize> {
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut is_escaped = false;
    for (index, &byte) in text.iter().enumerate() {
        if in_string {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' => is_escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(index + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// The shape of a file that starts with `text`, whose first character opens an object.
pub(crate) fn shape_of(text: &[u8]) -> JsonShape {
    let text = text.trim_ascii_start();
    let Some(end) = value_end(text) else {
        let contains = |word: &[u8]| text.windows(word.len()).any(|window| window == word);
        let geojson = contains(b"\"FeatureCollection\"")
            || contains(b"\"features\"")
            || contains(b"\"Feature\"")
            || contains(b"\"coordinates\"");
        return JsonShape::Document { geojson };
    };
    let first = parse_strict(&text[..end]).unwrap_or(JsonValue::Null);
    let kind = first.get("type").and_then(JsonValue::as_str).unwrap_or("");
    if text[end..].trim_ascii_start().starts_with(b"{") {
        return JsonShape::Lines { features: kind == "Feature" };
    }
    let geojson = match kind {
        "FeatureCollection" | "Feature" => true,
        kind => is_geometry_type(kind) && first.get("properties").is_none(),
    } || first.get("features").is_some_and(JsonValue::is_array);
    JsonShape::Document { geojson }
}
