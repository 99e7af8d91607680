//! `visible_seq`: how far the order of commits is synced and applied.
//!
//! I1 It only rises, and only over numbers that are both; so a snapshot never sees a change
//!    that a crash could take back, nor a later one without an earlier one.

use std::collections::VecDeque;

use terrane_storage::sync::{AtomicBool, AtomicU64, Condvar, Mutex, Ordering};

use crate::{Error, Result};

#[derive(Debug)]
struct State {
    /// All changes up to here are applied.
    applied: u64,
    /// Whether those after it are.
    later: VecDeque<bool>,
    /// All changes up to here are durable.
    synced: u64,
    waiting: usize,
    failed: Option<Error>,
}

#[derive(Debug)]
pub(crate) struct Visibility {
    visible: AtomicU64,
    has_failed: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

impl Visibility {
    /// Everything up to `sequence` is visible. Without a log, nothing waits for a sync.
    pub fn new(sequence: u64, logged: bool) -> Self {
        let synced = if logged { sequence } else { u64::MAX };
        let state = State { applied: sequence, later: VecDeque::new(), synced, waiting: 0, failed: None };
        Self {
            visible: AtomicU64::new(sequence),
            has_failed: AtomicBool::new(false),
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// The number up to which snapshots see changes.
    pub fn visible(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }

    /// A change is in the memory components.
    pub fn applied(&self, sequence: u64) {
        let mut state = self.state.lock();
        let place = (sequence - state.applied - 1) as usize;
        if place >= state.later.len() {
            state.later.resize(place + 1, false);
        }
        state.later[place] = true;
        while state.later.front() == Some(&true) {
            state.later.pop_front();
            state.applied += 1;
        }
        self.advance(&state);
    }

    /// All changes up to this one are durable.
    pub fn synced(&self, sequence: u64) {
        let mut state = self.state.lock();
        if sequence > state.synced {
            state.synced = sequence;
            self.advance(&state);
        }
    }

    fn advance(&self, state: &State) {
        let visible = state.applied.min(state.synced);
        if visible > self.visible.load(Ordering::Relaxed) {
            self.visible.store(visible, Ordering::Release);
            if state.waiting > 0 {
                self.changed.notify_all();
            }
        }
    }

    /// Why no more changes are taken, if so.
    pub fn failure(&self) -> Option<Error> {
        if self.has_failed.load(Ordering::Acquire) { self.state.lock().failed.clone() } else { None }
    }

    /// Waits until a change is visible, or fails if it never will be.
    pub fn wait(&self, sequence: u64) -> Result<()> {
        if self.visible() >= sequence {
            return Ok(());
        }
        let mut state = self.state.lock();
        while self.visible() < sequence {
            if let Some(error) = &state.failed {
                return Err(error.clone());
            }
            state.waiting += 1;
            self.changed.wait(&mut state);
            state.waiting -= 1;
        }
        Ok(())
    }

    /// Changes that are not visible yet never will be, and no more are taken.
    pub fn fail(&self, error: &Error) {
        let is_first = {
            let mut state = self.state.lock();
            let is_first = state.failed.is_none();
            state.failed.get_or_insert_with(|| error.clone());
            is_first
        };
        if is_first && !matches!(error, Error::Usage(_)) {
            tracing::error!(%error, "no more writes are taken");
        }
        self.has_failed.store(true, Ordering::Release);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_applied_and_synced_without_a_gap_is_visible() {
        let visibility = Visibility::new(10, true);
        visibility.applied(12);
        visibility.synced(12);
        assert_eq!(visibility.visible(), 10);
        visibility.applied(11);
        assert_eq!(visibility.visible(), 12);
        visibility.applied(13);
        assert_eq!(visibility.visible(), 12);
        visibility.synced(13);
        assert_eq!(visibility.visible(), 13);
    }

    #[test]
    fn waiting_ends_with_the_failure_that_makes_it_vain() {
        let visibility = Visibility::new(0, true);
        visibility.applied(1);
        visibility.fail(&Error::Poisoned { cause: "sync".into() });
        assert!(matches!(visibility.wait(1), Err(Error::Poisoned { .. })));
    }
}
