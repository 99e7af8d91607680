//! GeoJSON geometries (RFC 7946), read from and written to parsed JSON.
//!
//! This module does not use the types of a GeoJSON library, so that an error can name the path to
//! the value, and positions keep their third number.

use serde_json::{Map, Value, json};

use super::error::GeometryError;
use super::kind::{Dimensions, GeometryKind, Position};
use super::walk::{NESTING_DEPTH_MAX, Visitor, walk};
use super::wkb::normalise;
use super::write::{CommonDimensions, Writer};

/// The stored form of a GeoJSON geometry object.
///
/// All positions have two numbers, or all have three. Empty `coordinates` give an empty geometry.
/// `bbox`, `crs` and foreign members are ignored; readers of files check `crs`.
///
/// # Errors
/// The path to the wrong value, or what is wrong with the geometry.
pub fn from_geojson(value: &Value) -> Result<Vec<u8>, GeometryError> {
    let mut writer = Writer::default();
    write_geometry(&mut writer, value, 1).map_err(|failure| GeometryError::Json {
        path: failure.path.trim_start_matches('.').to_owned(),
        reason: failure.reason,
    })?;
    normalise(&writer.bytes)
}

struct Failure {
    path: String,
    reason: String,
}

impl Failure {
    fn new(reason: impl Into<String>) -> Self {
        Self { path: String::new(), reason: reason.into() }
    }

    fn under(mut self, step: impl std::fmt::Display) -> Self {
        self.path = format!("{step}{}", self.path);
        self
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn array(value: &Value) -> Result<&[Value], Failure> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(Failure::new(format!("an array is expected, found {}", type_name(other)))),
    }
}

/// Calls `write` for each item of the array `value`; an error names the item.
fn each(value: &Value, mut write: impl FnMut(&Value) -> Result<(), Failure>) -> Result<(), Failure> {
    for (index, item) in array(value)?.iter().enumerate() {
        write(item).map_err(|failure| failure.under(format_args!("[{index}]")))?;
    }
    Ok(())
}

fn write_geometry(writer: &mut Writer, value: &Value, depth: u32) -> Result<(), Failure> {
    if depth > NESTING_DEPTH_MAX {
        return Err(Failure::new(format!("nested deeper than {NESTING_DEPTH_MAX} levels")));
    }
    let Value::Object(object) = value else {
        let found = type_name(value);
        return Err(Failure::new(format!("a geometry object is expected, found {found}")));
    };
    let name = match object.get("type") {
        Some(Value::String(name)) => name,
        Some(other) => {
            let reason = format!("a string is expected, found {}", type_name(other));
            return Err(Failure::new(reason).under(".type"));
        }
        None => return Err(Failure::new("the member \"type\" is missing")),
    };
    let Some(kind) = GeometryKind::from_name(name) else {
        let reason = if name.starts_with("Feature") {
            format!("this is a {name}; the geometry inside of a feature is expected")
        } else {
            format!("{name:?} is not a type of geometry (names are case-sensitive)")
        };
        return Err(Failure::new(reason).under(".type"));
    };
    let member = if kind == GeometryKind::GeometryCollection { "geometries" } else { "coordinates" };
    let content = object.get(member).ok_or_else(|| Failure::new(format!("the member \"{member}\" is missing")))?;
    write_content(writer, kind, content, depth).map_err(|failure| failure.under(format_args!(".{member}")))
}

fn write_content(writer: &mut Writer, kind: GeometryKind, content: &Value, depth: u32) -> Result<(), Failure> {
    if kind == GeometryKind::GeometryCollection {
        let start = writer.bytes.len();
        writer.header(kind, Dimensions::XY);
        writer.count(array(content)?.len());
        let mut common = CommonDimensions::default();
        each(content, |item| {
            let member = writer.bytes.len();
            write_geometry(writer, item, depth + 1)?;
            common.add(writer.dimensions_at(member));
            Ok(())
        })?;
        writer.rewrite_header(start, kind, common.get());
        return Ok(());
    }
    let dimensions = Dimensions { has_z: first_position_length(content) >= 3, has_m: false };
    write_coordinates(writer, kind, content, dimensions)
}

/// The length of the first position in nested arrays; 0 when there is none.
fn first_position_length(content: &Value) -> usize {
    let mut level = vec![content];
    while let Some(value) = level.pop() {
        if let Value::Array(items) = value {
            if items.first().is_some_and(|first| !first.is_array()) {
                return items.len();
            }
            level.extend(items.iter().rev());
        }
    }
    0
}

