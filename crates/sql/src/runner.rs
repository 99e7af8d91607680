//! The queries of one statement: all read the same state.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{Field, Schema, SchemaRef};
use datafusion::catalog::{CatalogProviderList, MemoryCatalogProviderList};
use datafusion::common::ScalarValue;
use datafusion::datasource::MemTable;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::logical_expr::{LogicalPlan, Statement as PlanStatement};
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::{SQLOptions, SessionContext};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Expr, ObjectName, ObjectNamePart, Query, Statement as SqlStatement};
use terrane::{Error, Store};

use crate::catalog::{CATALOG, StatementCatalog};
use crate::error::SqlError;
use crate::forms::description;
use crate::kept::{KeptPlan, declared, open_parameters, typed};
use crate::statement::{Names, found, prepare};
use crate::write::Transaction;

/// Plans and runs the queries of a statement.
#[derive(Clone)]
pub(crate) struct Runner {
    pub store: Arc<Store>,
    /// The tables, each in one state.
    pub catalog: StatementCatalog,
    /// The session, whose settings the statement has.
    pub session: SessionContext,
    /// The values of the parameters.
    pub params: Arc<Vec<Expr>>,
    /// The text of the statements, for errors.
    pub text: Arc<str>,
    pub memory_bytes: usize,
    /// Whether statements may use files.
    pub reads_files: bool,
    /// Whether a statement's changes are made together.
    pub is_atomic: bool,
    /// What takes the statement's changes instead of the store.
    pub transaction: Option<Arc<Transaction>>,
}

