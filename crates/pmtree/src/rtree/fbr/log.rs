//! The split and merge log: changes of several words at once, each committed by one word (sections
//! 3.4 and 3.5).
//!
//! An entry is a line: its state, the participating nodes, and, if bitmaps are single words, up to
//! two new ones. Longer bitmaps follow in lines of their own. While an entry is committed, its
//! bitmaps are those of the nodes that it changes, whatever these nodes contain. The nodes name the
//! entry in a volatile word, by which readers find it.
//!
//! The stores to one line become durable in their order. This gives an entry one of three states.
//! - Committed: it is whole, as its later lines were fenced before.
//! - Without a commitment: it has changed nothing, and owns the new blocks that it names.
//! - Done, and being cleared: its nodes hold all of its contents. It owns the unlinked nodes that
//!   it still names.

use std::collections::VecDeque;

use terrane_pmem::{Backend, LINE_LENGTH, Pool, WORD_LENGTH};
use terrane_storage::sync::{AtomicU64, Condvar, Mutex};

use super::layout::{LOG_START, Layout, Metadata};
use crate::{Error, Result};

/// The most concurrent changes.
pub(super) const ENTRIES: usize = 32;

/// Numbers of the words of an entry. The first one is its state.
pub(super) const NODES: u64 = 1;
const BITMAPS: u64 = NODES + ROLES as u64;

/// The most nodes that an entry can name.
pub(super) const ROLES: usize = 5;

pub(super) const COMMITTED: u64 = 1;
pub(super) const KIND_SHIFT: u32 = 1;
const KIND_BITS: u64 = 0b111;
pub(super) const DONE: u64 = 1 << 4;
pub(super) const VERSION_SHIFT: u32 = 8;

/// The kind of change of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `First` gives entries to `Second`, which is new. `NewFirst` is a new root if there is no
    /// parent.
    Split,
    /// `First` takes the entries of `Second`.
    Merge,
    /// `First` takes some entries of `Second`.
    Redistribute,
    /// `First` is replaced by `NewFirst` and `NewSecond`.
    CopySplit,
    /// `First` and `Second` are replaced by `NewFirst`.
    CopyMerge,
}

/// The role of a participating node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Parent,
    First,
    Second,
    NewFirst,
    NewSecond,
}

impl Role {
    pub(super) const ALL: [Self; ROLES] = [Self::Parent, Self::First, Self::Second, Self::NewFirst, Self::NewSecond];
}

impl Kind {
    const ALL: [Self; 5] = [Self::Split, Self::Merge, Self::Redistribute, Self::CopySplit, Self::CopyMerge];

    /// Its code in a state.
    pub(super) fn code(self) -> u64 {
        match self {
            Self::Split => 1,
            Self::Merge => 2,
            Self::Redistribute => 3,
            Self::CopySplit => 4,
            Self::CopyMerge => 5,
        }
    }

    /// Blocks that belong to the entry until it commits.
    pub(super) fn acquired(self) -> &'static [Role] {
        match self {
            Self::Split => &[Role::Second, Role::NewFirst],
            Self::Merge | Self::Redistribute => &[],
            Self::CopySplit => &[Role::NewFirst, Role::NewSecond],
            Self::CopyMerge => &[Role::NewFirst],
        }
    }

    /// Nodes that are unlinked.
    pub(super) fn released(self) -> &'static [Role] {
        match self {
            Self::Split | Self::Redistribute => &[],
            Self::Merge => &[Role::Second],
            Self::CopySplit => &[Role::First],
            Self::CopyMerge => &[Role::First, Role::Second],
        }
    }

    /// Nodes whose bitmaps the entry holds.
    pub(super) fn changed(self) -> &'static [Role] {
        match self {
            Self::Split => &[Role::First],
            Self::Merge | Self::Redistribute => &[Role::First, Role::Second],
            Self::CopySplit | Self::CopyMerge => &[Role::Parent],
        }
    }
}

