//! Persistent multi-word compare-and-swap. Up to [`WORDS`] words of a pool change together or not
//! at all, for every thread and over every crash. No thread waits for another.
//!
//! After Wang, Levandoski and Larson, "Easy lock-free indexing in non-volatile memory" (ICDE 2018).
//! An operation is written into a descriptor, which is durable before any other thread can meet it.
//! Then:
//! 1. each word is installed: a conditional installation (RDCSS) gives it to the descriptor;
//! 2. the operation is decided;
//! 3. each word gets its value.
//!
//! A thread that meets a descriptor in a word first completes it, so no thread can delay another.
//! Values have the bits [`FLAGS`] clear. A word with one of them set is being changed. Such words
//! are read by [`read`] only, and changed by [`Descriptor`] and [`compare_exchange`] only. The
//! exception is the first value of a word that no other thread can reach yet. The program
//! `examples/transfer.rs` shows the order of the calls.
//!
//! # What is durable when
//! - M1: a descriptor is durable before a word holds it. An entry counts if it has the stamp of the
//!   descriptor's use. A power loss may leave entries of a use that was not durable; they have the
//!   stamp of the next use, and opening the pool clears them.
//! - M2: a descriptor succeeds only after all its words held it durably.
//! - M3: a new value enters a word only after the success is durable. So recovery finds each word
//!   of a succeeded operation with the descriptor, and gives it the new value, or with a later
//!   value. No word of another operation can hold a new value. Words that hold its descriptor get
//!   the old value.
//! - M4: a value that was stored into a shared word is marked as dirty until it is durable. Before
//!   that it is not returned, not built on and not replaced. A late thread that has made an equal
//!   value durable earlier may clear the mark of a later one. Then the durable word is one of
//!   three: that value, the descriptor with that value, or a question for that descriptor. The
//!   descriptor is not reused before the thread that stored the value has made it durable (M5). So
//!   by M3 and M5, recovery would restore the value even without a mark, if it is flushed; no crash
//!   shows the loss of such a mark. The mark is a second guard, which the paper has too: a value
//!   that a reader has returned is durable in its word, independently of a descriptor.
//! - M5: a descriptor is reused only after no thread can meet it, and after every thread that
//!   changed a word for it has made that durable. Each does so under its guard, and the descriptor
//!   is retired. A late helper may put the descriptor into a word once more while it has its guard,
//!   and threads with later guards may meet it there. So reuse waits for those too (E4 in
//!   `epoch.rs`).
//!
//! # Why a late helper does no harm
//! - M6: a word that asks whether a descriptor is undecided holds the number of the asking thread.
//!   For each entry, a thread asks once before the decision, or once after it if it was late, but
//!   never both. A run ends after the decision, and one that begins after the decision does not
//!   ask. A thread can have nested runs of an operation, if it met its own while helping others.
//!   Each inner run began behind the word where it met the operation, so behind all words where the
//!   outer runs have asked. The outer runs do not ask again, since they check the decision before
//!   they continue. All this holds however an operation was decided, by late threads or damage
//!   included. So an answer from before the decision matches no word that asks after it, and cannot
//!   install. (With one name for all who ask, as in the paper, it could, if the word holds the old
//!   value again.)
//! - M7: an answer that was found before a failure may still install after it. It was given to a
//!   thread that is still waiting for it. That thread completes the operation under its guard. So
//!   the word gets its old value back, durably, before the descriptor is reused.
//! - M10: only a thread that has met an operation while it was undecided visits its other words.
//!   The owner had a guard then, from before a word's block was retired, and the block waits twice
//!   as well. A thread that meets the operation later ends it only in the word where it met it.
//!
//! # Which blocks are acquired
//! A word that holds a link may be changed by helpers, and again by others, before the thread that
//! linked a block learns of its success. So it cannot be asked later whether the block is linked,
//! as an [`Intent`](crate::Intent) asks. Here the decision tells. A descriptor names blocks,
//! whichever words link them:
//! - M8: blocks of [`Descriptor::acquire`] are free unless it succeeds, blocks of
//!   [`Descriptor::release`] are free if it does. Until then they belong to nobody else. They are
//!   freed when the descriptor is retired and no reader is left, or by recovery.
//! - M9: a descriptor is forgotten durably before a block that may contain one of its words is
//!   given out. This includes blocks that were retired later, and earlier ones that were retired
//!   while the descriptor's owner had a guard (E5). So no descriptor that recovery meets names a
//!   word in a block that has been reused since.
//!
//! For this to hold, users keep three rules:
//! 1. Blocks that hold such words, or are linked by them, are released by descriptors or by retired
//!    intents.
//! 2. The links of an intent are words that no descriptor changes.
//! 3. A block that will be linked in an acquired block is acquired by the same descriptor, as that
//!    may fail.
//!
//! Recovery runs when the pool is opened. It reads every descriptor and nothing else (M3), frees
//! blocks (M8), and then settles the intents, whose links may lie in freed blocks. Descriptors come
//! in pages, like the slots of intents.

