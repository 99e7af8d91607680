//! Files as tables: `FROM 'cities.geojson'`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use arrow_schema::{Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{Result, exec_err};
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use terrane_formats::{GeometryColumns, ReadOptions, Source, open};

use crate::geometry::{WGS84_SRID, geometry_field};
use crate::scan::points;
use crate::table::free_name;

/// Whether a name of a table can only be that of a file.
pub(crate) fn is_file_name(name: &str) -> bool {
    name.contains(['.', '/'])
}

/// A file, which is read anew by each scan.
#[derive(Debug)]
pub(crate) struct FileTable(Arc<FileRows>);

#[derive(Debug)]
struct FileRows {
    path: PathBuf,
    schema: SchemaRef,
    /// Positions of the coordinates from which the last column is computed.
    coordinates: Option<(usize, usize)>,
}

impl FileTable {
    /// Reads the schema of a file.
    ///
    /// # Errors
    /// It cannot be opened, or has no known format.
    pub fn open(path: &Path) -> Result<Self> {
        let source = open(path, &ReadOptions::default()).map_err(external)?;
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
        Ok(Self(Arc::new(FileRows { path: path.to_owned(), schema: Arc::new(Schema::new(fields)), coordinates })))
    }
}

fn external(error: impl std::error::Error + Send + Sync + 'static) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

#[async_trait]
impl TableProvider for FileTable {
    fn schema(&self) -> SchemaRef {
        self.0.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let rows: Arc<dyn PartitionStream> = self.0.clone();
        let schema = self.0.schema.clone();
        Ok(Arc::new(StreamingTableExec::try_new(schema, vec![rows], projection, Vec::new(), false, limit)?))
    }
}

impl PartitionStream for FileRows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let state = open(&self.path, &ReadOptions::default()).map_err(external);
        let (schema, coordinates) = (self.schema.clone(), self.coordinates);
        let stream = futures::stream::unfold(Some(state), move |state| {
            let schema = schema.clone();
            async move {
                let mut source = match state? {
                    Ok(source) => source,
                    Err(error) => return Some((Err(error), None)),
                };
                match next_batch(&mut source, &schema, coordinates).transpose()? {
                    Ok(batch) => Some((Ok(batch), Some(Ok(source)))),
                    Err(error) => Some((Err(error), None)),
                }
            }
        });
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), stream))
    }
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
