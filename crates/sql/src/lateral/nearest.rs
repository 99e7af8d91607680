//! The execution of nearest rows for each outer row.

use std::fmt;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array, new_empty_array, new_null_array,
};
use arrow_schema::SchemaRef;
use datafusion::arrow::compute::{
    SortColumn, concat, concat_batches, filter_record_batch, lexsort_to_indices, take, take_record_batch,
};
use datafusion::common::cast::as_boolean_array;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, ScalarValue, internal_datafusion_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties};
use futures::StreamExt;

use crate::functions::Geometries;
use crate::nearest::{Measure, Measured, Search, distances};
use crate::scan::{Batches, SHARERS, Source, external, properties, stream_of};

/// Number of outer rows, and about that of found ones, after which these are passed on.
const OUTER_ROWS: usize = 256;
const FOUND_ROWS: usize = 8192;
/// Number of rows beyond those wanted that a search begins with.
const BEYOND: usize = 4;

/// What is searched for each outer row. A pair has the outer columns that are needed, and then the
/// scan's columns.
#[derive(Debug)]
pub(super) struct NearestJoin {
    pub source: Arc<Source>,
    pub measure: Measure,
    /// The outer geometry, of a pair's outer columns.
    pub place: Arc<dyn PhysicalExpr>,
    /// The distance.
    pub key: Arc<dyn PhysicalExpr>,
    pub order: Vec<PhysicalSortExpr>,
    pub k: usize,
    /// What the scan does not judge.
    pub condition: Option<Arc<dyn PhysicalExpr>>,
    /// The values of the result.
    pub columns: Vec<Arc<dyn PhysicalExpr>>,
    /// Positions of the outer columns in a pair.
    pub references: Vec<usize>,
    pub pair_schema: SchemaRef,
    pub is_left: bool,
    pub schema: SchemaRef,
}

/// For each row of its input, the nearest rows of a dataset.
#[derive(Debug)]
pub(super) struct NearestJoinExec {
    join: Arc<NearestJoin>,
    outer: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl NearestJoinExec {
    pub fn new(join: Arc<NearestJoin>, outer: Arc<dyn ExecutionPlan>) -> Self {
        let properties = properties(join.schema.clone(), outer.output_partitioning().partition_count());
        Self { join, outer, properties, metrics: ExecutionPlanMetricsSet::new() }
    }
}

impl DisplayAs for NearestJoinExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join = &*self.join;
        let kind = if join.is_left { "left" } else { "inner" };
        write!(f, "TerraneNearestJoin: {kind}, for each row below, the {} nearest of ", join.k)?;
        write!(f, "dataset={}, by {}", join.source.dataset, join.key)?;
        if join.measure == Measure::Degrees {
            f.write_str(", then the window of the farthest")?;
        }
        if let Some(condition) = &join.condition {
            write!(f, ", filter={condition}")?;
        }
        f.write_str(&join.source.condition)
    }
}

impl ExecutionPlan for NearestJoinExec {
    fn name(&self) -> &'static str {
        "TerraneNearestJoin"
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
        Ok(Arc::new(Self::new(self.join.clone(), outer)))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let joining = Joining {
            searches: Searches {
                join: self.join.clone(),
                scanned: MetricBuilder::new(&self.metrics).counter("rows_scanned", partition),
                pages: MetricBuilder::new(&self.metrics).counter("pages_read", partition),
            },
            outer: self.outer.execute(partition, context)?,
            current: None,
            baseline: BaselineMetrics::new(&self.metrics, partition),
        };
        Ok(stream_of(self.join.schema.clone(), joining))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

struct Joining {
    searches: Searches,
    outer: SendableRecordBatchStream,
    /// A batch of outer rows, and the next of them.
    current: Option<(RecordBatch, usize)>,
    baseline: BaselineMetrics,
}

/// The searches of a part.
struct Searches {
    join: Arc<NearestJoin>,
    scanned: Count,
    pages: Count,
}

impl Batches for Joining {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let Some((outer, start)) = self.current.take() else {
                match self.outer.next().await.transpose()? {
                    Some(batch) => self.current = Some((batch, 0)),
                    None => return Ok(None),
                }
                continue;
            };
            let count = (FOUND_ROWS / self.searches.join.k).clamp(1, OUTER_ROWS).min(outer.num_rows() - start);
            if start + count < outer.num_rows() {
                self.current = Some((outer.clone(), start + count));
            }
            let found = self.searches.join(&outer.slice(start, count)).await?;
            if found.num_rows() > 0 {
                self.baseline.record_output(found.num_rows());
                return Ok(Some(found));
            }
        }
    }
}

