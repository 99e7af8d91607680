//! Tables whose rows are read one after the other: files, tables of the caller.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};

/// Rows as they are read. An error ends them.
pub(crate) type Batches = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

/// Opens the rows of a table.
type Open = Box<dyn Fn() -> Result<Batches> + Send + Sync>;

/// A table that each scan reads from its beginning.
#[derive(Debug)]
pub(crate) struct StreamedTable(Arc<Rows>);

struct Rows {
    schema: SchemaRef,
    /// What was opened to learn the schema; the first scan reads it.
    opened: Mutex<Option<Batches>>,
    open: Open,
}

impl StreamedTable {
    /// A table of open rows. Scans after the first one open them again.
    pub fn new(schema: SchemaRef, opened: Batches, open: Open) -> Self {
        Self(Arc::new(Rows { schema, opened: Mutex::new(Some(opened)), open }))
    }
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("schema", &self.schema).finish_non_exhaustive()
    }
}

#[async_trait]
impl TableProvider for StreamedTable {
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

impl PartitionStream for Rows {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        let state = opened.map_or_else(|| (self.open)(), Ok);
        let stream = futures::stream::unfold(Some(state), |state| async move {
            let mut batches = match state? {
                Ok(batches) => batches,
                Err(error) => return Some((Err(error), None)),
            };
            match batches.next()? {
                Ok(batch) => Some((Ok(batch), Some(Ok(batches)))),
                Err(error) => Some((Err(error), None)),
            }
        });
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), stream))
    }
}
