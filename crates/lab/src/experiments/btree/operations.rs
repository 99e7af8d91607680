//! The operations that are measured, one key at a time.

use std::ops::{Bound, ControlFlow};

use anyhow::{Result, ensure};
use terrane_pmem::Backend;

use super::{Key, Tree, value};

/// Entries of a scan.
const SCANNED: usize = 100;

/// An operation with one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Insertion,
    LookUp,
    Update,
    Scan,
    Removal,
}

impl Operation {
    pub(super) const ALL: [Self; 5] = [Self::Insertion, Self::LookUp, Self::Update, Self::Scan, Self::Removal];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Insertion => "insertion",
            Self::LookUp => "look-up",
            Self::Update => "update",
            Self::Scan => "scan of 100",
            Self::Removal => "removal",
        }
    }

    /// The keys that an operation takes, of those in the tree and of the new ones.
    pub(super) fn keys<'a>(self, stored: &'a [Key], new: &'a [Key]) -> &'a [Key] {
        match self {
            Self::Insertion => new,
            Self::LookUp | Self::Update => stored,
            Self::Scan => &stored[..stored.len() / SCANNED],
            Self::Removal => &stored[..stored.len() / 4],
        }
    }

    /// Does it with a key. The tree holds the key, unless it is an insertion.
    pub(super) fn perform<B: Backend>(self, tree: &Tree<B>, key: &Key) -> Result<()> {
        match self {
            Self::Insertion => drop(tree.insert(key, &value(key))?),
            Self::LookUp => ensure!(tree.get(key)? == Some(value(key)), "{key:?} has another value"),
            Self::Update => drop(tree.update(key, &value(key))?),
            Self::Scan => {
                let mut left = SCANNED;
                tree.range((Bound::Included(*key), Bound::Unbounded), &mut |_, _| {
                    left -= 1;
                    if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                })?;
            }
            Self::Removal => drop(tree.remove(key)?),
        }
        Ok(())
    }
}
