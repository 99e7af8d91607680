//! One file: its durable part, and the changes that wait for a sync.
//!
//! The disk writes whole sectors of the page cache, at any time and in any order. Each sector
//! therefore holds either its durable bytes or its state after one of the waiting writes,
//! independently of all others. The length is on disk on its own: durable, or as after one of its
//! changes. A truncation removes the bytes beyond it; extending adds zeros.

use std::ops::Range;
use std::sync::Arc;

use super::stores::{Store, Stores};
use crate::memory::content::Content;

/// The unit that the disk writes as a whole.
pub(super) const SECTOR_LENGTH: u64 = 512;

/// A write or change of length that waits for a sync.
#[derive(Clone, Debug)]
pub(super) struct DataChange {
    /// Number of its event.
    pub(super) order: i64,
    pub(super) write: Option<Write>,
    pub(super) length: Option<LengthChange>,
    /// A sync failed since. No later one makes these bytes durable.
    forgotten: bool,
}

/// Bytes written.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) offset: u64,
    pub(super) bytes: Arc<[u8]>,
}

/// A length before and after.
#[derive(Clone, Copy, Debug)]
pub(super) struct LengthChange {
    pub(super) before: u64,
    pub(super) after: u64,
}

/// A file at some point of the history.
#[derive(Clone, Debug)]
pub(super) struct FileState {
    /// The names that it has had, for messages, each with the number of its event.
    names: Vec<(i64, Arc<str>)>,
    pub(super) durable: Arc<Content>,
    pub(super) pending: Vec<DataChange>,
    /// Stores to the file's mapping. They count as later than all waiting writes, since a mapped
    /// file is not written by calls.
    pub(super) stores: Stores,
    length: u64,
}

/// Sectors that waiting writes touch, in order, each with a slot.
#[derive(Debug)]
pub(super) struct Touched {
    pub(super) sectors: Vec<u64>,
    /// Per change: the slots of its write, empty if it has none.
    pub(super) slots: Vec<Range<usize>>,
}

/// The selection of waiting changes that a disk image holds.
#[derive(Debug)]
pub(super) struct Selection {
    /// For each slot: how many of the changes, counted from the first, its sector holds.
    pub(super) versions: Vec<usize>,
    /// How many of the changes, counted from the first, the length includes.
    pub(super) length_version: usize,
}

impl Write {
    pub(super) fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }

    fn sectors(&self) -> Range<u64> {
        self.offset / SECTOR_LENGTH..self.end().div_ceil(SECTOR_LENGTH)
    }

    /// The part inside a byte range.
    fn part(&self, start: u64, end: u64) -> (u64, &[u8]) {
        let start = start.clamp(self.offset, self.end());
        let end = end.clamp(start, self.end());
        (start, &self.bytes[(start - self.offset) as usize..(end - self.offset) as usize])
    }
}

impl LengthChange {
    fn is_cut(self) -> bool {
        self.after < self.before
    }
}

impl FileState {
    pub(super) fn new(name: Arc<str>, durable: Arc<Content>) -> Self {
        let names = vec![(i64::MIN, name)];
        Self { names, length: durable.length(), durable, pending: Vec::new(), stores: Stores::default() }
    }

    pub(super) fn rename(&mut self, order: i64, name: Arc<str>) {
        self.names.push((order, name));
    }

    /// Its name at the time of an event.
    pub(super) fn name_at(&self, order: i64) -> &str {
        let later = self.names.partition_point(|(given, _)| *given < order);
        // The first name counts from the beginning.
        later.checked_sub(1).map_or("", |latest| &self.names[latest].1)
    }

    /// Whether a power loss can take anything away.
    pub(super) fn is_waiting(&self) -> bool {
        !self.pending.is_empty() || !self.stores.waiting.is_empty()
    }

    /// Makes the stores durable that `take` returns for the durable length.
    pub(super) fn persist(&mut self, take: impl FnOnce(&mut Stores, u64) -> Vec<Store>) {
        let stores = take(&mut self.stores, self.durable.length());
        if !stores.is_empty() {
            let durable = Arc::make_mut(&mut self.durable);
            stores.iter().for_each(|store| store.apply(durable));
        }
    }

    pub(super) fn write(&mut self, order: i64, offset: u64, bytes: Arc<[u8]>) {
        let write = Write { offset, bytes };
        let after = self.length.max(write.end());
        let length = self.change_length(after);
        self.pending.push(DataChange { order, write: Some(write), length, forgotten: false });
    }

    pub(super) fn set_length(&mut self, order: i64, after: u64) {
        self.stores.cut(after);
        let length = self.change_length(after);
        if length.is_some() {
            self.pending.push(DataChange { order, write: None, length, forgotten: false });
        }
    }

    pub(super) fn allocate(&mut self, order: i64, length: u64) {
        self.set_length(order, self.length.max(length));
    }

