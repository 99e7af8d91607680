//! Finds the segments of the log, checks that they form a chain, and replays it.
//!
//! Nothing here changes a file, so damage leaves everything as it was found.

use std::sync::Arc;

use terrane_storage::{File, OpenMode, Storage};

use super::layout::{
    DIRECTORY, FileKind, GROUP_HEADER_LENGTH, GroupSeal, HEADER_AREA, HeaderState, SIZE_UNIT, SegmentHeader,
    parse_name, segment_name,
};
use super::scan::{Entries, Found, SegmentReader, holds_group_of, is_written};
use super::segment::{Segment, SegmentFile, read_header};
use super::{LogPosition, Lsn, RecoveryReport, TornTail};
use crate::{Error, Result};

/// Receives the LSN and the bytes of every replayed entry, in the order of appending. If it returns
/// [`Error::MalformedEntry`], that is damage at the entry's position. Other errors are passed on.
pub type OnEntry<'a> = dyn FnMut(Lsn, &[u8]) -> Result<()> + 'a;

/// The log's files, by how opening treats them.
#[derive(Debug, Default)]
pub(super) struct Directory {
    /// Segments that have begun, at or behind the low-water mark, by number.
    pub begun: Vec<Segment>,
    /// Segments before the low-water mark and files that were never begun.
    pub spares: Vec<SegmentFile>,
    /// Numbers of files whose preparation was interrupted.
    pub unfinished: Vec<u64>,
    /// Highest number in use.
    pub number_max: u64,
}

/// The end of a replay and its observations.
#[derive(Debug)]
pub(super) struct Replay {
    pub end_lsn: Lsn,
    /// The position up to which the log itself proves durability.
    pub proven_lsn: Lsn,
    pub report: RecoveryReport,
}

impl Directory {
    /// Lists the files with the numbers in their names.
    pub fn list(storage: &dyn Storage) -> Result<Vec<FileKind>> {
        if !storage.exists(DIRECTORY)? {
            return Ok(Vec::new());
        }
        let names = storage.list(DIRECTORY)?;
        Ok(names.iter().filter_map(|name| parse_name(name.rsplit('/').next().unwrap_or(name))).collect())
    }

    /// Opens every file for a writer.
    pub fn open(storage: &dyn Storage, store_id: [u8; 16], from: LogPosition) -> Result<Self> {
        let mut directory = Self { number_max: from.segment, ..Self::default() };
        let mut numbers = Vec::new();
        for kind in Self::list(storage)? {
            let (FileKind::Segment(number) | FileKind::Unfinished(number)) = kind;
            directory.number_max = directory.number_max.max(number);
            match kind {
                FileKind::Segment(_) => numbers.push(number),
                FileKind::Unfinished(_) => directory.unfinished.push(number),
            }
        }
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        for number in numbers {
            let file = storage.open(&segment_name(number), OpenMode::Write)?;
            if number < from.segment {
                let size = file.len()?;
                directory.spares.push(SegmentFile { number, size, recycled: true, locked: false, file });
                continue;
            }
            match classify(number, &file, store_id, directory.begun.is_empty())? {
                Classified::Begun(segment) => directory.begun.push(segment),
                Classified::NotBegun(spare) => directory.spares.push(spare),
            }
        }
        directory.begun.reverse();
        Ok(directory)
    }
}

/// The kind of a file at or behind the low-water mark.
pub(super) enum Classified {
    Begun(Segment),
    NotBegun(SegmentFile),
}

