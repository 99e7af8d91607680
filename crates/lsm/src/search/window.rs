//! The entries of a spatial index that intersect a window.

use std::ops::ControlFlow;
use std::sync::Arc;

use terrane_space::Rect;

use super::Hidden;
use crate::Result;
use crate::disk::rtree::{Leaf, RTreeComponent, WindowSearch};
use crate::disk::{Key, ReadGuard};
use crate::index::{DiskPart, downcast_memory, downcast_part};
use crate::memory::{ErasedMemory, Kind, MemoryRTree};
use crate::partition::{Generation, Version};

/// A component of a spatial index.
#[derive(Clone, Copy)]
pub enum SpatialSource<'v> {
    /// In memory.
    Memory(&'v MemoryRTree),
    /// On disk.
    Disk(&'v RTreeComponent),
}

impl std::fmt::Debug for SpatialSource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Memory(memory) => write!(f, "memory component of {} entries", memory.len()),
            Self::Disk(component) => f.write_str(&component.file().name()),
        }
    }
}

impl SpatialSource<'_> {
    /// A box around everything inside.
    pub fn bounds(&self) -> Rect {
        match self {
            Self::Memory(memory) => memory.bounds(),
            Self::Disk(component) => component.file().meta().statistics.rect(),
        }
    }

    /// Whether it has anti-matter.
    pub fn has_antimatter(&self) -> bool {
        match self {
            Self::Memory(memory) => memory.anti_matter_len() > 0,
            Self::Disk(component) => component.file().meta().statistics.antimatter > 0,
        }
    }
}

/// The components of the R-tree at a place of the partition, newest first.
pub fn spatial_sources(version: &Version, place: usize) -> Result<Vec<SpatialSource<'_>>> {
    version.check_whole(place)?;
    let mut sources = Vec::with_capacity(version.generations.len() + version.components[place].len());
    for generation in &version.generations {
        let memory: &MemoryRTree = downcast_memory(generation.memory(place))?;
        if !memory.is_empty() {
            sources.push(SpatialSource::Memory(memory));
        }
    }
    for part in &version.components[place] {
        sources.push(SpatialSource::Disk(downcast_part(&**part)?));
    }
    Ok(sources)
}

/// An entry that meets the window; its parts are decoded when asked for.
#[derive(Debug)]
pub enum Hit<'a> {
    /// Of a memory component.
    Memory(Rect, &'a [u8]),
    /// Of a leaf of a disk component.
    Disk(&'a Leaf<'a>, usize),
}

impl<'a> Hit<'a> {
    /// The entry's rectangle.
    #[inline]
    pub fn rect(&self) -> Rect {
        match self {
            Self::Memory(rect, _) => *rect,
            Self::Disk(leaf, index) => leaf.rect(*index),
        }
    }

    /// The primary key.
    #[inline]
    pub fn key(&self) -> Key<'a> {
        match self {
            Self::Memory(_, key) => Key::Bytes(key),
            Self::Disk(leaf, index) => leaf.keys.get(*index),
        }
    }
}

/// Something that holds a component of a spatial index.
pub trait HoldsSource {
    /// The component.
    fn source(&self) -> Result<SpatialSource<'_>>;
}

impl HoldsSource for SpatialSource<'_> {
    fn source(&self) -> Result<SpatialSource<'_>> {
        Ok(*self)
    }
}

/// A component that is kept by its own count, for searches that outlive a call.
#[derive(Clone, Debug)]
pub enum OwnedSource {
    /// The memory component at a place of a generation.
    Memory(Arc<Generation>, usize),
    /// A disk component.
    Disk(Arc<dyn DiskPart>),
}

impl HoldsSource for OwnedSource {
    fn source(&self) -> Result<SpatialSource<'_>> {
        Ok(match self {
            Self::Memory(generation, place) => SpatialSource::Memory(downcast_memory(generation.memory(*place))?),
            Self::Disk(part) => SpatialSource::Disk(downcast_part(&**part)?),
        })
    }
}

/// As [`spatial_sources`], kept by their own counts.
pub fn owned_spatial_sources(version: &Version, place: usize) -> Vec<OwnedSource> {
    let memories = version.generations.iter().filter(|generation| !generation.memory(place).is_empty());
    let disks = version.components[place].iter().cloned().map(OwnedSource::Disk);
    memories.map(|generation| OwnedSource::Memory(generation.clone(), place)).chain(disks).collect()
}

