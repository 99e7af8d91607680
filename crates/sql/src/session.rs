//! Sessions: statements run in order against a store.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use datafusion::common::{ScalarValue, extensions_options};
use datafusion::config::ConfigExtension;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::optimizer::{Analyzer, AnalyzerRule};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::Statement as SqlStatement;
use terrane::{Snapshot, Store};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::mpsc::channel;

use crate::answer::{Again, Answer, Batches, Ran, Task, panicked, send_batches, stopped, wait_for, wait_or_stop};
use crate::arithmetic::ArithmeticRule;
use crate::catalog::{CATALOG, CatalogOptions, SCHEMA, StatementCatalog};
use crate::comparisons::NumberRule;
use crate::counts;
use crate::error::SqlError;
use crate::files::CallerTables;
use crate::functions;
use crate::geographies::GeographyRule;
use crate::join::SpatialJoinRule;
use crate::kept::KeptPlan;
use crate::lateral::{LateralQueryPlanner, LateralRule};
use crate::nearest::NearestRule;
use crate::operators::SpatialOperators;
use crate::prepared::{Execution, Param, Prepared, Step};
use crate::runner::{Memory, Runner};
use crate::sort::{self, Sorting};
use crate::statement::{datasets_of, parse, relations_of};
use crate::sums;
use crate::words;
use crate::write::{self, Transaction};

/// Bytes of memory per thread below which fewer threads are used.
const THREAD_BYTES: usize = 4 << 20;
/// Bytes of address space for a thread's stack: long chains of operators are evaluated recursively.
const STACK_BYTES: usize = 256 << 20;

extensions_options! {
    /// The options that `SET terrane.… = …` changes.
    pub struct TerraneOptions {
        /// Whether filters, limits and projections are pushed down to the indexes. The rows are the
        /// same.
        pub pushdown: bool, default = true
        /// Whether the changes of a statement are made together, or else record by record.
        pub atomic: bool, default = false
    }
}

impl ConfigExtension for TerraneOptions {
    const PREFIX: &'static str = "terrane";
}

/// Resources of a session.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Bytes for sorting, grouping and joining. Sorts and groups beyond it use temporary files.
    pub memory_bytes: usize,
    /// Maximal number of threads.
    pub threads: usize,
    /// Whether statements may read files: `FROM 'cities.geojson'`.
    pub reads_files: bool,
}

impl SessionOptions {
    /// The resources of a session on a store: half of the store's memory for one query. Scans use
    /// the other half.
    pub fn of_store(options: &terrane::Options) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self { memory_bytes: options.working_memory() / 2, threads, reads_files: false }
    }
}

/// Runs statements. Each sees the state of the store at its start.
pub struct Session {
    context: SessionContext,
    /// The threads; `None` once the session is shut down.
    threads: Mutex<Option<Runtime>>,
    runtime: Handle,
    memory_bytes: usize,
    reads_files: bool,
    prepared: Mutex<Prepared>,
    kept_runs: AtomicU64,
    /// The transaction of each thread that has begun one.
    transactions: Mutex<HashMap<ThreadId, Arc<Transaction>>>,
}

/// A parsed text of statements.
#[derive(Clone, Debug)]
pub struct Script {
    text: String,
    statements: std::collections::VecDeque<Statement>,
}

impl Script {
    /// Number of statements that have not run.
    pub fn len(&self) -> usize {
        self.statements.len()
    }

    /// Whether all statements have run.
    pub fn is_empty(&self) -> bool {
        self.statements.is_empty()
    }
}