impl Searches {
    async fn join(&self, outer: &RecordBatch) -> Result<RecordBatch> {
        let join = &*self.join;
        let needed = outer.project(&join.references)?;
        let places = join.place.evaluate(&needed)?;
        let places = Geometries::new(&places, &*join.place.return_field(needed.schema_ref())?)?;
        let (mut rows, mut found) = (Vec::new(), Vec::with_capacity(outer.num_rows()));
        for row in 0..outer.num_rows() {
            let pairing = Pairing { join, row: needed.slice(row, 1), scanned: &self.scanned, pages: &self.pages };
            let nearest = pairing.find(places.get(row)?.as_deref()).await?;
            let count = nearest.as_ref().map_or(0, RecordBatch::num_rows);
            let values = match nearest {
                Some(pairs) if count > 0 => values(&join.columns, &pairs)?,
                _ if join.is_left => join.inner_types().map(|kind| new_null_array(kind, 1)).collect(),
                _ => continue,
            };
            rows.extend(std::iter::repeat_n(u32::try_from(row).unwrap_or(u32::MAX), count.max(1)));
            found.push(values);
        }
        let rows = UInt32Array::from(rows);
        let mut columns =
            outer.columns().iter().map(|column| take(column, &rows, None)).collect::<Result<Vec<_>, _>>()?;
        for (index, kind) in join.inner_types().enumerate() {
            let parts: Vec<&dyn Array> = found.iter().map(|values: &Vec<ArrayRef>| values[index].as_ref()).collect();
            columns.push(if parts.is_empty() { new_empty_array(kind) } else { concat(&parts)? });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        Ok(RecordBatch::try_new_with_options(join.schema.clone(), columns, &options)?)
    }
}

impl NearestJoin {
    fn inner_types(&self) -> impl Iterator<Item = &arrow_schema::DataType> {
        let outer = self.schema.fields().len() - self.columns.len();
        self.schema.fields()[outer..].iter().map(|field| field.data_type())
    }
}

fn values(exprs: &[Arc<dyn PhysicalExpr>], rows: &RecordBatch) -> Result<Vec<ArrayRef>> {
    exprs.iter().map(|expr| expr.evaluate(rows)?.into_array(rows.num_rows())).collect()
}

/// The search for one outer row.
struct Pairing<'j> {
    join: &'j NearestJoin,
    /// The outer columns of a pair.
    row: RecordBatch,
    scanned: &'j Count,
    pages: &'j Count,
}

impl Pairing<'_> {
    /// The nearest pairs in their order.
    async fn find(&self, place: Option<&[u8]>) -> Result<Option<RecordBatch>> {
        let join = self.join;
        // Here a statement can be stopped.
        tokio::task::yield_now().await;
        if let Some(place) = place.filter(|_| join.source.pushes_down) {
            let search = Search { source: &join.source, measure: join.measure, k: join.k, beyond: BEYOND };
            let mut judge = |rows: RecordBatch| {
                let pairs = self.pairs(&rows)?;
                let distances = distances(&join.key, &pairs)?;
                Ok(Measured { rows: pairs, distances })
            };
            let mut note = |rows: &terrane::ScanRows| {
                self.pages.add(usize::try_from(rows.explanation().pages_read).unwrap_or(usize::MAX));
            };
            if let Some(found) = search.find(place, &mut judge, &mut note)? {
                let found: Vec<RecordBatch> = found.into_iter().map(|measured| measured.rows).collect();
                return self.first(&found).map(Some);
            }
        }
        self.find_among_all(place.is_some()).await
    }

    /// The nearest of all rows.
    async fn find_among_all(&self, has_place: bool) -> Result<Option<RecordBatch>> {
        let join = self.join;
        let scan = join.source.snapshot.scan(&join.source.query, SHARERS).map_err(external)?;
        let mut best: Option<RecordBatch> = None;
        for part in 0..scan.parts() {
            let mut rows = scan.read(part).map_err(external)?;
            while let Some(batch) = rows.next_batch().map_err(external)? {
                tokio::task::yield_now().await;
                let pairs = self.pairs(&join.source.shape(&batch)?)?;
                let all: Vec<RecordBatch> = best.into_iter().chain([pairs]).collect();
                let first = self.first(&all)?;
                // Without a place, no row has a distance, and any rows are the first.
                let is_whole = !has_place && join.order.len() == 1 && first.num_rows() == join.k;
                best = Some(first);
                if is_whole {
                    return Ok(best);
                }
            }
        }
        Ok(best)
    }

    /// The wanted ones of the pairs with some rows of the scan.
    fn pairs(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        self.scanned.add(rows.num_rows());
        let count = rows.num_rows();
        let mut columns = Vec::with_capacity(self.join.pair_schema.fields().len());
        for column in self.row.columns() {
            columns.push(ScalarValue::try_from_array(column, 0)?.to_array_of_size(count)?);
        }
        columns.extend(rows.columns().iter().cloned());
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let pairs = RecordBatch::try_new_with_options(self.join.pair_schema.clone(), columns, &options)?;
        let Some(condition) = &self.join.condition else { return Ok(pairs) };
        let is_wanted = condition.evaluate(&pairs)?.into_array(count)?;
        let is_wanted: &BooleanArray = as_boolean_array(&is_wanted)?;
        Ok(filter_record_batch(&pairs, is_wanted)?)
    }

    /// The first `k` of some pairs.
    fn first(&self, pairs: &[RecordBatch]) -> Result<RecordBatch> {
        let pairs = concat_batches(&self.join.pair_schema, pairs)?;
        let key = |sort: &PhysicalSortExpr| {
            let values = sort.expr.evaluate(&pairs)?.into_array(pairs.num_rows())?;
            Ok(SortColumn { values, options: Some(sort.options) })
        };
        let keys = self.join.order.iter().map(key).collect::<Result<Vec<SortColumn>>>()?;
        let order = lexsort_to_indices(&keys, Some(self.join.k))?;
        Ok(take_record_batch(&pairs, &order)?)
    }
}
