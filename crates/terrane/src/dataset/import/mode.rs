//! What an import does where its dataset exists, and where it does not.

use std::sync::Arc;

use terrane_lsm::manifest::DatasetState;
use terrane_storage::sync::RwLockWriteGuard;

use crate::engine::{DatasetHandle, Engine};
use crate::options::DatasetOptions;
use crate::schema::Schema;
use crate::secondary::IndexDefinition;
use crate::{Error, Result};

/// What becomes of the records that a dataset has when others are imported into it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImportMode {
    /// They stay, and rows with their keys are refused. Where there is no dataset, it is made.
    #[default]
    CreateOrAppend,
    /// There are none: the import makes the dataset, and is refused if there is one.
    Create,
    /// They stay, and rows with their keys are refused. Where there is no dataset, the import is refused.
    Append,
    /// Those whose keys are imported are replaced, and the others stay. Where there is no dataset, it is made.
    Upsert,
    /// All go, and with them their schema and the positions of feeds. The number of partitions, the merge policy and the
    /// definitions of indexes stay. Where there is no dataset, it is made.
    Replace,
}

impl ImportMode {
    /// Refuses a mode that does not fit what there is.
    pub(crate) fn check(self, engine: &Engine, name: &str) -> Result<()> {
        match (self, engine.datasets.get(name)) {
            (Self::Create, Ok(_)) => {
                Err(Error::usage(format!("dataset {name:?} exists already, and the import was to create it")))
            }
            (Self::Append, Err(unknown)) => Err(unknown),
            (Self::Upsert, Ok(dataset)) => check_key(&dataset.schema()),
            _ => Ok(()),
        }
    }
}

/// Refuses an upsert of records that nothing tells apart.
fn check_key(schema: &Schema) -> Result<()> {
    match schema.key.generated {
        true => Err(Error::usage("an upsert replaces records by their keys, and these have none but row numbers")),
        false => Ok(()),
    }
}

/// The dataset that an import loads.
pub(super) struct Target {
    pub handle: Arc<DatasetHandle>,
    /// What the manifest will say of it, if it is new.
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

/// A dataset whose place an import takes.
#[derive(Debug)]
pub(super) struct Replaced {
    pub handle: Arc<DatasetHandle>,
    /// Its indexes when the import was begun, whose definitions the new one has.
    indexes: Vec<IndexDefinition>,
}

impl Replaced {
    fn new(handle: Arc<DatasetHandle>) -> Self {
        let indexes = handle.indexes.load().definitions();
        Self { handle, indexes }
    }

    /// Keeps writers out of it, if its indexes are what they were. To be called with `catalog_changes` held.
    pub fn exclude(&self) -> Result<RwLockWriteGuard<'_, ()>> {
        let gate = self.handle.exclude()?;
        match self.handle.indexes.load().definitions() == self.indexes {
            true => Ok(gate),
            false => Err(Error::refused("the indexes of the dataset were changed meanwhile; start again")),
        }
    }
}
