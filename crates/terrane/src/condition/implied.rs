//! What a condition demands of single columns, for who chooses an access path.

use std::collections::BTreeMap;

use super::bound::{BoundCondition, BoundNode, Texts};
use super::domain::{Domain, Ordered};
use crate::value::Value;

/// What holds of every record that meets a condition; what is not here may be anything. It follows from the
/// parts that `and` joins, not from alternatives and negations, so a record for which all of it holds need not
/// meet the condition.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Implied {
    /// Where the encoded key lies.
    pub key: Option<Domain<Vec<u8>>>,
    /// Where attributes lie, by their places. None of them is null or NaN.
    pub attributes: BTreeMap<usize, Domain<Value>>,
    /// Words that attributes have, by their places: ascending, each once.
    pub words: BTreeMap<usize, Vec<String>>,
}

impl BoundCondition {
    /// What follows from the condition.
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
                // In which of several columns a word is, is not said.
                if let [Texts::Attribute(place)] = columns[..] {
                    let required = self.words.entry(place).or_default();
                    required.extend_from_slice(words.as_slice());
                    required.sort_unstable();
                    required.dedup();
                }
            }
            BoundNode::And(_) | BoundNode::Or(_) | BoundNode::Not(_) | BoundNode::IsNull(_) => {}
        }
    }
}

fn narrowed<T: Ordered + Clone>(known: Option<Domain<T>>, domain: &Domain<T>) -> Domain<T> {
    match known {
        Some(known) => known.intersection(domain.clone()),
        None => domain.clone(),
    }
}
