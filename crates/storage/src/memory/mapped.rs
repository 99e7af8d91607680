//! A mapping of a file in memory: its aligned words, accessed one at a time.

use std::sync::Arc;

use super::Shared;
use super::content::Content;
use super::file::Inode;
use crate::crash::{Event, PersistenceDomain, PoolEvent, ThreadNumber};

const WORD_LENGTH: u64 = size_of::<u64>() as u64;

/// The words of a file in memory. Reads and writes of the file see them at once.
///
/// Every access is one atomic step. A recorder gets the steps in the order in which they took
/// effect. The content is little-endian on every machine.
#[derive(Debug, Clone)]
pub struct MappedMemory {
    inode: Arc<Inode>,
    shared: Arc<Shared>,
}

impl MappedMemory {
    pub(super) fn new(inode: Arc<Inode>, shared: Arc<Shared>) -> Self {
        Self { inode, shared }
    }

    /// Sets the part of later stores that a power loss keeps.
    pub fn set_domain(&self, domain: PersistenceDomain) {
        let _content = self.inode.content.read();
        self.shared.record_any(|| Event::Pool(PoolEvent::Map { file: self.inode.id, domain }));
    }

    /// The word at a byte offset; `None` if the offset is not aligned or the word is beyond the
    /// end.
    pub fn load(&self, offset: u64) -> Option<u64> {
        let content = self.inode.content.read();
        if !is_word(offset, content.length()) {
            return None;
        }
        if let Some(watch) = &self.inode.watch {
            watch.note_read(offset, WORD_LENGTH);
        }
        Some(content.word(offset))
    }

    /// Stores a word at a byte offset, in one step. Returns the previous word; `None` like
    /// [`MappedMemory::load`].
    ///
    /// The previous word is for information. To decide by it, use [`MappedMemory::update`].
    pub fn store(&self, thread: ThreadNumber, offset: u64, value: u64) -> Option<u64> {
        let mut content = self.inode.content.write();
        is_word(offset, content.length()).then(|| self.replace(&mut content, thread, offset, value))
    }

    /// Replaces the word at a byte offset by the result of `change`, in one step; a result of
    /// `None` leaves it. Returns the previous word, and whether it was replaced; `None` like
    /// [`MappedMemory::load`].
    pub fn update(
        &self,
        thread: ThreadNumber,
        offset: u64,
        change: impl FnOnce(u64) -> Option<u64>,
    ) -> Option<Result<u64, u64>> {
        let mut content = self.inode.content.write();
        if !is_word(offset, content.length()) {
            return None;
        }
        if let Some(watch) = &self.inode.watch {
            watch.note_read(offset, WORD_LENGTH);
        }
        let before = content.word(offset);
        match change(before) {
            Some(value) => Some(Ok(self.replace(&mut content, thread, offset, value))),
            None => Some(Err(before)),
        }
    }

    fn replace(&self, content: &mut Content, thread: ThreadNumber, offset: u64, value: u64) -> u64 {
        let before = content.word(offset);
        content.write(&value.to_le_bytes(), offset);
        if let Some(watch) = &self.inode.watch {
            watch.note_stored(offset, WORD_LENGTH);
        }
        let file = self.inode.id;
        self.shared.record_any(|| Event::Pool(PoolEvent::Store { file, thread, offset, value }));
        before
    }

    /// Begins to write a line back; `line` is the byte offset of its start.
    pub fn flush(&self, thread: ThreadNumber, line: u64, site: &'static str) {
        // No store comes between: the flush covers what was stored before it, and nothing else.
        let _content = self.inode.content.write();
        let file = self.inode.id;
        self.shared.record_any(|| Event::Pool(PoolEvent::Flush { file, thread, line, site }));
    }

    /// Waits for all write-backs that the thread has begun.
    pub fn fence(&self, thread: ThreadNumber, site: &'static str) {
        self.shared.record_any(|| Event::Pool(PoolEvent::Fence { thread, site }));
    }
}

fn is_word(offset: u64, length: u64) -> bool {
    offset.is_multiple_of(WORD_LENGTH) && offset.checked_add(WORD_LENGTH).is_some_and(|end| end <= length)
}
