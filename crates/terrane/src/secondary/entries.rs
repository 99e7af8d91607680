//! The entries that a record has in an index.

use std::borrow::Cow;

use terrane_lsm::index::{decode_rect, encode_rect};
use terrane_lsm::operation::Operation;
use terrane_space::Rect;

use super::attributes;
use super::{IndexDefinition, Indexes, StopWords};
use crate::condition::words;
use crate::record::RecordView;
use crate::record::stored_rect;
use crate::schema::{ColumnId, SchemaHistory};
use crate::value::ValueRef;
use crate::{Error, Result};

/// What an index holds of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Its stored form, under its key.
    Records,
    /// The box of its geometry, if it has one, with its key.
    Boxes,
    /// The values of these attributes, followed by its key. By their numbers, as they move when
    /// others are dropped.
    Attributes(Vec<ColumnId>),
    /// Each word of an attribute, followed by its key, but for those that are left out.
    Words { column: ColumnId, stop_words: StopWords },
}

/// Most different words of a record that an index holds: as many operations are in one entry of the
/// log.
pub(crate) const WORDS_MAX: usize = 1 << 16;

impl Content {
    /// What a definition asks for, by the newest schema.
    pub fn of(definition: &IndexDefinition, history: &SchemaHistory) -> Result<Self> {
        let column =
            |name: &String| history.column_id(name).ok_or_else(|| history.newest().unknown_column(name).into());
        match definition.kind.as_str() {
            "btree" if definition.id == super::PRIMARY => Ok(Self::Records),
            "btree" => definition.columns.iter().map(column).collect::<Result<_>>().map(Self::Attributes),
            "inverted" => match &definition.columns[..] {
                [name] => Ok(Self::Words { column: column(name)?, stop_words: StopWords::of(definition)? }),
                _ => Err(Error::damaged("MANIFEST", 0, format!("the index {:?} is not on one text", definition.name))),
            },
            "rtree" | "dhb" | "dhvb" | "shb" | "sif" => Ok(Self::Boxes),
            kind => Err(Error::Unsupported {
                what: format!("an index of kind {kind:?}"),
                instead: "a newer version made it; open the store with that",
            }),
        }
    }

    /// Calls `visit` with the key of each entry, in operations and in the index, that a stored
    /// record has: ascending, each once.
    pub fn visit_entries(
        &self,
        history: &SchemaHistory,
        key: &[u8],
        stored: &[u8],
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let schema = history.newest();
        match self {
            Self::Records => Ok(()),
            Self::Boxes => match stored_rect(stored, schema.system)? {
                None => Ok(()),
                Some(rect) => visit(&box_entry(&rect, schema.holds_points())),
            },
            Self::Attributes(columns) => {
                let record = RecordView::parse(stored, history)?;
                let mut entry = Vec::with_capacity(64);
                for &column in columns {
                    attributes::encode(record.value_of(column)?, columns.len(), &mut entry);
                }
                entry.extend_from_slice(key);
                visit(&entry)
            }
            Self::Words { column, stop_words } => {
                let record = RecordView::parse(stored, history)?;
                let ValueRef::Utf8(text) = record.value_of(*column)? else { return Ok(()) };
                let mut entry = Vec::with_capacity(64);
                let name = history.position(*column).map(|position| &*schema.columns[position].name);
                for word in different_words(text, stop_words, name)? {
                    entry.clear();
                    attributes::encode(ValueRef::Utf8(&word), 1, &mut entry);
                    entry.extend_from_slice(key);
                    visit(&entry)?;
                }
                Ok(())
            }
        }
    }

    /// How many values an entry of an index that is keyed by bytes has in front of the record's
    /// key.
    pub fn values(&self) -> Option<usize> {
        match self {
            Self::Attributes(columns) => Some(columns.len()),
            Self::Words { .. } => Some(1),
            Self::Records | Self::Boxes => None,
        }
    }

    /// Where an entry is, for messages.
    pub fn describe(&self, entry: &[u8]) -> String {
        match self {
            Self::Boxes => decode_rect(entry).map_or_else(|| format!("at {entry:02x?}"), |rect| format!("at {rect:?}")),
            Self::Attributes(columns) => format!("under {}", attributes::describe(entry, columns.len())),
            Self::Words { .. } => format!("under {}", attributes::describe(entry, 1)),
            Self::Records => format!("under {entry:02x?}"),
        }
    }

