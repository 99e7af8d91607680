//! The queries of one statement: all read the same state.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{Field, Schema, SchemaRef};
use datafusion::datasource::MemTable;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::{SQLOptions, SessionContext};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Expr, ObjectName, ObjectNamePart, Query, Statement as SqlStatement};
use terrane::Store;

use crate::catalog::{CATALOG, StatementCatalog};
use crate::error::SqlError;
use crate::statement::{Names, found, prepare};

/// Plans and runs the queries of a statement.
#[derive(Clone)]
pub(crate) struct Runner {
    pub store: Arc<Store>,
    /// The tables, each in one state.
    pub catalog: StatementCatalog,
    pub context: SessionContext,
    /// The values of the parameters.
    pub params: Arc<Vec<Expr>>,
    /// The text of the statements, for errors.
    pub text: Arc<str>,
    pub memory_bytes: usize,
    /// Whether statements may use files.
    pub reads_files: bool,
    /// Whether a statement's changes are made together.
    pub is_atomic: bool,
}

impl Runner {
    /// Starts a statement that reads.
    ///
    /// # Errors
    /// It cannot be planned, or changes something.
    pub async fn run(&self, mut statement: Statement) -> Result<(SendableRecordBatchStream, SchemaRef), SqlError> {
        self.context.register_catalog(CATALOG, Arc::new(self.catalog.clone()));
        let catalog = self.catalog.clone();
        let columns = Box::new(move |table: &str| catalog.columns(table));
        prepare(&mut statement, &Names { tables: self.catalog.table_names(), columns }, &self.params)?;
        let failed = |error| SqlError::planning(&error, &self.text);
        let plan: LogicalPlan = self.context.state().statement_to_plan(statement).await.map_err(failed)?;
        let options = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false);
        options.verify_plan(&plan).map_err(failed)?;
        let frame = self.context.execute_logical_plan(plan).await.map_err(failed)?;
        let (state, plan) = frame.into_parts();
        let plan = state.create_physical_plan(&plan).await.map_err(failed)?;
        let schema = plan.schema();
        let stream = execute_stream(plan, state.task_ctx());
        stream.map(|stream| (stream, schema)).map_err(|error| SqlError::execution(&error, self.memory_bytes))
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

    /// Refuses to keep more rows than the memory of the session holds.
    ///
    /// # Errors
    /// [`SqlError::Memory`].
    pub fn check_memory(&self, bytes: usize) -> Result<(), SqlError> {
        match bytes <= self.memory_bytes {
            true => Ok(()),
            false => Err(SqlError::Memory {
                reason: "an atomic statement keeps all its rows; SET terrane.atomic = false".to_owned(),
                bytes: self.memory_bytes,
            }),
        }
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
