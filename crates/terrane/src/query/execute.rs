//! Answering queries: candidates from an index or all records, records from the primary index,
//! exact conditions, batches.
//!
//! A long reader loads its snapshot's version again for every batch, and after a fixed number of
//! scanned records. It searches the memory components of all windows before its first batch. So it
//! never holds sealed memory for long.

use std::ops::ControlFlow;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use terrane_lsm::index::Cancellation;
use terrane_lsm::parallel::threads_of;
use terrane_lsm::partition::Version;
use terrane_lsm::search;
use terrane_space::Point;

use super::attributes::AttributeScan;
use super::deferred::Deferred;
use super::entries::Verdict;
use super::explain::{
    CONDITIONS, ConditionPlan, Explanation, INDEX_SEARCH, NEAREST_SEARCH, PRIMARY_LOOKUPS, PRIMARY_SCAN,
    SPATIAL_INDEX_ONLY,
};
use super::filter::Filters;
use super::index::{IndexScan, antimatter_fits};
use super::interrupt::is_interrupted;
use super::keys::Keys;
use super::plan::{Path, choose_path, expected_entries};
use super::read_committed::ReadCommitted;
use super::spans::{KeySpan, SpanScan};
use super::{Isolation, Nearest, Query, check_origin, nearest};
use crate::batch::{BATCH_BYTES_MAX, BatchBuilder};
use crate::record::RecordView;
use crate::secondary::PRIMARY;
use crate::snapshot::Snapshot;
use crate::{Error, Result};

/// Approximate number of entries from which several threads answer a query. Starting and ending a
/// thread takes as long as some hundreds of look-ups.
const PARALLEL_ENTRIES_MIN: u64 = 8 << 10;
/// Maximal number of candidates that are sorted by key and looked up together.
const CHUNK_KEYS: usize = 16 << 10;
/// Number of records that are looked up, and timed, together before their conditions are evaluated.
const LOOKUPS: usize = 64;
/// Bytes of such records after which no more are added.
const LOOKUP_BYTES: usize = 128 << 10;
/// Entries of the primary index after which a scan asks whether it is wanted.
const WANTED_STEP: u64 = 1024;

/// One thread's answer in progress, for the partitions visible to its snapshot.
pub(super) struct Execution {
    pub filters: Filters,
    columns: Option<Vec<String>>,
    schema: SchemaRef,
    pub source: Source,
    /// Candidate keys whose records are to be read, in the order of the look-ups.
    pub chunk: Keys,
    pub taken: usize,
    /// Candidates that entries do not decide.
    pub deferred: Deferred,
    /// Whether rows need more than keys.
    pub reads_records: bool,
    /// Whether the entries of the index decide which records match.
    pub entries_decide: bool,
    /// The state of a query at read committed.
    pub committed: Option<ReadCommitted>,
    pub left: u64,
    failed: bool,
    /// Set by other threads to end this one, if there are any.
    cancellation: Arc<Cancellation>,
    pub explanation: Explanation,
    /// The state being read. At read committed, it changes from step to step. Dropped last, after
    /// the components.
    pub snapshot: Snapshot,
}

/// The source of candidates.
pub(super) enum Source {
    Index(IndexScan),
    Attributes(AttributeScan),
    Primary(SpanScan),
    Nothing,
    /// All candidates are in the chunk, with these distances.
    Nearest(Vec<f64>),
}

impl Execution {
    /// Prepares the conditions. The search starts with [`Self::begin`] or [`Self::begin_nearest`].
    pub fn new(snapshot: Snapshot, query: &Query, cancellation: Arc<Cancellation>) -> Result<Self> {
        let filters = Filters::new(query, &snapshot.schema())?;
        let builder = BatchBuilder::new(&snapshot.history, query.columns.as_deref(), query.nearest.is_some())?;
        let (schema, reads_records) = (builder.schema().clone(), builder.reads_records());
        let is_committed = query.isolation == Isolation::ReadCommitted;
        let committed = is_committed.then(|| ReadCommitted::new(snapshot.history.newest().version));
        Ok(Self {
            filters,
            columns: query.columns.clone(),
            schema,
            source: Source::Nothing,
            chunk: Keys::default(),
            taken: 0,
            deferred: Deferred::default(),
            reads_records,
            entries_decide: false,
            committed,
            left: query.limit.unwrap_or(u64::MAX),
            failed: false,
            cancellation,
            explanation: Explanation {
                isolation: query.isolation,
                condition: query.condition.as_ref().map(ConditionPlan::on_records),
                ..Explanation::default()
            },
            snapshot,
        })
    }

