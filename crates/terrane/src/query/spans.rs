//! Ranges of the keys of a B-tree, and going through them.

use std::ops::{Bound, ControlFlow};

use terrane_lsm::memory::btree::KeyRange;

use crate::Result;
use crate::condition::Domain;
use crate::snapshot::{RecordVisitor, ScanPosition, Snapshot};

/// Keys of an index from one on up to another, which is left out; none where there is no end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeySpan {
    pub from: Vec<u8>,
    pub to: Option<Vec<u8>>,
}

impl KeySpan {
    /// The span for estimates.
    pub fn range(&self) -> KeyRange<'_> {
        KeyRange { from: Bound::Included(&self.from), to: self.to.as_deref().map_or(Bound::Unbounded, Bound::Excluded) }
    }

    /// All keys.
    pub const ALL: Self = Self { from: Vec::new(), to: None };

    /// All keys that begin with these bytes.
    pub fn of_prefix(prefix: Vec<u8>) -> Self {
        Self { to: behind_prefix(&prefix), from: prefix }
    }
}

/// The first key behind all that begin with these bytes.
pub(super) fn behind_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut behind = prefix[..=last].to_vec();
    behind[last] += 1;
    Some(behind)
}

/// Where the records lie of which a condition demands these keys, ascending and apart from each other.
pub(super) fn of_keys(keys: &Domain<Vec<u8>>) -> Vec<KeySpan> {
    // No key lies between one and this.
    let behind = |key: &[u8]| [key, &[0]].concat();
    match keys {
        Domain::OneOf(keys) => keys.iter().map(|key| KeySpan { from: key.clone(), to: Some(behind(key)) }).collect(),
        Domain::Interval { low, high } => {
            let from = match low {
                Bound::Unbounded => Vec::new(),
                Bound::Included(key) => key.clone(),
                Bound::Excluded(key) => behind(key),
            };
            let to = match high {
                Bound::Unbounded => None,
                Bound::Included(key) => Some(behind(key)),
                Bound::Excluded(key) => Some(key.clone()),
            };
            vec![KeySpan { from, to }]
        }
    }
}

/// Goes through spans of the B-tree at a place, and keeps no sealed memory for long.
#[derive(Debug)]
pub(super) struct SpanScan {
    place: usize,
    /// Those that are left, the next one last.
    spans: Vec<KeySpan>,
    /// In the next one.
    position: Option<ScanPosition>,
}

impl SpanScan {
    /// Goes through spans, which ascend.
    pub fn new(place: usize, mut spans: Vec<KeySpan>) -> Self {
        spans.reverse();
        Self { place, spans, position: None }
    }

    /// Whether nothing is left.
    pub fn is_ended(&self) -> bool {
        self.spans.is_empty()
    }

    /// Visits the next entries, to the end of a span at most, until the visitor breaks.
    pub fn advance(&mut self, snapshot: &Snapshot, visit: &mut RecordVisitor<'_>) -> Result<()> {
        let Some(span) = self.spans.last() else { return Ok(()) };
        let position = self.position.get_or_insert_with(|| ScanPosition::at(&span.from));
        let mut ended = false;
        snapshot.visit_btree(self.place, position, &mut |key, value| {
            if span.to.as_deref().is_some_and(|to| key >= to) {
                ended = true;
                return Ok(ControlFlow::Break(()));
            }
            visit(key, value)
        })?;
        if ended || position.ended {
            self.spans.pop();
            self.position = None;
        }
        Ok(())
    }
}
