//! One JSON object as a record: plain members, or a GeoJSON feature.

use serde_json::Map;
use terrane_space::Point;

use super::strict::{JsonError, JsonValue, parse_strict};
use crate::geometry::{CoordinateOptions, GeometryReader, is_geojson_geometry, looks_like_geometry};
use crate::layout::unique_name;

/// One record.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JsonRecord {
    /// The attributes in their order. Numbers without a fraction are integers.
    pub fields: Vec<(String, JsonValue)>,
    /// The geometry as little-endian ISO WKB.
    pub geometry: Option<Vec<u8>>,
    /// Whether the record states that it has no geometry.
    pub has_null_geometry: bool,
    /// The identifier that a feature carries beside its properties.
    pub id: Option<JsonValue>,
    /// Names of members of a feature, or of a bare geometry, that GeoJSON does not define. They do
    /// not become fields.
    pub foreign: Vec<String>,
}

/// Members of a feature that GeoJSON defines.
const FEATURE_MEMBERS: [&str; 6] = ["type", "geometry", "properties", "id", "bbox", "crs"];
/// Members of a geometry that GeoJSON defines.
const GEOMETRY_MEMBERS: [&str; 5] = ["type", "coordinates", "geometries", "bbox", "crs"];

/// How records that belong to no file are read.
#[derive(Debug, Clone, Default)]
pub struct RecordOptions {
    /// The reference system of their coordinates.
    pub coordinates: CoordinateOptions,
    /// Texts that stand for null.
    pub nulls: Vec<String>,
}

/// Reads records that belong to no file.
#[derive(Debug)]
pub struct RecordReader {
    geometries: GeometryReader,
    nulls: Vec<String>,
}

impl RecordReader {
    /// A reader of such records.
    ///
    /// # Errors
    /// When their reference system cannot be converted.
    pub fn new(options: RecordOptions) -> Result<RecordReader, String> {
        Ok(RecordReader { geometries: GeometryReader::of_records(&options.coordinates)?, nulls: options.nulls })
    }

    /// Parses one object.
    /// - The properties of a GeoJSON feature become the fields.
    /// - A bare GeoJSON geometry has no fields.
    /// - The members of any other object become the fields, except `geometry` where it is a GeoJSON
    ///   geometry, its text or WKT.
    ///
    /// # Errors
    /// When the line is not one strict JSON object, or the geometry is not valid or in a system
    /// that cannot be converted.
    pub fn parse(&self, line: &str) -> Result<JsonRecord, JsonError> {
        let text = line.strip_prefix('\u{feff}').unwrap_or(line);
        let text = text.trim_start_matches('\u{1e}');
        let mut value = parse_strict(text.as_bytes())?;
        replace_nulls(&mut value, &self.nulls);
        let raw = RawRecord::from_value(value).map_err(JsonError::content)?;
        let geometry = raw.geometry.convert(&self.geometries).map_err(JsonError::content)?;
        Ok(JsonRecord {
            fields: raw.fields.into_iter().collect(),
            geometry,
            has_null_geometry: raw.geometry == RawGeometry::Null,
            id: raw.id,
            foreign: raw.foreign,
        })
    }

    /// The geometry in a member, as little-endian ISO WKB; `None` for null and blank text. The
    /// member is GeoJSON, or a text of WKT, EWKT, hexadecimal WKB or GeoJSON.
    ///
    /// # Errors
    /// When the value is no geometry, or in a system that cannot be converted.
    pub fn geometry(&self, member: &JsonValue) -> Result<Option<Vec<u8>>, String> {
        self.geometries.json(member.into())
    }

    /// The position of a record with two coordinates.
    ///
    /// # Errors
    /// When no place on the earth has these coordinates in their reference system.
    pub fn point(&self, x: f64, y: f64) -> Result<(f64, f64), String> {
        self.geometries.point(Point::new(x, y)).map(|point| (point.x, point.y))
    }

    /// Notices on changes to the coordinates so far.
    pub fn notices(&self) -> Vec<String> {
        self.geometries.notices()
    }
}

/// Replaces members, and a feature's properties, by null if their value is one of these texts.
pub(super) fn replace_nulls(value: &mut JsonValue, nulls: &[String]) {
    let Some(members) = value.as_object_mut().filter(|_| !nulls.is_empty()) else {
        return;
    };
    let is_feature = members.get("type").and_then(JsonValue::as_str) == Some("Feature");
    for (name, member) in members.iter_mut() {
        match member {
            JsonValue::String(text) if nulls.contains(text) => *member = JsonValue::Null,
            JsonValue::Object(_) if is_feature && name == "properties" => replace_nulls(member, nulls),
            _ => {}
        }
    }
}

/// The geometry of a record before it is converted.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RawGeometry {
    /// The record does not mention one.
    Absent,
    /// It is null.
    Null,
    GeoJson(JsonValue),
    Text(String),
}

