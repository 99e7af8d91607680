//! Byte layout of the log: names of its files, the segment header, the group header, entries.
//!
//! A segment file is `HEADER_AREA` bytes with the [`SegmentHeader`], then groups without gaps. A
//! group is a [`GroupHeader`] and a payload: entries, each a length (u32) and its bytes, padded
//! with zeros to a multiple of 8. All integers are little-endian. Group checksums are seeded with
//! the store's id. Neither a copied file of another store nor bytes inside an entry can therefore
//! pass for a group.

use bytemuck::{Pod, Zeroable, bytes_of, pod_read_unaligned};

use super::Lsn;
use super::segment::SegmentFile;

const _: () = assert!(cfg!(target_endian = "little"), "the log's structures are read in place and are little-endian");

/// Directory of the segments below the store's root.
pub(super) const DIRECTORY: &str = "log";
/// Offset of the first group in a segment. Groups never share a page with the header.
pub(super) const HEADER_AREA: u64 = 4096;
/// Segment sizes are multiples of this.
pub(super) const SIZE_UNIT: u64 = 4096;
/// Groups, entries and therefore all LSNs are multiples of this.
pub(super) const ALIGNMENT: u64 = 8;
/// Bytes of a group header, in the file and in the LSN space.
pub(super) const GROUP_HEADER_LENGTH: usize = size_of::<GroupHeader>();
/// Longest entry that is accepted.
pub(super) const ENTRY_LENGTH_MAX: usize = 1 << 30;
/// Bytes of the length before every entry.
pub(super) const ENTRY_PREFIX_LENGTH: usize = size_of::<u32>();

const FORMAT_VERSION: u32 = 1;
const SEGMENT_MAGIC: u64 = u64::from_le_bytes(*b"TERRLOG\n");
pub(super) const GROUP_MAGIC: u32 = u32::from_le_bytes(*b"TgrP");
const FLAG_RECYCLED: u32 = 1;

/// Header of a segment, in its first sector. Written once, when the segment begins.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct SegmentHeader {
    magic: u64,
    /// CRC-32C over everything after this field.
    crc32c: u32,
    format_version: u32,
    store_id: [u8; 16],
    /// Number in the file's name; differs in a file that was renamed for reuse.
    pub number: u64,
    /// LSN of the first byte after the header area, and end of the valid part of the previous
    /// segment.
    pub base_lsn: Lsn,
    /// Number of the segment that ends at `base_lsn`, 0 for the first of a store.
    pub previous_number: u64,
    /// Bytes of the file.
    pub size: u64,
    flags: u32,
    reserved: u32,
    /// Drawn by the writer that began it, the same for all of its segments; 0 in logs older than
    /// sessions.
    pub session: u64,
    /// Session of the segment that ends at `base_lsn`, 0 for the first of a store.
    pub previous_session: u64,
    reserved_words: [u64; 5],
}

const _: () = assert!(size_of::<SegmentHeader>() == SEGMENT_HEADER_LENGTH);
const _: () = assert!(SEGMENT_HEADER_LENGTH <= 512, "a header is written within one sector");

/// The previous segment; zeros for the first of a store.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Previous {
    pub number: u64,
    pub session: u64,
}

/// Bytes of a segment header.
pub(super) const SEGMENT_HEADER_LENGTH: usize = 128;

/// The content of a file's header area.
#[derive(Clone, Copy, Debug)]
pub(super) enum HeaderState {
    /// Only zeros: the file was prepared and never begun.
    Zero,
    /// A header with a valid checksum.
    Valid(SegmentHeader),
    /// A header of a later format.
    UnknownVersion(u32),
    /// The header of another store's log.
    OtherStore,
    /// Neither the beginning of a segment nor that of a prepared file.
    NoSegment,
    /// Anything else.
    Broken,
}

