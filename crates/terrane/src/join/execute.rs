//! Answering joins: outer rows, candidates from the inner side, their records, exact predicates,
//! batches.
//!
//! Like a query, a join reads its snapshots' versions again for every piece of work. It searches
//! the memory components for an outer geometry before it returns rows, so it never holds sealed
//! memory for long.

use std::sync::Arc;

use arrow_array::{BinaryArray, RecordBatch};
use arrow_schema::{Field, SchemaRef};
use terrane_lsm::partition::Version;
use terrane_lsm::search::PrimaryValue;

use super::candidates::{Candidate, Candidates, OuterPlace};
use super::explain::JoinExplanation;
use super::outer::{Outer, OuterBatch};
use super::output::{PairBuilder, schema_of};
use super::pair::{Met, Place, Predicate};
use super::probe::{Probe, Probed, WantedCoordinates, point_of};
use super::wanted::{Join, JoinPairs, JoinSide};
use crate::batch::{BATCH_BYTES_MAX, BatchBuilder};
use crate::query::execute::lookup;
use crate::query::explain::{CONDITIONS, ConditionPlan, INDEX_SEARCH, PLANNING};
use crate::query::filter::intersections;
use crate::query::plan::choose_probed;
use crate::query::{Explanation, Filters, Query};
use crate::record::RecordView;
use crate::snapshot::Snapshot;
use crate::{Error, Result};

/// The pairs of a join, batch by batch.
pub struct JoinRows {
    outer: Outer,
    /// The current outer rows.
    batch: Option<OuterBatch>,
    /// Their keys, in a self-join that excludes some pairs.
    outer_keys: Vec<Vec<u8>>,
    /// The search for the last outer geometry of the candidates.
    probe: Option<Probe>,
    candidates: Candidates,
    inner: Inner,
    schema: SchemaRef,
    left: u64,
    /// Whether pairs are only counted.
    counting: bool,
    failed: bool,
    probes: u64,
    probes_of_records: u64,
    explanation: Explanation,
    outer_snapshot: Snapshot,
    join: Join,
}

/// Why [`JoinRows::gather`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gathered {
    /// There are candidates to process.
    Candidates,
    /// The outer side has ended, or the limit is reached.
    End,
}

/// The inner side.
struct Inner {
    predicate: Predicate,
    filters: Filters,
    probed: Probed,
    /// Whether it has points only, which the index stores exactly.
    points: bool,
    /// Whether records are always needed. Otherwise the index suffices, except for some points.
    needs_records: bool,
    coordinates: WantedCoordinates,
    pairs: JoinPairs,
    columns: Option<Vec<String>>,
    /// Dropped last, after the components.
    snapshot: Snapshot,
}

impl JoinRows {
    pub(super) fn new(outer: &Snapshot, inner: &Snapshot, join: &Join) -> Result<Self> {
        let outer_rows = |columns| Outer::new(outer, &join.outer, columns);
        Self::start(outer, inner, join, false, outer_rows)
    }

    pub(super) fn of_geometries(outer: &BinaryArray, inner: &Snapshot, join: &Join) -> Result<Self> {
        if join.pairs != JoinPairs::All || !join.outer.is_unconditional() {
            return Err(Error::usage("outer geometries that are no records have no conditions, columns or keys"));
        }
        Self::start(inner, inner, join, false, |_| Outer::of_geometries(outer, inner.schema()))
    }

    pub(super) fn counting(outer: &Snapshot, inner: &Snapshot, join: &Join) -> Result<Self> {
        let outer_rows = |columns| Outer::new(outer, &join.outer, columns);
        Self::start(outer, inner, join, true, outer_rows)
    }

