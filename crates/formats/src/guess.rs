//! Guesses from names and types which columns are the key, the coordinates and the geometry. A
//! guess is always shown to the user, never acted upon silently.

use std::fmt;

use arrow_schema::{DataType, Schema};
use terrane_literal::UUID_STORAGE;

/// The source of a row's geometry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GeometryColumns {
    /// None was recognised.
    None,
    /// One Binary column of little-endian ISO WKB.
    Column {
        /// The column's name.
        name: String,
    },
    /// Two Float64 columns.
    Coordinates {
        /// Longitude, or x.
        x: String,
        /// Latitude, or y.
        y: String,
    },
}

/// Pairs of names of a longitude and a latitude, in order of preference.
const COORDINATE_NAMES: [(&str, &str); 10] = [
    ("longitude", "latitude"),
    ("lon", "lat"),
    ("lng", "lat"),
    ("long", "lat"),
    ("longitud", "latitud"),
    ("lon", "latitude"),
    ("decimallongitude", "decimallatitude"),
    ("easting", "northing"),
    ("x", "y"),
    ("xcoord", "ycoord"),
];

/// Names of text columns that hold WKT, hexadecimal WKB or GeoJSON.
const GEOMETRY_NAMES: [&str; 11] = [
    "geometry",
    "geom",
    "wkt",
    "the_geom",
    "wkb_geometry",
    "wkb",
    "wkt_geom",
    "shape",
    "geojson",
    "geo_shape",
    "geo shape",
];

/// Whether `name` is a usual name of geometry columns.
pub(crate) fn is_geometry_name(name: &str) -> bool {
    GEOMETRY_NAMES.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// The first pair of column names, in column order, that read like longitude and latitude with a
/// common prefix and suffix (`pickup_lon`, `pickup_lat`; `pickupLon`, `pickupLat`).
pub fn detect_coordinates_by_name<'a>(names: &[&'a str]) -> Option<(&'a str, &'a str)> {
    let lower: Vec<String> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
    let mut best: Option<(usize, usize)> = None;
    for (x_name, y_name) in COORDINATE_NAMES {
        for (index, name) in lower.iter().enumerate() {
            let Some(partner) = partner_of(names[index], name, x_name, y_name) else {
                continue;
            };
            if let Some(other) = lower.iter().position(|candidate| *candidate == partner)
                && best.is_none_or(|(x, y)| index.min(other) < x.min(y))
            {
                best = Some((index, other));
            }
        }
    }
    best.map(|(x, y)| (names[x], names[y]))
}

/// The name of the other coordinate's column, if `name` contains `x_name` as a word of its own.
/// `lower` is `name` in lower case.
fn partner_of(name: &str, lower: &str, x_name: &str, y_name: &str) -> Option<String> {
    // In camel case a capital begins a word. A single letter is too weak a sign there.
    let is_capital = |character: Option<char>| x_name.len() > 1 && character.is_some_and(|c| c.is_ascii_uppercase());
    let is_small = |character: Option<char>| character.is_some_and(|c| c.is_ascii_lowercase());
    let is_boundary = |before: Option<char>, after: Option<char>| {
        let is_letter = |character: Option<char>| character.is_some_and(char::is_alphanumeric);
        !(is_letter(before) && is_letter(after)) || (is_small(before) && is_capital(after))
    };
    let is_boundary_at = |place: usize| is_boundary(name[..place].chars().next_back(), name[place..].chars().next());
    let mut starts = lower.match_indices(x_name).map(|(start, _)| start);
    let start = starts.find(|start| is_boundary_at(*start) && is_boundary_at(start + x_name.len()))?;
    let (prefix, suffix) = (&lower[..start], &lower[start + x_name.len()..]);
    // A single letter with something around it is too weak: "x_axis_label".
    if x_name.len() == 1 && !(prefix.is_empty() || suffix.is_empty()) {
        return None;
    }
    Some(format!("{prefix}{y_name}{suffix}"))
}

/// The coordinate columns of a table, by their names. Their type must be float64 or int64.
pub fn detect_coordinates(schema: &Schema) -> Option<(String, String)> {
    let numeric: Vec<&str> = schema
        .fields()
        .iter()
        .filter(|field| matches!(field.data_type(), DataType::Float64 | DataType::Float32 | DataType::Int64))
        .map(|field| field.name().as_str())
        .collect();
    detect_coordinates_by_name(&numeric).map(|(x, y)| (x.to_string(), y.to_string()))
}

