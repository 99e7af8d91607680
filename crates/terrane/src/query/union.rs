//! The entries of a word in several indexes, each record once. The word may be in any of several
//! columns, and each column has an index of its words.
//!
//! After the word, entries are in the order of their records' keys. So the spans of the indexes are
//! merged partition by partition. Some entries wait in memory.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use super::spans::{KeySpan, SpanScan};
use crate::Result;
use crate::secondary::split_attributes;
use crate::snapshot::Snapshot;

/// Maximal number of an index's entries that wait to be merged.
const WAITING_MAX: usize = 1024;
/// Bytes of their keys after which no more are read.
const WAITING_BYTES: usize = 64 << 10;

/// A merge of one word's entries in several indexes.
#[derive(Debug)]
pub(super) struct UnionScan {
    parts: Vec<Part>,
}

/// The entries of one index.
#[derive(Debug)]
struct Part {
    scan: SpanScan,
    /// Partitions and keys of the waiting records, ascending. The scan continues after them.
    waiting: VecDeque<(usize, Vec<u8>)>,
}

impl UnionScan {
    /// Entries of the indexes with these slots, each in a span whose keys all begin with one word.
    pub fn new(snapshot: &Snapshot, spans: impl IntoIterator<Item = (usize, KeySpan)>) -> Self {
        let part = |(place, span)| Part { scan: SpanScan::new(snapshot, place, vec![span]), waiting: VecDeque::new() };
        Self { parts: spans.into_iter().map(part).collect() }
    }

    /// Visits the keys of the next records, until an index has to be read again; false at the end.
    /// `seen` increases by the number of entries read.
    pub fn advance(&mut self, snapshot: &Snapshot, seen: &mut u64, visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        for part in &mut self.parts {
            *seen += part.fill(snapshot)?;
        }
        while self.parts.iter().all(Part::is_known) {
            let firsts =
                self.parts.iter().enumerate().filter_map(|(number, part)| Some((part.waiting.front()?, number)));
            let first = firsts.min().map(|(_, number)| number);
            let Some(next) = first.and_then(|number| self.parts[number].waiting.pop_front()) else {
                return Ok(false);
            };
            for part in &mut self.parts {
                part.waiting.pop_front_if(|first| *first == next);
            }
            visit(&next.1);
        }
        Ok(true)
    }
}

impl Part {
    /// Whether its next entry is known, or that there is none.
    fn is_known(&self) -> bool {
        !self.waiting.is_empty() || self.scan.is_ended()
    }

    /// Reads the next entries if none wait. Returns their number.
    fn fill(&mut self, snapshot: &Snapshot) -> Result<u64> {
        let mut bytes = 0;
        while let (true, Some(partition)) = (self.waiting.is_empty(), self.scan.partition()) {
            let waiting = &mut self.waiting;
            self.scan.advance(snapshot, &mut |entry, _| {
                let (_, key) = split_attributes(entry, 1)?;
                bytes += key.len();
                waiting.push_back((partition, key.to_vec()));
                let is_enough = waiting.len() == WAITING_MAX || bytes >= WAITING_BYTES;
                Ok(if is_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
            if !self.waiting.is_empty() {
                return Ok(self.waiting.len() as u64);
            }
        }
        Ok(0)
    }
}
