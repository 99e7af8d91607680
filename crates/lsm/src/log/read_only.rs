//! Reading the log beside a writer of another process.

use terrane_storage::{LockKind, OpenMode, Storage};

use super::layout::{FileKind, GroupSeal, segment_name};
use super::recovery::{Classified, Directory, OnEntry, classify, replay};
use super::segment::Segment;
use super::{LogPosition, Lsn, TornTail};
use crate::Result;

/// What a second process has read of the log. The segments stay as they are until it is dropped.
#[derive(Debug)]
pub struct ReadOnlyTail {
    /// They are locked.
    pub(super) segments: Vec<Segment>,
    end_lsn: Lsn,
    entries: u64,
    torn_tail: Option<TornTail>,
}

impl ReadOnlyTail {
    /// LSN after the last entry replayed.
    pub fn end_lsn(&self) -> Lsn {
        self.end_lsn
    }

    /// Number of entries replayed.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// What was written behind the end of the log: by a writer that was killed, or by one that is
    /// writing it just now.
    pub fn torn_tail(&self) -> Option<TornTail> {
        self.torn_tail
    }

    /// Number of segments that are locked against reuse.
    pub fn segments(&self) -> usize {
        self.segments.len()
    }
}

/// Replays the log from `from` without changing it, and keeps its segments from being reused.
///
/// Everything acknowledged before the call is replayed. The entries may be shown once this
/// has returned: only then are they durable. A writer may have moved its low-water mark in the
/// meantime; then segments are missing and this fails. On an error, and before showing
/// anything, the caller compares the manifest with the one that `from` is of, and starts over if it changed.
///
/// # Errors
/// [`Error::Damaged`](crate::Error::Damaged) if a segment is missing or damaged, what `on_entry` returns, and
/// failures of the storage.
pub fn replay_read_only(
    storage: &dyn Storage,
    store_id: [u8; 16],
    from: LogPosition,
    on_entry: &mut OnEntry<'_>,
) -> Result<ReadOnlyTail> {
    let mut numbers: Vec<u64> = Directory::list(storage)?
        .into_iter()
        .filter_map(|kind| match kind {
            FileKind::Segment(number) => Some(number),
            FileKind::Unfinished(_) => None,
        })
        .filter(|&number| number >= from.segment)
        .collect();
    // From the newest back: where a segment has begun, all before it have, or were too small for an entry and passed over.
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    let mut segments = Vec::new();
    for number in numbers {
        let file = match storage.open(&segment_name(number), OpenMode::Read) {
            Ok(file) => file,
            // Retired since the names were listed; whether it is needed shows in the chain.
            Err(error) if error.is_not_found() => continue,
            Err(error) => return Err(error.into()),
        };
        // The writer locks a file while it is not part of the log (I7), so no group that was
        // acknowledged before the call is in it under this number.
        if !file.try_lock(LockKind::Shared)? {
            continue;
        }
        // Between its opening and its locking the writer may have removed the file, or begun it under a later number,
        // which takes no step of the manifest where an entry was too long for it. Of what was acknowledged
        // before the call, that segment has nothing; under the lock the file stays what it is.
        if !file.has_name()? {
            continue;
        }
        if let Classified::Begun(segment) = classify(number, &file, store_id, segments.is_empty())? {
            segments.push(segment);
        }
    }
    segments.reverse();
    let replayed = replay(&segments, GroupSeal::new(store_id), from, on_entry)?;
    // Headers prove all older segments durable (I3). The last is synced after it was read, so
    // that nothing was given to `on_entry` that a power loss can remove.
    if let Some(last) = segments.last() {
        last.file.file.sync_data()?;
    }
    let (entries, torn_tail) = (replayed.report.entries, replayed.report.torn_tail);
    Ok(ReadOnlyTail { segments, end_lsn: replayed.end_lsn, entries, torn_tail })
}
