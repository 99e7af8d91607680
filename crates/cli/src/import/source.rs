//! The files of an import: how they are read, and how they fit the dataset.

use arrow_schema::Schema as ArrowSchema;
use terrane::CoordinateSystem;
use terrane::schema::{Column, ColumnType, GeometryColumn, Schema, SchemaError};
use terrane_formats::{CoordinatePair, GeometryColumns, Guess, Header, ReadOptions, Source};

use super::spool::Inputs;
use crate::args::{Common, ImportArguments, QuoteFlag};
use crate::failure::Failure;
use crate::place::decoding_memory;
use crate::reading::{check_reading, file_column_type, file_key_type};

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
    options.coordinates.planar = schema.system == CoordinateSystem::Planar;
    options.of_dataset = options.geometry.is_none() && options.x.is_none();
    match &schema.geometry {
        GeometryColumn::Point { x, y } => {
            (options.x, options.y) = (Some(x.clone()), Some(y.clone()));
            options.pair.iter_mut().for_each(|pair| pair.names = [x.clone(), y.clone()]);
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
    options.column_types.push((schema.key.name.clone(), file_key_type(schema.key.key_type)));
    options
}

/// The schema of a dataset that is created from a file.
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
    let schema = Schema::from_arrow(&source.schema, key, geometry, system)
        .map_err(|error| Failure::from(terrane::Error::from(as_stored(error, source))).within(source.path.display()))?;
    check_reading(&arguments.reading, &arguments.dataset, &schema)?;
    Ok(schema)
}

/// The schema of a dataset with these columns, and with the key and geometry of `bare`.
pub fn schema_with(bare: &Schema, columns: &ArrowSchema) -> Result<Schema, Failure> {
    let key = Some(bare.key.name.as_str()).filter(|_| !bare.key.generated);
    Schema::from_arrow(columns, key, bare.geometry.clone(), bare.system)
        .map_err(|error| Failure::from(terrane::Error::from(error)))
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

/// The same error with the column's type in the file, not the converted type.
fn as_stored(error: SchemaError, source: &Source) -> SchemaError {
    match error {
        SchemaError::UnsupportedType { name, found, role } => {
            let found = source.stored_type(&name).map_or(found, ToString::to_string);
            SchemaError::UnsupportedType { name, found, role }
        }
        other => other,
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
    };
    match flags.into_iter().find_map(|(flag, column)| flag.as_ref().filter(|flag| Some(*flag) != column)) {
        Some(flag) => Err(Failure::usage(format!(
            "the geometry of dataset {name:?} is in {}, and not in {flag:?}",
            known.join(" and ")
        ))),
        None => Ok(()),
    }
}

/// The columns of a file that the dataset lacks.
pub fn new_columns(source: &Source, schema: &Schema) -> Result<Vec<Column>, Failure> {
    let is_new = |name: &str| schema.column_names().all(|known| known != name);
    let fields = source.schema.fields().iter().filter(|field| is_new(field.name()));
    fields
        .map(|field| match ColumnType::from_field(field) {
            Some(column_type) => Ok(Column::new(field.name(), column_type)),
            None => Err(Failure::refused(format!(
                "{}: column {:?} is {}, which datasets do not support",
                source.path.display(),
                field.name(),
                field.data_type()
            ))),
        })
        .collect()
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

fn column_names(source: &Source) -> String {
    let names: Vec<&str> = source.schema.fields().iter().map(|field| field.name().as_str()).collect();
    names.join(", ")
}
