//! Costs of operations, as counts that depend only on the actions of one thread.
//!
//! The counts are compared with published figures where there is no persistent memory to measure.
//! The model of the medium is simple and states its sizes. It gives bytes, never times.

mod lru;
mod media;
mod random;

use std::collections::BTreeSet;
use std::ops::AddAssign;
use std::sync::Arc;

use terrane_storage::File;
use terrane_storage::sync::Mutex;

use crate::{Backend, LINE_LENGTH, Loads, PersistenceDomain, Result, Site, WORD_LENGTH};
use media::Media;
pub use media::{COMBINED_BLOCKS, CPU_CACHE_LENGTH, Eviction, MEDIA_BLOCK_LENGTH};

/// Counts between two calls of [`Counted::take`]: of one operation, if one thread runs it alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Words stored. A failed compare-and-swap stores none.
    pub stores: u64,
    /// Bits (not bytes) that a store changed, the Hamming distance. Flipped bits wear a medium out.
    pub bits_flipped: u64,
    /// Distinct lines that were loaded from.
    pub lines_read: u64,
    /// Lines written back by flushes, each time counted.
    pub flushes: u64,
    /// Distinct lines among them.
    pub lines_flushed: u64,
    /// Flushes of a line that was flushed just before, or with one other flush in between.
    pub reflushes: u64,
    /// Fences.
    pub fences: u64,
    /// Lines that the modelled CPU cache lacked, for loads and for stores.
    pub lines_loaded: u64,
    /// Lines that the modelled CPU cache wrote back because it was full.
    pub lines_evicted: u64,
    /// Blocks that the modelled medium wrote.
    pub media_blocks: u64,
    /// Blocks that were read from the modelled medium.
    pub media_blocks_read: u64,
}

impl Counters {
    /// Bytes stored.
    pub fn bytes_stored(&self) -> u64 {
        self.stores * WORD_LENGTH
    }

    /// Bytes that the modelled medium wrote.
    pub fn media_bytes(&self) -> u64 {
        self.media_blocks * MEDIA_BLOCK_LENGTH
    }

    /// Bytes that were read from the modelled medium.
    pub fn media_bytes_read(&self) -> u64 {
        self.media_blocks_read * MEDIA_BLOCK_LENGTH
    }
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.stores += other.stores;
        self.bits_flipped += other.bits_flipped;
        self.lines_read += other.lines_read;
        self.flushes += other.flushes;
        self.lines_flushed += other.lines_flushed;
        self.reflushes += other.reflushes;
        self.fences += other.fences;
        self.lines_loaded += other.lines_loaded;
        self.lines_evicted += other.lines_evicted;
        self.media_blocks += other.media_blocks;
        self.media_blocks_read += other.media_blocks_read;
    }
}

/// A back-end that counts the accesses that pass through it.
#[derive(Debug)]
pub struct Counted<B> {
    inner: B,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    counters: Counters,
    lines_read: BTreeSet<u64>,
    lines_flushed: BTreeSet<u64>,
    /// The last two flushes over all operations, newest first.
    latest_flushes: [Option<u64>; 2],
    media: Media,
}

impl State {
    fn new(cpu_cache_length: u64, eviction: Eviction) -> Self {
        Self {
            counters: Counters::default(),
            lines_read: BTreeSet::new(),
            lines_flushed: BTreeSet::new(),
            latest_flushes: [None; 2],
            media: Media::new(cpu_cache_length, eviction),
        }
    }

    fn load(&mut self, offset: u64) {
        let line = offset / LINE_LENGTH;
        self.lines_read.insert(line);
        self.media.load(line);
    }

    fn store(&mut self, offset: u64, before: u64, after: u64) {
        self.counters.stores += 1;
        self.counters.bits_flipped += u64::from((before ^ after).count_ones());
        self.media.store(offset / LINE_LENGTH);
    }

