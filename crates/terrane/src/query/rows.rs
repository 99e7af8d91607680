//! The rows of an answer.
//!
//! Several threads find a large answer from several partitions. Each searches some of the
//! partitions, with its part of the working memory, and waits if the caller is slower. Batches are
//! taken from the threads in a fixed order, so the same data gives the same rows in the same order.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use terrane_lsm::index::Cancellation;
use terrane_lsm::parallel;
use terrane_storage::sync::mpsc::{Receiver, SyncSender, sync_channel};
use terrane_storage::sync::thread::{self, JoinHandle};

use super::Query;
use super::execute::Execution;
use super::explain::{Explanation, PLANNING};
use super::interrupt;
use super::plan::Path;
use crate::batch::BatchBuilder;
use crate::engine::CommitCore;
use crate::snapshot::Snapshot;
use crate::{Error, Result};

/// Maximal number of finished batches per thread, besides the one in progress.
const BATCHES_READY: usize = 1;

/// The rows of an answer, batch by batch. A nearest-neighbour query returns them by distance, other
/// queries in no defined order. Dropping this ends the work.
pub struct Rows {
    schema: SchemaRef,
    from: From,
}

enum From {
    /// The calling thread finds the rows.
    Caller(Box<Execution>),
    /// Several threads find the rows.
    Threads(Box<Gathering>),
}

/// The work of an answer: that of one thread, or of several.
enum Begun {
    Execution(Execution),
    /// The parts, with the path and its explanation.
    Divided(Vec<Snapshot>, Path, Execution),
}

/// Chooses the plan of an answer.
fn begin(snapshot: Snapshot, query: &Query) -> Result<Begun> {
    let cancellation = Arc::new(Cancellation::default());
    let started = snapshot.core.environment().storage.monotonic_ns();
    let mut execution = Execution::new(snapshot, query, cancellation)?;
    if let Some(place) = &query.nearest {
        query.isolation.check_nearest()?;
        execution.add_time(PLANNING, started);
        execution.begin_nearest(query, place)?;
        return Ok(Begun::Execution(execution));
    }
    let path = execution.choose(query)?;
    let parts = execution.divide(&path)?;
    execution.add_time(PLANNING, started);
    if let Some(parts) = parts {
        return Ok(Begun::Divided(parts, path, execution));
    }
    execution.begin(path)?;
    Ok(Begun::Execution(execution))
}

/// Number of rows of an answer.
pub(crate) fn count(snapshot: Snapshot, query: &Query) -> Result<u64> {
    // The columns are not needed, but must exist.
    BatchBuilder::new(&snapshot.history, query.columns.as_deref(), query.nearest.is_some())?;
    let key = snapshot.schema().key.name.clone();
    let query = query.clone().columns([key]);
    let (parts, path, mut whole) = match begin(snapshot, &query)? {
        Begun::Execution(execution) => return execution.count_all(),
        Begun::Divided(parts, path, whole) => (parts, path, whole),
    };
    if path.is_answered_by_statistics() {
        whole.begin(path.clone())?;
        if let Some(count) = whole.count_from_statistics()? {
            return Ok(count);
        }
    }
    let cancellation = Arc::new(Cancellation::default());
    let counts = parallel::map(parts.len(), &parts, |part| {
        let mut execution = Execution::new(part.clone(), &query, cancellation.clone())?;
        let counted = execution.begin(path.clone()).and_then(|()| execution.count_all());
        // The other threads' cancellation errors are not the cause.
        counted.inspect_err(|_| cancellation.cancel())
    });
    let is_cancelled = |count: &Result<u64>| matches!(count, Err(Error::Cancelled));
    let (cancelled, counts): (Vec<_>, Vec<_>) = counts.into_iter().partition(is_cancelled);
    let sum = counts.into_iter().chain(cancelled).sum::<Result<u64>>()?;
    Ok(sum.min(query.limit.unwrap_or(u64::MAX)))
}

impl Rows {
    pub(crate) fn new(snapshot: Snapshot, query: &Query) -> Result<Self> {
        let execution = match begin(snapshot, query)? {
            Begun::Execution(execution) => execution,
            Begun::Divided(parts, path, mut whole) => match Gathering::start(parts, query, &path, &mut whole) {
                Some(gathering) => {
                    let schema = whole.schema().clone();
                    return Ok(Self { schema, from: From::Threads(Box::new(gathering)) });
                }
                // No threads are available.
                None => {
                    whole.begin(path)?;
                    whole
                }
            },
        };
        Ok(Self { schema: execution.schema().clone(), from: From::Caller(Box::new(execution)) })
    }

    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// How the answer was found, up to the rows returned so far.
    pub fn explanation(&self) -> Explanation {
        match &self.from {
            From::Caller(execution) => execution.explanation(),
            From::Threads(gathering) => gathering.explanation(),
        }
    }

