//! A point at which the power fails, and what may then be kept or lost.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use super::choice::Choice;
use super::data::{DataChange, FileState, SECTOR_LENGTH, Selection, Touched};
use super::event::FileId;
use super::names::{NameEffect, Names, retain_reachable};
use super::state::State;
use crate::memory::content::Content;

/// Which combinations of changes of names a power loss may leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameOrder {
    /// Any subset of the waiting changes, which is all that POSIX promises.
    #[default]
    AnySubset,
    /// The first few of the waiting changes, as file systems with a journal keep them.
    Prefix,
}

/// One waiting change, with the bits of a [`Choice`] that decide on it.
#[derive(Debug)]
pub(super) struct Unit {
    pub(super) kind: UnitKind,
    /// For a write: its sectors, then its change of the length if it makes one.
    pub(super) bits: Range<usize>,
    order: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnitKind {
    /// Index into the waiting changes of names.
    Name(usize),
    /// A file and an index into its waiting changes.
    Data(FileId, usize),
}

/// The state at a cut, taken apart into what can be kept or lost alone.
#[derive(Debug)]
pub(super) struct Cut {
    pub(super) state: Arc<State>,
    /// In the order of their events.
    pub(super) units: Vec<Unit>,
    pub(super) bits: usize,
    files: BTreeMap<FileId, FileCut>,
}

#[derive(Debug)]
struct FileCut {
    touched: Touched,
    /// Per waiting change: its unit.
    units: Vec<usize>,
}

impl Cut {
    pub(super) fn new(state: Arc<State>) -> Self {
        let names = state.name_changes.iter().enumerate().map(|(index, change)| Unit {
            kind: UnitKind::Name(index),
            bits: 0..1,
            order: change.order,
        });
        let mut units: Vec<Unit> = names.collect();
        let mut files = BTreeMap::new();
        for (&id, file) in state.files.iter().filter(|(_, file)| !file.pending.is_empty()) {
            let touched = file.touched();
            for (index, change) in file.pending.iter().enumerate() {
                let bits = touched.slots[index].len() + usize::from(change.length.is_some());
                units.push(Unit { kind: UnitKind::Data(id, index), bits: 0..bits, order: change.order });
            }
            files.insert(id, FileCut { touched, units: vec![0; file.pending.len()] });
        }
        units.sort_by_key(|unit| unit.order);
        let mut bits = 0;
        for (index, unit) in units.iter_mut().enumerate() {
            unit.bits = bits..bits + unit.bits.end;
            bits = unit.bits.end;
            if let UnitKind::Data(file, change) = unit.kind
                && let Some(file) = files.get_mut(&file)
            {
                file.units[change] = index;
            }
        }
        Self { state, units, bits, files }
    }

    /// Brings a choice into the stated order of names: what follows a lost change is lost.
    pub(super) fn normalise(&self, choice: &mut Choice, order: NameOrder) {
        if order == NameOrder::AnySubset {
            return;
        }
        let mut lost = false;
        for unit in self.units.iter().filter(|unit| matches!(unit.kind, UnitKind::Name(_))) {
            lost |= !choice.keeps(unit.bits.start);
            choice.set(unit.bits.clone(), !lost);
        }
    }

    /// Files with changes that wait, and the sectors these touch.
    pub(super) fn touched(&self) -> impl Iterator<Item = (FileId, &[u64])> {
        self.files.iter().map(|(id, file)| (*id, file.touched.sectors.as_slice()))
    }

    /// The bits of changes of names and lengths, or those of written sectors.
    pub(super) fn class_bits(&self, metadata: bool) -> impl Iterator<Item = usize> {
        self.units.iter().flat_map(move |unit| {
            let sectors = match unit.kind {
                UnitKind::Name(_) => unit.bits.start..unit.bits.start,
                UnitKind::Data(file, index) => {
                    let sectors = self.files.get(&file).map_or(0, |file| file.touched.slots[index].len());
                    unit.bits.start..unit.bits.start + sectors
                }
            };
            if metadata { sectors.end..unit.bits.end } else { sectors }
        })
    }

    /// The names that are left.
    pub(super) fn names(&self, choice: &Choice) -> Arc<Names> {
        let mut names = self.state.names.clone();
        for unit in &self.units {
            if let UnitKind::Name(index) = unit.kind
                && choice.keeps(unit.bits.start)
            {
                self.state.name_changes[index].effect.apply(Arc::make_mut(&mut names));
            }
        }
        // Only then can a directory be missing above a name that is durable in it.
        if self.state.name_changes.iter().any(|change| matches!(change.effect, NameEffect::CreateDirectory { .. })) {
            retain_reachable(Arc::make_mut(&mut names));
        }
        names
    }

    /// What a file holds; `None` if the file is not known.
    pub(super) fn content(&self, id: FileId, choice: &Choice) -> Option<Arc<Content>> {
        let file = self.state.files.get(&id)?;
        let Some(cut) = self.files.get(&id) else {
            return Some(file.durable.clone());
        };
        let selection = self.selection(file, cut, choice);
        Some(Arc::new(file.content(&cut.touched, &selection)))
    }

    /// How many durable bytes of a file no cut takes away.
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

    /// What a choice loses, in words; empty if it keeps everything.
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
            UnitKind::Data(id, index) => match self.state.files.get(&id) {
                None => when,
                Some(file) => format!("{when}: {}", describe_data(file, &file.pending[index], unit, choice)),
            },
        }
    }
}

fn describe_data(file: &FileState, change: &DataChange, unit: &Unit, choice: &Choice) -> String {
    let mut lost = Vec::new();
    let mut bits = unit.bits.clone();
    if let Some(length) = change.length {
        bits.end -= 1;
        if !choice.keeps(bits.end) {
            lost.push(format!("length {} instead of {}", length.before, length.after));
        }
    }
    let Some(write) = &change.write else {
        return format!("{} of {}", lost.join(", "), file.name);
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
    format!("write of {} bytes to {} at byte {} ({})", write.bytes.len(), file.name, write.offset, lost.join(", "))
}
