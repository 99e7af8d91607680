//! Answering queries: candidates from the spatial index or all records, records from the
//! primary index, exact conditions, batches.
//!
//! A long reader reads its snapshot's version anew from batch to batch, and goes through
//! memory components before its first batch, so it never keeps sealed memory alive.

use std::ops::ControlFlow;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use terrane_lsm::search::{self, OwnedSource, WindowScan, owned_spatial_sources};
use terrane_space::{Point, Rect};

use super::explain::Explanation;
use super::filter::Filters;
use super::{Query, nearest};
use crate::batch::BatchBuilder;
use crate::engine::{PRIMARY, SPATIAL};
use crate::record::RecordView;
use crate::schema::GeometryColumn;
use crate::snapshot::Snapshot;
use crate::{Error, Result};

/// Candidates that are sorted by key and looked up together, at most.
const CHUNK_KEYS: usize = 16 << 10;
/// About the bytes that a key takes among those that anti-matter hides.
const HIDDEN_KEY_BYTES: u64 = 96;

/// The rows of an answer, batch by batch.
pub struct Rows {
    snapshot: Snapshot,
    filters: Filters,
    columns: Option<Vec<String>>,
    schema: SchemaRef,
    source: Source,
    /// Candidate keys that wait for their records, sorted.
    chunk: Keys,
    taken: usize,
    left: u64,
    failed: bool,
    explanation: Explanation,
    pages_before: u64,
}

/// Where candidates come from.
enum Source {
    Index { windows: Vec<Rect>, number: usize, scan: WindowScan<OwnedSource> },
    Primary { after: Option<Vec<u8>>, ended: bool },
    Nearest(nearest::Found),
}

/// Keys one after the other.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    bytes: Vec<u8>,
    spans: Vec<(u32, u32)>,
}

impl Keys {
    pub fn push(&mut self, key: &[u8]) {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(key);
        self.spans.push((start, self.bytes.len() as u32));
    }

    pub fn get(&self, index: usize) -> Option<&[u8]> {
        self.spans.get(index).map(|(start, end)| &self.bytes[*start as usize..*end as usize])
    }

    fn len(&self) -> usize {
        self.spans.len()
    }

    pub fn memory_used(&self) -> usize {
        self.bytes.capacity() + 8 * self.spans.capacity()
    }

    fn bytes_held(&self) -> usize {
        self.bytes.len() + 8 * self.spans.len()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.spans.sort_unstable_by(|a, b| bytes[a.0 as usize..a.1 as usize].cmp(&bytes[b.0 as usize..b.1 as usize]));
    }
}

impl Rows {
    pub(crate) fn new(snapshot: Snapshot, query: &Query) -> Result<Self> {
        Self::start(snapshot, query)
    }

    /// An answer of which only the number of rows is wanted.
    pub(crate) fn counting(snapshot: Snapshot, query: &Query) -> Result<Self> {
        let key = snapshot.schema().key.name.clone();
        Self::start(snapshot, &query.clone().columns([key]))
    }

    fn start(snapshot: Snapshot, query: &Query) -> Result<Self> {
        let filters = Filters::new(query, snapshot.schema().system)?;
        let schema =
            BatchBuilder::new(&snapshot.history, query.columns.as_deref(), query.nearest.is_some())?.schema().clone();
        let mut explanation = Explanation::default();
        let pages_before = snapshot.engine.cache.counters().pages_read;
        let started = snapshot.engine.storage.monotonic_ns();
        let source = match &query.nearest {
            Some(place) => Source::Nearest(nearest::search(&snapshot, &filters, place, query.limit, &mut explanation)?),
            None => Self::choose(&snapshot, &filters, &mut explanation)?,
        };
        let mut rows = Self {
            filters,
            columns: query.columns.clone(),
            schema,
            source,
            chunk: Keys::default(),
            taken: 0,
            left: query.limit.unwrap_or(u64::MAX),
            failed: false,
            explanation,
            pages_before,
            snapshot,
        };
        rows.pass_memory()?;
        let elapsed = rows.snapshot.engine.storage.monotonic_ns() - started;
        rows.explanation.add_time("start", elapsed);
        Ok(rows)
    }

    /// The spatial index where there is a spatial condition, unless its anti-matter would not
    /// fit in memory; else all records.
    fn choose(snapshot: &Snapshot, filters: &Filters, explanation: &mut Explanation) -> Result<Source> {
        let version = snapshot.pinned.version();
        let antimatter: u64 =
            version.components[SPATIAL as usize].iter().map(|part| part.file().meta().statistics.antimatter).sum();
        let fits = antimatter.saturating_mul(HIDDEN_KEY_BYTES) < snapshot.engine.shares.work as u64;
        match filters.windows().filter(|_| fits) {
            Some(windows) => {
                explanation.plan = "spatial index";
                explanation.windows = windows.len();
                let first = windows.first().copied().unwrap_or(Rect::EMPTY);
                let scan =
                    WindowScan::new(owned_spatial_sources(&version, SPATIAL as usize), first, snapshot.sequence());
                Ok(Source::Index { windows: windows.to_vec(), number: 0, scan })
            }
            None => {
                explanation.plan = "primary scan";
                explanation.components_searched =
                    version.components[PRIMARY as usize].len() as u64 + version.generations.len() as u64;
                Ok(Source::Primary { after: None, ended: false })
            }
        }
    }

    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// How the answer was found, up to the rows taken so far.
    pub fn explanation(&self) -> Explanation {
        let mut explanation = self.explanation.clone();
        if let Source::Index { scan, .. } = &self.source {
            add_scan(&mut explanation, scan);
        }
        explanation.pages_read = self.snapshot.engine.cache.counters().pages_read - self.pages_before;
        explanation
    }