impl Session {
    /// Starts a session.
    ///
    /// # Errors
    /// Threads or temporary files are not available.
    pub fn new(options: &SessionOptions) -> Result<Self, SqlError> {
        let threads = options.threads.clamp(1, (options.memory_bytes / THREAD_BYTES).max(1));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("terrane-sql")
            .thread_stack_size(STACK_BYTES)
            .enable_time()
            .build()
            .map_err(|error| SqlError::Execution(format!("threads cannot be started: {error}")))?;
        let pool = Arc::new(FairSpillPool::new(options.memory_bytes));
        let environment = RuntimeEnvBuilder::new()
            .with_memory_pool(pool)
            .build_arc()
            .map_err(|error| SqlError::execution(&error, options.memory_bytes))?;
        let mut config = SessionConfig::new()
            .with_default_catalog_and_schema(CATALOG, SCHEMA)
            .with_create_default_catalog_and_schema(false)
            .with_information_schema(true)
            .with_target_partitions(threads)
            .with_sort_spill_reservation_bytes((options.memory_bytes / 16).min(8 << 20))
            .with_option_extension(TerraneOptions::default());
        config.options_mut().sql_parser.collect_spans = true;
        config.options_mut().sql_parser.dialect = datafusion::config::Dialect::PostgreSQL;
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(environment)
            .with_default_features()
            .with_analyzer_rules(analyzer_rules())
            .with_optimizer_rule(Arc::new(LateralRule))
            .with_query_planner(Arc::new(LateralQueryPlanner))
            .with_physical_optimizer_rule(Arc::new(NearestRule))
            .with_physical_optimizer_rule(Arc::new(SpatialJoinRule))
            .build();
        let context = SessionContext::new_with_state(state);
        functions::all().for_each(|function| context.register_udf((*function).clone()));
        context.register_udf((*words::udf()).clone());
        functions::all_aggregates().for_each(|aggregate| context.register_udaf(aggregate));
        context.register_udaf(counts::count());
        context.register_udaf(sums::sum());
        functions::all_windows().for_each(|function| context.register_udwf(function));
        register_operators(&context)?;
        Ok(Self {
            context,
            runtime: runtime.handle().clone(),
            threads: Mutex::new(Some(runtime)),
            memory_bytes: options.memory_bytes,
            reads_files: options.reads_files,
            prepared: Mutex::default(),
            kept_runs: AtomicU64::new(0),
            transactions: Mutex::default(),
        })
    }

    /// Parses statements, separated by `;`.
    ///
    /// # Errors
    /// [`SqlError::Statement`] with the position.
    pub fn parse(&self, text: &str) -> Result<Script, SqlError> {
        let owned = text.to_owned();
        let statements = self.block_on(async move { parse(&owned) })?.into();
        Ok(Script { text: text.to_owned(), statements })
    }

    /// Whether the next statement of a script changes the store, which then has to be open for
    /// writing.
    pub fn changes_next(&self, script: &Script) -> bool {
        script.statements.front().is_some_and(|statement| self.prepared().changes(statement))
    }

    /// The names of the tables that the statements of a script name, as they are written.
    pub fn relations(&self, script: &Script) -> Vec<String> {
        let prepared = self.prepared();
        let relations = script.statements.iter().flat_map(|statement| {
            let executed = prepared.executed(statement);
            relations_of(executed.as_ref().unwrap_or(statement))
        });
        relations.collect()
    }

    /// Runs the next statement of a script on a store; `None` at the end. `params` are the values
    /// of `$1`, `$2`, …. A statement that changes the store is done when this returns.
    ///
    /// # Errors
    /// The statement cannot be planned. A statement that changes the store has failed. Errors of
    /// queries come with the answer.
    pub fn run_next(
        &self,
        script: &mut Script,
        store: &Arc<Store>,
        params: &[Param],
    ) -> Result<Option<Answer>, SqlError> {
        self.run_next_with(script, store, params, &Arc::default())
    }

