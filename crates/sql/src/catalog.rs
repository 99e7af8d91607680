//! The catalog of one statement: the datasets of the store, each at one moment, tables of the
//! caller, and files.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_schema::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::{DataFusionError, Result};
use terrane::schema::Schema;
use terrane::{Snapshot, Store};

use crate::error::SqlError;
use crate::files::{CallerTables, file_table, is_file_name};
use crate::statement::found;
use crate::table::DatasetTable;

/// Name of the catalog.
pub(crate) const CATALOG: &str = "terrane";
/// Name of its only schema.
pub(crate) const SCHEMA: &str = "public";

/// What a catalog shows.
#[derive(Clone, Debug)]
pub(crate) struct CatalogOptions {
    pub pushes_down: bool,
    pub reads_files: bool,
    /// The tables of the caller.
    pub callers: Arc<CallerTables>,
    /// A table whose changes wait for the end of a transaction.
    pub unreadable: Option<String>,
    /// The datasets of the statement, whose states are of one moment.
    pub datasets: Vec<String>,
    /// Values for which plans are made whose parameters stay open.
    pub values: Option<Arc<[ScalarValue]>>,
}

/// The catalog of a statement.
#[derive(Clone, Debug)]
pub(crate) struct StatementCatalog(Arc<Tables>);

impl StatementCatalog {
    pub fn new(store: Arc<Store>, options: CatalogOptions) -> Self {
        let tables = Tables { store, options, tables: Mutex::default() };
        tables.pin();
        Self(Arc::new(tables))
    }

    /// The same tables in their newest state.
    pub fn renewed(&self) -> Self {
        Self::new(self.0.store.clone(), self.0.options.clone())
    }

    /// The tables in their newest state, for a plan whose parameters stay open.
    pub fn open(&self, values: Arc<[ScalarValue]>) -> Self {
        Self::new(self.0.store.clone(), CatalogOptions { values: Some(values), ..self.0.options.clone() })
    }

    /// The statement's datasets with their schemas.
    pub fn schemas(&self) -> Vec<(String, Arc<Schema>)> {
        let schema = |name: &String| self.target(name).ok().map(|table| (name.clone(), table.snapshot().schema()));
        self.0.options.datasets.iter().filter_map(schema).collect()
    }

    /// Adds a table, in place of one that has its name.
    pub fn add(&self, name: &str, table: Arc<dyn TableProvider>) {
        self.0.tables.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), table);
    }

    /// The names of datasets, tables of the caller and added tables.
    pub fn table_names(&self) -> Vec<String> {
        let mut names = self.0.store.dataset_names();
        // A dataset is preferred, also if its name differs in upper and lower case.
        let callers: Vec<&String> =
            self.0.options.callers.keys().filter(|name| found(&names, name).is_none()).collect();
        names.extend(callers.into_iter().cloned());
        let tables = self.0.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let added = tables.keys().filter(|name| !names.contains(name)).cloned().collect::<Vec<_>>();
        names.extend(added);
        names
    }

    /// The state of a dataset that the statement changes.
    ///
    /// # Errors
    /// There is no such dataset.
    pub fn target(&self, name: &str) -> Result<DatasetTable, SqlError> {
        // Found as a table first, so that all queries of the statement read one state.
        let table = self.0.find(name).map_err(|error| SqlError::planning(&error, ""))?;
        match table.as_ref().and_then(|table| table.downcast_ref::<DatasetTable>()) {
            Some(table) => Ok(table.clone()),
            None => Err(SqlError::Store(terrane::Error::UnknownDataset {
                name: name.to_owned(),
                existing: self.0.store.dataset_names(),
            })),
        }
    }

    /// The columns of a table, if there is one.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn columns_of(&self, table: &str) -> Result<Option<SchemaRef>, SqlError> {
        let table = self.0.find(table).map_err(|error| SqlError::planning(&error, ""))?;
        Ok(table.map(|table| table.schema()))
    }

    /// The names of a table's columns; none if there is no such table.
    pub fn columns(&self, table: &str) -> Vec<String> {
        let Ok(Some(columns)) = self.columns_of(table) else { return Vec::new() };
        columns.fields().iter().map(|field| field.name().clone()).collect()
    }
}

impl CatalogProvider for StatementCatalog {
    fn schema_names(&self) -> Vec<String> {
        vec![SCHEMA.to_owned()]
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let tables: Arc<dyn SchemaProvider> = self.0.clone();
        (name == SCHEMA).then_some(tables)
    }
}

/// The tables. One that was used keeps its state for the whole statement.
#[derive(Debug)]
struct Tables {
    store: Arc<Store>,
    options: CatalogOptions,
    tables: Mutex<HashMap<String, Arc<dyn TableProvider>>>,
}

impl Tables {
    /// Takes the states of the statement's datasets at one moment. A dataset that is gone meanwhile
    /// is missed when it is looked for.
    fn pin(&self) {
        let names = &self.options.datasets;
        let Ok(snapshots) = self.store.snapshots(names) else { return };
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, snapshot) in names.iter().zip(snapshots) {
            tables.insert(name.clone(), Arc::new(self.table_of(name, snapshot)));
        }
    }

    fn table_of(&self, name: &str, snapshot: Snapshot) -> DatasetTable {
        let table = DatasetTable::new(name.to_owned(), snapshot, self.options.pushes_down);
        match &self.options.values {
            Some(values) => table.open(values.clone()),
            None => table,
        }
    }

    fn is_dataset(&self, name: &str) -> bool {
        self.store.dataset_names().iter().any(|dataset| dataset == name)
    }

    /// A table to read.
    fn read(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let found = self.find(name)?;
        // The rows of RETURNING stand under the same name.
        let is_dataset = found.as_ref().is_some_and(|table| table.downcast_ref::<DatasetTable>().is_some());
        if is_dataset && self.options.unreadable.as_deref() == Some(name) {
            return plan_err!("table {name:?} was changed in this transaction, and cannot be read before COMMIT");
        }
        Ok(found)
    }

    fn find(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = tables.get(name) {
            return Ok(Some(table.clone()));
        }
        let table: Arc<dyn TableProvider> = if self.is_dataset(name) {
            let dataset = self.store.dataset(name).map_err(|error| DataFusionError::External(Box::new(error)))?;
            Arc::new(self.table_of(name, dataset.snapshot()))
        } else if let Some(table) = self.options.callers.get(name) {
            Arc::new(table.table()?)
        } else if self.options.reads_files && is_file_name(name) {
            Arc::new(file_table(PathBuf::from(name))?)
        } else {
            return Ok(None);
        };
        tables.insert(name.to_owned(), table.clone());
        Ok(Some(table))
    }
}

#[async_trait]
impl SchemaProvider for Tables {
    fn table_names(&self) -> Vec<String> {
        self.store.dataset_names()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        self.read(name)
    }

    fn table_exist(&self, name: &str) -> bool {
        self.is_dataset(name)
            || self.options.callers.contains_key(name)
            || self.options.reads_files && is_file_name(name)
    }
}
