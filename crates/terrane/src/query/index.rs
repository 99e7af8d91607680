//! Candidates from a spatial index, for answers that are read slowly.
//!
//! Each window has its own scan over all components. The memory components of all windows are
//! searched before the first disk component. After that, no sealed memory is held.

use std::ops::ControlFlow;
use std::sync::Arc;

use terrane_lsm::disk::ReadGuard;
use terrane_lsm::partition::Version;
use terrane_lsm::search::{
    HIDDEN_ENTRY_BYTES, Hit, OwnedSource, SpatialSource, WindowScan, owned_spatial_sources, spatial_sources,
    visit_source,
};
use terrane_space::Rect;

use super::explain::Explanation;
use crate::Result;
use crate::key::KeyType;
use crate::snapshot::Snapshot;

/// A search with several windows.
#[derive(Debug)]
pub(crate) struct IndexScan {
    windows: Vec<Rect>,
    /// The unfinished windows, each with its number.
    scans: Vec<(usize, WindowScan<OwnedSource>)>,
    past_memory: bool,
}

impl IndexScan {
    /// A search of the spatial index in a slot.
    pub fn new(snapshot: &Snapshot, versions: &[Arc<Version>], place: usize, windows: &[Rect]) -> Self {
        let scan =
            |window: &Rect| WindowScan::new(owned_spatial_sources(versions, place), *window, snapshot.sequence());
        Self { windows: windows.to_vec(), scans: windows.iter().map(scan).enumerate().collect(), past_memory: false }
    }

    /// Visits the entries of the next leaf or memory component; false at the end. An entry that
    /// meets several windows is visited in the first of them. Finished scans add their work to the
    /// explanation.
    pub fn advance(
        &mut self,
        explanation: &mut Explanation,
        visit: &mut impl FnMut(&Hit<'_>) -> Result<()>,
    ) -> Result<bool> {
        let next = self.next_in_memory()?.unwrap_or(0);
        let Some((number, scan)) = self.scans.get_mut(next) else { return Ok(false) };
        let earlier = &self.windows[..*number];
        let mut failed = None;
        let more = scan.advance(&ReadGuard::enter(), &mut |hit| {
            if !earlier.is_empty() && earlier.iter().any(|window| window.intersects(&hit.rect())) {
                return ControlFlow::Continue(());
            }
            match visit(hit) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        if !more {
            let (_, scan) = self.scans.remove(next);
            add_scan(explanation, &scan);
        }
        Ok(!self.scans.is_empty())
    }

    /// Position of the first scan with memory components left.
    fn next_in_memory(&mut self) -> Result<Option<usize>> {
        if self.past_memory {
            return Ok(None);
        }
        for (place, (_, scan)) in self.scans.iter().enumerate() {
            if !scan.is_past_memory()? {
                return Ok(Some(place));
            }
        }
        self.past_memory = true;
        Ok(None)
    }

    /// Whether all memory components have been searched.
    pub fn is_past_memory(&mut self) -> Result<bool> {
        Ok(self.next_in_memory()?.is_none())
    }

    /// Adds the work of the unfinished scans.
    pub fn explain(&self, explanation: &mut Explanation) {
        self.scans.iter().for_each(|(_, scan)| add_scan(explanation, scan));
    }
}

fn add_scan(explanation: &mut Explanation, scan: &WindowScan<OwnedSource>) {
    explanation.components_searched += scan.components_searched;
    explanation.components_pruned += scan.components_pruned;
    explanation.pages_visited += scan.pages();
    explanation.entries += scan.entries;
}

/// Whether the keys hidden by a spatial index's anti-matter fit in a query's working memory. It
/// assumes that the windows are searched in turn, memory components first.
pub(crate) fn antimatter_fits(
    snapshot: &Snapshot,
    versions: &[Arc<Version>],
    place: usize,
    windows: &[Rect],
) -> Result<bool> {
    antimatter_of_fits(snapshot, &spatial_sources(versions, place)?, windows)
}

/// Like [`antimatter_fits`], for the given components.
pub(crate) fn antimatter_of_fits(snapshot: &Snapshot, sources: &[SpatialSource<'_>], windows: &[Rect]) -> Result<bool> {
    // Anti-matter in the oldest component hides nothing.
    let Some((_, hiding)) = sources.split_last() else { return Ok(true) };
    if !hiding.iter().any(SpatialSource::has_antimatter) {
        return Ok(true);
    }
    let key_type = snapshot.history.newest().key.key_type;
    let available = snapshot.work_bytes() as u64;
    let all = noted_bytes(hiding, windows, &mut |source, _, _| Ok(hidden_bytes(source, key_type)))?;
    // Most deleted records may lie outside the windows.
    Ok(all < available
        || noted_bytes(hiding, windows, &mut |source, window, noted| {
            hidden_bytes_in(source, window, snapshot.sequence(), available.saturating_sub(noted))
        })? < available)
}

/// Maximal memory in bytes of the anti-matter noted at one time. `bytes_of` returns the bytes for a
/// component, a window and the bytes noted so far.
fn noted_bytes(
    hiding: &[SpatialSource<'_>],
    windows: &[Rect],
    bytes_of: &mut dyn FnMut(&SpatialSource<'_>, &Rect, u64) -> Result<u64>,
) -> Result<u64> {
    let (mut in_memory, mut on_disk) = (0, 0);
    for window in windows {
        let mut of_window = 0;
        for source in hiding.iter().filter(|source| source.has_antimatter() && source.bounds().intersects(window)) {
            let bytes = bytes_of(source, window, in_memory + of_window)?;
            if matches!(source, SpatialSource::Memory(_)) { in_memory += bytes } else { of_window += bytes }
        }
        on_disk = of_window.max(on_disk);
    }
    Ok(in_memory + on_disk)
}

/// Memory in bytes for a component's anti-matter in a window. Stops counting once it exceeds
/// `bytes_max`.
fn hidden_bytes_in(source: &SpatialSource<'_>, window: &Rect, snapshot: u64, bytes_max: u64) -> Result<u64> {
    let mut bytes = 0;
    visit_source(*source, window, snapshot, &mut |_, key, antimatter| {
        if antimatter {
            bytes += (HIDDEN_ENTRY_BYTES + key.len()) as u64;
        }
        if bytes > bytes_max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(bytes)
}

/// Approximate memory in bytes for a component's anti-matter.
fn hidden_bytes(source: &SpatialSource<'_>, key_type: KeyType) -> u64 {
    use terrane_lsm::memory::ErasedMemory;
    let (antimatter, entries, bytes) = match source {
        SpatialSource::Memory(memory) => {
            (memory.anti_matter_len() as u64, memory.len() as u64, memory.memory_used() as u64)
        }
        SpatialSource::Disk(component) => {
            let meta = component.file().meta();
            (meta.statistics.antimatter, meta.statistics.antimatter + meta.statistics.entries, meta.file_len)
        }
    };
    // An entry is larger than its key.
    let key_bytes = match key_type {
        KeyType::Int64 | KeyType::UInt64 => 8,
        KeyType::Uuid => 16,
        KeyType::Utf8 | KeyType::Binary => bytes / entries.max(1),
    };
    antimatter.saturating_mul(HIDDEN_ENTRY_BYTES as u64 + key_bytes)
}
