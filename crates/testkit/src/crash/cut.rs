//! A point at which the power fails, and the changes that may then be kept or lost.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use terrane_storage::event::FileId;

use super::choice::Choice;
use super::data::{DataChange, FileState, SECTOR_LENGTH, Selection, Touched};
use super::names::{NameEffect, Names, retain_reachable};
use super::state::State;
use crate::memory::content::Content;

/// Which combinations of changes of names a power loss may leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameOrder {
    /// Any subset of the waiting changes; POSIX promises no more.
    #[default]
    AnySubset,
    /// The first few of the waiting changes, as file systems with a journal keep them.
    Prefix,
}

/// One waiting change, with the bits of a [`Choice`] that decide it.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) kind: UnitKind,
    /// For a write: its sectors, then its change of the length if there is one.
    pub(super) bits: Range<usize>,
    order: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnitKind {
    /// Index into the waiting changes of names.
    Name(usize),
    /// A file and an index into its waiting changes.
    Data(FileId, usize),
    /// A mapped file and an index into its waiting stores.
    Store(FileId, usize),
}

/// The state at a cut, split into units that can be kept or lost independently.
#[derive(Debug)]
pub(super) struct Cut {
    pub(super) state: Arc<State>,
    /// The boot of the machine that the crash ends or interrupts.
    pub(super) boot: u128,
    /// In the order of their events.
    pub(super) units: Vec<Unit>,
    pub(super) bits: usize,
    files: BTreeMap<FileId, FileCut>,
}

#[derive(Debug)]
struct FileCut {
    touched: Touched,
    /// The unit of each waiting change.
    units: Vec<usize>,
    /// The unit of each waiting store.
    stores: Vec<usize>,
}

impl Cut {
    pub(super) fn new(state: Arc<State>, boot: u128) -> Self {
        let names = state.name_changes.iter().enumerate().map(|(index, change)| Unit {
            kind: UnitKind::Name(index),
            bits: 0..1,
            order: change.order,
        });
        let mut units: Vec<Unit> = names.collect();
        let mut files = BTreeMap::new();
        for (&id, file) in state.files.iter().filter(|(_, file)| file.is_waiting()) {
            let touched = file.touched();
            for (index, change) in file.pending.iter().enumerate() {
                let bits = touched.slots[index].len() + usize::from(change.length.is_some());
                units.push(Unit { kind: UnitKind::Data(id, index), bits: 0..bits, order: change.order });
            }
            for (index, store) in file.stores.waiting.iter().enumerate() {
                units.push(Unit { kind: UnitKind::Store(id, index), bits: 0..1, order: store.order });
            }
            let stores = vec![0; file.stores.waiting.len()];
            files.insert(id, FileCut { touched, units: vec![0; file.pending.len()], stores });
        }
        units.sort_by_key(|unit| unit.order);
        let mut bits = 0;
        for (index, unit) in units.iter_mut().enumerate() {
            unit.bits = bits..bits + unit.bits.end;
            bits = unit.bits.end;
            match unit.kind {
                UnitKind::Name(_) => {}
                UnitKind::Data(file, change) => {
                    files.entry(file).and_modify(|file: &mut FileCut| file.units[change] = index);
                }
                UnitKind::Store(file, store) => {
                    files.entry(file).and_modify(|file| file.stores[store] = index);
                }
            }
        }
        Self { state, boot, units, bits, files }
    }

    /// Adapts a choice to the given order of names, and to the order of the stores to each line:
    /// everything behind a lost one is lost.
    pub(super) fn normalise(&self, choice: &mut Choice, order: NameOrder) {
        let mut lost_lines = BTreeSet::new();
        for unit in &self.units {
            let UnitKind::Store(file, index) = unit.kind else { continue };
            let stores = &self.state.files[&file].stores;
            let line = (file, stores.unit(&stores.waiting[index]));
            if lost_lines.contains(&line) {
                choice.set(unit.bits.clone(), false);
            } else if !choice.keeps(unit.bits.start) {
                lost_lines.insert(line);
            }
        }
        if order == NameOrder::AnySubset {
            return;
        }
        let mut lost = false;
        for unit in self.units.iter().filter(|unit| matches!(unit.kind, UnitKind::Name(_))) {
            lost |= !choice.keeps(unit.bits.start);
            choice.set(unit.bits.clone(), !lost);
        }
    }

    /// Files with waiting changes, and the sectors that these touch.
    pub(super) fn touched(&self) -> impl Iterator<Item = (FileId, &[u64])> {
        self.files.iter().map(|(id, file)| (*id, file.touched.sectors.as_slice()))
    }

    /// The bits of changes of names and lengths, or those of written sectors.
    pub(super) fn class_bits(&self, metadata: bool) -> impl Iterator<Item = usize> {
        self.units.iter().flat_map(move |unit| {
            let sectors = match unit.kind {
                UnitKind::Name(_) => unit.bits.start..unit.bits.start,
                UnitKind::Store(..) => unit.bits.clone(),
                UnitKind::Data(file, index) => {
                    let sectors = self.files.get(&file).map_or(0, |file| file.touched.slots[index].len());
                    unit.bits.start..unit.bits.start + sectors
                }
            };
            if metadata { sectors.end..unit.bits.end } else { sectors }
        })
    }

    /// The bytes of the line or page of a waiting store.
    pub(super) fn store_line(&self, id: FileId, index: usize) -> Option<Range<u64>> {
        let stores = &self.state.files.get(&id)?.stores;
        Some(stores.line(stores.waiting.get(index)?))
    }

