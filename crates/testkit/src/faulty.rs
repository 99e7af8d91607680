//! Storage that fails at a chosen call.
//!
//! Every fallible call on the storage and its files is counted, in one order, before it is passed
//! on. A test first runs without a plan, to count the calls that a fault applies to
//! ([`FaultyStorage::calls_open_to`]). It then runs once for each of them, with a plan that makes
//! that call fail.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;
use terrane_storage::{Backing, Context, DiskSpace, File, LockKind, OpenMode, Operation, Result, RootLock, Storage};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call fails with an input/output error and does nothing. Applies to every call.
    Eio,
    /// The disk is full; the call does nothing. Applies to writes, length changes, reservations,
    /// creations and renames.
    StorageFull,
    /// Half of the bytes are written, then the disk is full. Applies to writes.
    ShortWrite,
    /// The sync fails. The file's bytes then count as clean, as in Linux: the next sync succeeds
    /// although they are not durable. Applies to syncs of files and directories.
    SyncFailure,
    /// Like `SyncFailure`, because the disk is full: file systems with late allocation report it
    /// only then.
    SyncFull,
    /// The process has no descriptor left; the call does nothing. Applies to every call that opens
    /// a file or a directory, including syncs of directories.
    NoDescriptors,
}

impl Fault {
    /// Whether the fault applies to a call of this kind.
    pub fn applies_to(self, operation: Operation) -> bool {
        match self {
            Self::Eio => true,
            Self::StorageFull => matches!(
                operation,
                Operation::Write
                    | Operation::SetLength
                    | Operation::Allocate
                    | Operation::Create
                    | Operation::CreateDirectory
                    | Operation::Rename
            ),
            Self::ShortWrite => operation == Operation::Write,
            Self::SyncFailure | Self::SyncFull => operation.is_sync(),
            Self::NoDescriptors => {
                matches!(operation, Operation::Open | Operation::Create | Operation::List | Operation::SyncDirectory)
            }
        }
    }

    fn cause(self) -> Errno {
        match self {
            Self::Eio | Self::SyncFailure => Errno::IO,
            Self::StorageFull | Self::ShortWrite | Self::SyncFull => Errno::NOSPC,
            Self::NoDescriptors => Errno::MFILE,
        }
    }

    /// The operation that has failed: a directory that cannot be opened has not been synced.
    fn failed(self, operation: Operation) -> Operation {
        match (self, operation) {
            (Self::NoDescriptors, Operation::SyncDirectory) => Operation::Open,
            (_, operation) => operation,
        }
    }
}

/// A plan: which fault happens, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultPlan {
    /// The call that fails: 1 is the first call to which the fault applies after the plan was
    /// armed.
    pub at: u64,
    /// The fault.
    pub fault: Fault,
    /// Whether all later calls to which the fault applies fail too.
    pub persistent: bool,
}

/// A logged call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its kind.
    pub operation: Operation,
    /// Name of the file or directory (of a rename: `from to to`).
    pub name: String,
    /// Byte offset of a read or write, or of the range that is reserved or released.
    pub offset: Option<u64>,
    /// Bytes read or written, bytes of that range, or the requested length.
    pub length: Option<u64>,
}

#[derive(Debug, Default)]
struct State {
    calls: BTreeMap<Operation, u64>,
    log: Option<Vec<Call>>,
    armed: Option<Armed>,
    faults: u64,
    hides_boot: bool,
}

#[derive(Debug)]
struct Armed {
    plan: FaultPlan,
    calls: u64,
}

/// Storage that passes calls on to another and makes chosen ones fail. Clones share counts and
/// plan.
#[derive(Debug, Clone)]
pub struct FaultyStorage {
    inner: Arc<dyn Storage>,
    state: Arc<Mutex<State>>,
}

impl FaultyStorage {
    /// Counts calls to `inner`; nothing fails until a plan is armed.
    pub fn new(inner: Arc<dyn Storage>) -> Self {
        Self { inner, state: Arc::default() }
    }

    /// Counts calls to `inner` and follows a plan from the first.
    pub fn with_plan(inner: Arc<dyn Storage>, plan: FaultPlan) -> Self {
        let storage = Self::new(inner);
        storage.arm(plan);
        storage
    }

    /// Follows this plan from now on, instead of any earlier one.
    pub fn arm(&self, plan: FaultPlan) {
        self.state.lock().armed = Some(Armed { plan, calls: 0 });
    }

    /// Lets every call succeed again.
    pub fn disarm(&self) {
        self.state.lock().armed = None;
    }

    /// Hides the number of the boot from now on, like a system without one, or shows it again.
    pub fn hide_boot(&self, hides: bool) {
        self.state.lock().hides_boot = hides;
    }

    /// Number of calls of one kind so far, failed ones included.
    pub fn calls(&self, operation: Operation) -> u64 {
        self.state.lock().calls.get(&operation).copied().unwrap_or(0)
    }

    /// Number of calls so far to which a fault applies: the largest useful [`FaultPlan::at`].
    pub fn calls_open_to(&self, fault: Fault) -> u64 {
        let state = self.state.lock();
        state.calls.iter().filter(|(operation, _)| fault.applies_to(**operation)).map(|(_, calls)| calls).sum()
    }

    /// Number of calls that were made to fail.
    pub fn faults(&self) -> u64 {
        self.state.lock().faults
    }

    /// Keeps a log of calls from now on; it grows with every call.
    pub fn record_calls(&self) {
        self.state.lock().log.get_or_insert_default();
    }

    /// The calls since [`FaultyStorage::record_calls`], oldest first.
    pub fn recorded_calls(&self) -> Vec<Call> {
        self.state.lock().log.clone().unwrap_or_default()
    }
}

