//! Common parts of the spatial indexes: how memory components are written, and components merged.
//!
//! I1 A primary key has at most one live entry at a position over all components.
//! I2 Anti-matter has the rectangle of the entry it deletes, so both lie at the same positions. It
//!    hides entries of its key in strictly older components only.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::ops::ControlFlow;

use terrane_space::Rect;

use super::order::{Head, Order};
use super::{CANCELLATION_STEP, Cancellation, FlushPlan, Index};
use crate::Result;
use crate::curve::Positions;
use crate::disk::curve::CurveBuilder;
use crate::disk::rtree::RTreeBuilder;
use crate::disk::spatial::{SpatialTree, TreeCursor};
use crate::disk::{ComponentMeta, ComponentWriter};
use crate::memory::{Kind, MemoryComponent, MemoryRTree};

/// An index of boxes with primary keys. Its operations have the box in the key and the primary key
/// in the value.
pub trait SpatialIndex: Index {
    /// The positions under which an object is stored, ascending. It has an entry under each of
    /// them.
    fn positions(&self, rect: &Rect) -> Positions;

    /// Whether objects may have several entries.
    fn has_several(&self) -> bool;

    /// Whether its components are trees of boxes, which support searches by distance.
    fn has_boxes(&self) -> bool;

    /// Starts a component. With `has_sequences`, entries keep their begin and end numbers.
    fn builder(&self, writer: ComponentWriter, has_sequences: bool) -> SpatialBuilder;
}

/// Builds a component of a spatial index from entries in the order of (position, key).
#[derive(Debug)]
pub enum SpatialBuilder {
    /// For an R-tree.
    RTree(RTreeBuilder),
    /// For a curve-keyed kind.
    Curve(CurveBuilder),
}

impl SpatialBuilder {
    /// Adds the next entry; `life` is its begin and end number.
    ///
    /// # Errors
    /// When entries are out of order, a rectangle is added to a component of points, or the storage
    /// fails.
    pub fn push(&mut self, position: u64, rect: Rect, key: &[u8], antimatter: bool, life: (u64, u64)) -> Result<()> {
        match self {
            Self::RTree(builder) => builder.push(position, rect, key, antimatter, life),
            Self::Curve(builder) => builder.push(position, rect, key, antimatter, life),
        }
    }

    /// Completes the file. `sequence` is the range of the sequence numbers of the changes inside.
    ///
    /// # Errors
    /// When the storage fails.
    pub fn finish(self, sequence: (u64, u64)) -> Result<ComponentMeta> {
        match self {
            Self::RTree(builder) => builder.finish(sequence),
            Self::Curve(builder) => builder.finish(sequence),
        }
    }
}

/// Writes the entries of a memory component that a flush keeps.
pub(super) fn flush(
    index: &dyn SpatialIndex,
    memory: &MemoryRTree,
    writer: ComponentWriter,
    plan: &FlushPlan,
) -> Result<ComponentMeta> {
    let mut builder = index.builder(writer, !plan.snapshots.is_empty());
    // The entries of one (position, key) are adjacent, oldest first. Of their anti-matter, the
    // oldest of each rectangle is kept: it hides the same entries and is visible earliest.
    let mut group = Group::default();
    memory.drain(&mut |version| {
        let (entry, antimatter) = (&version.entry, version.kind == Kind::AntiMatter);
        group.enter(entry.position, entry.key);
        let keep = if antimatter {
            !plan.is_oldest && group.is_new_antimatter(entry.rect)
        } else {
            version.end == u64::MAX || plan.is_seen(version.begin, version.end)
        };
        if keep {
            let life = (version.begin, if antimatter { u64::MAX } else { version.end });
            builder.push(entry.position, entry.rect, entry.key, antimatter, life)?;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    builder.finish(plan.sequence)
}

/// Writes the entries of components that a merge keeps. The components are newest first, with
/// changes numbered in `sequence`. `None` if it was cancelled.
pub(super) fn merge<T: SpatialTree>(
    mut cursors: Vec<TreeCursor<T>>,
    mut builder: SpatialBuilder,
    sequence: (u64, u64),
    is_oldest: bool,
    cancellation: &Cancellation,
) -> Result<Option<ComponentMeta>> {
    let mut group = Group::default();
    let mut steps = 0u64;
    // Of equal places, the entries of newer components come first. `hidden` then tells whether one
    // of them decides about the key there. Every change of existing entries brings anti-matter. An
    // entry that repeats an existing one without it stems from a load that continued from a later
    // state.
    let mut order = Order::new(&cursors);
    while let Some(first) = order.first() {
        steps += 1;
        if steps.is_multiple_of(CANCELLATION_STEP) && cancellation.is_cancelled() {
            return Ok(None);
        }
        let cursor = &mut cursors[first];
        if let Some(entry) = cursor.entry() {
            group.enter(cursor.position(), &entry.key);
            let keep = if entry.antimatter {
                let new = group.is_new_antimatter(entry.rect);
                group.hide_below(first);
                new && !is_oldest
            } else {
                let live = cursor.life().is_none_or(|(_, end)| end == u64::MAX);
                live && !group.is_hidden(first)
            };
            if keep {
                if !entry.antimatter {
                    group.hide_below(first);
                }
                builder.push(cursor.position(), entry.rect, &entry.key, entry.antimatter, (0, u64::MAX))?;
            }
        }
        cursors[first].advance()?;
        order.moved(&cursors);
    }
    builder.finish(sequence).map(Some)
}

/// The entries of one position and one key.
#[derive(Debug, Default)]
struct Group {
    position: u64,
    key: Vec<u8>,
    started: bool,
    /// The rectangles of its anti-matter, by their corners.
    antimatter: HashSet<[u64; 4]>,
    /// Components behind this one (older ones) are hidden.
    hidden_below: Option<usize>,
}

impl Group {
    /// Notes the place of the next entry.
    fn enter(&mut self, position: u64, key: &[u8]) {
        if !self.started || self.position != position || self.key != key {
            self.started = true;
            self.position = position;
            self.key.clear();
            self.key.extend_from_slice(key);
            self.antimatter.clear();
            self.hidden_below = None;
        }
    }

    fn is_new_antimatter(&mut self, rect: Rect) -> bool {
        // -0.0 and 0.0 are one place.
        self.antimatter.insert([rect.x0, rect.y0, rect.x1, rect.y1].map(|corner| (corner + 0.0).to_bits()))
    }

    fn hide_below(&mut self, component: usize) {
        self.hidden_below = Some(self.hidden_below.map_or(component, |hidden| hidden.min(component)));
    }

    fn is_hidden(&self, component: usize) -> bool {
        self.hidden_below.is_some_and(|hidden| hidden < component)
    }
}

impl<T: SpatialTree> Head for TreeCursor<T> {
    fn is_at_end(&self) -> bool {
        self.entry().is_none()
    }

    fn compare(&self, other: &Self) -> Ordering {
        // Keys are compared only where positions are equal, which is rare.
        self.position().cmp(&other.position()).then_with(|| match (self.entry(), other.entry()) {
            (Some(entry), Some(other)) => entry.key.cmp(&other.key),
            _ => Ordering::Equal,
        })
    }
}
