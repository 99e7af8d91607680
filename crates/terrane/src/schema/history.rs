//! All versions of a dataset's schema, and the layouts of their records.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Column, ColumnType, FIRST_VERSION, GeometryColumn, Schema, SchemaError};

/// Maximal number of changes of a schema. The manifest keeps each one for the dataset's lifetime.
pub const CHANGES_MAX: usize = 8192;

/// Number of an attribute in all versions that have it. No other attribute of the dataset gets it,
/// even after this one is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ColumnId(u32);

impl ColumnId {
    /// The attribute of a number that a component's statistics keep.
    pub(crate) fn of_number(number: u32) -> Self {
        Self(number)
    }

    /// The number itself.
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// Position of the attribute, unless an earlier one was dropped.
    pub(crate) fn likely_position(self) -> usize {
        self.0 as usize
    }
}

/// The versions of a schema, from the first to the newest. A change returns a new history. Existing
/// holders keep the old one, and both share layouts.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "StoredHistory", into = "StoredHistory")]
pub struct SchemaHistory {
    first: Schema,
    changes: Vec<Change>,
    newest: Arc<Schema>,
    layouts: Vec<Arc<Layout>>,
    /// Greater than the number of every attribute so far, including dropped ones.
    next_column: u32,
}

/// A change from one version to the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum Change {
    /// An attribute was appended.
    Add(Column),
    /// An int64 attribute became float64.
    Widen(String),
    /// A column of any role got another name.
    Rename { from: String, to: String },
    /// An attribute was dropped.
    Drop(String),
}

/// The history as the catalog stores it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredHistory {
    first: Schema,
    changes: Vec<Change>,
}

/// The layout of a version's attributes in a stored record, after the geometry: the null bitmap,
/// the slots, the end offsets of variable values, their bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    columns: Vec<StoredColumn>,
    slots_offset: usize,
    ends_offset: usize,
    bytes_offset: usize,
}

/// One attribute of a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredColumn {
    pub(crate) id: ColumnId,
    pub(crate) column_type: ColumnType,
    /// Byte offset of a fixed value within the slots, or the rank of a variable one.
    pub(crate) place: u32,
}

/// Bytes of a value's slot; `None` for text and binary data.
pub(crate) fn slot_bytes(column_type: ColumnType) -> Option<usize> {
    match column_type {
        ColumnType::Bool => Some(1),
        ColumnType::Date | ColumnType::Float32 => Some(4),
        ColumnType::Int64 | ColumnType::Float64 | ColumnType::Timestamp { .. } => Some(8),
        ColumnType::Uuid => Some(16),
        ColumnType::Utf8 | ColumnType::Binary => None,
    }
}

impl Layout {
    /// The layout for writing records with these attributes.
    pub fn new(columns: &[Column]) -> Self {
        Self::of((0..).map(ColumnId).zip(columns.iter().map(|column| column.column_type)))
    }

    /// The layout of records with attributes of these numbers, ascending, and types.
    fn of(columns: impl Iterator<Item = (ColumnId, ColumnType)>) -> Self {
        let mut slots = 0;
        let mut variables = 0;
        let stored: Vec<StoredColumn> = columns
            .map(|(id, column_type)| {
                let (counter, step) = match slot_bytes(column_type) {
                    Some(bytes) => (&mut slots, bytes),
                    None => (&mut variables, 1),
                };
                let place = *counter as u32;
                *counter += step;
                StoredColumn { id, column_type, place }
            })
            .collect();
        let slots_offset = stored.len().div_ceil(8);
        let ends_offset = slots_offset + slots;
        Self { columns: stored, slots_offset, ends_offset, bytes_offset: ends_offset + 4 * variables }
    }

    /// Number of attributes.
    pub fn columns(&self) -> usize {
        self.columns.len()
    }

    #[inline]
    pub(crate) fn column(&self, index: usize) -> Option<StoredColumn> {
        self.columns.get(index).copied()
    }

    /// Position of the attribute with a number. Tries `likely` first.
    #[inline]
    pub(crate) fn position(&self, id: ColumnId, likely: usize) -> Option<usize> {
        match self.columns.get(likely) {
            Some(column) if column.id == id => Some(likely),
            // Numbers ascend, because attributes are only appended.
            _ => self.columns.binary_search_by_key(&id, |column| column.id).ok(),
        }
    }

