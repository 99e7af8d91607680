//! By what a file is known again: checksums of its first bytes and of the last ones that were read of it.
//!
//! A mark is true of a file for as long as what was read of it stays, whatever comes behind: so it may be older than the
//! position that is kept beside it, and is renewed only now and then.

use std::fmt;

use xxhash_rust::xxh3::xxh3_64;

/// Bytes that each of the two checksums is of, if there are so many.
pub const KNOWN_BYTES: usize = 1024;
/// A mark is renewed once its file was read on by this part of what it was then …
const RENEWED_PART: u64 = 4;
/// … but by these bytes at least …
const RENEWED_MIN: u64 = KNOWN_BYTES as u64;
/// … and at most.
const RENEWED_MAX: u64 = 16 << 20;
/// What the text of an empty file's mark begins with.
const EMPTY: &str = "0 bytes in inode ";

/// What tells a file from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Of one that was empty, its inode: another name keeps it, and nothing else is known. As text `0 bytes in inode I`.
    Empty(u64),
    /// As text `N bytes with xxh3 H`, of its first bytes, and, once something was read of it, `, N before byte B with
    /// xxh3 H`.
    Bytes {
        /// Its first bytes.
        first: Part,
        /// The last bytes of those that were read of it.
        last: Option<Part>,
    },
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it ends.
    pub end: u64,
    /// Bytes of it, [`KNOWN_BYTES`] at most.
    pub length: usize,
    checksum: u64,
}

impl Mark {
    /// Reads the text of a mark; `None` if it is of something else.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(inode) = text.strip_prefix(EMPTY) {
            return inode.parse().ok().map(Self::Empty);
        }
        let (first, last) = match text.split_once(", ") {
            None => (text, None),
            Some((first, last)) => (first, Some(last)),
        };
        let (length, checksum) = first.split_once(" bytes with xxh3 ")?;
        let first = Part::parse(length, length, checksum)?;
        let last = last.map(|last| {
            let (length, rest) = last.split_once(" before byte ")?;
            let (end, checksum) = rest.split_once(" with xxh3 ")?;
            Part::parse(length, end, checksum)
        });
        match last {
            Some(None) => None,
            last => Some(Self::Bytes { first, last: last.flatten() }),
        }
    }

    /// The last bytes of those that were read of the file.
    pub fn last(&self) -> Option<Part> {
        match self {
            Self::Empty(_) => None,
            Self::Bytes { last, .. } => *last,
        }
    }

    /// Whether it tells so much more than an earlier one of the file that it has to take its place.
    pub fn renews(&self, earlier: &Self) -> bool {
        let known = |mark: &Self| match mark {
            Self::Empty(_) => 0,
            Self::Bytes { first, .. } => first.length,
        };
        let end = |mark: &Self| mark.last().map_or(0, |last| last.end);
        let due = (end(earlier) / RENEWED_PART).clamp(RENEWED_MIN, RENEWED_MAX);
        known(self) > known(earlier) || end(self) >= end(earlier).saturating_add(due)
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = match self {
            Self::Empty(inode) => return write!(f, "{EMPTY}{inode}"),
            Self::Bytes { first, last } => (first, last),
        };
        write!(f, "{} bytes with xxh3 {:016x}", first.length, first.checksum)?;
        match last {
            Some(Part { end, length, checksum }) => {
                write!(f, ", {length} before byte {end} with xxh3 {checksum:016x}")
            }
            None => Ok(()),
        }
    }
}

impl Part {
    /// The part that holds these bytes and ends there.
    pub fn of(bytes: &[u8], end: u64) -> Self {
        Self { end, length: bytes.len(), checksum: xxh3_64(bytes) }
    }

    /// Where it begins.
    pub fn start(&self) -> u64 {
        self.end - self.length as u64
    }

    fn parse(length: &str, end: &str, checksum: &str) -> Option<Self> {
        let (length, end): (usize, u64) = (length.parse().ok()?, end.parse().ok()?);
        let checksum = u64::from_str_radix(checksum, 16).ok()?;
        (length <= KNOWN_BYTES && length as u64 <= end).then_some(Self { end, length, checksum })
    }
}

/// The last bytes of those that were read, as they were then.
#[derive(Clone, Debug, Default)]
pub struct LastBytes {
    bytes: Vec<u8>,
    end: u64,
}

