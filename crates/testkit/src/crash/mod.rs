//! Cuts the power after any event and enumerates the possible states of the disk.
//!
//! A test runs its workload on [`Controller::storage`]. Every change and sync becomes an [`Event`],
//! and [`Controller::mark`] adds the test's own notes, such as acknowledgements, in the same order.
//! For each cut `0..=events()`, [`Controller::images`] then gives disks to recover from. They hold
//! all that was synced before the cut, and any part of the rest.
//!
//! The model:
//!
//! - A written sector of 512 bytes is there or not, independently of all others. So are lengths and
//!   changes of names.
//! - Contents without a synced name are lost with the name.
//! - Stores to mapped files are kept or lost according to
//!   [`PersistenceDomain`](terrane_storage::event::PersistenceDomain).
//! - This is POSIX, harsher than any file system. One with a journal keeps a prefix of the changes
//!   of names ([`NameOrder::Prefix`]).
//! - Not modelled: sectors torn inside, damage at rest.

mod branches;
mod choice;
mod cut;
mod data;
mod image;
mod images;
mod names;
mod state;
mod stores;

use std::sync::Arc;

use parking_lot::Mutex;
use terrane_storage::Storage;
use terrane_storage::event::{Event, FileId};

use crate::memory::{MemoryStorage, Recorder};
pub use branches::Branches;
pub use choice::{Choice, ParseChoiceError};
pub use cut::NameOrder;
pub use image::{Crash, Image};
pub use images::{Budget, Images};
use state::State;

/// A choice of another history: the run that printed it had other events.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the choice has {found} bits, but {expected} can be kept or lost after {cut} events: it belongs to another run"
)]
pub struct ForeignChoice {
    /// Number of events before the crash.
    pub cut: usize,
    /// Bits of the choice.
    pub found: usize,
    /// Bits that the cut has.
    pub expected: usize,
}

/// In-memory storage, the log of its events, and the crashes that can happen to it.
#[derive(Debug)]
pub struct Controller {
    log: Arc<Log>,
    storage: MemoryStorage,
    /// The disk before the first event.
    base: Arc<State>,
    /// The disk at the last cut that was asked for; the next one is computed from it.
    cursor: Mutex<Arc<State>>,
}

#[derive(Debug, Default)]
struct Log {
    events: Mutex<Vec<Event>>,
}

impl Recorder for Log {
    fn record(&self, event: Event) {
        self.events.lock().push(event);
    }
}

impl Controller {
    /// A controller of an empty disk.
    pub fn new() -> Arc<Self> {
        Self::starting_from(State::default(), |log| MemoryStorage::prepared([], FileId(0), 1, Some(log), false))
    }

    fn starting_from(base: State, storage: impl FnOnce(Arc<dyn Recorder>) -> MemoryStorage) -> Arc<Self> {
        let log = Arc::new(Log::default());
        let storage = storage(log.clone());
        let base = Arc::new(base);
        Arc::new(Self { log, storage, cursor: Mutex::new(base.clone()), base })
    }

    /// The storage under control.
    pub fn storage(&self) -> Arc<dyn Storage> {
        Arc::new(self.storage.clone())
    }

    /// The same storage, to set its capacity and its clock.
    pub fn memory(&self) -> &MemoryStorage {
        &self.storage
    }

    /// Number of events so far; the cuts are `0..=events()`.
    pub fn events(&self) -> usize {
        self.log.events.lock().len()
    }

    /// A copy of the log.
    pub fn log(&self) -> Vec<Event> {
        self.log.events.lock().clone()
    }

    /// Adds a note of the application to the log.
    pub fn mark(&self, number: u64) {
        self.log.events.lock().push(Event::Mark(number));
    }

    /// The notes among the first `cut` events, in order.
    pub fn marks(&self, cut: usize) -> Vec<u64> {
        let marks = |event: &Event| match event {
            Event::Mark(number) => Some(*number),
            Event::Disk(_) | Event::Pool(_) => None,
        };
        self.log.events.lock().iter().take(cut).filter_map(marks).collect()
    }

    /// The possible disks if the power fails right after the first `cut` events, without
    /// repetition. A cut beyond the last event counts as the last.
    ///
    /// If at most `budget.exhaustive_pending` changes wait, every combination of kept and lost
    /// changes is included. Otherwise the extremes are: nothing kept, everything kept, only names
    /// and lengths kept, only bytes kept. The rest is drawn from `seed`, which gives the same
    /// images in every run with the same events. Asking for cuts in rising order is fast.
    pub fn images(&self, cut: usize, budget: &Budget, seed: u64) -> Images {
        Images::new(self.cut(cut), budget, seed)
    }

    /// The images of [`Controller::images`] that differ in what recovery reads. All of them are
    /// tried, however many changes wait. Ask for each after the one before was tried, see
    /// [`Branches`].
    pub fn branches(&self, cut: usize) -> Branches {
        Branches::new(self.cut(cut))
    }

    /// The image at `cut` that an earlier run described by its choice.
    pub fn image_with(&self, cut: usize, choice: &Choice) -> Result<Image, ForeignChoice> {
        let cut = self.cut(cut);
        if choice.len() != cut.bits {
            let (found, expected) = (choice.len(), cut.bits);
            return Err(ForeignChoice { cut: cut.state.position, found, expected });
        }
        Ok(Image::new(cut, Crash::PowerLoss, choice.clone(), NameOrder::AnySubset))
    }

    /// The disk if the process is killed right after the first `cut` events: everything is there.
    /// After [`Image::restart`], what was not synced before the kill still waits for a sync.
    pub fn process_kill(&self, cut: usize) -> Image {
        let cut = self.cut(cut);
        let choice = Choice::everything(cut.bits);
        Image::new(cut, Crash::ProcessKill, choice, NameOrder::AnySubset)
    }

    fn cut(&self, position: usize) -> Arc<cut::Cut> {
        let mut cursor = self.cursor.lock();
        let events = self.log.events.lock();
        let position = position.min(events.len());
        if cursor.position > position {
            *cursor = self.base.clone();
        }
        if cursor.position < position {
            let state = Arc::make_mut(&mut cursor);
            for event in &events[state.position..position] {
                state.apply(event);
            }
        }
        Arc::new(cut::Cut::new(cursor.clone(), self.storage.boot()))
    }
}