    /// Like [`Self::run_next`], with tables of the caller.
    ///
    /// # Errors
    /// Those of [`Self::run_next`]; a table of the caller cannot be opened.
    pub fn run_next_with(
        &self,
        script: &mut Script,
        store: &Arc<Store>,
        params: &[Param],
        callers: &Arc<CallerTables>,
    ) -> Result<Option<Answer>, SqlError> {
        let Some(statement) = script.statements.pop_front() else { return Ok(None) };
        let step = self.prepared().step(statement, params)?;
        let (statement, params) = match step {
            Step::Done => return Ok(Some(self.nothing())),
            Step::Run(statement, params) => (statement, params),
            Step::Execute(execution) => match self.run_kept(&execution, store) {
                Some(answer) => return Ok(Some(answer)),
                None => (execution.statement(), execution.params),
            },
        };
        if let Statement::Statement(inner) = &*statement
            && let Some(ended) = self.begin_or_end(inner)
        {
            return ended.map(|()| Some(self.nothing()));
        }
        let transaction = self.transaction();
        transaction.as_ref().map_or(Ok(()), |transaction| transaction.check())?;
        let datasets = datasets_of(&statement, &store.dataset_names());
        let runner = Runner {
            params: Arc::new(params),
            text: script.text.as_str().into(),
            ..self.runner(store, datasets, transaction.clone(), callers.clone())
        };
        let statement = match *statement {
            Statement::Statement(inner) if write::is_run_here(&inner) => {
                let written = self.write(runner, *inner);
                if let (Err(_), Some(transaction)) = (&written, transaction) {
                    transaction.fail();
                }
                return written.map(Some);
            }
            other => other,
        };
        check_reads(&statement)?;
        self.run_again(&Again(Ran::Statement(Box::new((runner, statement))))).map(Some)
    }

    /// Runs a statement once more, on the state that it has read before.
    ///
    /// # Errors
    /// Those of [`Self::run_next_with`].
    pub fn run_again(&self, again: &Again) -> Result<Answer, SqlError> {
        let answer = match &again.0 {
            Ran::Statement(ran) => {
                let (runner, statement) = (**ran).clone();
                let (stream, schema) = self.block_on(async move { runner.run(statement).await })?;
                self.answer(stream, schema)
            }
            Ran::Kept(kept, snapshots, values) => {
                let changed = || SqlError::Execution("the statement has to be asked again".to_owned());
                self.answer_of_kept(kept, snapshots, values).ok_or_else(changed)?
            }
        };
        Ok(Answer { again: Some(again.clone()), ..answer })
    }

    /// A runner of a statement without parameters.
    fn runner(
        &self,
        store: &Arc<Store>,
        datasets: Vec<String>,
        transaction: Option<Arc<Transaction>>,
        callers: Arc<CallerTables>,
    ) -> Runner {
        let options = self.options();
        let unreadable = transaction.as_ref().and_then(|transaction| transaction.changed_table());
        let catalog = CatalogOptions {
            pushes_down: options.pushdown,
            reads_files: self.reads_files,
            callers,
            unreadable,
            datasets,
            values: None,
        };
        Runner {
            store: store.clone(),
            catalog: StatementCatalog::new(store.clone(), catalog),
            session: self.context.clone(),
            params: Arc::default(),
            text: "".into(),
            memory_bytes: self.memory_bytes,
            reads_files: self.reads_files,
            is_atomic: options.atomic,
            transaction,
        }
    }

    /// Runs a prepared query through a plan that is kept; `None` if it has to be planned anew.
    fn run_kept(&self, execution: &Execution, store: &Arc<Store>) -> Option<Answer> {
        let (query, values) = (execution.query()?, execution.values.as_ref()?);
        if self.transaction().is_some() {
            return None;
        }
        let usable = |kept: Arc<KeptPlan>| kept.snapshots(store).map(|snapshots| (kept, snapshots));
        let (kept, snapshots) = match execution.kept(values) {
            Some(None) => return None,
            Some(Some(kept)) => usable(kept),
            None => None,
        }
        .or_else(|| {
            let statement = *execution.statement();
            let runner = self.runner(store, datasets_of(&statement, &store.dataset_names()), None, Arc::default());
            let (query, planned) = (query.clone(), values.clone());
            let kept = self.block_on(async move { Ok(runner.keep(query, &planned).await.map(Arc::new)) });
            let kept = kept.ok().flatten();
            execution.keep(values, kept.clone());
            kept.and_then(usable)
        })?;
        let answer = self.answer_of_kept(&kept, &snapshots, values)?;
        self.kept_runs.fetch_add(1, Ordering::Relaxed);
        Some(Answer { again: Some(Again(Ran::Kept(kept, snapshots.into(), values.clone()))), ..answer })
    }

