//! The mapping table: for each leaf, a row in memory that leads to its chain.

use terrane_pmem::{Arena, Backend, LINE_LENGTH, Pool, View};
use terrane_storage::sync::{AtomicU64, Mutex, Ordering};

use super::super::layout::{LOG_COUNT, Layout, SEGMENT_LENGTH};
use super::super::options::LogOptions;
use super::super::place;
use super::logs::Logs;
use super::record::{Range, lines_max};
use crate::table::Table;
use crate::{Error, Result};

/// Numbers of the words of a row, behind the first two, which are those of a node.
pub(super) const LEAF: usize = 2;
/// Offset of the newest record, or 0.
pub(super) const HEAD: usize = 3;
/// Offset of the base, or 0.
pub(super) const BASE: usize = 4;
pub(super) const BASE_NUMBER: usize = 5;
/// Deltas after the base.
pub(super) const DELTAS: usize = 6;
/// Lines of all records of the chain.
pub(super) const LINES: usize = 7;
/// Whether the range has an end; then the range, each end `K` words; then the newest deltas.
const HAS_HIGH: usize = 8;
const LOW: usize = 9;

/// The number of logs, and bytes of their segments.
pub(in super::super) type Shape = (u64, u64);

/// The logs of a tree, and the rows of its leaves. Trees of other methods have none.
#[derive(Debug)]
pub(in super::super) struct Chains {
    pub(super) logs: Logs,
    /// Each row lies behind its version.
    pub(in super::super) rows: Arena,
    /// The name of each leaf's row by the leaf's number, or 0.
    names: Table<AtomicU64>,
    numbers: Mutex<Numbers>,
    /// Deltas that a row has the places of.
    pub(super) prefetched: usize,
}

/// Numbers for new leaves.
#[derive(Debug, Default)]
struct Numbers {
    free: Vec<u64>,
    next: u64,
}

impl Chains {
    /// Logs and rows for a tree without leaves.
    pub(in super::super) fn new<const K: usize>(
        (count, segment_length): Shape,
        heads: u64,
        options: &LogOptions,
    ) -> Self {
        let prefetched = prefetched(options);
        Self {
            logs: Logs::new(count, heads, segment_length, options.garbage_percent),
            rows: Arena::new(1 + LOW + 2 * K + prefetched),
            names: Table::new(),
            numbers: Mutex::default(),
            prefetched,
        }
    }

    /// Notes where the logs end. Nobody else uses the tree any more.
    pub(in super::super) fn close<B: Backend>(&self, pool: &Pool<B>) {
        self.logs.close(pool);
    }

    /// Bytes of the words that link the first segments.
    pub(in super::super) fn heads_length(&self) -> u64 {
        heads_length(self.logs.len() as u64)
    }

    /// A number for a leaf.
    pub(super) fn take_number(&self) -> u64 {
        let mut numbers = self.numbers.lock();
        numbers.free.pop().unwrap_or_else(|| {
            numbers.next += 1;
            numbers.next - 1
        })
    }

    pub(super) fn return_number(&self, leaf: u64) {
        self.numbers.lock().free.push(leaf);
    }

    /// Takes the numbers of the leaves that an opening has found.
    pub(super) fn take_numbers(&self, leaves: impl Iterator<Item = u64> + Clone) {
        let next = leaves.clone().max().map_or(0, |last| last + 1);
        let mut is_taken = vec![false; next as usize];
        leaves.for_each(|leaf| is_taken[leaf as usize] = true);
        let free = (0..next).zip(is_taken).filter(|(_, is_taken)| !is_taken).map(|(number, _)| number).collect();
        *self.numbers.lock() = Numbers { free, next };
    }

    /// A row whose words are 0, of a leaf that has a number.
    pub(super) fn new_row(&self, leaf: u64) -> u64 {
        let name = place::name_of_row(self.rows.allocate());
        self.store(name, LEAF, leaf);
        name
    }

    /// The name of the row of a leaf, or 0.
    pub(super) fn name(&self, leaf: u64) -> u64 {
        self.names.get(leaf).load(Ordering::Acquire)
    }

    /// Number of leaves.
    pub(super) fn count(&self) -> u64 {
        let numbers = self.numbers.lock();
        numbers.next - numbers.free.len() as u64
    }

