//! The outer side of a join: the rows of a query, batch by batch, with their keys and geometries.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, ArrayRef, BinaryArray, Float64Array, RecordBatch, UInt32Array};
use arrow_schema::{DataType, Field, Schema as ArrowSchema};
use terrane_lsm::partition::Version;
use terrane_space::{Point, Rect};

use super::probe::{EVERYWHERE, WantedCoordinates, point_of};
use super::wanted::JoinSide;
use crate::batch::{BATCH_BYTES_MAX, BatchBuilder, BatchError, BatchKeys};
use crate::query::execute::lookup;
use crate::query::explain::INDEX_SEARCH;
use crate::query::index::{IndexScan, antimatter_fits};
use crate::query::keys::Keys;
use crate::query::plan::{Path, choose_path};
use crate::query::{Explanation, Filters, Query, Rows};
use crate::record::GeometryRef;
use crate::schema::{GeometryColumn, Schema};
use crate::secondary::SPATIAL;
use crate::snapshot::Snapshot;
use crate::{Error, Result};

/// The rows of the outer side.
pub(super) struct Outer {
    source: Source,
    /// Pages read to find out whether a spatial index alone has the rows, and to pass its memory
    /// components.
    pages_before_rows: u64,
    schema: Arc<Schema>,
    /// Positions of the columns in the answer. The others are read for the join itself.
    pub wanted: Vec<usize>,
    pub arrow: arrow_schema::SchemaRef,
}

enum Source {
    Rows(Box<Rows>),
    Points(Box<PointRows>),
    /// One batch of geometries that are no records.
    Given(Option<Box<OuterBatch>>),
}

/// The column of positions of outer geometries that are no records.
const OUTER_ROW: &str = "outer_row";

impl Outer {
    /// The rows of a query. `columns` are those of the answer.
    pub fn new(snapshot: &Snapshot, query: &Query, columns: Option<Vec<String>>) -> Result<Self> {
        let blame = |error| JoinSide::Outer.blame(snapshot, error);
        let schema = snapshot.schema();
        let mut names: Vec<String> = columns.unwrap_or_else(|| schema.column_names().map(str::to_owned).collect());
        let wanted = names.len();
        let read = std::iter::once(schema.key.name.as_str()).chain(schema.geometry.names());
        let missing: Vec<String> =
            read.filter(|name| names.iter().all(|known| known != name)).map(str::to_owned).collect();
        names.extend(missing);
        let coordinates = WantedCoordinates::among(Some(&names[..wanted]), &schema);
        let pages_before = snapshot.pages_read();
        let points = PointRows::new(snapshot, query, &names, coordinates).map_err(blame)?;
        let pages_before_rows = snapshot.pages_read() - pages_before;
        let (source, arrow) = match points {
            Some(points) => {
                let arrow = points.arrow.clone();
                (Source::Points(Box::new(points)), arrow)
            }
            None => {
                let rows = snapshot.query(&query.clone().columns(names)).map_err(blame)?;
                let arrow = rows.schema().clone();
                (Source::Rows(Box::new(rows)), arrow)
            }
        };
        // A nearest-neighbour query has its distances in the last column.
        let distances = query.nearest.map(|_| arrow.fields().len() - 1);
        let wanted = (0..wanted).chain(distances).collect();
        Ok(Self { source, pages_before_rows, schema, wanted, arrow })
    }

    /// Geometries that are no records. `schema` is not used for them.
    pub fn of_geometries(geometries: &BinaryArray, schema: Arc<Schema>) -> Result<Self> {
        let rows = UInt32Array::from_iter_values(0..u32::try_from(geometries.len()).unwrap_or(u32::MAX));
        let arrow = Arc::new(ArrowSchema::new(vec![Field::new(OUTER_ROW, DataType::UInt32, false)]));
        let batch = RecordBatch::try_new(arrow.clone(), vec![Arc::new(rows)]).map_err(BatchError::from)?;
        let batch = OuterBatch { batch, key: 0, geometry: GeometryArrays::Wkb(geometries.clone()), next: 0 };
        Ok(Self { source: Source::Given(Some(Box::new(batch))), pages_before_rows: 0, schema, wanted: vec![0], arrow })
    }

    /// Adds the name of a row to an error.
    pub fn name_row(&self, error: Error, snapshot: &Snapshot, batch: &OuterBatch, row: usize) -> Error {
        match &self.source {
            Source::Given(_) => Error::usage(format!("the geometry in row {row} of the outer side: {error}")),
            _ => error.of_record(snapshot.dataset_name(), batch.key_text(row)),
        }
    }