/// Distinguishes a segment from a prepared file, which holds zeros, or the header and the groups of
/// earlier numbers. A group of the file's own number, or a nonzero byte behind a zero header,
/// proves that the header was lost (I2).
///
/// Without a newer segment that has begun (`is_newest`), nothing else proves it, so the whole file
/// is searched. Otherwise a missing segment breaks the chain anyway. Then only the position of the
/// first group is read, for the error message.
pub(super) fn classify(number: u64, file: &Arc<dyn File>, store_id: [u8; 16], is_newest: bool) -> Result<Classified> {
    let name = segment_name(number);
    let length = file.len()?;
    if length < HEADER_AREA + SIZE_UNIT {
        return Err(Error::damaged(name, length, "the segment is cut short"));
    }
    let seal = GroupSeal::new(store_id);
    let search_end = if is_newest { length } else { HEADER_AREA + GROUP_HEADER_LENGTH as u64 };
    let lost = match read_header(file.as_ref(), store_id)? {
        HeaderState::Valid(header) if header.number == number => {
            if header.size > length {
                let reason = format!("the segment is cut short, it had {} bytes", header.size);
                return Err(Error::damaged(name, length, reason));
            }
            let file =
                SegmentFile { number, size: length, recycled: header.is_recycled(), locked: false, file: file.clone() };
            return Ok(Classified::Begun(Segment::existing(file, header, seal)?));
        }
        HeaderState::Valid(header) if header.number > number => {
            let reason = format!("the file was renamed, it is segment {}", header.number);
            return Err(Error::damaged(name, 0, reason));
        }
        HeaderState::UnknownVersion(found) => {
            return Err(Error::UnknownVersion { file: name, found, known: SegmentHeader::known_version() });
        }
        HeaderState::OtherStore => {
            return Err(Error::damaged(name, 0, "the segment belongs to another store"));
        }
        HeaderState::Zero => is_written(file.as_ref(), search_end)?
            .then_some("the segment's header is zeros, but what lies behind it is not"),
        // No crash leaves that: the first word is zeros or a segment's at all times.
        HeaderState::NoSegment => Some("the file does not begin as a segment of a log does"),
        HeaderState::Valid(_) | HeaderState::Broken => holds_group_of(file.as_ref(), search_end, seal, number)?
            .then_some("the segment holds groups, but its header does not fit"),
    };
    let Some(reason) = lost else {
        let spare = SegmentFile { number, size: length, recycled: true, locked: false, file: file.clone() };
        return Ok(Classified::NotBegun(spare));
    };
    // A writer of another process may have begun the segment since its header was read.
    match read_header(file.as_ref(), store_id)? {
        HeaderState::Valid(header) if header.number == number => classify(number, file, store_id, is_newest),
        _ => Err(Error::damaged(name, 0, reason)),
    }
}

/// Checks that the segments from the low-water mark on follow each other without a gap.
pub(super) fn check_chain(segments: &[Segment], from: LogPosition) -> Result<()> {
    let missing = |number| Error::damaged(segment_name(number), 0, "the segment is missing, or its header is lost");
    let Some(first) = segments.first() else {
        return if from.segment == 0 { Ok(()) } else { Err(missing(from.segment)) };
    };
    if from.segment == 0 && first.header.previous_number != 0 {
        return Err(missing(first.header.previous_number));
    }
    if from.segment != 0 && first.file.number != from.segment {
        return Err(missing(from.segment));
    }
    let foreign = |segment: &Segment| {
        Error::damaged(segment.file.name(), 0, "the segment belongs to a copy of the store with another history")
    };
    if from.session != 0 && first.header.session != from.session {
        return Err(foreign(first));
    }
    if from.lsn < first.header.base_lsn {
        return Err(Error::damaged(
            first.file.name(),
            0,
            format!("it begins at LSN {}, but the manifest needs LSN {}", first.header.base_lsn, from.lsn),
        ));
    }
    for pair in segments.windows(2) {
        let (current, next) = (&pair[0], &pair[1]);
        if next.header.previous_number != current.file.number {
            return Err(missing(next.header.previous_number));
        }
        let (session, previous) = (next.header.session, next.header.previous_session);
        if previous != current.header.session || current.successor.is_some_and(|successor| successor != session) {
            return Err(foreign(next));
        }
        if !(current.header.base_lsn..=current.header.limit_lsn()).contains(&next.header.base_lsn)
            || current.clean_end_lsn.is_some_and(|end| end != next.header.base_lsn)
        {
            let reason = format!(
                "it begins at LSN {}, where segment {} does not end",
                next.header.base_lsn, current.file.number
            );
            return Err(Error::damaged(next.file.name(), 0, reason));
        }
    }
    Ok(())
}

