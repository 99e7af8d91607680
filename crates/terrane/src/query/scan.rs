//! Scans: the rows of a query, part by part, for a host that brings its own threads.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use terrane_lsm::index::Cancellation;

use super::Query;
use super::execute::Execution;
use super::explain::{Explanation, PLANNING};
use super::plan::Path;
use crate::snapshot::Snapshot;
use crate::{Error, Result};

/// A planned query whose rows are read in parts, for example by several threads. All parts show one
/// state.
///
/// The plan is chosen once. Each part covers some of the dataset's partitions, so no row is in two
/// parts. A limit applies to each part by itself: the host takes the first rows of all of them.
#[derive(Clone)]
pub struct Scan {
    query: Query,
    /// The partitions of each part. A nearest-neighbour query has one part.
    parts: Vec<Snapshot>,
    /// `None` for a nearest-neighbour query.
    path: Option<Path>,
    explanation: Explanation,
    schema: SchemaRef,
}

/// The rows of one part of a [`Scan`].
pub struct ScanRows {
    execution: Box<Execution>,
    cancellation: Arc<Cancellation>,
}

/// Ends a [`ScanRows`] from another thread.
#[derive(Clone, Debug)]
pub struct ScanCancellation(Arc<Cancellation>);

impl Snapshot {
    /// Plans a query whose rows are read in parts. `sharers` divides the working memory: it is the
    /// number of scans and other consumers that may work at the same time. There are several parts
    /// if the dataset has several partitions and the answer is large.
    ///
    /// # Errors
    /// An invalid query, or one at [`ReadCommitted`](crate::Isolation::ReadCommitted); damage;
    /// storage.
    pub fn scan(&self, query: &Query, sharers: usize) -> Result<Scan> {
        query.isolation.check_one_state("a scan")?;
        let whole = self.clone().with_sharers(sharers.max(1));
        let started = whole.core.environment().storage.monotonic_ns();
        let mut execution = Execution::new(whole.clone(), query, Arc::new(Cancellation::default()))?;
        let (parts, path) = match query.nearest {
            Some(_) => (vec![whole], None),
            None => {
                let path = execution.choose(query)?;
                let divided = execution.divide(&path)?;
                execution.explain_path(&path);
                (divided.unwrap_or_else(|| vec![whole]), Some(path))
            }
        };
        execution.add_time(PLANNING, started);
        let (explanation, schema) = (execution.explanation(), execution.schema().clone());
        Ok(Scan { query: query.clone(), parts, path, explanation, schema })
    }
}

impl Scan {
    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Number of parts, at least one.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// The dataset's partitions in a part.
    pub fn partitions(&self, part: usize) -> Option<Range<usize>> {
        self.parts.get(part).map(Snapshot::scope)
    }

    /// The plan, without any work yet. A nearest-neighbour query chooses its index when it runs.
    pub fn explanation(&self) -> &Explanation {
        &self.explanation
    }

    /// Begins to read a part. A part may be read several times, and gives the same rows.
    ///
    /// # Errors
    /// No such part; damage; storage.
    pub fn read(&self, part: usize) -> Result<ScanRows> {
        let snapshot = self.parts.get(part).cloned().ok_or_else(|| {
            Error::usage(format!("the scan has no part {part}; its parts are 0 to {}", self.parts.len() - 1))
        })?;
        let cancellation = Arc::new(Cancellation::default());
        let mut execution = Box::new(Execution::new(snapshot, &self.query, cancellation.clone())?);
        match (&self.path, &self.query.nearest) {
            (Some(path), _) => execution.begin(path.clone())?,
            (None, Some(place)) => execution.begin_nearest(&self.query, place)?,
            (None, None) => {}
        }
        Ok(ScanRows { execution, cancellation })
    }
}

impl ScanRows {
    /// The next batch; `None` at the end.
    ///
    /// # Errors
    /// [`Error::Cancelled`]; damage; storage. The part ends there.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        self.execution.next_batch()
    }

    /// Ends this part from another thread. Its next batch, or the one in progress, is
    /// [`Error::Cancelled`].
    pub fn cancellation(&self) -> ScanCancellation {
        ScanCancellation(self.cancellation.clone())
    }

    /// How the rows were found, up to those returned so far.
    pub fn explanation(&self) -> Explanation {
        self.execution.explanation()
    }
}

impl ScanCancellation {
    /// Requests the end.
    pub fn cancel(&self) {
        self.0.cancel();
    }
}

impl Iterator for ScanRows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().transpose()
    }
}

impl std::fmt::Debug for Scan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scan").field("query", &self.query).field("parts", &self.parts.len()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for ScanRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScanRows").field("explanation", &self.explanation()).finish_non_exhaustive()
    }
}