/// A search over all components, in pieces: a leaf of a disk component, or a whole memory
/// component, at a time. A component is let go of when it has been searched.
#[derive(Debug)]
pub struct WindowScan<S> {
    /// Those still to be searched, the next one last, with the searches of disk components.
    sources: Vec<(S, Option<WindowSearch>)>,
    window: Rect,
    snapshot: u64,
    current: usize,
    begun: bool,
    hidden: Hidden,
    /// Components that were not pruned.
    pub components_searched: u64,
    /// Components whose bounds do not meet the window.
    pub components_pruned: u64,
    /// Pages of disk components visited.
    pub pages: u64,
    /// Entries met, anti-matter and hidden ones included.
    pub entries: u64,
}

impl<S: HoldsSource> WindowScan<S> {
    /// A search that sees what the snapshot sees.
    pub fn new(sources: Vec<S>, window: Rect, snapshot: u64) -> Self {
        Self {
            sources: sources.into_iter().rev().map(|source| (source, None)).collect(),
            window,
            snapshot,
            current: 0,
            begun: false,
            hidden: Hidden::default(),
            components_searched: 0,
            components_pruned: 0,
            pages: 0,
            entries: 0,
        }
    }

    /// Whether all memory components have been searched.
    pub fn is_past_memory(&self) -> Result<bool> {
        Ok(match self.sources.last() {
            Some((source, _)) => matches!(source.source()?, SpatialSource::Disk(_)),
            None => true,
        })
    }

    /// Begins the search in all disk components before the first is searched, so that the
    /// waits for the memory of their leaves are one.
    fn begin(&mut self, guard: &ReadGuard) -> Result<()> {
        self.begun = true;
        for (holder, search) in &mut self.sources {
            let source = holder.source()?;
            if !source.bounds().intersects(&self.window) {
                self.components_pruned += 1;
                continue;
            }
            self.components_searched += 1;
            if let SpatialSource::Disk(component) = source {
                let search = search.insert(WindowSearch::new(component, &self.window, self.snapshot));
                search.descend(component, guard)?;
                self.pages += search.pages;
            }
        }
        for (holder, search) in &self.sources {
            if let (SpatialSource::Disk(component), Some(search)) = (holder.source()?, search) {
                search.prefetch(component, guard);
            }
        }
        Ok(())
    }

    /// Visits the next entries that are not hidden. False when there are no more, or when the
    /// visitor broke off.
    #[inline]
    pub fn advance(&mut self, visit: &mut impl FnMut(&Hit<'_>) -> ControlFlow<()>) -> Result<bool> {
        let guard = ReadGuard::enter();
        if !self.begun {
            self.begin(&guard)?;
        }
        while let Some((holder, search)) = self.sources.pop() {
            // What anti-matter of the oldest component would hide does not exist.
            let note = !self.sources.is_empty();
            match (holder.source()?, search) {
                (SpatialSource::Memory(memory), _) => {
                    let broken = self.visit_memory(memory, note, visit);
                    self.current += 1;
                    return Ok(!broken);
                }
                (SpatialSource::Disk(_), None) => {}
                (SpatialSource::Disk(component), Some(mut search)) => {
                    let (before, mut broken) = (search.pages, false);
                    let more = search.next_leaf(component, &guard, &mut |leaf, index| {
                        self.entries += 1;
                        if leaf.is_antimatter(index) {
                            if note {
                                self.hidden.add(&leaf.keys.get(index), self.current);
                            }
                        } else if (self.hidden.is_empty() || !self.hidden.hides(&leaf.keys.get(index), self.current))
                            && visit(&Hit::Disk(leaf, index)).is_break()
                        {
                            broken = true;
                            return ControlFlow::Break(());
                        }
                        ControlFlow::Continue(())
                    })?;
                    self.pages += search.pages - before;
                    if more {
                        self.sources.push((holder, Some(search)));
                        return Ok(true);
                    }
                    if broken {
                        return Ok(false);
                    }
                }
            }
            self.current += 1;
        }
        Ok(false)
    }

    /// Whether the visitor broke off.
    fn visit_memory(
        &mut self,
        memory: &MemoryRTree,
        note: bool,
        visit: &mut impl FnMut(&Hit<'_>) -> ControlFlow<()>,
    ) -> bool {
        let (current, mut broken) = (self.current, false);
        memory.search(&self.window, self.snapshot, &mut |version| {
            self.entries += 1;
            let entry = version.entry;
            match version.kind {
                Kind::AntiMatter => {
                    if note {
                        self.hidden.add(entry.key, current);
                    }
                }
                Kind::Put => {
                    if !self.hidden.hides(entry.key, current) && visit(&Hit::Memory(entry.rect, entry.key)).is_break() {
                        broken = true;
                        return ControlFlow::Break(());
                    }
                }
            }
            ControlFlow::Continue(())
        });
        broken
    }
}
