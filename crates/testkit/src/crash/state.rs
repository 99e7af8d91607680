//! The disk at some point of the history: its durable state, and the changes that wait for a sync.
//!
//! Copies share all parts. A copy per cut is therefore cheap, and the state rolls forward from one
//! cut to the next.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use terrane_storage::event::{DiskEvent, Event, FileId, PoolEvent};

use super::data::FileState;
use super::names::{self, NameChange, NameEffect, Names, Node};
use super::stores::Stores;
use crate::memory::content::Content;

/// Durable state and waiting changes after some events.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// Number of events applied.
    pub(super) position: usize,
    pub(super) names: Arc<Names>,
    pub(super) name_changes: Vec<NameChange>,
    /// Every file that a durable name or a waiting change of names refers to.
    pub(super) files: BTreeMap<FileId, Arc<FileState>>,
}

impl State {
    /// A disk on which everything is durable.
    pub(super) fn durable(names: Arc<Names>, content: impl Fn(FileId) -> Option<Arc<Content>>) -> Self {
        let files = names
            .iter()
            .filter_map(|(name, node)| match node {
                Node::Directory => None,
                Node::File(file) => Some((*file, Arc::new(FileState::new(name.clone(), content(*file)?)))),
            })
            .collect();
        Self { names, files, ..Self::default() }
    }

    /// The same disk as the start of a new history: earlier events get numbers below 0.
    pub(super) fn restarted(&self) -> Self {
        let mut state = self.clone();
        let shift = state.position as i64;
        for change in &mut state.name_changes {
            change.order -= shift;
        }
        for file in state.files.values_mut().filter(|file| file.is_waiting()) {
            let file = Arc::make_mut(file);
            for change in &mut file.pending {
                change.order -= shift;
            }
            file.stores.restart(shift);
        }
        state.position = 0;
        state
    }

    /// A number that no file has.
    pub(super) fn next_file(&self) -> FileId {
        FileId(self.files.keys().last().map_or(0, |file| file.0 + 1))
    }

    /// Applies one event.
    pub(super) fn apply(&mut self, event: &Event) {
        let order = self.position as i64;
        self.position += 1;
        match event {
            Event::Disk(event) => self.apply_disk(order, event),
            Event::Pool(event) => self.apply_pool(order, event),
            Event::Mark(_) => {}
        }
    }

    fn apply_disk(&mut self, order: i64, event: &DiskEvent) {
        match event {
            DiskEvent::Create { file, name } => {
                self.files.insert(*file, Arc::new(FileState::new(name.clone(), Arc::default())));
                self.change_names(order, NameEffect::Create { file: *file, name: name.clone() });
            }
            DiskEvent::Rename { file, from, to } => {
                self.change_names(order, NameEffect::Rename { file: *file, from: from.clone(), to: to.clone() });
                self.change_file(*file, |state| state.rename(order, to.clone()));
            }
            DiskEvent::Remove { name, .. } => self.change_names(order, NameEffect::Remove { name: name.clone() }),
            DiskEvent::CreateDirectory { name } => {
                self.change_names(order, NameEffect::CreateDirectory { name: name.clone() });
            }
            DiskEvent::SyncDirectory { directory } => {
                names::sync_directory(&mut self.names, &mut self.name_changes, directory);
                self.drop_unnamed_files();
            }
            DiskEvent::Write { file, offset, bytes } => {
                self.change_file(*file, |state| state.write(order, *offset, bytes.clone()));
            }
            DiskEvent::SetLength { file, length } => self.change_file(*file, |state| state.set_length(order, *length)),
            DiskEvent::Allocate { file, length } => self.change_file(*file, |state| state.allocate(order, *length)),
            DiskEvent::Sync { file } => self.change_file(*file, FileState::sync),
            DiskEvent::SyncFailed { file } => self.change_file(*file, FileState::forget_unsynced),
        }
    }

    fn apply_pool(&mut self, order: i64, event: &PoolEvent) {
        match event {
            PoolEvent::Map { file, domain } => self.change_file(*file, |state| state.stores.map(*domain)),
            PoolEvent::Store { file, offset, value, .. } => self.change_file(*file, |state| {
                state.stores.store(order, *offset, *value);
                state.persist(Stores::visible);
            }),
            PoolEvent::Flush { file, thread, line, .. } => {
                self.change_file(*file, |state| state.stores.flush(*thread, *line));
            }
            PoolEvent::Fence { thread, .. } => {
                for file in self.files.values_mut().filter(|file| !file.stores.waiting.is_empty()) {
                    Arc::make_mut(file).persist(|stores, length| stores.fence(*thread, length));
                }
            }
        }
    }

    fn change_names(&mut self, order: i64, effect: NameEffect) {
        self.name_changes.push(NameChange::new(order, effect));
    }

    /// A file without a durable name cannot come back; its handles may still be used.
    fn change_file(&mut self, file: FileId, change: impl FnOnce(&mut FileState)) {
        if let Some(state) = self.files.get_mut(&file) {
            change(Arc::make_mut(state));
        }
    }

    fn drop_unnamed_files(&mut self) {
        let mut named: BTreeSet<FileId> = self
            .names
            .values()
            .filter_map(|node| match node {
                Node::Directory => None,
                Node::File(file) => Some(*file),
            })
            .collect();
        for change in &self.name_changes {
            if let NameEffect::Create { file, .. } | NameEffect::Rename { file, .. } = change.effect {
                named.insert(file);
            }
        }
        self.files.retain(|file, _| named.contains(file));
    }
}
