//! The files of an import: how they are read, and how they fit the dataset.

use std::path::Path;

use terrane::CoordinateSystem;
use terrane::schema::{ColumnType, GeometryColumn, KeyType, Schema, SchemaError};
use terrane_formats::{ColumnType as FileColumnType, GeometryColumns, Guess, Header, ReadOptions, Source};

use crate::args::{Common, ImportArguments};
use crate::failure::Failure;
use crate::place::decoding_memory;

/// Opens a file, so that it fits `schema` where the dataset is known.
pub fn open(
    arguments: &ImportArguments,
    common: &Common,
    path: &Path,
    schema: Option<&Schema>,
) -> Result<Source, Failure> {
    let mut options = read_options(arguments, schema);
    options.decoded_bytes_max = Some(decoding_memory(common) as u64);
    Ok(terrane_formats::open(path, &options)?)
}

/// Refuses flags that no file fits.
pub fn check_coordinate_flags(arguments: &ImportArguments) -> Result<(), Failure> {
    match (&arguments.lon, &arguments.lat) {
        (Some(lon), Some(lat)) if lon == lat => Err(Failure::usage(format!(
            "--lon and --lat both name {lon:?}; the longitude and the latitude are two columns"
        ))),
        _ => Ok(()),
    }
}

fn read_options(arguments: &ImportArguments, schema: Option<&Schema>) -> ReadOptions {
    let mut options = ReadOptions {
        geometry: arguments.geometry.clone(),
        x: arguments.lon.clone(),
        y: arguments.lat.clone(),
        key: arguments.key.clone(),
        planar: arguments.planar,
        header: if arguments.no_header { Header::Absent } else { Header::Present },
        decimal_comma: arguments.decimal_comma.then_some(true),
        ..ReadOptions::default()
    };
    let Some(schema) = schema else {
        return options;
    };
    options.planar = schema.system == CoordinateSystem::Planar;
    options.of_dataset = options.geometry.is_none() && options.x.is_none();
    match &schema.geometry {
        GeometryColumn::Point { x, y } => {
            (options.x, options.y) = (Some(x.clone()), Some(y.clone()));
            options.own_points = true;
        }
        GeometryColumn::Geometry { name } => {
            options.geometry = Some(name.clone());
            options.own_geometry_name = Some(name.clone());
        }
    }
    let columns = schema.columns.iter();
    options.widening = columns.clone().map(|column| column.name.clone()).collect();
    options.column_types = columns.map(|column| (column.name.clone(), file_column_type(column.column_type))).collect();
    let key_type = match schema.key.key_type {
        KeyType::Int64 => FileColumnType::Int64,
        KeyType::UInt64 => FileColumnType::UInt64,
        KeyType::Utf8 => FileColumnType::Utf8,
        KeyType::Binary => FileColumnType::Binary,
    };
    options.column_types.push((schema.key.name.clone(), key_type));
    options
}

fn file_column_type(column_type: ColumnType) -> FileColumnType {
    match column_type {
        ColumnType::Bool => FileColumnType::Boolean,
        ColumnType::Int64 => FileColumnType::Int64,
        ColumnType::Float64 => FileColumnType::Float64,
        ColumnType::Utf8 => FileColumnType::Utf8,
        ColumnType::Binary => FileColumnType::Binary,
        ColumnType::Date => FileColumnType::Date32,
        ColumnType::Timestamp { utc: false } => FileColumnType::Timestamp,
        ColumnType::Timestamp { utc: true } => FileColumnType::TimestampUtc,
    }
}

