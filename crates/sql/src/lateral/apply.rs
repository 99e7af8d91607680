//! The execution of a query for each outer row.

use std::fmt;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array};
use arrow_schema::SchemaRef;
use datafusion::arrow::compute::take;
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, ScalarValue, internal_datafusion_err};
use datafusion::execution::session_state::SessionState;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties, execute_stream,
};
use futures::StreamExt;

use crate::scan::{Batches, properties, stream_of};

/// For each row of its input, the rows of a query that has some of its columns.
pub(super) struct ApplyExec {
    apply: Arc<Apply>,
    outer: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

struct Apply {
    query: Arc<LogicalPlan>,
    /// The outer columns that the query has, and their positions.
    references: Vec<(Column, usize)>,
    is_left: bool,
    state: SessionState,
    schema: SchemaRef,
}

impl ApplyExec {
    pub fn new(
        outer: Arc<dyn ExecutionPlan>,
        query: Arc<LogicalPlan>,
        references: Vec<(Column, usize)>,
        is_left: bool,
        state: SessionState,
        schema: SchemaRef,
    ) -> Self {
        let properties = properties(schema.clone(), outer.output_partitioning().partition_count());
        let apply = Arc::new(Apply { query, references, is_left, state, schema });
        Self { apply, outer, properties, metrics: ExecutionPlanMetricsSet::new() }
    }
}

impl fmt::Debug for ApplyExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApplyExec")
            .field("query", &self.apply.query)
            .field("outer", &self.outer)
            .finish_non_exhaustive()
    }
}

impl DisplayAs for ApplyExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.apply.is_left { "left" } else { "inner" };
        let columns: Vec<String> = self.apply.references.iter().map(|(column, _)| column.to_string()).collect();
        write!(f, "TerraneApply: {kind}, a query of its own for each row below, with {}", columns.join(", "))
    }
}

impl ExecutionPlan for ApplyExec {
    fn name(&self) -> &'static str {
        "TerraneApply"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.outer]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let outer = children.pop().ok_or_else(|| internal_datafusion_err!("a lateral join has one child"))?;
        let properties = properties(self.apply.schema.clone(), outer.output_partitioning().partition_count());
        Ok(Arc::new(Self { apply: self.apply.clone(), outer, properties, metrics: ExecutionPlanMetricsSet::new() }))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let applying = Applying {
            apply: self.apply.clone(),
            outer: self.outer.execute(partition, context.clone())?,
            current: None,
            inner: None,
            context,
            baseline: BaselineMetrics::new(&self.metrics, partition),
        };
        Ok(stream_of(self.apply.schema.clone(), applying))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

struct Applying {
    apply: Arc<Apply>,
    outer: SendableRecordBatchStream,
    /// A batch of outer rows, and the next of them.
    current: Option<(RecordBatch, usize)>,
    /// The answer for one outer row, and whether it had rows.
    inner: Option<(RecordBatch, SendableRecordBatchStream, bool)>,
    context: Arc<TaskContext>,
    baseline: BaselineMetrics,
}

impl Batches for Applying {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some((row, inner, has_rows)) = &mut self.inner {
                let found = match inner.next().await.transpose()? {
                    Some(batch) if batch.num_rows() == 0 => continue,
                    Some(batch) => {
                        *has_rows = true;
                        self.apply.pairs(row, batch.columns(), batch.num_rows())?
                    }
                    None => {
                        let unmatched = (self.apply.is_left && !*has_rows).then(|| row.clone());
                        self.inner = None;
                        let Some(row) = unmatched else { continue };
                        let fields = &self.apply.schema.fields()[row.num_columns()..];
                        let nulls: Vec<ArrayRef> =
                            fields.iter().map(|field| new_null_array(field.data_type(), 1)).collect();
                        self.apply.pairs(&row, &nulls, 1)?
                    }
                };
                self.baseline.record_output(found.num_rows());
                return Ok(Some(found));
            }
            match self.current.take() {
                Some((batch, next)) if next < batch.num_rows() => {
                    let row = batch.slice(next, 1);
                    self.current = Some((batch, next + 1));
                    let inner = self.apply.begin(&row, &self.context).await?;
                    self.inner = Some((row, inner, false));
                }
                _ => match self.outer.next().await.transpose()? {
                    Some(batch) => self.current = Some((batch, 0)),
                    None => return Ok(None),
                },
            }
        }
    }
}

impl Apply {
    /// Begins the query for an outer row.
    async fn begin(&self, row: &RecordBatch, context: &Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        // Here a statement can be stopped.
        tokio::task::yield_now().await;
        let mut values = Vec::with_capacity(self.references.len());
        for (column, position) in &self.references {
            let metadata = FieldMetadata::from(row.schema_ref().field(*position));
            values.push((column, ScalarValue::try_from_array(row.column(*position), 0)?, metadata));
        }
        let literal = |expr: Expr| match &expr {
            Expr::OuterReferenceColumn(_, column) => match values.iter().find(|(known, ..)| *known == column) {
                Some((_, value, metadata)) => {
                    Ok(Transformed::yes(Expr::Literal(value.clone(), Some(metadata.clone()))))
                }
                None => Ok(Transformed::no(expr)),
            },
            _ => Ok(Transformed::no(expr)),
        };
        let query = self.query.as_ref().clone().transform_down_with_subqueries(|plan| {
            let names = NamePreserver::new(&plan);
            let changed = plan.map_expressions(|expr| {
                let name = names.save(&expr);
                Ok(expr.transform_down(literal)?.update_data(|expr| name.restore(expr)))
            })?;
            changed.map_data(LogicalPlan::recompute_schema)
        })?;
        let plan = self.state.create_physical_plan(&query.data).await?;
        execute_stream(plan, context.clone())
    }

    /// Pairs of one outer row and inner ones.
    fn pairs(&self, row: &RecordBatch, inner: &[ArrayRef], count: usize) -> Result<RecordBatch> {
        let rows = UInt32Array::from(vec![0; count]);
        let outer = row.columns().iter().map(|column| take(column, &rows, None));
        let mut columns = outer.collect::<Result<Vec<ArrayRef>, _>>()?;
        columns.extend(inner.iter().cloned());
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }
}
