//! The indexes of a dataset: what each holds of a record, and how they come and go.
//!
//! Every index but the primary is a function of the records: [`Content`] says which entries a record has. Writers, bulk
//! loads and checks ask it, so that they cannot disagree.

mod attributes;
mod build;
mod definition;
mod entries;

use std::sync::Arc;

use terrane_lsm::index::{BTreeIndex, Index, RTreeIndex};
use terrane_lsm::partition::NumberedIndex;

pub(crate) use attributes::{encode as encode_attribute, shortened as shortened_word, split as split_attributes};
pub(crate) use build::has_unbuilt;
pub use definition::IndexKind;
pub(crate) use definition::{IndexDefinition, PRIMARY, SPATIAL};
pub(crate) use entries::{Content, Side, add_operations, box_entry};

use crate::query::holds_points;
use crate::schema::Schema;
use crate::{Error, Result};

/// An index of a dataset that is open.
#[derive(Debug)]
pub(crate) struct DatasetIndex {
    pub definition: IndexDefinition,
    pub content: Content,
}

impl DatasetIndex {
    /// Resolves a definition by the newest schema.
    pub fn open(definition: IndexDefinition, schema: &Schema) -> Result<Self> {
        let content = Content::of(&definition, schema)?;
        Ok(Self { definition, content })
    }

    /// The index object of the framework.
    pub fn numbered(&self, schema: &Schema) -> NumberedIndex {
        let index: Arc<dyn Index> = match self.content {
            Content::Records | Content::Attributes(_) | Content::Words(_) => Arc::new(BTreeIndex),
            Content::Boxes => Arc::new(RTreeIndex { system: schema.system, points: holds_points(schema) }),
        };
        NumberedIndex { id: self.definition.id, index }
    }
}

/// The indexes of a dataset by their places in its partition, where those that were dropped leave gaps.
#[derive(Clone, Debug)]
pub(crate) struct Indexes(Vec<Option<Arc<DatasetIndex>>>);

impl Indexes {
    /// Resolves the definitions of a catalog, which have no gaps.
    pub fn open(definitions: Vec<IndexDefinition>, schema: &Schema) -> Result<Self> {
        let open = |definition| Ok(Some(Arc::new(DatasetIndex::open(definition, schema)?)));
        definitions.into_iter().map(open).collect::<Result<_>>().map(Self)
    }

    /// The indexes that there are, with their places.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Arc<DatasetIndex>)> {
        self.0.iter().enumerate().filter_map(|(place, index)| Some((place, index.as_ref()?)))
    }

    /// As [`Self::iter`], without the primary.
    pub fn secondaries(&self) -> impl Iterator<Item = (usize, &Arc<DatasetIndex>)> {
        self.iter().filter(|(_, index)| index.definition.id != PRIMARY)
    }

    /// The index at a place.
    pub fn get(&self, place: usize) -> Option<&Arc<DatasetIndex>> {
        self.0.get(place)?.as_ref()
    }

    /// The index of a name, and its place.
    pub fn find(&self, name: &str) -> Option<(usize, &Arc<DatasetIndex>)> {
        self.iter().find(|(_, index)| index.definition.name == name)
    }

    /// Its name, for messages.
    pub fn name(&self, place: usize) -> &str {
        self.get(place).map_or("dropped", |index| &index.definition.name)
    }

    /// What the catalog says of them.
    pub fn definitions(&self) -> Vec<IndexDefinition> {
        self.iter().map(|(_, index)| index.definition.clone()).collect()
    }

    /// These and one more.
    pub fn with(&self, index: Arc<DatasetIndex>) -> Self {
        let mut places = self.0.clone();
        places.push(Some(index));
        Self(places)
    }

    /// These without the one at a place.
    pub fn without(&self, place: usize) -> Self {
        let mut places = self.0.clone();
        places[place] = None;
        Self(places)
    }

    /// The error of a name that no index has.
    pub fn unknown(&self, dataset: &str, name: &str) -> Error {
        let names: Vec<&str> = self.iter().map(|(_, index)| index.definition.name.as_str()).collect();
        Error::usage(format!("dataset {dataset:?} has no index {name:?}; it has {}", names.join(", ")))
    }
}
