//! Positions in one value of two coordinates, such as `"37.79, -122.43"`.

use serde_json::Value;
use terrane_space::Point;

use crate::error::FormatError;
use crate::guess::GeometryColumns;
use crate::quoted::quoted;
use crate::source::ReadOptions;

/// A column whose values are two coordinates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoordinatePair {
    /// Its name.
    pub column: String,
    /// Whether the latitude, or y, comes first.
    pub y_first: bool,
    /// Names of the columns for the longitude, or x, and the latitude, or y.
    pub names: [String; 2],
}

impl CoordinatePair {
    pub(crate) fn geometry(&self) -> GeometryColumns {
        let [x, y] = self.names.clone();
        GeometryColumns::Coordinates { x, y }
    }

    /// The position in a text, with or without brackets around it; `None` if it is blank.
    ///
    /// # Errors
    /// When the text is not two numbers.
    pub(crate) fn place(&self, text: &str) -> Result<Option<Point>, String> {
        let inner = text.trim();
        if inner.is_empty() {
            return Ok(None);
        }
        let brackets = [("(", ")"), ("[", "]")];
        let inner = brackets
            .iter()
            .find_map(|(opening, closing)| inner.strip_prefix(opening)?.strip_suffix(closing))
            .unwrap_or(inner);
        let separators = |character: char| character == ',' || character == ';' || character.is_whitespace();
        let numbers: Result<Vec<f64>, _> =
            inner.split(separators).filter(|part| !part.is_empty()).map(str::parse).collect();
        let numbers = numbers.ok().filter(|numbers| numbers.iter().all(|number| number.is_finite()));
        match numbers.as_deref() {
            Some([first, second]) if self.y_first => Ok(Some(Point::new(*second, *first))),
            Some([first, second]) => Ok(Some(Point::new(*first, *second))),
            _ => Err(format!(
                "column {:?}: {} is not two coordinates; write for example 37.79, -122.43",
                self.column,
                quoted(text)
            )),
        }
    }

    /// Replaces the member of a record by its two coordinates.
    ///
    /// # Errors
    /// When the member is not two numbers.
    pub(crate) fn split(&self, fields: &mut serde_json::Map<String, Value>) -> Result<(), String> {
        let Some(member) = fields.shift_remove(&self.column) else {
            return Ok(());
        };
        let place = match &member {
            Value::Null => None,
            Value::String(text) => self.place(text)?,
            other => self.place(&other.to_string())?,
        };
        let [x, y] = &self.names;
        fields.insert(x.clone(), place.map_or(Value::Null, |place| place.x.into()));
        fields.insert(y.clone(), place.map_or(Value::Null, |place| place.y.into()));
        Ok(())
    }

    /// # Errors
    /// When there is no such column, or a column for its coordinates exists already.
    pub(crate) fn check(&self, path: &std::path::Path, names: &[&str]) -> Result<(), FormatError> {
        if !names.contains(&self.column.as_str()) {
            let names = names.join(", ");
            return Err(FormatError::usage(
                path,
                format!("there is no column {:?}; the columns are {names}", self.column),
            ));
        }
        match self.names.iter().find(|name| names.contains(&name.as_str())) {
            Some(taken) => Err(FormatError::usage(
                path,
                format!(
                    "the coordinates of column {:?} would go to column {taken:?}, which exists already",
                    self.column
                ),
            )),
            None => Ok(()),
        }
    }
}

/// Takes a member whose name includes those of the members around it, such as `location.lat`, out
/// of them. A member with that very name stays.
pub(crate) fn lift(fields: &mut serde_json::Map<String, Value>, name: &str) {
    if !name.contains('.') || fields.contains_key(name) {
        return;
    }
    if let Some(value) = take_nested(fields, name) {
        fields.insert(name.to_string(), value);
    }
}

fn take_nested(members: &mut serde_json::Map<String, Value>, name: &str) -> Option<Value> {
    if let Some(value) = members.shift_remove(name) {
        return Some(value);
    }
    // Names may have dots in them.
    for (place, _) in name.match_indices('.') {
        let (outer, inner) = (&name[..place], &name[place + 1..]);
        let Some(Value::Object(nested)) = members.get_mut(outer) else { continue };
        if let Some(value) = take_nested(nested, inner) {
            if nested.is_empty() {
                members.shift_remove(outer);
            }
            return Some(value);
        }
    }
    None
}

impl ReadOptions {
    /// Whether the options replace members of a record.
    pub(crate) fn settles_members(&self) -> bool {
        self.pair.is_some() || [&self.x, &self.y, &self.geometry].into_iter().flatten().any(|name| name.contains('.'))
    }

    /// Converts the members of a record to the columns that the options name.
    pub(crate) fn settle_members(&self, fields: &mut serde_json::Map<String, Value>) -> Result<(), String> {
        for name in [&self.x, &self.y, &self.geometry].into_iter().flatten() {
            lift(fields, name);
        }
        match &self.pair {
            None => Ok(()),
            Some(pair) => {
                lift(fields, &pair.column);
                pair.split(fields)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_two_numbers_are_places() {
        let pair = CoordinatePair { column: "p".into(), y_first: true, names: ["lon".into(), "lat".into()] };
        for text in ["37.5, -122.25", "(37.5, -122.25)", "[37.5,-122.25]", " 37.5 -122.25 ", "37.5;-122.25"] {
            assert_eq!(pair.place(text), Ok(Some(Point::new(-122.25, 37.5))), "{text}");
        }
        assert_eq!(pair.place("  "), Ok(None));
        for text in ["37.5", "1,2,3", "a,b", "(1,2", "nan,1", "POINT (1 2)"] {
            assert!(pair.place(text).is_err(), "{text}");
        }
    }

    #[test]
    fn nested_members_are_lifted_and_what_is_beside_them_stays() {
        let mut fields = serde_json::json!({"a": {"b": {"lat": 1}, "c.d": 2, "e": 3}, "a.x": 4});
        let fields = fields.as_object_mut().expect("an object");
        for name in ["a.b.lat", "a.c.d", "a.x", "a.y"] {
            lift(fields, name);
        }
        assert_eq!(serde_json::json!(fields), serde_json::json!({"a": {"e": 3}, "a.x": 4, "a.b.lat": 1, "a.c.d": 2}));
    }
}