/// The key column of a table: `id`, `key`, `fid`, `uuid`, … anywhere, or a first column whose name
/// ends in `_id`. Its type must be an integer type, text or UUID.
pub fn detect_key(schema: &Schema) -> Option<String> {
    const NAMES: [&str; 9] = ["id", "key", "fid", "gid", "ogc_fid", "objectid", "uuid", "guid", "pk"];
    let is_key_type = |data_type: &DataType| {
        matches!(data_type, DataType::Int64 | DataType::UInt64 | DataType::Utf8) || *data_type == UUID_STORAGE
    };
    let first = schema.fields().first()?;
    let named = schema.fields().iter().find(|field| {
        let name = field.name().to_lowercase();
        is_key_type(field.data_type()) && NAMES.contains(&name.as_str())
    });
    let first_name = first.name().to_lowercase();
    let is_first_key = is_key_type(first.data_type())
        && (first_name.ends_with("_id") || first_name.ends_with("_key") || first_name.ends_with("_uuid"));
    match named {
        Some(field) if field.name() == first.name() || !is_first_key => Some(field.name().clone()),
        _ => is_first_key.then(|| first.name().clone()),
    }
}

/// The columns recognised in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guess {
    /// The column that looks like a key.
    pub key: Option<String>,
    /// Where the geometry is.
    pub geometry: GeometryColumns,
}

impl Guess {
    /// The guess for a table whose geometry is known.
    pub fn new(schema: &Schema, geometry: GeometryColumns) -> Guess {
        Guess { key: detect_key(schema), geometry }
    }
}

impl fmt::Display for Guess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            Some(key) => write!(f, "key: column {key:?}")?,
            None => f.write_str("key: row number")?,
        }
        match &self.geometry {
            GeometryColumns::None => f.write_str(", geometry: none found"),
            GeometryColumns::Column { name } => write!(f, ", geometry: column {name:?}"),
            GeometryColumns::Coordinates { x, y } => {
                write!(f, ", geometry: points from columns {x:?} and {y:?}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow_schema::Field;

    use super::*;

    fn table(columns: &[(&str, DataType)]) -> Schema {
        Schema::new(
            columns.iter().map(|(name, data_type)| Field::new(*name, data_type.clone(), true)).collect::<Vec<_>>(),
        )
    }

    #[test]
    fn coordinate_names_are_found_in_column_order() {
        let names = |names: &[&'static str]| detect_coordinates_by_name(names);
        assert_eq!(names(&["Date/Time", "Lat", "Lon", "Base"]), Some(("Lon", "Lat")));
        assert_eq!(
            names(&["id", "pickup_lon", "pickup_lat", "dropoff_lon", "dropoff_lat"]),
            Some(("pickup_lon", "pickup_lat"))
        );
        assert_eq!(names(&["start_ts", "end_lon", "end_lat", "start_lon", "start_lat"]), Some(("end_lon", "end_lat")));
        assert_eq!(names(&["LONGITUDE", "LATITUDE"]), Some(("LONGITUDE", "LATITUDE")));
        assert_eq!(names(&["lng", "lat"]), Some(("lng", "lat")));
        assert_eq!(names(&["x", "y"]), Some(("x", "y")));
        for pair in [
            ["decimalLongitude", "decimalLatitude"],
            ["decimallongitude", "decimallatitude"],
            ["longitude_deg", "latitude_deg"],
            ["pickupLon", "pickupLat"],
            ["lonDeg", "latDeg"],
            ["Größe_lon", "Größe_lat"],
        ] {
            assert_eq!(names(&[pair[1], pair[0]]), Some((pair[0], pair[1])));
        }
        assert_eq!(names(&["colon", "colat"]), None);
        assert_eq!(names(&["xMin", "yMin"]), None);
        assert_eq!(names(&["pickup_lon", "dropoff_lat"]), None);
    }

    #[test]
    fn coordinates_must_be_numbers() {
        let schema = table(&[("lon", DataType::Utf8), ("lat", DataType::Float64)]);
        assert_eq!(detect_coordinates(&schema), None);
    }

    #[test]
    fn keys_are_found_by_name_and_type() {
        let key = |columns: &[(&str, DataType)]| detect_key(&table(columns));
        assert_eq!(key(&[("name", DataType::Utf8), ("ID", DataType::Int64)]).as_deref(), Some("ID"));
        assert_eq!(key(&[("ride_id", DataType::Int64), ("cab_id", DataType::Int64)]).as_deref(), Some("ride_id"));
        assert_eq!(key(&[("name", DataType::Utf8), ("cab_id", DataType::Int64)]), None);
        assert_eq!(key(&[("id", DataType::Float64)]), None);
        assert_eq!(key(&[]), None);
    }
}
