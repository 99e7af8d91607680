//! The redo log: changes of several words at once, each committed by one word (T3 to T5).
//!
//! ```text
//! word 0      state: 0, or "committed" with the number of words of the body
//! words 1, 2  the blocks that the change acquires
//! word 3      the block that it releases
//! word 4..    the body: ranges of words, each behind a word that names its place
//! ```
//! The stores to the first line become durable in their order. So an entry is committed as a whole
//! or not at all, as the later lines are fenced before. If it is not committed, it has changed
//! nothing, and owns the blocks that words 1 and 2 name.

use std::collections::VecDeque;

use terrane_pmem::{Backend, LINE_LENGTH, Pool, Site, WORD_LENGTH};
use terrane_storage::sync::{AtomicBool, Condvar, Mutex, Ordering};

use super::change::{Change, Write};
use super::layout::{LOG_START, Layout, ROOT_WORD};
use crate::{Result, blocks};

/// The most concurrent changes.
pub(super) const ENTRIES: usize = 16;

/// The most blocks that a change acquires: a half of a node, and a root.
pub(super) const ACQUIRED: usize = 2;

/// Numbers of the words of an entry.
const STATE: u64 = 0;
const FIRST_ACQUIRED: u64 = 1;
const RELEASED: u64 = 3;
const BODY: u64 = 4;
const LINE_WORDS: u64 = LINE_LENGTH / WORD_LENGTH;

const COMMITTED: u64 = 1;
const LENGTH_SHIFT: u32 = 32;

/// The most nodes that a change writes to, without the root word.
const NODES: u64 = 3;

/// The word before a range: the node's offset, the first word in it, and the number of words.
const FIRST_SHIFT: u32 = 44;
const COUNT_SHIFT: u32 = 54;
const FIELD: u64 = (1 << 10) - 1;
const OFFSET: u64 = (1 << FIRST_SHIFT) - 1;

const LATER: Site = Site::new("btree.log.body");
const COMMIT: Site = Site::new("btree.log.commit");
const APPLY: Site = Site::new("btree.log.apply");
const CLEAR: Site = Site::new("btree.log.clear");

/// Free entries. They are taken in turn, so that all of them are used.
#[derive(Debug)]
pub(super) struct Log {
    free: Mutex<VecDeque<usize>>,
    returned: Condvar,
    /// Whether a committed change could not be finished, which takes a damaged pool.
    pub(super) failed: AtomicBool,
}

impl Log {
    pub(super) fn new() -> Self {
        Self { free: Mutex::new((0..ENTRIES).collect()), returned: Condvar::new(), failed: AtomicBool::new(false) }
    }

    /// Takes an entry, and waits for one if all are in use. The caller holds no lock.
    pub(super) fn take(&self, entries: Entries) -> Entry<'_> {
        let mut free = self.free.lock();
        loop {
            match free.pop_front() {
                Some(index) => return Entry { log: self, index, offset: entries.offset(index) },
                None => self.returned.wait(&mut free),
            }
        }
    }
}

/// The places of the entries of a tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entries {
    block: u64,
    length: u64,
}

impl Entries {
    pub(super) fn new<const K: usize, const V: usize>(layout: &Layout<K, V>, block: u64) -> Self {
        // A range is logged only if it saves the word before it.
        let body = NODES * (layout.words as u64 + 1) + 2;
        Self { block, length: ((BODY + body) * WORD_LENGTH).next_multiple_of(LINE_LENGTH) }
    }

    /// Bytes of the block that holds the shape, the root word and the log.
    pub(super) fn block_length(self) -> u64 {
        LOG_START + self.length * ENTRIES as u64
    }

    pub(super) fn offset(self, index: usize) -> u64 {
        self.block + LOG_START + self.length * index as u64
    }

    fn body_words(self) -> u64 {
        self.length / WORD_LENGTH - BODY
    }
}

/// Offset of the word that links a block until the change is committed.
pub(super) fn acquired_link(entry: u64, number: usize) -> u64 {
    entry + (FIRST_ACQUIRED + number as u64) * WORD_LENGTH
}

/// Offset of the word that links a block that the change releases.
pub(super) fn released_link(entry: u64) -> u64 {
    entry + RELEASED * WORD_LENGTH
}

/// An entry that belongs to one change, until it is dropped.
#[derive(Debug)]
pub struct Entry<'a> {
    log: &'a Log,
    index: usize,
    pub(super) offset: u64,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.log.free.lock().push_back(self.index);
        self.log.returned.notify_one();
    }
}

impl Entry<'_> {
    /// Keeps the entry of a change that could not be finished, and stops all others.
    pub(super) fn keep(self) {
        self.log.failed.store(true, Ordering::Relaxed);
        std::mem::forget(self);
    }
}

