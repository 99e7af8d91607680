//! The execution of spatial joins: for each batch of outer rows, a search of the inner index.

use std::fmt;
use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{ArrayRef, BinaryArray, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array};
use arrow_schema::SchemaRef;
use datafusion::arrow::compute::{filter, take};
use datafusion::common::cast::as_boolean_array;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{JoinSide, Result, internal_datafusion_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::metrics::{BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties};
use futures::StreamExt;
use terrane::{Join, JoinRows};

use super::predicate::{Reach, SpatialPredicate};
use crate::functions::Geometries;
use crate::functions::relation::enlarged_box;
use crate::scan::{Batches, Source, external, properties, stream_of};

/// Which rows a join gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// Each pair.
    Pairs,
    /// Each pair, and each outer row without one.
    PairsAndUnmatched,
    /// Each outer row with a pair, once.
    Matched,
    /// Each outer row without a pair.
    Unmatched,
}

/// What is joined.
#[derive(Debug)]
pub(super) struct SpatialJoin {
    /// The inner side.
    pub source: Arc<Source>,
    /// For each column of the inner side, that of its scan.
    pub columns: Vec<usize>,
    pub predicate: SpatialPredicate,
    /// What is left of the condition.
    pub rest: Option<JoinFilter>,
    /// The side of the outer rows.
    pub side: JoinSide,
    pub kept: Kept,
    /// Of the columns of both sides.
    pub projection: Option<Vec<usize>>,
    pub schema: SchemaRef,
}

/// Joins each row of its input with the rows of a dataset that its geometry meets.
#[derive(Debug)]
pub(crate) struct SpatialJoinExec {
    join: Arc<SpatialJoin>,
    outer: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl SpatialJoinExec {
    pub(super) fn new(join: Arc<SpatialJoin>, outer: Arc<dyn ExecutionPlan>) -> Self {
        let properties = properties(join.schema.clone(), outer.output_partitioning().partition_count());
        Self { join, outer, properties, metrics: ExecutionPlanMetricsSet::new() }
    }
}

impl DisplayAs for SpatialJoinExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join = &*self.join;
        let kept = match join.kept {
            Kept::Pairs => "inner",
            Kept::PairsAndUnmatched => "left",
            Kept::Matched => "semi",
            Kept::Unmatched => "anti",
        };
        write!(f, "TerraneSpatialJoin: {kept}, for each row below, index of dataset={}", join.source.dataset)?;
        write!(f, ", on={} {}", join.predicate.on, join.predicate.outer)?;
        if let Reach::Box(distance) = join.predicate.reach {
            write!(f, ", box enlarged by {distance}")?;
        }
        if let Some(rest) = &join.rest {
            write!(f, ", then filter={rest}")?;
        }
        f.write_str(&join.source.condition)
    }
}

impl ExecutionPlan for SpatialJoinExec {
    fn name(&self) -> &'static str {
        "TerraneSpatialJoin"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.outer]
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        f(&self.join.predicate.outer)
    }

    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let outer = children.pop().ok_or_else(|| internal_datafusion_err!("a spatial join has one child"))?;
        Ok(Arc::new(Self::new(self.join.clone(), outer)))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let joining = Joining {
            join: self.join.clone(),
            outer: self.outer.execute(partition, context)?,
            current: None,
            baseline: BaselineMetrics::new(&self.metrics, partition),
            counters: Counters::new(&self.metrics, partition),
        };
        Ok(stream_of(self.join.schema.clone(), joining))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// One part of a join.
struct Joining {
    join: Arc<SpatialJoin>,
    outer: SendableRecordBatchStream,
    current: Option<Current>,
    baseline: BaselineMetrics,
    counters: Counters,
}

/// A batch of outer rows whose pairs are being found.
struct Current {
    batch: RecordBatch,
    rows: JoinRows,
    /// Which outer rows are in a pair.
    is_matched: Vec<bool>,
}

impl Batches for Joining {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let Some(current) = &mut self.current else {
                match self.outer.next().await.transpose()? {
                    Some(batch) => self.current = Some(self.join.begin(batch)?),
                    None => return Ok(None),
                }
                continue;
            };
            let found = match current.rows.next_batch().map_err(external)? {
                Some(pairs) => self.join.pairs(current, &pairs)?,
                None => {
                    let rest = self.join.rest_of(current)?;
                    self.counters.add(&current.rows);
                    self.current = None;
                    rest
                }
            };
            if let Some(batch) = found.filter(|batch| batch.num_rows() > 0) {
                self.baseline.record_output(batch.num_rows());
                return Ok(Some(batch));
            }
        }
    }
}

impl SpatialJoin {
    /// Begins the search for the pairs of a batch.
    fn begin(&self, batch: RecordBatch) -> Result<Current> {
        let geometries = self.outer_geometries(&batch)?;
        let inner = self.source.query.clone();
        let rows = self.source.snapshot.join_geometries(&geometries, &Join::new(self.predicate.on).inner(inner));
        let is_matched = vec![false; batch.num_rows()];
        Ok(Current { batch, rows: rows.map_err(external)?, is_matched })
    }

