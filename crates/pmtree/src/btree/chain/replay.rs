//! What logs say of leaves: the reading of logs after a crash, by one or several replayers (L1).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use terrane_pmem::{Backend, LINE_LENGTH, Pool, View, WORD_LENGTH};

use super::super::layout::Layout;
use super::logs::{self, FoundLog, NEXT, NUMBER, Segment};
use super::record::{self, Header, Kind, Range, Record};
use crate::blocks::damaged;
use crate::{Result, blocks};

/// The number of the leaf that owns all keys before it has a base.
const FIRST_LEAF: u64 = 0;

/// A chain as the log of its leaf has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found<const K: usize> {
    /// The range in the base.
    pub(super) range: Range<K>,
    pub(super) head: u64,
    pub(super) head_number: u64,
    /// Offset of the base, or 0.
    pub(super) base: u64,
    pub(super) base_number: u64,
    pub(super) deltas: u64,
    pub(super) lines: u64,
}

impl<const K: usize> Found<K> {
    /// The first leaf before it has records.
    const FIRST: Self = Self {
        range: Range { low: [0; K], high: None },
        head: 0,
        head_number: 0,
        base: 0,
        base_number: 0,
        deltas: 0,
        lines: 0,
    };
}

/// What the logs of a tree say.
#[derive(Debug)]
pub(in super::super) struct Replay<const K: usize> {
    pub(super) logs: Vec<FoundLog>,
    /// The leaves in the order of their keys: their numbers, their ranges, and their chains.
    pub(super) leaves: Vec<(u64, Range<K>, Found<K>)>,
}

impl<const K: usize> Replay<K> {
    /// Logs without records: the first leaf owns all keys.
    pub(in super::super) fn of_empty_tree() -> Self {
        Self { logs: Vec::new(), leaves: vec![(FIRST_LEAF, Found::<K>::FIRST.range, Found::FIRST)] }
    }
}

/// One log, and the chains in it.
#[derive(Debug)]
struct ReadLog<const K: usize> {
    found: FoundLog,
    chains: HashMap<u64, Found<K>>,
}

