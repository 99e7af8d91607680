//! Conditions that are bound to a schema, and what they say of records.

use super::domain::{Domain, compare};
use super::text::RequiredWords;
use crate::Result;
use crate::record::RecordView;
use crate::value::{Value, ValueRef};

/// A condition whose columns and literals have been found to fit a schema. It is evaluated on records that
/// are read under this schema.
#[derive(Clone, Debug)]
pub(crate) struct BoundCondition {
    pub(super) node: BoundNode,
}

/// The tree of a bound condition. All comparisons ask whether a value lies in a set.
#[derive(Clone, Debug)]
pub(super) enum BoundNode {
    And(Vec<BoundNode>),
    Or(Vec<BoundNode>),
    Not(Box<BoundNode>),
    /// The encoded key, which is never null.
    Key(Domain<Vec<u8>>),
    /// An attribute by its place; unknown of null.
    Attribute(usize, Domain<Value>),
    /// Whether an attribute is null; of the key, `None`.
    IsNull(Option<usize>),
    /// Every word occurs in one of the columns. Unknown where it does not, but could in one that is null.
    Words(Vec<Texts>, RequiredWords),
}

/// Where texts are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Texts {
    Key,
    Attribute(usize),
}

impl BoundCondition {
    /// Whether the condition is true of a record.
    ///
    /// # Errors
    /// Damage of the record.
    pub fn matches(&self, key: &[u8], record: &RecordView<'_>) -> Result<bool> {
        Ok(self.node.truth(key, record)? == Some(true))
    }

    /// Whether the condition is true of a record; `None` where that is unknown.
    #[cfg(test)]
    pub fn truth(&self, key: &[u8], record: &RecordView<'_>) -> Result<Option<bool>> {
        self.node.truth(key, record)
    }
}

impl BoundNode {
    /// The depth of the recursion is that of the condition, which is bounded.
    fn truth(&self, key: &[u8], record: &RecordView<'_>) -> Result<Option<bool>> {
        match self {
            Self::And(parts) => joined(parts, false, key, record),
            Self::Or(parts) => joined(parts, true, key, record),
            Self::Not(inner) => Ok(inner.truth(key, record)?.map(|truth| !truth)),
            Self::Key(domain) => Ok(Some(domain.contains(|bound| Some(key.cmp(bound))))),
            Self::Attribute(place, domain) => Ok(match record.value(*place)? {
                ValueRef::Null => None,
                value => Some(domain.contains(|bound| compare(value, bound.as_ref()))),
            }),
            Self::IsNull(None) => Ok(Some(false)),
            Self::IsNull(Some(place)) => Ok(Some(record.value(*place)?.is_null())),
            Self::Words(columns, words) => occur(words, columns, key, record),
        }
    }
}

/// The truth of parts of which one decides the whole if it is `decisive`.
fn joined(parts: &[BoundNode], decisive: bool, key: &[u8], record: &RecordView<'_>) -> Result<Option<bool>> {
    let mut truth = Some(!decisive);
    for part in parts {
        match part.truth(key, record)? {
            Some(found) if found == decisive => return Ok(Some(decisive)),
            Some(_) => {}
            None => truth = None,
        }
    }
    Ok(truth)
}

fn occur(words: &RequiredWords, columns: &[Texts], key: &[u8], record: &RecordView<'_>) -> Result<Option<bool>> {
    let mut search = words.search();
    let mut has_null = false;
    for column in columns {
        let text = match column {
            Texts::Key => ValueRef::Utf8(key_text(key)?),
            Texts::Attribute(place) => record.value(*place)?,
        };
        match text {
            ValueRef::Utf8(text) if search.look_into(text) => return Ok(Some(true)),
            ValueRef::Null => has_null = true,
            _ => {}
        }
    }
    Ok(if has_null { None } else { Some(false) })
}

/// The text of a key of texts.
fn key_text(key: &[u8]) -> Result<&str> {
    match crate::snapshot::KeyRef::decode(crate::key::KeyType::Utf8, key)? {
        crate::snapshot::KeyRef::Utf8(text) => Ok(text),
        _ => Ok(""),
    }
}
