//! The logs: lists of segments, which records are appended to (L2 to L4).
//!
//! The first line of a segment is its header:
//! - word 0: the number of the segment; word 3 has its complement.
//! - word 1: the offset of the next segment, or 0.
//! - word 2: the number of lines up to the end of the last record, and its complement in the upper
//!   half; or 0 while records may follow.
//!
//! A log has a line in the tree's block: the offset of the first segment, then the number of the
//! last segment and that of all segments, as the last closing has left them.

use std::collections::VecDeque;

use terrane_pmem::{Backend, Guard, LINE_LENGTH, Pool, Site, WORD_LENGTH};
use terrane_storage::sync::{AtomicBool, AtomicU64, Mutex, Ordering};

use super::record;
use crate::Result;

/// Numbers of the words of a segment's header.
pub(super) const NUMBER: u64 = 0;
pub(super) const NEXT: u64 = 1;
pub(super) const END: u64 = 2;
pub(super) const COMPLEMENT: u64 = 3;

/// Numbers of the words of a log's line, behind the offset of the first segment.
const CLOSED_LAST: u64 = 1;
const CLOSED_COUNT: u64 = 2;

/// Numbers of segments and of records are below. No program makes that many.
pub(super) const NUMBER_END: u64 = 1 << 56;

const RECORD: Site = Site::new("btree.ls.record");
const SEGMENT: Site = Site::new("btree.ls.segment");
const LINK: Site = Site::new("btree.ls.link");
const UNLINK: Site = Site::new("btree.ls.unlink");

/// No log is due for a collection.
const NOTHING_DUE: u64 = 0;

/// All logs of a tree.
#[derive(Debug)]
pub(super) struct Logs {
    logs: Vec<Log>,
    /// Offset of the words that link the first segments.
    heads: u64,
    pub(super) segment_length: u64,
    garbage_percent: u64,
    next_segment: AtomicU64,
    next_record: AtomicU64,
    /// The last log with too much garbage and its number plus one, or 0.
    due: AtomicU64,
}

#[derive(Debug, Default)]
struct Log {
    segments: Mutex<Segments>,
    /// Lines of all segments that get no more records.
    written_lines: AtomicU64,
    /// Lines of records that leaves lead to.
    live_lines: AtomicU64,
    is_collected: AtomicBool,
}

/// The segments of a log, oldest first.
#[derive(Debug, Default)]
pub(super) struct Segments {
    pub(super) all: VecDeque<Segment>,
    /// Whether the last one gets more records. Otherwise the next record begins a segment.
    is_open: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) offset: u64,
    pub(super) number: u64,
    /// Offset behind its last record.
    pub(super) end: u64,
    /// Lines that get no more records.
    pub(super) lines: u64,
}

impl Segment {
    /// The word of the header that states the end.
    fn end_word(&self) -> u64 {
        let lines = (self.end - self.offset) / LINE_LENGTH;
        lines | !lines << 32
    }

    /// The end that this word of the header of a segment states; `None` if it is impossible.
    pub(super) fn end_of(offset: u64, segment_length: u64, word: u64) -> Option<u64> {
        let lines = word & u64::from(u32::MAX);
        let is_possible = !word >> 32 == lines && (1..=segment_length / LINE_LENGTH).contains(&lines);
        is_possible.then_some(offset + lines * LINE_LENGTH)
    }
}

/// A log as an opening has found it.
#[derive(Debug, Default)]
pub(super) struct FoundLog {
    pub(super) segments: Vec<Segment>,
    pub(super) last_record: u64,
}

/// A record that was appended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Appended {
    pub(super) offset: u64,
    pub(super) number: u64,
    pub(super) lines: u64,
}

impl Logs {
    /// Logs without segments.
    pub(super) fn new(count: u64, heads: u64, segment_length: u64, garbage_percent: u64) -> Self {
        Self {
            logs: (0..count).map(|_| Log::default()).collect(),
            heads,
            segment_length,
            garbage_percent,
            next_segment: AtomicU64::new(1),
            next_record: AtomicU64::new(1),
            due: AtomicU64::new(NOTHING_DUE),
        }
    }