/// Reads the logs of a tree. It is an error if they are impossible.
pub(in super::super) fn replay<const K: usize, const V: usize, B: Backend>(
    pool: &Pool<B>,
    layout: &Layout<K, V>,
    (count, segment_length): (u64, u64),
    heads: u64,
    replayers: usize,
) -> Result<Replay<K>> {
    let read = |log: usize| read_log(pool, layout, logs::head(heads, log), segment_length);
    let all: Vec<usize> = (0..count as usize).collect();
    let share = all.len().div_ceil(replayers.clamp(1, all.len()));
    let read_all = |logs: &[usize]| logs.iter().map(|log| read(*log)).collect::<Result<Vec<_>>>();
    let read: Vec<ReadLog<K>> = if share == all.len() {
        read_all(&all)?
    } else {
        // Each replayer has logs of its own.
        let parts: Vec<Result<Vec<_>>> = std::thread::scope(|scope| {
            let threads: Vec<_> = all.chunks(share).map(|logs| scope.spawn(move || read_all(logs))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        parts.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect()
    };
    let (logs, mut chains) = (Vec::new(), HashMap::new());
    let mut replay = Replay { logs, leaves: Vec::new() };
    for ReadLog { found, chains: of_log } in read {
        replay.logs.push(found);
        chains.extend(of_log);
    }
    chains.entry(FIRST_LEAF).or_insert(Found::FIRST);
    replay.leaves = lay_over(pool, heads, chains)?;
    Ok(replay)
}

/// Lays the ranges of bases over each other in the order of their numbers, and gives the leaves
/// that own keys.
fn lay_over<const K: usize, B: Backend>(
    pool: &Pool<B>,
    heads: u64,
    chains: HashMap<u64, Found<K>>,
) -> Result<Vec<(u64, Range<K>, Found<K>)>> {
    let mut bases: Vec<(u64, u64)> = chains.iter().map(|(leaf, found)| (found.base_number, *leaf)).collect();
    bases.sort_unstable();
    // What a leaf owns: from a key on, up to the key behind it.
    let mut owned: BTreeMap<[u64; K], (Option<[u64; K]>, u64)> = BTreeMap::new();
    for (_, leaf) in bases {
        let Range { low, high } = chains[&leaf].range;
        let is_below_high = |key: &[u64; K]| high.is_none_or(|high| *key < high);
        let before = owned.range(..=low).next_back().map(|(from, owner)| (*from, *owner));
        let inside =
            owned.range(low..).take_while(|(from, _)| is_below_high(from)).map(|(from, owner)| (*from, *owner));
        for (from, (to, owner)) in before.into_iter().chain(inside.collect::<Vec<_>>()) {
            if to.is_some_and(|to| to <= low) {
                continue;
            }
            owned.remove(&from);
            if from < low {
                owned.insert(from, (Some(low), owner));
            }
            if let Some(high) = high.filter(|high| to.is_none_or(|to| *high < to)) {
                owned.insert(high, (to, owner));
            }
        }
        owned.insert(low, (high, leaf));
    }
    let (mut leaves, mut seen, mut end) = (Vec::with_capacity(owned.len()), BTreeSet::new(), Some([0; K]));
    for (low, (high, leaf)) in owned {
        let found = chains[&leaf];
        if end != Some(low) || found.range.low != low || !seen.insert(leaf) {
            return Err(damaged(pool, heads, format!("the logs do not say who owns the keys from {low:x?} on")));
        }
        leaves.push((leaf, Range { low, high }, found));
        end = high;
    }
    match end {
        None => Ok(leaves),
        Some(end) => Err(damaged(pool, heads, format!("the logs do not say who owns the keys from {end:x?} on"))),
    }
}

/// Reads one log.
fn read_log<const K: usize, const V: usize, B: Backend>(
    pool: &Pool<B>,
    layout: &Layout<K, V>,
    head: u64,
    segment_length: u64,
) -> Result<ReadLog<K>> {
    let mut log = ReadLog { found: FoundLog::default(), chains: HashMap::new() };
    let mut offset = pool.backend().load(head);
    let mut last = 0;
    while offset != 0 {
        blocks::check_own(pool, offset, segment_length)?;
        let [number, next] = [NUMBER, NEXT].map(|word| pool.backend().load(offset + word * WORD_LENGTH));
        // So no circle of segments is followed.
        if number <= last {
            return Err(damaged(pool, offset, "the numbers of segments do not ascend"));
        }
        read_segment::<K, V, B>(pool, offset, number, segment_length, |offset, record| {
            log.found.last_record = log.found.last_record.max(record.number());
            let added = add(&mut log.chains, offset, &record, layout.leaf_capacity, record.header.lines::<K, V>());
            added.map_err(|reason| damaged(pool, offset, reason))
        })?;
        log.found.segments.push(Segment { offset, number, lines: 0 });
        (last, offset) = (number, next);
    }
    Ok(log)
}

/// Calls `visit` with each whole record of a segment and its offset, until it gives an error.
pub(super) fn read_segment<'a, const K: usize, const V: usize, B: Backend>(
    pool: &'a Pool<B>,
    segment: u64,
    number: u64,
    segment_length: u64,
    mut visit: impl FnMut(u64, Record<B::View<'a>>) -> Result<()>,
) -> Result<()> {
    let end = segment + segment_length;
    let mut offset = segment + LINE_LENGTH;
    while offset < end {
        let whole = pool.backend().view(offset, end - offset);
        if record::stamp(whole, 0) != number {
            break;
        }
        let Some(header) = Header::from_word(whole.load(0)) else {
            return Err(damaged(pool, offset, "a record of a log is impossible"));
        };
        let lines = header.lines::<K, V>();
        if lines * LINE_LENGTH > end - offset {
            return Err(damaged(pool, offset, "a record of a log is longer than its segment"));
        }
        if (1..lines).any(|line| record::stamp(whole, line as usize) != number) {
            break;
        }
        visit(offset, Record { header, words: pool.backend().view(offset, lines * LINE_LENGTH) })?;
        offset += lines * LINE_LENGTH;
    }
    Ok(())
}

/// Adds a record to the chains of its log.
fn add<const K: usize>(
    chains: &mut HashMap<u64, Found<K>>,
    offset: u64,
    record: &Record<impl View>,
    capacity: usize,
    lines: u64,
) -> std::result::Result<(), &'static str> {
    let Header { kind, count, leaf } = record.header;
    let number = record.number();
    if kind == Kind::Base {
        if count > capacity {
            return Err("a base has more entries than a leaf");
        }
        let range = record.range::<K>();
        if range.high.is_some_and(|high| high <= range.low) {
            return Err("a base has an empty range of keys");
        }
        let [base, head] = [offset; 2];
        chains.insert(leaf, Found { range, head, head_number: number, base, base_number: number, deltas: 0, lines });
        return Ok(());
    }
    if leaf == FIRST_LEAF && record.previous() == 0 {
        chains.insert(leaf, Found::FIRST);
    }
    // Records before a base that was collected are garbage.
    let Some(chain) = chains.get_mut(&leaf) else { return Ok(()) };
    if record.previous() != chain.head || number <= chain.head_number || chain.deltas as usize >= capacity {
        return Err("a record of a log does not continue the chain of its leaf");
    }
    chain.head = offset;
    chain.head_number = number;
    chain.deltas += 1;
    chain.lines += lines;
    Ok(())
}
