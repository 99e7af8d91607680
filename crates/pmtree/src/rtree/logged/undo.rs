//! The log of old values, as a program keeps it that makes transactions of ranges (PM-RTREE,
//! section 5.1: the R-tree of PMDK).
//!
//! Before a node changes, the old words of each range that will change are made durable, at the
//! same places of a block for images. Ranges close to each other are logged as one. The node's
//! level and count are always logged. The unused words of its header list the ranges.
//!
//! - L8: a head with old values owns the new blocks that it names, and its nodes may hold any part
//!   of the change. The old values count.
//! - L9: when the changes are durable, or the old values again, the head becomes one that is done.

use std::iter;
use std::ops::Range;

use terrane_pmem::{Backend, Pool, Site, View, WORD_LENGTH};

use super::layout::{COUNT, HEADER_WORDS, LEVEL, Layout};
use super::log::{COMMITTED, Change, DONE, HEAD, NEW_ROOT, OLD_VALUES, RELEASED, STATE};
use super::node::Image;
use super::tree::LoggedTree;
use crate::Result;
use crate::blocks::{self, damaged};

const RANGE: Site = Site::new("logged.undo.range");
const RANGES: Site = Site::new("logged.undo.ranges");
const BEGIN: Site = Site::new("logged.undo.begin");
const APPLY: Site = Site::new("logged.undo.apply");
const APPLY_ROOT: Site = Site::new("logged.undo.apply.root");
const COMMIT: Site = Site::new("logged.undo.commit");
const RESTORE: Site = Site::new("logged.undo.restore");
const RESTORE_ROOT: Site = Site::new("logged.undo.restore.root");

/// Ranges of a node: two in each unused word of its header.
const RANGES_MAX: usize = 2 * (HEADER_WORDS - FIRST_LIST);
const FIRST_LIST: usize = 2;
/// The words of a header that are always logged.
const STATED: Range<usize> = LEVEL..COUNT + 1;
const RANGE_BITS: u32 = 32;
const END_SHIFT: u32 = 16;
const _: () = assert!(LEVEL < FIRST_LIST && COUNT < FIRST_LIST);

impl<const D: usize, B: Backend> LoggedTree<D, B> {
    /// Makes a change.
    ///
    /// Durable after each step: the old values, which have no effect yet; that they count (L8); the
    /// changed nodes; that they count no more (L9).
    pub(super) fn commit_with_old_values(&self, change: Change<'_, D, B>) -> Result<()> {
        let blocks = self.image_blocks(change.images.len())?;
        let mut release = self.pool.intent();
        if change.released != 0 {
            release.reserve()?;
        }
        let changed: Vec<Vec<Range<usize>>> = change.images.iter().map(|image| self.changed_ranges(image)).collect();
        self.name_nodes(&change.images);
        for ((image, block), ranges) in change.images.iter().zip(blocks).zip(&changed) {
            self.log_old_values(image.offset, block, ranges);
        }
        let backend = self.backend();
        let old_root = if change.root == 0 { 0 } else { self.root_offset() };
        self.store_head(&change, OLD_VALUES, [0, old_root]);
        self.persist_head(BEGIN);

        for (image, ranges) in change.images.iter().zip(&changed) {
            for words in iter::once(&STATED).chain(ranges) {
                let first = image.offset + words.start as u64 * WORD_LENGTH;
                self.write(first, &image.words()[words.clone()], APPLY);
            }
        }
        if change.root != 0 {
            self.write(self.root_word(), &[change.root], APPLY_ROOT);
        }
        backend.fence(APPLY);
        backend.store(self.block + RELEASED, change.released);
        backend.store(self.block + STATE, COMMITTED | DONE);
        self.persist_head(COMMIT);
        change.acquired.finish();
        self.finish(release)
    }

    /// The words of entries that a change gives other values.
    fn changed_ranges(&self, image: &Image<D>) -> Vec<Range<usize>> {
        let is_changed =
            |&word: &usize| self.backend().load(image.offset + word as u64 * WORD_LENGTH) != image.words()[word];
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for word in (HEADER_WORDS..image.words().len()).filter(is_changed) {
            match ranges.last_mut() {
                Some(last) if last.end == word => last.end += 1,
                _ => ranges.push(word..word + 1),
            }
        }
        while ranges.len() > RANGES_MAX {
            let gap = |at: &usize| ranges[at + 1].start - ranges[*at].end;
            let Some(smallest) = (0..ranges.len() - 1).min_by_key(gap) else { break };
            ranges[smallest].end = ranges.remove(smallest + 1).end;
        }
        ranges
    }