/// The schema of a dataset that is made from a file.
pub fn schema_of(arguments: &ImportArguments, source: &Source) -> Result<Schema, Failure> {
    let geometry = match &source.geometry {
        GeometryColumns::Column { name } => GeometryColumn::Geometry { name: name.clone() },
        GeometryColumns::Coordinates { x, y } => GeometryColumn::Point { x: x.clone(), y: y.clone() },
        GeometryColumns::None => {
            return Err(Failure::refused(format!(
                "{}: no geometry and no coordinates were recognised; name them with --geometry, or --lon and --lat (the columns are {})",
                source.path.display(),
                column_names(source)
            )));
        }
    };
    let guess = source.guess();
    let key = match &arguments.key {
        Some(named) => Some(named.as_str()).filter(|name| !name.is_empty()),
        None => guess.key.as_deref(),
    };
    let system = match arguments.planar {
        true => CoordinateSystem::Planar,
        false => CoordinateSystem::LonLat,
    };
    Schema::from_arrow(&source.schema, key, geometry, system)
        .map_err(|error| Failure::from(terrane::Error::from(as_stored(error, source))).within(source.path.display()))
}

/// The same error with the type that the column has in the file, and not what it is converted to.
fn as_stored(error: SchemaError, source: &Source) -> SchemaError {
    match error {
        SchemaError::UnsupportedType { name, found, role } => {
            let found = source.stored_type(&name).map_or(found, ToString::to_string);
            SchemaError::UnsupportedType { name, found, role }
        }
        other => other,
    }
}

/// Refuses flags that contradict a dataset that is there already.
pub fn check_flags(arguments: &ImportArguments, schema: &Schema) -> Result<(), Failure> {
    let name = &arguments.dataset;
    if arguments.planar && schema.system != CoordinateSystem::Planar {
        return Err(Failure::usage(format!(
            "dataset {name:?} holds longitude and latitude; leave --planar out, or import into another dataset"
        )));
    }
    let is_other = |key: &str| match key.is_empty() {
        true => !schema.key.generated,
        false => key != schema.key.name,
    };
    if let Some(key) = arguments.key.as_deref().filter(|key| is_other(key)) {
        return Err(Failure::usage(format!(
            "the key of dataset {name:?} is column {:?}, and not {key:?}",
            schema.key.name
        )));
    }
    let known: Vec<&str> = schema.geometry.names().collect();
    let flags = match &schema.geometry {
        GeometryColumn::Point { x, y } => {
            [(&arguments.lon, Some(x)), (&arguments.lat, Some(y)), (&arguments.geometry, None)]
        }
        GeometryColumn::Geometry { name } => {
            [(&arguments.lon, None), (&arguments.lat, None), (&arguments.geometry, Some(name))]
        }
    };
    match flags.into_iter().find_map(|(flag, column)| flag.as_ref().filter(|flag| Some(*flag) != column)) {
        Some(flag) => Err(Failure::usage(format!(
            "the geometry of dataset {name:?} is in {}, and not in {flag:?}",
            known.join(" and ")
        ))),
        None => Ok(()),
    }
}

/// Refuses a file with columns that the dataset lacks, so that no data is dropped silently.
pub fn check_columns(source: &Source, schema: &Schema) -> Result<(), Failure> {
    let unknown = source.schema.fields().iter().find(|field| schema.column_names().all(|name| name != field.name()));
    match unknown {
        Some(field) => Err(Failure::refused(format!(
            "{}: the dataset has no column {:?}; it has {}",
            source.path.display(),
            field.name(),
            schema.column_names().collect::<Vec<_>>().join(", ")
        ))),
        None => Ok(()),
    }
}

/// What a file is taken for: format, rows, key, geometry and coordinates.
pub fn description(source: &Source, schema: &Schema) -> String {
    let has_key = source.schema.column_with_name(&schema.key.name).is_some();
    let guess = Guess { key: has_key.then(|| schema.key.name.clone()), geometry: source.geometry.clone() };
    let rows = match source.row_count_hint {
        Some(rows) => format!(", {rows} rows"),
        None => String::new(),
    };
    let system = match schema.system {
        CoordinateSystem::LonLat => "longitude and latitude (WGS 84)",
        CoordinateSystem::Planar => "planar coordinates",
    };
    let path = source.path.display();
    format!("{path}: {}{rows}; {guess}, {system}", source.format)
}

fn column_names(source: &Source) -> String {
    let names: Vec<&str> = source.schema.fields().iter().map(|field| field.name().as_str()).collect();
    names.join(", ")
}
