//! The framework's view of an index. A structure with inserts, deletes and bulk loads becomes an
//! LSM index by implementing [`Index`].
//!
//! Memory and disk parts are handled through the type-erased traits here. Searches use the concrete
//! types, since window, range and nearest-neighbour searches have little in common.

mod btree;
mod curve;
mod order;
mod rtree;
mod spatial;

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

pub use btree::BTreeIndex;
pub use curve::CurveIndex;
pub use rtree::{RTreeIndex, decode_rect, encode_rect};
pub use spatial::{SpatialBuilder, SpatialIndex};

use crate::Result;
use crate::disk::{ComponentFile, ComponentMeta, ComponentWriter, Gone, PagePointer};
use crate::memory::ErasedMemory;
use crate::operation::Operation;
use terrane_storage::sync::{AtomicBool, Ordering};

/// A disk component of any kind.
pub trait DiskPart: Any + Send + Sync + Debug {
    /// The underlying file.
    fn file(&self) -> &Arc<ComponentFile>;
    /// For downcasting to the concrete type.
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
    /// For downcasting a borrowed part to the concrete type.
    fn as_any(&self) -> &dyn Any;
}

/// The data that a flush has to keep.
#[derive(Clone, Debug)]
pub struct FlushPlan {
    /// Snapshots below the last sequence number of the component, ascending. Versions that one of
    /// them sees are kept, with their sequence numbers.
    pub snapshots: Vec<u64>,
    /// Whether no older component exists, so that anti-matter has nothing left to hide.
    pub is_oldest: bool,
    /// First and last sequence number of the changes inside.
    pub sequence: (u64, u64),
}

impl FlushPlan {
    /// Whether a snapshot sees a version that lived from `begin` until `end`.
    pub fn is_seen(&self, begin: u64, end: u64) -> bool {
        let first = self.snapshots.partition_point(|snapshot| *snapshot < begin);
        self.snapshots.get(first).is_some_and(|snapshot| *snapshot < end)
    }
}

/// A flag that requests a long merge to stop.
#[derive(Debug, Default)]
pub struct Cancellation(AtomicBool);

impl Cancellation {
    /// Requests a stop.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether a stop was requested.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The result of `check` for a component.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ComponentCheck {
    /// Pages read and verified.
    pub pages: u64,
    /// Live entries.
    pub entries: u64,
    /// Anti-matter entries.
    pub antimatter: u64,
}

/// The output of a merge.
#[derive(Clone, Copy, Debug)]
pub struct MergePlan {
    /// Whether nothing older exists, so that anti-matter is dropped.
    pub is_oldest: bool,
    /// The merge ends at the next place in the order of the entries after this many bytes; `None`
    /// for all of them.
    pub bytes_max: Option<u64>,
}

impl MergePlan {
    /// Of all entries.
    pub fn whole(is_oldest: bool) -> Self {
        Self { is_oldest, bytes_max: None }
    }

    fn is_reached(&self, written: u64) -> bool {
        self.bytes_max.is_some_and(|most| written >= most)
    }
}

/// The result of a merge.
#[derive(Debug)]
pub struct Merged {
    /// The new component.
    pub meta: ComponentMeta,
    /// For each merged component, the part of it that is in the new one; `None` for all of it.
    pub gone: Vec<Option<Gone>>,
}

/// The progress of a merge in one component.
#[derive(Clone, Copy, Debug, Default)]
struct Passed {
    entries: u64,
    antimatter: u64,
}

impl Passed {
    fn count(&mut self, antimatter: bool) {
        if antimatter { self.antimatter += 1 } else { self.entries += 1 }
    }

    /// The part of a component that is gone once this was passed and its cursor is at `place`.
    fn gone(self, part: &Arc<dyn DiskPart>, place: Option<(PagePointer, usize)>) -> Option<Gone> {
        let (leaf, in_leaf) = place?;
        let before = part.file().meta().gone;
        // The first leaf may have lost some before, and where it lies it has them still.
        let lost = before.filter(|gone| gone.leaf == leaf).map_or(0, |gone| gone.in_leaf);
        let (entries, antimatter) = before.map_or((0, 0), |gone| (gone.entries, gone.antimatter));
        Some(Gone {
            leaf,
            in_leaf: lost + in_leaf as u32,
            // What the manifest says of them may be any number.
            entries: entries.saturating_add(self.entries),
            antimatter: antimatter.saturating_add(self.antimatter),
        })
    }
}

/// A kind of index with its options.
pub trait Index: Send + Sync + Debug {
    /// Name of the kind.
    fn kind(&self) -> &'static str;
    /// An empty memory component.
    fn new_memory(&self) -> Result<Arc<dyn ErasedMemory>>;
    /// Applies an operation of the log to a memory component of this index.
    fn apply(&self, memory: &dyn ErasedMemory, operation: &Operation<'_>, sequence: u64) -> Result<()>;
    /// Writes a sealed memory component.
    fn flush(&self, memory: &dyn ErasedMemory, writer: ComponentWriter, plan: &FlushPlan) -> Result<ComponentMeta>;
    /// Merges neighbouring components, newest first, into one, or the front parts of them; `None`
    /// when cancelled.
    fn merge(
        &self,
        parts: &[Arc<dyn DiskPart>],
        writer: ComponentWriter,
        plan: &MergePlan,
        cancellation: &Cancellation,
    ) -> Result<Option<Merged>>;
    /// Opens a component of this index.
    fn open(&self, file: Arc<ComponentFile>) -> Result<Arc<dyn DiskPart>>;
    /// Reads every page of a component and verifies every invariant.
    fn check(&self, part: &Arc<dyn DiskPart>) -> Result<ComponentCheck>;
}

/// Downcasts a part to its kind's type.
pub fn downcast<T: Any + Send + Sync>(part: &Arc<dyn DiskPart>) -> Result<Arc<T>> {
    part.clone()
        .into_any()
        .downcast()
        .map_err(|_| crate::Error::Invalid("a component belongs to another kind of index".into()))
}

/// Downcasts a borrowed part to its kind's type.
pub fn downcast_part<T: Any>(part: &dyn DiskPart) -> Result<&T> {
    part.as_any()
        .downcast_ref()
        .ok_or_else(|| crate::Error::Invalid("a component belongs to another kind of index".into()))
}

/// Downcasts a memory component to its kind's type.
pub fn downcast_memory<T: Any>(memory: &dyn ErasedMemory) -> Result<&T> {
    (memory as &dyn Any)
        .downcast_ref()
        .ok_or_else(|| crate::Error::Invalid("a memory component belongs to another kind of index".into()))
}

/// The sequence range of merged components.
fn merged_sequence(parts: &[Arc<dyn DiskPart>]) -> (u64, u64) {
    let ranges = || parts.iter().map(|part| part.file().meta().statistics.sequence);
    (ranges().map(|range| range.0).min().unwrap_or(0), ranges().map(|range| range.1).max().unwrap_or(0))
}

/// Number of entries between two checks of the cancellation.
const CANCELLATION_STEP: u64 = 4096;
