//! The entries of a spatial index that intersect a window.

use std::ops::ControlFlow;
use std::sync::Arc;

use terrane_space::Rect;

use super::Hidden;
use crate::disk::curve::CurveComponent;
use crate::disk::rtree::{Leaf, RTreeComponent, WindowSearch};
use crate::disk::spatial::{SpatialTree, part_meeting};
use crate::disk::{ComponentFile, Key, ReadGuard};
use crate::index::DiskPart;
use crate::memory::{ErasedMemory, Kind, MemoryRTree};
use crate::partition::{Generation, Version};
use crate::{Error, Result};

/// A component of a spatial index.
#[derive(Clone, Copy)]
pub enum SpatialSource<'v> {
    /// In memory.
    Memory(&'v MemoryRTree),
    /// On disk.
    Disk(DiskSource<'v>),
}

/// A disk component of a spatial index, of any kind.
#[derive(Clone, Copy, Debug)]
pub enum DiskSource<'v> {
    /// An R-tree.
    RTree(&'v RTreeComponent),
    /// A curve-keyed tree.
    Curve(&'v CurveComponent),
}

impl<'v> DiskSource<'v> {
    /// The component of a spatial index.
    ///
    /// # Errors
    /// When the component is of an index that is not spatial.
    pub fn of(part: &'v dyn DiskPart) -> Result<Self> {
        let part = part.as_any();
        if let Some(component) = part.downcast_ref() {
            return Ok(Self::RTree(component));
        }
        match part.downcast_ref() {
            Some(component) => Ok(Self::Curve(component)),
            None => Err(Error::Invalid("a component belongs to an index that is not spatial".into())),
        }
    }

    /// The underlying file.
    pub fn file(&self) -> &'v Arc<ComponentFile> {
        match self {
            Self::RTree(component) => component.file(),
            Self::Curve(component) => component.file(),
        }
    }
}

impl DiskSource<'_> {
    /// The approximate share of its entries in leaves that may meet a window.
    fn part_meeting(&self, window: &Rect, pages_max: usize) -> Result<f64> {
        match self {
            Self::RTree(component) => part_meeting(*component, window, pages_max),
            Self::Curve(component) => part_meeting(*component, window, pages_max),
        }
    }
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

    /// Whether it is a tree of boxes in which every object has one entry, so that searches may
    /// visit its nodes by distance.
    pub fn has_boxes(&self) -> bool {
        match self {
            Self::Memory(memory) => memory.has_one_each(),
            Self::Disk(component) => matches!(component, DiskSource::RTree(_)),
        }
    }
}

/// The components of the spatial index at a slot of partitions: those in memory, then those on
/// disk, and for each partition the newest first. Searches treat them as one index, since a key,
/// and everything that hides it, is in one partition only.
pub fn spatial_sources(versions: &[Arc<Version>], slot: usize) -> Result<Vec<SpatialSource<'_>>> {
    let count = versions.iter().map(|version| version.generations.len() + version.components(slot).len()).sum();
    let mut sources = Vec::with_capacity(count);
    for version in versions {
        version.check_whole(slot)?;
        for memory in version.memories::<MemoryRTree>(slot) {
            let memory = memory?;
            if !memory.is_empty() {
                sources.push(SpatialSource::Memory(memory));
            }
        }
    }
    for part in versions.iter().flat_map(|version| version.components(slot)) {
        sources.push(SpatialSource::Disk(DiskSource::of(&**part)?));
    }
    Ok(sources)
}

/// Receives the box and the key of an entry, and whether it is anti-matter.
pub type SourceVisitor<'a> = dyn FnMut(&Rect, &[u8], bool) -> ControlFlow<()> + 'a;

/// Visits the entries of a component that a snapshot sees in a window, including hidden ones. False
/// if the visitor broke off.
pub fn visit_source(
    source: SpatialSource<'_>,
    window: &Rect,
    snapshot: u64,
    visit: &mut SourceVisitor<'_>,
) -> Result<bool> {
    match source {
        SpatialSource::Memory(memory) => {
            let mut complete = true;
            memory.search(window, snapshot, &mut |version| {
                let flow = visit(&version.entry.rect, version.entry.key, version.kind == Kind::AntiMatter);
                complete &= flow.is_continue();
                flow
            });
            Ok(complete)
        }
        SpatialSource::Disk(DiskSource::RTree(component)) => visit_tree(component, window, snapshot, visit),
        SpatialSource::Disk(DiskSource::Curve(component)) => visit_tree(component, window, snapshot, visit),
    }
}