    /// Chooses the requested path, or the one that seems cheapest.
    pub fn choose(&mut self, query: &Query) -> Result<Path> {
        let index = query.index.as_deref();
        if let Some(name) = index {
            self.snapshot.find_index(name)?;
        }
        if self.filters.implied().is_some_and(|implied| implied.is_impossible()) {
            return Ok(Path::Nothing);
        }
        let pages_before = self.pages_read();
        let (mut path, considered) = choose_path(&self.snapshot, &self.filters, index, self.reads_records)?;
        self.add_pages_read(pages_before);
        if let (Path::Attributes { indexes, filter }, true) = (&mut path, self.committed.is_some())
            && indexes.len() > 1
        {
            // The indexes wait for each other longer than a step.
            filter.leave_to_records();
        }
        self.explanation.considered = considered;
        Ok(path)
    }

    /// Snapshots of disjoint sets of partitions, for several threads on a path. `None` if threads
    /// are not worthwhile, or do not fit in memory.
    pub fn divide(&mut self, path: &Path) -> Result<Option<Vec<Snapshot>>> {
        let partitions = self.snapshot.scope().len();
        let threads = threads_of(self.snapshot.core.environment().context.threads_max, partitions);
        if threads == 1 || self.left < PARALLEL_ENTRIES_MIN {
            return Ok(None);
        }
        let pages_before = self.pages_read();
        let expected = expected_entries(&self.snapshot, &self.filters, path)?;
        self.add_pages_read(pages_before);
        if expected < PARALLEL_ENTRIES_MIN {
            return Ok(None);
        }
        let scope = |thread: usize| thread * partitions / threads..(thread + 1) * partitions / threads;
        let divided: Vec<Snapshot> =
            (0..threads).map(|thread| self.snapshot.of_partitions(scope(thread)).with_sharers(threads)).collect();
        if let (Path::Windows(slot), Some(windows)) = (path, self.filters.windows()) {
            for part in &divided {
                if !antimatter_fits(part, &part.versions(), *slot, windows)? {
                    return Ok(None);
                }
            }
        }
        Ok(Some(divided))
    }

    /// Starts on a path.
    pub fn begin(&mut self, path: Path) -> Result<()> {
        let (started, pages_before) = (self.now_ns(), self.pages_read());
        if let Some(committed) = &mut self.committed {
            committed.slots = path.slots();
        }
        self.begin_step()?;
        let (snapshot, in_steps) = (&self.snapshot, self.committed.is_some());
        let records = |spans| SpanScan::new(snapshot, PRIMARY as usize, spans).in_steps(in_steps);
        self.source = match path {
            Path::Nothing => Source::Nothing,
            Path::Windows(slot) => {
                self.entries_decide = snapshot.history.newest().holds_points() && !self.filters.needs_record();
                let windows = self.filters.windows().unwrap_or_default();
                let versions = snapshot.versions();
                // At read committed, the search of each partition is a step.
                let searched = if in_steps { &versions[..1] } else { &versions[..] };
                // The scans report the components that they searched.
                Source::Index(IndexScan::new(snapshot, searched, slot, windows))
            }
            Path::Records => Source::Primary(records(vec![KeySpan::ALL])),
            Path::Keys(ref spans) => Source::Primary(records(spans.clone())),
            Path::Attributes { ref indexes, ref filter } => {
                self.entries_decide = filter.decides_all();
                Source::Attributes(AttributeScan::new(snapshot, filter.clone(), indexes.clone()))
            }
        };
        self.explain_path(&path);
        if let Path::Records | Path::Keys(_) | Path::Attributes { .. } = path {
            let versions = self.snapshot.versions();
            self.explanation.components_searched =
                path.slots().into_iter().map(|slot| components_of(&versions, slot)).sum();
        }
        if let Source::Index(_) = self.source {
            self.pass_memory()?;
            self.add_time(INDEX_SEARCH, started);
        }
        self.add_pages_read(pages_before);
        Ok(())
    }

    /// Adds the path to the explanation.
    pub fn explain_path(&mut self, path: &Path) {
        self.explanation.plan = path.plan();
        if let (Path::Attributes { filter, .. }, Some(condition)) = (path, &mut self.explanation.condition) {
            condition.evaluated_on = filter.evaluated_on();
        }
        if let Path::Windows(_) = path {
            self.explanation.windows = self.filters.windows().map_or(0, <[_]>::len);
        }
    }

