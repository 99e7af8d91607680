//! What a columnar file declares about its geometry: the `geo` metadata of GeoParquet, and the
//! extension types of GeoArrow.

use std::path::Path;

use arrow_schema::{DataType, Field, Schema};
use serde_json::Value;

use crate::crs::DeclaredCrs;
use crate::error::{FormatError, Location};
use crate::guess::GeometryColumns;
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
    /// From a GeoParquet name, or a GeoArrow name without its prefix.
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

/// The declaration of the geometry column in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeclaredGeometry {
    pub column: String,
    pub encoding: Encoding,
    pub crs: DeclaredCrs,
}

/// All declarations of a file.
#[derive(Debug, Default)]
pub(crate) struct Declared {
    /// `None` if no geometry column is in use, or the file does not describe it.
    pub geometry: Option<DeclaredGeometry>,
    /// Columns of bounding boxes. They are derived data and are left out.
    pub coverings: Vec<String>,
}

const UNKNOWN_ENCODING_HINT: &str =
    "write the geometry as WKB or as a GeoArrow point, linestring, polygon or multi-geometry";

/// The bounds in a column of bounding boxes; those of heights may be missing.
const BOUNDS: [&str; 6] = ["xmin", "ymin", "xmax", "ymax", "zmin", "zmax"];

/// Reads what the `geo` metadata say of the column `named`, or of the primary column if `named` is
/// `None`. Bounding boxes in the metadata are never relied upon.
///
/// # Errors
/// When the metadata are not valid, or name a column that the file does not have.
pub(crate) fn from_geoparquet(
    path: &Path,
    metadata: &str,
    schema: &Schema,
    named: Option<&GeometryColumns>,
    warnings: &mut Vec<String>,
) -> Result<Declared, FormatError> {
    let damaged = |reason: String| FormatError::damaged(path, Location::File, format!("\"geo\" metadata: {reason}"));
    let value = parse_strict(metadata.as_bytes()).map_err(|error| damaged(error.to_string()))?;
    let version = value.get("version").and_then(Value::as_str).unwrap_or("(none)");
    if !["1.0", "1.1", "0.4"].iter().any(|known| version.starts_with(known)) {
        warnings.push(format!("GeoParquet version {version} is unknown; the file is read as version 1.1"));
    }
    let primary = value
        .get("primary_column")
        .and_then(Value::as_str)
        .ok_or_else(|| damaged("there is no \"primary_column\"".to_string()))?;
    if schema.field_with_name(primary).is_err() {
        return Err(damaged(format!("the primary column {primary:?} is not in the file")));
    }
    let columns = value.get("columns").and_then(Value::as_object);
    let primary_column = columns
        .and_then(|columns| columns.get(primary))
        .ok_or_else(|| damaged(format!("the primary column {primary:?} is not described")))?;
    let used = match named {
        None => Some((primary, primary_column)),
        Some(GeometryColumns::Column { name }) => {
            columns.and_then(|columns| columns.get(name)).map(|column| (name.as_str(), column))
        }
        Some(_) => None,
    };
    let mut coverings: Vec<String> = covering_of(primary_column, schema).into_iter().collect();
    let Some((name, column)) = used else {
        return Ok(Declared { geometry: None, coverings });
    };
    coverings.extend(covering_of(column, schema));
    let encoding = column.get("encoding").and_then(Value::as_str).unwrap_or("(none)");
    let encoding = Encoding::from_name(encoding).ok_or_else(|| {
        FormatError::refused(
            path,
            Location::Column(name.to_string()),
            format!("the geometry encoding {encoding:?} is not supported"),
            UNKNOWN_ENCODING_HINT,
        )
    })?;
    warn_of_edges(name, column.get("edges").and_then(Value::as_str), warnings);
    if let Some(others) = columns.filter(|columns| columns.len() > 1) {
        let others: Vec<&str> = others.keys().map(String::as_str).filter(|&other| other != name).collect();
        let which = if name == primary { "primary geometry" } else { "column" };
        warnings
            .push(format!("only the {which} {name:?} is used as geometry; {} stay(s) as stored", others.join(", ")));
    }
    let crs = match column.get("crs") {
        // The default of the specification is longitude and latitude.
        None => DeclaredCrs::Wgs84,
        Some(crs) => declared_crs(name, crs, warnings),
    };
    let geometry = DeclaredGeometry { column: name.to_string(), encoding, crs };
    Ok(Declared { geometry: Some(geometry), coverings })
}

/// The column of bounding boxes, if it is exactly what the specification says (GeoParquet 1.1,
/// bounding box columns): a struct of the bounds and nothing else. Any other column is kept as
/// data.
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

/// Reads the extension type of the GeoArrow field `named`, or of the first supported one if `named`
/// is `None`. If `or_else` finds no geometry either, an unsupported extension type is the reason of
/// the error.
///
/// # Errors
/// When the only GeoArrow types are not supported, or their metadata are damaged.
pub(crate) fn from_extensions(
    path: &Path,
    schema: &Schema,
    named: Option<&GeometryColumns>,
    warnings: &mut Vec<String>,
    or_else: impl FnOnce(&mut Vec<String>) -> Result<Declared, FormatError>,
) -> Result<Declared, FormatError> {
    let mut unknown = Vec::new();
    let mut geometry = None;
    for field in schema.fields() {
        let is_candidate = match named {
            None => true,
            Some(GeometryColumns::Column { name }) => name == field.name(),
            Some(_) => false,
        };
        match extension_of(field).filter(|_| is_candidate) {
            None => {}
            Some((_, Some(encoding))) => {
                geometry = Some(from_extension(path, field, encoding, warnings)?);
                break;
            }
            Some((extension, None)) => unknown.push((field.name(), extension)),
        }
    }
    let declared = match geometry {
        Some(_) => Declared { geometry, coverings: Vec::new() },
        None => or_else(warnings)?,
    };
    if let (None, Some((column, extension))) = (&declared.geometry, unknown.first()) {
        return Err(FormatError::refused(
            path,
            Location::Column(column.to_string()),
            format!("the extension type {extension:?} is not supported"),
            UNKNOWN_ENCODING_HINT,
        ));
    }
    warnings.extend(unknown.iter().map(|(column, extension)| {
        format!("column {column:?} is not used as geometry: its extension type {extension:?} is not supported")
    }));
    Ok(declared)
}

/// The name of a GeoArrow field's extension type, and the encoding if it is supported.
fn extension_of(field: &Field) -> Option<(&str, Option<Encoding>)> {
    let extension = field.metadata().get("ARROW:extension:name")?;
    let name = match extension.strip_prefix("geoarrow.") {
        Some(name) => name,
        None if extension == "ogc.wkb" => "wkb",
        None => return None,
    };
    Some((extension, Encoding::from_name(name)))
}

fn from_extension(
    path: &Path,
    field: &Field,
    encoding: Encoding,
    warnings: &mut Vec<String>,
) -> Result<DeclaredGeometry, FormatError> {
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
    warn_of_edges(field.name(), metadata.get("edges").and_then(Value::as_str), warnings);
    let crs = metadata.get("crs").unwrap_or(&Value::Null);
    Ok(DeclaredGeometry { column: field.name().clone(), encoding, crs: declared_crs(field.name(), crs, warnings) })
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

pub(crate) fn warn_of_edges(name: &str, edges: Option<&str>, warnings: &mut Vec<String>) {
    if let Some(edges) = edges.filter(|edges| *edges != "planar") {
        warnings.push(format!(
            "column {name:?} declares {edges} edges; predicates treat edges as straight in \
             longitude and latitude"
        ));
    }
}
