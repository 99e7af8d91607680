//! Reads records that are one object of scalars, as most are, without building a tree of values.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::{Number, Value};

use super::strict::has_oversized_integer;

/// Members that may make a record more than a plain object.
const NAMES_WITH_MEANING: [&str; 5] = ["geometry", "properties", "features", "coordinates", "geometries"];

/// A borrowed value of a record, nested or not.
#[derive(Debug, Clone, Copy)]
pub(crate) enum JsonRef<'v> {
    Null,
    Bool(bool),
    Number(&'v Number),
    Text(&'v str),
    Nested(&'v Value),
}

impl<'v> From<&'v Value> for JsonRef<'v> {
    fn from(value: &'v Value) -> Self {
        match value {
            Value::Null => JsonRef::Null,
            Value::Bool(value) => JsonRef::Bool(*value),
            Value::Number(number) => JsonRef::Number(number),
            Value::String(text) => JsonRef::Text(text),
            Value::Array(_) | Value::Object(_) => JsonRef::Nested(value),
        }
    }
}

impl fmt::Display for JsonRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JsonRef::Null => f.write_str("null"),
            JsonRef::Bool(value) => value.fmt(f),
            JsonRef::Number(number) => number.fmt(f),
            JsonRef::Text(text) => Value::from(*text).fmt(f),
            JsonRef::Nested(value) => value.fmt(f),
        }
    }
}

/// A scalar of a text.
#[derive(Debug)]
pub(crate) enum FlatValue<'t> {
    Null,
    Bool(bool),
    Number(Number),
    Text(Cow<'t, str>),
}

impl FlatValue<'_> {
    pub(crate) fn as_ref(&self) -> JsonRef<'_> {
        match self {
            FlatValue::Null => JsonRef::Null,
            FlatValue::Bool(value) => JsonRef::Bool(*value),
            FlatValue::Number(number) => JsonRef::Number(number),
            FlatValue::Text(text) => JsonRef::Text(text),
        }
    }
}

/// The members of one record after another.
#[derive(Debug, Default)]
pub(crate) struct FlatMembers<'t> {
    /// The value of each column in this record.
    values: Vec<Option<FlatValue<'t>>>,
    /// The columns that have one.
    present: Vec<usize>,
}

impl<'t> FlatMembers<'t> {
    /// Reads the members of a record, by the ordinals of their columns. Returns false if the record
    /// is not valid, is no object of scalars, or has a member that is unknown, duplicate or
    /// special.
    pub(crate) fn read(&mut self, text: &'t [u8], names: &Names) -> bool {
        for column in self.present.drain(..) {
            self.values[column] = None;
        }
        self.values.resize_with(names.len(), || None);
        let Ok(text) = std::str::from_utf8(text) else { return false };
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let visitor = MembersVisitor { members: self, names };
        let is_read = deserializer.deserialize_map(visitor).is_ok() && deserializer.end().is_ok();
        is_read && !has_oversized_integer(text)
    }

    /// The value of a column, if the record has one.
    pub(crate) fn get(&self, column: usize) -> Option<JsonRef<'_>> {
        self.values.get(column)?.as_ref().map(FlatValue::as_ref)
    }

    /// The values of the record, with their columns.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, JsonRef<'_>)> {
        self.present.iter().filter_map(|&column| Some((column, self.get(column)?)))
    }
}

/// The column names and their ordinals.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    names: Vec<String>,
    places: HashMap<String, usize>,
}

impl Names {
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, String> {
        self.names.iter()
    }

    pub(crate) fn place(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    pub(crate) fn push(&mut self, name: &str) {
        self.places.insert(name.to_string(), self.names.len());
        self.names.push(name.to_string());
    }

    /// The ordinal of a name; `likely` is tried first.
    fn likely_place(&self, likely: usize, name: &str) -> Option<usize> {
        match self.names.get(likely) {
            Some(known) if known == name => Some(likely),
            _ => self.place(name),
        }
    }
}

struct MembersVisitor<'m, 't> {
    members: &'m mut FlatMembers<'t>,
    names: &'m Names,
}

impl<'t> Visitor<'t> for MembersVisitor<'_, 't> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of scalars")
    }

    fn visit_map<A: MapAccess<'t>>(self, mut access: A) -> Result<(), A::Error> {
        // Records usually have their members in the same order.
        let mut likely = 0;
        while let Some(name) = access.next_key_seed(Text)? {
            let place = self.names.likely_place(likely, &name);
            let place = place
                .filter(|&place| self.members.values[place].is_none() && !NAMES_WITH_MEANING.contains(&name.as_ref()));
            let Some(place) = place else {
                return Err(de::Error::custom("a member that is not expected"));
            };
            self.members.values[place] = Some(access.next_value_seed(Scalar)?);
            self.members.present.push(place);
            likely = place + 1;
        }
        Ok(())
    }
}

struct Text;

impl<'t> DeserializeSeed<'t> for Text {
    type Value = Cow<'t, str>;

    fn deserialize<D: Deserializer<'t>>(self, deserializer: D) -> Result<Cow<'t, str>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'t> Visitor<'t> for Text {
    type Value = Cow<'t, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_borrowed_str<E>(self, value: &'t str) -> Result<Cow<'t, str>, E> {
        Ok(Cow::Borrowed(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Cow<'t, str>, E> {
        Ok(Cow::Owned(value.to_owned()))
    }
}

struct Scalar;

impl<'t> DeserializeSeed<'t> for Scalar {
    type Value = FlatValue<'t>;

    fn deserialize<D: Deserializer<'t>>(self, deserializer: D) -> Result<FlatValue<'t>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'t> Visitor<'t> for Scalar {
    type Value = FlatValue<'t>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a scalar")
    }

    fn visit_unit<E>(self) -> Result<FlatValue<'t>, E> {
        Ok(FlatValue::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<FlatValue<'t>, E> {
        Ok(FlatValue::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<FlatValue<'t>, E> {
        Ok(FlatValue::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<FlatValue<'t>, E> {
        Ok(FlatValue::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<FlatValue<'t>, E> {
        Number::from_f64(value).map(FlatValue::Number).ok_or_else(|| E::custom("a number is not finite"))
    }

    fn visit_borrowed_str<E>(self, value: &'t str) -> Result<FlatValue<'t>, E> {
        Ok(FlatValue::Text(Cow::Borrowed(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<FlatValue<'t>, E> {
        Ok(FlatValue::Text(Cow::Owned(value.to_owned())))
    }
}
