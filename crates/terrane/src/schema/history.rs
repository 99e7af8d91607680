//! All versions of a dataset's schema, and how records of each version are laid out.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{COLUMNS_MAX, Column, ColumnType, FIRST_VERSION, Schema, SchemaError};

/// The versions of a schema, from the first to the newest. A change gives a new history;
/// the old one stays valid for those who hold it, and layouts are shared.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "StoredHistory", into = "StoredHistory")]
pub struct SchemaHistory {
    first: Schema,
    changes: Vec<Change>,
    newest: Arc<Schema>,
    layouts: Vec<Arc<Layout>>,
}

/// One step from a version to the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Change {
    /// An attribute was appended.
    Add(Column),
    /// An int64 attribute became float64.
    Widen(String),
}

/// The history as the catalog stores it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredHistory {
    first: Schema,
    changes: Vec<Change>,
}

/// Where the attributes of one version lie in a stored record, relative to the end of the
/// geometry: the null bitmap, the slots, the end offsets of variable values, their bytes.
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
    pub(crate) column_type: ColumnType,
    /// Byte offset of a fixed value among the slots, or the rank of a variable one.
    pub(crate) place: u32,
}

/// Bytes of a value's slot; `None` for text and binary data.
pub(crate) fn slot_bytes(column_type: ColumnType) -> Option<usize> {
    match column_type {
        ColumnType::Bool => Some(1),
        ColumnType::Date => Some(4),
        ColumnType::Int64 | ColumnType::Float64 | ColumnType::Timestamp { .. } => Some(8),
        ColumnType::Utf8 | ColumnType::Binary => None,
    }
}

impl Layout {
    /// The layout of records with these attributes.
    pub fn new(columns: &[Column]) -> Self {
        let mut slots = 0;
        let mut variables = 0;
        let stored = columns
            .iter()
            .map(|column| {
                let (counter, step) = match slot_bytes(column.column_type) {
                    Some(bytes) => (&mut slots, bytes),
                    None => (&mut variables, 1),
                };
                let place = *counter as u32;
                *counter += step;
                StoredColumn { column_type: column.column_type, place }
            })
            .collect();
        let slots_offset = columns.len().div_ceil(8);
        let ends_offset = slots_offset + slots;
        Self { columns: stored, slots_offset, ends_offset, bytes_offset: ends_offset + 4 * variables }
    }

    /// Number of attributes.
    pub fn columns(&self) -> usize {
        self.columns.len()
    }

    pub(crate) fn column(&self, index: usize) -> Option<StoredColumn> {
        self.columns.get(index).copied()
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
        Ok(Self { newest: Arc::new(schema.clone()), first: schema, changes: Vec::new(), layouts })
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

    /// Makes an int64 attribute float64; older records are converted when they are read. The caller
    /// has made sure that this changes none of them.
    pub fn widen(&self, name: &str) -> Result<Self, SchemaError> {
        self.with_change(Change::Widen(name.to_owned()))
    }

    /// How many attributes were made float64 so far.
    pub(crate) fn widenings(&self) -> usize {
        self.changes.iter().filter(|change| matches!(change, Change::Widen(_))).count()
    }

    fn with_change(&self, change: Change) -> Result<Self, SchemaError> {
        let mut history = self.clone();
        history.push(change)?;
        Ok(history)
    }

    fn push(&mut self, change: Change) -> Result<(), SchemaError> {
        let mut schema = Schema::clone(&self.newest);
        apply(&mut schema, &change)?;
        schema.validate()?;
        self.layouts.push(Arc::new(Layout::new(&schema.columns)));
        self.newest = Arc::new(schema);
        self.changes.push(change);
        Ok(())
    }
}

fn apply(schema: &mut Schema, change: &Change) -> Result<(), SchemaError> {
    match change {
        Change::Add(column) => schema.columns.push(column.clone()),
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
    }
    schema.version += 1;
    Ok(())
}

/// Histories are equal when their versions are; layouts follow from them.
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
        // Every attribute is added at most once and widened at most once.
        if stored.changes.len() > 2 * COLUMNS_MAX {
            return Err(SchemaError::Inconsistent(format!("{} changes", stored.changes.len())));
        }
        let mut history = Self::new(stored.first)?;
        for change in stored.changes {
            history.push(change)?;
        }
        Ok(history)
    }
}