fn visit_tree<T: SpatialTree>(
    component: &T,
    window: &Rect,
    snapshot: u64,
    visit: &mut SourceVisitor<'_>,
) -> Result<bool> {
    let mut search = WindowSearch::new(window, snapshot);
    search.add(0, component, &ReadGuard::enter())?;
    while search.next_component().is_some() {
        let flow = search.step(component, &ReadGuard::enter(), |leaf, index| {
            visit(&leaf.rect(index), &leaf.keys.get(index), leaf.is_antimatter(index))
        })?;
        if flow.is_break() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The approximate number of entries of all components in a window, by the leaves that meet it.
/// Counts those in memory one by one up to `counted_max`, and assumes the same number for the rest.
/// Reads no leaf, and at most `pages_max` inner pages per component.
pub fn estimate_window(
    sources: &[SpatialSource<'_>],
    window: &Rect,
    counted_max: u64,
    pages_max: usize,
) -> Result<u64> {
    let mut count = 0;
    for source in sources {
        match *source {
            SpatialSource::Memory(_) => {
                let mut counted = 0;
                visit_source(*source, window, u64::MAX, &mut |_, _, _| {
                    counted += 1;
                    if counted < counted_max { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                })?;
                count += counted;
            }
            SpatialSource::Disk(component) => {
                let entries = component.file().meta().statistics.entries as f64;
                count += (component.part_meeting(window, pages_max)? * entries).round() as u64;
            }
        }
    }
    Ok(count)
}

/// An entry that meets the window. Its parts are decoded on access.
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

/// An owner of a component of a spatial index.
pub trait HoldsSource {
    /// The component.
    fn source(&self) -> Result<SpatialSource<'_>>;
}

impl HoldsSource for SpatialSource<'_> {
    fn source(&self) -> Result<SpatialSource<'_>> {
        Ok(*self)
    }
}

/// A component with a count of its own, for searches that outlive a call.
#[derive(Clone, Debug)]
pub enum OwnedSource {
    /// The memory component at a slot of a generation.
    Memory(Arc<Generation>, usize),
    /// A disk component.
    Disk(Arc<dyn DiskPart>),
}

impl HoldsSource for OwnedSource {
    fn source(&self) -> Result<SpatialSource<'_>> {
        Ok(match self {
            Self::Memory(generation, slot) => SpatialSource::Memory(generation.memory_of(*slot)?),
            Self::Disk(part) => SpatialSource::Disk(DiskSource::of(&**part)?),
        })
    }
}

/// Like [`spatial_sources`], with counts of their own.
pub fn owned_spatial_sources(versions: &[Arc<Version>], slot: usize) -> Vec<OwnedSource> {
    let generations = versions.iter().flat_map(|version| &version.generations);
    let memories = generations.filter(|generation| !generation.is_empty_of(slot));
    let disks = versions.iter().flat_map(|version| version.components(slot)).cloned().map(OwnedSource::Disk);
    memories.map(|generation| OwnedSource::Memory(generation.clone(), slot)).chain(disks).collect()
}

/// A search over all components, in steps: a page of a disk component, or a whole memory component,
/// at a time. A component is dropped once it has been searched.
#[derive(Debug)]
pub struct WindowScan<S> {
    /// Newest first, memory components before those on disk; `None` once it has been searched.
    sources: Vec<Option<S>>,
    window: Rect,
    snapshot: u64,
    /// In the components on disk.
    search: WindowSearch,
    /// Number of the current source.
    current: usize,
    begun: bool,
    hidden: Hidden,
    /// Components that were not pruned.
    pub components_searched: u64,
    /// Components whose bounds do not meet the window.
    pub components_pruned: u64,
    /// Entries met, including anti-matter and hidden ones.
    pub entries: u64,
}

impl<S: HoldsSource> WindowScan<S> {
    /// A search that sees what the snapshot sees.
    pub fn new(sources: impl IntoIterator<Item = S>, window: Rect, snapshot: u64) -> Self {
        Self {
            sources: sources.into_iter().map(Some).collect(),
            window,
            snapshot,
            search: WindowSearch::new(&window, snapshot),
            current: 0,
            begun: false,
            hidden: Hidden::default(),
            components_searched: 0,
            components_pruned: 0,
            entries: 0,
        }
    }

    /// Pages of disk components visited.
    pub fn pages(&self) -> u64 {
        self.search.pages
    }

    /// Whether all memory components have been searched.
    pub fn is_past_memory(&self) -> Result<bool> {
        Ok(match self.sources.get(self.current) {
            Some(Some(holder)) => matches!(holder.source()?, SpatialSource::Disk(_)),
            _ => true,
        })
    }

    /// Begins the search in all disk components before the first is searched, so that the waits for
    /// the memory of their leaves overlap.
    fn begin(&mut self, guard: &ReadGuard) -> Result<()> {
        self.begun = true;
        // The search takes first those that are added last.
        for (number, holder) in self.sources.iter().enumerate().rev() {
            let Some(holder) = holder else { continue };
            let meets = match holder.source()? {
                SpatialSource::Memory(memory) => memory.bounds().intersects(&self.window),
                SpatialSource::Disk(DiskSource::RTree(component)) => {
                    self.search.add(number as u32, component, guard)?
                }
                SpatialSource::Disk(DiskSource::Curve(component)) => {
                    self.search.add(number as u32, component, guard)?
                }
            };
            if meets { self.components_searched += 1 } else { self.components_pruned += 1 }
        }
        self.search.look_ahead(
            |number| match self.sources[number as usize].as_ref()?.source() {
                Ok(SpatialSource::Disk(component)) => Some(&**component.file()),
                _ => None,
            },
            guard,
        );
        Ok(())
    }

    /// Visits the next entries that are not hidden. False if there are no more, or the visitor
    /// broke off. Pages are borrowed under the caller's guard, since entering once per leaf would
    /// be noticeable.
    #[inline]
    pub fn advance(&mut self, guard: &ReadGuard, visit: &mut impl FnMut(&Hit<'_>) -> ControlFlow<()>) -> Result<bool> {
        if !self.begun {
            self.begin(guard)?;
        }
        if !self.is_past_memory()? {
            let holder = self.sources[self.current].take();
            let note = self.has_older(self.current);
            let mut broken = false;
            if let Some(SpatialSource::Memory(memory)) = holder.as_ref().map(S::source).transpose()? {
                broken = self.visit_memory(memory, note, visit);
            }
            self.current += 1;
            return Ok(!broken);
        }
        let Some(number) = self.search.next_component().map(|number| number as usize) else { return Ok(false) };
        while self.current < number {
            self.sources[self.current] = None;
            self.current += 1;
        }
        let note = self.has_older(number);
        let Some(SpatialSource::Disk(component)) = self.sources[number].as_ref().map(S::source).transpose()? else {
            return Err(Error::Invalid("a page belongs to a component that was searched before".into()));
        };
        let mut noted = Noted { hidden: &mut self.hidden, entries: &mut self.entries, number, note };
        let flow = match component {
            DiskSource::RTree(component) => self.search.step(component, guard, |leaf, index| {
                if noted.is_live(leaf, index) { visit(&Hit::Disk(leaf, index)) } else { ControlFlow::Continue(()) }
            })?,
            DiskSource::Curve(component) => {
                // A separate closure: the visitor's own would be called through a pointer
                // everywhere.
                let mut visit = |hit: &Hit<'_>| visit(hit);
                step_on_curve(&mut self.search, component, guard, &mut noted, &mut visit)?
            }
        };
        Ok(flow.is_continue())
    }

    /// Whether there are older components than this. Without any, anti-matter of the oldest has
    /// nothing to hide.
    fn has_older(&self, number: usize) -> bool {
        number + 1 < self.sources.len()
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

/// The data that a scan keeps on the entries of a component.
struct Noted<'n> {
    hidden: &'n mut Hidden,
    entries: &'n mut u64,
    /// Number of the component.
    number: usize,
    /// Whether its anti-matter is to be kept.
    note: bool,
}

impl Noted<'_> {
    /// Records an entry; returns whether it is one that is not hidden.
    #[inline(always)]
    fn is_live(&mut self, leaf: &Leaf<'_>, index: usize) -> bool {
        *self.entries += 1;
        if leaf.is_antimatter(index) {
            if self.note {
                self.hidden.add(&leaf.keys.get(index), self.number);
            }
            return false;
        }
        self.hidden.is_empty() || !self.hidden.hides(&leaf.keys.get(index), self.number)
    }
}

/// The next page of a curve-keyed tree. Compiled once for all visitors. Only the search of an
/// R-tree is compiled for each visitor and inlined.
fn step_on_curve(
    search: &mut WindowSearch,
    component: &CurveComponent,
    guard: &ReadGuard,
    noted: &mut Noted<'_>,
    visit: &mut dyn FnMut(&Hit<'_>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>> {
    search.step(component, guard, |leaf, index| {
        if noted.is_live(leaf, index) { visit(&Hit::Disk(leaf, index)) } else { ControlFlow::Continue(()) }
    })
}
