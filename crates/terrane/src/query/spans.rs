//! Ranges of the keys of a B-tree, and scans of them.

use std::ops::{Bound, ControlFlow};

use terrane_lsm::memory::btree::KeyRange;

use crate::Result;
use crate::condition::Domain;
use crate::secondary::PRIMARY;
use crate::snapshot::{RecordVisitor, ScanPosition, Snapshot};

/// The keys of an index from `from` (included) to `to` (excluded), or to the end without `to`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeySpan {
    pub from: Vec<u8>,
    pub to: Option<Vec<u8>>,
}

impl KeySpan {
    /// The span as a range for estimates.
    pub fn range(&self) -> KeyRange<'_> {
        KeyRange { from: Bound::Included(&self.from), to: self.to.as_deref().map_or(Bound::Unbounded, Bound::Excluded) }
    }

    /// All keys.
    pub const ALL: Self = Self { from: Vec::new(), to: None };

    /// The key, if the span has exactly one.
    fn only_key(&self) -> Option<&[u8]> {
        let (last, key) = self.to.as_deref()?.split_last()?;
        (*last == 0 && key == self.from).then_some(&self.from)
    }

    /// All keys with a prefix.
    pub fn of_prefix(prefix: Vec<u8>) -> Self {
        Self { to: behind_prefix(&prefix), from: prefix }
    }
}

/// The first key after all keys with a prefix.
pub(super) fn behind_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut behind = prefix[..=last].to_vec();
    behind[last] += 1;
    Some(behind)
}

/// Spans of the records with the given keys, ascending and disjoint.
pub(super) fn of_keys(keys: &Domain<Vec<u8>>) -> Vec<KeySpan> {
    // No key lies between a key and this one.
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

/// Scans spans of the B-trees with a slot, partition by partition. Never holds sealed memory for
/// long.
#[derive(Debug)]
pub(super) struct SpanScan {
    place: usize,
    /// Ascending.
    spans: Vec<KeySpan>,
    /// The current span; `None` at the end.
    current: Option<Current>,
    /// Whether the keys are those of records, so that each key's partition is known.
    is_primary: bool,
    /// Whether one call reads only what one version gives.
    in_steps: bool,
}

/// A span of a partition's B-tree, with the scan's progress in it.
#[derive(Debug)]
struct Current {
    partition: usize,
    span: usize,
    position: Option<ScanPosition>,
}

impl SpanScan {
    /// Scans ascending spans in the partitions visible to a snapshot.
    pub fn new(snapshot: &Snapshot, place: usize, spans: Vec<KeySpan>) -> Self {
        let mut scan = Self { place, spans, current: None, is_primary: place == PRIMARY as usize, in_steps: false };
        scan.go_to(snapshot, snapshot.scope().start, 0);
        scan
    }

    /// For a caller that advances its snapshot from step to step.
    pub fn in_steps(self, in_steps: bool) -> Self {
        Self { in_steps, ..self }
    }

    /// Moves to a span of a partition, or to the next one that can have entries.
    fn go_to(&mut self, snapshot: &Snapshot, mut partition: usize, mut span: usize) {
        self.current = None;
        while partition < snapshot.scope().end {
            while let Some(next) = self.spans.get(span) {
                let key = next.only_key().filter(|_| self.is_primary);
                if key.is_none_or(|key| snapshot.partition_of(key) == partition) {
                    self.current = Some(Current { partition, span, position: None });
                    return;
                }
                span += 1;
            }
            (partition, span) = (partition + 1, 0);
        }
    }

    /// The partition of the next entries; `None` at the end.
    pub fn partition(&self) -> Option<usize> {
        self.current.as_ref().map(|current| current.partition)
    }

    /// Whether the scan has ended.
    pub fn is_ended(&self) -> bool {
        self.current.is_none()
    }

    /// Visits the next entries, at most to the end of a span or a step, until the visitor breaks.
    pub fn advance(&mut self, snapshot: &Snapshot, visit: &mut RecordVisitor<'_>) -> Result<()> {
        let Some(Current { partition, span: number, position }) = &mut self.current else { return Ok(()) };
        let span = &self.spans[*number];
        let position = position.get_or_insert_with(|| ScanPosition::at(&span.from));
        let mut ended = false;
        let visit = &mut |key: &[u8], value: &[u8]| {
            if span.to.as_deref().is_some_and(|to| key >= to) {
                ended = true;
                return Ok(ControlFlow::Break(()));
            }
            visit(key, value)
        };
        if self.in_steps {
            let _ = snapshot.visit_btree_step(*partition, self.place, position, visit)?;
        } else {
            snapshot.visit_btree_from(*partition, self.place, position, visit)?;
        }
        if ended || position.ended {
            let (partition, number) = (*partition, *number);
            self.go_to(snapshot, partition, number + 1);
        }
        Ok(())
    }
}
