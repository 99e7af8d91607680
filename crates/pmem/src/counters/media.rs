//! A model of the caches on the way to a medium.
//!
//! Loads and stores reach a CPU cache of lines, whose [`Eviction`] is a parameter. A line leaves it
//! dirty in two cases: when it is flushed (and stays, clean), or when it is evicted. Then it goes
//! into an LRU buffer of blocks in front of the medium, which combines the lines of a block. A
//! block is written to the medium when it is evicted from there. A line that the cache lacks is
//! read from a second LRU buffer of blocks, and that reads blocks from the medium.
//!
//! The model knows only lines and blocks: no ways, no sets, no prefetching.

use super::lru::Lru;
use super::random::Random;
use crate::LINE_LENGTH;

/// Default number of bytes of the modelled CPU cache.
pub const CPU_CACHE_LENGTH: u64 = 32 << 20;

/// Bytes of a block of the modelled medium.
pub const MEDIA_BLOCK_LENGTH: u64 = 256;

/// Blocks in the buffer in front of the medium, which combines lines.
pub const COMBINED_BLOCKS: usize = 64;

const BLOCK_LINES: u64 = MEDIA_BLOCK_LENGTH / LINE_LENGTH;

/// The line that the modelled CPU cache evicts when it is full.
///
/// Real caches evict in an order between the two. With `Lru`, the lines that were stored together
/// leave together and are combined, so a structure that flushes nothing writes each block once.
/// With `Random`, they leave at different times, and each of them writes a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// The least recently used line.
    Lru,
    /// A random line. The seed determines the order.
    Random {
        /// The seed.
        seed: u64,
    },
}

/// The cached lines, and whether each is dirty.
#[derive(Debug)]
enum CpuCache {
    Lru(Lru<bool>),
    Random(Random<bool>),
}

/// What happened since the last call of [`Media::take_counts`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MediaCounts {
    pub(super) lines_loaded: u64,
    pub(super) lines_evicted: u64,
    pub(super) blocks_read: u64,
    pub(super) blocks_written: u64,
}

#[derive(Debug)]
pub(super) struct Media {
    cpu_cache: CpuCache,
    combined: Lru<()>,
    read: Lru<()>,
    counts: MediaCounts,
}

impl Media {
    pub(super) fn new(cpu_cache_length: u64, eviction: Eviction) -> Self {
        let lines = usize::try_from(cpu_cache_length / LINE_LENGTH).unwrap_or(usize::MAX);
        let cpu_cache = match eviction {
            Eviction::Lru => CpuCache::Lru(Lru::new(lines)),
            Eviction::Random { seed } => CpuCache::Random(Random::new(lines, seed)),
        };
        Self {
            cpu_cache,
            combined: Lru::new(COMBINED_BLOCKS),
            read: Lru::new(COMBINED_BLOCKS),
            counts: MediaCounts::default(),
        }
    }

    pub(super) fn load(&mut self, line: u64) {
        self.touch(line, false);
    }

    pub(super) fn store(&mut self, line: u64) {
        self.touch(line, true);
    }

    pub(super) fn flush(&mut self, line: u64) {
        let is_dirty = match &mut self.cpu_cache {
            CpuCache::Lru(lines) => lines.get_mut(line),
            CpuCache::Random(lines) => lines.get_mut(line),
        };
        if is_dirty.is_some_and(std::mem::take) {
            self.write_back(line);
        }
    }

    /// Empties all caches.
    pub(super) fn drain(&mut self) {
        let lines = match &mut self.cpu_cache {
            CpuCache::Lru(lines) => lines.drain(),
            CpuCache::Random(lines) => lines.drain(),
        };
        for (line, _) in lines.into_iter().filter(|(_, is_dirty)| *is_dirty) {
            self.counts.lines_evicted += 1;
            self.write_back(line);
        }
        self.counts.blocks_written += self.combined.drain().len() as u64;
        self.read.drain();
    }

    /// The counts since the last call.
    pub(super) fn take_counts(&mut self) -> MediaCounts {
        std::mem::take(&mut self.counts)
    }

    fn touch(&mut self, line: u64, is_stored: bool) {
        let (is_known, evicted) = match &mut self.cpu_cache {
            CpuCache::Lru(lines) => touch(lines.get_mut(line).is_some(), lines.touch(line, false), is_stored),
            CpuCache::Random(lines) => touch(lines.get_mut(line).is_some(), lines.touch(line, false), is_stored),
        };
        if !is_known {
            self.counts.lines_loaded += 1;
            let block = line / BLOCK_LINES;
            // Lines that wait to be written need not be read from the medium.
            if self.combined.get_mut(block).is_none() {
                self.counts.blocks_read += u64::from(self.read.get_mut(block).is_none());
                self.read.touch(block, ());
            }
        }
        if let Some((line, true)) = evicted {
            self.counts.lines_evicted += 1;
            self.write_back(line);
        }
    }

    fn write_back(&mut self, line: u64) {
        let (_, evicted) = self.combined.touch(line / BLOCK_LINES, ());
        self.counts.blocks_written += u64::from(evicted.is_some());
    }
}

/// Whether the line was cached, and the line that it evicts. It is dirty from now on if it is
/// stored.
fn touch(
    is_known: bool,
    (is_dirty, evicted): (&mut bool, Option<(u64, bool)>),
    is_stored: bool,
) -> (bool, Option<(u64, bool)>) {
    *is_dirty |= is_stored;
    (is_known, evicted)
}
