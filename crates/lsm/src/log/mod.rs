//! Write-ahead log: an endless sequence of entries in preallocated, recycled segments.
//!
//! An *LSN* is a byte position in one space shared by all segments. Entries wait in
//! memory and reach the disk in *groups*, each written once and synced once for all
//! threads that wait. The log does not know what its entries mean. [`Log`] is the only
//! writer of a store; [`replay_read_only`] reads the log beside a writer of another process.
//! Any thread may call any method; none may be called from `on_entry` or `fill`.

// Assumptions about the medium: a synced byte stays, even if its sector is rewritten with the same
// byte. A write that is not synced may be kept, lost or torn anywhere.
//
// I1  Before a file gets its name `N.log`, its full length is written and durable. Its header is
//     written only after the directory is synced.
//     Crash before the rename: an unfinished file, which opening removes. Crash after it: a file
//     that was never begun. A `.log` file that is too short is damage.
// I2  A group is written only after its segment's header is durable, and acknowledged only after a
//     sync that follows its write.
//     Crash between: a segment without groups, or unacknowledged groups, which are replayed if they
//     are whole and contiguous, else cut. Groups of number N in a file N without a header of number
//     N are damage.
// I3  The header of a segment is written only after everything below its base LSN is durable. A
//     header therefore proves everything before it. Bytes behind its base LSN in older segments do
//     not count, even if they look valid.
//     Crash before the header is durable: the old segment is the last again and ends where it did,
//     because nothing in it was changed.
// I4  A group stores the LSN below which everything was durable when it was written. The mark of a
//     clean close (two copies, either suffices) stores the end. A bad group below such an LSN, or
//     below a later segment's base, is damage. Any other is the torn tail, which was never
//     acknowledged; the next segment's base LSN cuts it off.
// I5  Segment numbers are never reused and groups carry theirs. The groups of a recycled file are
//     therefore not taken for groups of its new number.
//     Crash around the renaming of a retired segment: the old name, which is before the low-water
//     mark, or the new name with the old header, which is a file that was never begun.
// I6  A segment is retired only after the caller's manifest with a later low-water position is
//     durable.
//     Crash before the file is reused or removed: it is found before the mark and retired.
// I7  A file is recycled only under its exclusive lock, which is held until the new header is
//     durable. A reader holds shared locks on the files it reads, so nothing it sees is
//     overwritten. It skips files that have lost their names by the time they are locked.
// I8  Before the first segment of a new writer begins, the replayed part of the last segment that
//     is not proven durable is rewritten and synced. After a failed sync it may have been in the
//     page cache only, marked as clean.

// I9  Every writer draws a session, which its segments and groups carry, and begins with its own
//     segment. Each segment names the session of the one before. Before another session continues,
//     it is noted in the last segment (a mark in two copies, either suffices) and synced. The
//     caller's position names the session of its segment. No segment of a diverged copy of the
//     store therefore passes for one of this log.
//     Crash before the new segment has begun: the note has no effect yet, and the next writer
//     overwrites it.

mod commit;
mod export;
mod group;
mod layout;
#[cfg(all(test, loom))]
mod loom_tests;
mod options;
mod read_only;
mod recovery;
mod scan;
mod segment;
mod table;
mod writer;

pub use export::{SegmentSpan, can_be_one_log, copy_file, create_empty, exported_spans, import_tail};
pub use options::LogOptions;
pub use read_only::{ReadOnlyTail, replay_read_only};
pub use recovery::OnEntry;
pub use writer::{Log, MayGrow};

/// Whether a file in the log's directory has a name of the log.
pub fn is_log_file(name: &str) -> bool {
    layout::parse_name(name).is_some()
}

/// Byte position in the log; grows forever.
pub type Lsn = u64;

/// An LSN and the segment that holds it, which a manifest stores as the low-water mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct LogPosition {
    /// Number of the segment, 0 before the first.
    pub segment: u64,
    /// Byte position.
    pub lsn: Lsn,
    /// The segment's session; 0 before the first and in logs older than sessions.
    #[serde(default)]
    pub session: u64,
}

impl LogPosition {
    /// Where the log of a new store begins.
    pub const START: Self = Self { segment: 0, lsn: 0, session: 0 };
}

/// The position of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// First byte of the entry; replay reports the entry under this LSN, and a low-water mark at
    /// or below it keeps the entry.
    pub start_lsn: Lsn,
    /// The entry is durable when the durable LSN has reached this.
    pub end_lsn: Lsn,
}

/// The result of opening the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The unacknowledged bytes behind the end of the log.
    pub torn_tail: Option<TornTail>,
    /// Whole groups read.
    pub groups: u64,
    /// Entries replayed.
    pub entries: u64,
    /// Bytes of the entries replayed.
    pub bytes: u64,
    /// Whether the last writer closed the log, or there was none.
    pub clean_close: bool,
}

/// A write that a crash interrupted. It is cut off. Nothing of it was acknowledged, unless the
/// medium lost data since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// Number of the segment.
    pub segment: u64,
    /// Byte of the segment's file at which the tail begins.
    pub offset: u64,
    /// Where the log ends now.
    pub lsn: Lsn,
    /// Bytes cut off, as far as they can be distinguished from earlier content of the file.
    pub bytes: u64,
}

impl TornTail {
    /// Name of the segment's file.
    pub fn file(&self) -> String {
        layout::segment_name(self.segment)
    }
}
