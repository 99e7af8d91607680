//! Stores to a node that become durable in their order, with as few flushes as that takes.

use terrane_pmem::{Backend, LINE_LENGTH, Site, WORD_LENGTH};

/// Stores to a node that become durable in their order.
pub(super) struct Stores<'a, B> {
    backend: &'a B,
    pub(super) node: u64,
    /// The site of all flushes but the last, and that of the last.
    sites: [Site; 2],
    /// The line that was stored to since the last fence.
    dirty: Option<u64>,
}

impl<'a, B: Backend> Stores<'a, B> {
    pub(super) fn new(backend: &'a B, node: u64, sites: [Site; 2]) -> Self {
        Self { backend, node, sites, dirty: None }
    }

    /// The line of a word.
    pub(super) fn line(&self, word: usize) -> u64 {
        let offset = self.node + word as u64 * WORD_LENGTH;
        offset - offset % LINE_LENGTH
    }

    /// Stores a word after all earlier ones. The stores to one line keep their order by themselves,
    /// so only a change of the line takes a fence.
    pub(super) fn store(&mut self, word: usize, value: u64) {
        let line = self.line(word);
        if let Some(dirty) = self.dirty.take().filter(|dirty| *dirty != line) {
            self.backend.persist(dirty..dirty + LINE_LENGTH, self.sites[0]);
        }
        self.backend.store(self.node + word as u64 * WORD_LENGTH, value);
        self.dirty = Some(line);
    }

    /// Makes everything durable.
    pub(super) fn end(self) {
        if let Some(dirty) = self.dirty {
            self.backend.persist(dirty..dirty + LINE_LENGTH, self.sites[1]);
        }
    }
}