    fn start(
        outer: &Snapshot,
        inner: &Snapshot,
        join: &Join,
        counting: bool,
        outer_rows: impl FnOnce(Option<Vec<String>>) -> Result<Outer>,
    ) -> Result<Self> {
        let started = outer.core.environment().storage.monotonic_ns();
        let predicate = check(outer, inner, join)?;
        let columns_of = |query: &Query| if counting { Some(Vec::new()) } else { query.columns.clone() };
        let (outer_columns, inner_columns) = (columns_of(&join.outer), columns_of(&join.inner));
        let blame = |error: Error| JoinSide::Inner.blame(inner, error);
        let filters = Filters::new(&join.inner, &inner.schema()).map_err(blame)?;
        let builder = BatchBuilder::new(&inner.history, inner_columns.as_deref(), false);
        let builder = builder.map_err(|error| blame(error.into()))?;
        let pages_before = inner.pages_read();
        let (slot, considered) = choose_probed(inner, join.inner.index.as_deref()).map_err(blame)?;
        let probed = Probed::new(inner, slot)?;
        let points = inner.schema().holds_points();
        let needs_records = !points || filters.needs_record() || builder.reads_attributes();
        let mut explanation = Explanation {
            plan: match slot {
                Some(_) if !needs_records => "spatial index only",
                Some(_) => "spatial index",
                None => "primary scan",
            },
            condition: join.inner.condition.as_ref().map(ConditionPlan::on_records),
            considered,
            pages_read: inner.pages_read() - pages_before,
            ..Explanation::default()
        };
        let outer_rows = outer_rows(outer_columns)?;
        let outer_fields: Vec<Field> =
            outer_rows.wanted.iter().map(|column| outer_rows.arrow.field(*column).clone()).collect();
        let schema = schema_of(join, &outer_fields.into(), builder.schema().fields())?;
        explanation.add_time(PLANNING, outer.core.environment().storage.monotonic_ns() - started);
        let inner = Inner {
            predicate,
            filters,
            probed,
            points,
            needs_records,
            coordinates: WantedCoordinates::among(inner_columns.as_deref(), &inner.schema()),
            pairs: join.pairs,
            columns: inner_columns,
            snapshot: inner.clone(),
        };
        Ok(Self {
            outer: outer_rows,
            batch: None,
            outer_keys: Vec::new(),
            probe: None,
            candidates: Candidates::default(),
            inner,
            schema,
            left: join.limit.unwrap_or(u64::MAX),
            counting,
            failed: false,
            probes: 0,
            probes_of_records: 0,
            explanation,
            outer_snapshot: outer.clone(),
            join: join.clone(),
        })
    }

    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// How the answer was found, up to the pairs returned so far.
    pub fn explanation(&self) -> JoinExplanation {
        let mut inner = self.explanation.clone();
        if let Some(Probe::Index(scan)) = &self.probe {
            scan.explain(&mut inner);
        }
        JoinExplanation {
            on: self.join.on.to_string(),
            wanted: match self.join.pairs {
                JoinPairs::All => "all",
                JoinPairs::Distinct => "distinct",
                JoinPairs::Ordered => "ordered",
            },
            probes: self.probes,
            probes_of_records: self.probes_of_records,
            pairs: inner.matches,
            outer: self.outer.explanation(),
            inner,
        }
    }

