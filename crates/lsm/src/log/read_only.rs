//! Reading the log beside a writer of another process.

use terrane_storage::{LockKind, OpenMode, Storage};

use super::layout::{FileKind, GroupSeal, segment_name};
use super::recovery::{Classified, Directory, OnEntry, classify, replay};
use super::segment::Segment;
use super::{LogPosition, Lsn, TornTail};
use crate::Result;

/// The log as a second process has read it. Its segments stay unchanged until this is dropped.
#[derive(Debug)]
pub struct ReadOnlyTail {
    /// Locked files.
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

    /// The bytes behind the end of the log: from a writer that was killed, or one that is writing
    /// now.
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
/// Everything acknowledged before the call is replayed. The entries may be shown only after this
/// has returned: only then are they durable. A writer may have moved its low-water mark meanwhile;
/// then segments are missing and this fails. On an error, and before showing anything, the caller
/// compares the manifest with that of `from`, and starts over if it changed.
///
/// # Errors
/// [`Error::Damaged`](crate::Error::Damaged) if a segment is missing or damaged, errors of
/// `on_entry`, and failures of the storage.
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
    // From the newest back: if a segment has begun, all before it have, or were skipped because
    // they were too small for an entry.
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    let mut segments = Vec::new();
    for number in numbers {
        let file = match storage.open(&segment_name(number), OpenMode::Read) {
            Ok(file) => file,
            // Retired since the names were listed. The chain shows whether it is needed.
            Err(error) if error.is_not_found() => continue,
            Err(error) => return Err(error.into()),
        };
        // The writer locks a file while it is not part of the log (I7). It therefore holds no group
        // of this number that was acknowledged before the call.
        if !file.try_lock(LockKind::Shared)? {
            continue;
        }
        // Between opening and locking, the writer may have removed the file. It may also have begun
        // it under a later number; that takes no manifest step if an entry was too long for it.
        // That segment has nothing that was acknowledged before the call. Under the lock the file
        // does not change.
        if !file.has_name()? {
            continue;
        }
        if let Classified::Begun(segment) = classify(number, &file, store_id, segments.is_empty())? {
            segments.push(segment);
        }
    }
    segments.reverse();
    let replayed = replay(&segments, GroupSeal::new(store_id), from, on_entry)?;
    // Headers prove all older segments durable (I3). The last is synced after it was read, so a
    // power loss cannot remove anything that was passed to `on_entry`.
    if let Some(last) = segments.last() {
        last.file.file.sync_data()?;
    }
    let (entries, torn_tail) = (replayed.report.entries, replayed.report.torn_tail);
    Ok(ReadOnlyTail { segments, end_lsn: replayed.end_lsn, entries, torn_tail })
}
