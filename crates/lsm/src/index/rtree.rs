//! The LSM R-tree: points or rectangles with primary keys, in Hilbert order.
//!
//! An operation's key holds the rectangle (16 bytes for a point: x, y; 32 for a rectangle:
//! x0, y0, x1, y1; little-endian f64) and its value the primary key.

use std::any::Any;
use std::sync::Arc;

use terrane_space::{CoordinateSystem, Rect, hilbert};

use super::{
    Cancellation, ComponentCheck, DiskPart, FlushPlan, Index, SpatialBuilder, SpatialIndex, downcast, downcast_memory,
    merged_sequence, spatial,
};
use crate::curve::Positions;
use crate::disk::rtree::{KIND, RTreeBuilder, RTreeComponent, RTreeCursor};
use crate::disk::{ComponentFile, ComponentMeta, ComponentWriter};
use crate::memory::hilbert::Shapes;
use crate::memory::{ErasedMemory, MemoryRTree};
use crate::operation::Operation;
use crate::{Error, Result};

/// An R-tree index.
#[derive(Debug)]
pub struct RTreeIndex {
    /// Determines the Hilbert order.
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

/// The operation key of a rectangle; for points, only their lower corner.
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
        spatial::flush(self, downcast_memory(memory)?, writer, plan)
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
        spatial::merge(cursors, self.builder(writer, false), merged_sequence(parts), is_oldest, cancellation)
    }

    fn open(&self, file: Arc<ComponentFile>) -> Result<Arc<dyn DiskPart>> {
        Ok(Arc::new(RTreeComponent::open(file)?))
    }

    fn check(&self, part: &Arc<dyn DiskPart>) -> Result<ComponentCheck> {
        downcast::<RTreeComponent>(part)?.check(self.system)
    }
}

impl SpatialIndex for RTreeIndex {
    fn positions(&self, rect: &Rect) -> Positions {
        Positions::from_slice(&[hilbert::position(self.system, rect.center())])
    }

    fn has_several(&self) -> bool {
        false
    }

    fn has_boxes(&self) -> bool {
        true
    }

    fn builder(&self, writer: ComponentWriter, has_sequences: bool) -> SpatialBuilder {
        SpatialBuilder::RTree(RTreeBuilder::new(writer, self.points, has_sequences))
    }
}
