//! A generation: one memory component of every index, filled between two cuts.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::NumberedIndex;
use crate::index::downcast_memory;
use crate::memory::ErasedMemory;
use crate::operation::{EntryHeader, Operation};
use crate::{Error, Result};
use terrane_storage::sync::{AtomicU64, Mutex, Ordering};

const NOT_SEALED: u64 = u64::MAX;

/// The memory components of all indexes of a partition between two cuts.
pub struct Generation {
    /// The indexes at its beginning, by their slots; `None` for one that was dropped.
    members: Vec<Option<Member>>,
    /// Changes up to this number are older.
    after: u64,
    /// Position in the log before the first entry; `u64::MAX` while there is none.
    first_lsn: AtomicU64,
    cut: AtomicU64,
    /// The position of each source with the entries here.
    sources: Mutex<BTreeMap<u32, u64>>,
}

struct Member {
    numbered: NumberedIndex,
    memory: Arc<dyn ErasedMemory>,
}

impl std::fmt::Debug for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generation").field("after", &self.after).field("cut", &self.cut()).finish_non_exhaustive()
    }
}

impl Generation {
    pub(super) fn new<'i>(slots: impl Iterator<Item = Option<&'i NumberedIndex>>, after: u64) -> Result<Self> {
        let member = |numbered: Option<&NumberedIndex>| {
            let Some(numbered) = numbered else { return Ok(None) };
            Ok(Some(Member { numbered: numbered.clone(), memory: numbered.index.new_memory()? }))
        };
        Ok(Self {
            members: slots.map(member).collect::<Result<_>>()?,
            after,
            first_lsn: AtomicU64::new(u64::MAX),
            cut: AtomicU64::new(NOT_SEALED),
            sources: Mutex::new(BTreeMap::new()),
        })
    }

    /// A generation without indexes, which takes nothing.
    pub(super) fn without_indexes(after: u64) -> Self {
        Self {
            members: Vec::new(),
            after,
            first_lsn: AtomicU64::new(u64::MAX),
            cut: AtomicU64::new(NOT_SEALED),
            sources: Mutex::new(BTreeMap::new()),
        }
    }

    /// The memory component of the index at a slot; `None` if the index came later, or was
    /// dropped.
    pub fn memory(&self, slot: usize) -> Option<&dyn ErasedMemory> {
        self.members.get(slot)?.as_ref().map(|member| &*member.memory)
    }

    fn memories(&self) -> impl Iterator<Item = &Arc<dyn ErasedMemory>> {
        self.members.iter().flatten().map(|member| &member.memory)
    }

    /// The memory component of the index at a slot, which must exist.
    pub fn memory_of<T: Any>(&self, slot: usize) -> Result<&T> {
        let memory = self.memory(slot);
        downcast_memory(memory.ok_or_else(|| Error::Invalid("a generation is older than an index".into()))?)
    }

    /// Whether it has nothing of the index at a slot.
    pub fn is_empty_of(&self, slot: usize) -> bool {
        self.memory(slot).is_none_or(|memory| memory.is_empty())
    }

    /// Number of index slots at its beginning.
    pub fn slots(&self) -> usize {
        self.members.len()
    }

    /// Notes the log position of an entry whose operations are stored here. To be called under the
    /// store's commit latch, so positions only ascend.
    pub fn note_lsn(&self, lsn: u64) {
        if self.first_lsn.load(Ordering::Relaxed) == u64::MAX {
            self.first_lsn.store(lsn, Ordering::Release);
        }
    }

    /// Notes the source position of an entry whose operations are stored here. To be called under
    /// the store's commit latch, so that a cut includes both.
    pub fn note_source(&self, header: &EntryHeader) {
        if header.source != 0 {
            advance(&mut self.sources.lock(), header.source, header.source_offset);
        }
    }

    /// The position of a source with the entries here, if there are any from it.
    pub fn source_offset(&self, source: u32) -> Option<u64> {
        self.sources.lock().get(&source).copied()
    }

    /// The position of each source, given the positions `before` this generation.
    pub(super) fn sources_after(&self, before: &BTreeMap<u32, u64>) -> BTreeMap<u32, u64> {
        let mut after = before.clone();
        self.sources.lock().iter().for_each(|(&source, &offset)| advance(&mut after, source, offset));
        after
    }

    /// The LSN from which this generation needs the log.
    pub fn first_lsn(&self) -> Option<u64> {
        Some(self.first_lsn.load(Ordering::Acquire)).filter(|lsn| *lsn != u64::MAX)
    }

    /// Whether no entry was ever meant for this generation.
    pub fn is_untouched(&self) -> bool {
        self.first_lsn().is_none()
    }

    /// Applies an operation. Operations of indexes that are not here are skipped: they were
    /// dropped, or came later.
    pub fn apply(&self, operation: &Operation<'_>, sequence: u64) -> Result<()> {
        match self.members.iter().flatten().find(|member| member.numbered.id == operation.index) {
            None => Ok(()),
            Some(Member { numbered, memory }) => numbered.index.apply(&**memory, operation, sequence),
        }
    }

    pub(super) fn seal(&self, cut: u64) {
        self.cut.store(cut, Ordering::Release);
    }

    /// The last sequence number that belongs here, once sealed.
    pub fn cut(&self) -> Option<u64> {
        Some(self.cut.load(Ordering::Acquire)).filter(|cut| *cut != NOT_SEALED)
    }

    /// The range of sequence numbers of a sealed generation.
    pub fn sequence(&self) -> Result<(u64, u64)> {
        let cut = self.cut().ok_or_else(|| Error::Invalid("a generation is flushed before it is sealed".into()))?;
        Ok((self.after + 1, cut))
    }

    /// Seals the memory components of a sealed generation, once all changes up to its cut are
    /// applied.
    pub(super) fn end_changes(&self) {
        self.memories().for_each(|memory| memory.seal());
    }

    /// Bytes of its memory components.
    pub fn memory_used(&self) -> usize {
        self.memories().map(|memory| memory.memory_used()).sum()
    }
}

/// Raises the position of a source; positions never go back.
fn advance(sources: &mut BTreeMap<u32, u64>, source: u32, offset: u64) {
    let position = sources.entry(source).or_default();
    *position = offset.max(*position);
}