impl SegmentHeader {
    /// Header of a segment that begins now in a file.
    pub fn new(store_id: [u8; 16], session: u64, file: &SegmentFile, base_lsn: Lsn, previous: Previous) -> Self {
        Self {
            magic: SEGMENT_MAGIC,
            crc32c: 0,
            format_version: FORMAT_VERSION,
            store_id,
            number: file.number,
            base_lsn,
            previous_number: previous.number,
            size: file.size,
            flags: if file.recycled { FLAG_RECYCLED } else { 0 },
            reserved: 0,
            session,
            previous_session: previous.session,
            reserved_words: [0; 5],
        }
    }

    /// The part of this header that the next segment repeats.
    pub fn as_previous(&self) -> Previous {
        Previous { number: self.number, session: self.session }
    }

    /// The segment before this one.
    pub fn previous(&self) -> Previous {
        Previous { number: self.previous_number, session: self.previous_session }
    }

    /// Whether the file held an earlier segment, whose bytes lie behind the groups.
    pub fn is_recycled(&self) -> bool {
        self.flags & FLAG_RECYCLED != 0
    }

    /// LSN after the last byte of the file.
    pub fn limit_lsn(&self) -> Lsn {
        self.base_lsn + (self.size - HEADER_AREA)
    }

    /// File offset of an LSN of this segment.
    pub fn offset_of(&self, lsn: Lsn) -> u64 {
        HEADER_AREA + (lsn - self.base_lsn)
    }

    /// The bytes to write, with their checksum.
    pub fn encode(mut self) -> [u8; SEGMENT_HEADER_LENGTH] {
        self.crc32c = self.checksum();
        let mut bytes = [0; SEGMENT_HEADER_LENGTH];
        bytes.copy_from_slice(bytes_of(&self));
        bytes
    }

    /// Interprets the first bytes of a file for the store with this id.
    pub fn decode(bytes: &[u8; SEGMENT_HEADER_LENGTH], store_id: [u8; 16]) -> HeaderState {
        if bytes.iter().all(|&byte| byte == 0) {
            return HeaderState::Zero;
        }
        let header: Self = pod_read_unaligned(bytes);
        if !matches!(header.magic, 0 | SEGMENT_MAGIC) {
            return HeaderState::NoSegment;
        }
        if header.magic != SEGMENT_MAGIC || header.crc32c != header.checksum() {
            return HeaderState::Broken;
        }
        if header.format_version != FORMAT_VERSION {
            return HeaderState::UnknownVersion(header.format_version);
        }
        if header.store_id != store_id {
            return HeaderState::OtherStore;
        }
        let size_fits = header.size > HEADER_AREA && header.base_lsn.checked_add(header.size).is_some();
        if !size_fits || !header.base_lsn.is_multiple_of(ALIGNMENT) {
            return HeaderState::Broken;
        }
        HeaderState::Valid(header)
    }

    /// Highest format version that this program reads.
    pub fn known_version() -> u32 {
        FORMAT_VERSION
    }

    fn checksum(&self) -> u32 {
        crc32c::crc32c(&bytes_of(self)[12..])
    }
}

/// A note on a segment that is added when it is no longer written. It is stored twice, in two
/// sectors. A torn copy is ignored, and each whole copy is true.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Mark {
    magic: u32,
    /// CRC-32C over everything after this field, seeded with the store's id and the segment's
    /// session.
    crc32c: u32,
    segment_number: u64,
    value: u64,
}

const _: () = assert!(size_of::<Mark>() == 24);

/// The content of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkKind {
    /// The log was closed in this segment, and ended at this LSN.
    Close,
    /// If another segment follows, it is of this session. Overwritten if none was begun.
    Successor,
}

impl MarkKind {
    fn magic(self) -> u32 {
        u32::from_le_bytes(match self {
            Self::Close => *b"TcLs",
            Self::Successor => *b"TsUc",
        })
    }

    /// Offset of the first copy in a segment file.
    pub const fn offset(self) -> u64 {
        match self {
            Self::Close => 512,
            Self::Successor => 1536,
        }
    }
}

const MARK_DISTANCE: usize = 512;
/// Bytes from the beginning of the first copy to the end of the second.
pub(super) const MARKS_LENGTH: usize = MARK_DISTANCE + size_of::<Mark>();

