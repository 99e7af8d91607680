//! The catalog of one statement: the datasets of the store, each at one moment, and files.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::error::{DataFusionError, Result};
use terrane::Store;

use crate::error::SqlError;
use crate::files::{FileTable, is_file_name};
use crate::table::DatasetTable;

/// Name of the catalog.
pub(crate) const CATALOG: &str = "terrane";
/// Name of its only schema.
pub(crate) const SCHEMA: &str = "public";

/// The catalog of a statement.
#[derive(Clone, Debug)]
pub(crate) struct StatementCatalog(Arc<Tables>);

impl StatementCatalog {
    pub fn new(store: Arc<Store>, pushes_down: bool, reads_files: bool) -> Self {
        Self(Arc::new(Tables { store, pushes_down, reads_files, tables: Mutex::default() }))
    }

    /// The same tables in their newest state.
    pub fn renewed(&self) -> Self {
        let Tables { store, pushes_down, reads_files, .. } = &*self.0;
        Self::new(store.clone(), *pushes_down, *reads_files)
    }

    /// Adds a table, in place of one that has its name.
    pub fn add(&self, name: &str, table: Arc<dyn TableProvider>) {
        self.0.tables.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), table);
    }

    /// The names of datasets and added tables.
    pub fn table_names(&self) -> Vec<String> {
        let mut names = self.0.store.dataset_names();
        let tables = self.0.tables.lock().unwrap_or_else(PoisonError::into_inner);
        names.extend(tables.keys().filter(|name| !self.0.is_dataset(name)).cloned());
        names
    }

    /// The state of a dataset that the statement reads.
    ///
    /// # Errors
    /// There is no such dataset.
    pub fn dataset(&self, name: &str) -> Result<DatasetTable, SqlError> {
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

    /// The names of a table's columns; none if there is no such table.
    pub fn columns(&self, table: &str) -> Vec<String> {
        let Ok(Some(table)) = self.0.find(table) else { return Vec::new() };
        table.schema().fields().iter().map(|field| field.name().clone()).collect()
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
    pushes_down: bool,
    reads_files: bool,
    tables: Mutex<HashMap<String, Arc<dyn TableProvider>>>,
}

impl Tables {
    fn is_dataset(&self, name: &str) -> bool {
        self.store.dataset_names().iter().any(|dataset| dataset == name)
    }

    fn find(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = tables.get(name) {
            return Ok(Some(table.clone()));
        }
        let table: Arc<dyn TableProvider> = if self.is_dataset(name) {
            let dataset = self.store.dataset(name).map_err(|error| DataFusionError::External(Box::new(error)))?;
            Arc::new(DatasetTable::new(name.to_owned(), dataset.snapshot(), self.pushes_down))
        } else if self.reads_files && is_file_name(name) {
            Arc::new(FileTable::open(Path::new(name))?)
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
        self.find(name)
    }

    fn table_exist(&self, name: &str) -> bool {
        self.is_dataset(name) || self.reads_files && is_file_name(name)
    }
}
