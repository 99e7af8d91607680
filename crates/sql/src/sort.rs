//! Rows of the engine in an order.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::common::{Column, exec_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::SessionContext;
use std::sync::Arc;

use crate::streamed::{Batches, StreamedTable};

/// An order of rows, and which of them are wanted.
#[derive(Clone, Debug, Default)]
pub struct Sorting {
    /// Columns, the most important one first, and whether they descend. Nulls come last in an
    /// ascending column and first in a descending one, as in SQL.
    pub by: Vec<(String, bool)>,
    /// Most rows.
    pub limit: Option<usize>,
    /// The columns of the answer; all of them if not given.
    pub columns: Option<Vec<String>>,
}

fn column(name: &str) -> Expr {
    Expr::Column(Column::from_name(name))
}

/// Starts to sort rows.
pub(crate) async fn sort(
    context: SessionContext,
    schema: SchemaRef,
    rows: impl Iterator<Item = terrane::Result<RecordBatch>> + Send + 'static,
    sorting: Sorting,
) -> Result<(SendableRecordBatchStream, SchemaRef)> {
    let rows: Batches = Box::new(rows.map(|batch| batch.map_err(|error| DataFusionError::External(Box::new(error)))));
    let again = || exec_err!("the rows of a query can be read once");
    let mut frame = context.read_table(Arc::new(StreamedTable::new(schema, rows, Box::new(again))))?;
    let by = sorting.by.iter().map(|(name, descends)| column(name).sort(!descends, *descends));
    frame = frame.sort(by.collect())?;
    if let Some(limit) = sorting.limit {
        frame = frame.limit(0, Some(limit))?;
    }
    if let Some(columns) = &sorting.columns {
        frame = frame.select(columns.iter().map(|name| column(name)))?;
    }
    let (state, plan) = frame.into_parts();
    let plan = state.create_physical_plan(&plan).await?;
    let schema = plan.schema();
    Ok((execute_stream(plan, state.task_ctx())?, schema))
}
