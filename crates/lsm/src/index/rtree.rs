//! The LSM R-tree: points or rectangles with primary keys, in Hilbert order.
//!
//! An operation's key holds the rectangle (16 bytes for a point: x, y; 32 for a rectangle:
//! x0, y0, x1, y1; little-endian f64) and its value the primary key.
//!
//! I1 A primary key has at most one live entry over all components.
//! I2 Anti-matter carries the rectangle of the entry it deletes, so both lie at the same
//!    place of the curve; it hides entries of its key in strictly older components only.

use std::any::Any;
use std::cmp::Ordering;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use terrane_space::{CoordinateSystem, Rect, hilbert};

use super::order::{Head, Order};
use super::{
    CANCELLATION_STEP, Cancellation, ComponentCheck, DiskPart, FlushPlan, Index, downcast, downcast_memory,
    merged_sequence,
};
use crate::disk::rtree::{KIND, RTreeBuilder, RTreeComponent, RTreeCursor};
use crate::disk::{ComponentFile, ComponentMeta, ComponentWriter};
use crate::memory::hilbert::Shapes;
use crate::memory::{ErasedMemory, Kind, MemoryComponent, MemoryRTree};
use crate::operation::Operation;
use crate::{Error, Result};

/// An R-tree index.
#[derive(Debug)]
pub struct RTreeIndex {
    /// Decides on the Hilbert order.
    pub system: CoordinateSystem,
    /// Whether all entries are points, which are stored as points.
    pub points: bool,
}

impl DiskPart for RTreeComponent {
    fn file(&self) -> &Arc<ComponentFile> {
        RTreeComponent::file(self)
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The operation key of a rectangle; points take their lower corner only.
pub fn encode_rect(rect: &Rect, points: bool, out: &mut Vec<u8>) {
    let corners = [rect.x0, rect.y0, rect.x1, rect.y1];
    for value in &corners[..if points { 2 } else { 4 }] {
        out.extend_from_slice(&value.to_le_bytes());
    }
}

/// The rectangle of an operation's key.
pub fn decode_rect(key: &[u8]) -> Option<Rect> {
    let corner = |place: usize| Some(f64::from_le_bytes(key.get(8 * place..8 * place + 8)?.try_into().ok()?));
    let rect = match key.len() {
        16 => Rect { x0: corner(0)?, y0: corner(1)?, x1: corner(0)?, y1: corner(1)? },
        32 => Rect { x0: corner(0)?, y0: corner(1)?, x1: corner(2)?, y1: corner(3)? },
        _ => return None,
    };
    (rect.is_finite() && !rect.is_empty()).then_some(rect)
}

impl Index for RTreeIndex {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn new_memory(&self) -> Result<Arc<dyn ErasedMemory>> {
        Ok(Arc::new(MemoryRTree::new(if self.points { Shapes::Points } else { Shapes::Rects })?))
    }

    fn apply(&self, memory: &dyn ErasedMemory, operation: &Operation<'_>, sequence: u64) -> Result<()> {
        let memory: &MemoryRTree = downcast_memory(memory)?;
        let rect = decode_rect(operation.key)
            .ok_or_else(|| Error::Invalid("an operation of an R-tree has no finite rectangle".into()))?;
        let position = hilbert::position(self.system, rect.center());
        if operation.delete {
            memory.delete(position, rect, operation.value, sequence)
        } else {
            memory.insert(position, rect, operation.value, sequence)
        }
    }

    fn flush(&self, memory: &dyn ErasedMemory, writer: ComponentWriter, plan: &FlushPlan) -> Result<ComponentMeta> {
        let memory: &MemoryRTree = downcast_memory(memory)?;
        let has_sequences = !plan.snapshots.is_empty();
        let mut builder = RTreeBuilder::new(writer, self.points, has_sequences);
        // Entries of one (position, key) come together, oldest first; of their anti-matter the
        // oldest of each rectangle is kept, as it hides the same and is seen the earliest.
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
                builder.push(
                    entry.position,
                    entry.rect,
                    entry.key,
                    antimatter,
                    (version.begin, if antimatter { u64::MAX } else { version.end }),
                )?;
            }
            Ok(ControlFlow::Continue(()))
        })?;
        builder.finish(plan.sequence)
    }

    fn merge(
        &self,
        parts: &[Arc<dyn DiskPart>],
        writer: ComponentWriter,
        is_oldest: bool,
        cancellation: &Cancellation,
    ) -> Result<Option<ComponentMeta>> {
        let mut cursors = Vec::with_capacity(parts.len());
        for part in parts {
            cursors.push(RTreeCursor::first(downcast::<RTreeComponent>(part)?, self.system)?);
        }
        let mut builder = RTreeBuilder::new(writer, self.points, false);
        let mut group = Group::default();
        let mut steps = 0u64;
        // Of equal places, the entries of newer components come first: `hidden` then tells
        // whether one of them was anti-matter.
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
                    builder.push(cursor.position(), entry.rect, &entry.key, entry.antimatter, (0, u64::MAX))?;
                }
            }
            cursors[first].advance()?;
            order.moved(&cursors);
        }
        builder.finish(merged_sequence(parts)).map(Some)
    }

    fn open(&self, file: Arc<ComponentFile>) -> Result<Arc<dyn DiskPart>> {
        Ok(Arc::new(RTreeComponent::open(file)?))
    }

    fn check(&self, part: &Arc<dyn DiskPart>) -> Result<ComponentCheck> {
        downcast::<RTreeComponent>(part)?.check(self.system)
    }
}

/// The entries of one place of the curve and one key.
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
    /// Notes where the next entry lies.
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

impl Head for RTreeCursor {
    fn is_at_end(&self) -> bool {
        self.entry().is_none()
    }

    fn compare(&self, other: &Self) -> Ordering {
        // Keys are looked at where positions are equal, which is seldom.
        self.position().cmp(&other.position()).then_with(|| match (self.entry(), other.entry()) {
            (Some(entry), Some(other)) => entry.key.cmp(&other.key),
            _ => Ordering::Equal,
        })
    }
}
