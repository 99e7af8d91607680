//! The catalog of one statement: the datasets of the store, each at one moment.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use datafusion::catalog::{CatalogProvider, SchemaProvider, TableProvider};
use datafusion::error::{DataFusionError, Result};
use terrane::Store;

use crate::table::DatasetTable;

/// Name of the catalog.
pub(crate) const CATALOG: &str = "terrane";
/// Name of its only schema.
pub(crate) const SCHEMA: &str = "public";

/// The catalog of a statement.
#[derive(Debug)]
pub(crate) struct StatementCatalog(Arc<Datasets>);

impl StatementCatalog {
    pub fn new(store: Arc<Store>, pushes_down: bool) -> Self {
        Self(Arc::new(Datasets { store, pushes_down, tables: Mutex::default() }))
    }
}

impl CatalogProvider for StatementCatalog {
    fn schema_names(&self) -> Vec<String> {
        vec![SCHEMA.to_owned()]
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let datasets: Arc<dyn SchemaProvider> = self.0.clone();
        (name == SCHEMA).then_some(datasets)
    }
}

/// The datasets as tables. A table that was used keeps its state for the whole statement.
#[derive(Debug)]
struct Datasets {
    store: Arc<Store>,
    pushes_down: bool,
    tables: Mutex<HashMap<String, Arc<dyn TableProvider>>>,
}

#[async_trait]
impl SchemaProvider for Datasets {
    fn table_names(&self) -> Vec<String> {
        self.store.dataset_names()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if !self.table_exist(name) {
            return Ok(None);
        }
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = tables.get(name) {
            return Ok(Some(table.clone()));
        }
        let dataset = self.store.dataset(name).map_err(|error| DataFusionError::External(Box::new(error)))?;
        let table: Arc<dyn TableProvider> =
            Arc::new(DatasetTable::new(name.to_owned(), dataset.snapshot(), self.pushes_down));
        tables.insert(name.to_owned(), table.clone());
        Ok(Some(table))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.store.dataset_names().iter().any(|dataset| dataset == name)
    }
}
