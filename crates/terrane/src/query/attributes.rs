//! Candidates from an index on attributes or on the words of a column, or from the word indexes of
//! several columns.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use super::entries::{EntryFilter, Verdict};
use super::explain::{ATTRIBUTE_INDEX_ONLY, ATTRIBUTE_INDEXES_ONLY, Explanation};
use super::plan::IndexSpans;
use super::spans::{KeySpan, SpanScan, behind_prefix};
use super::union::UnionScan;
use crate::Result;
use crate::condition::{Domain, Implied, ScatteredWords};
use crate::schema::SchemaHistory;
use crate::secondary::{Content, DatasetIndex, encode_attribute, shortened_word};
use crate::snapshot::Snapshot;
use crate::value::{Value, ValueRef};

/// Maximal number of ranges of an index that a query searches. With more values, one range covers
/// all of them.
const RANGES_MAX: usize = 1024;
/// Number of index entries read in one step.
const ENTRIES_STEP: usize = 1024;
/// The first byte of every value that is not null.
const BEHIND_NULLS: u8 = 1;

/// Spans of the entries for all records that can meet a condition, ascending and disjoint.
///
/// They follow from the single values that the condition demands of the first attributes of the
/// index, and from its demand on the next attribute. `None` if it demands nothing of the first
/// attribute.
pub(super) fn spans(columns: &[usize], implied: &Implied) -> Option<Vec<KeySpan>> {
    let mut prefixes = vec![Vec::new()];
    for (number, column) in columns.iter().enumerate() {
        let Some(domain) = implied.attributes.get(column) else {
            return (number > 0).then(|| prefixes.into_iter().map(KeySpan::of_prefix).collect());
        };
        match domain {
            Domain::OneOf(values) if prefixes.len() * values.len() <= RANGES_MAX || number == 0 => {
                let extended = |prefix: &Vec<u8>| {
                    let prefix = prefix.clone();
                    values.iter().map(move |value| with_value(&prefix, value, columns.len())).collect::<Vec<_>>()
                };
                prefixes = prefixes.iter().flat_map(extended).collect();
                // Long texts with a common beginning have the same form.
                prefixes.dedup();
            }
            Domain::OneOf(values) => {
                let ends = || Some((values.first()?, values.last()?));
                let (low, high) = ends().map_or((Bound::Unbounded, Bound::Unbounded), |(first, last)| {
                    (Bound::Included(first), Bound::Included(last))
                });
                return Some(prefixes.iter().map(|prefix| between(prefix, low, high, columns.len())).collect());
            }
            Domain::Interval { low, high } => {
                let (low, high) = (low.as_ref(), high.as_ref());
                return Some(prefixes.iter().map(|prefix| between(prefix, low, high, columns.len())).collect());
            }
        }
    }
    Some(prefixes.into_iter().map(KeySpan::of_prefix).collect())
}

fn with_value(prefix: &[u8], value: &Value, columns: usize) -> Vec<u8> {
    let mut extended = prefix.to_vec();
    encode_attribute(value.as_ref(), columns, &mut extended);
    extended
}

/// The entries with the prefix and then a value between two bounds. All entries with truncated
/// texts are included; their records decide.
fn between(prefix: &[u8], low: Bound<&Value>, high: Bound<&Value>, columns: usize) -> KeySpan {
    let from = match low {
        Bound::Unbounded => [prefix, &[BEHIND_NULLS]].concat(),
        Bound::Included(value) | Bound::Excluded(value) => with_value(prefix, value, columns),
    };
    let to = match high {
        Bound::Unbounded => behind_prefix(prefix),
        Bound::Included(value) | Bound::Excluded(value) => behind_prefix(&with_value(prefix, value, columns)),
    };
    KeySpan { from, to }
}

/// A search of one or several indexes keyed by bytes.
#[derive(Debug)]
pub(super) struct AttributeScan {
    filter: EntryFilter,
    entries: Entries,
}

#[derive(Debug)]
enum Entries {
    Index(SpanScan),
    Union(UnionScan),
}

impl AttributeScan {
    pub fn new(snapshot: &Snapshot, filter: EntryFilter, indexes: Vec<IndexSpans>) -> Self {
        let entries = match <[IndexSpans; 1]>::try_from(indexes) {
            Ok([IndexSpans { place, spans }]) => Entries::Index(SpanScan::new(snapshot, place, spans)),
            Err(indexes) => {
                let spans = |index: IndexSpans| index.spans.into_iter().map(move |span| (index.place, span));
                Entries::Union(UnionScan::new(snapshot, indexes.into_iter().flat_map(spans)))
            }
        };
        Self { filter, entries }
    }

