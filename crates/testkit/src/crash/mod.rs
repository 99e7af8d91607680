//! Cuts the power after any event and enumerates what the disk may then hold.
//!
//! A test runs its workload on [`Controller::storage`]; every change and sync becomes an
//! [`Event`], and [`Controller::mark`] puts the test's own notes (such as acknowledgements)
//! into the same order. Then, for each cut `0..=events()`, [`Controller::images`] gives disks
//! to recover from: all that was synced before the cut, and any part of the rest.
//!
//! The model: a written sector of 512 bytes is there or not, independent of all others; so
//! are lengths and changes of names. Contents without a synced name are gone with the name.
//! Stores to mapped files are kept or lost as [`PersistenceDomain`](terrane_storage::event::PersistenceDomain) says.
//! It is POSIX, harsher than any file system: one with a journal keeps a prefix of the
//! changes of names ([`NameOrder::Prefix`]). Not modelled: sectors torn inside, damage at rest.

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

/// A choice that belongs to another history: the run that it was printed for had other events.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the choice has {found} bits, but {expected} can be kept or lost after {cut} events: the run is not the one it was made for"
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
    /// The disk at the cut that was asked for last, from which the next one is rolled forward.
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

    /// Puts a note of the application into the log.
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

    /// What the disk may hold if the power fails right after the first `cut` events, without
    /// repetition; a cut beyond the last event is the last.
    ///
    /// Where at most `budget.exhaustive_pending` changes wait, every combination of kept and lost
    /// changes is among them. Otherwise "nothing kept", "everything kept", "only names and
    /// lengths kept" and "only bytes kept" are. The rest is drawn from `seed`, which gives the
    /// same images in every run with the same events. Asking for cuts in rising order is fast.
    pub fn images(&self, cut: usize, budget: &Budget, seed: u64) -> Images {
        Images::new(self.cut(cut), budget, seed)
    }

    /// The images of [`Controller::images`] of which recoveries read different things: all of them, whatever the number of
    /// changes that wait. Each is asked for after the one before was tried, see [`Branches`].
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

    /// What is there if the process is killed right after the first `cut` events: everything.
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
