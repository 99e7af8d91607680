//! What a columnar file says about its geometry: the `geo` metadata of
//! GeoParquet, and the extension types of GeoArrow.

use std::path::Path;

use arrow_schema::{DataType, Field, Schema};
use serde_json::Value;

use crate::crs::DeclaredCrs;
use crate::error::{FormatError, Location};
use crate::json::parse_strict;

/// How a geometry column is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Wkb,
    Wkt,
    Point,
    LineString,
    Polygon,
    MultiPoint,
    MultiLineString,
    MultiPolygon,
}

impl Encoding {
    /// From a name of GeoParquet, or of GeoArrow without its prefix.
    fn from_name(name: &str) -> Option<Encoding> {
        Some(match name.to_ascii_lowercase().as_str() {
            "wkb" => Encoding::Wkb,
            "wkt" => Encoding::Wkt,
            "point" => Encoding::Point,
            "linestring" => Encoding::LineString,
            "polygon" => Encoding::Polygon,
            "multipoint" => Encoding::MultiPoint,
            "multilinestring" => Encoding::MultiLineString,
            "multipolygon" => Encoding::MultiPolygon,
            _ => return None,
        })
    }
}

/// The geometry column that a file declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeclaredGeometry {
    pub column: String,
    pub encoding: Encoding,
    pub crs: DeclaredCrs,
    /// A column of its bounding boxes, which is derived and therefore left out.
    pub covering: Option<String>,
}

const UNKNOWN_ENCODING_HINT: &str =
    "write the geometry as WKB or as a GeoArrow point, linestring, polygon or multi-geometry";

/// The bounds in a column of bounding boxes; those of heights may be missing.
const BOUNDS: [&str; 6] = ["xmin", "ymin", "xmax", "ymax", "zmin", "zmax"];

/// Reads `geo` metadata. Bounding boxes in it are never relied upon.
///
/// # Errors
/// When it is not valid, or describes what the file does not have.
pub(crate) fn from_geoparquet(
    path: &Path,
    metadata: &str,
    schema: &Schema,
    warnings: &mut Vec<String>,
) -> Result<DeclaredGeometry, FormatError> {
    let damaged = |reason: String| FormatError::damaged(path, Location::File, format!("\"geo\" metadata: {reason}"));
    let value = parse_strict(metadata.as_bytes()).map_err(|error| damaged(error.to_string()))?;
    let version = value.get("version").and_then(Value::as_str).unwrap_or("(none)");
    if !["1.0", "1.1", "0.4"].iter().any(|known| version.starts_with(known)) {
        warnings.push(format!("GeoParquet version {version} is not known here; the file is read as version 1.1"));
    }
    let name = value
        .get("primary_column")
        .and_then(Value::as_str)
        .ok_or_else(|| damaged("there is no \"primary_column\"".to_string()))?;
    if schema.field_with_name(name).is_err() {
        return Err(damaged(format!("the primary column {name:?} is not in the file")));
    }
    let columns = value.get("columns").and_then(Value::as_object);
    let column = columns
        .and_then(|columns| columns.get(name))
        .ok_or_else(|| damaged(format!("the primary column {name:?} is not described")))?;
    let encoding = column.get("encoding").and_then(Value::as_str).unwrap_or("(none)");
    let encoding = Encoding::from_name(encoding).ok_or_else(|| {
        FormatError::refused(
            path,
            Location::Column(name.to_string()),
            format!("the geometry encoding {encoding:?} is not known"),
            UNKNOWN_ENCODING_HINT,
        )
    })?;
    warn_of_edges(name, column.get("edges"), warnings);
    if let Some(others) = columns.filter(|columns| columns.len() > 1) {
        let others: Vec<&str> = others.keys().map(String::as_str).filter(|&other| other != name).collect();
        warnings.push(format!(
            "only the primary geometry {name:?} is used as geometry; {} stay(s) as stored",
            others.join(", ")
        ));
    }
    let crs = match column.get("crs") {
        // The default of the specification is longitude and latitude.
        None => DeclaredCrs::Wgs84,
        Some(crs) => declared_crs(name, crs, warnings),
    };
    let covering = covering_of(column, schema);
    Ok(DeclaredGeometry { column: name.to_string(), encoding, crs, covering })
}

