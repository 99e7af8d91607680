//! Records: the changes and the contents of leaves, as words in the lines of a log.
//!
//! - word 0: the kind, the number of entries that the leaf has then, and the number of the leaf.
//! - word 1: the number of the record.
//! - word 2: in a delta, the offset of the record before it, or 0; in a base, whether its range has
//!   an end.
//! - then a delta has a key and, unless it removes it, a value. A base has the least key of the
//!   range, the key behind it, and the entries, sorted.
//!
//! The last word of each line is the stamp (L2), so a line has seven words of a record.

use terrane_pmem::{LINE_LENGTH, View, WORD_LENGTH};

use super::super::node::Entry;

/// Words of a line, and those of a record in it.
const LINE_WORDS: usize = (LINE_LENGTH / WORD_LENGTH) as usize;
const RECORD_WORDS: usize = LINE_WORDS - 1;

/// Words before the key of a delta, or before the range of a base.
const HEADER: usize = 3;

const KIND: u64 = 0xff;
const COUNT_SHIFT: u32 = 8;
const COUNT: u64 = 0xffff;
const LEAF_SHIFT: u32 = 24;

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A key has a value from now on.
    Put,
    /// A key is removed.
    Remove,
    /// The leaf has these entries, and owns this range of keys.
    Base,
}

impl Kind {
    fn number(self) -> u64 {
        match self {
            Self::Put => 1,
            Self::Remove => 2,
            Self::Base => 3,
        }
    }
}

/// The header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    /// Entries of the leaf with this record.
    pub(super) count: usize,
    /// The number of the leaf.
    pub(super) leaf: u64,
}

impl Header {
    /// The header in a word; `None` if there is none.
    pub(super) fn from_word(word: u64) -> Option<Self> {
        let kind = [Kind::Put, Kind::Remove, Kind::Base].into_iter().find(|kind| kind.number() == word & KIND)?;
        Some(Self { kind, count: (word >> COUNT_SHIFT & COUNT) as usize, leaf: word >> LEAF_SHIFT })
    }

    fn word(self) -> u64 {
        self.kind.number() | (self.count as u64) << COUNT_SHIFT | self.leaf << LEAF_SHIFT
    }

    /// Lines of the record in a tree with keys of `K` words and values of `V`.
    pub(super) fn lines<const K: usize, const V: usize>(self) -> u64 {
        let words = HEADER
            + match self.kind {
                Kind::Put => K + V,
                Kind::Remove => K,
                Kind::Base => 2 * K + self.count * (K + V),
            };
        words.div_ceil(RECORD_WORDS) as u64
    }
}

/// Lines of the longest record of leaves with this many entries.
pub(super) fn lines_max<const K: usize, const V: usize>(entries: usize) -> u64 {
    Header { kind: Kind::Base, count: entries, leaf: 0 }.lines::<K, V>()
}

/// A range of keys: from a key, to a key behind it or to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range<const K: usize> {
    pub(super) low: [u64; K],
    pub(super) high: Option<[u64; K]>,
}

/// The words of a delta to a leaf that has `count` entries then. Its number follows when it is
/// appended.
pub(super) fn delta<const K: usize, const V: usize>(
    (leaf, count): (u64, usize),
    previous: u64,
    key: &[u64; K],
    value: Option<&[u64; V]>,
) -> Vec<u64> {
    let kind = if value.is_some() { Kind::Put } else { Kind::Remove };
    let mut words = vec![Header { kind, count, leaf }.word(), 0, previous];
    words.extend_from_slice(key);
    words.extend_from_slice(value.map_or(&[], |value| value));
    words
}

/// The words of a base.
pub(super) fn base<const K: usize, const V: usize>(leaf: u64, range: &Range<K>, entries: &[Entry<K, V>]) -> Vec<u64> {
    let header = Header { kind: Kind::Base, count: entries.len(), leaf };
    let mut words = vec![header.word(), 0, u64::from(range.high.is_some())];
    words.extend_from_slice(&range.low);
    words.extend_from_slice(&range.high.unwrap_or([0; K]));
    entries.iter().for_each(|(key, value)| words.extend(key.iter().chain(value)));
    words
}

/// Places a record's number among its words.
pub(super) fn set_number(words: &mut [u64], number: u64) {
    words[1] = number;
}

/// Number of lines of a record.
pub(super) fn line_count(words: &[u64]) -> u64 {
    words.len().div_ceil(RECORD_WORDS) as u64
}

/// The lines of a record with a stamp.
pub(super) fn lines(words: &[u64], stamp: u64) -> impl Iterator<Item = [u64; LINE_WORDS]> {
    words.chunks(RECORD_WORDS).map(move |chunk| {
        let mut line = [0; LINE_WORDS];
        line[..chunk.len()].copy_from_slice(chunk);
        line[RECORD_WORDS] = stamp;
        line
    })
}

/// A record in a pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<W> {
    pub(super) header: Header,
    pub(super) words: W,
}

impl<W: View> Record<W> {
    #[inline]
    fn load(&self, number: usize) -> u64 {
        self.words.load(number / RECORD_WORDS * LINE_WORDS + number % RECORD_WORDS)
    }

    #[inline]
    fn array<const N: usize>(&self, first: usize) -> [u64; N] {
        std::array::from_fn(|word| self.load(first + word))
    }

    pub(super) fn number(&self) -> u64 {
        self.load(1)
    }

    /// Of a delta: the offset of the record before it.
    pub(super) fn previous(&self) -> u64 {
        self.load(2)
    }

    /// Of a delta: its key.
    #[inline]
    pub(super) fn key<const K: usize>(&self) -> [u64; K] {
        self.array(HEADER)
    }

    /// Of a delta: the value; `None` if the key is removed.
    #[inline]
    pub(super) fn value<const K: usize, const V: usize>(&self) -> Option<[u64; V]> {
        (self.header.kind == Kind::Put).then(|| self.array(HEADER + K))
    }

    /// Of a base: its range.
    pub(super) fn range<const K: usize>(&self) -> Range<K> {
        Range { low: self.array(HEADER), high: (self.load(2) != 0).then(|| self.array(HEADER + K)) }
    }

    /// Of a base: the key of an entry.
    #[inline]
    pub(super) fn key_at<const K: usize, const V: usize>(&self, entry: usize) -> [u64; K] {
        self.array(HEADER + 2 * K + entry * (K + V))
    }

    /// Of a base: the value of an entry.
    #[inline]
    pub(super) fn value_at<const K: usize, const V: usize>(&self, entry: usize) -> [u64; V] {
        self.array(HEADER + 3 * K + entry * (K + V))
    }
}

/// The stamp of a line that begins with the word of this number.
pub(super) fn stamp(words: impl View, line: usize) -> u64 {
    words.load(line * LINE_WORDS + RECORD_WORDS)
}