    /// The next batch; `None` at the end.
    ///
    /// # Errors
    /// Damage; storage. The answer ends there.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        match &mut self.from {
            From::Caller(execution) => execution.next_batch(),
            From::Threads(gathering) => gathering.next_batch(),
        }
    }
}

impl Iterator for Rows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().transpose()
    }
}

impl std::fmt::Debug for Rows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rows").field("explanation", &self.explanation()).finish_non_exhaustive()
    }
}

/// A message of a thread: a batch, or `None` at the end, with its explanation so far.
type Message = Result<(Option<RecordBatch>, Explanation)>;

/// A thread that finds a part of the rows.
struct Finder {
    /// `None` after its end.
    messages: Option<Receiver<Message>>,
    thread: Option<JoinHandle<()>>,
    explanation: Explanation,
}

/// Takes the rows that several threads find.
struct Gathering {
    finders: Vec<Finder>,
    /// The thread from which the next batch is taken.
    next: usize,
    left: u64,
    rows: u64,
    cancellation: Arc<Cancellation>,
    /// The explanation of the plan.
    explanation: Explanation,
    pages_before: u64,
    /// Dropped last.
    core: Arc<CommitCore>,
}

impl Gathering {
    /// `None` if not all threads can be started.
    fn start(parts: Vec<Snapshot>, query: &Query, path: &Path, whole: &mut Execution) -> Option<Self> {
        let core = parts[0].core.clone();
        let mut gathering = Self {
            finders: Vec::with_capacity(parts.len()),
            next: 0,
            left: query.limit.unwrap_or(u64::MAX),
            rows: 0,
            cancellation: Arc::new(Cancellation::default()),
            explanation: Explanation::default(),
            pages_before: core.environment().cache().counters().pages_read,
            core,
        };
        for part in parts {
            let (sender, messages) = sync_channel(BATCHES_READY);
            let (query, path, cancellation) = (query.clone(), path.clone(), gathering.cancellation.clone());
            let find = move || find(part, &query, path, cancellation, &sender);
            let thread = thread::Builder::new().name("terrane-query".into()).spawn(find).ok()?;
            let (messages, thread) = (Some(messages), Some(thread));
            gathering.finders.push(Finder { messages, thread, explanation: Explanation::default() });
        }
        whole.explain_path(path);
        gathering.explanation = whole.explanation();
        Some(gathering)
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        while self.left > 0 && self.finders.iter().any(|finder| finder.messages.is_some()) {
            let count = self.finders.len();
            let finder = &mut self.finders[self.next];
            self.next = (self.next + 1) % count;
            let Some(messages) = &finder.messages else { continue };
            let panicked = || Err(Error::Failed("a thread that answers the query panicked".into()));
            let received = interrupt::receive(messages).unwrap_or_else(|| Ok(Err(Error::Cancelled)));
            match received.unwrap_or_else(|_| panicked()) {
                Ok((Some(batch), explanation)) => {
                    finder.explanation = explanation;
                    let rows = batch.num_rows().min(usize::try_from(self.left).unwrap_or(usize::MAX));
                    self.left -= rows as u64;
                    self.rows += rows as u64;
                    if self.left == 0 {
                        self.cancellation.cancel();
                    }
                    return Ok(Some(batch.slice(0, rows)));
                }
                Ok((None, explanation)) => {
                    finder.explanation = explanation;
                    finder.messages = None;
                }
                Err(error) => {
                    self.end();
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    /// Ends all threads.
    fn end(&mut self) {
        self.cancellation.cancel();
        // A thread that waits to send sees that the receiver is gone.
        self.finders.iter_mut().for_each(|finder| finder.messages = None);
        for thread in self.finders.iter_mut().filter_map(|finder| finder.thread.take()) {
            // A panic was reported where its rows were read.
            let _ = thread.join();
        }
    }

    fn explanation(&self) -> Explanation {
        let mut sum = self.explanation.clone();
        self.finders.iter().for_each(|finder| sum.add(&finder.explanation));
        sum.threads = self.finders.len();
        sum.matches = self.rows;
        // All threads read through one cache.
        let read_by_all = self.core.environment().cache().counters().pages_read - self.pages_before;
        sum.pages_read = self.explanation.pages_read + read_by_all;
        sum
    }
}

impl Drop for Gathering {
    fn drop(&mut self) {
        self.end();
    }
}

/// Finds the rows of a part, until they end or the receiver is gone.
fn find(part: Snapshot, query: &Query, path: Path, cancellation: Arc<Cancellation>, sender: &SyncSender<Message>) {
    let mut execution = match Execution::new(part, query, cancellation) {
        Ok(execution) => execution,
        Err(error) => return drop(sender.send(Err(error))),
    };
    let mut begun = execution.begin(path);
    loop {
        let found = begun.and_then(|()| execution.next_batch());
        begun = Ok(());
        let is_end = !matches!(found, Ok(Some(_)));
        if sender.send(found.map(|batch| (batch, execution.explanation()))).is_err() || is_end {
            return;
        }
    }
}