    /// The next batch; `None` at the end.
    ///
    /// # Errors
    /// Damage; storage. The answer ends there.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        if self.failed || self.left == 0 {
            return Ok(None);
        }
        let result = self.fill_batch();
        self.failed = result.is_err();
        result
    }

    /// Number of the remaining pairs.
    pub(super) fn count_all(&mut self) -> Result<u64> {
        while self.left > 0 && self.gather(None)? == Gathered::Candidates {
            self.work_off(None)?;
        }
        Ok(self.explanation.matches)
    }

    fn fill_batch(&mut self) -> Result<Option<RecordBatch>> {
        let (schema, history) = (self.schema.clone(), self.inner.snapshot.history.clone());
        let (wanted, columns) = (self.outer.wanted.clone(), self.inner.columns.clone());
        let bytes_max = BATCH_BYTES_MAX.min(self.inner.snapshot.work_bytes() / 4);
        let has_distance = matches!(self.join.on, super::JoinOn::WithinDistance(_));
        let inner = BatchBuilder::new(&history, columns.as_deref(), has_distance)?;
        let mut builder = PairBuilder::new(&schema, &wanted, inner, bytes_max);
        while self.left > 0 && !builder.is_full() {
            if self.candidates.is_taken() && self.gather(Some(&mut builder))? == Gathered::End {
                break;
            }
            self.work_off(Some(&mut builder))?;
        }
        if builder.rows() == 0 {
            return Ok(None);
        }
        builder.finish(self.batch.as_ref()).map(Some)
    }

    fn now_ns(&self) -> u64 {
        self.outer_snapshot.core.environment().storage.monotonic_ns()
    }

    fn pages_read(&self) -> u64 {
        self.inner.snapshot.pages_read()
    }

    /// Gathers the next candidates, all from one outer batch. Before the outer batch of the
    /// builder's pairs is dropped, the builder copies its rows. Outer geometries that fill the
    /// budget without a candidate are dropped, and the search continues.
    fn gather(&mut self, mut builder: Option<&mut PairBuilder<'_>>) -> Result<Gathered> {
        let (mut started, mut pages) = (self.now_ns(), self.pages_read());
        let bytes_max = self.inner.snapshot.work_bytes() / 4;
        self.candidates.clear(self.probe.is_some());
        while self.left > 0 {
            if self.candidates.is_full(bytes_max) {
                if self.candidates.len() > 0 {
                    break;
                }
                self.candidates.clear(self.probe.is_some());
            }
            if self.probe.is_some() {
                self.advance_probe()?;
                continue;
            }
            if self.begin_probe()? {
                continue;
            }
            if self.candidates.len() > 0 {
                break;
            }
            let (now, read) = (self.now_ns(), self.pages_read());
            self.explanation.add_time(INDEX_SEARCH, now - started);
            self.explanation.pages_read += read - pages;
            if !self.next_outer_batch(&mut builder)? {
                return Ok(Gathered::End);
            }
            (started, pages) = (self.now_ns(), self.pages_read());
        }
        if self.inner.needs_records {
            self.candidates.sort();
        }
        let (now, read) = (self.now_ns(), self.pages_read());
        self.explanation.add_time(INDEX_SEARCH, now - started);
        self.explanation.pages_read += read - pages;
        Ok(if self.candidates.len() > 0 { Gathered::Candidates } else { Gathered::End })
    }

    fn next_outer_batch(&mut self, builder: &mut Option<&mut PairBuilder<'_>>) -> Result<bool> {
        if let (Some(builder), Some(batch)) = (builder, &self.batch) {
            builder.leave(batch)?;
        }
        self.batch = None;
        self.candidates.clear(false);
        let next = self.outer.next_batch().map_err(|error| JoinSide::Outer.blame(&self.outer_snapshot, error))?;
        let Some(batch) = next else { return Ok(false) };
        self.outer_keys.clear();
        if self.inner.pairs != JoinPairs::All {
            let schema = self.outer_snapshot.schema();
            let keys = batch.keys(&schema)?;
            for row in 0..batch.batch.num_rows() {
                let mut key = Vec::new();
                keys.encode_row(row, &mut key)?;
                self.outer_keys.push(key);
            }
        }
        self.batch = Some(batch);
        Ok(true)
    }

    /// Begins the search for the next outer geometry of the batch; false if there is none.
    fn begin_probe(&mut self) -> Result<bool> {
        let Some(batch) = &mut self.batch else { return Ok(false) };
        let system = self.inner.predicate.system;
        while batch.next < batch.batch.num_rows() {
            let row = batch.next;
            batch.next += 1;
            let Some(geometry) = batch.geometry(row) else { continue };
            let place = Place::new(system, geometry);
            let windows = self
                .inner
                .predicate
                .windows(&place)
                .map_err(|error| self.outer.name_row(error, &self.outer_snapshot, batch, row))?;
            let windows = match self.inner.filters.windows() {
                Some(wanted) if self.inner.points => intersections(&windows, wanted),
                _ => windows,
            };
            if windows.is_empty() {
                continue;
            }
            self.probes += 1;
            self.explanation.windows += windows.len();
            self.candidates.add_outer(OuterPlace { row: row as u32, place });
            let probe = self.inner.probed.probe(&self.inner.snapshot, windows)?;
            self.probes_of_records +=
                u64::from(self.inner.probed.index.is_some() && matches!(probe, Probe::Records { .. }));
            self.probe = Some(probe);
            while let Some(probe) = &mut self.probe
                && !probe.is_past_memory()?
            {
                self.advance_probe()?;
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// Adds the candidates of the next leaf or memory component.
    fn advance_probe(&mut self) -> Result<()> {
        let Some(probe) = &mut self.probe else { return Ok(()) };
        let Some(outer) = self.candidates.last_outer() else { return Ok(()) };
        let inner = &self.inner;
        let outer_key = self.outer_keys.get(outer.row as usize).map(Vec::as_slice);
        // Collected separately, because the outer geometry is borrowed from the candidates.
        let mut found = Found { keys: Vec::new(), all: Vec::new(), counted: 0 };
        let (mut candidates, counts) = (0, self.counting && !inner.needs_records);
        let place = &outer.place;
        let more = probe.advance(&inner.snapshot, &mut self.explanation, &mut |rect, key| {
            candidates += 1;
            if !inner.pairs.wants(outer_key, key) {
                return Ok(());
            }
            let met = if inner.points {
                let point = point_of(&rect);
                let met = match inner.filters.matches_point(point)? {
                    true => inner.predicate.meets_point(place, point)?,
                    false => None,
                };
                let Some(met) = met else { return Ok(()) };
                Some(met)
            } else if inner.filters.may_match_anywhere(&rect) {
                None
            } else {
                return Ok(());
            };
            if counts {
                found.counted += 1;
            } else {
                found.all.push((key.len(), rect, met));
                found.keys.extend_from_slice(key);
            }
            Ok(())
        })?;
        self.explanation.candidates += candidates;
        self.note_pairs(found.counted);
        let mut keys = found.keys.as_slice();
        for (length, rect, met) in found.all {
            let (key, rest) = keys.split_at(length);
            self.candidates.push(key, point_of(&rect), met);
            keys = rest;
        }
        if !more {
            self.probe = None;
        }
        Ok(())
    }

    /// Notes pairs that were only counted.
    fn note_pairs(&mut self, pairs: u64) {
        let pairs = pairs.min(self.left);
        self.explanation.matches += pairs;
        self.left -= pairs;
    }

    /// Turns candidates into pairs until the builder is full. Without a builder, counts them.
    fn work_off(&mut self, mut builder: Option<&mut PairBuilder<'_>>) -> Result<()> {
        let (started, pages) = (self.now_ns(), self.pages_read());
        let snapshot = self.inner.snapshot.clone();
        let versions = snapshot.versions();
        let mut reader = RecordReader::default();
        while self.left > 0
            && builder.as_ref().is_none_or(|builder| !builder.is_full())
            && let Some(candidate) = self.candidates.next()
        {
            let Some(outer) = self.candidates.outer(&candidate) else { break };
            let key = self.candidates.key(&candidate);
            let append = |builder: &mut BatchBuilder<'_>, record: Option<&[u8]>, met: Met| match record {
                Some(record) => builder.append(key, record, met.distance),
                None => builder.append_point(key, candidate.point, met.distance),
            };
            let named = |error: Error| snapshot.name_record(error, key);
            let (record, met) = if self.inner.needs_record_of(&candidate) {
                let read = reader.read(&self.inner, &versions, key, &mut self.explanation)?;
                let met = read.met(&self.inner, &candidate, &outer.place).map_err(named)?;
                (Some(read.stored()), met)
            } else {
                (None, candidate.met)
            };
            if let Some(met) = met {
                if let (Some(builder), Some(batch)) = (&mut builder, &self.batch) {
                    append(builder.inner(), record, met).map_err(|error| named(error.into()))?;
                    builder.add_outer(batch, outer.row);
                }
                self.explanation.matches += 1;
                self.left -= 1;
            }
            self.candidates.taken += 1;
        }
        let (now, read) = (self.now_ns(), self.pages_read());
        self.explanation.add_time(CONDITIONS, now - started);
        self.explanation.pages_read += read - pages;
        Ok(())
    }
}

/// Result of one step of a probe.
struct Found {
    keys: Vec<u8>,
    all: Vec<(usize, terrane_space::Rect, Option<Met>)>,
    counted: u64,
}

/// The current inner record, which several candidates in a row may share.
#[derive(Default)]
struct RecordReader<'v> {
    read: Option<ReadRecord<'v>>,
}