impl State {
    /// Counts a call; returns the fault that it meets, if any.
    fn enter(&mut self, operation: Operation, name: &str, offset: Option<u64>, length: Option<u64>) -> Option<Fault> {
        *self.calls.entry(operation).or_default() += 1;
        if let Some(log) = &mut self.log {
            log.push(Call { operation, name: name.to_owned(), offset, length });
        }
        let armed = self.armed.as_mut().filter(|armed| armed.plan.fault.applies_to(operation))?;
        armed.calls += 1;
        let plan = armed.plan;
        let hit = armed.calls == plan.at || (plan.persistent && armed.calls > plan.at);
        self.faults += u64::from(hit);
        hit.then_some(plan.fault)
    }
}

/// Counts a call and fails it without effect if the plan says so.
fn pass(
    state: &Mutex<State>,
    operation: Operation,
    name: &str,
    offset: Option<u64>,
    length: Option<u64>,
) -> Result<()> {
    let fault = state.lock().enter(operation, name, offset, length);
    match fault {
        None => Ok(()),
        Some(fault) => Err(fault.cause()).context(fault.failed(operation), name, offset),
    }
}

impl Storage for FaultyStorage {
    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        let operation = if mode == OpenMode::CreateNew { Operation::Create } else { Operation::Open };
        pass(&self.state, operation, name, None, None)?;
        let inner = self.inner.open(name, mode)?;
        Ok(Arc::new(FaultyFile { inner, state: self.state.clone() }))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        pass(&self.state, Operation::Exists, name, None, None)?;
        self.inner.exists(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        pass(&self.state, Operation::Rename, &format!("{from} to {to}"), None, None)?;
        self.inner.rename(from, to)
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<()> {
        pass(&self.state, Operation::Rename, &format!("{from} to {to}"), None, None)?;
        self.inner.rename_new(from, to)
    }

    fn remove(&self, name: &str) -> Result<()> {
        pass(&self.state, Operation::Remove, name, None, None)?;
        self.inner.remove(name)
    }

    fn create_directory(&self, name: &str) -> Result<()> {
        pass(&self.state, Operation::CreateDirectory, name, None, None)?;
        self.inner.create_directory(name)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>> {
        pass(&self.state, Operation::List, directory, None, None)?;
        self.inner.list(directory)
    }

    fn list_directories(&self, directory: &str) -> Result<Vec<String>> {
        pass(&self.state, Operation::List, directory, None, None)?;
        self.inner.list_directories(directory)
    }

    fn sync_directory(&self, directory: &str) -> Result<()> {
        pass(&self.state, Operation::SyncDirectory, directory, None, None)?;
        self.inner.sync_directory(directory)
    }

    fn unix_time_ns(&self) -> u64 {
        self.inner.unix_time_ns()
    }

    fn monotonic_ns(&self) -> u64 {
        self.inner.monotonic_ns()
    }

    fn space(&self) -> Option<DiskSpace> {
        self.inner.space()
    }

    fn boot_id(&self) -> Option<u128> {
        if self.state.lock().hides_boot { None } else { self.inner.boot_id() }
    }

    fn lock_root(&self) -> Result<Option<RootLock>> {
        pass(&self.state, Operation::Lock, "", None, None)?;
        self.inner.lock_root()
    }

    fn describe(&self) -> String {
        format!("{} with injected faults", self.inner.describe())
    }
}

#[derive(Debug)]
struct FaultyFile {
    inner: Arc<dyn File>,
    state: Arc<Mutex<State>>,
}

impl FaultyFile {
    fn pass(&self, operation: Operation, offset: Option<u64>, length: Option<u64>) -> Result<()> {
        pass(&self.state, operation, self.inner.name(), offset, length)
    }
}

impl File for FaultyFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.pass(Operation::Read, Some(offset), Some(buffer.len() as u64))?;
        self.inner.read_exact_at(buffer, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let length = Some(bytes.len() as u64);
        let fault = self.state.lock().enter(Operation::Write, self.inner.name(), Some(offset), length);
        match fault {
            None => self.inner.write_all_at(bytes, offset),
            Some(fault) => {
                if fault == Fault::ShortWrite {
                    self.inner.write_all_at(&bytes[..bytes.len() / 2], offset)?;
                }
                Err(fault.cause()).context(Operation::Write, self.inner.name(), Some(offset))
            }
        }
    }

    fn len(&self) -> Result<u64> {
        self.pass(Operation::Length, None, None)?;
        self.inner.len()
    }

    fn set_len(&self, length: u64) -> Result<()> {
        self.pass(Operation::SetLength, None, Some(length))?;
        self.inner.set_len(length)
    }

    fn allocate(&self, range: Range<u64>) -> Result<()> {
        self.pass(Operation::Allocate, Some(range.start), Some(range.end.saturating_sub(range.start)))?;
        self.inner.allocate(range)
    }

    fn sync_data(&self) -> Result<()> {
        match self.pass(Operation::Sync, None, None) {
            Ok(()) => self.inner.sync_data(),
            Err(error) => {
                self.inner.forget_unsynced()?;
                Err(error)
            }
        }
    }

    fn forget_unsynced(&self) -> Result<()> {
        self.inner.forget_unsynced()
    }

    fn try_lock(&self, kind: LockKind) -> Result<bool> {
        self.pass(Operation::Lock, None, None)?;
        self.inner.try_lock(kind)
    }

    fn unlock(&self) -> Result<()> {
        self.pass(Operation::Unlock, None, None)?;
        self.inner.unlock()
    }

    fn has_name(&self) -> Result<bool> {
        self.pass(Operation::Exists, None, None)?;
        self.inner.has_name()
    }

    fn backing(&self) -> Backing<'_> {
        self.inner.backing()
    }

    fn name(&self) -> &str {
        self.inner.name()
    }
}
