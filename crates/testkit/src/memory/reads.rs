//! The parts of a prepared disk that were read before anything else was stored there.
//!
//! A run behaves the same on two disks that differ in nothing that it reads. Crash tests therefore
//! need not distinguish such disks.

use std::collections::BTreeMap;
use std::ops::{BitOrAssign, Range};
use std::sync::atomic::{AtomicU64, Ordering};

use terrane_storage::event::{FileId, LINE_LENGTH};

const WORD_LENGTH: u64 = size_of::<u64>() as u64;
const WORD_BITS: u64 = u64::BITS as u64;

/// Number of lines per byte.
const BYTE_LINES: u64 = u8::BITS as u64;

/// The cache lines whose initial content was read, wholly or in part, for each file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reads(BTreeMap<FileId, Box<[u8]>>);

impl Reads {
    /// Whether anything was read of a range of bytes, or of the lines in which it begins and ends.
    pub fn meet(&self, file: FileId, bytes: Range<u64>) -> bool {
        let Some(lines) = self.0.get(&file) else { return false };
        let is_read = |line: u64| {
            let byte = usize::try_from(line / BYTE_LINES).ok().and_then(|byte| lines.get(byte));
            byte.is_some_and(|byte| byte >> (line % BYTE_LINES) & 1 == 1)
        };
        (bytes.start / LINE_LENGTH..bytes.end.div_ceil(LINE_LENGTH)).any(is_read)
    }
}

impl BitOrAssign<&Self> for Reads {
    fn bitor_assign(&mut self, other: &Self) {
        for (&file, lines) in &other.0 {
            let own = self.0.entry(file).or_default();
            if own.len() < lines.len() {
                *own = own.iter().copied().chain(std::iter::repeat(0)).take(lines.len()).collect();
            }
            own.iter_mut().zip(lines).for_each(|(own, lines)| *own |= lines);
        }
    }
}

impl FromIterator<(FileId, Box<[u8]>)> for Reads {
    fn from_iter<I: IntoIterator<Item = (FileId, Box<[u8]>)>>(lines: I) -> Self {
        Self(lines.into_iter().collect())
    }
}

/// The words of files that were read before they were stored, and those that were stored.
#[derive(Clone, Debug, Default)]
pub struct Touched(Vec<(FileId, TouchedWords)>);

/// Those of one file: a bit for each initial word.
#[derive(Clone, Debug)]
pub(super) struct TouchedWords {
    read: Box<[u64]>,
    stored: Box<[u64]>,
}

/// The read words of [`Touched`], in a compact form.
#[derive(Clone, Debug, Default)]
pub struct WordsRead(Box<[(FileId, PlacedBits)]>);

/// Words of one file, as groups of 64 with a bit for each.
type PlacedBits = Box<[(usize, u64)]>;

impl Touched {
    /// The lines in which something was read.
    pub fn reads(&self) -> Reads {
        self.reads_with(&WordsRead::default())
    }

    /// The lines in which something was read, then or by the steps after it. A later read counts
    /// unless the word was stored in between.
    pub fn reads_with(&self, after: &WordsRead) -> Reads {
        let lines = |(file, words): &(FileId, TouchedWords)| {
            let mut read = words.read.clone();
            let after = after.0.iter().find(|(read_file, _)| read_file == file);
            for &(place, bits) in after.map_or(&[][..], |(_, places)| places) {
                // Bytes beyond were not on the disk.
                if let Some(read) = read.get_mut(place) {
                    *read |= bits & !words.stored[place];
                }
            }
            (*file, lines(read.iter().copied()))
        };
        self.0.iter().map(lines).collect()
    }

    /// The words that were read.
    pub fn words_read(&self) -> WordsRead {
        let read = |(file, words): &(FileId, TouchedWords)| {
            let places = words.read.iter().copied().enumerate();
            (*file, places.filter(|&(_, bits)| bits != 0).collect())
        };
        WordsRead(self.0.iter().map(read).collect())
    }
}

impl FromIterator<(FileId, TouchedWords)> for Touched {
    fn from_iter<I: IntoIterator<Item = (FileId, TouchedWords)>>(words: I) -> Self {
        Self(words.into_iter().collect())
    }
}

/// A bit for each line in which a word was read.
fn lines(read: impl Iterator<Item = u64>) -> Box<[u8]> {
    let lines = |words: u64| {
        words.to_le_bytes().iter().enumerate().fold(0, |lines, (line, words)| lines | u8::from(*words != 0) << line)
    };
    read.map(lines).collect()
}

