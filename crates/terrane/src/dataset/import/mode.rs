//! Import modes: what an import does if its dataset exists, and if it does not.

use std::sync::Arc;

use terrane_lsm::manifest::DatasetState;
use terrane_storage::sync::RwLockWriteGuard;

use crate::engine::{DatasetHandle, Engine};
use crate::options::DatasetOptions;
use crate::schema::Schema;
use crate::secondary::IndexDefinition;
use crate::{Error, Result};

/// What happens to the records of an existing dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImportMode {
    /// Existing records stay, and rows with their keys are refused. A missing dataset is created.
    #[default]
    CreateOrAppend,
    /// Creates the dataset. Refused if it exists.
    Create,
    /// Existing records stay, and rows with their keys are refused. Refused if the dataset does not
    /// exist.
    Append,
    /// Rows replace existing records with the same keys. The others stay. A missing dataset is
    /// created.
    Upsert,
    /// Removes all existing records, their schema and the positions of feeds. The number of
    /// partitions, the merge policy and the definitions of indexes stay. A missing dataset is
    /// created.
    Replace,
}

impl ImportMode {
    /// Refuses a mode that does not fit the store.
    pub(crate) fn check(self, engine: &Engine, name: &str) -> Result<()> {
        match (self, engine.datasets.get(name)) {
            (Self::Create, Ok(_)) => {
                Err(Error::usage(format!("dataset {name:?} exists already, and this import creates a dataset")))
            }
            (Self::Append, Err(unknown)) => Err(unknown),
            (Self::Upsert, Ok(dataset)) => check_key(&dataset.schema()),
            _ => Ok(()),
        }
    }
}

/// Refuses an upsert of records without keys of their own.
fn check_key(schema: &Schema) -> Result<()> {
    match schema.key.generated {
        true => Err(Error::usage("an upsert replaces records by their keys, but these records have only row numbers")),
        false => Ok(()),
    }
}

/// The dataset that an import loads.
pub(super) struct Target {
    pub handle: Arc<DatasetHandle>,
    /// Its entry in the manifest, if it is new.
    pub created: Option<DatasetState>,
    pub replaced: Option<Replaced>,
}

impl Target {
    pub fn of(engine: &Engine, name: &str, schema: Schema, options: &DatasetOptions, mode: ImportMode) -> Result<Self> {
        mode.check(engine, name)?;
        let existing = engine.datasets.load().get(name).cloned();
        let (state, replaced) = match existing {
            Some(old) if mode == ImportMode::Replace => {
                (engine.catalog.describe_successor(&old, schema)?, Some(Replaced::new(old)))
            }
            Some(handle) => return Ok(Self { handle, created: None, replaced: None }),
            None => {
                if mode == ImportMode::Upsert {
                    check_key(&schema)?;
                }
                (engine.catalog.describe_new(name, schema, options)?, None)
            }
        };
        let handle = engine.catalog.open(&state)?;
        Ok(Self { handle, created: Some(state), replaced })
    }
}

/// A dataset that an import replaces.
#[derive(Debug)]
pub(super) struct Replaced {
    pub handle: Arc<DatasetHandle>,
    /// Its indexes when the import was begun. The new dataset gets their definitions.
    indexes: Vec<IndexDefinition>,
}

impl Replaced {
    fn new(handle: Arc<DatasetHandle>) -> Self {
        let indexes = handle.indexes.load().definitions();
        Self { handle, indexes }
    }

    /// Keeps writers out of it, if its indexes are unchanged. The catalog's lock must be held.
    pub fn exclude(&self) -> Result<RwLockWriteGuard<'_, ()>> {
        let gate = self.handle.exclude()?;
        match self.handle.indexes.load().definitions() == self.indexes {
            true => Ok(gate),
            false => Err(Error::refused("the indexes of the dataset were changed meanwhile; start again")),
        }
    }
}