    /// Finds the nearest records.
    pub fn begin_nearest(&mut self, query: &Query, place: &Nearest) -> Result<()> {
        let (started, pages_before) = (self.now_ns(), self.pages_read());
        check_origin(&self.snapshot.schema(), place.x, place.y)?;
        let (index, explanation) = (query.index.as_deref(), &mut self.explanation);
        let found = nearest::search(&self.snapshot, &self.filters, place, query.limit, index, explanation)?;
        let (keys, distances) = found.into_parts();
        (self.chunk, self.source) = (keys, Source::Nearest(distances));
        self.add_time(NEAREST_SEARCH, started);
        self.add_pages_read(pages_before);
        Ok(())
    }

    fn pages_read(&self) -> u64 {
        self.snapshot.pages_read()
    }

    pub fn now_ns(&self) -> u64 {
        self.snapshot.core.environment().storage.monotonic_ns()
    }

    /// Adds the time since `started` to a stage. Returns the current time.
    pub fn add_time(&mut self, stage: &'static str, started: u64) -> u64 {
        let now = self.now_ns();
        self.explanation.add_time(stage, now - started);
        now
    }

    fn add_pages_read(&mut self, before: u64) {
        self.explanation.pages_read += self.pages_read() - before;
    }

    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// How the answer was found, up to the rows returned so far.
    pub fn explanation(&self) -> Explanation {
        let mut explanation = self.explanation.clone();
        if let Source::Index(scan) = &self.source {
            scan.explain(&mut explanation);
        }
        explanation
    }

    /// Collects the candidates of all memory components, so that their memory can be freed however
    /// slowly the rows are read.
    fn pass_memory(&mut self) -> Result<()> {
        while let Source::Index(scan) = &mut self.source {
            if scan.is_past_memory()? || !self.advance_index()? {
                break;
            }
        }
        self.chunk.sort();
        Ok(())
    }

    /// Adds the candidates of the next leaf or memory component to the chunk; false at the end.
    pub fn advance_index(&mut self) -> Result<bool> {
        let before = self.chunk.len();
        if let Source::Attributes(_) = self.source {
            self.begin_step()?;
        }
        if let Source::Attributes(scan) = &mut self.source {
            let (chunk, deferred, mut candidates) = (&mut self.chunk, &mut self.deferred, 0);
            let more = scan.advance(&self.snapshot, &mut self.explanation, &mut |key, verdict| {
                candidates += 1;
                match verdict {
                    Verdict::Open if self.entries_decide => deferred.push(key),
                    _ => chunk.push(key),
                }
            })?;
            self.explanation.candidates += candidates;
            self.defer_held(before);
            return Ok(more);
        }
        let Source::Index(scan) = &mut self.source else { return Ok(false) };
        let points = self.snapshot.history.newest().holds_points();
        let (filters, chunk) = (&self.filters, &mut self.chunk);
        let mut candidates = 0;
        let more = scan.advance(&mut self.explanation, &mut |hit| {
            let rect = hit.rect();
            let matches = if points {
                candidates += 1;
                filters.matches_point(Point { x: rect.x0, y: rect.y0 })?
            } else {
                let may_match = filters.may_match(&rect);
                candidates += u64::from(may_match);
                may_match
            };
            if matches {
                chunk.push(&hit.key());
            }
            Ok(())
        })?;
        self.explanation.candidates += candidates;
        self.defer_held(before);
        Ok(more || self.begin_next_partition()?)
    }

    /// Fills the chunk from the index and sorts it; false if there are no more candidates.
    fn next_chunk(&mut self) -> Result<bool> {
        if self.take_deferred() {
            return Ok(true);
        }
        let started = self.now_ns();
        self.chunk.clear();
        self.taken = 0;
        let budget = self.snapshot.work_bytes() / 4;
        // Measured by contents, not by allocated memory: an empty chunk means the end.
        while self.has_room(budget) {
            self.check_wanted()?;
            if !self.advance_index()? {
                break;
            }
        }
        // At read committed, this is the memory of the next partition.
        self.pass_memory()?;
        if matches!(self.source, Source::Index(_) | Source::Attributes(_)) {
            self.add_time(INDEX_SEARCH, started);
        }
        Ok(self.chunk.len() > 0 || self.take_deferred())
    }