    /// Lets collectors find the row of a leaf.
    pub(super) fn publish(&self, leaf: u64, name: u64) {
        self.names.get(leaf).store(name, Ordering::Release);
    }

    /// Forgets the row of a leaf, and lets its number be used again.
    pub(super) fn forget(&self, leaf: u64) {
        self.publish(leaf, 0);
        self.return_number(leaf);
    }

    /// Stores a word of a row.
    pub(in super::super) fn store(&self, name: u64, word: usize, value: u64) {
        if let Some(index) = place::in_memory(name) {
            self.rows.words(index)[1 + word].store(value, Ordering::Release);
        }
    }

    pub(super) fn set_range<const K: usize>(&self, name: u64, range: &Range<K>) {
        self.store(name, HAS_HIGH, u64::from(range.high.is_some()));
        for (word, value) in (LOW..).zip(range.low.into_iter().chain(range.high.unwrap_or([0; K]))) {
            self.store(name, word, value);
        }
    }

    /// Notes the place of the newest delta.
    pub(super) fn push_recent<const K: usize>(&self, name: u64, row: impl View, delta: u64) {
        let first = LOW + 2 * K;
        for word in (first + 1..first + self.prefetched).rev() {
            self.store(name, word, row.load(word - 1));
        }
        if self.prefetched > 0 {
            self.store(name, first, delta);
        }
    }

    /// Notes the place of one of the newest deltas.
    pub(super) fn store_recent<const K: usize>(&self, name: u64, number: usize, delta: u64) {
        self.store(name, LOW + 2 * K + number, delta);
    }

    /// Notes that there are no deltas.
    pub(super) fn clear_recent<const K: usize>(&self, name: u64) {
        (0..self.prefetched).for_each(|number| self.store_recent::<K>(name, number, 0));
    }

    /// The places of the newest deltas.
    #[inline]
    pub(super) fn recent<const K: usize>(&self, row: impl View) -> impl Iterator<Item = u64> {
        (0..self.prefetched).map(move |number| row.load(LOW + 2 * K + number)).take_while(|delta| *delta != 0)
    }
}

/// The most deltas that a row has the places of.
const PREFETCHED_MAX: usize = 16;

/// Deltas that a row has the places of. Rows of more words would not be searched faster.
pub(in super::super) fn prefetched(options: &LogOptions) -> usize {
    options.prefetched.min(PREFETCHED_MAX)
}

/// The range of a leaf.
#[inline]
pub(super) fn range<const K: usize>(row: impl View) -> Range<K> {
    let high = (row.load(HAS_HIGH) != 0).then(|| row.load_array(LOW + K));
    Range { low: row.load_array(LOW), high }
}

/// The number of logs and the length of segments for a new tree.
pub(in super::super) fn shape<const K: usize, const V: usize>(
    layout: &Layout<K, V>,
    options: &LogOptions,
) -> Result<Shape> {
    let &LogOptions { count, segment_length, .. } = options;
    if count == 0 || count > COUNT_MAX {
        return Err(Error::LogCount { count, most: COUNT_MAX });
    }
    let shortest = (1 + lines_max::<K, V>(layout.leaf_capacity)) * LINE_LENGTH;
    Ok((count, segment_length.max(shortest).next_multiple_of(LINE_LENGTH)))
}

/// The same of an existing tree; `None` if it is impossible.
pub(in super::super) fn shape_of<const K: usize, const V: usize, B: Backend>(
    pool: &Pool<B>,
    layout: &Layout<K, V>,
    block: u64,
) -> Option<Shape> {
    let [count, segment_length] = [LOG_COUNT, SEGMENT_LENGTH].map(|word| pool.backend().load(block + word));
    let shortest = (1 + lines_max::<K, V>(layout.leaf_capacity)) * LINE_LENGTH;
    let is_possible =
        (1..=COUNT_MAX).contains(&count) && segment_length >= shortest && segment_length.is_multiple_of(LINE_LENGTH);
    is_possible.then_some((count, segment_length))
}

/// The most logs.
pub(in super::super) const COUNT_MAX: u64 = 1024;

/// Bytes of the words that link the first segments.
pub(in super::super) fn heads_length(count: u64) -> u64 {
    count * LINE_LENGTH
}