fn write_coordinates(
    writer: &mut Writer,
    kind: GeometryKind,
    content: &Value,
    dimensions: Dimensions,
) -> Result<(), Failure> {
    if kind == GeometryKind::Point && array(content)?.is_empty() {
        writer.empty_point(dimensions);
        return Ok(());
    }
    writer.header(kind, dimensions);
    match kind {
        GeometryKind::Point => write_position(writer, content, dimensions),
        GeometryKind::LineString => write_sequence(writer, content, dimensions),
        GeometryKind::Polygon => {
            writer.count(array(content)?.len());
            each(content, |ring| write_sequence(writer, ring, dimensions))
        }
        _ => {
            writer.count(array(content)?.len());
            let member = kind.member().unwrap_or(kind);
            each(content, |item| write_coordinates(writer, member, item, dimensions))
        }
    }
}

fn write_sequence(writer: &mut Writer, value: &Value, dimensions: Dimensions) -> Result<(), Failure> {
    writer.count(array(value)?.len());
    each(value, |position| write_position(writer, position, dimensions))
}

fn write_position(writer: &mut Writer, value: &Value, dimensions: Dimensions) -> Result<(), Failure> {
    let items = array(value)?;
    if !(2..=3).contains(&items.len()) {
        let count = items.len();
        return Err(Failure::new(format!("a position has two or three numbers, found {count}")));
    }
    if items.len() != dimensions.count() {
        return Err(Failure::new("positions with two and with three numbers in one geometry"));
    }
    each(value, |item| match item.as_f64() {
        Some(number) => {
            writer.numbers(&[number]);
            Ok(())
        }
        None => Err(Failure::new(format!("a number is expected, found {}", type_name(item)))),
    })
}

/// The geometry as a GeoJSON object, with Z and without M.
///
/// # Errors
/// When the bytes are not a geometry.
pub fn to_geojson(bytes: &[u8]) -> Result<Value, GeometryError> {
    let mut builder = Builder::default();
    walk(bytes, &mut builder)?;
    Ok(builder.finished)
}

/// A geometry that has begun and not ended.
struct Frame {
    kind: GeometryKind,
    /// Coordinates of the positions since the geometry or its ring began.
    positions: Vec<Value>,
    /// Finished rings or members.
    parts: Vec<Value>,
    /// Positions left in the ring.
    ring_left: u32,
}

#[derive(Default)]
struct Builder {
    frames: Vec<Frame>,
    finished: Value,
}

impl Visitor for Builder {
    fn begin(&mut self, kind: GeometryKind, _dimensions: Dimensions, _count: u32) {
        self.frames.push(Frame { kind, positions: Vec::new(), parts: Vec::new(), ring_left: 0 });
    }

    fn ring(&mut self, count: u32) {
        if let Some(frame) = self.frames.last_mut() {
            frame.ring_left = count;
        }
    }

    fn position(&mut self, position: Position) -> Result<(), GeometryError> {
        let Some(frame) = self.frames.last_mut() else {
            return Ok(());
        };
        let count = 2 + usize::from(position.dimensions.has_z);
        frame.positions.push(json!(position.values[..count]));
        if frame.ring_left > 0 {
            frame.ring_left -= 1;
            if frame.ring_left == 0 {
                let ring = std::mem::take(&mut frame.positions);
                frame.parts.push(Value::Array(ring));
            }
        }
        Ok(())
    }

    fn end(&mut self) {
        let Some(frame) = self.frames.pop() else {
            return;
        };
        let kind = frame.kind;
        let content = match kind {
            GeometryKind::Point => frame.positions.into_iter().next().unwrap_or_else(|| Value::Array(Vec::new())),
            GeometryKind::LineString => Value::Array(frame.positions),
            _ => Value::Array(frame.parts),
        };
        match self.frames.last_mut() {
            Some(parent) if parent.kind != GeometryKind::GeometryCollection => {
                parent.parts.push(content);
            }
            Some(parent) => parent.parts.push(object(kind, content)),
            None => self.finished = object(kind, content),
        }
    }
}

fn object(kind: GeometryKind, content: Value) -> Value {
    let member = if kind == GeometryKind::GeometryCollection { "geometries" } else { "coordinates" };
    let mut object = Map::new();
    object.insert("type".to_owned(), Value::from(kind.name()));
    object.insert(member.to_owned(), content);
    Value::Object(object)
}