    /// `None` after an error. Planned anew, the statement says why.
    fn answer_of_kept(&self, kept: &KeptPlan, snapshots: &[Snapshot], values: &Arc<[ScalarValue]>) -> Option<Answer> {
        let _runtime = self.runtime.enter();
        let run = AssertUnwindSafe(|| kept.run(snapshots, values));
        let stream = catch_unwind(run).ok()?.ok().flatten()?;
        let schema = stream.schema();
        Some(Answer { batches: Batches::Here(stream), schema, ..self.nothing() })
    }

    fn write(&self, runner: Runner, statement: SqlStatement) -> Result<Answer, SqlError> {
        let written = self.block_on(async move { write::write(&runner, statement).await })?;
        let answer = match written.returned {
            Some((stream, schema)) => self.answer(stream, schema),
            None => self.nothing(),
        };
        Ok(Answer { done: written.rows.map(|rows| (written.done, rows)), ..answer })
    }

    /// Begins or ends a transaction, if the statement does.
    fn begin_or_end(&self, statement: &SqlStatement) -> Option<Result<(), SqlError>> {
        let thread = thread::current().id();
        let none = || SqlError::refused("no transaction is in progress; BEGIN starts one");
        Some(match statement {
            SqlStatement::StartTransaction { modes, modifier: None, statements, .. }
                if modes.is_empty() && statements.is_empty() =>
            {
                match self.transaction() {
                    Some(_) => Err(SqlError::refused("a transaction is in progress; COMMIT or ROLLBACK ends it")),
                    None => {
                        let pool = &self.context.runtime_env().memory_pool;
                        let transaction = Transaction::new(Memory::new(pool, self.memory_bytes, "a transaction"));
                        self.transactions().insert(thread, transaction);
                        Ok(())
                    }
                }
            }
            SqlStatement::Commit { chain: false, modifier: None, .. } => {
                let transaction = self.transactions().remove(&thread);
                transaction.ok_or_else(none).and_then(|transaction| transaction.commit())
            }
            SqlStatement::Rollback { chain: false, savepoint: None } => match self.roll_back() {
                true => Ok(()),
                false => Err(none()),
            },
            SqlStatement::StartTransaction { .. } | SqlStatement::Commit { .. } | SqlStatement::Rollback { .. } => {
                Err(SqlError::refused("write BEGIN, COMMIT or ROLLBACK, without more"))
            }
            _ => return None,
        })
    }

    /// Sorts rows of a schema. More of them than fit into memory are sorted in temporary files.
    ///
    /// # Errors
    /// A column does not exist, or has no order. Errors of the rows come with the answer.
    pub fn sort(
        &self,
        schema: &SchemaRef,
        rows: impl Iterator<Item = terrane::Result<RecordBatch>> + Send + 'static,
        sorting: Sorting,
    ) -> Result<Answer, SqlError> {
        let (context, schema) = (self.context.clone(), schema.clone());
        let sorted = self.block_on(async move {
            let sorted = sort::sort(context, schema, rows, sorting).await;
            sorted.map_err(|error| SqlError::planning(&error, ""))
        });
        sorted.map(|(stream, schema)| self.answer(stream, schema))
    }

    /// Ends the thread's transaction without its changes. Returns whether one was in progress.
    pub fn roll_back(&self) -> bool {
        self.transactions().remove(&thread::current().id()).is_some()
    }

    /// Whether the thread is in a transaction.
    pub fn is_in_transaction(&self) -> bool {
        self.transaction().is_some()
    }

    /// Ends the session's threads, with the answers that are being read.
    pub fn shut_down(&self) {
        let Some(threads) = self.threads.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        match Handle::try_current() {
            // A thread of a session cannot wait for others.
            Ok(_) => threads.shutdown_background(),
            Err(_) => drop(threads),
        }
    }

