//! The LSM B-tree: the primary index, and the base of every kind that can be keyed by bytes.

use std::any::Any;
use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::order::{Head, Order};
use super::{
    CANCELLATION_STEP, Cancellation, ComponentCheck, DiskPart, FlushPlan, Index, downcast, downcast_memory,
    merged_sequence,
};
use crate::Result;
use crate::disk::btree::{BTreeBuilder, BTreeComponent, BTreeCursor, KIND};
use crate::disk::{ComponentFile, ComponentMeta, ComponentWriter, RecordTimes};
use crate::memory::{ErasedMemory, Kind, MemoryBTree};
use crate::operation::Operation;

/// A B-tree index: operations carry the entry's key and value.
#[derive(Clone, Debug, Default)]
pub struct BTreeIndex {
    /// Whether single keys are searched in it; its components have Bloom filters then.
    pub is_sought: bool,
    /// Where the records have their time, if its values are records.
    pub times: Option<Arc<dyn RecordTimes>>,
}

impl BTreeIndex {
    /// Starts a component. With `has_sequences`, entries keep their begin numbers.
    pub fn builder(&self, writer: ComponentWriter, has_sequences: bool) -> BTreeBuilder {
        let builder = BTreeBuilder::new(writer, has_sequences);
        let builder = if self.is_sought { builder.with_filters() } else { builder };
        match &self.times {
            Some(times) => builder.with_times(times.clone()),
            None => builder,
        }
    }
}

impl DiskPart for BTreeComponent {
    fn file(&self) -> &Arc<ComponentFile> {
        BTreeComponent::file(self)
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The versions of one key, newest first, on their way to disk.
struct Versions<'p> {
    plan: &'p FlushPlan,
    /// Begin number of the next newer version; `u64::MAX` at the newest.
    newer: u64,
}

impl Versions<'_> {
    /// Whether a version has to be written. If older components exist, anti-matter hides entries in
    /// them. If not, it only ends the version before it, which matters to a snapshot that reads it.
    fn keeps(&mut self, begin: u64, antimatter: bool) -> bool {
        let end = std::mem::replace(&mut self.newer, begin);
        let newest = end == u64::MAX;
        let seen = newest || self.plan.is_seen(begin, end);
        let needless = antimatter && self.plan.is_oldest && self.plan.snapshots.is_empty();
        seen && !needless
    }
}

impl Index for BTreeIndex {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn new_memory(&self) -> Result<Arc<dyn ErasedMemory>> {
        Ok(Arc::new(MemoryBTree::new()?))
    }

    fn apply(&self, memory: &dyn ErasedMemory, operation: &Operation<'_>, sequence: u64) -> Result<()> {
        let memory: &MemoryBTree = downcast_memory(memory)?;
        if operation.delete {
            memory.delete(operation.key, sequence)
        } else {
            memory.put(operation.key, operation.value, sequence)
        }
    }

    fn flush(&self, memory: &dyn ErasedMemory, writer: ComponentWriter, plan: &FlushPlan) -> Result<ComponentMeta> {
        let memory: &MemoryBTree = downcast_memory(memory)?;
        let mut builder = self.builder(writer, !plan.snapshots.is_empty());
        let mut last_key: Option<Vec<u8>> = None;
        let mut versions = Versions { plan, newer: u64::MAX };
        memory.drain(&mut |version| {
            let (key, antimatter) = (version.entry.key, version.kind == Kind::AntiMatter);
            if last_key.as_deref() != Some(key) {
                let last = last_key.get_or_insert_default();
                last.clear();
                last.extend_from_slice(key);
                versions.newer = u64::MAX;
            }
            if versions.keeps(version.begin, antimatter) {
                builder.push(key, antimatter, version.begin, version.entry.value)?;
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
            cursors.push(Keyed::new(BTreeCursor::seek(downcast::<BTreeComponent>(part)?, &[])?));
        }
        let mut order = Order::new(&cursors);
        let mut builder = self.builder(writer, false);
        let mut last_key: Option<Vec<u8>> = None;
        let mut steps = 0;
        // Newest component first: of equal keys, the first entry is the newest.
        while let Some(first) = order.first() {
            if steps >= CANCELLATION_STEP {
                steps = 0;
                if cancellation.is_cancelled() {
                    return Ok(None);
                }
            }
            // All entries before those of the other cursors are taken at once, as there are usually
            // several.
            let second = order.second(&cursors).map(|second| (cursors[second].key.as_slice(), second));
            let mut count = 0;
            for entry in cursors[first].cursor.rest_of_leaf() {
                let key: &[u8] = &entry.key;
                if second.is_some_and(|second| (key, first) > second) {
                    break;
                }
                count += 1;
                if last_key.as_deref() == Some(key) {
                    continue;
                }
                let last = last_key.get_or_insert_default();
                last.clear();
                last.extend_from_slice(key);
                if !(entry.antimatter && is_oldest) {
                    builder.push(key, entry.antimatter, entry.begin.unwrap_or(0), entry.value)?;
                }
            }
            steps += count as u64;
            cursors[first].advance_by(count)?;
            order.moved(&cursors);
        }
        builder.finish(merged_sequence(parts)).map(Some)
    }

    fn open(&self, file: Arc<ComponentFile>) -> Result<Arc<dyn DiskPart>> {
        Ok(Arc::new(BTreeComponent::open(file)?))
    }

    fn check(&self, part: &Arc<dyn DiskPart>) -> Result<ComponentCheck> {
        downcast::<BTreeComponent>(part)?.check(self.times.as_ref())
    }
}

/// A cursor with its current key.
struct Keyed {
    cursor: BTreeCursor,
    key: Vec<u8>,
    at_end: bool,
}

impl Keyed {
    fn new(cursor: BTreeCursor) -> Self {
        let mut keyed = Self { cursor, key: Vec::new(), at_end: false };
        keyed.note();
        keyed
    }

    fn note(&mut self) {
        self.key.clear();
        match self.cursor.entry() {
            Some(entry) => self.key.extend_from_slice(&entry.key),
            None => self.at_end = true,
        }
    }

    fn advance_by(&mut self, count: usize) -> Result<()> {
        self.cursor.advance_by(count)?;
        self.note();
        Ok(())
    }
}

impl Head for Keyed {
    fn is_at_end(&self) -> bool {
        self.at_end
    }

    fn compare(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key)
    }
}