    /// Whether there is room for more candidates, counting the chunk and the deferred ones.
    fn has_room(&self, budget: usize) -> bool {
        let deferred = self.deferred.keys();
        self.chunk.len() + deferred.len() < CHUNK_KEYS && self.chunk.bytes_held() + deferred.bytes_held() < budget
    }

    /// Returns an error if another thread has ended this one, or the caller wants it to end.
    pub fn check_wanted(&self) -> Result<()> {
        check_wanted(&self.cancellation)
    }

    /// The next batch; `None` at the end.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        if self.failed || self.left == 0 {
            return Ok(None);
        }
        let pages_before = self.pages_read();
        let history = self.snapshot.history.clone();
        let distances = matches!(self.source, Source::Nearest(_));
        let bytes_max = BATCH_BYTES_MAX.min(self.snapshot.work_bytes() / 4);
        let builder = BatchBuilder::new(&history, self.columns.as_deref(), distances).map_err(Error::from);
        let result = builder.and_then(|builder| {
            let mut builder = builder.with_bytes_max(bytes_max);
            self.fill(&mut builder)?;
            let filled = self.now_ns();
            let batch = if builder.rows() > 0 { Some(builder.finish()?) } else { None };
            self.add_time(CONDITIONS, filled);
            Ok(batch)
        });
        self.failed = result.is_err();
        self.add_pages_read(pages_before);
        result
    }

    fn is_full(&self, builder: &BatchBuilder<'_>) -> bool {
        self.left == 0 || builder.is_full()
    }

    fn fill(&mut self, builder: &mut BatchBuilder<'_>) -> Result<()> {
        while !self.is_full(builder) {
            self.check_wanted()?;
            match &mut self.source {
                Source::Primary(scan) if scan.is_ended() => break,
                Source::Primary(_) => self.fill_from_primary(builder)?,
                Source::Nothing => break,
                Source::Index(_) | Source::Attributes(_) | Source::Nearest(_) => {
                    if self.taken == self.chunk.len() && !self.next_chunk()? {
                        break;
                    }
                    if self.candidates_match() && !builder.reads_records() {
                        self.fill_from_keys(builder)?;
                    } else {
                        self.fill_from_records(builder)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Appends rows for which keys suffice.
    fn fill_from_keys(&mut self, builder: &mut BatchBuilder<'_>) -> Result<()> {
        let (started, matches) = (self.now_ns(), self.explanation.matches);
        while !self.is_full(builder)
            && let Some(key) = self.chunk.get(self.taken)
        {
            let appended = builder.append(key, &[], self.distance()).map_err(Error::from);
            appended.map_err(|error| self.snapshot.name_record(error, key))?;
            self.note_row();
        }
        let plan = match &self.source {
            Source::Index(_) => Some(SPATIAL_INDEX_ONLY),
            Source::Attributes(scan) => Some(scan.plan_of_entries_alone()),
            Source::Primary(_) | Source::Nearest(_) | Source::Nothing => None,
        };
        if let Some(plan) = plan {
            self.explanation.plan = plan;
            self.explanation.answered_from_index += self.explanation.matches - matches;
        }
        self.add_time(CONDITIONS, started);
        Ok(())
    }

    /// Looks records up and appends those that match. At read committed, each group is a step.
    fn fill_from_records(&mut self, builder: &mut BatchBuilder<'_>) -> Result<()> {
        if self.committed.is_none() {
            return self.fill_from_groups(builder, usize::MAX);
        }
        while !self.is_full(builder) && self.taken < self.chunk.len() {
            self.check_wanted()?;
            self.begin_fetch(self.group_rows(builder))?;
            self.fill_from_groups(builder, 1)?;
        }
        Ok(())
    }

    /// Number of records to look up together. Never more than fit in the batch, or they would be
    /// looked up twice.
    fn group_rows(&self, builder: &BatchBuilder<'_>) -> usize {
        let rows = LOOKUPS.min(builder.rows_left().max(1));
        usize::try_from(self.left).map_or(rows, |left| left.min(rows))
    }

    /// Looks up at most this many groups of records, and appends those that match.
    fn fill_from_groups(&mut self, builder: &mut BatchBuilder<'_>, mut groups: usize) -> Result<()> {
        let sure = self.candidates_match();
        // Read after its entry, a record may be deleted.
        let may_be_gone = self.committed.is_some();
        let snapshot = self.snapshot.clone();
        let versions = snapshot.versions();
        let mut group = Vec::with_capacity(LOOKUPS);
        while groups > 0 && !self.is_full(builder) && self.taken < self.chunk.len() {
            groups -= 1;
            let started = self.now_ns();
            let rows = self.group_rows(builder);
            let room = builder.bytes_left().clamp(1, LOOKUP_BYTES);
            let mut bytes = 0;
            while group.len() < rows
                && bytes < room
                && let Some(key) = self.chunk.get(self.taken + group.len())
            {
                let record = match may_be_gone {
                    true => find(&snapshot, &versions, key)?,
                    false => Some(lookup(&snapshot, &versions, key)?),
                };
                bytes += key.len() + record.as_ref().map_or(0, |record| record.len());
                group.push(record);
            }
            self.explanation.lookups += group.len() as u64;
            let looked_up = self.add_time(PRIMARY_LOOKUPS, started);
            for record in group.drain(..) {
                if self.is_full(builder) {
                    break;
                }
                let Some(key) = self.chunk.get(self.taken) else { break };
                let Some(record) = record else {
                    self.taken += 1;
                    continue;
                };
                let mut append = || -> Result<bool> {
                    let matches =
                        sure || self.filters.matches_record(key, &RecordView::parse(&record, &snapshot.history)?)?;
                    if matches {
                        builder.append(key, &record, self.distance())?;
                    }
                    Ok(matches)
                };
                if append().map_err(|error| snapshot.name_record(error, key))? {
                    self.note_row();
                } else {
                    self.taken += 1;
                }
            }
            self.add_time(CONDITIONS, looked_up);
        }
        Ok(())
    }

    /// The distance of the next candidate.
    fn distance(&self) -> Option<f64> {
        match &self.source {
            Source::Nearest(distances) => distances.get(self.taken).copied(),
            _ => None,
        }
    }

    /// Notes that the next candidate has become a row.
    fn note_row(&mut self) {
        self.taken += 1;
        self.explanation.matches += 1;
        self.left -= 1;
    }

    fn fill_from_primary(&mut self, builder: &mut BatchBuilder<'_>) -> Result<()> {
        let started = self.now_ns();
        self.begin_step()?;
        let snapshot = self.snapshot.clone();
        let Source::Primary(scan) = &mut self.source else { return Ok(()) };
        let (filters, explanation, left) = (&self.filters, &mut self.explanation, &mut self.left);
        let cancellation = &self.cancellation;
        let mut take = |key: &[u8], stored: &[u8]| -> Result<ControlFlow<()>> {
            explanation.entries += 1;
            if explanation.entries % WANTED_STEP == 0 {
                check_wanted(cancellation)?;
            }
            explanation.candidates += 1;
            if !filters.is_empty() && !filters.matches_record(key, &RecordView::parse(stored, &snapshot.history)?)? {
                return Ok(ControlFlow::Continue(()));
            }
            builder.append(key, stored, None)?;
            explanation.matches += 1;
            *left -= 1;
            let full = *left == 0 || builder.is_full();
            Ok(if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        };
        scan.advance(&snapshot, &mut |key, stored| {
            take(key, stored).map_err(|error| snapshot.name_record(error, key))
        })?;
        self.add_time(PRIMARY_SCAN, started);
        Ok(())
    }
}

fn check_wanted(cancellation: &Cancellation) -> Result<()> {
    if cancellation.is_cancelled() || is_interrupted() { Err(Error::Cancelled) } else { Ok(()) }
}

/// Number of components of the index in a slot, in memory and on disk.
pub(super) fn components_of(versions: &[Arc<Version>], slot: usize) -> u64 {
    versions.iter().map(|version| (version.components(slot).len() + version.generations.len()) as u64).sum()
}

/// The stored record of a key, if there is one.
fn find<'v>(snapshot: &Snapshot, versions: &'v [Arc<Version>], key: &[u8]) -> Result<Option<search::PrimaryValue<'v>>> {
    match snapshot.version_of(versions, key) {
        Some(version) => Ok(search::get(version, PRIMARY as usize, key, snapshot.sequence())?),
        None => Ok(None),
    }
}

/// The stored record of an index entry.
pub(crate) fn lookup<'v>(
    snapshot: &Snapshot,
    versions: &'v [Arc<Version>],
    key: &[u8],
) -> Result<search::PrimaryValue<'v>> {
    // Index and primary are read at the same sequence number, so a missing record is damage.
    find(snapshot, versions, key)?.ok_or_else(|| {
        let error = Error::damaged_record("an index has an entry for it, but the primary index has no record");
        snapshot.name_record(error, key)
    })
}
