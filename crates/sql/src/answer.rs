//! Answers of statements, and waiting for them.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::common::ScalarValue;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::EmptyRecordBatchStream;
use datafusion::sql::parser::Statement;
use futures::{FutureExt, StreamExt};
use terrane::Snapshot;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::task::JoinHandle;

use crate::error::SqlError;
use crate::kept::KeptPlan;
use crate::runner::Runner;

/// The answer of a statement, batch by batch. Dropping it ends the work.
pub struct Answer {
    pub(crate) batches: Batches,
    pub(crate) task: Option<Task>,
    pub(crate) again: Option<Again>,
    /// What was done to how many rows.
    pub(crate) done: Option<(&'static str, u64)>,
    pub(crate) schema: SchemaRef,
    pub(crate) memory_bytes: usize,
    pub(crate) runtime: Handle,
}

/// A task that ends with its answer.
pub(crate) struct Task(pub JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A statement that was run, with the state that it read.
#[derive(Clone)]
pub struct Again(pub(crate) Ran);

#[derive(Clone)]
pub(crate) enum Ran {
    Statement(Box<(Runner, Statement)>),
    Kept(Arc<KeptPlan>, Arc<[Snapshot]>, Arc<[ScalarValue]>),
}

/// Where the batches of an answer come from.
pub(crate) enum Batches {
    /// A thread with a large stack.
    Sent(Receiver<Result<RecordBatch, DataFusionError>>),
    /// The caller's thread, which is faster for small answers.
    Here(SendableRecordBatchStream),
}

impl Batches {
    fn nothing(schema: &SchemaRef) -> Self {
        Self::Here(Box::pin(EmptyRecordBatchStream::new(schema.clone())))
    }

    async fn next(&mut self) -> Option<Result<RecordBatch, DataFusionError>> {
        match self {
            Self::Sent(receiver) => receiver.recv().await,
            Self::Here(stream) => match AssertUnwindSafe(stream.next()).catch_unwind().await {
                Ok(batch) => batch,
                Err(_) => {
                    // It is not polled again.
                    *self = Self::nothing(&stream.schema());
                    Some(Err(DataFusionError::Execution(PANICKED.to_owned())))
                }
            },
        }
    }
}

/// Waits for a future, also on a thread of a runtime: a table of the caller can be an answer.
pub(crate) fn wait_for<F: Future>(runtime: &Handle, future: F) -> F::Output {
    tokio::task::block_in_place(|| runtime.block_on(future))
}

/// The same; `None` if the caller wants to stop.
pub(crate) fn wait_or_stop<F: Future + Unpin>(runtime: &Handle, mut future: F) -> Option<F::Output> {
    let Some(interval) = terrane::interrupt_interval() else { return Some(wait_for(runtime, future)) };
    loop {
        let waiting = async { tokio::time::timeout(interval, &mut future).await };
        match wait_for(runtime, waiting) {
            Ok(output) => return Some(output),
            Err(_) if terrane::is_interrupted() => return None,
            Err(_) => {}
        }
    }
}

pub(crate) fn stopped() -> SqlError {
    SqlError::Execution("the statement was stopped".to_owned())
}

const PANICKED: &str = "a thread that runs the statement panicked; please report the statement";

pub(crate) fn panicked() -> SqlError {
    SqlError::Execution(PANICKED.to_owned())
}

/// Sends the batches until the receiver is gone.
pub(crate) async fn send_batches(
    mut stream: SendableRecordBatchStream,
    sender: Sender<Result<RecordBatch, DataFusionError>>,
) {
    while let Some(batch) = stream.next().await {
        if sender.send(batch).await.is_err() {
            return;
        }
    }
}

impl Answer {
    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// What a statement has done, and to how many rows, such as "inserted" and 3.
    pub fn done(&self) -> Option<(&'static str, u64)> {
        self.done
    }

    /// The statement with the state that it reads, unless it changes something.
    pub fn again(&self) -> Option<Again> {
        self.again.clone()
    }

    fn receive(&mut self) -> Result<Option<Result<RecordBatch, DataFusionError>>, SqlError> {
        let received = wait_or_stop(&self.runtime, Box::pin(self.batches.next()));
        received.ok_or_else(|| {
            self.batches = Batches::nothing(&self.schema);
            self.task = None;
            stopped()
        })
    }

    /// The next batch; `None` at the end.
    ///
    /// # Errors
    /// [`SqlError::Memory`], [`SqlError::Execution`], [`SqlError::Store`]. The answer ends there.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>, SqlError> {
        if let Some(batch) = self.receive()? {
            return batch.map(Some).map_err(|error| SqlError::execution(&error, self.memory_bytes));
        }
        // A panic ends the task too.
        match self.task.take().map(|mut task| wait_for(&self.runtime, &mut task.0)) {
            Some(Err(_)) => Err(panicked()),
            _ => Ok(None),
        }
    }
}

impl Iterator for Answer {
    type Item = Result<RecordBatch, SqlError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().transpose()
    }
}
