//! Storage whose syncs wait until a test lets them pass, fail or panic.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex};

use terrane_storage::{File, LockKind, Storage};

use super::hook::HookedStorage;

/// Lets syncs pass or makes them wait.
#[derive(Debug, Default)]
pub struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    closed: bool,
    end: End,
    waiting: usize,
}

/// How the syncs end that pass.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum End {
    #[default]
    Success,
    Failure,
    Panic,
}

impl Gate {
    /// From now on syncs wait.
    pub fn close(&self) {
        self.state.lock().unwrap().closed = true;
    }

    /// Lets all syncs pass.
    pub fn open(&self) {
        self.state.lock().unwrap().closed = false;
        self.changed.notify_all();
    }

    /// From now on syncs panic.
    pub fn open_with_panic(&self) {
        self.state.lock().unwrap().end = End::Panic;
        self.open();
    }

    /// From now on syncs fail, and nothing is synced.
    pub fn open_with_failure(&self) {
        self.state.lock().unwrap().end = End::Failure;
        self.open();
    }

    /// Waits until a sync waits.
    pub fn wait_until_one_waits(&self) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| state.waiting == 0).unwrap());
    }

    /// Whether a sync waits.
    pub fn one_waits(&self) -> bool {
        self.state.lock().unwrap().waiting > 0
    }

    fn pass(&self) -> End {
        let mut state = self.state.lock().unwrap();
        state.waiting += 1;
        self.changed.notify_all();
        let mut state = self.changed.wait_while(state, |state| state.closed).unwrap();
        state.waiting -= 1;
        let end = state.end;
        drop(state);
        assert_ne!(end, End::Panic, "of the test");
        end
    }
}

/// Storage whose syncs pass a gate.
pub fn gated(inner: Arc<dyn Storage>, gate: Arc<Gate>) -> Arc<dyn Storage> {
    asking(inner, move || {
        let succeeds = gate.pass() != End::Failure;
        if succeeds {
            std::thread::yield_now();
        }
        succeeds
    })
}

/// Storage that asks before each sync whether it succeeds.
pub fn asking(inner: Arc<dyn Storage>, ask: impl Fn() -> bool + Send + Sync + 'static) -> Arc<dyn Storage> {
    let ask: Arc<dyn Fn() -> bool + Send + Sync> = Arc::new(ask);
    Arc::new(HookedStorage::wrapping(inner, move |inner| Arc::new(AskingFile { inner, ask: ask.clone() })))
}

struct AskingFile {
    inner: Arc<dyn File>,
    ask: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl fmt::Debug for AskingFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AskingFile").field("inner", &self.inner).finish_non_exhaustive()
    }
}

type StorageResult<T> = terrane_storage::Result<T>;

impl File for AskingFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> StorageResult<()> {
        self.inner.read_exact_at(buffer, offset)
    }
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> StorageResult<()> {
        self.inner.write_all_at(bytes, offset)
    }
    fn len(&self) -> StorageResult<u64> {
        self.inner.len()
    }
    fn set_len(&self, length: u64) -> StorageResult<()> {
        self.inner.set_len(length)
    }
    fn allocate(&self, range: Range<u64>) -> StorageResult<()> {
        self.inner.allocate(range)
    }
    fn sync_data(&self) -> StorageResult<()> {
        if !(self.ask)() {
            // An error of the storage that costs nothing.
            return self.inner.read_exact_at(&mut [0], u64::MAX - 1);
        }
        self.inner.sync_data()
    }
    fn try_lock(&self, kind: LockKind) -> StorageResult<bool> {
        self.inner.try_lock(kind)
    }
    fn unlock(&self) -> StorageResult<()> {
        self.inner.unlock()
    }
    fn has_name(&self) -> StorageResult<bool> {
        self.inner.has_name()
    }
    fn name(&self) -> &str {
        self.inner.name()
    }
}