/// The contents of an entry: the nodes by their roles (0: none), and the bitmaps of those that
/// change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) kind: Kind,
    pub(super) nodes: [u64; ROLES],
    pub(super) bitmaps: [Metadata; 2],
}

/// The progress of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Announced,
    Committed,
    Done,
}

impl Change {
    pub(super) fn node(&self, role: Role) -> u64 {
        self.nodes[role as usize]
    }

    /// The bitmap of a node after the change, if the change affects it.
    pub(super) fn bitmap_of(&self, node: u64) -> Option<&Metadata> {
        let place = self.kind.changed().iter().position(|&role| self.node(role) == node)?;
        Some(&self.bitmaps[place])
    }
}

/// Free entries. They are taken in turn, so that all of them are used.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) free: Mutex<VecDeque<usize>>,
    pub(super) returned: Condvar,
    /// Offset of an entry whose change failed in the middle; 0 while there is none.
    pub(super) failed: AtomicU64,
}

impl Log {
    pub(super) fn new() -> Self {
        Self { free: Mutex::new((0..ENTRIES).collect()), returned: Condvar::new(), failed: AtomicU64::new(0) }
    }

    /// Bytes of all entries.
    pub(super) fn length<const D: usize>(layout: &Layout<D>) -> u64 {
        entry_length(layout) * ENTRIES as u64
    }
}

/// Bytes of an entry.
fn entry_length<const D: usize>(layout: &Layout<D>) -> u64 {
    let bitmaps = if layout.words == 1 { 0 } else { 2 * layout.words as u64 * WORD_LENGTH };
    LINE_LENGTH + bitmaps.next_multiple_of(LINE_LENGTH)
}

/// Offset of an entry of the log of a tree with this block.
pub(super) fn offset<const D: usize>(layout: &Layout<D>, block: u64, index: usize) -> u64 {
    block + LOG_START + index as u64 * entry_length(layout)
}

/// Offset of a word of an entry's bitmaps within the entry.
pub(super) fn bitmap_word<const D: usize>(layout: &Layout<D>, place: usize, word: usize) -> u64 {
    let start = if layout.words == 1 { BITMAPS * WORD_LENGTH } else { LINE_LENGTH };
    start + (place * layout.words + word) as u64 * WORD_LENGTH
}

/// The contents of an entry, and the state in which it was found; `None` if it is free.
pub(super) fn read<const D: usize, B: Backend>(
    pool: &Pool<B>,
    layout: &Layout<D>,
    block: u64,
    index: usize,
) -> Result<Option<(Change, Engagement)>> {
    let (backend, entry) = (pool.backend(), offset(layout, block, index));
    let state = backend.load(entry);
    let code = state >> KIND_SHIFT & KIND_BITS;
    if code == 0 {
        return Ok(None);
    }
    let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.code() == code) else {
        let reason = format!("a log entry has the unknown kind {code}");
        return Err(Error::Damaged { pool: pool.name().to_owned(), offset: entry, reason });
    };
    let nodes = std::array::from_fn(|number| backend.load(entry + (NODES + number as u64) * WORD_LENGTH));
    let bitmap = |place| Metadata::read(layout.words, |word| backend.load(entry + bitmap_word(layout, place, word)));
    let change = Change { kind, nodes, bitmaps: [bitmap(0), bitmap(1)] };
    let progress = match (state & DONE != 0, state & COMMITTED != 0) {
        (true, _) => Progress::Done,
        (false, true) => Progress::Committed,
        (false, false) => Progress::Announced,
    };
    Ok(Some((change, Engagement { entry, state, progress })))
}

/// A log entry that changes a node while it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Engagement {
    /// Offset of the entry.
    pub(super) entry: u64,
    /// State in which it was found. No other use of the entry repeats it.
    pub(super) state: u64,
    pub(super) progress: Progress,
}
