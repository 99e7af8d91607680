//! The schema of a dataset that is made from a source, and how a source fits an existing one.

use arrow_schema::Schema as ArrowSchema;
use terrane::CoordinateSystem;
use terrane::schema::{Column, ColumnType, GeometryColumn, Schema, SchemaError};
use terrane_formats::{GeometryColumns, ReadOptions, Source};

use crate::error::LoadError;
use crate::types::{file_column_type, file_key_type};

/// The schema of a dataset that is created from a source. `key` is the key column, an empty name
/// for row numbers; it is guessed if not given.
///
/// # Errors
/// The source has no geometry, or a column that datasets do not support.
pub fn schema_of(source: &Source, key: Option<&str>, system: CoordinateSystem) -> Result<Schema, LoadError> {
    let geometry = match &source.geometry {
        GeometryColumns::Column { name } => GeometryColumn::Geometry { name: name.clone() },
        GeometryColumns::Coordinates { x, y } => GeometryColumn::Point { x: x.clone(), y: y.clone() },
        GeometryColumns::None => {
            let columns = column_names(source);
            return Err(LoadError::NoGeometry { source_name: source.path.display().to_string(), columns });
        }
    };
    let guess = source.guess();
    let key = match key {
        Some(named) => Some(named).filter(|name| !name.is_empty()),
        None => guess.key.as_deref(),
    };
    Schema::from_arrow(&source.schema, key, geometry, system).map_err(|error| as_stored(error, source))
}

/// The schema of a dataset with these columns, and with the key and geometry of `bare`.
///
/// # Errors
/// A column that datasets do not support.
pub fn schema_with(bare: &Schema, columns: &ArrowSchema) -> Result<Schema, SchemaError> {
    let key = Some(bare.key.name.as_str()).filter(|_| !bare.key.generated);
    Schema::from_arrow(columns, key, bare.geometry.clone(), bare.system)
}

/// The same error with the column's type in the source, not the converted type.
fn as_stored(error: SchemaError, source: &Source) -> LoadError {
    let error = match error {
        SchemaError::UnsupportedType { name, found, role } => {
            let found = source.stored_type(&name).map_or(found, ToString::to_string);
            SchemaError::UnsupportedType { name, found, role }
        }
        other => other,
    };
    LoadError::Schema { source_name: source.path.display().to_string(), error }
}

/// Has a source read for a dataset: with its coordinate system, geometry columns and types.
pub fn fit_to(options: &mut ReadOptions, schema: &Schema) {
    options.coordinates.planar = schema.system == CoordinateSystem::Planar;
    options.coordinates.plane = Some(schema.srid()).filter(|&srid| srid != 0);
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
        GeometryColumn::None => options.no_geometry = true,
    }
    let columns = schema.columns.iter();
    options.widening = columns.clone().map(|column| column.name.clone()).collect();
    options.column_types = columns.map(|column| (column.name.clone(), file_column_type(column.column_type))).collect();
    options.column_types.push((schema.key.name.clone(), file_key_type(schema.key.key_type)));
}

/// The columns of a source that the dataset lacks.
///
/// # Errors
/// One of a type that datasets do not support.
pub fn new_columns(source: &Source, schema: &Schema) -> Result<Vec<Column>, LoadError> {
    let is_new = |name: &str| schema.column_names().all(|known| known != name);
    let fields = source.schema.fields().iter().filter(|field| is_new(field.name()));
    fields
        .map(|field| match ColumnType::from_field(field) {
            Some(column_type) => Ok(Column::new(field.name(), column_type)),
            None => Err(LoadError::UnsupportedColumn {
                source_name: source.path.display().to_string(),
                column: field.name().clone(),
                found: field.data_type().clone(),
            }),
        })
        .collect()
}

/// The columns of a source, with commas between them.
pub fn column_names(source: &Source) -> String {
    let names: Vec<&str> = source.schema.fields().iter().map(|field| field.name().as_str()).collect();
    names.join(", ")
}
