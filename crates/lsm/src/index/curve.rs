//! The curve-keyed LSM indexes: `dhb`, `dhvb`, `shb` and `sif`.
//!
//! Operations are those of the R-tree ([`super::rtree`]): the key holds the rectangle and the value
//! the primary key. The positions follow from the rectangle, so the log does not depend on the
//! kind.
//!
//! The memory component is that of the R-tree, ordered by (position, key). It drains without a
//! sort, in the order of the disk component. Window searches use its boxes, which is cheap for the
//! few entries in memory.

use std::any::Any;
use std::sync::Arc;

use terrane_space::{CoordinateSystem, Rect};

use super::{
    Cancellation, ComponentCheck, DiskPart, FlushPlan, Index, SpatialBuilder, SpatialIndex, decode_rect, downcast,
    downcast_memory, merged_sequence, spatial,
};
use crate::curve::{Curve, CurveOptions, Positions};
use crate::disk::curve::{CurveBuilder, CurveComponent, CurveCursor};
use crate::disk::{ComponentFile, ComponentMeta, ComponentWriter};
use crate::memory::hilbert::Shapes;
use crate::memory::{ErasedMemory, MemoryRTree};
use crate::operation::Operation;
use crate::{Error, Result};

/// A curve-keyed index.
#[derive(Debug)]
pub struct CurveIndex {
    curve: Curve,
}

impl CurveIndex {
    /// An index of `points`, or of rectangles of any size.
    ///
    /// # Errors
    /// When the kind cannot hold such objects, or the grid is not possible
    /// ([`CurveOptions::check`]).
    pub fn new(options: &CurveOptions, system: CoordinateSystem, points: bool) -> Result<Self> {
        Ok(Self { curve: Curve::new(options, system, points)? })
    }
}

impl DiskPart for CurveComponent {
    fn file(&self) -> &Arc<ComponentFile> {
        CurveComponent::file(self)
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Index for CurveIndex {
    fn kind(&self) -> &'static str {
        self.curve.kind()
    }

    fn new_memory(&self) -> Result<Arc<dyn ErasedMemory>> {
        let shapes = if self.curve.points() { Shapes::Points } else { Shapes::Rects };
        Ok(Arc::new(MemoryRTree::with_representative(shapes, self.curve.representative())?))
    }

    fn apply(&self, memory: &dyn ErasedMemory, operation: &Operation<'_>, sequence: u64) -> Result<()> {
        let memory: &MemoryRTree = downcast_memory(memory)?;
        let rect = decode_rect(operation.key).ok_or_else(|| {
            Error::Invalid(format!("an operation of an index of kind {} has no finite rectangle", self.kind()))
        })?;
        for position in self.curve.positions(&rect) {
            if operation.delete {
                memory.delete(position, rect, operation.value, sequence)?;
            } else {
                memory.insert(position, rect, operation.value, sequence)?;
            }
        }
        Ok(())
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
            cursors.push(CurveCursor::first(downcast::<CurveComponent>(part)?, ())?);
        }
        spatial::merge(cursors, self.builder(writer, false), merged_sequence(parts), is_oldest, cancellation)
    }

    fn open(&self, file: Arc<ComponentFile>) -> Result<Arc<dyn DiskPart>> {
        Ok(Arc::new(CurveComponent::open(file, self.curve.clone())?))
    }

    fn check(&self, part: &Arc<dyn DiskPart>) -> Result<ComponentCheck> {
        downcast::<CurveComponent>(part)?.check()
    }
}

impl SpatialIndex for CurveIndex {
    fn positions(&self, rect: &Rect) -> Positions {
        self.curve.positions(rect)
    }

    fn has_several(&self) -> bool {
        self.curve.has_several()
    }

    fn has_boxes(&self) -> bool {
        false
    }

    fn builder(&self, writer: ComponentWriter, has_sequences: bool) -> SpatialBuilder {
        SpatialBuilder::Curve(CurveBuilder::new(writer, &self.curve, has_sequences))
    }
}
