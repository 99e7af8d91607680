//! The indexes of a dataset: what each holds of a record, and how they come and go.
//!
//! Every index but the primary is a function of the records: [`Content`] says which entries a
//! record has. Writers, bulk loads and checks ask it, so that they cannot disagree.

mod attributes;
mod definition;
mod entries;
mod options;
mod stop_words;
mod times;

use std::sync::Arc;

use arc_swap::ArcSwap;
use serde::Deserialize;
use terrane_lsm::curve::CurveOptions;
use terrane_lsm::index::{BTreeIndex, CurveIndex, Index, RTreeIndex, SpatialIndex};
use terrane_lsm::partition::NumberedIndex;

pub(crate) use attributes::{
    decode as decode_attribute, encode as encode_attribute, is_told_apart as is_word_told_apart,
    shortened as shortened_word, split as split_attributes,
};
pub use definition::IndexKind;
pub(crate) use definition::{IndexDefinition, PRIMARY, SPATIAL};
pub(crate) use entries::{Content, Side, add_operations, box_entry, copies_bytes};
pub use options::IndexOptions;
pub use stop_words::StopWords;
pub(crate) use times::StoredTimes;

use crate::schema::{Schema, SchemaHistory};
use crate::{Error, Result};

/// An index of a dataset that is open.
#[derive(Clone, Debug)]
pub(crate) struct DatasetIndex {
    pub definition: IndexDefinition,
    pub content: Content,
    /// Files the boxes, of a spatial kind.
    pub spatial: Option<Arc<dyn SpatialIndex>>,
    /// Finds the times of records, of the primary.
    times: Option<Arc<StoredTimes>>,
}

impl DatasetIndex {
    /// Resolves a definition by the newest schema.
    pub fn open(definition: IndexDefinition, history: &Arc<ArcSwap<SchemaHistory>>) -> Result<Self> {
        let times = (definition.id == PRIMARY).then(|| Arc::new(StoredTimes::new(history.clone())));
        let history = &**history.load();
        let content = Content::of(&definition, history)?;
        let spatial = match content {
            Content::Boxes => Some(spatial_index(&definition, history.newest())?),
            Content::Records | Content::Attributes(_) | Content::Words { .. } => None,
        };
        Ok(Self { definition, content, spatial, times })
    }

    /// As [`Content::visit_entries`]; says which index it is that cannot hold a record, and what
    /// can be done.
    pub fn visit_entries(
        &self,
        history: &SchemaHistory,
        key: &[u8],
        stored: &[u8],
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.content.visit_entries(history, key, stored, visit).map_err(|error| match error {
            Error::Refused { row, column, reason } => {
                let name = &self.definition.name;
                Error::Refused {
                    row,
                    column,
                    reason: format!("{reason}; make it shorter, or do without the index {name:?}"),
                }
            }
            error => error,
        })
    }

    /// The entries of a stored record; none of no record.
    fn entries(&self, history: &SchemaHistory, key: &[u8], stored: Option<&[u8]>) -> Result<Vec<Vec<u8>>> {
        let mut entries = Vec::new();
        if let Some(stored) = stored {
            self.visit_entries(history, key, stored, &mut |entry| {
                entries.push(entry.to_vec());
                Ok(())
            })?;
        }
        Ok(entries)
    }

    /// Calls `visit` with the entries that a change of a record takes away and those that it
    /// brings, and which of both each is: true of those that go. An entry that stays what it is
    /// needs neither anti-matter nor a copy. Not of boxes.
    pub fn visit_changes(
        &self,
        history: &SchemaHistory,
        key: &[u8],
        (old, new): (Option<&[u8]>, Option<&[u8]>),
        visit: &mut dyn FnMut(&[u8], bool) -> Result<()>,
    ) -> Result<()> {
        if let (None, Some(stored)) = (old, new) {
            return self.visit_entries(history, key, stored, &mut |entry| visit(entry, false));
        }
        let (before, after) = (self.entries(history, key, old)?, self.entries(history, key, new)?);
        // Both ascend.
        let is_missing_in = |entries: &[Vec<u8>], entry: &&Vec<u8>| entries.binary_search(entry).is_err();
        before.iter().filter(|entry| is_missing_in(&after, entry)).try_for_each(|entry| visit(entry, true))?;
        after.iter().filter(|entry| is_missing_in(&before, entry)).try_for_each(|entry| visit(entry, false))
    }

    /// The index object of the framework.
    pub fn numbered(&self) -> NumberedIndex {
        let index: Arc<dyn Index> = match &self.spatial {
            Some(index) => index.clone(),
            None => match &self.times {
                Some(times) => Arc::new(primary_index(times.clone())),
                None => Arc::new(BTreeIndex::default()),
            },
        };
        NumberedIndex { id: self.definition.id, index }
    }
}

/// The index object of a primary.
pub(crate) fn primary_index(times: Arc<StoredTimes>) -> BTreeIndex {
    BTreeIndex { is_sought: true, times: Some(times) }
}

