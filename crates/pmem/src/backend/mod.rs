//! Words of a pool, and the instructions that make them durable.

#[cfg(feature = "explorer")]
mod dropping;
#[cfg(feature = "explorer")]
mod executing;
#[cfg(feature = "explorer")]
pub mod interrupting;
mod native;
mod rehearsed;
#[cfg(feature = "explorer")]
mod traced;

use std::fmt::{self, Debug};
use std::ops::Range;
use std::sync::Arc;

use terrane_storage::File;

#[cfg(feature = "explorer")]
pub use dropping::{Dropping, Instruction};
#[cfg(feature = "explorer")]
pub use executing::Executing;
pub use native::{Native, Words};
pub use rehearsed::Rehearsed;
#[cfg(feature = "explorer")]
pub use traced::Traced;

use crate::{LINE_LENGTH, PersistenceDomain, Result};

/// Bytes of a word, the unit of a store.
pub const WORD_LENGTH: u64 = 8;

/// The name of a place in the code that flushes or fences. Tests use it to leave the place out.
///
/// Each place has one name, and each name one place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site(&'static str);

impl Site {
    /// Names a place, such as `allocator.acquire.intent`.
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// The name.
    pub fn name(self) -> &'static str {
        self.0
    }
}

impl Debug for Site {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }
}

/// A mapped file as aligned 8-byte atomic words by their byte offset, and the instructions that
/// make them durable.
///
/// Loads acquire, stores release, the other changes do both. An offset that is not aligned or not
/// mapped is a mistake of the caller and panics, like an index beyond a slice. So an offset that
/// was read from a pool has to be checked first ([`Backend::holds`]). After a kill of the process
/// all stores remain; after a power loss, those that [`Backend::domain`] promises.
pub trait Backend: Debug + Send + Sync + Sized {
    /// Consecutive words, for reading many of them.
    type View<'a>: View
    where
        Self: 'a;

    /// Takes a file that is open for writing, and reserves addresses for it. Nothing is mapped yet.
    ///
    /// `pool` is the file's name in messages. It is an error if the file's medium does not promise
    /// what `domain` says.
    fn map(file: Arc<dyn File>, pool: &str, domain: PersistenceDomain, address_space: u64) -> Result<Self>;

    /// Maps the file up to `length`, a multiple of 4096. The space must be allocated before a word
    /// of it is reached. Words keep their addresses.
    fn extend(&self, length: u64) -> Result<()>;

    /// Bytes that are mapped.
    fn length(&self) -> u64;

    /// How far a store has to get to survive a power loss.
    fn domain(&self) -> PersistenceDomain;

    /// The word at an offset.
    fn load(&self, offset: u64) -> u64;

    /// The words of `length` bytes from an offset on, with one check for all of them.
    fn view(&self, offset: u64, length: u64) -> Self::View<'_>;

    /// Announces that the words of `length` bytes from an offset on will be read soon. Does nothing
    /// if they are not mapped.
    #[inline]
    fn prefetch(&self, offset: u64, length: u64) {
        let _ = (offset, length);
    }

    /// Stores a word.
    fn store(&self, offset: u64, value: u64);

    /// Stores `new` if the word is `current`. Gives the word before: `Ok` if it was `current`.
    fn compare_exchange(&self, offset: u64, current: u64, new: u64) -> std::result::Result<u64, u64>;

    /// Sets bits, and gives the word before.
    fn fetch_or(&self, offset: u64, bits: u64) -> u64;

    /// Clears all other bits, and gives the word before.
    fn fetch_and(&self, offset: u64, bits: u64) -> u64;

    /// Begins to write back the line that starts at `line`. For [`Backend::flush`] alone.
    fn write_back(&self, line: u64, site: Site);

    /// Orders earlier stores and flushes of this thread before its later stores: they are durable
    /// first.
    fn fence(&self, site: Site);

    /// Begins to write back every line of a range of bytes. The lines are durable after the next
    /// fence of this thread.
    ///
    /// This is the only loop over lines. It does nothing on media that need no write-backs.
    fn flush(&self, range: Range<u64>, site: Site) {
        if self.domain() != PersistenceDomain::Adr {
            return;
        }
        for line in lines(range) {
            self.write_back(line, site);
        }
    }

    /// Makes a range of bytes durable: flushes it and fences.
    fn persist(&self, range: Range<u64>, site: Site) {
        self.flush(range, site);
        self.fence(site);
    }

    /// Whether a range of words is aligned and mapped, so that it can be used.
    fn holds(&self, offset: u64, length: u64) -> bool {
        offset.is_multiple_of(WORD_LENGTH)
            && length.is_multiple_of(WORD_LENGTH)
            && offset.checked_add(length).is_some_and(|end| end <= self.length())
    }
}

/// Consecutive words. Loads acquire, like those of the [`Backend`].
pub trait View: Copy {
    /// The word with this number. Beyond the last one it panics, like an index beyond a slice.
    fn load(&self, index: usize) -> u64;

    /// `N` words from this number on, with one check for all of them.
    #[inline]
    fn load_array<const N: usize>(&self, first: usize) -> [u64; N] {
        std::array::from_fn(|index| self.load(first + index))
    }
}

/// A view of a back-end that has to see each load.
#[derive(Debug)]
pub struct Loads<'a, B> {
    backend: &'a B,
    offset: u64,
    words: u64,
}

impl<'a, B: Backend> Loads<'a, B> {
    /// Words of `length` bytes from an offset on, which must be mapped.
    pub fn new(backend: &'a B, offset: u64, length: u64) -> Self {
        if !backend.holds(offset, length) {
            outside(offset, backend.length());
        }
        Self { backend, offset, words: length / WORD_LENGTH }
    }
}

impl<B> Clone for Loads<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for Loads<'_, B> {}

impl<B: Backend> View for Loads<'_, B> {
    fn load(&self, index: usize) -> u64 {
        let offset = self.offset + index as u64 * WORD_LENGTH;
        if index as u64 >= self.words {
            outside(offset, self.offset + self.words * WORD_LENGTH);
        }
        self.backend.load(offset)
    }
}

/// Starts of the lines that a range of bytes touches; none if it is empty.
pub(crate) fn lines(range: Range<u64>) -> impl Iterator<Item = u64> {
    let first = range.start / LINE_LENGTH;
    let end = if range.is_empty() { first } else { (range.end - 1) / LINE_LENGTH + 1 };
    (first..end).map(|line| line * LINE_LENGTH)
}

#[cold]
fn outside(offset: u64, length: u64) -> ! {
    panic!("no word at byte {offset} of a pool with {length} bytes mapped: offsets are checked before they are used")
}