    /// Offset of the slots; the null bitmap is at 0.
    pub(crate) fn slots_offset(&self) -> usize {
        self.slots_offset
    }

    /// Offset of the end offsets.
    pub(crate) fn ends_offset(&self) -> usize {
        self.ends_offset
    }

    /// Offset of the bytes of variable values: the size of everything of fixed size.
    pub(crate) fn bytes_offset(&self) -> usize {
        self.bytes_offset
    }

    pub(crate) fn has_variables(&self) -> bool {
        self.bytes_offset > self.ends_offset
    }
}

impl SchemaHistory {
    /// A history of one version.
    pub fn new(schema: Schema) -> Result<Self, SchemaError> {
        schema.validate()?;
        if schema.version != FIRST_VERSION {
            return Err(SchemaError::Inconsistent(format!("the first version is {}", schema.version)));
        }
        let layouts = vec![Arc::new(Layout::new(&schema.columns))];
        let next_column = schema.columns.len() as u32;
        Ok(Self { newest: Arc::new(schema.clone()), first: schema, changes: Vec::new(), layouts, next_column })
    }

    /// The newest version.
    pub fn newest(&self) -> &Arc<Schema> {
        &self.newest
    }

    /// Number of versions.
    pub fn versions(&self) -> usize {
        self.layouts.len()
    }

    /// Layout of the newest version.
    pub fn newest_layout(&self) -> &Arc<Layout> {
        // A history has at least one version and only grows.
        &self.layouts[self.layouts.len() - 1]
    }

    /// Layout of records of a version; `None` if there is no such version.
    pub fn layout(&self, version: u32) -> Option<&Arc<Layout>> {
        self.layouts.get(version.checked_sub(FIRST_VERSION)? as usize)
    }

    /// The schema as it was in a version; `None` if there is no such version.
    pub fn schema(&self, version: u32) -> Option<Schema> {
        let steps = version.checked_sub(FIRST_VERSION)? as usize;
        let mut schema = self.first.clone();
        for change in self.changes.get(..steps)? {
            apply(&mut schema, change).ok()?;
        }
        Some(schema)
    }

    /// Appends an attribute; older records have null there.
    pub fn with_column(&self, column: Column) -> Result<Self, SchemaError> {
        self.with_change(Change::Add(column))
    }

    /// Makes an int64 attribute float64. Older records are converted when they are read. The caller
    /// has checked that no value changes.
    pub fn widen(&self, name: &str) -> Result<Self, SchemaError> {
        self.with_change(Change::Widen(name.to_owned()))
    }

    /// Renames a column: the key, a geometry column, or an attribute.
    pub fn rename(&self, from: &str, to: &str) -> Result<Self, SchemaError> {
        self.with_change(Change::Rename { from: from.to_owned(), to: to.to_owned() })
    }

    /// Drops an attribute. Its values in older records are never read again, not even by a later
    /// attribute of the same name.
    pub fn without_column(&self, name: &str) -> Result<Self, SchemaError> {
        self.with_change(Change::Drop(name.to_owned()))
    }

    /// The number of an attribute in the newest version.
    pub(crate) fn column_id(&self, name: &str) -> Option<ColumnId> {
        self.newest_layout().column(self.newest.column_index(name)?).map(|column| column.id)
    }

    /// The first timestamp attribute of the newest version.
    pub(crate) fn first_timestamp(&self) -> Option<ColumnId> {
        let mut columns = self.newest_layout().columns.iter();
        columns.find(|column| matches!(column.column_type, ColumnType::Timestamp { .. })).map(|column| column.id)
    }

    /// Position of an attribute in the newest version, if that has it.
    pub(crate) fn position(&self, id: ColumnId) -> Option<usize> {
        self.newest_layout().position(id, id.likely_position())
    }

    /// Number of renames and drops so far. While it is unchanged, names keep their meaning.
    pub(crate) fn renamings(&self) -> usize {
        self.changes.iter().filter(|change| matches!(change, Change::Rename { .. } | Change::Drop(_))).count()
    }

    /// Number of attributes widened to float64 so far.
    pub(crate) fn widenings(&self) -> usize {
        self.changes.iter().filter(|change| matches!(change, Change::Widen(_))).count()
    }

