//! The layout of words and descriptors.
//!
//! A descriptor has three lines: its status and the blocks that it names, then four entries of 32
//! bytes. An entry counts if it has the stamp of the descriptor's present use. The stamp is stored
//! last. Stores to one line keep their order, so an entry that counts is whole.

use crate::{Backend, LINE_LENGTH, WORD_LENGTH};

/// The most words that are changed together.
pub const WORDS: usize = 4;

/// The most blocks that a descriptor names.
pub const DESCRIPTOR_BLOCKS: usize = 7;

/// Bits of a word that values leave free.
pub const FLAGS: u64 = DIRTY | INSTALLED | CONDITIONAL;

/// The value may not be durable.
pub(super) const DIRTY: u64 = 1 << 63;
/// The word belongs to a descriptor, whose offset it holds.
pub(super) const INSTALLED: u64 = 1 << 62;
/// The word will belong to a descriptor if that is undecided. It holds the number of a thread, of
/// an entry, and of the descriptor's first line.
pub(super) const CONDITIONAL: u64 = 1 << 61;

const ENTRY_LENGTH: u64 = 4 * WORD_LENGTH;
pub(crate) const DESCRIPTOR_LENGTH: u64 = LINE_LENGTH + WORDS as u64 * ENTRY_LENGTH;

const LINE_BITS: u32 = 41;
const ENTRY_BITS: u32 = 2;
const THREAD_BITS: u32 = 18;

/// Descriptors lie below this.
pub(super) const OFFSET_MAX: u64 = LINE_LENGTH << LINE_BITS;
/// Numbers of threads are below this.
pub(super) const THREADS_MAX: u64 = 1 << THREAD_BITS;

const _: () = assert!(LINE_BITS + ENTRY_BITS + THREAD_BITS == 61 && WORDS == 1 << ENTRY_BITS);
const _: () = assert!(DESCRIPTOR_LENGTH == 3 * LINE_LENGTH && LINE_LENGTH.is_multiple_of(ENTRY_LENGTH));
const _: () = assert!(DESCRIPTOR_BLOCKS as u64 * WORD_LENGTH + WORD_LENGTH == LINE_LENGTH);

/// The state of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not in use.
    Free,
    /// Names acquired blocks, and no words.
    Filling,
    Undecided,
    Succeeded,
    Failed,
}

/// First word of a descriptor: its state, and the number of its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) state: State,
    pub(super) stamp: u64,
}

/// A word to change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) address: u64,
    pub(super) old: u64,
    pub(super) new: u64,
}

const STATES: [State; 5] = [State::Free, State::Filling, State::Undecided, State::Succeeded, State::Failed];

impl Status {
    pub(super) fn encode(self) -> u64 {
        let state = STATES.iter().position(|state| *state == self.state).unwrap_or(0) as u64;
        self.stamp << 8 | state
    }

    /// The stamp of the descriptor's next use.
    pub(super) fn next_stamp(self) -> u64 {
        (self.stamp + 1) % (1 << 56)
    }

    /// `None` if there is no such state.
    pub(super) fn decode(word: u64) -> Option<Self> {
        let state = *STATES.get(usize::try_from(word & 0xff).ok()?)?;
        Some(Self { state, stamp: word >> 8 })
    }
}

pub(super) fn entry_offset(descriptor: u64, index: usize) -> u64 {
    descriptor + LINE_LENGTH + index as u64 * ENTRY_LENGTH
}

/// The last word of an entry, which states its use.
pub(super) fn stamp_offset(descriptor: u64, index: usize) -> u64 {
    entry_offset(descriptor, index) + 3 * WORD_LENGTH
}

impl Entry {
    /// An entry, if it belongs to this use of the descriptor.
    pub(super) fn load(backend: &impl Backend, descriptor: u64, index: usize, stamp: u64) -> Option<Self> {
        let offset = entry_offset(descriptor, index);
        let word = |number| backend.load(offset + number * WORD_LENGTH);
        (backend.load(stamp_offset(descriptor, index)) == stamp).then(|| Self {
            address: word(0),
            old: word(1),
            new: word(2),
        })
    }

    /// All entries of a use, in the order of their addresses.
    pub(super) fn load_all(backend: &impl Backend, descriptor: u64, stamp: u64) -> impl Iterator<Item = (usize, Self)> {
        (0..WORDS).map_while(move |index| Some((index, Self::load(backend, descriptor, index, stamp)?)))
    }

    pub(super) fn store(&self, backend: &impl Backend, descriptor: u64, index: usize, stamp: u64) {
        let offset = entry_offset(descriptor, index);
        for (number, word) in (0..).zip([self.address, self.old, self.new, stamp]) {
            backend.store(offset + number * WORD_LENGTH, word);
        }
    }
}

/// The contents of a word that a descriptor has.
pub(super) fn installed(descriptor: u64) -> u64 {
    INSTALLED | descriptor
}

/// The contents of a word while a thread asks whether a descriptor is undecided.
pub(super) fn conditional(descriptor: u64, index: usize, thread: u64) -> u64 {
    debug_assert!(descriptor < OFFSET_MAX && thread < THREADS_MAX && index < WORDS);
    let line = descriptor / LINE_LENGTH;
    CONDITIONAL | thread << (LINE_BITS + ENTRY_BITS) | (index as u64) << LINE_BITS | line
}

/// Descriptor and entry of such a word.
pub(super) fn decode_conditional(word: u64) -> (u64, usize) {
    let descriptor = (word & ((1 << LINE_BITS) - 1)) * LINE_LENGTH;
    (descriptor, (word >> LINE_BITS) as usize % WORDS)
}