struct ReadRecord<'v> {
    key: Vec<u8>,
    stored: PrimaryValue<'v>,
    /// Its geometry, if it has one and the record meets the inner side's conditions.
    place: Option<Place>,
}

impl<'v> RecordReader<'v> {
    fn read(
        &mut self,
        inner: &Inner,
        versions: &'v [Arc<Version>],
        key: &[u8],
        explanation: &mut Explanation,
    ) -> Result<&ReadRecord<'v>> {
        let read = match self.read.take() {
            Some(read) if read.key == key => read,
            _ => {
                explanation.lookups += 1;
                let stored = lookup(&inner.snapshot, versions, key)?;
                let place = inner.place_of(key, &stored).map_err(|error| inner.snapshot.name_record(error, key))?;
                ReadRecord { key: key.to_vec(), stored, place }
            }
        };
        Ok(self.read.insert(read))
    }
}

impl ReadRecord<'_> {
    fn stored(&self) -> &[u8] {
        &self.stored
    }

    fn met(&self, inner: &Inner, candidate: &Candidate, outer: &Place) -> Result<Option<Met>> {
        match &self.place {
            None => Ok(None),
            Some(_) if candidate.met.is_some() => Ok(candidate.met),
            Some(place) => inner.predicate.meets(outer, place),
        }
    }
}