    fn flush(&mut self, offset: u64) {
        let line = offset / LINE_LENGTH;
        self.counters.flushes += 1;
        self.counters.reflushes += u64::from(self.latest_flushes.contains(&Some(line)));
        self.latest_flushes = [Some(line), self.latest_flushes[0]];
        self.lines_flushed.insert(line);
        self.media.flush(line);
    }

    fn take(&mut self) -> Counters {
        let media = self.media.take_counts();
        let lines_read = std::mem::take(&mut self.lines_read).len() as u64;
        let lines_flushed = std::mem::take(&mut self.lines_flushed).len() as u64;
        Counters {
            lines_read,
            lines_flushed,
            lines_loaded: media.lines_loaded,
            lines_evicted: media.lines_evicted,
            media_blocks: media.blocks_written,
            media_blocks_read: media.blocks_read,
            ..std::mem::take(&mut self.counters)
        }
    }
}

impl<B: Backend> Counted<B> {
    /// The counts since the last call, or since the file was mapped.
    pub fn take(&self) -> Counters {
        self.state.lock().take()
    }

    /// Resets all counts and begins with empty caches. The CPU cache gets `cpu_cache_length` bytes
    /// (at first [`CPU_CACHE_LENGTH`]), and evicts the least recently used line.
    pub fn reset(&self, cpu_cache_length: u64) {
        self.reset_evicting(cpu_cache_length, Eviction::Lru);
    }

    /// Does the same for a CPU cache that evicts in another way.
    pub fn reset_evicting(&self, cpu_cache_length: u64, eviction: Eviction) {
        *self.state.lock() = State::new(cpu_cache_length, eviction);
    }

    /// Writes out the lines and blocks in the modelled caches, so that they are counted.
    pub fn drain_media(&self) {
        self.state.lock().media.drain();
    }
}

impl<B: Backend> Backend for Counted<B> {
    type View<'a>
        = Loads<'a, Self>
    where
        Self: 'a;

    fn map(file: Arc<dyn File>, pool: &str, domain: PersistenceDomain, address_space: u64) -> Result<Self> {
        let inner = B::map(file, pool, domain, address_space)?;
        Ok(Self { inner, state: Mutex::new(State::new(CPU_CACHE_LENGTH, Eviction::Lru)) })
    }

    fn extend(&self, length: u64) -> Result<()> {
        self.inner.extend(length)
    }

    fn length(&self) -> u64 {
        self.inner.length()
    }

    fn domain(&self) -> PersistenceDomain {
        self.inner.domain()
    }

    fn load(&self, offset: u64) -> u64 {
        self.state.lock().load(offset);
        self.inner.load(offset)
    }

    fn view(&self, offset: u64, length: u64) -> Loads<'_, Self> {
        Loads::new(self, offset, length)
    }

    fn store(&self, offset: u64, value: u64) {
        let mut state = self.state.lock();
        state.store(offset, self.inner.load(offset), value);
        self.inner.store(offset, value);
    }

    fn compare_exchange(&self, offset: u64, current: u64, new: u64) -> std::result::Result<u64, u64> {
        let mut state = self.state.lock();
        state.load(offset);
        let outcome = self.inner.compare_exchange(offset, current, new);
        if outcome.is_ok() {
            state.store(offset, current, new);
        }
        outcome
    }

    fn fetch_or(&self, offset: u64, bits: u64) -> u64 {
        let mut state = self.state.lock();
        state.load(offset);
        let before = self.inner.fetch_or(offset, bits);
        state.store(offset, before, before | bits);
        before
    }

    fn fetch_and(&self, offset: u64, bits: u64) -> u64 {
        let mut state = self.state.lock();
        state.load(offset);
        let before = self.inner.fetch_and(offset, bits);
        state.store(offset, before, before & bits);
        before
    }

    fn write_back(&self, line: u64, site: Site) {
        self.state.lock().flush(line);
        self.inner.write_back(line, site);
    }

    fn fence(&self, site: Site) {
        self.state.lock().counters.fences += 1;
        self.inner.fence(site);
    }
}