    fn change_length(&mut self, after: u64) -> Option<LengthChange> {
        let before = std::mem::replace(&mut self.length, after);
        (before != after).then_some(LengthChange { before, after })
    }

    /// Makes the length durable, and all bytes except those that a failed sync has forgotten.
    pub(super) fn sync(&mut self) {
        if !self.pending.is_empty() {
            self.sync_pending();
        }
        self.persist(|stores, _| stores.sync());
    }

    fn sync_pending(&mut self) {
        let count = self.pending.len();
        let touched = self.touched();
        let mut versions = vec![0; touched.sectors.len()];
        for (change, slots) in self.pending.iter().zip(&touched.slots) {
            if !change.forgotten {
                versions[slots.clone()].fill(count);
            }
        }
        let selection = Selection { versions, length_version: count };
        let durable = self.content(&touched, &selection);
        self.pending = self.still_forgotten(&touched, &selection.versions);
        self.durable = Arc::new(durable);
    }

    /// Marks the waiting changes, so that no later sync makes them durable.
    pub(super) fn forget_unsynced(&mut self) {
        for change in &mut self.pending {
            change.forgotten = true;
        }
        self.stores.forget_unsynced();
    }

    /// The rest of forgotten writes after other sectors and the length have become durable.
    fn still_forgotten(&self, touched: &Touched, versions: &[usize]) -> Vec<DataChange> {
        let mut rest = Vec::new();
        for (index, change) in self.pending.iter().enumerate().filter(|(_, change)| change.forgotten) {
            let Some(write) = &change.write else { continue };
            let cuts = self.pending[index + 1..].iter().filter_map(|later| later.length);
            let end = cuts.map(|length| length.after).min().unwrap_or(u64::MAX);
            let slots = touched.slots[index].clone();
            for run in runs(slots, |slot| versions[slot] == 0) {
                let (start, stop) = byte_range(&touched.sectors[run]);
                let (offset, bytes) = write.part(start, stop.min(end));
                if !bytes.is_empty() {
                    let write = Some(Write { offset, bytes: bytes.into() });
                    rest.push(DataChange { order: change.order, write, length: None, forgotten: true });
                }
            }
        }
        rest
    }

    pub(super) fn touched(&self) -> Touched {
        let mut sectors: Vec<u64> =
            self.pending.iter().filter_map(|change| change.write.as_ref()).flat_map(Write::sectors).collect();
        sectors.sort_unstable();
        sectors.dedup();
        let slots = self
            .pending
            .iter()
            .map(|change| match &change.write {
                None => 0..0,
                // All sectors of a write are in the list, so they are neighbours in it.
                Some(write) => {
                    let first = sectors.partition_point(|&sector| sector < write.sectors().start);
                    first..first + write.sectors().count()
                }
            })
            .collect();
        Touched { sectors, slots }
    }

    /// The content of the file on a disk with this selection of the waiting changes.
    pub(super) fn content(&self, touched: &Touched, selection: &Selection) -> Content {
        let mut content = (*self.durable).clone();
        let mut length = content.length();
        for (index, change) in self.pending.iter().enumerate() {
            if let Some(cut) = change.length.filter(|length| length.is_cut()) {
                if index < selection.length_version {
                    content.set_length(cut.after);
                } else {
                    // The truncation itself is lost, but sectors written after it were cut in the
                    // page cache.
                    let first = touched.sectors.partition_point(|sector| (sector + 1) * SECTOR_LENGTH <= cut.after);
                    for slot in (first..touched.sectors.len()).filter(|&slot| selection.versions[slot] > index) {
                        let sector = touched.sectors[slot] * SECTOR_LENGTH;
                        let start = sector.max(cut.after);
                        content.clear(start, (sector + SECTOR_LENGTH - start) as usize);
                    }
                }
            }
            if let Some(write) = &change.write {
                for run in runs(touched.slots[index].clone(), |slot| selection.versions[slot] > index) {
                    let (start, end) = byte_range(&touched.sectors[run]);
                    let (offset, bytes) = write.part(start, end);
                    content.write(bytes, offset);
                }
            }
            if let Some(change) = change.length.filter(|_| index < selection.length_version) {
                length = change.after;
            }
        }
        content.set_length(length);
        content
    }
}

/// Runs of neighbouring slots that satisfy a condition.
fn runs(slots: Range<usize>, holds: impl Fn(usize) -> bool) -> impl Iterator<Item = Range<usize>> {
    let mut next = slots.start;
    std::iter::from_fn(move || {
        let start = (next..slots.end).find(|&slot| holds(slot))?;
        next = (start..slots.end).find(|&slot| !holds(slot)).unwrap_or(slots.end);
        Some(start..next)
    })
}

/// The bytes that neighbouring sectors cover.
fn byte_range(sectors: &[u64]) -> (u64, u64) {
    match (sectors.first(), sectors.last()) {
        (Some(first), Some(last)) => (first * SECTOR_LENGTH, (last + 1) * SECTOR_LENGTH),
        _ => (0, 0),
    }
}
