//! Consequences of a condition for single columns, from which an access path is chosen.

use std::collections::BTreeMap;

use super::bound::{BoundCondition, BoundNode, Texts};
use super::domain::{Domain, Ordered};
use crate::value::Value;

/// Facts about every record that meets a condition. Anything not stated here may vary.
///
/// Facts follow only from the parts joined by `and`, not from alternatives or negations. So a
/// record that satisfies all of them need not meet the condition.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Implied {
    /// The encoded key lies in this set.
    pub key: Option<Domain<Vec<u8>>>,
    /// Attributes, by ordinal, lie in these sets. None of them is null.
    pub attributes: BTreeMap<usize, Domain<Value>>,
    /// Attributes, by ordinal, have these words: ascending and distinct.
    pub words: BTreeMap<usize, Vec<String>>,
    /// Words that are spread over several columns.
    pub scattered: Option<ScatteredWords>,
}

/// Words that each occur in one of several columns, not necessarily in the same.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ScatteredWords {
    /// Ordinals of these columns among the attributes.
    pub attributes: Vec<usize>,
    /// Whether the key is one of the columns.
    pub in_key: bool,
    /// The words, ascending and distinct.
    pub words: Vec<String>,
}

impl BoundCondition {
    /// The facts that follow from the condition.
    pub fn implied(&self) -> Implied {
        let mut implied = Implied::default();
        self.node.conjuncts().iter().for_each(|part| implied.add(part));
        implied
    }
}

impl Implied {
    /// Whether no record can meet the condition.
    pub fn is_impossible(&self) -> bool {
        self.key.as_ref().is_some_and(Domain::is_nothing) || self.attributes.values().any(Domain::is_nothing)
    }

    fn add(&mut self, part: &BoundNode) {
        match part {
            BoundNode::Key(domain) => self.key = Some(narrowed(self.key.take(), domain)),
            BoundNode::Attribute(place, domain) => {
                let narrowed = narrowed(self.attributes.remove(place), domain);
                self.attributes.insert(*place, narrowed);
            }
            BoundNode::Words(columns, words) => {
                let required = match columns[..] {
                    [Texts::Attribute(place)] => self.words.entry(place).or_default(),
                    _ => &mut self.scattered.get_or_insert_with(|| ScatteredWords::in_columns(columns)).words,
                };
                required.extend_from_slice(words.as_slice());
                required.sort_unstable();
                required.dedup();
            }
            BoundNode::And(_) | BoundNode::Or(_) | BoundNode::Not(_) | BoundNode::IsNull(_) => {}
        }
    }
}

impl ScatteredWords {
    /// No words yet, in the columns of a condition. A condition names one column, or all text
    /// columns.
    fn in_columns(columns: &[Texts]) -> Self {
        let attribute = |column: &Texts| match column {
            Texts::Key => None,
            Texts::Attribute(place) => Some(*place),
        };
        let attributes = columns.iter().filter_map(attribute).collect();
        Self { attributes, in_key: columns.contains(&Texts::Key), words: Vec::new() }
    }
}

fn narrowed<T: Ordered + Clone>(known: Option<Domain<T>>, domain: &Domain<T>) -> Domain<T> {
    match known {
        Some(known) => known.intersection(domain.clone()),
        None => domain.clone(),
    }
}
