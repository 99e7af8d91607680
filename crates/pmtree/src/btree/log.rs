//! The redo log: changes of several words at once, each committed by stamps in its lines (T3 to
//! T5).
//!
//! - word 0, state: 0, or "committed", the length of the body, and the number of this use.
//! - words 1 and 2: the blocks that the change acquires.
//! - word 3: the block that it releases. Or the inner node that gets the first acquired block as a
//!   child (T9), with the number of its children before.
//! - then the body: ranges of words, each behind a word that names its place.
//!
//! The last word of each later line is its stamp: the number of the use. The stores to one line
//! become durable in their order. So a line with the stamp is whole, and the entry is committed if
//! its first line says so and all others have the stamp. One fence makes all of them durable.
//!
//! An entry that is not committed has changed nothing, and owns the blocks that words 1 and 2 name.

use std::collections::VecDeque;
use std::ops::Range;

use terrane_pmem::{Backend, LINE_LENGTH, Pool, Site, View, WORD_LENGTH};
use terrane_storage::sync::{AtomicBool, Condvar, Mutex, Ordering};

use super::change::{ACQUIRED, Change, Linking, Write};
use super::inner;
use super::layout::{Form, LOG_START, Layout, META, ROOT_WORD, count, level};
use crate::{Result, blocks};

/// The most concurrent changes.
const ENTRIES: usize = 16;

/// Numbers of the words of an entry.
const STATE: u64 = 0;
const FIRST_ACQUIRED: u64 = 1;
const RELEASED: u64 = 3;
const BODY: u64 = 4;
const LINE_WORDS: u64 = LINE_LENGTH / WORD_LENGTH;

/// Words of the body in the first line, and in each later one.
const FIRST_WORDS: u64 = LINE_WORDS - BODY;
const LATER_WORDS: u64 = LINE_WORDS - 1;

/// The parts of a state. The number of the use is above.
const COMMITTED: u64 = 1;
const LENGTH_SHIFT: u32 = 1;
const LENGTH: u64 = (1 << 15) - 1;
const USE_SHIFT: u32 = 16;

/// Numbers of uses are below. No program uses an entry that often.
const USE_END: u64 = 1 << 47;

/// The most nodes that a change writes to, without the root word.
const NODES: u64 = 3;

/// The word before a range: the node's offset, the first word in it, and the number of words.
const FIRST_SHIFT: u32 = 44;
const COUNT_SHIFT: u32 = 54;
const FIELD: u64 = (1 << 10) - 1;
const OFFSET: u64 = (1 << FIRST_SHIFT) - 1;

/// Word 3 of a change that adds a child to a node: the node's offset, this bit, and the number of
/// children before.
const LINKS: u64 = 1;
const BEFORE_SHIFT: u32 = FIRST_SHIFT;

const NEW: Site = Site::new("btree.log.new");
const LATER: Site = Site::new("btree.log.later");
const COMMIT: Site = Site::new("btree.log.commit");
const APPLY: Site = Site::new("btree.log.apply");
const CLEAR: Site = Site::new("btree.log.clear");

/// Free entries, each with the number of its next use. They are taken in turn, so that all of them
/// are used.
#[derive(Debug)]
pub(super) struct Log {
    free: Mutex<VecDeque<(usize, u64)>>,
    returned: Condvar,
    /// Whether a committed change could not be finished, which takes a damaged pool.
    pub(super) failed: AtomicBool,
}

impl Log {
    /// The log of a tree whose entries are free. A crash may have left lines of a use that was not
    /// committed, so the number of the next use is greater than all stamps.
    pub(super) fn new<B: Backend>(backend: &B, entries: Entries) -> Self {
        let next_use = |index: usize| {
            let entry = entries.offset(index);
            let stamps = (entry + LINE_LENGTH..entry + entries.length).step_by(LINE_LENGTH as usize);
            stamps.map(|line| backend.load(line + LATER_WORDS * WORD_LENGTH)).max().unwrap_or(0) + 1
        };
        let free = (0..entries.count).map(|index| (index, next_use(index))).collect();
        Self { free: Mutex::new(free), returned: Condvar::new(), failed: AtomicBool::new(false) }
    }