/// Commits a change. Its new nodes were flushed.
pub(super) fn commit<B: Backend>(backend: &B, entry: u64, change: &Change) {
    let body = encode(change);
    let word = |number: u64| entry + number * WORD_LENGTH;
    let later = LINE_WORDS..(BODY + body.len() as u64).max(LINE_WORDS);
    for number in later.clone() {
        backend.store(word(number), body[(number - BODY) as usize]);
    }
    backend.flush(word(later.start)..word(later.end), LATER);
    if !later.is_empty() || change.acquired.iter().any(|block| *block != 0) {
        backend.fence(LATER);
    }
    for (number, &block) in change.acquired.iter().enumerate() {
        backend.store(acquired_link(entry, number), block);
    }
    backend.store(released_link(entry), change.released);
    for (number, &value) in (BODY..LINE_WORDS).zip(&body) {
        backend.store(word(number), value);
    }
    backend.store(word(STATE), COMMITTED | (body.len() as u64) << LENGTH_SHIFT);
    backend.persist(entry..entry + LINE_LENGTH, COMMIT);
}

/// Stores the words of a change, durably.
pub(super) fn apply<B: Backend>(backend: &B, writes: &[Write]) {
    for Write { node, first, words } in writes {
        let start = node + *first as u64 * WORD_LENGTH;
        for (offset, &word) in (start..).step_by(WORD_LENGTH as usize).zip(words) {
            backend.store(offset, word);
        }
    }
    flush_once(backend, writes);
    backend.fence(APPLY);
}

/// Flushes each line of the writes once.
fn flush_once<B: Backend>(backend: &B, writes: &[Write]) {
    let mut flushed = 0;
    for Write { node, first, words } in writes {
        let start = node + *first as u64 * WORD_LENGTH;
        let end = start + words.len() as u64 * WORD_LENGTH;
        // Ranges of a node ascend, so that only the line of the last one can come again.
        backend.flush(start.max(flushed)..end, APPLY);
        flushed = end.next_multiple_of(LINE_LENGTH);
        if !writes.iter().any(|other| other.node == *node && other.first > *first) {
            flushed = 0;
        }
    }
}

/// Clears an entry, so that it names no blocks and is not committed (T5).
pub(super) fn clear<B: Backend>(backend: &B, entry: u64) {
    let words = (FIRST_ACQUIRED..=RELEASED).chain([STATE]);
    for offset in words.map(|number| entry + number * WORD_LENGTH) {
        if backend.load(offset) != 0 {
            backend.store(offset, 0);
        }
    }
    backend.persist(entry..entry + LINE_LENGTH, CLEAR);
}

/// An entry as a crash has left it.
#[derive(Debug)]
pub(super) enum Found {
    /// It names nothing.
    Free,
    /// It was not committed, and names these blocks, or 0.
    Announced([u64; ACQUIRED]),
    /// It was committed.
    Committed(Change),
}

/// Reads an entry. It is an error if it is impossible.
pub(super) fn read<const K: usize, const V: usize, B: Backend>(
    pool: &Pool<B>,
    layout: &Layout<K, V>,
    block: u64,
    index: usize,
) -> Result<Found> {
    let entries = Entries::new(layout, block);
    let (backend, entry) = (pool.backend(), entries.offset(index));
    let word = |number: u64| backend.load(entry + number * WORD_LENGTH);
    let acquired = std::array::from_fn(|number| word(FIRST_ACQUIRED + number as u64));
    let state = word(STATE);
    if state == 0 {
        return Ok(if acquired == [0; ACQUIRED] { Found::Free } else { Found::Announced(acquired) });
    }
    let damaged = |reason: String| blocks::damaged(pool, entry, reason);
    let length = state >> LENGTH_SHIFT;
    if state & !(u64::MAX << LENGTH_SHIFT) != COMMITTED || length > entries.body_words() {
        return Err(damaged(format!("an entry of the log has the impossible state {state:#x}")));
    }
    let mut change = Change { acquired, released: word(RELEASED), writes: Vec::new() };
    let mut number = 0;
    while number < length {
        let place = word(BODY + number);
        let (node, first, count) = (place & OFFSET, place >> FIRST_SHIFT & FIELD, place >> COUNT_SHIFT);
        let is_root_word = node == block && first == ROOT_WORD / WORD_LENGTH && count == 1;
        if !is_root_word {
            blocks::check_own(pool, node, layout.node_length())?;
        }
        if count == 0 || !is_root_word && first + count > layout.words as u64 || number + count >= length {
            return Err(damaged(format!("a range of {count} words in the log is impossible")));
        }
        let words = (number + 1..=number + count).map(|number| word(BODY + number)).collect();
        change.writes.push(Write { node, first: first as usize, words });
        number += count + 1;
    }
    Ok(Found::Committed(change))
}

fn encode(change: &Change) -> Vec<u64> {
    let mut body = Vec::new();
    for Write { node, first, words } in &change.writes {
        body.push(node | (*first as u64) << FIRST_SHIFT | (words.len() as u64) << COUNT_SHIFT);
        body.extend_from_slice(words);
    }
    body
}
