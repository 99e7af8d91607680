//! Persistent multi-word compare-and-swap: up to [`WORDS`] words of a pool change together or not
//! at all, for every thread and over every crash, and nobody waits for anybody.
//!
//! After Wang, Levandoski and Larson, "Easy lock-free indexing in non-volatile memory" (ICDE 2018).
//! An operation is written into a descriptor, which is durable before anybody can meet it. Its
//! words are given to it one by one, by a conditional installation (RDCSS); then it is decided;
//! then the words get their values. Who meets a descriptor in a word completes it first, so no
//! thread can hold up another. Values have the bits [`FLAGS`] clear; a word with one of them set is
//! on its way. Words that change so are read by [`read`] and changed by [`Descriptor`] and
//! [`compare_exchange`] alone, but for the first value of a word that nobody else can reach yet.
//! The program `examples/transfer.rs` shows the order of the calls.
//!
//! # What is durable when
//! - M1: a descriptor is durable before a word holds it. An entry counts if it has the stamp of the
//!   descriptor's use. What a power loss has left of a use that was not durable has the stamp of
//!   the next one: it is cleared when the pool is opened.
//! - M2: a descriptor has succeeded only after all its words held it durably.
//! - M3: a new value is in a word only after the success is durable. So recovery finds every word
//!   of what has succeeded either with its descriptor or with a value of later, and gives the new
//!   value to the former; of what has not, no word can hold a new value, and those that hold the
//!   descriptor get the old one.
//! - M4: a value that was stored into a shared word is marked as dirty until it is durable. A
//!   marked value is not returned, not built on and not replaced before it is durable. A late
//!   thread that has made the same value durable earlier may take the mark of a later one away.
//!   What is durable of the word then is that value, or still the descriptor that says it or a
//!   question for it; and the descriptor is not used again before the thread that has stored the
//!   value has made it durable (M5). So M3 and M5 would bring back what an operation gives a word
//!   even if it had no mark, as long as it is flushed; no crash shows the loss of such a mark. It
//!   is a second guard, which the paper has too: what a reader has returned is durable in its word,
//!   and does not hang on a descriptor.
//! - M5: a descriptor is used again only after nobody can meet it, and every thread that changed a
//!   word for it has made that durable: each does so under its guard, and the descriptor is
//!   retired. A helper that is late may put it into a word once more, for as long as it has its
//!   guard, and others with guards of later may meet it there; so it waits for those too (E4 in
//!   `epoch.rs`).
//!
//! # Why a late helper does no harm
//! - M6: a word that asks whether a descriptor is undecided holds the number of the thread that
//!   asks. One thread asks for an entry once before the decision or, if it was late, once after it,
//!   but never both. A run ends after the decision, and one that begins after the decision does not
//!   ask. Where a thread has several runs of an operation at a time, as it met its own while it
//!   helped others, each began behind the word where it met the operation, and so behind all words
//!   where those around it have asked; and those around it ask no more, since they look whether it
//!   was decided when they go on. That holds whatever decided an operation, late threads and damage
//!   included. So an answer that was found before the decision fits no word that asks after it, and
//!   cannot install. (With one name for all who ask, as in the paper, it could, where the word
//!   holds the old value again.)
//! - M7: an answer that was found before a failure may still install after it. It was given to a
//!   thread that has not gone on since it asked. That one completes the operation under its guard,
//!   so the word gets its old value back, durably, before the descriptor is used again.
//! - M10: only who has met an operation while it was undecided goes to its other words: its owner
//!   had a guard then, from before a word's block was retired, and the block waits twice as well.
//!   Who meets it later ends it in the word where it is.
//!
//! # Whom blocks belong to
//! A word that holds a link may be changed by helpers and again by others before the thread that
//! linked a block hears of its success. So it cannot be asked later whether the block is linked, as
//! an [`Intent`](crate::Intent) asks. Here the decision says it. A descriptor names blocks,
//! whatever words they are linked by:
//! - M8: [`Descriptor::acquire`]d blocks are free unless it succeeds; [`Descriptor::release`]d ones
//!   are free if it does. Until then they are nobody else's, and they are freed when the descriptor
//!   is retired and no reader is left, or by recovery.
//! - M9: what a descriptor names is forgotten durably before a block is given out in which a word
//!   of it may lie: one that was retired later, or earlier while the descriptor's owner had a guard
//!   (E5). So no descriptor that recovery meets names a word in a block that somebody else has
//!   filled since.
//!
//! So that this holds for all blocks: those that hold such words, or are linked by them, are
//! released by descriptors or by retired intents; an intent names as links only words that no
//! descriptor changes; and what is acquired to be linked in an acquired block is acquired by the
//! same descriptor, as that may fail.
//!
//! Recovery, when the pool is opened, reads every descriptor and nothing else (M3), frees (M8), and
//! settles the intents after that, whose links may lie in what was freed. Descriptors come by
//! pages, as slots of intents do.

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

