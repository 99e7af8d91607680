//! Notes about changes of long values: who owns the blocks while an entry changes (T8).
//!
//! A note names a key, its new block and its old one. The entry of the key owns the block that it
//! leads to, and the note owns the other one. So a note is settled by looking up its key, and
//! entries may move between leaves meanwhile. One thread changes a key at a time, so at most one
//! note names it.
//!
//! Durable after each step of a change:
//! 1. the key's words, and the new block with its contents, which an intent frees;
//! 2. the new and the old block, in one line: the note owns the new block now;
//! 3. the tree's change: the entry owns the new block, and the note the old one;
//! 4. an intent names what the note owns;
//! 5. the note is empty, so that the intent frees the block.

use std::collections::VecDeque;
use std::ops::Range;

use terrane_pmem::{Backend, Intent, LINE_LENGTH, Pool, Site, WORD_LENGTH};
use terrane_storage::sync::{AtomicBool, Condvar, Mutex, Ordering};

use super::key::KeyWords;
use crate::{Result, blocks};

/// The most concurrent changes of long values.
pub(super) const NOTES: u64 = 16;

/// Bytes of a note: a line for the key, and one for the blocks.
const LENGTH: u64 = 2 * LINE_LENGTH;

/// Bytes of all notes.
pub(super) const ALL_LENGTH: u64 = NOTES * LENGTH;

const KEY: Site = Site::new("map.note.key");
const NAME: Site = Site::new("map.note.name");
const CLEAR: Site = Site::new("map.note.clear");

/// Free notes.
#[derive(Debug)]
pub(super) struct Notes {
    free: Mutex<VecDeque<u64>>,
    returned: Condvar,
    /// Whether a change could not be finished, which takes a damaged pool.
    failed: AtomicBool,
}

/// A note that belongs to one change, until it is dropped.
#[derive(Debug)]
pub(super) struct Note<'a> {
    notes: &'a Notes,
    offset: u64,
}

impl Drop for Note<'_> {
    fn drop(&mut self) {
        self.notes.free.lock().push_back(self.offset);
        self.notes.returned.notify_one();
    }
}

impl Notes {
    pub(super) fn new(first: u64) -> Self {
        Self { free: Mutex::new(offsets(first).collect()), returned: Condvar::new(), failed: AtomicBool::new(false) }
    }

    /// Takes a note, and waits for one if all are in use; `None` if a change has failed. Those who
    /// have one never wait for the caller.
    pub(super) fn take(&self) -> Option<Note<'_>> {
        let mut free = self.free.lock();
        while !self.failed.load(Ordering::Relaxed) {
            if let Some(offset) = free.pop_front() {
                return Some(Note { notes: self, offset });
            }
            self.returned.wait(&mut free);
        }
        None
    }
}

impl Note<'_> {
    /// Where the new block is linked.
    pub(super) fn new_link(&self) -> u64 {
        new_link(self.offset)
    }

    /// Notes the key, and flushes that. Naming the blocks fences.
    pub(super) fn write_key<B: Backend>(&self, backend: &B, key: &KeyWords) {
        let words = (self.offset..).step_by(WORD_LENGTH as usize);
        words.zip(key).for_each(|(offset, word)| backend.store(offset, *word));
        backend.flush(self.offset..self.offset + key.len() as u64 * WORD_LENGTH, KEY);
    }

    /// Names the blocks, or 0, durably.
    pub(super) fn name<B: Backend>(&self, backend: &B, new: u64, old: u64) {
        backend.fence(KEY);
        // In either order: a crash in between leaves one name, which settles like two.
        backend.store(old_link(self.offset), old);
        backend.store(new_link(self.offset), new);
        backend.persist(links(self.offset), NAME);
    }

    /// Releases what the note owns, if the entry of its key leads to `current`, and empties it. The
    /// intent has space.
    pub(super) fn settle<B: Backend>(&self, pool: &Pool<B>, intent: Intent<'_, B>, current: u64) -> Result<()> {
        settle(pool, self.offset, intent, current)?.retire(&pool.pin());
        Ok(())
    }

    /// Keeps the note of a change that could not be finished, and stops all others. The next
    /// opening settles it.
    pub(super) fn keep(self) {
        self.notes.failed.store(true, Ordering::Relaxed);
        // The lock is taken, so that nobody is about to wait.
        drop(self.notes.free.lock());
        self.notes.returned.notify_all();
        std::mem::forget(self);
    }
}

fn offsets(first: u64) -> impl Iterator<Item = u64> {
    (0..NOTES).map(move |number| first + number * LENGTH)
}

fn old_link(note: u64) -> u64 {
    note + LINE_LENGTH
}

fn new_link(note: u64) -> u64 {
    note + LINE_LENGTH + WORD_LENGTH
}

fn links(note: u64) -> Range<u64> {
    old_link(note)..new_link(note) + WORD_LENGTH
}

fn settle<'a, B: Backend>(
    pool: &'a Pool<B>,
    note: u64,
    mut intent: Intent<'a, B>,
    current: u64,
) -> Result<Intent<'a, B>> {
    for link in [old_link(note), new_link(note)] {
        let block = pool.backend().load(link);
        if block != 0 && block != current {
            intent.release(block, link)?;
        }
    }
    for link in [old_link(note), new_link(note)] {
        pool.backend().store(link, 0);
    }
    pool.backend().persist(links(note), CLEAR);
    Ok(intent)
}

fn is_empty<B: Backend>(backend: &B, note: u64) -> bool {
    [old_link(note), new_link(note)].iter().all(|link| backend.load(*link) == 0)
}

/// Checks the notes that a crash has left: they name acquired blocks.
pub(super) fn verify<B: Backend>(pool: &Pool<B>, first: u64) -> Result<()> {
    for note in offsets(first) {
        for link in [old_link(note), new_link(note)] {
            let block = pool.backend().load(link);
            if block != 0 {
                pool.check_block(block)?;
                if !pool.is_acquired(block)? {
                    return Err(blocks::damaged(pool, note, format!("a note names the free block at {block}")));
                }
            }
        }
    }
    Ok(())
}

/// Settles the notes that a crash has left. `current` gives the block of a key, or 0.
pub(super) fn recover<B: Backend>(
    pool: &Pool<B>,
    first: u64,
    key_words: usize,
    current: impl Fn(&KeyWords) -> Result<u64>,
) -> Result<()> {
    for note in offsets(first).filter(|note| !is_empty(pool.backend(), *note)) {
        let words = (note..).step_by(WORD_LENGTH as usize).take(key_words);
        let key: KeyWords = words.map(|offset| pool.backend().load(offset)).collect();
        settle(pool, note, pool.intent(), current(&key)?)?.finish();
    }
    Ok(())
}

/// Returns an error if a note is in use.
pub(super) fn check_empty<B: Backend>(pool: &Pool<B>, first: u64) -> Result<()> {
    match offsets(first).find(|note| !is_empty(pool.backend(), *note)) {
        None => Ok(()),
        Some(note) => Err(blocks::damaged(pool, note, "a note about a long value is still in use")),
    }
}
