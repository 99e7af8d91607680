//! Searches over all components of an index, newest first, with reconciliation: the newest
//! version of a key wins, and anti-matter hides what strictly older components hold.

mod nearest;
mod nearest_points;
mod primary;
mod window;

use std::collections::HashMap;

pub use crate::disk::rtree::Surface;
pub use nearest::{Candidate, Metric, NearestSearch, Next};
pub use nearest_points::{NEAREST_POINTS_MAX, NearestPoints, nearest_points};
pub use primary::{EntryVisitor, PrimaryValue, estimate, get, key_range, scan};
pub use window::{
    DiskSource, Hit, HoldsSource, OwnedSource, SourceVisitor, SpatialSource, WindowScan, estimate_window,
    owned_spatial_sources, spatial_sources, visit_source,
};

/// Approximate bytes per entry in the table of hidden keys, without the key, when the table has
/// just grown.
pub const HIDDEN_ENTRY_BYTES: usize = 88;

/// Keys that anti-matter hides, with the newest component that hides each. Components are numbered
/// from the newest; a key is hidden only in later ones.
#[derive(Debug, Default)]
pub struct Hidden {
    keys: HashMap<Box<[u8]>, usize>,
    bytes: usize,
}

impl Hidden {
    /// Component `source` has anti-matter for the key.
    pub fn add(&mut self, key: &[u8], source: usize) {
        match self.keys.get_mut(key) {
            Some(newest) => *newest = source.min(*newest),
            None => {
                self.bytes += key.len() + HIDDEN_ENTRY_BYTES;
                self.keys.insert(key.into(), source);
            }
        }
    }

    /// Whether nothing is hidden.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether a component newer than `source` hides the key.
    #[inline]
    pub fn hides(&self, key: &[u8], source: usize) -> bool {
        !self.keys.is_empty() && self.keys.get(key).is_some_and(|newest| *newest < source)
    }

    /// Approximate bytes of memory in use.
    pub fn memory_used(&self) -> usize {
        self.bytes
    }
}
