//! Marks by which a file is recognised: checksums of its first bytes and of the bytes read last.
//!
//! A mark stays valid as long as the bytes that were read stay, whatever follows them. It may
//! therefore be older than the position stored with it, and is renewed only now and then.

use std::fmt;
use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Weak};
use std::time::UNIX_EPOCH;

use xxhash_rust::xxh3::xxh3_64;

/// Bytes that each of the two checksums covers, if there are enough.
pub const KNOWN_BYTES: usize = 1024;
/// A mark is renewed once its file has been read further by this share of its position …
const RENEWED_PART: u64 = 4;
/// … but by these bytes at least …
const RENEWED_MIN: u64 = KNOWN_BYTES as u64;
/// … and at most.
const RENEWED_MAX: u64 = 16 << 20;
/// Beginning of the text of an empty file's mark.
const EMPTY: &str = "0 bytes in ";
/// Separator of files in the text of a source.
const LEFT: &str = "; left at ";
/// Most files that are remembered beside the current one; the last ones are kept.
const LEFT_MAX: usize = 16;

/// The identity of a file, now and in the past. An inode may be reused, but not at the same time in
/// one file system. Its text is `inode I made B`. The device is left out, since its number may
/// change when the machine restarts. Compare ids by [`Self::can_be`], not by equality.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub struct FileId {
    /// The device of its file system; unknown for an id that was read from text.
    device: Option<u64>,
    inode: u64,
    /// Creation time, in nanoseconds since 1970; 0 if the file system has none.
    made_ns: u64,
}

impl FileId {
    /// The id of a file.
    pub fn of(file: &Metadata) -> Self {
        let made = file.created().ok().and_then(|made| made.duration_since(UNIX_EPOCH).ok());
        let made_ns = made.and_then(|made| u64::try_from(made.as_nanos()).ok()).unwrap_or(0);
        Self { device: Some(file.dev()), inode: file.ino(), made_ns }
    }

    /// Whether both can belong to one file. For open files, whether they do.
    pub fn can_be(self, other: Self) -> bool {
        let is_other_device = self.device.zip(other.device).is_some_and(|(one, other)| one != other);
        !is_other_device && (self.inode, self.made_ns) == (other.inode, other.made_ns)
    }

    fn parse(text: &str) -> Option<Self> {
        let (inode, made) = text.strip_prefix("inode ")?.split_once(" made ")?;
        Some(Self { device: None, inode: inode.parse().ok()?, made_ns: made.parse().ok()? })
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inode {} made {}", self.inode, self.made_ns)
    }
}

/// A file that was read to its end at the time.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub struct Left {
    /// Its id.
    pub id: FileId,
    /// The position up to which it was read.
    pub position: u64,
    /// Its mark at that time.
    pub mark: Mark,
}

/// Files that were left, the earliest first.
#[derive(Clone, Debug, Default)]
pub struct LeftFiles {
    kept: Vec<Left>,
    /// Files on a file system without creation times. Each is recognised only while it stays open,
    /// as it does until it is read again.
    open: Vec<(Weak<File>, Left)>,
}

impl LeftFiles {
    /// Removes and returns the entry of a file.
    pub fn take(&mut self, id: FileId, file: &Arc<File>) -> Option<Left> {
        if let Some(at) = self.open.iter().position(|(open, _)| std::ptr::eq(open.as_ptr(), Arc::as_ptr(file))) {
            return Some(self.open.remove(at).1);
        }
        let at = self.kept.iter().position(|left| left.id.can_be(id))?;
        Some(self.kept.remove(at))
    }

    /// Adds a file, unless it could not be distinguished from another one later.
    pub fn push(&mut self, left: Left, file: &Arc<File>) {
        self.take(left.id, file);
        self.open.retain(|(open, _)| open.strong_count() > 0);
        match left.mark {
            Mark::Empty(_) => {}
            Mark::Bytes { .. } if left.id.made_ns == 0 => self.open.push((Arc::downgrade(file), left)),
            Mark::Bytes { .. } => self.kept.push(left),
        }
        let surplus = self.kept.len().saturating_sub(LEFT_MAX);
        self.kept.drain(..surplus);
    }

