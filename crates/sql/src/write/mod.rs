//! Statements that change the store.
//!
//! A statement's rows come from a plan over one state of the store. They are written by the engine,
//! not by DataFusion. A record is changed only while it is still the one that the plan read.

mod change;
mod conflict;
mod copy;
mod define;
mod insert;
mod literals;
mod merge;
mod rows;
mod target;
mod transaction;
mod types;

pub use copy::write_options;
pub(crate) use transaction::Transaction;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::sql::sqlparser::ast::{SelectItem, Statement};

use crate::error::SqlError;
use crate::runner::{Memory, Runner};
use target::{Target, select, table_factor};

/// What a statement has done.
pub(crate) struct Written {
    /// What was done to the rows, such as "inserted".
    pub done: &'static str,
    /// Number of rows; `None` if the statement is not about rows.
    pub rows: Option<u64>,
    /// The rows of a `RETURNING`.
    pub returned: Option<(SendableRecordBatchStream, SchemaRef)>,
}

impl Written {
    fn nothing() -> Self {
        Self { done: "", rows: None, returned: None }
    }
}

/// Whether a statement changes the store.
pub(crate) fn is_write(statement: &Statement) -> bool {
    match statement {
        Statement::Copy { to, .. } => !to,
        Statement::Insert(_)
        | Statement::Update(_)
        | Statement::Delete(_)
        | Statement::Merge(_)
        | Statement::CreateTable(_)
        | Statement::CreateIndex(_)
        | Statement::Drop { .. }
        | Statement::AlterTable(_)
        | Statement::Truncate(_)
        | Statement::Call(_) => true,
        _ => false,
    }
}

/// Whether [`write`] runs a statement.
pub(crate) fn is_run_here(statement: &Statement) -> bool {
    is_write(statement) || matches!(statement, Statement::Copy { .. })
}

/// Runs a statement that changes the store, or copies to a file.
///
/// # Errors
/// The statement cannot be planned; a row that the dataset refuses; storage. Rows before the error
/// stay written, unless the statement is atomic. The error says how many.
pub(crate) async fn write(runner: &Runner, statement: Statement) -> Result<Written, SqlError> {
    let changes_records =
        matches!(statement, Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_) | Statement::Merge(_));
    if runner.transaction.is_some() && !changes_records && is_write(&statement) {
        return Err(SqlError::refused("a transaction takes INSERT, UPDATE, DELETE and MERGE; COMMIT before others"));
    }
    match statement {
        Statement::Insert(insert) => insert::insert(runner, insert).await,
        Statement::Merge(merge) => merge::merge(runner, merge).await,
        Statement::Update(update) => change::update(runner, update).await,
        Statement::Delete(delete) => change::delete(runner, delete).await,
        Statement::CreateTable(table) => define::create_table(runner, table).await,
        Statement::CreateIndex(index) => define::create_index(runner, index),
        Statement::Drop { object_type, if_exists, names, .. } => define::drop(runner, object_type, if_exists, &names),
        Statement::AlterTable(alter) => define::alter_table(runner, &alter),
        Statement::Truncate(truncate) => define::truncate(runner, &truncate),
        Statement::Call(call) => define::call(runner, &call),
        Statement::Copy { source, to, target, options, legacy_options, .. } => {
            copy::copy(runner, source, to, target, &options, &legacy_options).await
        }
        other => Err(SqlError::refused(format!("this statement is not available: {other}"))),
    }
}

/// Rows that a `RETURNING` shows, as they are written.
struct Returning {
    items: Option<Vec<SelectItem>>,
    memory: Memory,
    /// The name that the items may use for the table.
    name: String,
    batches: Vec<RecordBatch>,
}

impl Returning {
    fn new(runner: &Runner, items: Option<Vec<SelectItem>>, name: &str) -> Self {
        let memory = runner.memory("the rows of RETURNING");
        Self { items, memory, name: name.to_owned(), batches: Vec::new() }
    }

    /// Whether rows have to be kept.
    fn is_wanted(&self) -> bool {
        self.items.is_some()
    }

    fn add(&mut self, batch: RecordBatch) -> Result<(), SqlError> {
        if self.items.is_some() {
            self.memory.take(batch.get_array_memory_size())?;
            self.batches.push(batch);
        }
        Ok(())
    }

    /// The answer over the rows, which have the columns of the table.
    async fn finish(
        self,
        runner: &Runner,
        target: &Target,
    ) -> Result<Option<(SendableRecordBatchStream, SchemaRef)>, SqlError> {
        let Some(items) = self.items else { return Ok(None) };
        let batches = self.batches.iter().map(|batch| rows::completed(batch, target)).collect::<Result<Vec<_>, _>>()?;
        let runner = runner.renewed();
        runner.add_table(&self.name, &target.columns, &batches)?;
        runner.query(select(items, vec![table_factor(&self.name)?], None)?).await.map(Some)
    }
}

/// Adds to an error how many rows had been written before it.
fn after_writing(error: SqlError, done: &str, rows: u64) -> SqlError {
    if rows == 0 {
        return error;
    }
    let note = format!("; {} {done} before and stay", terrane::counted(rows, "row was", "rows were"));
    match error {
        SqlError::Refused(reason) => SqlError::Refused(reason + &note),
        SqlError::Execution(reason) => SqlError::Execution(reason + &note),
        other => other,
    }
}