impl Inner {
    /// Whether the pair of a candidate needs its record, because the index lacks something.
    fn needs_record_of(&self, candidate: &Candidate) -> bool {
        self.needs_records || self.coordinates.are_in_record_alone(candidate.point)
    }

    /// The geometry of a stored record, if the record meets the conditions.
    fn place_of(&self, key: &[u8], stored: &[u8]) -> Result<Option<Place>> {
        let record = RecordView::parse(stored, &self.snapshot.history)?;
        if !self.filters.is_empty() && !self.filters.matches_record(key, &record)? {
            return Ok(None);
        }
        Ok(record.geometry().map(|geometry| Place::new(self.predicate.system, geometry)))
    }
}

impl JoinPairs {
    /// Whether a pair of these keys is wanted. The outer key is there unless all pairs are wanted.
    fn wants(self, outer: Option<&[u8]>, inner: &[u8]) -> bool {
        match (self, outer) {
            (Self::Distinct, Some(outer)) => outer != inner,
            (Self::Ordered, Some(outer)) => outer < inner,
            _ => true,
        }
    }
}

/// Refuses invalid joins.
fn check(outer: &Snapshot, inner: &Snapshot, join: &Join) -> Result<Predicate> {
    if !std::sync::Arc::ptr_eq(&outer.core, &inner.core) || outer.sequence() != inner.sequence() {
        return Err(Error::usage(
            "both sides of a join must be snapshots of one moment of one store; take both snapshots with snapshot_with",
        ));
    }
    for query in [&join.outer, &join.inner] {
        query.isolation.check_one_state("a join")?;
    }
    let (outer_system, system) = (outer.schema().system, inner.schema().system);
    if outer_system != system {
        return Err(Error::usage(format!(
            "dataset {:?} is {} and dataset {:?} is {}, so their geometries cannot be compared; import one of them again",
            outer.dataset_name(),
            system_name(outer_system),
            inner.dataset_name(),
            system_name(system)
        )));
    }
    if join.pairs != JoinPairs::All && !outer.is_of_dataset_of(inner) {
        return Err(Error::usage(format!(
            "{:?} and {:?} are two datasets; pairs of a record with itself, and mirrored ones, are left out of \
             self-joins alone",
            outer.dataset_name(),
            inner.dataset_name()
        )));
    }
    let refused = |what: &str| {
        let reason = format!("a join looks for partners of each outer record, so {what}");
        Err(JoinSide::Inner.blame(inner, Error::usage(reason)))
    };
    if join.inner.nearest.is_some() {
        return refused("it cannot ask for the nearest ones");
    }
    if join.inner.limit.is_some() {
        return refused("it cannot have a limit; give the join one");
    }
    let predicate = Predicate { on: join.on, system };
    predicate.check()?;
    Ok(predicate)
}

fn system_name(system: terrane_space::CoordinateSystem) -> &'static str {
    match system {
        terrane_space::CoordinateSystem::LonLat => "lonlat",
        terrane_space::CoordinateSystem::Planar => "planar",
    }
}

impl Iterator for JoinRows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().transpose()
    }
}

impl std::fmt::Debug for JoinRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JoinRows").field("explanation", &self.explanation()).finish_non_exhaustive()
    }
}