    /// The text stored for a source: the mark of the current file, and behind it the files that
    /// were left, each as `; left at P: inode I made B, MARK`.
    pub fn text_behind(&self, mark: &Mark) -> String {
        let left = |Left { id, position, mark }: &Left| format!("{LEFT}{position}: {id}, {mark}");
        mark.to_string() + &self.kept.iter().map(left).collect::<String>()
    }

    /// Parses such a text; `None` if it is of another kind.
    pub fn parse(text: &str) -> Option<(Mark, Self)> {
        let mut parts = text.split(LEFT);
        let mark = Mark::parse(parts.next()?)?;
        let left = |text: &str| {
            let (position, rest) = text.split_once(": ")?;
            let (id, mark) = rest.split_once(", ")?;
            Some(Left { id: FileId::parse(id)?, position: position.parse().ok()?, mark: Mark::parse(mark)? })
        };
        Some((mark, Self { kept: parts.map(left).collect::<Option<_>>()?, open: Vec::new() }))
    }
}

/// The mark of a file.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(PartialEq))]
pub enum Mark {
    /// Of an empty file, its identity, which stays under another name. As text `0 bytes in` and the
    /// file.
    Empty(FileId),
    /// As text `N bytes with xxh3 H`, of its first bytes. Once more was read of it, followed by
    /// `, N before byte B with xxh3 H`.
    Bytes {
        /// Its first bytes.
        first: Part,
        /// The bytes read last.
        last: Option<Part>,
    },
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The offset of its end.
    pub end: u64,
    /// Its length, at most [`KNOWN_BYTES`].
    pub length: usize,
    checksum: u64,
}

impl Mark {
    /// Parses the text of a mark; `None` if it is of another kind.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(id) = text.strip_prefix(EMPTY) {
            return FileId::parse(id).map(Self::Empty);
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

    /// The part with the bytes read last.
    pub fn last(&self) -> Option<Part> {
        match self {
            Self::Empty(_) => None,
            Self::Bytes { last, .. } => *last,
        }
    }

    /// Whether it covers so much more than an earlier mark that it has to replace that.
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
            Self::Empty(id) => return write!(f, "{EMPTY}{id}"),
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
    /// The part that consists of these bytes and ends at `end`.
    pub fn of(bytes: &[u8], end: u64) -> Self {
        Self { end, length: bytes.len(), checksum: xxh3_64(bytes) }
    }

    /// The offset of its beginning.
    pub fn start(&self) -> u64 {
        self.end - self.length as u64
    }

    fn parse(length: &str, end: &str, checksum: &str) -> Option<Self> {
        let (length, end): (usize, u64) = (length.parse().ok()?, end.parse().ok()?);
        let checksum = u64::from_str_radix(checksum, 16).ok()?;
        (length <= KNOWN_BYTES && length as u64 <= end).then_some(Self { end, length, checksum })
    }
}

/// The bytes read last, as they were then.
#[derive(Clone, Debug, Default)]
pub struct LastBytes {
    bytes: Vec<u8>,
    end: u64,
}

impl LastBytes {
    /// Adds bytes that begin at an offset of the file. Bytes that do not follow the previous ones
    /// replace them.
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

    /// The offset of their beginning.
    pub fn start(&self) -> u64 {
        self.end - self.bytes.len() as u64
    }

    /// The offset of their end, up to which the file was read.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Whether a line ends with them. Without bytes, no line has begun.
    pub fn ends_line(&self) -> bool {
        self.bytes.last().is_none_or(|&byte| byte == b'\n')
    }

    /// The part of the file that they form, if there are any.
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

    fn id(inode: u64) -> FileId {
        FileId { device: None, inode, made_ns: 1 << 60 }
    }

