//! A scan of a dataset as a physical plan.

use std::collections::VecDeque;
use std::fmt;
use std::iter::StepBy;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, ScalarValue, internal_datafusion_err};
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use terrane::{Query, Scan, ScanRows, Snapshot};
use terrane_space::Point;
use terrane_space::geometry::point_wkb;

use crate::comparisons::plain_floats;
use crate::nearest::NearestScan;
use crate::table::OpenScan;

/// Number of scans and other consumers that share the working memory of the store.
pub(crate) const SHARERS: usize = 4;

/// Where a column of the result comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin {
    /// A column of the engine's batches.
    Column(usize),
    /// A point of two columns of coordinates.
    Point(usize, usize),
}

/// What a scan reads.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub dataset: String,
    pub snapshot: Snapshot,
    /// The conditions, the limit and the columns.
    pub query: Query,
    /// For each column of the result.
    pub origins: Vec<Origin>,
    pub schema: SchemaRef,
    /// Position of the column of geometries in the result.
    pub geometry: Option<usize>,
    /// The filters and the limit, for explanations.
    pub condition: String,
    pub limit: Option<usize>,
    pub pushes_down: bool,
    /// The filters, if their parameters are open.
    pub open: Option<OpenScan>,
}

impl Source {
    /// The columns of the result, from those of the engine.
    pub fn columns(&self, read: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
        let column = |origin: &Origin| match origin {
            Origin::Column(index) => Ok(plain_floats(&read[*index])),
            Origin::Point(x, y) => points(&read[*x], &read[*y]),
        };
        self.origins.iter().map(column).collect()
    }

    /// The rows of the engine in the columns of the result.
    pub fn shape(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), self.columns(batch.columns())?, &options)?)
    }
}