/// What files the boxes of an index of a spatial kind.
///
/// # Errors
/// Options in the catalog that are not those of the kind, or that are not possible.
fn spatial_index(definition: &IndexDefinition, schema: &Schema) -> Result<Arc<dyn SpatialIndex>> {
    let (name, kind, points) = (&definition.name, &definition.kind, schema.holds_points());
    let damaged = |reason: String| {
        Error::damaged("MANIFEST", 0, format!("the options of the index {name:?}, of kind {kind}: {reason}"))
    };
    match &definition.options {
        None if kind == IndexKind::RTree.name() => Ok(Arc::new(RTreeIndex { system: schema.system, points })),
        None => Err(damaged("they are missing".into())),
        Some(options) => {
            let options = CurveOptions::deserialize(options).map_err(|error| damaged(error.to_string()))?;
            if options.kind() != kind {
                return Err(damaged(format!("they are those of kind {}", options.kind())));
            }
            let index = CurveIndex::new(&options, schema.system, points);
            index.map(|index| Arc::new(index) as _).map_err(|error| damaged(error.to_string()))
        }
    }
}

/// The indexes of a dataset by their slots in its partition, where those that were dropped leave
/// gaps.
#[derive(Clone, Debug)]
pub(crate) struct Indexes(Vec<Option<Arc<DatasetIndex>>>);

impl Indexes {
    /// Resolves the definitions of a catalog, which have no gaps.
    pub fn open(definitions: Vec<IndexDefinition>, history: &Arc<ArcSwap<SchemaHistory>>) -> Result<Self> {
        let ids: Vec<u32> = definitions.iter().map(|definition| definition.id).collect();
        if !ids.starts_with(&[PRIMARY, SPATIAL]) || !ids.is_sorted_by(|id, next| id < next) {
            let reason = format!(
                "a catalog has the indexes {ids:?}; there have to be {PRIMARY}, {SPATIAL}, and others above these, in order"
            );
            return Err(Error::damaged("MANIFEST", 0, reason));
        }
        let open = |definition| Ok(Some(Arc::new(DatasetIndex::open(definition, history)?)));
        definitions.into_iter().map(open).collect::<Result<_>>().map(Self)
    }

    /// The indexes that there are, with their slots.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Arc<DatasetIndex>)> {
        self.0.iter().enumerate().filter_map(|(slot, index)| Some((slot, index.as_ref()?)))
    }

    /// As [`Self::iter`], without the primary.
    pub fn secondaries(&self) -> impl Iterator<Item = (usize, &Arc<DatasetIndex>)> {
        self.iter().filter(|(_, index)| index.definition.id != PRIMARY)
    }

    /// The index at a slot.
    pub fn get(&self, slot: usize) -> Option<&Arc<DatasetIndex>> {
        self.0.get(slot)?.as_ref()
    }

    /// The index of a name, and its slot.
    pub fn find(&self, name: &str) -> Option<(usize, &Arc<DatasetIndex>)> {
        self.iter().find(|(_, index)| index.definition.name == name)
    }

    /// Its name, for messages.
    pub fn name(&self, slot: usize) -> &str {
        self.get(slot).map_or("dropped", |index| &index.definition.name)
    }

    /// What the catalog says of them.
    pub fn definitions(&self) -> Vec<IndexDefinition> {
        self.iter().map(|(_, index)| index.definition.clone()).collect()
    }

    /// These and one more.
    pub fn with(&self, index: Arc<DatasetIndex>) -> Self {
        let mut slots = self.0.clone();
        slots.push(Some(index));
        Self(slots)
    }

    /// These without the one at a slot.
    pub fn without(&self, slot: usize) -> Self {
        let mut slots = self.0.clone();
        slots[slot] = None;
        Self(slots)
    }

    /// These after a column got another name.
    pub fn renamed(&self, from: &str, to: &str) -> Self {
        let renamed = |index: &Option<Arc<DatasetIndex>>| {
            let mut index = index.clone()?;
            if index.definition.columns.iter().any(|column| column == from) {
                let columns = &mut Arc::make_mut(&mut index).definition.columns;
                columns.iter_mut().filter(|column| *column == from).for_each(|column| to.clone_into(column));
            }
            Some(index)
        };
        Self(self.0.iter().map(renamed).collect())
    }

    /// The names of those that are on a column.
    pub fn on<'i>(&'i self, column: &'i str) -> impl Iterator<Item = &'i str> {
        let is_on = move |index: &&Arc<DatasetIndex>| index.definition.columns.iter().any(|name| name == column);
        self.iter().map(|(_, index)| index).filter(is_on).map(|index| index.definition.name.as_str())
    }

    /// The error of a name that no index has.
    pub fn unknown(&self, dataset: &str, name: &str) -> Error {
        let names: Vec<&str> = self.iter().map(|(_, index)| index.definition.name.as_str()).collect();
        Error::usage(format!("dataset {dataset:?} has no index {name:?}; it has {}", names.join(", ")))
    }
}

#[cfg(test)]
#[path = "filters_tests.rs"]
mod filters_tests;