const _: () = assert!(MarkKind::Close.offset() + MARKS_LENGTH as u64 <= MarkKind::Successor.offset());
const _: () = assert!(MarkKind::Successor.offset() + MARKS_LENGTH as u64 <= HEADER_AREA);

/// Header of a group. It has its own checksum, so that its statement on durability is valid even if
/// the payload behind it is damaged.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(super) struct GroupHeader {
    magic: u32,
    /// CRC-32C over the rest of the header, seeded with the store's id.
    header_crc32c: u32,
    /// CRC-32C over the payload, seeded with the store's id.
    payload_crc32c: u32,
    /// Bytes of the payload, a multiple of 8.
    pub payload_length: u32,
    pub entry_count: u32,
    reserved: u32,
    /// Number of the segment it was written to.
    pub segment_number: u64,
    /// LSN of the header's first byte.
    pub lsn: Lsn,
    /// Everything below was durable when the group was written.
    pub durable_lsn: Lsn,
    /// Session of the segment it was written to.
    pub session: u64,
    reserved_word: u64,
}

const _: () = assert!(size_of::<GroupHeader>() == 64);

impl GroupHeader {
    /// LSN after the group.
    pub fn end_lsn(&self) -> Lsn {
        self.lsn.saturating_add(GROUP_HEADER_LENGTH as u64 + u64::from(self.payload_length))
    }
}

/// Computes and checks the checksums of one store's groups.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupSeal {
    seed: u32,
}

impl GroupSeal {
    /// The seal of the store with this id.
    pub fn new(store_id: [u8; 16]) -> Self {
        Self { seed: crc32c::crc32c(&store_id) }
    }

    /// Fills in the header at the start of a group whose payload is complete.
    pub fn seal(&self, group: &mut [u8], entry_count: u32, segment: &SegmentHeader, lsn: Lsn, durable_lsn: Lsn) {
        let (header_bytes, payload) = group.split_at_mut(GROUP_HEADER_LENGTH);
        let mut header = GroupHeader {
            magic: GROUP_MAGIC,
            header_crc32c: 0,
            payload_crc32c: crc32c::crc32c_append(self.seed, payload),
            payload_length: u32::try_from(payload.len()).expect("a group is cut before its payload reaches 4 GiB"),
            entry_count,
            reserved: 0,
            segment_number: segment.number,
            lsn,
            durable_lsn,
            session: segment.session,
            reserved_word: 0,
        };
        header.header_crc32c = self.header_checksum(&header);
        header_bytes.copy_from_slice(bytes_of(&header));
    }