    /// Makes the old values of ranges durable, and their list.
    fn log_old_values(&self, node: u64, block: u64, ranges: &[Range<usize>]) {
        let backend = self.backend();
        let at = |first: u64, word: usize| first + word as u64 * WORD_LENGTH;
        for range in ranges {
            for word in range.clone() {
                backend.store(at(block, word), backend.load(at(node, word)));
            }
            backend.flush(at(block, range.start)..at(block, range.end), RANGE);
        }
        for word in STATED {
            backend.store(at(block, word), backend.load(at(node, word)));
        }
        for list in 0..RANGES_MAX / 2 {
            let encoded = |number: usize| ranges.get(2 * list + number).map_or(0, encode);
            backend.store(at(block, FIRST_LIST + list), encoded(0) | encoded(1) << RANGE_BITS);
        }
        backend.persist(at(block, 0)..at(block, HEADER_WORDS), RANGES);
    }

    /// Gives the nodes that a head with old values names their old words again.
    pub(super) fn restore(&self, state: u64) -> Result<()> {
        let backend = self.backend();
        for (node, block) in self.logged_nodes(state)? {
            let ranges = ranges_of(&self.pool, &self.layout, block)?;
            for words in iter::once(&STATED).chain(&ranges) {
                for offset in words.clone().map(|word| word as u64 * WORD_LENGTH) {
                    backend.store(node + offset, backend.load(block + offset));
                }
                let place = |word: usize| node + word as u64 * WORD_LENGTH;
                backend.flush(place(words.start)..place(words.end), RESTORE);
            }
        }
        let old_root = backend.load(self.block + NEW_ROOT);
        if old_root != 0 {
            self.write(self.root_word(), &[old_root], RESTORE_ROOT);
        }
        backend.fence(RESTORE);
        Ok(())
    }

    /// Makes a change without a log, and flushes nothing. A crash may leave anything.
    pub(super) fn commit_unlogged(&self, change: Change<'_, D, B>) -> Result<()> {
        let backend = self.backend();
        let mut release = self.pool.intent();
        if change.released != 0 {
            release.reserve()?;
        }
        for image in &change.images {
            for (offset, &word) in (image.offset..).step_by(WORD_LENGTH as usize).zip(image.words()) {
                if backend.load(offset) != word {
                    backend.store(offset, word);
                }
            }
        }
        if change.root != 0 {
            backend.store(self.root_word(), change.root);
        }
        // Intents ask these words which blocks are in use.
        self.store_head(&change, 0, [change.released, 0]);
        change.acquired.finish();
        if change.released != 0 {
            release.release(change.released, self.block + RELEASED)?;
        }
        for word in (STATE..HEAD + HEADER_WORDS as u64 * WORD_LENGTH).step_by(WORD_LENGTH as usize) {
            backend.store(self.block + word, 0);
        }
        release.finish();
        Ok(())
    }
}

fn encode(range: &Range<usize>) -> u64 {
    range.start as u64 | (range.end as u64) << END_SHIFT
}

/// The ranges whose old words a block has. They must lie within the entries of a node.
pub(super) fn ranges_of<const D: usize, B: Backend>(
    pool: &Pool<B>,
    layout: &Layout<D>,
    block: u64,
) -> Result<Vec<Range<usize>>> {
    blocks::check_own(pool, block, layout.node_length())?;
    let words = pool.backend().view(block, layout.node_length());
    let lists = (FIRST_LIST..HEADER_WORDS).map(|list| words.load(list));
    let encoded = lists.flat_map(|list| [list & u64::from(u32::MAX), list >> RANGE_BITS]).filter(|range| *range != 0);
    encoded
        .map(|range| {
            let (start, end) = ((range & 0xffff) as usize, (range >> END_SHIFT) as usize);
            match HEADER_WORDS <= start && start < end && end <= layout.node_words() {
                true => Ok(start..end),
                false => Err(damaged(pool, block, "the log states an impossible range of old values")),
            }
        })
        .collect()
}