    /// Offsets of the words of a file that waiting stores touch.
    pub(super) fn stored_words(&self, id: FileId) -> impl Iterator<Item = u64> {
        self.state.files.get(&id).into_iter().flat_map(|file| file.stores.waiting.iter().map(|store| store.offset))
    }

    /// The remaining names.
    pub(super) fn names(&self, choice: &Choice) -> Arc<Names> {
        let mut names = self.state.names.clone();
        for unit in &self.units {
            if let UnitKind::Name(index) = unit.kind
                && choice.keeps(unit.bits.start)
            {
                self.state.name_changes[index].effect.apply(Arc::make_mut(&mut names));
            }
        }
        // Only then can a directory be missing above a durable name.
        if self.state.name_changes.iter().any(|change| matches!(change.effect, NameEffect::CreateDirectory { .. })) {
            retain_reachable(Arc::make_mut(&mut names));
        }
        names
    }

    /// The content of a file; `None` if the file is not known.
    pub(super) fn content(&self, id: FileId, choice: &Choice) -> Option<Arc<Content>> {
        let file = self.state.files.get(&id)?;
        let Some(cut) = self.files.get(&id) else {
            return Some(file.durable.clone());
        };
        let selection = self.selection(file, cut, choice);
        let mut content = file.content(&cut.touched, &selection);
        for (store, unit) in file.stores.waiting.iter().zip(&cut.stores) {
            if choice.keeps(self.units[*unit].bits.start) {
                store.apply(&mut content);
            }
        }
        Some(Arc::new(content))
    }

    /// Number of durable bytes of a file that no truncation removes.
    pub(super) fn durable_bytes_left(&self, id: FileId, choice: &Choice) -> u64 {
        let (Some(file), Some(cut)) = (self.state.files.get(&id), self.files.get(&id)) else {
            return 0;
        };
        let seen = file.pending.iter().take(self.length_version(file, cut, choice));
        let lengths = seen.filter_map(|change| change.length.map(|length| length.after));
        lengths.fold(file.durable.length(), u64::min)
    }

    fn length_version(&self, file: &FileState, cut: &FileCut, choice: &Choice) -> usize {
        let kept = |index: usize| {
            file.pending[index].length.is_some() && choice.keeps(self.units[cut.units[index]].bits.end - 1)
        };
        (0..file.pending.len()).rfind(|&index| kept(index)).map_or(0, |index| index + 1)
    }

    fn selection(&self, file: &FileState, cut: &FileCut, choice: &Choice) -> Selection {
        let mut versions = vec![0; cut.touched.sectors.len()];
        for (index, slots) in cut.touched.slots.iter().enumerate() {
            let bits = self.units[cut.units[index]].bits.clone();
            for (bit, slot) in bits.zip(slots.clone()) {
                if choice.keeps(bit) {
                    versions[slot] = index + 1;
                }
            }
        }
        Selection { versions, length_version: self.length_version(file, cut, choice) }
    }

    /// The losses of a choice as text; empty if it keeps everything.
    pub(super) fn describe_lost(&self, choice: &Choice) -> String {
        let mut text = String::new();
        for unit in self.units.iter().filter(|unit| !choice.keeps_all(unit.bits.clone())) {
            let separator = if text.is_empty() { "" } else { "; " };
            let _ = write!(text, "{separator}{}", self.describe_unit(unit, choice));
        }
        text
    }

    fn describe_unit(&self, unit: &Unit, choice: &Choice) -> String {
        let when = match unit.order {
            order if order < 0 => "before the restart".to_owned(),
            order => format!("event {order}"),
        };
        match unit.kind {
            UnitKind::Name(index) => format!("{when}: {}", self.state.name_changes[index].effect),
            UnitKind::Store(id, index) => match self.state.files.get(&id) {
                None => when,
                Some(file) => {
                    let store = &file.stores.waiting[index];
                    let name = file.name_at(unit.order);
                    format!("{when}: store of {:#x} to {name} at byte {}", store.value, store.offset)
                }
            },
            UnitKind::Data(id, index) => match self.state.files.get(&id) {
                None => when,
                Some(file) => format!("{when}: {}", describe_data(file, &file.pending[index], unit, choice)),
            },
        }
    }
}

fn describe_data(file: &FileState, change: &DataChange, unit: &Unit, choice: &Choice) -> String {
    let mut lost = Vec::new();
    let name = file.name_at(unit.order);
    let mut bits = unit.bits.clone();
    if let Some(length) = change.length {
        bits.end -= 1;
        if !choice.keeps(bits.end) {
            lost.push(format!("length {} instead of {}", length.before, length.after));
        }
    }
    let Some(write) = &change.write else {
        return format!("{} of {name}", lost.join(", "));
    };
    let count = bits.len();
    let numbers: Vec<usize> = (0..count).filter(|number| !choice.keeps(bits.start + number)).collect();
    if numbers.len() == count {
        lost.push("all bytes".to_owned());
    } else if !numbers.is_empty() {
        let first = write.offset / SECTOR_LENGTH;
        let sectors: Vec<String> = numbers.iter().map(|number| (first + *number as u64).to_string()).collect();
        lost.push(format!("sectors {} of {count}", sectors.join(" ")));
    }
    format!("write of {} bytes to {name} at byte {} ({})", write.bytes.len(), write.offset, lost.join(", "))
}