impl LastBytes {
    /// Takes bytes that begin at a byte of the file; those that do not follow on the ones before take their place.
    pub fn push(&mut self, start: u64, bytes: &[u8]) {
        if start != self.end {
            self.bytes.clear();
        }
        self.end = start + bytes.len() as u64;
        self.bytes.extend_from_slice(&bytes[bytes.len().saturating_sub(KNOWN_BYTES)..]);
        self.bytes.drain(..self.bytes.len().saturating_sub(KNOWN_BYTES));
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Where they begin.
    pub fn start(&self) -> u64 {
        self.end - self.bytes.len() as u64
    }

    /// Where they end, which is how far was read.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Whether a line ends with them; none has begun before the first byte.
    pub fn ends_line(&self) -> bool {
        self.bytes.last().is_none_or(|&byte| byte == b'\n')
    }

    /// The part of the file that they are, if there are any.
    pub fn part(&self) -> Option<Part> {
        (!self.bytes.is_empty()).then(|| Part::of(&self.bytes, self.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(first: usize, last: Option<(usize, u64)>) -> Mark {
        let part = |length: usize, end| Part::of(&vec![7; length], end);
        Mark::Bytes { first: part(first, first as u64), last: last.map(|(length, end)| part(length, end)) }
    }

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let of_bytes = [mark(1, None), mark(1024, None), mark(20, Some((20, 20))), mark(1024, Some((1024, u64::MAX)))];
        for mark in of_bytes.into_iter().chain([0, u64::MAX].map(Mark::Empty)) {
            assert_eq!(Mark::parse(&mark.to_string()), Some(mark), "{mark}");
        }
        assert_eq!(Mark::parse("8 bytes with xxh3 00000000000000ff").map(|mark| mark.last()), Some(None), "as once");
    }

    #[test]
    fn what_is_no_mark_is_none() {
        for text in [
            "",
            "positions in \"n\"",
            "8 bytes",
            "x bytes with xxh3 0",
            "8 bytes with xxh3 x",
            "1025 bytes with xxh3 0",
            "99999999999999999999 bytes with xxh3 0",
            "8 bytes with xxh3 0, 8",
            "8 bytes with xxh3 0, 8 before byte 7 with xxh3 0",
            "8 bytes with xxh3 0, 1025 before byte 2000 with xxh3 0",
            "8 bytes with xxh3 0, 8 before byte 9 with xxh3 0, 8",
            "0 bytes in inode ",
            "0 bytes in inode x",
        ] {
            assert_eq!(Mark::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_mark_is_renewed_while_it_is_short_and_then_now_and_then() {
        let of = |end| mark(1024, Some((1024, end)));
        assert!(mark(1, None).renews(&Mark::Empty(7)) && !Mark::Empty(7).renews(&Mark::Empty(7)));
        assert!(mark(11, None).renews(&mark(10, None)));
        assert!(!mark(10, Some((10, 10))).renews(&mark(10, None)));
        assert!(of(1024).renews(&mark(1024, None)));
        for (earlier, due) in [(1024, 2048), (40_000, 50_000), (1 << 40, (1 << 40) + RENEWED_MAX)] {
            assert!(of(due).renews(&of(earlier)) && !of(due - 1).renews(&of(earlier)), "{earlier}");
        }
    }

    #[test]
    fn the_last_bytes_are_those_that_follow_on_each_other() {
        let mut last = LastBytes::default();
        assert_eq!(last.part(), None);
        last.push(0, b"abc");
        last.push(3, b"de");
        assert_eq!((last.bytes(), last.start()), (&b"abcde"[..], 0));
        last.push(9, b"fg");
        assert_eq!((last.bytes(), last.start()), (&b"fg"[..], 9));
        for (start, length) in [(11, 1000), (1011, 30), (1041, 5000)] {
            let bytes: Vec<u8> = (start..start + length).map(|byte| byte as u8).collect();
            last.push(start, &bytes);
        }
        let wanted: Vec<u8> = (6041 - 1024..6041_u64).map(|byte| byte as u8).collect();
        assert_eq!((last.bytes(), last.start()), (&wanted[..], 6041 - 1024));
    }
}