    /// The header in these bytes, if it was written for this segment and LSN.
    pub fn open_header(&self, bytes: &[u8], segment: &SegmentHeader, lsn: Lsn) -> Result<GroupHeader, &'static str> {
        let header = self.open_header_of(bytes, segment.number, lsn)?;
        if header.session != segment.session {
            return Err("the group belongs to another copy of the store");
        }
        Ok(header)
    }

    fn open_header_of(&self, bytes: &[u8], segment_number: u64, lsn: Lsn) -> Result<GroupHeader, &'static str> {
        let header: GroupHeader = pod_read_unaligned(bytes);
        if header.magic != GROUP_MAGIC {
            return Err("no group begins here");
        }
        if header.header_crc32c != self.header_checksum(&header) {
            return Err("the checksum of the group's header does not fit");
        }
        if header.segment_number != segment_number {
            return Err("the group belongs to another segment");
        }
        if header.lsn != lsn || header.durable_lsn > lsn {
            return Err("the group belongs to another position");
        }
        Ok(header)
    }

    /// Both copies of a mark for a segment.
    pub fn marks(&self, kind: MarkKind, segment: &SegmentHeader, value: u64) -> [u8; MARKS_LENGTH] {
        let mut mark = Mark { magic: kind.magic(), crc32c: 0, segment_number: segment.number, value };
        mark.crc32c = self.mark_checksum(&mark, segment);
        let mut bytes = [0; MARKS_LENGTH];
        bytes[..size_of::<Mark>()].copy_from_slice(bytes_of(&mark));
        bytes[MARK_DISTANCE..].copy_from_slice(bytes_of(&mark));
        bytes
    }

    /// The content of a mark, if one of its copies is whole and of this segment.
    pub fn marked(
        &self,
        kind: MarkKind,
        marks: &[u8; MARKS_LENGTH],
        segment: &SegmentHeader,
    ) -> impl Iterator<Item = u64> {
        [0, MARK_DISTANCE]
            .map(|offset| pod_read_unaligned::<Mark>(&marks[offset..offset + size_of::<Mark>()]))
            .into_iter()
            .filter(move |mark| mark.magic == kind.magic() && mark.segment_number == segment.number)
            .filter(|mark| mark.crc32c == self.mark_checksum(mark, segment))
            .map(|mark| mark.value)
    }

    fn mark_checksum(&self, mark: &Mark, segment: &SegmentHeader) -> u32 {
        // Logs older than sessions have marks without one.
        let seed = match segment.session {
            0 => self.seed,
            session => crc32c::crc32c_append(self.seed, &session.to_le_bytes()),
        };
        crc32c::crc32c_append(seed, &bytes_of(mark)[8..])
    }

    /// Whether these bytes are the header of a group in a segment of this number, at any position.
    pub fn is_header_of_segment(&self, bytes: &[u8], segment_number: u64) -> bool {
        let header: GroupHeader = pod_read_unaligned(bytes);
        self.open_header_of(bytes, segment_number, header.lsn).is_ok()
    }

    /// Whether the payload is the one that the header was written for.
    pub fn fits(&self, header: &GroupHeader, payload: &[u8]) -> bool {
        header.payload_crc32c == crc32c::crc32c_append(self.seed, payload)
    }

    fn header_checksum(&self, header: &GroupHeader) -> u32 {
        crc32c::crc32c_append(self.seed, &bytes_of(header)[8..])
    }
}

/// Whether bytes at `lsn` begin like a group of this segment, whole or not.
pub(super) fn resembles_group(bytes: &[u8], segment: &SegmentHeader, lsn: Lsn) -> bool {
    let header: GroupHeader = pod_read_unaligned(bytes);
    header.magic == GROUP_MAGIC && header.segment_number == segment.number && header.lsn == lsn
}

/// Bytes that an entry of `length` bytes takes in a group.
pub(super) fn entry_space(length: usize) -> u64 {
    (length as u64 + ENTRY_PREFIX_LENGTH as u64).next_multiple_of(ALIGNMENT)
}

/// Bytes of a segment's file that takes an entry of `length` bytes.
pub(super) fn size_for(length: usize) -> u64 {
    let needed = HEADER_AREA + GROUP_HEADER_LENGTH as u64 + entry_space(length.min(ENTRY_LENGTH_MAX));
    needed.next_multiple_of(SIZE_UNIT)
}

/// Name of a segment's file.
pub(super) fn segment_name(number: u64) -> String {
    format!("{DIRECTORY}/{number:012}.log")
}

/// Name of a segment's file while it is filled with zeros.
pub(super) fn unfinished_name(number: u64) -> String {
    format!("{DIRECTORY}/{number:012}.new")
}

/// The kind of a file in the log's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    /// A segment, or a file prepared to become one.
    Segment(u64),
    /// A file whose preparation was interrupted.
    Unfinished(u64),
}

/// Parses a name in the log's directory; `None` for files that are not the log's.
pub(super) fn parse_name(name: &str) -> Option<FileKind> {
    let (stem, extension) = name.split_once('.')?;
    if stem.len() < 12 || !stem.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = stem.parse().ok()?;
    let kind = match extension {
        "log" => FileKind::Segment(number),
        "new" => FileKind::Unfinished(number),
        _ => return None,
    };
    (format!("{number:012}") == stem).then_some(kind)
}