    /// Collects the candidates of all memory components of the first window, so that their
    /// memory can be freed however slowly the rows are taken.
    fn pass_memory(&mut self) -> Result<()> {
        while let Source::Index { scan, .. } = &self.source {
            if scan.is_past_memory()? || !self.advance_index()? {
                break;
            }
        }
        self.chunk.sort();
        Ok(())
    }

    /// Adds the candidates of the next leaf or memory component to the chunk; false at the end.
    fn advance_index(&mut self) -> Result<bool> {
        let Source::Index { windows, number, scan } = &mut self.source else { return Ok(false) };
        if *number >= windows.len() {
            return Ok(false);
        }
        let points = matches!(self.snapshot.history.newest().geometry, GeometryColumn::Point { .. });
        let (earlier, filters, chunk, explanation) =
            (&windows[..*number], &self.filters, &mut self.chunk, &mut self.explanation);
        let mut failed = None;
        let more = scan.advance(&mut |hit| {
            // What meets several windows is met in the first of them.
            if !earlier.is_empty() && earlier.iter().any(|window| window.intersects(&hit.rect())) {
                return ControlFlow::Continue(());
            }
            explanation.candidates += 1;
            if points {
                let rect = hit.rect();
                match filters.matches_point(Point { x: rect.x0, y: rect.y0 }) {
                    Ok(true) => {}
                    Ok(false) => return ControlFlow::Continue(()),
                    Err(error) => {
                        failed = Some(error);
                        return ControlFlow::Break(());
                    }
                }
            }
            chunk.push(&hit.key());
            ControlFlow::Continue(())
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        if more {
            return Ok(true);
        }
        add_scan(&mut self.explanation, scan);
        *number += 1;
        let Some(window) = windows.get(*number) else {
            *scan = WindowScan::new(Vec::new(), Rect::EMPTY, 0);
            return Ok(false);
        };
        let version = self.snapshot.pinned.version();
        *scan = WindowScan::new(owned_spatial_sources(&version, SPATIAL as usize), *window, self.snapshot.sequence());
        Ok(true)
    }

    /// Fills the chunk from the index and sorts it; false when there are no more candidates.
    fn next_chunk(&mut self) -> Result<bool> {
        self.chunk.clear();
        self.taken = 0;
        let budget = self.snapshot.engine.shares.work / 4;
        // By what is inside, not by what is allocated: an empty chunk means the end.
        while self.chunk.len() < CHUNK_KEYS && self.chunk.bytes_held() < budget {
            if !self.advance_index()? {
                break;
            }
        }
        self.chunk.sort();
        Ok(self.chunk.len() > 0)
    }

    /// The next batch; `None` at the end.
    ///
    /// # Errors
    /// Damage; storage. The answer ends there.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        if self.failed || self.left == 0 {
            return Ok(None);
        }
        let started = self.snapshot.engine.storage.monotonic_ns();
        let history = self.snapshot.history.clone();
        let distances = matches!(self.source, Source::Nearest(_));
        let result = BatchBuilder::new(&history, self.columns.as_deref(), distances).map_err(Error::from).and_then(
            |mut builder| {
                self.fill(&mut builder)?;
                Ok(if builder.rows() > 0 { Some(builder.finish()?) } else { None })
            },
        );
        self.failed = result.is_err();
        let elapsed = self.snapshot.engine.storage.monotonic_ns() - started;
        self.explanation.add_time("rows", elapsed);
        result
    }

    fn is_full(&self, builder: &BatchBuilder<'_>) -> bool {
        self.left == 0 || builder.is_full() || builder.variable_bytes() > self.snapshot.engine.shares.work / 4
    }

    fn fill(&mut self, builder: &mut BatchBuilder<'_>) -> Result<()> {
        while !self.is_full(builder) {
            match &mut self.source {
                Source::Primary { ended: true, .. } => break,
                Source::Primary { .. } => self.fill_from_primary(builder)?,
                Source::Nearest(found) => {
                    let Some((key, distance)) = found.take() else { break };
                    let key = key.to_vec();
                    self.explanation.matches += 1;
                    self.left -= 1;
                    if builder.reads_records() {
                        self.explanation.lookups += 1;
                        let version = self.snapshot.pinned.version();
                        let record = lookup(&version, &key, self.snapshot.sequence())?;
                        builder.append(&key, &record, Some(distance))?;
                    } else {
                        builder.append(&key, &[], Some(distance))?;
                    }
                }
                Source::Index { .. } => {
                    if self.taken == self.chunk.len() && !self.next_chunk()? {
                        break;
                    }
                    self.fill_from_chunk(builder)?;
                }
            }
        }
        Ok(())
    }