    fn with_change(&self, change: Change) -> Result<Self, SchemaError> {
        let mut history = self.clone();
        history.push(change)?;
        Ok(history)
    }

    fn push(&mut self, change: Change) -> Result<(), SchemaError> {
        if self.changes.len() == CHANGES_MAX {
            return Err(SchemaError::TooManyChanges);
        }
        let mut schema = Schema::clone(&self.newest);
        apply(&mut schema, &change)?;
        schema.validate()?;
        let layout = self.newest_layout().clone();
        let ids = layout.columns.iter().map(|column| column.id);
        let types = schema.columns.iter().map(|column| column.column_type);
        let layout = match &change {
            Change::Rename { .. } => layout,
            Change::Widen(_) => Arc::new(Layout::of(ids.zip(types))),
            Change::Add(_) => {
                let id = ColumnId(self.next_column);
                self.next_column += 1;
                Arc::new(Layout::of(ids.chain([id]).zip(types)))
            }
            Change::Drop(name) => {
                let dropped = self.column_id(name);
                Arc::new(Layout::of(ids.filter(|id| Some(*id) != dropped).zip(types)))
            }
        };
        self.layouts.push(layout);
        self.newest = Arc::new(schema);
        self.changes.push(change);
        Ok(())
    }
}

fn apply(schema: &mut Schema, change: &Change) -> Result<(), SchemaError> {
    match change {
        Change::Add(column) => {
            schema.columns.push(column.clone());
            if !schema.order.is_empty() {
                schema.order.push(column.name.clone());
            }
        }
        Change::Widen(name) => {
            let Some(index) = schema.column_index(name) else {
                return Err(schema.unknown_column(name));
            };
            let column = &mut schema.columns[index];
            if column.column_type != ColumnType::Int64 {
                return Err(SchemaError::CannotWiden { name: name.clone(), column_type: column.column_type });
            }
            column.column_type = ColumnType::Float64;
        }
        Change::Rename { from, to } => {
            if schema.column_names().all(|name| name != from) {
                return Err(schema.unknown_column(from));
            }
            if schema.column_names().any(|name| name == to) {
                return Err(SchemaError::TakenName(to.clone()));
            }
            if let Some(name) = name_mut(schema, from) {
                name.clone_from(to);
            }
            schema.order.iter_mut().filter(|name| *name == from).for_each(|name| name.clone_from(to));
        }
        Change::Drop(name) => {
            let cannot = |role| Err(SchemaError::CannotDrop { name: name.clone(), role });
            if *name == schema.key.name {
                return cannot("the key, by which records are found");
            }
            if schema.geometry.names().any(|column| column == name) {
                return cannot("the geometry or a part of it");
            }
            let Some(index) = schema.column_index(name) else {
                return Err(schema.unknown_column(name));
            };
            schema.columns.remove(index);
            schema.order.retain(|column| column != name);
        }
    }
    schema.version += 1;
    Ok(())
}

/// The name of any column, to change it.
fn name_mut<'s>(schema: &'s mut Schema, name: &str) -> Option<&'s mut String> {
    let geometry = match &mut schema.geometry {
        GeometryColumn::Point { x, y } => [Some(x), Some(y)],
        GeometryColumn::Geometry { name } => [Some(name), None],
        GeometryColumn::None => [None, None],
    };
    let attributes = schema.columns.iter_mut().map(|column| &mut column.name);
    let mut names = [&mut schema.key.name].into_iter().chain(geometry.into_iter().flatten()).chain(attributes);
    names.find(|column| column.as_str() == name)
}

/// Histories are equal if their versions are. Layouts follow from the versions.
impl PartialEq for SchemaHistory {
    fn eq(&self, other: &Self) -> bool {
        self.first == other.first && self.changes == other.changes
    }
}

impl Eq for SchemaHistory {}

impl From<SchemaHistory> for StoredHistory {
    fn from(history: SchemaHistory) -> Self {
        Self { first: history.first, changes: history.changes }
    }
}

impl TryFrom<StoredHistory> for SchemaHistory {
    type Error = SchemaError;

    fn try_from(stored: StoredHistory) -> Result<Self, SchemaError> {
        let mut history = Self::new(stored.first)?;
        for change in stored.changes {
            history.push(change)?;
        }
        Ok(history)
    }
}