    /// The value of an entry: the record's key, where the entry's own does not have it.
    fn value<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        match self {
            Self::Boxes => key,
            Self::Records | Self::Attributes(_) | Self::Words { .. } => &[],
        }
    }
}

/// The words of a text, ascending, each once; words so long that their entries are cut off alike,
/// as one.
fn different_words<'t>(text: &'t str, stop_words: &StopWords, column: Option<&str>) -> Result<Vec<Cow<'t, str>>> {
    let mut words = words(text).filter(|word| !stop_words.contains(word)).map(|word| match word {
        Cow::Borrowed(word) => Cow::Borrowed(attributes::shortened(word)),
        Cow::Owned(word) if attributes::shortened(&word).len() < word.len() => {
            Cow::Owned(attributes::shortened(&word).to_owned())
        }
        word => word,
    });
    let mut found = Vec::new();
    loop {
        // Almost always all of them. Of a long text that repeats its words, not all are held at a
        // time.
        found.extend(words.by_ref().take(2 * WORDS_MAX - found.len()));
        let is_all = found.len() < 2 * WORDS_MAX;
        found.sort_unstable();
        found.dedup();
        if found.len() > WORDS_MAX {
            return Err(Error::Refused {
                row: None,
                column: column.map(str::to_owned),
                reason: format!(
                    "the text has more than {WORDS_MAX} different words, which its index of words cannot hold"
                ),
            });
        }
        if is_all {
            return Ok(found);
        }
    }
}

/// The entry of a box. Both zeros are one place.
pub(crate) fn box_entry(rect: &Rect, points: bool) -> Vec<u8> {
    let Rect { x0, y0, x1, y1 } = *rect;
    let mut entry = Vec::with_capacity(32);
    encode_rect(&Rect { x0: x0 + 0.0, y0: y0 + 0.0, x1: x1 + 0.0, y1: y1 + 0.0 }, points, &mut entry);
    entry
}

/// A record before or after a change: its stored form and its box, which the writer knows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Side<'a> {
    pub stored: Option<&'a [u8]>,
    pub rect: Option<Rect>,
}

/// Bytes that an entry of a spatial index takes in memory besides its key, about.
const BOX_BYTES: usize = 96;

/// About the bytes that an object takes in the memory of those indexes that have more than one
/// entry of it, which one operation of the log stands for.
pub(crate) fn copies_bytes(indexes: &Indexes, key: &[u8], rect: &Rect) -> usize {
    let several =
        indexes.secondaries().filter_map(|(_, index)| index.spatial.as_ref()).filter(|index| index.has_several());
    several.map(|index| index.positions(rect).len() * (key.len() + BOX_BYTES)).sum()
}

/// Appends the operations of all secondary indexes for the change of a record; returns how many.
pub(crate) fn add_operations(
    indexes: &Indexes,
    history: &SchemaHistory,
    key: &[u8],
    old: Side<'_>,
    new: Side<'_>,
    append: &mut dyn FnMut(&Operation<'_>),
) -> Result<usize> {
    let points = history.newest().holds_points();
    let mut operations = 0;
    for (_, index) in indexes.secondaries() {
        let (id, content) = (index.definition.id, &index.content);
        let mut add = |delete: bool, entry_key: &[u8]| {
            operations += 1;
            append(&Operation { index: id, delete, key: entry_key, value: content.value(key) });
        };
        if *content == Content::Boxes {
            if old.rect != new.rect {
                for (rect, delete) in [(old.rect, true), (new.rect, false)] {
                    if let Some(rect) = rect {
                        let mut encoded = Vec::with_capacity(32);
                        encode_rect(&rect, points, &mut encoded);
                        add(delete, &encoded);
                    }
                }
            }
            continue;
        }
        index.visit_changes(history, key, (old.stored, new.stored), &mut |entry, is_gone| {
            add(is_gone, entry);
            Ok(())
        })?;
    }
    Ok(operations)
}