    /// Name of the plan in explanations if no record is needed.
    pub fn plan_of_entries_alone(&self) -> &'static str {
        match self.entries {
            Entries::Index(_) => ATTRIBUTE_INDEX_ONLY,
            Entries::Union(_) => ATTRIBUTE_INDEXES_ONLY,
        }
    }

    /// Visits the record keys of the next entries that may match; false at the end.
    pub fn advance(
        &mut self,
        snapshot: &Snapshot,
        explanation: &mut Explanation,
        visit: &mut dyn FnMut(&[u8], Verdict),
    ) -> Result<bool> {
        let (filter, mut seen) = (&self.filter, 0);
        let scan = match &mut self.entries {
            Entries::Index(scan) => scan,
            Entries::Union(scan) => {
                let verdict = filter.judge_any();
                return scan.advance(snapshot, &mut explanation.entries, &mut |key| visit(key, verdict));
            }
        };
        scan.advance(snapshot, &mut |entry, _| {
            match filter.judge(entry)? {
                (Verdict::Fails, _) => {}
                (verdict, key) => visit(key, verdict),
            }
            seen += 1;
            Ok(if seen == ENTRIES_STEP { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        explanation.entries += seen as u64;
        Ok(!scan.is_ended())
    }
}

/// The entries that an index offers for a condition.
pub(super) enum Serves {
    /// None, because the index is on the geometry.
    Never,
    /// None, because no part joined by `and` restricts the index's first attribute in a usable way.
    Nothing,
    /// The entries in one of these lists of spans. For a text, each of its words has a list.
    Spans(Vec<Vec<KeySpan>>),
}

/// The entries that an index offers for a condition, under the newest schema of a history.
pub(super) fn serves(index: &DatasetIndex, history: &SchemaHistory, implied: &Implied) -> Serves {
    match &index.content {
        Content::Records | Content::Boxes => Serves::Never,
        Content::Attributes(columns) => {
            // `None` if the index and one of its columns were dropped meanwhile.
            let positions: Option<Vec<usize>> = columns.iter().map(|column| history.position(*column)).collect();
            let spans = positions.and_then(|positions| spans(&positions, implied));
            spans.map_or(Serves::Nothing, |spans| Serves::Spans(vec![spans]))
        }
        Content::Words { column, stop_words } => {
            let words = history.position(*column).and_then(|position| implied.words.get(&position));
            let words = words.into_iter().flatten().filter(|word| !stop_words.contains(word));
            match words.map(|word| vec![span_of_word(word)]).collect::<Vec<_>>() {
                spans if spans.is_empty() => Serves::Nothing,
                spans => Serves::Spans(spans),
            }
        }
    }
}

/// The entries of a word that may be in any of several columns, with one index per column.
#[derive(Debug)]
pub(super) struct Union {
    /// Approximate number of entries.
    pub entries: u64,
    /// The approximate number of entries in each index, with its spans.
    pub indexes: Vec<(u64, IndexSpans)>,
}

impl Union {
    /// The approximate number of entries in the index with a slot.
    pub fn share_of(&self, place: usize) -> Option<u64> {
        self.indexes.iter().find(|(_, index)| index.place == place).map(|(entries, _)| *entries)
    }
}

/// The union for words that may be in any of several columns: for the word with the fewest entries,
/// among the words that are stop words in none of the indexes. Or the reason why there is none.
pub(super) fn union_of(
    words: &ScatteredWords,
    history: &SchemaHistory,
    indexes: &[(usize, &Arc<DatasetIndex>)],
    estimate: &dyn Fn(usize, &KeySpan) -> Result<u64>,
) -> Result<std::result::Result<Union, String>> {
    let name = |position: usize| history.newest().columns.get(position).map_or("", |column| &column.name);
    if words.in_key {
        let key = &history.newest().key.name;
        return Ok(Err(format!("a word may also be in the key {key:?}, which has no index of its words")));
    }
    let mut fewest: Option<Union> = None;
    let mut reason = String::new();
    for word in &words.words {
        let mut union = Union { entries: 0, indexes: Vec::new() };
        for &position in &words.attributes {
            let serves = |(_, index): &&(usize, &Arc<DatasetIndex>)| match &index.content {
                Content::Words { column, stop_words } => {
                    history.position(*column) == Some(position) && !stop_words.contains(word)
                }
                _ => false,
            };
            let Some((place, _)) = indexes.iter().find(serves) else {
                reason = format!("a word may also be in {:?}, which has no index with this word", name(position));
                break;
            };
            let span = span_of_word(word);
            let entries = estimate(*place, &span)?;
            union.entries += entries;
            union.indexes.push((entries, IndexSpans { place: *place, spans: vec![span] }));
        }
        let is_whole = union.indexes.len() == words.attributes.len();
        if is_whole && fewest.as_ref().is_none_or(|fewest| union.entries < fewest.entries) {
            fewest = Some(union);
        }
    }
    Ok(fewest.ok_or(reason))
}

fn span_of_word(word: &str) -> KeySpan {
    let mut prefix = Vec::new();
    encode_attribute(ValueRef::Utf8(shortened_word(word)), 1, &mut prefix);
    KeySpan::of_prefix(prefix)
}

#[cfg(test)]
#[path = "attributes_tests.rs"]
mod tests;
