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
use terrane::schema::{GeometryColumn, Schema};

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

impl Sorting {
    /// The columns to read: those of the answer, and those of the order. All of them if not given.
    pub fn columns_read(&self) -> Option<Vec<String>> {
        let mut read = self.columns.clone()?;
        let others = self.by.iter().map(|(name, _)| name).filter(|name| !read.contains(name));
        let others: Vec<String> = others.cloned().collect();
        read.extend(others);
        Some(read)
    }
}

/// The columns of an order such as `speed desc, id`, each with whether it descends; or what is
/// wrong with it. Names with commas are quoted.
pub fn order_of(items: &[String], schema: &Schema) -> std::result::Result<Vec<(String, bool)>, String> {
    let arrow = schema.to_arrow();
    let is_column = |name: &str| arrow.index_of(name).is_ok();
    let items = match items {
        [text] if !is_column(text) => split(text),
        items => items.to_vec(),
    };
    let columns =
        items.iter().map(|item| ordered_column(item, &is_column)).collect::<std::result::Result<Vec<_>, _>>()?;
    if let GeometryColumn::Geometry { name } = &schema.geometry
        && columns.iter().any(|(column, _)| column == name)
    {
        return Err(format!("geometries such as {name:?} have no order"));
    }
    Ok(columns)
}

/// The parts of a text between commas that are not within quotes.
fn split(text: &str) -> Vec<String> {
    let mut is_quoted = false;
    let is_end = |character: char| {
        is_quoted ^= character == '"';
        character == ',' && !is_quoted
    };
    text.split(is_end).map(str::to_owned).collect()
}

fn ordered_column(item: &str, is_column: &dyn Fn(&str) -> bool) -> std::result::Result<(String, bool), String> {
    if is_column(item) {
        return Ok((item.to_owned(), false));
    }
    let item = item.trim();
    let (name, descends) = match item.rsplit_once(char::is_whitespace) {
        Some((name, word)) if word.eq_ignore_ascii_case("desc") => (name.trim_end(), true),
        Some((name, word)) if word.eq_ignore_ascii_case("asc") => (name.trim_end(), false),
        _ => (item, false),
    };
    let quoted = name.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let name = quoted.map_or_else(|| name.to_owned(), |inner| inner.replace("\"\"", "\""));
    match is_column(&name) {
        true => Ok((name, descends)),
        false => Err(format!("there is no column {name:?}; write a column, or a column and desc")),
    }
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