    /// Takes an entry, and waits for one if all are in use; `None` if a change has failed. The
    /// caller holds no lock.
    pub(super) fn take(&self, entries: Entries) -> Option<Entry<'_>> {
        let mut free = self.free.lock();
        while !self.failed.load(Ordering::Relaxed) {
            if let Some((index, number)) = free.pop_front() {
                return Some(Entry { log: self, index, number, offset: entries.offset(index) });
            }
            self.returned.wait(&mut free);
        }
        None
    }
}

/// The places of the entries of a tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entries {
    block: u64,
    length: u64,
    /// Number of the entries.
    pub(super) count: usize,
}

impl Entries {
    pub(super) fn new<const K: usize, const V: usize>(layout: &Layout<K, V>, block: u64) -> Self {
        if layout.form == Form::Chain {
            // Nodes in memory are not logged.
            return Self { block, length: 0, count: 0 };
        }
        // A range is logged only if it saves the word before it.
        let body = NODES * (layout.words as u64 + 1) + 2;
        Self { block, length: (1 + (body - FIRST_WORDS).div_ceil(LATER_WORDS)) * LINE_LENGTH, count: ENTRIES }
    }

    /// Bytes of the block that holds the shape, the root word and the log.
    pub(super) fn block_length(self) -> u64 {
        LOG_START + self.length * self.count as u64
    }

    pub(super) fn offset(self, index: usize) -> u64 {
        self.block + LOG_START + self.length * index as u64
    }

    fn body_words(self) -> u64 {
        FIRST_WORDS + (self.length / LINE_LENGTH - 1) * LATER_WORDS
    }
}

/// Offset of a word of the body within an entry.
fn body_word(number: u64) -> u64 {
    match number.checked_sub(FIRST_WORDS) {
        None => (BODY + number) * WORD_LENGTH,
        Some(later) => (1 + later / LATER_WORDS) * LINE_LENGTH + later % LATER_WORDS * WORD_LENGTH,
    }
}

/// The later lines of an entry with this number of words in its body.
fn later_lines(entry: u64, length: u64) -> Range<u64> {
    let lines = length.saturating_sub(FIRST_WORDS).div_ceil(LATER_WORDS);
    entry + LINE_LENGTH..entry + (1 + lines) * LINE_LENGTH
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
    number: u64,
    pub(super) offset: u64,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.log.free.lock().push_back((self.index, self.number + 1));
        self.log.returned.notify_one();
    }
}

impl Entry<'_> {
    /// Keeps the entry of a change that could not be finished, and stops all others.
    pub(super) fn keep(self) {
        self.log.failed.store(true, Ordering::Relaxed);
        // The lock is taken, so that nobody is about to wait.
        drop(self.log.free.lock());
        self.log.returned.notify_all();
        std::mem::forget(self);
    }
}

/// Commits a change. Its new nodes were flushed.
pub(super) fn commit<B: Backend>(backend: &B, entry: &Entry<'_>, change: &Change) {
    let (body, number, entry) = (encode(change), entry.number, entry.offset);
    let length = body.len() as u64;
    // The entry would link new nodes that are not durable.
    if change.acquired.iter().any(|block| *block != 0) {
        backend.fence(NEW);
    }
    let later = later_lines(entry, length);
    for (number, &word) in (0..).zip(&body).skip(FIRST_WORDS as usize) {
        backend.store(entry + body_word(number), word);
    }
    for line in later.clone().step_by(LINE_LENGTH as usize) {
        backend.store(line + LATER_WORDS * WORD_LENGTH, number);
    }
    backend.flush(later, LATER);
    for (number, &block) in change.acquired.iter().enumerate() {
        backend.store(acquired_link(entry, number), block);
    }
    let linking = |Linking { parent, before, .. }: &Linking| parent | LINKS | (*before as u64) << BEFORE_SHIFT;
    backend.store(released_link(entry), change.linking.as_ref().map_or(change.released, linking));
    for (number, &word) in (0..FIRST_WORDS).zip(&body) {
        backend.store(entry + body_word(number), word);
    }
    backend.store(entry + STATE * WORD_LENGTH, COMMITTED | length << LENGTH_SHIFT | number << USE_SHIFT);
    backend.persist(entry..entry + LINE_LENGTH, COMMIT);
}

