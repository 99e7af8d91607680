//! The files of an import: how they are read, and how they fit the dataset.

use terrane::CoordinateSystem;
use terrane::schema::{GeometryColumn, Schema};
use terrane_formats::{CoordinatePair, Guess, Header, ReadOptions, Source};
use terrane_load::LoadError;

use super::spool::Inputs;
use crate::args::{Common, ImportArguments, QuoteFlag};
use crate::failure::Failure;
use crate::place::decoding_memory;
use crate::reading::check_reading;

/// Opens a file so that it fits `schema`, if the dataset is known.
pub fn open(
    arguments: &ImportArguments,
    common: &Common,
    (inputs, number): (&Inputs, usize),
    schema: Option<&Schema>,
) -> Result<Source, Failure> {
    let path = &arguments.files[number];
    let mut options = read_options(arguments, schema);
    options.content = inputs.content(number);
    options.decoded_bytes_max = Some(decoding_memory(common) as u64);
    Ok(terrane_formats::open(path, &options)?)
}

/// The column that both coordinate flags name, if they name the same one.
fn pair_column(arguments: &ImportArguments) -> Option<&String> {
    arguments.lon.as_ref().filter(|lon| arguments.lat.as_ref() == Some(lon))
}

/// Names for the two columns made of one column with both coordinates.
fn pair_names(planar: bool) -> [String; 2] {
    if planar { ["x", "y"] } else { ["lon", "lat"] }.map(str::to_owned)
}

fn read_options(arguments: &ImportArguments, schema: Option<&Schema>) -> ReadOptions {
    let mut options = ReadOptions {
        geometry: arguments.geometry.clone(),
        x: arguments.lon.clone(),
        y: arguments.lat.clone(),
        key: arguments.key.clone(),
        coordinates: arguments.reading.coordinates(arguments.planar),
        demanded_types: arguments.reading.demanded_types(),
        nulls: arguments.reading.null.clone(),
        separator: arguments.delimiter,
        quote: arguments.quote.map(|QuoteFlag(quote)| quote).unwrap_or_default(),
        header: if arguments.no_header { Header::Absent } else { Header::Present },
        decimal_comma: arguments.decimal_comma.then_some(true),
        ..ReadOptions::default()
    };
    if let Some(column) = pair_column(arguments) {
        let names = pair_names(arguments.planar);
        options.pair = Some(CoordinatePair { column: column.clone(), y_first: arguments.lat_first, names });
        (options.x, options.y) = (None, None);
    }
    let Some(schema) = schema else {
        return options;
    };
    terrane_load::fit_to(&mut options, schema);
    options
}

/// The schema of a dataset that is created from a file.
pub fn schema_of(arguments: &ImportArguments, source: &Source) -> Result<Schema, Failure> {
    let system = match arguments.planar {
        true => CoordinateSystem::Planar,
        false => CoordinateSystem::LonLat,
    };
    let schema = terrane_load::schema_of(source, arguments.key.as_deref(), system).map_err(|error| match error {
        LoadError::NoGeometry { source_name, columns } => Failure::refused(format!(
            "{source_name}: no geometry and no coordinates were recognised; name them with --geometry, or --lon and \
             --lat (the columns are {columns})"
        )),
        other => other.into(),
    })?;
    check_reading(&arguments.reading, &arguments.dataset, &schema)?;
    Ok(schema)
}

/// Refuses types for columns that do not exist.
pub fn check_demanded_columns(arguments: &ImportArguments, schema: &Schema) -> Result<(), Failure> {
    let is_missing = |column: &str| schema.column_names().all(|name| name != column);
    match arguments.reading.types.iter().find(|demanded| is_missing(&demanded.column)) {
        Some(demanded) => Err(Failure::usage(format!(
            "--type names column {:?}, which does not exist; the columns are {}",
            demanded.column,
            schema.column_names().collect::<Vec<_>>().join(", ")
        ))),
        None => Ok(()),
    }
}

/// Refuses flags that contradict an existing dataset.
pub fn check_flags(arguments: &ImportArguments, schema: &Schema) -> Result<(), Failure> {
    let name = &arguments.dataset;
    if arguments.planar && schema.system != CoordinateSystem::Planar {
        return Err(Failure::usage(format!(
            "dataset {name:?} holds longitude and latitude; omit --planar, or import into another dataset"
        )));
    }
    check_reading(&arguments.reading, name, schema)?;
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
    if pair_column(arguments).is_some() && known.len() == 2 {
        return Ok(());
    }
    let flags = match &schema.geometry {
        GeometryColumn::Point { x, y } => {
            [(&arguments.lon, Some(x)), (&arguments.lat, Some(y)), (&arguments.geometry, None)]
        }
        GeometryColumn::Geometry { name } => {
            [(&arguments.lon, None), (&arguments.lat, None), (&arguments.geometry, Some(name))]
        }
        GeometryColumn::None => [(&arguments.lon, None), (&arguments.lat, None), (&arguments.geometry, None)],
    };
    match flags.into_iter().find_map(|(flag, column)| flag.as_ref().filter(|flag| Some(*flag) != column)) {
        Some(flag) => Err(Failure::usage(format!(
            "the geometry of dataset {name:?} is in {}, and not in {flag:?}",
            known.join(" and ")
        ))),
        None => Ok(()),
    }
}

/// The detected properties of a file: format, rows, key, geometry and coordinates.
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