    /// The next batch.
    pub fn next_batch(&mut self) -> Result<Option<OuterBatch>> {
        let batch = match &mut self.source {
            Source::Given(batch) => return Ok(batch.take().map(|batch| *batch)),
            Source::Rows(rows) => rows.next_batch()?,
            Source::Points(points) => points.next_batch()?,
        };
        batch.map(|batch| OuterBatch::new(batch, &self.schema)).transpose()
    }

    pub fn explanation(&self) -> Explanation {
        let mut explanation = match &self.source {
            Source::Rows(rows) => rows.explanation(),
            Source::Points(points) => points.explanation(),
            Source::Given(_) => Explanation::default(),
        };
        explanation.pages_read += self.pages_before_rows;
        explanation
    }
}

/// Rows of a point dataset, if keys and points suffice, from a spatial index alone.
struct PointRows {
    snapshot: Snapshot,
    filters: Filters,
    arrow: arrow_schema::SchemaRef,
    names: Vec<String>,
    coordinates: WantedCoordinates,
    scan: IndexScan,
    keys: Keys,
    points: Vec<Point>,
    taken: usize,
    left: u64,
    ended: bool,
    explanation: Explanation,
}

impl PointRows {
    /// `None` if more is needed, or another plan is better.
    fn new(
        snapshot: &Snapshot,
        query: &Query,
        names: &[String],
        coordinates: WantedCoordinates,
    ) -> Result<Option<Self>> {
        let schema = snapshot.schema();
        let filters = Filters::new(query, &schema)?;
        let builder = BatchBuilder::new(&snapshot.history, Some(names), false)?;
        if !schema.holds_points() || query.nearest.is_some() || filters.needs_record() || builder.reads_attributes() {
            return Ok(None);
        }
        let versions = snapshot.versions();
        let is_not_whole = |version: &Arc<Version>| !version.indexes[SPATIAL as usize].is_whole();
        let mut explanation = Explanation { plan: "spatial index only", ..Explanation::default() };
        // Records without a geometry are in no pair. So the index has all wanted rows, even without
        // a window.
        let (slot, windows): (usize, &[Rect]) = match filters.windows() {
            Some(windows) => match choose_path(snapshot, &filters, query.index.as_deref(), false)? {
                (Path::Windows(slot), considered) => {
                    explanation.considered = considered;
                    (slot, windows)
                }
                _ => return Ok(None),
            },
            None if query.index.is_some() || versions.iter().any(is_not_whole) => return Ok(None),
            None => (SPATIAL as usize, &[EVERYWHERE]),
        };
        if !antimatter_fits(snapshot, &versions, slot, windows)? {
            return Ok(None);
        }
        explanation.windows = windows.len();
        let scan = IndexScan::new(snapshot, &versions, slot, windows);
        let mut rows = Self {
            arrow: builder.schema().clone(),
            names: names.to_vec(),
            coordinates,
            filters,
            scan,
            keys: Keys::default(),
            points: Vec::new(),
            taken: 0,
            left: query.limit.unwrap_or(u64::MAX),
            ended: false,
            explanation,
            snapshot: snapshot.clone(),
        };
        // So that no sealed memory is held, however slowly the rows are read.
        while !rows.ended && !rows.scan.is_past_memory()? {
            rows.advance()?;
        }
        Ok(Some(rows))
    }

    fn advance(&mut self) -> Result<()> {
        let (filters, keys, points) = (&self.filters, &mut self.keys, &mut self.points);
        let mut candidates = 0;
        let more = self.scan.advance(&mut self.explanation, &mut |hit| {
            candidates += 1;
            let point = point_of(&hit.rect());
            if filters.matches_point(point)? {
                keys.push(&hit.key());
                points.push(point);
            }
            Ok(())
        })?;
        self.explanation.candidates += candidates;
        self.ended = !more;
        Ok(())
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let (started, pages_before) =
            (self.snapshot.core.environment().storage.monotonic_ns(), self.snapshot.pages_read());
        let batch = self.fill_batch();
        let time_ns = self.snapshot.core.environment().storage.monotonic_ns() - started;
        self.explanation.add_time(INDEX_SEARCH, time_ns);
        self.explanation.pages_read += self.snapshot.pages_read() - pages_before;
        batch
    }