/// Makes a committed change durably, as often as it takes. Fails only if the pool is damaged.
pub(super) fn apply<const K: usize, const V: usize, B: Backend>(
    pool: &Pool<B>,
    layout: &Layout<K, V>,
    change: &Change,
) -> Result<()> {
    let backend = pool.backend();
    store(backend, &change.writes);
    flush_once(backend, &change.writes);
    // The fences of a shift serve the words above as well.
    let is_fenced = match &change.linking {
        Some(linking) => inner::add_child(pool, layout, linking, change.acquired[0])?,
        None => false,
    };
    if !is_fenced {
        backend.fence(APPLY);
    }
    Ok(())
}

/// Stores the words of a change.
pub(super) fn store<B: Backend>(backend: &B, writes: &[Write]) {
    for Write { node, first, words } in writes {
        let start = node + *first as u64 * WORD_LENGTH;
        for (offset, &word) in (start..).step_by(WORD_LENGTH as usize).zip(words) {
            backend.store(offset, word);
        }
    }
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
    clear_volatile(backend, entry);
    backend.persist(entry..entry + LINE_LENGTH, CLEAR);
}

/// Does so where nothing is durable. Word 3 may need word 1, so it is emptied first.
pub(super) fn clear_volatile<B: Backend>(backend: &B, entry: u64) {
    let words = (FIRST_ACQUIRED..=RELEASED).rev().chain([STATE]);
    for offset in words.map(|number| entry + number * WORD_LENGTH) {
        if backend.load(offset) != 0 {
            backend.store(offset, 0);
        }
    }
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

/// Checks that no line of an entry has a stamp that no use can leave.
fn check_stamps<B: Backend>(pool: &Pool<B>, entries: Entries, entry: u64) -> Result<()> {
    for line in (entry + LINE_LENGTH..entry + entries.length).step_by(LINE_LENGTH as usize) {
        let stamp = pool.backend().load(line + LATER_WORDS * WORD_LENGTH);
        if stamp >= USE_END {
            return Err(blocks::damaged(pool, line, format!("a line of the log has the impossible stamp {stamp:#x}")));
        }
    }
    Ok(())
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
    check_stamps(pool, entries, entry)?;
    let word = |number: u64| backend.load(entry + body_word(number));
    let acquired = std::array::from_fn(|number| backend.load(acquired_link(entry, number)));
    let state = backend.load(entry + STATE * WORD_LENGTH);
    if state == 0 {
        return Ok(if acquired == [0; ACQUIRED] { Found::Free } else { Found::Announced(acquired) });
    }
    let damaged = |reason: String| blocks::damaged(pool, entry, reason);
    let (length, number) = (state >> LENGTH_SHIFT & LENGTH, state >> USE_SHIFT);
    if state & COMMITTED == 0 || length > entries.body_words() {
        return Err(damaged(format!("an entry of the log has the impossible state {state:#x}")));
    }
    let mut lines = later_lines(entry, length).step_by(LINE_LENGTH as usize);
    if lines.any(|line| backend.load(line + LATER_WORDS * WORD_LENGTH) != number) {
        return Ok(Found::Announced(acquired));
    }
    let mut change = Change { acquired, ..Change::default() };
    match backend.load(released_link(entry)) {
        released if released & LINKS == 0 => change.released = released,
        linking => change.linking = Some(read_linking(pool, layout, linking, acquired[0])?),
    }
    let mut number = 0;
    while number < length {
        let place = word(number);
        let (node, first, count) = (place & OFFSET, place >> FIRST_SHIFT & FIELD, place >> COUNT_SHIFT);
        let is_root_word = node == block && first == ROOT_WORD / WORD_LENGTH && count == 1;
        if !is_root_word {
            blocks::check_own(pool, node, layout.node_length())?;
        }
        if count == 0 || !is_root_word && first + count > layout.words as u64 || number + count >= length {
            return Err(damaged(format!("a range of {count} words in the log is impossible")));
        }
        let words = (number + 1..=number + count).map(word).collect();
        change.writes.push(Write { node, first: first as usize, words });
        number += count + 1;
    }
    Ok(Found::Committed(change))
}

/// Reads the parent of a new node from word 3. It is an error if it cannot be one.
fn read_linking<const K: usize, const V: usize, B: Backend>(
    pool: &Pool<B>,
    layout: &Layout<K, V>,
    word: u64,
    child: u64,
) -> Result<Linking> {
    let (parent, before) = (word & OFFSET & !LINKS, (word >> BEFORE_SHIFT) as usize);
    for node in [parent, child] {
        blocks::check_own(pool, node, layout.node_length())?;
    }
    let [above, below] = [parent, child].map(|node| pool.backend().view(node, layout.node_length()));
    layout.check(pool, parent, above)?;
    layout.check(pool, child, below)?;
    let (stated, own) = (above.load(META), below.load(META));
    let is_possible = match count(stated).checked_sub(before) {
        Some(0) => before < layout.children,
        Some(1) => layout.children_of(above).iter().any(|(_, linked)| *linked == child),
        _ => false,
    };
    if level(own) + 1 != level(stated) || before == 0 || !is_possible {
        return Err(blocks::damaged(pool, parent, format!("the log adds a child to a node of {} ones", count(stated))));
    }
    match layout.least_key(below) {
        Some(separator) => Ok(Linking { parent, before, separator: separator.to_vec() }),
        None => Err(blocks::damaged(pool, child, "the log links a new node without entries")),
    }
}

fn encode(change: &Change) -> Vec<u64> {
    let mut body = Vec::new();
    for Write { node, first, words } in &change.writes {
        body.push(node | (*first as u64) << FIRST_SHIFT | (words.len() as u64) << COUNT_SHIFT);
        body.extend_from_slice(words);
    }
    body
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use terrane_pmem::Traced;
    use terrane_testkit::MemoryStorage;

    use super::*;
    use crate::PersistenceDomain;
    use crate::btree::{BTree, Options, PersistentUnsorted};

    /// Otherwise the lines of a use that was not committed would complete a torn entry.
    #[test]
    fn the_number_of_a_use_is_above_all_stamps_that_a_crash_has_left() {
        const STAMP: u64 = 41;
        let (storage, options) = (MemoryStorage::new(), Options::new(PersistenceDomain::PageCache));
        let open = BTree::<PersistentUnsorted, 2, 2, Traced>::open;
        let tree = BTree::<PersistentUnsorted, 2, 2, Traced>::create(&storage, "tree", &options).unwrap();
        let entries = Entries::new(&tree.layout, tree.block);
        for index in 0..entries.count {
            tree.backend().store(entries.offset(index) + entries.length - WORD_LENGTH, STAMP + index as u64);
        }
        drop(tree);
        let tree = open(&storage, "tree", &options).unwrap();
        for _ in 0..entries.count {
            // A dropped entry is the last to be taken again.
            let entry = tree.log.take(entries).unwrap();
            assert!(entry.number > STAMP + entry.index as u64, "{entry:?}");
        }
    }
}
