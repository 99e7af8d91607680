//! What logs say of leaves: the reading of logs after a crash, by one or several threads (L1).

use std::collections::BinaryHeap;

use terrane_pmem::{Backend, LINE_LENGTH, Pool, View, WORD_LENGTH};

use super::super::layout::Layout;
use super::logs::{self, COMPLEMENT, END, FoundLog, NEXT, NUMBER, NUMBER_END, Segment};
use super::record::{self, Header, Kind, Range, Record};
use crate::blocks::damaged;
use crate::{Result, blocks, parallel};

/// The number of the leaf that owns all keys before it has a base.
const FIRST_LEAF: u64 = 0;

/// Fewer segments than this are read by one thread.
const SEGMENTS_OF_THREAD_MIN: usize = 16;

/// The records of a leaf that follow each other, as its log has them. All 0 if there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) head: u64,
    head_number: u64,
    pub(super) base_number: u64,
    pub(super) deltas: u16,
    /// Entries of the leaf, unless another leaf has got keys of it since (L1).
    pub(super) count: u16,
    pub(super) lines: u32,
}

/// The base of a chain: its offset, or 0, and the range in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Base<const K: usize> {
    pub(super) offset: u64,
    pub(super) range: Range<K>,
}

impl<const K: usize> Base<K> {
    /// No base. The first leaf owns all keys then.
    const NONE: Self = Self { offset: 0, range: Range { low: [0; K], high: None } };
}

/// What the logs of a tree say.
#[derive(Debug)]
pub(in super::super) struct Replay<const K: usize> {
    pub(super) logs: Vec<ReadLog<K>>,
    /// The leaves that own keys, in the order of these, with the least key of each.
    pub(super) leaves: Vec<([u64; K], u64)>,
    /// Newest deltas of each chain whose offsets are noted.
    noted: usize,
}

impl<const K: usize> Replay<K> {
    /// `count` logs without records: the first leaf owns all keys.
    pub(in super::super) fn of_empty_tree(count: u64) -> Self {
        let logs = (0..count).map(|_| ReadLog::new()).collect();
        Self { logs, leaves: vec![([0; K], FIRST_LEAF)], noted: 0 }
    }

    /// The chain of a leaf and its base.
    pub(super) fn chain(&self, leaf: u64) -> (Chain, Base<K>) {
        let (of_log, place) = self.find(leaf);
        // The first leaf may have no records.
        of_log.chains.get(place).map_or((Chain::default(), Base::NONE), |chain| (*chain, of_log.bases[place]))
    }

    /// The log of a leaf, and its place there.
    fn find(&self, leaf: u64) -> (&ReadLog<K>, usize) {
        let count = self.logs.len() as u64;
        let [log, place] = [leaf % count, leaf / count].map(|number| number as usize);
        (&self.logs[log], place)
    }

    /// The offsets of the newest deltas of a leaf, newest first.
    pub(super) fn newest(&self, leaf: u64) -> impl Iterator<Item = u64> {
        let (of_log, place) = self.find(leaf);
        let deltas = of_log.chains.get(place).map_or(0, |chain| usize::from(chain.deltas));
        let numbers = (0..deltas).rev().take(self.noted);
        numbers.map(move |number| of_log.newest[place * self.noted + number % self.noted])
    }

    /// The range of the keys of a leaf by its place among the leaves.
    pub(super) fn range(&self, place: usize) -> Range<K> {
        Range { low: self.leaves[place].0, high: self.leaves.get(place + 1).map(|(low, _)| *low) }
    }
}

/// One log, and the chains in it by the numbers of their leaves, divided by the number of logs.
#[derive(Debug)]
pub(super) struct ReadLog<const K: usize> {
    pub(super) found: FoundLog,
    chains: Vec<Chain>,
    bases: Vec<Base<K>>,
    /// For each chain, the offsets of its newest deltas, each at its number modulo that of places.
    newest: Vec<u64>,
    /// The least key of each base, its number and its leaf: ascending, the newest first if keys
    /// are equal.
    sorted: Vec<Claim<K>>,
}

/// The least key that a base claims, its number, and its leaf.
type Claim<const K: usize> = ([u64; K], u64, u64);

impl<const K: usize> ReadLog<K> {
    fn new() -> Self {
        let found = FoundLog::default();
        Self { found, chains: Vec::new(), bases: Vec::new(), newest: Vec::new(), sorted: Vec::new() }
    }
}