impl Runner {
    /// Starts a statement that reads.
    ///
    /// # Errors
    /// It cannot be planned, or changes something.
    pub async fn run(&self, mut statement: Statement) -> Result<(SendableRecordBatchStream, SchemaRef), SqlError> {
        if let Statement::Statement(inner) = &statement
            && let SqlStatement::ExplainTable { table_name, .. } = &**inner
        {
            let name = self.table_name(table_name)?;
            let Some(table) = self.catalog.columns_of(&name)? else {
                return Err(Error::UnknownDataset { name, existing: self.store.dataset_names() }.into());
            };
            statement = description(&table)?;
        }
        let context = self.context(&statement);
        prepare(&mut statement, &self.names(), Some(&self.params))?;
        let failed = |error| SqlError::planning(&error, &self.text);
        let plan: LogicalPlan = context.state().statement_to_plan(statement).await.map_err(failed)?;
        let options = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false);
        options.verify_plan(&plan).map_err(failed)?;
        let frame = context.execute_logical_plan(plan).await.map_err(failed)?;
        let (state, plan) = frame.into_parts();
        let plan = state.create_physical_plan(&plan).await.map_err(failed)?;
        let schema = plan.schema();
        let stream = execute_stream(plan, state.task_ctx());
        stream.map(|stream| (stream, schema)).map_err(|error| SqlError::execution(&error, self.memory_bytes))
    }

    fn names(&self) -> Names {
        let catalog = self.catalog.clone();
        let columns = Box::new(move |table: &str| catalog.columns(table));
        Names { tables: self.catalog.table_names(), columns }
    }

    /// The plan of a query whose parameters stay open, made as for the values; `None` if each
    /// execution has to plan the query. Errors are left to such a plan too.
    pub async fn keep(&self, query: SqlStatement, values: &Arc<[ScalarValue]>) -> Option<KeptPlan> {
        let runner = Self { catalog: self.catalog.open(values.clone()), ..self.clone() };
        let mut statement = Statement::Statement(Box::new(query));
        let context = runner.context(&statement);
        prepare(&mut statement, &runner.names(), None).ok()?;
        let Statement::Statement(query) = statement else { return None };
        let declared = Statement::Statement(Box::new(declared(*query, values)?));
        let state = context.state();
        let plan = match state.statement_to_plan(declared).await.ok()? {
            LogicalPlan::Statement(PlanStatement::Prepare(prepare)) => Arc::unwrap_or_clone(prepare.input),
            _ => return None,
        };
        let plan = typed(plan, values).ok()??;
        let plan = open_parameters(state.optimize(&plan).ok()?).ok()?;
        let plan = state.query_planner().create_physical_plan(&plan, &state).await.ok()?;
        KeptPlan::new(plan, runner.catalog.schemas(), self.store.dataset_names(), state.task_ctx())
    }

    /// Whether all rows of a statement are written together.
    pub fn is_whole(&self) -> bool {
        self.is_atomic || self.transaction.is_some()
    }

    /// A context with the tables of this statement: other threads use the session meanwhile. What
    /// sets something has the session's own.
    fn context(&self, statement: &Statement) -> SessionContext {
        let sets = match statement {
            Statement::Statement(inner) => matches!(**inner, SqlStatement::Set(_)),
            other => matches!(other, Statement::Reset(_)),
        };
        if sets {
            return self.session.clone();
        }
        let catalogs = MemoryCatalogProviderList::new();
        catalogs.register_catalog(CATALOG.to_owned(), Arc::new(self.catalog.clone()));
        let mut state = self.session.state();
        state.register_catalog_list(Arc::new(catalogs));
        SessionContext::new_with_state(state)
    }

    /// Starts a query.
    ///
    /// # Errors
    /// Those of [`Self::run`].
    pub async fn query(&self, query: Query) -> Result<(SendableRecordBatchStream, SchemaRef), SqlError> {
        self.run(Statement::Statement(Box::new(SqlStatement::Query(Box::new(query))))).await
    }

    /// The same statement on the newest state.
    pub fn renewed(&self) -> Self {
        Self { catalog: self.catalog.renewed(), ..self.clone() }
    }

    /// Adds a table of batches for the queries of the statement. Any of its values may be null.
    ///
    /// # Errors
    /// The batches do not have the schema.
    pub fn add_table(&self, name: &str, schema: &Schema, batches: &[RecordBatch]) -> Result<(), SqlError> {
        let failed = |error| SqlError::planning(&error, &self.text);
        let fields = schema.fields().iter().map(|field| Field::clone(field).with_nullable(true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let batch = |batch: &RecordBatch| {
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            RecordBatch::try_new_with_options(schema.clone(), batch.columns().to_vec(), &options)
        };
        let batches = batches.iter().map(batch).collect::<Result<Vec<_>, _>>();
        let batches = batches.map_err(|error| failed(error.into()))?;
        let table = MemTable::try_new(schema.clone(), vec![batches]).map_err(failed)?;
        self.catalog.add(name, Arc::new(table));
        Ok(())
    }

    /// Memory that the statement takes beside its plans, from what all of them share.
    pub fn memory(&self, what: &str) -> Memory {
        Memory::new(&self.session.runtime_env().memory_pool, self.memory_bytes, what)
    }

    /// The dataset that a name means.
    ///
    /// # Errors
    /// The name has several parts.
    pub fn table_name(&self, name: &ObjectName) -> Result<String, SqlError> {
        let [ObjectNamePart::Identifier(name)] = name.0.as_slice() else {
            return Err(SqlError::refused(format!("{name} is not the name of a table")));
        };
        let names = self.store.dataset_names();
        Ok(match name.quote_style {
            Some(_) => name.value.clone(),
            None => found(&names, &name.value).cloned().unwrap_or_else(|| name.value.clone()),
        })
    }
}

/// Memory for rows or keys that are kept, until it is dropped.
pub(crate) struct Memory {
    reservation: MemoryReservation,
    bytes: usize,
}

impl Memory {
    /// Memory for a purpose, of a pool that has some bytes.
    pub fn new(pool: &Arc<dyn MemoryPool>, bytes: usize, what: &str) -> Self {
        Self { reservation: MemoryConsumer::new(what).register(pool), bytes }
    }

    /// Takes more bytes.
    ///
    /// # Errors
    /// [`SqlError::Memory`].
    pub fn take(&self, bytes: usize) -> Result<(), SqlError> {
        self.reservation.try_grow(bytes).map_err(|error| SqlError::execution(&error, self.bytes))
    }
}