impl RawGeometry {
    pub(crate) fn convert(&self, reader: &GeometryReader) -> Result<Option<Vec<u8>>, String> {
        match self {
            RawGeometry::Absent | RawGeometry::Null => Ok(None),
            RawGeometry::GeoJson(value) => reader.geojson(value).map(Some),
            RawGeometry::Text(text) => reader.text(text).map(Some),
        }
        .map_err(|reason| format!("geometry: {reason}"))
    }
}

/// A record before its geometry is converted.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RawRecord {
    pub fields: Map<String, JsonValue>,
    pub geometry: RawGeometry,
    pub id: Option<JsonValue>,
    pub foreign: Vec<String>,
}

/// The names of members other than those known.
fn other_names(members: &Map<String, JsonValue>, known: &[&str]) -> Vec<String> {
    members.keys().filter(|name| !known.contains(&name.as_str())).cloned().collect()
}

/// Name of the field for the id of a feature.
const ID_FIELD: &str = "id";

impl RawRecord {
    /// Makes the id of a feature a field, unless its property `id` has the same value. Returns the
    /// field's name if that property has another value.
    pub(crate) fn take_id(&mut self) -> Option<String> {
        let id = self.id.take()?;
        if self.fields.get(ID_FIELD) == Some(&id) {
            return None;
        }
        let name = unique_name(ID_FIELD, |name| self.fields.contains_key(name));
        self.fields.shift_insert(0, name.clone(), id);
        Some(name).filter(|name| name != ID_FIELD)
    }

    pub(crate) fn from_value(value: JsonValue) -> Result<RawRecord, String> {
        let is_geometry = is_geojson_geometry(&value);
        let JsonValue::Object(mut members) = value else {
            return Err(format!("a record must be a JSON object, not {}", kind_of(&value)));
        };
        match members.get("type").and_then(JsonValue::as_str).unwrap_or("") {
            "Feature" if members.contains_key("geometry") || members.contains_key("properties") => {
                RawRecord::from_feature(members)
            }
            "FeatureCollection" if members.contains_key("features") => {
                Err("a whole FeatureCollection is not a record; write its features one per line".to_string())
            }
            _ if is_geometry => Ok(RawRecord {
                fields: Map::new(),
                foreign: other_names(&members, &GEOMETRY_MEMBERS),
                geometry: RawGeometry::GeoJson(JsonValue::Object(members)),
                id: None,
            }),
            _ => {
                let geometry = plain_geometry(&mut members);
                Ok(RawRecord { fields: members, geometry, id: None, foreign: Vec::new() })
            }
        }
    }

    fn from_feature(mut members: Map<String, JsonValue>) -> Result<RawRecord, String> {
        let foreign = other_names(&members, &FEATURE_MEMBERS);
        let fields = match members.remove("properties") {
            None | Some(JsonValue::Null) => Map::new(),
            Some(JsonValue::Object(properties)) => properties,
            Some(other) => {
                return Err(format!("the properties of a feature must be an object or null, not {}", kind_of(&other)));
            }
        };
        let geometry = match members.remove("geometry") {
            None | Some(JsonValue::Null) => RawGeometry::Null,
            Some(value) => RawGeometry::GeoJson(with_crs(value, members.remove("crs"))?),
        };
        let id = match members.remove("id") {
            None | Some(JsonValue::Null) => None,
            Some(id @ (JsonValue::String(_) | JsonValue::Number(_))) => Some(id),
            Some(other) => {
                return Err(format!("the id of a feature must be a string or a number, not {}", kind_of(&other)));
            }
        };
        Ok(RawRecord { fields, geometry, id, foreign })
    }
}

/// A feature's geometry with the reference system that the feature declares.
fn with_crs(mut geometry: JsonValue, crs: Option<JsonValue>) -> Result<JsonValue, String> {
    if let (Some(crs), JsonValue::Object(members)) = (crs.filter(|crs| !crs.is_null()), &mut geometry) {
        let declared = members.entry("crs").or_insert_with(|| crs.clone());
        if *declared != crs {
            return Err("the feature and its geometry declare different reference systems".to_string());
        }
    }
    Ok(geometry)
}

/// Takes the geometry out of the members of a plain object.
fn plain_geometry(members: &mut Map<String, JsonValue>) -> RawGeometry {
    let is_geometry = match members.get("geometry") {
        Some(JsonValue::Null | JsonValue::Object(_)) => true,
        Some(JsonValue::String(text)) => looks_like_geometry(text),
        _ => false,
    };
    if !is_geometry {
        return RawGeometry::Absent;
    }
    match members.shift_remove("geometry") {
        Some(JsonValue::String(text)) => RawGeometry::Text(text),
        Some(value @ JsonValue::Object(_)) => RawGeometry::GeoJson(value),
        _ => RawGeometry::Null,
    }
}

fn kind_of(value: &JsonValue) -> &'static str {
    match value {
        JsonValue::Null => "null",
        JsonValue::Bool(_) => "a boolean",
        JsonValue::Number(_) => "a number",
        JsonValue::String(_) => "a string",
        JsonValue::Array(_) => "an array",
        JsonValue::Object(_) => "an object",
    }
}