    /// The outer geometries in the stored form, or their boxes.
    fn outer_geometries(&self, batch: &RecordBatch) -> Result<BinaryArray> {
        let expr = &self.predicate.outer;
        let value = expr.evaluate(batch)?;
        let geometries = Geometries::new(&value, &*expr.return_field(batch.schema_ref())?)?;
        let mut builder = BinaryBuilder::new();
        for row in 0..batch.num_rows() {
            let Some(bytes) = geometries.get(row)? else {
                builder.append_null();
                continue;
            };
            match self.predicate.reach {
                Reach::Geometry => builder.append_value(bytes),
                Reach::Box(distance) => {
                    let system = self.source.snapshot.schema().system;
                    builder.append_option(enlarged_box(&bytes, distance, system)?);
                }
            }
        }
        Ok(builder.finish())
    }

    /// The wanted rows of some pairs that the index found.
    fn pairs(&self, current: &mut Current, pairs: &RecordBatch) -> Result<Option<RecordBatch>> {
        let missing = || internal_datafusion_err!("the pairs have no positions of outer rows");
        let rows =
            pairs.columns().first().and_then(|rows| rows.as_primitive_opt::<UInt32Type>()).ok_or_else(missing)?;
        let mut rows = rows.clone();
        let read = self.source.columns(&pairs.columns()[1..])?;
        let mut inner: Vec<ArrayRef> = self.columns.iter().map(|column| read[*column].clone()).collect();
        if let Some(rest) = &self.rest {
            let is_kept = self.evaluate(rest, &current.batch, &rows, &inner)?;
            rows = filter(&rows, &is_kept)?.as_primitive::<UInt32Type>().clone();
            for column in &mut inner {
                *column = filter(column, &is_kept)?;
            }
        }
        for row in rows.values() {
            if let Some(is_matched) = current.is_matched.get_mut(*row as usize) {
                *is_matched = true;
            }
        }
        match self.kept {
            Kept::Pairs | Kept::PairsAndUnmatched => self.joined(&current.batch, &rows, inner).map(Some),
            Kept::Matched | Kept::Unmatched => Ok(None),
        }
    }

    /// The rows that are known when all pairs of a batch are.
    fn rest_of(&self, current: &Current) -> Result<Option<RecordBatch>> {
        let wanted = match self.kept {
            Kept::Pairs => return Ok(None),
            Kept::Matched => true,
            Kept::PairsAndUnmatched | Kept::Unmatched => false,
        };
        let rows = current.is_matched.iter().enumerate().filter(|(_, is_matched)| **is_matched == wanted);
        let rows = UInt32Array::from_iter_values(rows.map(|(row, _)| row as u32));
        if self.kept != Kept::PairsAndUnmatched {
            return self.joined(&current.batch, &rows, Vec::new()).map(Some);
        }
        let scanned = &self.source.schema;
        let inner = self.columns.iter().map(|column| new_null_array(scanned.field(*column).data_type(), rows.len()));
        self.joined(&current.batch, &rows, inner.collect()).map(Some)
    }

    /// The projected columns of both sides. Those of the outer side are repeated only where they
    /// are wanted: a geometry may be large, and have many pairs.
    fn joined(&self, outer: &RecordBatch, rows: &UInt32Array, inner: Vec<ArrayRef>) -> Result<RecordBatch> {
        let (before, count) = match self.side {
            JoinSide::Left => (0, outer.num_columns()),
            _ => (inner.len(), outer.num_columns()),
        };
        let column = |position: usize| match position.checked_sub(before).filter(|position| *position < count) {
            Some(position) => Ok(take(outer.column(position), rows, None)?),
            None if before == 0 => Ok(inner[position - count].clone()),
            None => Ok(inner[position].clone()),
        };
        let columns: Vec<ArrayRef> = match &self.projection {
            Some(projection) => projection.iter().map(|position| column(*position)).collect::<Result<_>>()?,
            None => (0..count + inner.len()).map(column).collect::<Result<_>>()?,
        };
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }

    fn evaluate(
        &self,
        rest: &JoinFilter,
        outer: &RecordBatch,
        rows: &UInt32Array,
        inner: &[ArrayRef],
    ) -> Result<BooleanArray> {
        let column = |index: &datafusion::physical_plan::joins::utils::ColumnIndex| match index.side == self.side {
            true => Ok(take(outer.column(index.index), rows, None)?),
            false => Ok(inner[index.index].clone()),
        };
        let columns = rest.column_indices().iter().map(column).collect::<Result<Vec<ArrayRef>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let batch = RecordBatch::try_new_with_options(rest.schema().clone(), columns, &options)?;
        let value = rest.expression().evaluate(&batch)?.into_array(rows.len())?;
        Ok(as_boolean_array(&value)?.clone())
    }
}

/// The work of a part, for `EXPLAIN ANALYZE`.
struct Counters {
    probes: Count,
    candidates: Count,
    lookups: Count,
    pairs: Count,
    pages: Count,
}

impl Counters {
    fn new(metrics: &ExecutionPlanMetricsSet, part: usize) -> Self {
        let counter = |name: &'static str| MetricBuilder::new(metrics).counter(name, part);
        Self {
            probes: counter("probes"),
            candidates: counter("candidates"),
            lookups: counter("lookups"),
            pairs: counter("pairs"),
            pages: counter("pages_read"),
        }
    }

    fn add(&self, rows: &JoinRows) {
        let explanation = rows.explanation();
        let add = |counter: &Count, more: u64| counter.add(usize::try_from(more).unwrap_or(usize::MAX));
        add(&self.probes, explanation.probes);
        add(&self.candidates, explanation.inner.candidates);
        add(&self.lookups, explanation.inner.lookups);
        add(&self.pairs, explanation.pairs);
        add(&self.pages, explanation.inner.pages_read);
    }
}