#[cfg(feature = "explorer")]
pub mod explored;
mod kernel;
#[cfg(all(test, not(any(loom, shuttle))))]
mod late_tests;
mod layout;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(any(loom, shuttle))))]
mod nested_tests;
mod recovery;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

use crate::{Backend, Guard, LINE_LENGTH, Pool, Result, Site, WORD_LENGTH};
use kernel::Memory;
pub(crate) use layout::DESCRIPTOR_LENGTH;
pub use layout::{DESCRIPTOR_BLOCKS, FLAGS, WORDS};
use layout::{Entry, OFFSET_MAX, State, Status, THREADS_MAX};

const ANNOUNCE: Site = Site::new("pmwcas.announce");
const PREPARE: Site = Site::new("pmwcas.prepare");

/// A block that is free unless the operation succeeds.
const ACQUIRED: u64 = 1;
/// A block that is free if the operation succeeds.
const RELEASED: u64 = 2;

/// An operation that is being prepared. Dropping it abandons it, and frees its acquired blocks.
#[derive(Debug)]
#[must_use]
pub struct Descriptor<'g, B: Backend> {
    pool: &'g Pool<B>,
    guard: &'g Guard<'g>,
    offset: u64,
    stamp: u64,
    entries: Vec<Entry>,
    blocks: usize,
    stage: Stage,
}

/// The part of an operation that the pool holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Nothing,
    Begun,
    Executed,
}

impl<'g, B: Backend> Descriptor<'g, B> {
    /// Begins an operation. The pool is unchanged, except that a few retired operations are ended,
    /// or descriptors are added if all are in use. If adding fails because the disk is full, later
    /// calls may succeed once the present guards are gone.
    ///
    /// # Panics
    /// If the guard is not of this pool.
    pub fn new(pool: &'g Pool<B>, guard: &'g Guard<'g>) -> Result<Self> {
        check_guard(pool, guard);
        pool.settle_some_expired();
        let offset = pool.take_descriptor()?;
        debug_assert!(offset < OFFSET_MAX, "a mapped pool has smaller offsets");
        let stamp = pool.status(offset)?.next_stamp();
        Ok(Self { pool, guard, offset, stamp, entries: Vec::with_capacity(WORDS), blocks: 0, stage: Stage::Nothing })
    }

    /// Adds a word to change from one value to another. With equal values it is only compared, at
    /// the same cost.
    ///
    /// # Panics
    /// If a value has one of the [`FLAGS`], if the word is there already, or if there are [`WORDS`]
    /// words.
    pub fn swap(&mut self, word: u64, old: u64, new: u64) -> Result<()> {
        check_values(&[old, new]);
        self.pool.check_range(word, WORD_LENGTH)?;
        assert!(self.entries.len() < WORDS, "an operation changes up to {WORDS} words");
        assert!(self.entries.iter().all(|entry| entry.address != word), "an operation changes a word once");
        self.entries.push(Entry { address: word, old, new });
        Ok(())
    }

    /// Acquires a block of at least `length` bytes, which the operation will link. It is free
    /// unless the operation succeeds. The block holds anything. Fill and flush it before
    /// [`Descriptor::execute`], whose first fence makes that durable.
    ///
    /// # Panics
    /// If [`DESCRIPTOR_BLOCKS`] blocks are named already.
    pub fn acquire(&mut self, length: u64) -> Result<u64> {
        self.acquire_aligned(length, LINE_LENGTH)
    }

    /// Does the same for a block whose offset is a multiple of `alignment`, as
    /// [`Intent::acquire_aligned`](crate::Intent::acquire_aligned) does.
    ///
    /// # Panics
    /// If [`DESCRIPTOR_BLOCKS`] blocks are named already.
    pub fn acquire_aligned(&mut self, length: u64, alignment: u64) -> Result<u64> {
        let offset = self.next_block_offset();
        let form = self.pool.block_form(length, alignment)?;
        self.begin();
        let backend = self.pool.backend();
        let block = self.pool.acquire_block(form, |block| {
            backend.store(offset, block | ACQUIRED);
            backend.persist(self.offset..self.offset + LINE_LENGTH, ANNOUNCE);
        })?;
        self.blocks += 1;
        Ok(block)
    }

    /// Names a block that the operation unlinks. It is free if the operation succeeds and no reader
    /// is left. It is an error if the operation names the block already. No other operation that
    /// succeeds may name it.
    ///
    /// # Panics
    /// If [`DESCRIPTOR_BLOCKS`] blocks are named already.
    pub fn release(&mut self, block: u64) -> Result<()> {
        let offset = self.next_block_offset();
        self.pool.check_block(block)?;
        let named = recovery::block_offsets(self.offset).take(self.blocks);
        self.pool.check_unnamed(block, named.map(|offset| recovery::block_at(self.pool.backend(), offset)))?;
        self.begin();
        self.pool.backend().store(offset, block | RELEASED);
        self.blocks += 1;
        Ok(())
    }

