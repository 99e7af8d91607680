//! Conditions bound to a schema, and their evaluation on records.

use super::domain::{Domain, compare};
use super::text::RequiredWords;
use crate::Result;
use crate::record::RecordView;
use crate::value::{Value, ValueRef};

/// The input of a condition: a record, or an index entry with the attributes that the condition
/// reads.
pub(crate) trait Attributes {
    /// The attribute with an ordinal.
    ///
    /// # Errors
    /// Damage in the stored bytes.
    fn attribute(&self, place: usize) -> Result<ValueRef<'_>>;
}

impl Attributes for RecordView<'_> {
    fn attribute(&self, place: usize) -> Result<ValueRef<'_>> {
        Ok(self.value(place)?)
    }
}

/// A condition whose columns and literals fit a schema. It is evaluated on records that are read
/// under this schema.
#[derive(Clone, Debug)]
pub(crate) struct BoundCondition {
    pub(super) node: BoundNode,
}

/// The tree of a bound condition. Every comparison tests whether a value lies in a set.
#[derive(Clone, Debug)]
pub(super) enum BoundNode {
    And(Vec<BoundNode>),
    Or(Vec<BoundNode>),
    Not(Box<BoundNode>),
    /// The encoded key, which is never null.
    Key(Domain<Vec<u8>>),
    /// An attribute by its ordinal; unknown if it is null.
    Attribute(usize, Domain<Value>),
    /// Whether an attribute is null; `None` stands for the key.
    IsNull(Option<usize>),
    /// Every word occurs in one of the columns. Unknown if a missing word could be in a column that
    /// is null.
    Words(Vec<Texts>, RequiredWords),
}

/// A source of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Texts {
    Key,
    Attribute(usize),
}

impl BoundCondition {
    /// Whether the condition is true for a record.
    ///
    /// # Errors
    /// Damage in the record.
    pub fn matches(&self, key: &[u8], record: &impl Attributes) -> Result<bool> {
        Ok(self.node.truth(key, record)? == Some(true))
    }

    /// Divides the parts joined by `and`. Returns those that read only attributes accepted by
    /// `has`, if there are any, and whether other parts remain.
    pub fn divide(&self, has: &dyn Fn(usize) -> bool) -> (Option<Self>, bool) {
        let parts = self.node.conjuncts();
        let decided: Vec<BoundNode> = parts.iter().filter(|part| part.asks_only_for(has)).cloned().collect();
        let leaves_others = decided.len() < parts.len();
        let node = if decided.is_empty() { None } else { Some(BoundNode::And(decided)) };
        (node.map(|node| Self { node }), leaves_others)
    }

    /// Whether the condition reads an attribute.
    pub fn asks_for(&self, place: usize) -> bool {
        !self.node.asks_only_for(&|other| other != place)
    }

    /// The word and its possible columns, if the condition demands exactly one word and nothing
    /// else.
    pub fn only_word(&self) -> Option<(&[Texts], &str)> {
        match self.node.conjuncts() {
            [BoundNode::Words(columns, words)] => match words.as_slice() {
                [word] => Some((columns, word)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether the condition is true for a record; `None` if that is unknown.
    #[cfg(test)]
    pub fn truth(&self, key: &[u8], record: &RecordView<'_>) -> Result<Option<bool>> {
        self.node.truth(key, record)
    }
}

impl BoundNode {
    /// The parts joined by `and`.
    pub(super) fn conjuncts(&self) -> &[Self] {
        match self {
            Self::And(parts) => parts,
            other => std::slice::from_ref(other),
        }
    }

    /// Whether it reads only attributes accepted by `has`. The recursion is as deep as the
    /// condition.
    fn asks_only_for(&self, has: &dyn Fn(usize) -> bool) -> bool {
        match self {
            Self::And(parts) | Self::Or(parts) => parts.iter().all(|part| part.asks_only_for(has)),
            Self::Not(inner) => inner.asks_only_for(has),
            Self::Key(_) | Self::IsNull(None) => true,
            Self::Attribute(place, _) | Self::IsNull(Some(place)) => has(*place),
            Self::Words(columns, _) => columns.iter().all(|column| match column {
                Texts::Key => true,
                Texts::Attribute(place) => has(*place),
            }),
        }
    }

    /// The recursion is as deep as the condition, which is bounded.
    fn truth(&self, key: &[u8], record: &impl Attributes) -> Result<Option<bool>> {
        match self {
            Self::And(parts) => joined(parts, false, key, record),
            Self::Or(parts) => joined(parts, true, key, record),
            Self::Not(inner) => Ok(inner.truth(key, record)?.map(|truth| !truth)),
            Self::Key(domain) => Ok(Some(domain.contains(|bound| Some(key.cmp(bound))))),
            Self::Attribute(place, domain) => Ok(match record.attribute(*place)? {
                ValueRef::Null => None,
                value => Some(domain.contains(|bound| compare(value, bound.as_ref()))),
            }),
            Self::IsNull(None) => Ok(Some(false)),
            Self::IsNull(Some(place)) => Ok(Some(record.attribute(*place)?.is_null())),
            Self::Words(columns, words) => occur(words, columns, key, record),
        }
    }
}

/// The joint truth of parts. A single part with the truth value `decisive` decides it.
fn joined(parts: &[BoundNode], decisive: bool, key: &[u8], record: &impl Attributes) -> Result<Option<bool>> {
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

fn occur(words: &RequiredWords, columns: &[Texts], key: &[u8], record: &impl Attributes) -> Result<Option<bool>> {
    let mut search = words.search();
    let mut has_null = false;
    for column in columns {
        let text = match column {
            Texts::Key => ValueRef::Utf8(key_text(key)?),
            Texts::Attribute(place) => record.attribute(*place)?,
        };
        match text {
            ValueRef::Utf8(text) if search.look_into(text) => return Ok(Some(true)),
            ValueRef::Null => has_null = true,
            _ => {}
        }
    }
    Ok(if has_null { None } else { Some(false) })
}

/// The text of a key of type utf8.
fn key_text(key: &[u8]) -> Result<&str> {
    match crate::snapshot::KeyRef::decode(crate::key::KeyType::Utf8, key)? {
        crate::snapshot::KeyRef::Utf8(text) => Ok(text),
        _ => Ok(""),
    }
}