    /// Continues a log as an opening has found it, in a new segment (L3).
    pub(super) fn restore(&self, log: usize, found: FoundLog) {
        let segment = found.segments.last().map_or(0, |last| last.number);
        self.next_segment.fetch_max(segment + 1, Ordering::Relaxed);
        self.next_record.fetch_max(found.last_record + 1, Ordering::Relaxed);
        let log = &self.logs[log];
        let mut segments = log.segments.lock();
        segments.all = found.segments.into();
        for segment in &mut segments.all {
            self.end_segment(log, segment);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.logs.len()
    }

    /// The log of a leaf. Numbers of leaves are dense, so each log gets the same share of them.
    pub(super) fn of(&self, leaf: u64) -> usize {
        (leaf % self.logs.len() as u64) as usize
    }

    /// Appends a record to the log of its leaf, durably. The caller has locked the leaf.
    pub(super) fn append<B: Backend>(&self, pool: &Pool<B>, leaf: u64, words: &mut [u64]) -> Result<Appended> {
        let index = self.of(leaf);
        let log = &self.logs[index];
        let lines = record::line_count(words);
        let length = lines * LINE_LENGTH;
        let mut segments = log.segments.lock();
        let free = segments.all.back().map_or(0, |last| last.offset + self.segment_length - last.end);
        if !segments.is_open || free < length {
            self.add_segment(pool, self.head(index), &mut segments)?;
            // The rest of the one before is garbage, so that short segments are collected.
            if let Some(before) = segments.all.len().checked_sub(2) {
                self.end_segment(log, &mut segments.all[before]);
            }
        }
        let number = self.next_record.fetch_add(1, Ordering::Relaxed);
        record::set_number(words, number);
        let Some(last) = segments.all.back_mut() else { unreachable!("a segment was just added") };
        let offset = last.end;
        for (place, line) in (offset..).step_by(LINE_LENGTH as usize).zip(record::lines(words, last.number)) {
            for (place, word) in (place..).step_by(WORD_LENGTH as usize).zip(line) {
                pool.backend().store(place, word);
            }
        }
        pool.backend().persist(offset..offset + length, RECORD);
        last.lines += lines;
        last.end += length;
        drop(segments);
        log.written_lines.fetch_add(lines, Ordering::Relaxed);
        log.live_lines.fetch_add(lines, Ordering::Relaxed);
        if self.has_too_much_garbage(log) {
            self.due.store(index as u64 + 1, Ordering::Relaxed);
        }
        Ok(Appended { offset, number, lines })
    }

    fn has_too_much_garbage(&self, log: &Log) -> bool {
        let [written, live] = [&log.written_lines, &log.live_lines].map(|lines| lines.load(Ordering::Relaxed));
        written.saturating_sub(live) * 100 > written * self.garbage_percent
    }

    /// Notes that a segment gets no more records.
    fn end_segment(&self, log: &Log, segment: &mut Segment) {
        let lines = self.segment_length / LINE_LENGTH - 1;
        log.written_lines.fetch_add(lines - segment.lines, Ordering::Relaxed);
        segment.lines = lines;
    }

    /// Notes that lines of a leaf are garbage.
    pub(super) fn discard(&self, leaf: u64, lines: u64) {
        self.logs[self.of(leaf)].live_lines.fetch_sub(lines, Ordering::Relaxed);
    }

    /// Notes that an opening has found lines of leaves in a log.
    pub(super) fn keep(&self, log: usize, lines: u64) {
        self.logs[log].live_lines.fetch_add(lines, Ordering::Relaxed);
    }

    /// Offset of the word that links the first segment of a log.
    fn head(&self, log: usize) -> u64 {
        head(self.heads, log)
    }

    /// Adds a segment to a log. A crash before it is linked frees it. The end of the segment before
    /// is durable when the link is, as both are in one line.
    fn add_segment<B: Backend>(&self, pool: &Pool<B>, head: u64, segments: &mut Segments) -> Result<()> {
        let backend = pool.backend();
        let link = segments.all.back().map_or(head, |last| last.offset + NEXT * WORD_LENGTH);
        let mut intent = pool.intent();
        let offset = intent.acquire(self.segment_length, link)?;
        let number = self.next_segment.fetch_add(1, Ordering::Relaxed);
        for (word, value) in [(NUMBER, number), (NEXT, 0), (END, 0), (COMPLEMENT, !number)] {
            backend.store(offset + word * WORD_LENGTH, value);
        }
        backend.persist(offset..offset + LINE_LENGTH, SEGMENT);
        if let Some(last) = segments.all.back() {
            backend.store(last.offset + END * WORD_LENGTH, last.end_word());
        }
        backend.store(link, offset);
        backend.persist(link..link + WORD_LENGTH, LINK);
        intent.finish();
        segments.all.push_back(Segment { offset, number, end: offset + LINE_LENGTH, lines: 0 });
        segments.is_open = true;
        Ok(())
    }

    /// Notes where each log ends, so that the next opening knows all that it has to find. Nobody
    /// else uses the logs any more. The closing of the pool makes that durable.
    pub(super) fn close<B: Backend>(&self, pool: &Pool<B>) {
        for (index, log) in self.logs.iter().enumerate() {
            let mut segments = log.segments.lock();
            segments.is_open = false;
            let Some(last) = segments.all.back() else { continue };
            let head = self.head(index);
            pool.backend().store(last.offset + END * WORD_LENGTH, last.end_word());
            pool.backend().store(head + CLOSED_LAST * WORD_LENGTH, last.number);
            pool.backend().store(head + CLOSED_COUNT * WORD_LENGTH, segments.all.len() as u64);
        }
    }

    /// The log that is due for a collection, for one thread, until [`Logs::end_collection`].
    pub(super) fn begin_collection(&self) -> Option<usize> {
        if self.due.load(Ordering::Relaxed) == NOTHING_DUE {
            return None;
        }
        let index = self.due.swap(NOTHING_DUE, Ordering::Relaxed).checked_sub(1)? as usize;
        // While a segment is collected, its records and their new bases are both there. So the log
        // of a short collection would always be due again.
        let is_due = self.has_too_much_garbage(&self.logs[index]);
        (is_due && !self.logs[index].is_collected.swap(true, Ordering::Acquire)).then_some(index)
    }

    pub(super) fn end_collection(&self, log: usize) {
        self.logs[log].is_collected.store(false, Ordering::Release);
    }

    /// The first segment of a log, if it is not the last one as well.
    pub(super) fn oldest(&self, log: usize) -> Option<Segment> {
        let segments = self.logs[log].segments.lock();
        (segments.all.len() > 1).then(|| segments.all[0])
    }

    /// Takes the first of several segments out of a log. It has no live record.
    pub(super) fn unlink_oldest<B: Backend>(&self, pool: &Pool<B>, log: usize, guard: &Guard<'_>) -> Result<()> {
        let head = self.head(log);
        let mut segments = self.logs[log].segments.lock();
        let [oldest, second] = [segments.all[0], segments.all[1]];
        let mut released = pool.intent();
        released.release(oldest.offset, head)?;
        pool.backend().store(head, second.offset);
        pool.backend().persist(head..head + WORD_LENGTH, UNLINK);
        segments.all.pop_front();
        self.logs[log].written_lines.fetch_sub(oldest.lines, Ordering::Relaxed);
        drop(segments);
        released.retire(guard);
        Ok(())
    }
}

/// Whether a log that was closed has this last number and this number of segments, as the closing
/// has noted.
pub(super) fn is_as_closed<B: Backend>(backend: &B, head: u64, last: u64, count: u64) -> bool {
    let noted = [CLOSED_LAST, CLOSED_COUNT].map(|word| backend.load(head + word * WORD_LENGTH));
    // A log without segments was not noted.
    if count == 0 { noted == [0, 0] } else { noted == [last, count] }
}

/// Offset of the word that links the first segment of a log.
pub(super) fn head(heads: u64, log: usize) -> u64 {
    heads + log as u64 * LINE_LENGTH
}