    /// Changes all words, durably, if each holds its old value. Gives whether it did.
    ///
    /// A damaged word, as described at [`read`], is an error, and then no word is changed. If a
    /// helper met the damage first, the operation fails like any other, and the next read of the
    /// word returns the error. A word that is overwritten after the operation has taken it stays
    /// so, and the others may be changed.
    ///
    /// # Panics
    /// If there is no word.
    pub fn execute(mut self) -> Result<bool> {
        assert!(!self.entries.is_empty(), "an operation changes a word");
        self.begin();
        // With one order for all, no two operations help each other without end.
        self.entries.sort_unstable_by_key(|entry| entry.address);
        let backend = self.pool.backend();
        for (index, entry) in self.entries.iter().enumerate() {
            entry.store(backend, self.offset, index, self.stamp);
        }
        self.set_state(State::Undecided);
        backend.persist(self.offset..layout::entry_offset(self.offset, self.entries.len()), PREPARE);
        self.stage = Stage::Executed;
        let run = kernel::run(self.pool, self.offset, thread(self.guard));
        let status = self.pool.status(self.offset);
        self.pool.retire_unit(crate::epoch::Retired::Descriptor(self.offset), self.guard);
        match status?.state {
            State::Succeeded => Ok(true),
            _ => run?.map_or(Ok(false), Err),
        }
    }

    fn next_block_offset(&self) -> u64 {
        assert!(self.blocks < DESCRIPTOR_BLOCKS, "an operation names up to {DESCRIPTOR_BLOCKS} blocks");
        self.offset + (1 + self.blocks as u64) * WORD_LENGTH
    }

    /// Makes the descriptor name no block. Stores to one line keep their order, so a block counts
    /// only if it was named later.
    fn begin(&mut self) {
        if self.stage != Stage::Nothing {
            return;
        }
        let backend = self.pool.backend();
        for offset in recovery::block_offsets(self.offset).filter(|offset| backend.load(*offset) != 0) {
            backend.store(offset, 0);
        }
        self.set_state(State::Filling);
        self.stage = Stage::Begun;
    }

    fn set_state(&self, state: State) {
        self.pool.backend().store(self.offset, Status { state, stamp: self.stamp }.encode());
    }
}

impl<B: Backend> Drop for Descriptor<'_, B> {
    fn drop(&mut self) {
        match self.stage {
            Stage::Nothing => self.pool.return_descriptor(self.offset),
            Stage::Begun => self.pool.retire_unit(crate::epoch::Retired::Descriptor(self.offset), self.guard),
            Stage::Executed => {}
        }
    }
}

/// The value of a word, which is durable.
///
/// Returns [`Error::Damaged`](crate::Error::Damaged) if the word is outside of the pool, or holds
/// something that no operation leaves there, because it was overwritten or the file is damaged. The
/// word is unchanged. Damage that yields another value is not detected.
///
/// # Panics
/// If the guard is not of this pool.
pub fn read<B: Backend>(pool: &Pool<B>, word: u64, guard: &Guard<'_>) -> Result<u64> {
    check_guard(pool, guard);
    pool.check_range(word, WORD_LENGTH)?;
    kernel::read(pool, word, thread(guard))
}

/// Changes one word to `new`, durably, if it holds `current`; gives the word before, which is
/// durable. It has the cost of an operation on one word. If the word holds another value, it only
/// reads. It is an error if the word is damaged, as with [`read`], or if the disk is full and no
/// descriptor is free.
///
/// # Panics
/// If a value has one of the [`FLAGS`], or the guard is not of this pool.
pub fn compare_exchange<'g, B: Backend>(
    pool: &'g Pool<B>,
    word: u64,
    current: u64,
    new: u64,
    guard: &'g Guard<'g>,
) -> Result<std::result::Result<u64, u64>> {
    check_values(&[current, new]);
    loop {
        let found = read(pool, word, guard)?;
        if found != current {
            return Ok(Err(found));
        }
        let mut change = Descriptor::new(pool, guard)?;
        change.swap(word, current, new)?;
        if change.execute()? {
            return Ok(Ok(current));
        }
    }
}

fn check_guard<B: Backend>(pool: &Pool<B>, guard: &Guard<'_>) {
    assert!(guard.is_of(&pool.epochs), "words are read and changed under a guard of their own pool");
}

fn check_values(values: &[u64]) {
    for value in values {
        assert!(value & FLAGS == 0, "{value:#x} is not a value: the bits {FLAGS:#x} must be clear");
    }
}

fn thread(guard: &Guard<'_>) -> u64 {
    let thread = guard.thread();
    assert!(thread < THREADS_MAX, "words are changed by up to {THREADS_MAX} threads at a time");
    thread
}