/// The column of bounding boxes, if it is exactly what the specification says (GeoParquet 1.1, bounding box columns): a
/// struct of nothing but the bounds that it is named for. Any other column stays.
fn covering_of(column: &Value, schema: &Schema) -> Option<String> {
    let paths = column.pointer("/covering/bbox")?.as_object()?;
    let name = paths.get("xmin")?.get(0)?.as_str()?;
    let is_bound = |bound: &str| {
        let path = paths.get(bound).and_then(Value::as_array);
        path.is_some_and(|path| path.iter().map(Value::as_str).eq([Some(name), Some(bound)]))
    };
    let DataType::Struct(fields) = schema.field_with_name(name).ok()?.data_type() else { return None };
    let is_whole = BOUNDS[..4].iter().all(|bound| is_bound(bound)) && fields.len() == paths.len();
    let is_own = fields.iter().all(|field| {
        let is_float = matches!(field.data_type(), DataType::Float32 | DataType::Float64);
        is_float && BOUNDS.contains(&field.name().as_str()) && is_bound(field.name())
    });
    (is_whole && is_own).then(|| name.to_string())
}

/// Reads the extension type of a GeoArrow field, if it is one.
///
/// # Errors
/// When it is a GeoArrow type that is not read here.
pub(crate) fn from_extension(
    path: &Path,
    field: &Field,
    warnings: &mut Vec<String>,
) -> Result<Option<DeclaredGeometry>, FormatError> {
    let Some(extension) = field.metadata().get("ARROW:extension:name") else {
        return Ok(None);
    };
    let name = match extension.strip_prefix("geoarrow.") {
        Some(name) => name,
        None if extension == "ogc.wkb" => "wkb",
        None => return Ok(None),
    };
    let encoding = Encoding::from_name(name).ok_or_else(|| {
        FormatError::refused(
            path,
            Location::Column(field.name().clone()),
            format!("the extension type {extension:?} is not read here"),
            UNKNOWN_ENCODING_HINT,
        )
    })?;
    let metadata = match field.metadata().get("ARROW:extension:metadata") {
        Some(text) if !text.trim().is_empty() => parse_strict(text.as_bytes()).map_err(|error| {
            FormatError::damaged(
                path,
                Location::Column(field.name().clone()),
                format!("the metadata of its extension type is not JSON: {error}"),
            )
        })?,
        _ => Value::Null,
    };
    warn_of_edges(field.name(), metadata.get("edges"), warnings);
    let crs = metadata.get("crs").unwrap_or(&Value::Null);
    Ok(Some(DeclaredGeometry {
        column: field.name().clone(),
        encoding,
        crs: declared_crs(field.name(), crs, warnings),
        covering: None,
    }))
}

fn declared_crs(name: &str, value: &Value, warnings: &mut Vec<String>) -> DeclaredCrs {
    let crs = match value {
        Value::Null => DeclaredCrs::Undeclared,
        Value::String(text) => DeclaredCrs::from_text(text),
        value => DeclaredCrs::from_projjson(value),
    };
    if crs == DeclaredCrs::Undeclared {
        warnings.push(format!("column {name:?} declares no coordinate reference system"));
    }
    crs
}

fn warn_of_edges(name: &str, edges: Option<&Value>, warnings: &mut Vec<String>) {
    if let Some(edges) = edges.and_then(Value::as_str)
        && edges != "planar"
    {
        warnings.push(format!(
            "column {name:?} declares {edges} edges; predicates treat edges as straight in \
             longitude and latitude"
        ));
    }
}