/// Reads the logs of a tree, by a number of threads or, if it is 0, by one per CPU, and notes the
/// offsets of a number of newest deltas of each leaf. It is an error if the logs are impossible, or
/// if they were closed and are not whole.
pub(in super::super) fn replay<const K: usize, const V: usize, B: Backend>(
    pool: &Pool<B>,
    layout: &Layout<K, V>,
    shape: (u64, u64),
    (heads, was_closed): (u64, bool),
    (threads, noted): (usize, usize),
) -> Result<Replay<K>> {
    let (count, segment_length) = shape;
    let segments = (pool.length() / segment_length) as usize;
    let threads = parallel::threads(threads, segments, SEGMENTS_OF_THREAD_MIN).min(count as usize);
    let all: Vec<usize> = (0..count as usize).collect();
    // Each thread has logs of its own.
    let parts = parallel::on_threads(all.chunks(all.len().div_ceil(threads)), |part| {
        part.iter()
            .map(|log| read_log(pool, layout, shape, (logs::head(heads, *log), *log, was_closed), noted))
            .collect::<Result<Vec<_>>>()
    })?;
    let mut replay = Replay { logs: parts.into_iter().flatten().collect(), leaves: Vec::new(), noted };
    replay.leaves = lay_over(pool, heads, &mut replay)?;
    Ok(replay)
}

/// Lays the ranges of bases over each other, and gives the leaves that own keys.
///
/// It goes through all bases in the order of their least keys. The owner of a key is the newest of
/// the bases whose range has it. An owner is followed by a newer base that begins within its range,
/// or by one that begins at the end of its range. `hidden` has all others that may reach further:
/// as each leaf owns one range, which begins where its base says, none of them may appear again.
fn lay_over<const K: usize, B: Backend>(
    pool: &Pool<B>,
    heads: u64,
    replay: &mut Replay<K>,
) -> Result<Vec<([u64; K], u64)>> {
    let mut claims: Vec<Claim<K>> = Vec::new();
    for log in &mut replay.logs {
        claims.append(&mut log.sorted);
    }
    if replay.chain(FIRST_LEAF).1.offset == 0 {
        claims.push(([0; K], 0, FIRST_LEAF));
    }
    // Stable, as that merges what is sorted already.
    claims.sort_by(by_key);
    let unclear =
        |key: &[u64; K]| damaged(pool, heads, format!("the logs do not say who owns the keys from {key:x?} on"));
    let mut leaves = Vec::with_capacity(claims.len());
    let mut hidden: BinaryHeap<(u64, Option<[u64; K]>)> = BinaryHeap::new();
    // The number of the owner's base and the end of its range. The first one ends where keys begin.
    let mut owner = (0, Some([0; K]));
    for (low, number, leaf) in claims {
        let high = replay.chain(leaf).1.range.high;
        let reaches = |end: &Option<[u64; K]>| end.is_none_or(|end| end > low);
        match owner {
            (_, Some(end)) if end < low => return Err(unclear(&end)),
            (_, Some(end)) if end == low => {
                while hidden.peek().is_some_and(|(_, end)| !reaches(end)) {
                    hidden.pop();
                }
                if hidden.peek().is_some_and(|(other, _)| *other > number) {
                    return Err(unclear(&low));
                }
            }
            (newer, _) if newer > number => {
                hidden.push((number, high));
                continue;
            }
            older => hidden.push(older),
        }
        leaves.push((low, leaf));
        owner = (number, high);
    }
    match owner {
        (_, None) => Ok(leaves),
        (_, Some(end)) => Err(unclear(&end)),
    }
}

fn by_key<const K: usize>(one: &Claim<K>, other: &Claim<K>) -> std::cmp::Ordering {
    (one.0, other.1).cmp(&(other.0, one.1))
}

/// Reads one log.
fn read_log<const K: usize, const V: usize, B: Backend>(
    pool: &Pool<B>,
    layout: &Layout<K, V>,
    (count, segment_length): (u64, u64),
    (head, index, was_closed): (u64, usize, bool),
    noted: usize,
) -> Result<ReadLog<K>> {
    let mut log = ReadLog::new();
    let mut offset = pool.backend().load(head);
    let mut last = 0;
    while offset != 0 {
        blocks::check_own(pool, offset, segment_length)?;
        let word = |word: u64| pool.backend().load(offset + word * WORD_LENGTH);
        let [number, next, end] = [NUMBER, NEXT, END].map(word);
        // So no circle of segments is followed.
        if number <= last || number >= NUMBER_END || word(COMPLEMENT) != !number {
            return Err(damaged(pool, offset, "the number of a segment is impossible"));
        }
        if end == 0 && (next != 0 || was_closed) {
            return Err(damaged(pool, offset, "a segment of a log has no end"));
        }
        let end = match end {
            0 => None,
            word => Some(Segment::end_of(offset, segment_length, word).ok_or_else(|| {
                damaged(pool, offset, format!("a segment of a log states the impossible end {word:#x}"))
            })?),
        };
        let mut segment = Segment { offset, number, end: end.unwrap_or(0), lines: 0 };
        segment.end = read_segment(pool, layout, &segment, segment_length, |offset, record| {
            // Numbers of leaves that are no more are used again, and each leaf but the first has
            // had a line.
            let Header { leaf, .. } = record.header;
            if leaf % count != index as u64 || leaf > pool.length() / LINE_LENGTH {
                return Err(damaged(pool, offset, "a record is in the log of another leaf"));
            }
            if record.number() <= log.found.last_record || record.number() >= NUMBER_END {
                return Err(damaged(pool, offset, "the numbers of records do not ascend"));
            }
            log.found.last_record = record.number();
            let lines = record.header.lines::<K, V>();
            let added = log.add((leaf / count) as usize, noted, offset, (&record, lines), layout.leaf_capacity);
            added.map_err(|reason| damaged(pool, offset, reason))
        })?;
        log.found.segments.push(segment);
        (last, offset) = (number, next);
    }
    if was_closed && !logs::is_as_closed(pool.backend(), head, last, log.found.segments.len() as u64) {
        return Err(damaged(pool, head, "a log that was closed has lost segments"));
    }
    let leaves = (index as u64..).step_by(count as usize);
    let bases = leaves.zip(log.bases.iter().zip(&log.chains)).filter(|(_, (base, _))| base.offset != 0);
    log.sorted = bases.map(|(leaf, (base, chain))| (base.range.low, chain.base_number, leaf)).collect();
    log.sorted.sort_unstable_by(by_key);
    Ok(log)
}