    /// Whether the spatial index alone tells that a candidate matches.
    fn candidates_match(&self) -> bool {
        matches!(self.snapshot.history.newest().geometry, GeometryColumn::Point { .. }) && !self.filters.needs_record()
    }

    fn fill_from_chunk(&mut self, builder: &mut BatchBuilder<'_>) -> Result<()> {
        let sure = self.candidates_match();
        let snapshot = self.snapshot.clone();
        let version = snapshot.pinned.version();
        while !self.is_full(builder) {
            let Some(key) = self.chunk.get(self.taken) else { break };
            if sure && !builder.reads_records() {
                self.explanation.plan = "spatial index only";
                builder.append(key, &[], None)?;
            } else {
                self.explanation.lookups += 1;
                let record = lookup(&version, key, snapshot.sequence())?;
                if !sure && !self.filters.matches_record(&RecordView::parse(&record, &snapshot.history)?)? {
                    self.taken += 1;
                    continue;
                }
                builder.append(key, &record, None)?;
            }
            self.taken += 1;
            self.explanation.matches += 1;
            self.left -= 1;
        }
        Ok(())
    }

    fn fill_from_primary(&mut self, builder: &mut BatchBuilder<'_>) -> Result<()> {
        let snapshot = self.snapshot.clone();
        let version = snapshot.pinned.version();
        let budget = snapshot.engine.shares.work / 4;
        let Source::Primary { after, ended } = &mut self.source else { return Ok(()) };
        let (filters, explanation, left) = (&self.filters, &mut self.explanation, &mut self.left);
        let mut last = Vec::new();
        let mut failed = None;
        let complete =
            search::scan(&version, PRIMARY as usize, after.as_deref(), snapshot.sequence(), &mut |key, stored| {
                last.clear();
                last.extend_from_slice(key);
                explanation.entries += 1;
                let mut take = || -> Result<()> {
                    explanation.candidates += 1;
                    if !filters.is_empty() && !filters.matches_record(&RecordView::parse(stored, &snapshot.history)?)? {
                        return Ok(());
                    }
                    builder.append(key, stored, None)?;
                    explanation.matches += 1;
                    *left -= 1;
                    Ok(())
                };
                if let Err(error) = take() {
                    failed = Some(error);
                    return Ok(ControlFlow::Break(()));
                }
                let full = *left == 0 || builder.is_full() || builder.variable_bytes() > budget;
                Ok(if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
        if let Some(error) = failed {
            return Err(error);
        }
        *ended = complete;
        *after = Some(last);
        Ok(())
    }

    /// The number of rows that are left.
    pub(crate) fn count_all(mut self) -> Result<u64> {
        if let Some(count) = self.count_from_statistics()? {
            return Ok(count);
        }
        if !matches!(self.source, Source::Index { .. }) || !self.candidates_match() {
            let mut count = 0;
            while let Some(batch) = self.next_batch()? {
                count += batch.num_rows() as u64;
            }
            return Ok(count);
        }
        // Every candidate matches: they are counted as the index gives them.
        let mut count = self.chunk.len() as u64;
        loop {
            self.chunk.clear();
            if count >= self.left || !self.advance_index()? {
                count += self.chunk.len() as u64;
                return Ok(count.min(self.left));
            }
            count += self.chunk.len() as u64;
        }
    }

    /// The count of all records, where one component knows it.
    fn count_from_statistics(&self) -> Result<Option<u64>> {
        if !matches!(self.source, Source::Primary { .. }) || !self.filters.is_empty() {
            return Ok(None);
        }
        let version = self.snapshot.pinned.version();
        let in_memory = version.generations.iter().any(|generation| !generation.memory(PRIMARY as usize).is_empty());
        Ok(match &version.components[PRIMARY as usize][..] {
            _ if in_memory => None,
            [] => Some(0),
            [only] if !only.file().meta().has_sequences => Some(only.file().meta().statistics.entries.min(self.left)),
            _ => None,
        })
    }
}

/// The stored record that an index entry speaks of.
pub(super) fn lookup<'v>(
    version: &'v terrane_lsm::partition::Version,
    key: &[u8],
    sequence: u64,
) -> Result<search::PrimaryValue<'v>> {
    let found = search::get(version, PRIMARY as usize, key, sequence)?;
    // Index and primary are read at one sequence number, so a missing record is damage.
    found.ok_or_else(|| Error::damaged("the primary index", 0, "a spatial index has an entry without a record"))
}

fn add_scan(explanation: &mut Explanation, scan: &WindowScan<OwnedSource>) {
    explanation.components_searched += scan.components_searched;
    explanation.components_pruned += scan.components_pruned;
    explanation.pages_visited += scan.pages;
    explanation.entries += scan.entries;
}

impl Iterator for Rows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().transpose()
    }
}

impl std::fmt::Debug for Rows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rows").field("explanation", &self.explanation).finish_non_exhaustive()
    }
}