/// Replays every entry at or behind `from` and finds the end of the log.
pub(super) fn replay(
    segments: &[Segment],
    seal: GroupSeal,
    from: LogPosition,
    on_entry: &mut OnEntry<'_>,
) -> Result<Replay> {
    check_chain(segments, from)?;
    let report = RecoveryReport { clean_close: true, ..RecoveryReport::default() };
    let mut replay = Replay { end_lsn: from.lsn, proven_lsn: from.lsn, report };
    for (index, segment) in segments.iter().enumerate() {
        let next_base_lsn = segments.get(index + 1).map(|next| next.header.base_lsn);
        replay.segment(segment, seal, from, next_base_lsn, on_entry)?;
    }
    if replay.end_lsn < from.lsn {
        let last = segments.last().expect("only a segment moves the end");
        return Err(Error::damaged(
            last.file.name(),
            last.header.offset_of(replay.end_lsn),
            format!("the log ends at LSN {}, before the manifest's {}", replay.end_lsn, from.lsn),
        ));
    }
    Ok(replay)
}

impl Replay {
    /// Replays one segment up to the LSN that is its proven end, or else up to the first bad group.
    /// That group must be neither proven durable nor below the next segment (I4).
    fn segment(
        &mut self,
        segment: &Segment,
        seal: GroupSeal,
        from: LogPosition,
        next_base_lsn: Option<Lsn>,
        on_entry: &mut OnEntry<'_>,
    ) -> Result<()> {
        let header = &segment.header;
        let proven_end_lsn = next_base_lsn.or(segment.clean_end_lsn);
        let damaged = |lsn, reason: String| Error::damaged(segment.file.name(), header.offset_of(lsn), reason);
        let mut reader = SegmentReader::new(segment.file.file.as_ref(), *header, seal);
        let mut lsn = header.base_lsn;
        self.report.clean_close = segment.clean_end_lsn.is_some();
        self.proven_lsn = proven_end_lsn.unwrap_or(header.base_lsn);
        while proven_end_lsn != Some(lsn) {
            let reason = match reader.group_at(lsn)? {
                Found::Group { header: group, payload } => {
                    let end_lsn = group.end_lsn();
                    if proven_end_lsn.is_some_and(|proven| end_lsn > proven) {
                        return Err(damaged(lsn, "the group reaches behind the segment's end".into()));
                    }
                    self.proven_lsn = self.proven_lsn.max(group.durable_lsn);
                    self.report.groups += 1;
                    for entry in Entries::new(&group, payload) {
                        let (entry_lsn, entry) = entry.map_err(|reason| damaged(lsn, reason.into()))?;
                        if entry_lsn >= from.lsn {
                            self.report.entries += 1;
                            self.report.bytes += entry.len() as u64;
                            on_entry(entry_lsn, entry).map_err(|error| match error {
                                Error::MalformedEntry { reason } => damaged(
                                    entry_lsn,
                                    format!("the entry at LSN {entry_lsn} cannot be redone: {reason}"),
                                ),
                                other => other,
                            })?;
                        }
                    }
                    lsn = end_lsn;
                    continue;
                }
                Found::Bad { reason, .. } => reason,
            };
            if let Some(proven) = proven_end_lsn {
                return Err(damaged(lsn, format!("{reason}, but the log continued to LSN {proven}")));
            }
            let remainder = reader.remainder(lsn)?;
            if let Some(proven) = remainder.proven_lsn.filter(|&proven| proven > lsn) {
                // A writer of another process may have written the group since it was read.
                reader.refresh();
                if matches!(reader.group_at(lsn)?, Found::Group { .. }) {
                    continue;
                }
                return Err(damaged(lsn, format!("{reason}, but a later group proves that LSN {proven} was durable")));
            }
            if remainder.torn_bytes > 0 {
                self.report.torn_tail = Some(TornTail {
                    segment: header.number,
                    offset: header.offset_of(lsn),
                    lsn,
                    bytes: remainder.torn_bytes,
                });
            }
            break;
        }
        self.end_lsn = lsn;
        Ok(())
    }
}