/// The words of one file: a bit for each initial word.
#[derive(Debug)]
pub(super) struct Watch {
    read: Box<[AtomicU64]>,
    stored: Box<[AtomicU64]>,
}

impl Watch {
    pub(super) fn new(length: u64) -> Self {
        let bits = || (0..length.div_ceil(WORD_LENGTH * WORD_BITS)).map(|_| AtomicU64::new(0)).collect();
        Self { read: bits(), stored: bits() }
    }

    /// Records a read of bytes. Words that were stored before do not count.
    pub(super) fn note_read(&self, offset: u64, length: u64) {
        for word in offset / WORD_LENGTH..(offset + length).div_ceil(WORD_LENGTH) {
            let (place, bit) = place(word);
            // Bytes beyond were not on the disk.
            let Some(stored) = self.stored.get(place) else { return };
            // Most reads find both bits set as needed, and loads are cheaper.
            let (stored, read) = (stored.load(Ordering::Relaxed), &self.read[place]);
            if (stored | read.load(Ordering::Relaxed)) & bit == 0 {
                read.fetch_or(bit, Ordering::Relaxed);
            }
        }
    }

    /// Records a write of bytes. A word that was written only in part counts as not stored.
    pub(super) fn note_stored(&self, offset: u64, length: u64) {
        for word in offset.div_ceil(WORD_LENGTH)..(offset + length) / WORD_LENGTH {
            let (place, bit) = place(word);
            let Some(stored) = self.stored.get(place) else { return };
            stored.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// A bit for each line in which a word was read.
    pub(super) fn lines(&self) -> Box<[u8]> {
        lines(self.read.iter().map(|words| words.load(Ordering::Relaxed)))
    }

    /// Returns what was touched, and resets it.
    pub(super) fn take(&self) -> TouchedWords {
        // Most are zero, and loads are cheaper.
        let word = |word: &AtomicU64| match word.load(Ordering::Relaxed) {
            0 => 0,
            _ => word.swap(0, Ordering::Relaxed),
        };
        let take = |words: &[AtomicU64]| words.iter().map(word).collect();
        TouchedWords { read: take(&self.read), stored: take(&self.stored) }
    }
}

/// The index and the bit of a word.
fn place(word: u64) -> (usize, u64) {
    (usize::try_from(word / WORD_BITS).unwrap_or(usize::MAX), 1 << (word % WORD_BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_before_it_was_stored_counts_by_lines() {
        let watch = Watch::new(4096);
        watch.note_stored(0, 8);
        watch.note_read(0, 8);
        watch.note_read(72, 8);
        watch.note_stored(72, 8);
        watch.note_stored(130, 12);
        watch.note_read(128, 8);
        watch.note_stored(192, 64);
        watch.note_read(192, 64);
        watch.note_read(4088, 100);
        watch.note_read(1 << 40, 8);
        let file = FileId(3);
        let reads = Reads::from_iter([(file, watch.lines())]);
        let lines: Vec<u64> = (0..80).filter(|line| reads.meet(file, line * 64..line * 64 + 8)).collect();
        assert_eq!(lines, [1, 2, 63]);
        assert!(reads.meet(file, 0..4096) && !reads.meet(file, 192..4032) && !reads.meet(FileId(4), 0..4096));

        let mut sum = Reads::from_iter([(file, vec![1].into()), (FileId(5), vec![1].into())]);
        sum |= &reads;
        let lines: Vec<u64> = (0..80).filter(|line| sum.meet(file, line * 64..line * 64 + 8)).collect();
        assert_eq!(lines, [0, 1, 2, 63]);
        assert!(sum.meet(FileId(5), 0..8));
    }

    #[test]
    fn what_is_read_afterwards_counts_unless_it_was_stored_before() {
        let (watch, file) = (Watch::new(4096), FileId(3));
        let lines =
            |reads: Reads| -> Vec<u64> { (0..64).filter(|line| reads.meet(file, line * 64..line * 64 + 8)).collect() };
        watch.note_read(0, 8);
        watch.note_stored(640, 8);
        watch.note_stored(704, 8);
        let first: Touched = [(file, watch.take())].into_iter().collect();
        for offset in [640, 712, 1280] {
            watch.note_read(offset, 8);
        }
        let then: Touched = [(file, watch.take())].into_iter().collect();
        assert_eq!(lines(first.reads()), [0]);
        assert_eq!(lines(then.reads()), [10, 11, 20], "what was stored before it was taken counts no more");
        assert_eq!(lines(first.reads_with(&then.words_read())), [0, 11, 20]);
        assert_eq!(lines(then.reads_with(&first.words_read())), [0, 10, 11, 20]);
    }
}