    #[test]
    fn files_of_one_inode_in_two_file_systems_are_two() {
        let on = |device| FileId { device: Some(device), inode: 7, made_ns: 0 };
        assert!(on(1).can_be(on(1)) && !on(1).can_be(on(2)));
        let file = tempfile::tempfile().and_then(|file| file.metadata()).expect("a file");
        assert_eq!(FileId::of(&file).device, Some(file.dev()));
        // Stored ids match any device.
        let kept = FileId::parse(&on(1).to_string()).expect("it is a text of one");
        assert!(kept.can_be(on(1)) && kept.can_be(on(2)));
    }

    #[test]
    fn a_file_that_was_left_is_not_known_in_one_of_another_file_system() {
        let on = |device| FileId { device: Some(device), ..id(7) };
        let mut files = LeftFiles::default();
        for (device, position) in [(1, 10), (2, 20)] {
            files.push(Left { id: on(device), position, mark: mark(8, None) }, &open());
        }
        let positions = [2, 3, 1].map(|device| files.take(on(device), &open()).map(|left| left.position));
        assert_eq!(positions, [Some(20), None, Some(10)]);
    }

    fn open() -> Arc<File> {
        Arc::new(tempfile::tempfile().expect("a file"))
    }

    #[test]
    fn a_file_of_an_unknown_time_is_known_again_while_it_stays_open() {
        let unknown = FileId { made_ns: 0, ..id(7) };
        let left = |position| Left { id: unknown, position, mark: mark(8, None) };
        let (mut files, again, gone) = (LeftFiles::default(), open(), open());
        files.push(left(10), &again);
        files.push(left(20), &gone);
        assert_eq!(
            files.text_behind(&mark(8, None)),
            mark(8, None).to_string(),
            "another one may have the inode by then"
        );
        drop(gone);
        assert_eq!(files.take(unknown, &open()), None, "it may be a new one");
        assert_eq!(files.take(unknown, &again).map(|left| left.position), Some(10));
        assert_eq!(files.take(unknown, &again), None);
        files.push(left(30), &again);
        files.push(left(40), &again);
        assert_eq!((files.open.len(), files.take(unknown, &again).map(|left| left.position)), (1, Some(40)));
    }

    #[test]
    fn files_that_were_left_are_known_again_the_last_ones_longest() {
        let left = |inode| Left { id: id(inode), position: u64::MAX, mark: mark(1024, Some((1024, u64::MAX))) };
        let (mut files, file) = (LeftFiles::default(), open());
        let parsed = |text: &str| LeftFiles::parse(text).map(|(mark, files)| (mark, files.kept));
        assert_eq!(parsed(&files.text_behind(&mark(8, None))), Some((mark(8, None), files.kept.clone())));
        (0..20).chain([10]).for_each(|inode| files.push(left(u64::MAX - inode), &file));
        // A file that could not be distinguished from others is not kept.
        files.push(Left { id: FileId { made_ns: 0, ..id(1) }, ..left(1) }, &open());
        files.push(Left { mark: Mark::Empty(id(2)), ..left(2) }, &file);
        let text = files.text_behind(&mark(1024, Some((1024, u64::MAX))));
        assert!(text.len() <= 4096, "{}", text.len());
        assert_eq!(parsed(&text).map(|(_, files)| files), Some(files.kept.clone()));
        let known: Vec<u64> = (0..20).filter(|inode| files.take(id(u64::MAX - inode), &file).is_some()).collect();
        assert_eq!(known, (4..20).collect::<Vec<u64>>());
        assert_eq!(parsed(&(text + "; left at 7")), None);
    }

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let of_bytes = [mark(1, None), mark(1024, None), mark(20, Some((20, 20))), mark(1024, Some((1024, u64::MAX)))];
        for mark in of_bytes.into_iter().chain([0, u64::MAX].map(|inode| Mark::Empty(id(inode)))) {
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
            "0 bytes in inode 7",
            "0 bytes in inode x made 7",
        ] {
            assert_eq!(Mark::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_mark_is_renewed_while_it_is_short_and_then_now_and_then() {
        let of = |end| mark(1024, Some((1024, end)));
        let empty = Mark::Empty(id(7));
        assert!(mark(1, None).renews(&empty) && !empty.renews(&empty));
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
