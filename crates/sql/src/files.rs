//! Files and tables of the caller as tables: `FROM 'cities.geojson'`.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use arrow_schema::{Field, Schema, SchemaRef};
use datafusion::common::{Result, exec_err};
use datafusion::error::DataFusionError;
use terrane_formats::{FormatError, GeometryColumns, ReadOptions, Source, open};

use crate::geometry::{WGS84_SRID, geometry_field};
use crate::scan::points;
use crate::streamed::{Batches, StreamedTable};
use crate::table::free_name;

/// Whether a name of a table can only be that of a file.
pub(crate) fn is_file_name(name: &str) -> bool {
    name.contains(['.', '/'])
}

/// A table of the caller, such as a data frame. Each scan of it opens its rows.
#[derive(Clone)]
pub struct CallerTable(Arc<dyn Fn() -> Result<Source, FormatError> + Send + Sync>);

impl CallerTable {
    /// A table whose rows a function opens, also from another thread.
    pub fn new(open: impl Fn() -> Result<Source, FormatError> + Send + Sync + 'static) -> Self {
        Self(Arc::new(open))
    }

    /// # Errors
    /// The rows cannot be opened.
    pub(crate) fn table(&self) -> Result<StreamedTable> {
        let open = self.0.clone();
        table_of(move || open())
    }
}

impl fmt::Debug for CallerTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallerTable")
    }
}

/// Tables of the caller by name. A dataset with the same name is read instead.
pub type CallerTables = HashMap<String, CallerTable>;

/// A file as a table.
///
/// # Errors
/// It cannot be opened, or has no known format.
pub(crate) fn file_table(path: PathBuf) -> Result<StreamedTable> {
    table_of(move || open(&path, &ReadOptions::default()))
}

/// The table of a source that can be opened several times.
fn table_of(open: impl Fn() -> Result<Source, FormatError> + Send + Sync + 'static) -> Result<StreamedTable> {
    let source = open().map_err(external)?;
    let mut fields: Vec<Arc<Field>> = source.schema.fields().iter().cloned().collect();
    let mut coordinates = None;
    match &source.geometry {
        GeometryColumns::Column { name } => {
            for field in &mut fields {
                if field.name() == name {
                    *field = Arc::new(geometry_field(name, WGS84_SRID));
                }
            }
        }
        GeometryColumns::Coordinates { x, y } => {
            if let (Ok(x), Ok(y)) = (source.schema.index_of(x), source.schema.index_of(y)) {
                coordinates = Some((x, y));
                fields.push(Arc::new(geometry_field(&free_name(&source.schema), WGS84_SRID)));
            }
        }
        GeometryColumns::None => {}
    }
    let schema = Arc::new(Schema::new(fields));
    let batches = batches_of(source, schema.clone(), coordinates);
    let columns = schema.clone();
    let again = move || Ok(batches_of(open().map_err(external)?, columns.clone(), coordinates));
    Ok(StreamedTable::new(schema, batches, Box::new(again)))
}

fn external(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// The rows of a source. `coordinates` are the positions from which the last column is computed.
fn batches_of(mut source: Source, schema: SchemaRef, coordinates: Option<(usize, usize)>) -> Batches {
    Box::new(std::iter::from_fn(move || next_batch(&mut source, &schema, coordinates).transpose()))
}

fn next_batch(
    source: &mut Source,
    schema: &SchemaRef,
    coordinates: Option<(usize, usize)>,
) -> Result<Option<RecordBatch>> {
    let Some(read) = source.next_batch().map_err(external)? else { return Ok(None) };
    if let Some(rejected) = read.rejected.first() {
        let path = source.path.display();
        return exec_err!("{path}, row {}: {}", rejected.row, rejected.reason);
    }
    let mut columns = read.batch.columns().to_vec();
    if let Some((x, y)) = coordinates {
        columns.push(points(&columns[x], &columns[y])?);
    }
    for (column, field) in columns.iter_mut().zip(schema.fields()) {
        if column.data_type() != field.data_type() {
            *column = datafusion::arrow::compute::cast(column, field.data_type())?;
        }
    }
    Ok(Some(RecordBatch::try_new(schema.clone(), columns)?))
}
