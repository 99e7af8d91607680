//! Keys stored one after the other in one allocation.

use std::ops::Range;

/// A list of keys.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    bytes: Vec<u8>,
    /// The position of each key. Machine words, because a list may hold more than 4 GiB.
    spans: Vec<Range<usize>>,
}

impl Keys {
    /// Keys in `bytes` at these positions.
    pub fn from_parts(bytes: Vec<u8>, spans: Vec<Range<usize>>) -> Self {
        Self { bytes, spans }
    }

    pub fn push(&mut self, key: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.spans.push(start..self.bytes.len());
    }

    pub fn get(&self, index: usize) -> Option<&[u8]> {
        self.spans.get(index).map(|span| &self.bytes[span.clone()])
    }

    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Allocated bytes.
    pub fn memory_used(&self) -> usize {
        self.bytes.capacity() + size_of::<Range<usize>>() * self.spans.capacity()
    }

    /// Used bytes.
    pub fn bytes_held(&self) -> usize {
        self.bytes.len() + size_of::<Range<usize>>() * self.spans.len()
    }

    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }

    /// Moves the keys from an index on that satisfy `moves` to another list. Their bytes remain
    /// until this list is cleared.
    pub fn move_where(&mut self, from: usize, to: &mut Self, mut moves: impl FnMut(&[u8]) -> bool) {
        let (bytes, mut index) = (&self.bytes, 0);
        self.spans.retain(|span| {
            let key = &bytes[span.clone()];
            let stays = index < from || !moves(key);
            if !stays {
                to.push(key);
            }
            index += 1;
            stays
        });
    }

    pub fn sort(&mut self) {
        let bytes = &self.bytes;
        self.spans.sort_unstable_by(|a, b| bytes[a.clone()].cmp(&bytes[b.clone()]));
    }
}
