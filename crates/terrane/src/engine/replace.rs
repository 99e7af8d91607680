//! What a dataset takes over from one whose place it takes.

use std::sync::Arc;

use terrane_lsm::manifest::DatasetState;
use terrane_storage::sync::Ordering;

use super::catalog::Catalog;
use super::{DatasetHandle, Engine};
use crate::feed::FeedDefinition;
use crate::schema::Schema;
use crate::secondary::{PRIMARY, SPATIAL};
use crate::{Error, Result};

impl Engine {
    /// Describes the dataset of another schema that is to take the place of one: with an id of its own, as many
    /// partitions, and the same indexes.
    ///
    /// # Errors
    /// An index that the new schema does not allow, by its name.
    pub fn successor(&self, old: &DatasetHandle, schema: Schema) -> Result<DatasetState> {
        let mut catalog = Catalog::new(schema)?;
        let schema = catalog.history.newest().clone();
        let definitions = old.indexes.load().definitions();
        let added = definitions.iter().filter(|definition| !matches!(definition.id, PRIMARY | SPATIAL));
        for definition in added {
            catalog.indexes.push(definition.carried_to(&schema).map_err(|reason| {
                let (index, dataset) = (&definition.name, &old.name);
                Error::usage(format!(
                    "the index {index:?} of dataset {dataset:?} cannot be kept: {reason}; drop it first, or import into \
                     another dataset"
                ))
            })?);
        }
        catalog.next_index = old.next_index.load(Ordering::Relaxed);
        self.describe(&old.name, &catalog, old.partitions.count())
    }
}

impl DatasetHandle {
    /// Takes over what can change until the last moment: the merge policy, and the feeds, which begin anew. To be called
    /// with `catalog_changes` held.
    pub fn inherit(&self, old: &Self) {
        self.merge_policy.store(old.merge_policy.load_full());
        let anew = |feed: &FeedDefinition| FeedDefinition { source: None, begun_at: 0, ..feed.clone() };
        self.feeds.store(Arc::new(old.feeds.load().iter().map(anew).collect()));
        self.next_feed.store(old.next_feed.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}