    /// For a fork of the process, which has none of the threads: they are left as they are.
    pub fn forget_threads(&self) {
        std::mem::forget(self.threads.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn transaction(&self) -> Option<Arc<Transaction>> {
        self.transactions().get(&thread::current().id()).cloned()
    }

    fn transactions(&self) -> MutexGuard<'_, HashMap<ThreadId, Arc<Transaction>>> {
        self.transactions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn prepared(&self) -> MutexGuard<'_, Prepared> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, stream: SendableRecordBatchStream, schema: SchemaRef) -> Answer {
        let (sender, batches) = channel(1);
        let task = self.runtime.spawn(send_batches(stream, sender));
        Answer { batches: Batches::Sent(batches), task: Some(Task(task)), schema, ..self.nothing() }
    }

    /// The answer of a statement without rows.
    fn nothing(&self) -> Answer {
        let (_, batches) = channel(1);
        let (memory_bytes, runtime) = (self.memory_bytes, self.runtime.clone());
        let schema = Arc::new(Schema::empty());
        let batches = Batches::Sent(batches);
        Answer { batches, task: None, again: None, done: None, schema, memory_bytes, runtime }
    }

    /// Number of executions of prepared queries that took a plan of before.
    pub fn kept_runs(&self) -> u64 {
        self.kept_runs.load(Ordering::Relaxed)
    }

    /// The names of all functions.
    pub fn function_names(&self) -> Vec<String> {
        let state = self.context.state();
        let names = state.scalar_functions().keys().chain(state.aggregate_functions().keys());
        names.chain(state.window_functions().keys()).cloned().collect()
    }

    fn options(&self) -> TerraneOptions {
        let state = self.context.state();
        state.config().options().extensions.get::<TerraneOptions>().cloned().unwrap_or_default()
    }

    /// Runs on a thread with a large stack.
    fn block_on<T: Send + 'static>(
        &self,
        future: impl Future<Output = Result<T, SqlError>> + Send + 'static,
    ) -> Result<T, SqlError> {
        let mut task = self.runtime.spawn(future);
        let ended = wait_or_stop(&self.runtime, &mut task).unwrap_or_else(|| {
            task.abort();
            // It may have done its work, and ends in any case before its tables can change again.
            wait_for(&self.runtime, task)
        });
        ended.unwrap_or_else(|error| Err(if error.is_cancelled() { stopped() } else { panicked() }))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// Geographies are measured on the sphere. Numbers are compared before their types are made equal,
/// and integers added and multiplied after it.
fn analyzer_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let rules: [Arc<dyn AnalyzerRule + Send + Sync>; 2] = [Arc::new(GeographyRule), Arc::new(NumberRule)];
    rules
        .into_iter()
        .chain(Analyzer::new().rules)
        .chain([Arc::new(ArithmeticRule) as _, Arc::new(LateralRule) as _])
        .collect()
}

fn register_operators(context: &SessionContext) -> Result<(), SqlError> {
    use datafusion::execution::FunctionRegistry;
    let failed = |error| SqlError::execution(&error, 0);
    context.state_ref().write().register_expr_planner(Arc::new(SpatialOperators)).map_err(failed)
}

/// Refuses statements that are not available.
fn check_reads(statement: &Statement) -> Result<(), SqlError> {
    let reads = match statement {
        Statement::Statement(statement) => matches!(
            **statement,
            SqlStatement::Query(_)
                | SqlStatement::Explain { .. }
                | SqlStatement::ExplainTable { .. }
                | SqlStatement::ShowTables { .. }
                | SqlStatement::ShowColumns { .. }
                | SqlStatement::ShowVariable { .. }
                | SqlStatement::ShowFunctions { .. }
                | SqlStatement::Set(_)
        ),
        Statement::Explain(explain) => return check_reads(&explain.statement),
        Statement::Reset(_) => true,
        Statement::CopyTo(_) | Statement::CreateExternalTable(_) => false,
    };
    match reads {
        true => Ok(()),
        false => {
            let word = statement.to_string().split_whitespace().next().unwrap_or_default().to_uppercase();
            Err(SqlError::refused(format!("{word} is not available")))
        }
    }
}