/// Reads a dataset through the plan that the engine chose.
#[derive(Debug)]
pub(crate) struct ScanExec {
    source: Arc<Source>,
    scan: Arc<Scan>,
    /// Instead of all rows, those near to a place.
    nearest: Option<Arc<NearestScan>>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl ScanExec {
    /// Plans the scan.
    ///
    /// # Errors
    /// Those of [`Snapshot::scan`].
    pub fn new(source: Source) -> Result<Self> {
        let scan = source.snapshot.scan(&source.query, SHARERS).map_err(external)?;
        let parts = scan.parts();
        Ok(Self {
            properties: properties(source.schema.clone(), parts),
            source: Arc::new(source),
            scan: Arc::new(scan),
            nearest: None,
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    pub fn source(&self) -> &Source {
        &self.source
    }

    pub fn shared_source(&self) -> Arc<Source> {
        self.source.clone()
    }

    /// The scan with values of its parameters, of a newer state; `None` if the engine judges the
    /// filters in another way with them.
    ///
    /// # Errors
    /// Those of [`Snapshot::scan`].
    pub fn filled(&self, snapshot: Snapshot, values: &Arc<[ScalarValue]>) -> Result<Option<Self>> {
        let query = self.source.open.as_ref().and_then(|open| open.query(self.source.limit, values.clone()));
        let Some(query) = query else { return Ok(None) };
        let filled = Self::new(Source { snapshot, query, open: None, ..(*self.source).clone() })?;
        // The plan above was made for this number of parts.
        let properties = self.properties.clone();
        Ok(Some(Self { nearest: self.nearest.clone(), properties, ..filled }))
    }

    /// The source, if all its rows are read and an index may be used.
    pub fn plain_source(&self) -> Option<Arc<Source>> {
        let is_plain = self.nearest.is_none() && self.source.limit.is_none() && self.source.pushes_down;
        is_plain.then(|| self.source.clone())
    }

    /// The same scan, of rows among which are the nearest ones.
    pub fn nearest(&self, nearest: NearestScan) -> Self {
        Self {
            source: self.source.clone(),
            scan: self.scan.clone(),
            nearest: Some(Arc::new(nearest)),
            properties: properties(self.source.schema.clone(), 1),
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }
}

/// The properties of a plan that gives its rows bit by bit.
pub(crate) fn properties(schema: SchemaRef, parts: usize) -> Arc<PlanProperties> {
    let (emission, boundedness) = (EmissionType::Incremental, Boundedness::Bounded);
    let partitioning = Partitioning::UnknownPartitioning(parts);
    Arc::new(PlanProperties::new(EquivalenceProperties::new(schema), partitioning, emission, boundedness))
}

impl DisplayAs for ScanExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(nearest) = &self.nearest {
            write!(f, "TerraneScan: dataset={}, plan=nearest, {nearest}", self.source.dataset)?;
            return f.write_str(&self.source.condition);
        }
        let explanation = self.scan.explanation();
        write!(f, "TerraneScan: dataset={}, plan={}", self.source.dataset, explanation.plan)?;
        for considered in &explanation.considered {
            let used = if considered.is_used { "used" } else { "not used" };
            write!(f, ", index {}: {used}, as {}", considered.index, considered.reason)?;
        }
        f.write_str(&self.source.condition)
    }
}

impl ExecutionPlan for ScanExec {
    fn name(&self) -> &'static str {
        "TerraneScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let reading = Reading {
            source: self.source.clone(),
            scan: self.scan.clone(),
            nearest: self.nearest.clone(),
            found: VecDeque::new(),
            // One partition may read several parts.
            parts: (partition..self.scan.parts()).step_by(self.properties.partitioning.partition_count()),
            rows: None,
            counters: Counters::new(&self.metrics, partition),
        };
        Ok(stream_of(self.source.schema.clone(), reading))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// One part of a scan, or several after each other, from the first poll on.
struct Reading {
    source: Arc<Source>,
    scan: Arc<Scan>,
    nearest: Option<Arc<NearestScan>>,
    /// The nearest rows.
    found: VecDeque<RecordBatch>,
    /// The parts to read.
    parts: StepBy<Range<usize>>,
    rows: Option<ScanRows>,
    counters: Counters,
}

impl Batches for Reading {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        if let Some(nearest) = self.nearest.take()
            && let Some(found) = nearest.find(&self.source, &mut |rows| self.counters.set(rows))?
        {
            self.found = found.into();
            self.parts = (0..0).step_by(1);
        }
        if let Some(batch) = self.found.pop_front() {
            self.counters.rows.add(batch.num_rows());
            return Ok(Some(batch));
        }
        loop {
            let rows = match &mut self.rows {
                Some(rows) => rows,
                None => match self.parts.next() {
                    Some(part) => self.rows.insert(self.scan.read(part).map_err(external)?),
                    None => return Ok(None),
                },
            };
            let batch = rows.next_batch().map_err(external)?;
            self.counters.set(rows);
            match batch {
                Some(batch) => {
                    self.counters.rows.add(batch.num_rows());
                    return self.source.shape(&batch).map(Some);
                }
                None => self.rows = None,
            }
        }
    }
}

/// What a part of a plan gives, batch by batch.
pub(crate) trait Batches: Send + 'static {
    /// The next batch; `None` at the end.
    fn next(&mut self) -> impl Future<Output = Result<Option<RecordBatch>>> + Send;
}

/// The batches as a stream, which an error ends.
pub(crate) fn stream_of(schema: SchemaRef, batches: impl Batches) -> SendableRecordBatchStream {
    let stream = futures::stream::unfold(Some(batches), |batches| async move {
        let mut batches = batches?;
        match batches.next().await.transpose()? {
            Ok(batch) => Some((Ok(batch), Some(batches))),
            Err(error) => Some((Err(error), None)),
        }
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, stream))
}

pub(crate) fn external(error: terrane::Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// Points as WKB. One without coordinates is null.
pub(crate) fn points(xs: &ArrayRef, ys: &ArrayRef) -> Result<ArrayRef> {
    let coordinates = |array: &ArrayRef| {
        let missing = || internal_datafusion_err!("the coordinates are no numbers");
        array.as_primitive_opt::<Float64Type>().cloned().ok_or_else(missing)
    };
    let (xs, ys) = (coordinates(xs)?, coordinates(ys)?);
    let mut builder = BinaryBuilder::with_capacity(xs.len(), xs.len() * 21);
    for row in 0..xs.len() {
        match xs.is_valid(row) && ys.is_valid(row) {
            true => builder.append_value(point_wkb(Point { x: xs.value(row), y: ys.value(row) })),
            false => builder.append_null(),
        }
    }
    Ok(Arc::new(builder.finish()))
}

/// The work of a part, for `EXPLAIN ANALYZE`.
struct Counters {
    rows: Count,
    pages: Count,
    entries: Count,
    candidates: Count,
    lookups: Count,
    matches: Count,
}

impl Counters {
    fn new(metrics: &ExecutionPlanMetricsSet, part: usize) -> Self {
        let counter = |name: &'static str| MetricBuilder::new(metrics).counter(name, part);
        Self {
            rows: MetricBuilder::new(metrics).output_rows(part),
            pages: counter("pages_read"),
            entries: counter("entries"),
            candidates: counter("candidates"),
            lookups: counter("lookups"),
            matches: counter("matches"),
        }
    }

    fn set(&self, rows: &ScanRows) {
        let explanation = rows.explanation();
        let set = |counter: &Count, total: u64| {
            let total = usize::try_from(total).unwrap_or(usize::MAX);
            counter.add(total.saturating_sub(counter.value()));
        };
        set(&self.pages, explanation.pages_read);
        set(&self.entries, explanation.entries);
        set(&self.candidates, explanation.candidates);
        set(&self.lookups, explanation.lookups);
        set(&self.matches, explanation.matches);
    }
}