/// An operation that is being put together. Dropping it gives it up, and frees what it has
/// acquired.
#[derive(Debug)]
#[must_use]
pub struct Descriptor<'g, B: Backend> {
    pool: &'g Pool<B>,
    guard: &'g Guard<'g>,
    place: u64,
    stamp: u64,
    entries: Vec<Entry>,
    blocks: usize,
    stage: Stage,
}

/// What the pool holds of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Nothing,
    Begun,
    Executed,
}

impl<'g, B: Backend> Descriptor<'g, B> {
    /// Begins an operation. It does nothing to the pool but to end a few of those that have been
    /// retired, or to add descriptors where all are in use. Where these cannot be added, as the
    /// disk is full, later calls find some when the guards have gone that live now.
    ///
    /// # Panics
    /// If the guard is not of this pool.
    pub fn new(pool: &'g Pool<B>, guard: &'g Guard<'g>) -> Result<Self> {
        check_guard(pool, guard);
        pool.settle_some_expired();
        let place = pool.take_descriptor()?;
        debug_assert!(place < OFFSET_MAX, "a pool of so many bytes cannot be mapped");
        let stamp = pool.status(place)?.next_stamp();
        Ok(Self { pool, guard, place, stamp, entries: Vec::with_capacity(WORDS), blocks: 0, stage: Stage::Nothing })
    }

    /// Adds a word that is to change from one value to another. With the same value twice it is
    /// only compared, but at the same cost.
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

    /// Acquires a block of at least `length` bytes, which the operation will link: it is free
    /// unless that succeeds. The block holds anything. It has to be filled and flushed before
    /// [`Descriptor::execute`], whose first fence makes that durable.
    ///
    /// # Panics
    /// If [`DESCRIPTOR_BLOCKS`] blocks are named already.
    pub fn acquire(&mut self, length: u64) -> Result<u64> {
        let place = self.next_block_place();
        let block_length = self.pool.block_length(length)?;
        self.begin();
        let backend = self.pool.backend();
        let block = self.pool.acquire_block(block_length, |block| {
            backend.store(place, block | ACQUIRED);
            backend.persist(self.place..self.place + LINE_LENGTH, ANNOUNCE);
        })?;
        self.blocks += 1;
        Ok(block)
    }

    /// Names a block that the operation unlinks: it is free if that succeeds, and no reader is
    /// left. It is an error if the operation names the block already; no other one that succeeds
    /// may name it.
    ///
    /// # Panics
    /// If [`DESCRIPTOR_BLOCKS`] blocks are named already.
    pub fn release(&mut self, block: u64) -> Result<()> {
        let place = self.next_block_place();
        self.pool.check_block(block)?;
        let named = recovery::block_places(self.place).take(self.blocks);
        self.pool.check_unnamed(block, named.map(|place| recovery::block_at(self.pool.backend(), place)))?;
        self.begin();
        self.pool.backend().store(place, block | RELEASED);
        self.blocks += 1;
        Ok(())
    }