    fn fill_batch(&mut self) -> Result<Option<RecordBatch>> {
        let (history, versions) = (self.snapshot.history.clone(), self.snapshot.versions());
        let bytes_max = BATCH_BYTES_MAX.min(self.snapshot.work_bytes() / 4);
        let mut builder = BatchBuilder::new(&history, Some(&self.names), false)?.with_bytes_max(bytes_max);
        while self.left > 0 && !builder.is_full() {
            let Some((key, point)) = self.keys.get(self.taken).zip(self.points.get(self.taken)) else {
                if self.ended {
                    break;
                }
                self.keys.clear();
                self.points.clear();
                self.taken = 0;
                self.advance()?;
                continue;
            };
            if self.coordinates.are_in_record_alone(*point) {
                self.explanation.lookups += 1;
                let appended = builder.append(key, &lookup(&self.snapshot, &versions, key)?, None);
                appended.map_err(|error| self.snapshot.name_record(error.into(), key))?;
            } else {
                builder.append_point(key, *point, None)?;
            }
            self.taken += 1;
            self.left -= 1;
            self.explanation.matches += 1;
        }
        Ok(if builder.rows() > 0 { Some(builder.finish()?) } else { None })
    }

    fn explanation(&self) -> Explanation {
        let mut explanation = self.explanation.clone();
        self.scan.explain(&mut explanation);
        explanation
    }
}

/// Some rows of the outer side.
pub(super) struct OuterBatch {
    pub batch: RecordBatch,
    key: usize,
    geometry: GeometryArrays,
    /// The next row to join.
    pub next: usize,
}

enum GeometryArrays {
    Points(Float64Array, Float64Array),
    Wkb(BinaryArray),
}

impl OuterBatch {
    fn new(batch: RecordBatch, schema: &Schema) -> Result<Self> {
        let missing = |name: &str| Error::Failed(format!("the outer rows of the join have no column {name:?}"));
        let column = |name: &str| batch.column_by_name(name).ok_or_else(|| missing(name));
        let floats = |name: &str| column(name)?.as_primitive_opt::<Float64Type>().cloned().ok_or_else(|| missing(name));
        let geometry = match &schema.geometry {
            GeometryColumn::Point { x, y } => GeometryArrays::Points(floats(x)?, floats(y)?),
            GeometryColumn::Geometry { name } => {
                GeometryArrays::Wkb(column(name)?.as_binary_opt::<i32>().cloned().ok_or_else(|| missing(name))?)
            }
            GeometryColumn::None => GeometryArrays::Wkb(BinaryArray::new_null(batch.num_rows())),
        };
        let key = batch.schema_ref().index_of(&schema.key.name).map_err(|_| missing(&schema.key.name))?;
        Ok(Self { batch, key, geometry, next: 0 })
    }

    /// The geometry of a row.
    pub fn geometry(&self, row: usize) -> Option<GeometryRef<'_>> {
        match &self.geometry {
            GeometryArrays::Points(x, y) => (x.is_valid(row) && y.is_valid(row))
                .then(|| GeometryRef::Point(Point { x: x.value(row), y: y.value(row) })),
            GeometryArrays::Wkb(wkb) if wkb.is_null(row) => None,
            GeometryArrays::Wkb(wkb) => {
                let bytes = wkb.value(row);
                Some(match terrane_space::geometry::as_flat_point(bytes) {
                    Some(point) => GeometryRef::Point(point),
                    None => GeometryRef::Wkb(bytes),
                })
            }
        }
    }

    /// The encoded keys of the rows.
    pub fn keys<'s>(&self, schema: &'s Schema) -> Result<BatchKeys<'s>> {
        BatchKeys::new(&self.batch, schema).map_err(Error::from)
    }

    /// The key of a row, for messages.
    pub fn key_text(&self, row: usize) -> Option<String> {
        arrow_cast::display::array_value_to_string(self.batch.column(self.key), row).ok()
    }

    /// Bytes of variable length in some columns of a row.
    pub fn variable_bytes(&self, row: usize, columns: &[usize]) -> usize {
        columns.iter().map(|column| variable_bytes(self.batch.column(*column), row)).sum()
    }
}

fn variable_bytes(column: &ArrayRef, row: usize) -> usize {
    if let Some(texts) = column.as_string_opt::<i32>() {
        return texts.value_length(row) as usize;
    }
    column.as_binary_opt::<i32>().map_or(0, |bytes| bytes.value_length(row) as usize)
}
