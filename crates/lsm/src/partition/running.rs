//! The merges in progress, for threads that find the disk full meanwhile.

use terrane_storage::sync::{Condvar, Mutex};

#[derive(Debug, Default)]
struct State {
    running: usize,
    ended: u64,
    waiting: usize,
}

/// Counts the merges that write a component at present. When one ends, it frees the space of the
/// merged components, or that of its output if it failed.
#[derive(Debug, Default)]
pub struct RunningMerges {
    state: Mutex<State>,
    one_ended: Condvar,
}

/// A merge in progress, until this is dropped.
#[derive(Debug)]
#[must_use = "the merge has ended when this is dropped"]
pub struct Running<'a>(&'a RunningMerges);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.running -= 1;
        state.ended += 1;
        self.0.one_ended.notify_all();
    }
}

impl RunningMerges {
    /// Counts a merge as running. It must not wait for a flush or a writer, as those wait for it.
    pub fn begin(&self) -> Running<'_> {
        self.state.lock().running += 1;
        Running(self)
    }

    /// Waits until a running merge ends; false if there is none. Not for a thread that merges.
    pub fn wait_for_one(&self) -> bool {
        let mut state = self.state.lock();
        if state.running == 0 {
            return false;
        }
        let ended = state.ended;
        state.waiting += 1;
        while state.ended == ended {
            self.one_ended.wait(&mut state);
        }
        state.waiting -= 1;
        true
    }

    /// Threads that wait for a merge to end.
    pub fn waiting(&self) -> usize {
        self.state.lock().waiting
    }
}