    /// Changes all words, durably, if each holds its old value; whether it did.
    ///
    /// If a word is damaged, as with [`read`], no word is changed, and that is an error; but where
    /// the damage was met first by who helped, it is a failure as any other, and who reads the word
    /// again gets the error. A word that is overwritten after the operation has taken it stays as
    /// it is, and the others may be changed.
    ///
    /// # Panics
    /// If there is no word.
    pub fn execute(mut self) -> Result<bool> {
        assert!(!self.entries.is_empty(), "an operation changes a word");
        self.begin();
        // Nobody runs in a circle if all go in one direction.
        self.entries.sort_unstable_by_key(|entry| entry.address);
        let backend = self.pool.backend();
        for (index, entry) in self.entries.iter().enumerate() {
            entry.store(backend, self.place, index, self.stamp);
        }
        self.set_state(State::Undecided);
        backend.persist(self.place..layout::entry_place(self.place, self.entries.len()), PREPARE);
        self.stage = Stage::Executed;
        let run = kernel::run(self.pool, self.place, thread(self.guard));
        let status = self.pool.status(self.place);
        self.pool.retire_unit(crate::epoch::Retired::Descriptor(self.place), self.guard);
        match status?.state {
            State::Succeeded => Ok(true),
            _ => run?.map_or(Ok(false), Err),
        }
    }

    fn next_block_place(&self) -> u64 {
        assert!(self.blocks < DESCRIPTOR_BLOCKS, "an operation names up to {DESCRIPTOR_BLOCKS} blocks");
        self.place + (1 + self.blocks as u64) * WORD_LENGTH
    }

    /// Makes the descriptor one that names no block. In its line stores keep their order, so a
    /// block counts only if it was named since.
    fn begin(&mut self) {
        if self.stage != Stage::Nothing {
            return;
        }
        let backend = self.pool.backend();
        for place in recovery::block_places(self.place).filter(|place| backend.load(*place) != 0) {
            backend.store(place, 0);
        }
        self.set_state(State::Filling);
        self.stage = Stage::Begun;
    }

    fn set_state(&self, state: State) {
        self.pool.backend().store(self.place, Status { state, stamp: self.stamp }.encode());
    }
}

impl<B: Backend> Drop for Descriptor<'_, B> {
    fn drop(&mut self) {
        match self.stage {
            Stage::Nothing => self.pool.return_descriptor(self.place),
            Stage::Begun => self.pool.retire_unit(crate::epoch::Retired::Descriptor(self.place), self.guard),
            Stage::Executed => {}
        }
    }
}

/// The value of a word, which is durable.
///
/// A word that is outside of the pool, or holds what no operation leaves there, as it was
/// overwritten or the pool's file is damaged, is an error
/// ([`Error::Damaged`](crate::Error::Damaged)), and stays as it is. Damage that makes another value
/// is not seen.
///
/// # Panics
/// If the guard is not of this pool.
pub fn read<B: Backend>(pool: &Pool<B>, word: u64, guard: &Guard<'_>) -> Result<u64> {
    check_guard(pool, guard);
    pool.check_range(word, WORD_LENGTH)?;
    kernel::read(pool, word, thread(guard))
}

/// Changes one word, durably, if it holds `current`, which is what then was there; otherwise gives
/// what is, durably. It is an operation on one word, and costs what that costs; where the word
/// holds something else, it only reads. A word that is damaged is an error, as with [`read`], and
/// so is a full disk where no descriptor is free.
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
        assert!(value & FLAGS == 0, "{value:#x} cannot be kept: values leave the bits {FLAGS:#x} free");
    }
}

fn thread(guard: &Guard<'_>) -> u64 {
    let thread = guard.thread();
    assert!(thread < THREADS_MAX, "words are changed by up to {THREADS_MAX} threads at a time");
    thread
}
