//! Evaluating a query's conditions on the entries of attribute and word indexes, without the
//! records.

use smallvec::SmallVec;

use super::explain::{ON_ENTRIES, ON_ENTRIES_AND_RECORDS, ON_RECORDS};
use super::filter::Filters;
use crate::Result;
use crate::condition::{Attributes, BoundCondition, Texts};
use crate::schema::{ColumnType, SchemaHistory};
use crate::secondary::{Content, DatasetIndex, decode_attribute, is_word_told_apart, split_attributes};
use crate::value::ValueRef;

/// The verdict of an entry on its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It does not match.
    Fails,
    /// It matches.
    Matches,
    /// It may match: the record decides.
    Open,
}

/// The conditions that are evaluated on entries.
#[derive(Clone, Debug)]
pub(crate) struct EntryFilter {
    /// Number of values before the record's key in an entry.
    values: usize,
    /// Ordinals and types of the attributes in an entry. Empty if the condition is not evaluated.
    columns: Vec<(usize, ColumnType)>,
    condition: Option<BoundCondition>,
    /// Whether the entries decide everything.
    decides_all: bool,
}

impl EntryFilter {
    /// The filter for entries in the spans that the conditions demand. It decides nothing for an
    /// index keyed by boxes.
    pub fn new(index: &DatasetIndex, history: &SchemaHistory, filters: &Filters) -> Self {
        let values = index.content.values().unwrap_or(0);
        let undecided = Self { values, columns: Vec::new(), condition: None, decides_all: false };
        let Some(condition) = filters.condition() else { return undecided };
        match &index.content {
            Content::Records | Content::Boxes => undecided,
            Content::Attributes(columns) => {
                let types = &history.newest().columns;
                let column = |&id| history.position(id).and_then(|place| Some((place, types.get(place)?.column_type)));
                // `None` if the index and one of its columns were dropped meanwhile.
                let Some(columns) = columns.iter().map(column).collect::<Option<Vec<_>>>() else { return undecided };
                let (condition, leaves_others) =
                    condition.divide(&|place| columns.iter().any(|(has, _)| *has == place));
                let decides_all = condition.is_some() && !leaves_others && filters.has_condition_alone();
                Self { values, columns, condition, decides_all }
            }
            Content::Words { column, .. } => {
                let is_on = |texts: &[Texts]| match texts {
                    [Texts::Attribute(place)] => history.position(*column) == Some(*place),
                    _ => false,
                };
                let word = condition.only_word().filter(|(texts, word)| is_on(texts) && is_word_told_apart(word));
                Self { decides_all: word.is_some() && filters.has_condition_alone(), ..undecided }
            }
        }
    }

    /// The filter for a union of indexes, if one word is all that the conditions demand.
    pub fn of_union(filters: &Filters) -> Self {
        let word = filters.condition().and_then(BoundCondition::only_word).filter(|(_, word)| is_word_told_apart(word));
        let decides_all = word.is_some() && filters.has_condition_alone();
        Self { values: 1, columns: Vec::new(), condition: None, decides_all }
    }

    /// Leaves all further decisions to the records.
    pub fn leave_to_records(&mut self) {
        (self.condition, self.decides_all) = (None, false);
    }

    /// Whether an entry in the spans implies that its record matches, unless the entry has a value
    /// in another form than the record.
    pub fn decides_all(&self) -> bool {
        self.decides_all
    }

    /// Where the condition is evaluated, for explanations.
    pub fn evaluated_on(&self) -> &'static str {
        match (self.decides_all, &self.condition) {
            (true, _) => ON_ENTRIES,
            (false, Some(_)) => ON_ENTRIES_AND_RECORDS,
            (false, None) => ON_RECORDS,
        }
    }

    /// The verdict of every entry, if entries are not examined.
    pub fn judge_any(&self) -> Verdict {
        if self.decides_all { Verdict::Matches } else { Verdict::Open }
    }

    /// The verdict of an entry, and the key of its record.
    ///
    /// # Errors
    /// Damage in the entry.
    pub fn judge<'e>(&self, entry: &'e [u8]) -> Result<(Verdict, &'e [u8])> {
        let Some(condition) = &self.condition else {
            return Ok((self.judge_any(), split_attributes(entry, self.values)?.1));
        };
        let mut values = Values::new();
        let (mut rest, mut is_whole) = (entry, true);
        for &(place, column_type) in &self.columns {
            let (value, behind) = decode_attribute(rest, column_type)?;
            is_whole &= value.is_some();
            values.extend(value.map(|value| (place, value)));
            rest = behind;
        }
        let verdict = match is_whole {
            false => Verdict::Open,
            true if !condition.matches(rest, &values)? => Verdict::Fails,
            true if self.decides_all => Verdict::Matches,
            true => Verdict::Open,
        };
        Ok((verdict, rest))
    }
}

/// The values of an entry, with the ordinals of their attributes.
type Values<'e> = SmallVec<[(usize, ValueRef<'e>); 4]>;

impl Attributes for Values<'_> {
    fn attribute(&self, place: usize) -> Result<ValueRef<'_>> {
        let value = self.iter().find(|(of, _)| *of == place);
        Ok(value.map_or(ValueRef::Null, |(_, value)| *value))
    }
}