impl<const K: usize> ReadLog<K> {
    /// Adds a record to the chain of its leaf.
    fn add(
        &mut self,
        place: usize,
        noted: usize,
        offset: u64,
        (record, lines): (&Record<impl View>, u64),
        capacity: usize,
    ) -> std::result::Result<(), &'static str> {
        let Header { kind, count, leaf } = record.header;
        if count > capacity {
            return Err("a record states more entries than a leaf can have");
        }
        if place >= self.chains.len() {
            self.chains.resize(place + 1, Chain::default());
            self.bases.resize(place + 1, Base::NONE);
            self.newest.resize((place + 1) * noted, 0);
        }
        let chain = &mut self.chains[place];
        let number = record.number();
        if kind == Kind::Base {
            let range = record.range::<K>();
            if range.high.is_some_and(|high| high <= range.low) {
                return Err("a base has an empty range of keys");
            }
            self.bases[place] = Base { offset, range };
            *chain = Chain {
                head: offset,
                head_number: number,
                base_number: number,
                deltas: 0,
                count: count as u16,
                lines: lines as u32,
            };
            return Ok(());
        }
        if leaf == FIRST_LEAF && record.previous() == 0 {
            *chain = Chain::default();
            self.bases[place] = Base::NONE;
        } else if chain.head == 0 {
            // Records before a base that was collected are garbage.
            return Ok(());
        }
        if record.previous() != chain.head || number <= chain.head_number || chain.deltas as usize >= capacity {
            return Err("a record of a log does not continue the chain of its leaf");
        }
        if noted > 0 {
            self.newest[place * noted + usize::from(chain.deltas) % noted] = offset;
        }
        chain.head = offset;
        chain.head_number = number;
        chain.deltas += 1;
        chain.count = count as u16;
        chain.lines += lines as u32;
        Ok(())
    }
}

/// Calls `visit` with each whole record of a segment and its offset, until it gives an error. Gives
/// the offset behind the last one.
///
/// Records reach to the segment's end, if that is known. Otherwise a crash may have torn the last
/// record, and no other one (L3).
pub(super) fn read_segment<'a, const K: usize, const V: usize, B: Backend>(
    pool: &'a Pool<B>,
    layout: &Layout<K, V>,
    segment: &Segment,
    segment_length: u64,
    mut visit: impl FnMut(u64, Record<B::View<'a>>) -> Result<()>,
) -> Result<u64> {
    let &Segment { offset: start, number, end, .. } = segment;
    let is_whole = end != 0;
    let limit = if is_whole { end } else { start + segment_length };
    let mut offset = start + LINE_LENGTH;
    while offset < limit {
        let rest = pool.backend().view(offset, limit - offset);
        let has_stamp = |line: u64| record::stamp(rest, line as usize) == number;
        let rest_lines = (limit - offset) / LINE_LENGTH;
        let (lines, header) = match has_stamp(0) {
            // The length of a torn record is known if its first line is there.
            true => {
                let Some(header) = Header::from_word(rest.load(0)) else {
                    return Err(damaged(pool, offset, "a record of a log is impossible"));
                };
                (header.lines::<K, V>(), Some(header))
            }
            false => (record::lines_max::<K, V>(layout.leaf_capacity), None),
        };
        if header.is_some() && lines > rest_lines {
            return Err(damaged(pool, offset, "a record of a log is longer than its segment"));
        }
        match header.filter(|_| (1..lines).all(has_stamp)) {
            Some(header) => {
                visit(offset, Record { header, words: pool.backend().view(offset, lines * LINE_LENGTH) })?;
                offset += lines * LINE_LENGTH;
            }
            None if is_whole => return Err(damaged(pool, offset, "a record of a log is not whole")),
            None if (lines..rest_lines).any(has_stamp) => {
                return Err(damaged(pool, offset, "a record of a log is not whole, and others follow it"));
            }
            None => break,
        }
    }
    Ok(offset)
}
