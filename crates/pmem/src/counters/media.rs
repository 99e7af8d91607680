//! A model of the caches on the way to a medium.
//!
//! Stores reach an LRU CPU cache of lines. A line leaves it dirty in two cases: when it is flushed
//! (and stays, clean), or when it is evicted. Then it goes into an LRU buffer of blocks in front of
//! the medium, which combines the lines of a block. A block is written to the medium when it is
//! evicted from there. The model knows only lines and blocks: no ways, no sets, no prefetching.

use super::lru::Lru;
use crate::LINE_LENGTH;

/// Default number of bytes of the modelled CPU cache.
pub const CPU_CACHE_LENGTH: u64 = 32 << 20;

/// Bytes of a block of the modelled medium.
pub const MEDIA_BLOCK_LENGTH: u64 = 256;

/// Blocks in the buffer in front of the medium, which combines lines.
pub const COMBINED_BLOCKS: usize = 64;

const BLOCK_LINES: u64 = MEDIA_BLOCK_LENGTH / LINE_LENGTH;

#[derive(Debug)]
pub(super) struct Media {
    /// The cached lines, and whether each is dirty.
    cpu_cache: Lru<bool>,
    combined: Lru<()>,
    lines_evicted: u64,
    blocks_written: u64,
}

impl Media {
    pub(super) fn new(cpu_cache_length: u64) -> Self {
        let lines = usize::try_from(cpu_cache_length / LINE_LENGTH).unwrap_or(usize::MAX);
        Self { cpu_cache: Lru::new(lines), combined: Lru::new(COMBINED_BLOCKS), lines_evicted: 0, blocks_written: 0 }
    }

    pub(super) fn load(&mut self, line: u64) {
        self.touch(line, false);
    }

    pub(super) fn store(&mut self, line: u64) {
        self.touch(line, true);
    }

    pub(super) fn flush(&mut self, line: u64) {
        let was_dirty = self.cpu_cache.get_mut(line).is_some_and(std::mem::take);
        if was_dirty {
            self.write_back(line);
        }
    }

    /// Empties both caches.
    pub(super) fn drain(&mut self) {
        for (line, is_dirty) in self.cpu_cache.drain() {
            if is_dirty {
                self.lines_evicted += 1;
                self.write_back(line);
            }
        }
        self.blocks_written += self.combined.drain().len() as u64;
    }

    /// Lines evicted and blocks written since the last call.
    pub(super) fn take_counts(&mut self) -> (u64, u64) {
        (std::mem::take(&mut self.lines_evicted), std::mem::take(&mut self.blocks_written))
    }

    fn touch(&mut self, line: u64, is_stored: bool) {
        let (is_dirty, evicted) = self.cpu_cache.touch(line, false);
        *is_dirty |= is_stored;
        if let Some((line, true)) = evicted {
            self.lines_evicted += 1;
            self.write_back(line);
        }
    }

    fn write_back(&mut self, line: u64) {
        let (_, evicted) = self.combined.touch(line / BLOCK_LINES, ());
        self.blocks_written += u64::from(evicted.is_some());
    }
}
