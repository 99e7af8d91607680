//! Group commit: the part of the log where threads meet.
//!
//! Appending is a copy under a mutex. Of the threads that wait for durable entries, one leads. It
//! takes all pending groups, writes and syncs them without holding a mutex, and publishes the
//! durable LSN. Then it wakes the threads it served, and one more to lead the next generation.
//! There is no timer and no background thread, so a single client never waits for others.
//!
//! Lock order: `CommitKernel::state`, then `SegmentTable`. No I/O under either.

use std::collections::VecDeque;
use std::sync::Arc;

use super::group::PendingGroup;
use super::layout::{ENTRY_LENGTH_MAX, GROUP_HEADER_LENGTH, GroupSeal, HEADER_AREA, entry_space};
use super::segment::{Segment, SegmentFile};
use super::table::SegmentTable;
use super::{Appended, Lsn};
use crate::{Error, Result};
use terrane_storage::sync::{AtomicU64, Condvar, Mutex, Ordering};

/// Pending groups, the leader's place, and the shared state of the threads.
#[derive(Debug)]
pub(super) struct CommitKernel {
    store_id: [u8; 16],
    session: u64,
    seal: GroupSeal,
    state: Mutex<State>,
    /// Waiters of even and odd generations of groups, so that a wakeup reaches only the threads it
    /// concerns.
    generation_done: [Condvar; 2],
    /// Everything below is durable. Only the leader stores it, under the state's mutex.
    durable_lsn: AtomicU64,
    table: Arc<Mutex<SegmentTable>>,
}

#[derive(Debug)]
struct State {
    /// Groups that are complete because the log continued in another segment, in LSN order.
    complete: Vec<PendingGroup>,
    /// The group that entries are appended to.
    open: PendingGroup,
    /// Files in which the log can continue, in ascending order of their numbers.
    prepared: VecDeque<SegmentFile>,
    /// Prepared files that were too small for an entry and must be renumbered before use.
    skipped: Vec<SegmentFile>,
    idle_buffer: Vec<u8>,
    /// Number of the last segment whose header is durable.
    begun_number: u64,
    leading: bool,
    /// Number of times that a leader took groups.
    generation: u64,
    /// End of the groups that the last leader took.
    taken_lsn: Lsn,
    failure: Option<String>,
    closed: bool,
}

/// The state that a leader takes to write without holding the mutex.
struct Batch {
    groups: Vec<PendingGroup>,
    begun_number: u64,
    durable_lsn: Lsn,
}

impl CommitKernel {
    /// A kernel that continues in `segment`, which has begun and is empty.
    pub fn new(store_id: [u8; 16], segment: Arc<Segment>, table: Arc<Mutex<SegmentTable>>) -> Self {
        let base_lsn = segment.header.base_lsn;
        Self {
            store_id,
            session: segment.header.session,
            seal: GroupSeal::new(store_id),
            state: Mutex::new(State {
                complete: Vec::new(),
                begun_number: segment.file.number,
                open: PendingGroup::new(segment, base_lsn, Vec::new()),
                prepared: VecDeque::new(),
                skipped: Vec::new(),
                idle_buffer: Vec::new(),
                leading: false,
                generation: 0,
                taken_lsn: base_lsn,
                failure: None,
                closed: false,
            }),
            generation_done: [Condvar::new(), Condvar::new()],
            durable_lsn: AtomicU64::new(base_lsn),
            table,
        }
    }

    /// Everything below is durable.
    pub fn durable_lsn(&self) -> Lsn {
        self.durable_lsn.load(Ordering::Acquire)
    }

    /// LSN after the last appended entry.
    pub fn end_lsn(&self) -> Lsn {
        self.state.lock().open.end_lsn()
    }

    /// Appends an entry that `fill` writes. A refusal comes before `fill` is called.
    pub fn append(&self, length: usize, fill: impl FnOnce(&mut [u8])) -> Result<Appended> {
        let mut state = self.state.lock();
        state.check_usable()?;
        check_length(length)?;
        if !state.open.fits(length) {
            state.go_on_in_next_segment(length, self.store_id, self.session)?;
        }
        Ok(state.open.append(length, fill))
    }

    /// Whether an entry of `length` bytes can be appended now.
    pub fn has_room(&self, length: usize) -> Result<bool> {
        let state = self.state.lock();
        state.check_usable()?;
        check_length(length)?;
        Ok(state.open.fits(length) || state.prepared.iter().any(|file| takes(file, length)))
    }

    /// Free bytes in the current segment and in the prepared ones.
    pub fn room(&self) -> u64 {
        let state = self.state.lock();
        let current = state.open.segment.header.limit_lsn().saturating_sub(state.open.end_lsn());
        current + state.prepared.iter().map(|file| file.size.saturating_sub(HEADER_AREA)).sum::<u64>()
    }

    /// Whether the current segment is half full and no file is prepared to follow it.
    pub fn needs_preparation(&self) -> bool {
        let state = self.state.lock();
        let header = &state.open.segment.header;
        let used = state.open.end_lsn() - header.base_lsn;
        state.prepared.is_empty() && used * 2 >= header.limit_lsn() - header.base_lsn
    }

    /// Whether no file is prepared.
    pub fn lacks_prepared(&self) -> bool {
        self.state.lock().prepared.is_empty()
    }

    /// Adds a file in which to continue; returns files that were skipped.
    pub fn add_prepared(&self, file: SegmentFile) -> Vec<SegmentFile> {
        let mut state = self.state.lock();
        state.prepared.push_back(file);
        std::mem::take(&mut state.skipped)
    }

    /// Refuses all writes from now on.
    pub fn poison(&self, cause: String) {
        let mut state = self.state.lock();
        state.failure.get_or_insert(cause);
        self.wake_all();
    }

    /// The first failure, as an error.
    pub fn check_usable(&self) -> Result<()> {
        self.state.lock().check_usable()
    }

    /// Returns when everything below `lsn` is durable. Leads a group if no other thread does.
    pub fn sync_to(&self, lsn: Lsn) -> Result<()> {
        if self.durable_lsn() >= lsn {
            return Ok(());
        }
        let mut state = self.state.lock();
        if lsn > state.open.end_lsn() {
            return Err(Error::Invalid(format!(
                "LSN {lsn} was not appended; the log ends at {}",
                state.open.end_lsn()
            )));
        }
        loop {
            // Durable entries are acknowledged even if a later group failed.
            if self.durable_lsn() >= lsn {
                return Ok(());
            }
            state.check_healthy()?;
            if !state.leading {
                break;
            }
            let generation = if lsn <= state.taken_lsn { state.generation } else { state.generation + 1 };
            self.generation_done[(generation % 2) as usize].wait(&mut state);
        }
        let batch = state.take(self.durable_lsn());
        drop(state);
        self.lead(batch)
    }

    /// Refuses further entries, makes the others durable and marks the log as cleanly closed.
    pub fn close(&self) -> Result<()> {
        let end_lsn = {
            let mut state = self.state.lock();
            if state.closed && state.failure.is_none() {
                return Ok(());
            }
            state.closed = true;
            state.open.end_lsn()
        };
        self.sync_to(end_lsn)?;
        // Nothing was appended since, so the last begun segment ends at `end_lsn`.
        self.state.lock().check_healthy()?;
        let segment = self.table.lock().last().clone();
        segment.mark_clean_close(self.seal, end_lsn).inspect_err(|error| self.poison(error.to_string()))
    }

    /// Writes and syncs a batch, then publishes the outcome.
    fn lead(&self, mut batch: Batch) -> Result<()> {
        /// Poisons the log if the storage panics, so that no thread waits for a leader that is
        /// gone.
        struct Abandoned<'a>(Option<&'a CommitKernel>);
        impl Drop for Abandoned<'_> {
            fn drop(&mut self) {
                if let Some(kernel) = self.0 {
                    kernel.state.lock().leading = false;
                    kernel.poison("the thread that wrote the log panicked".into());
                }
            }
        }
        let mut abandoned = Abandoned(Some(self));
        let outcome = self.write(&mut batch);
        abandoned.0 = None;

        let mut state = self.state.lock();
        state.leading = false;
        // After a failure this covers the groups before the one that failed.
        self.durable_lsn.store(batch.durable_lsn, Ordering::Release);
        match outcome {
            Ok(()) => {
                state.begun_number = batch.begun_number;
                if let Some(buffer) = batch.groups.into_iter().find_map(PendingGroup::into_idle_buffer) {
                    state.idle_buffer = buffer;
                }
                let generation = state.generation;
                drop(state);
                self.generation_done[(generation % 2) as usize].notify_all();
                self.generation_done[((generation + 1) % 2) as usize].notify_one();
                Ok(())
            }
            Err(cause) => {
                state.failure.get_or_insert(cause);
                self.wake_all();
                state.check_healthy()
            }
        }
    }

    /// The steps of a commit. Each group is written and synced. Before the first group of a
    /// segment, once everything before it is synced, the segment is begun (I2, I3).
    fn write(&self, batch: &mut Batch) -> std::result::Result<(), String> {
        for group in &mut batch.groups {
            let segment = group.segment.clone();
            // The file may have been opened under an earlier name.
            let cause = |error: Error| format!("{}: {error}", segment.file.name());
            if segment.file.number != batch.begun_number {
                segment.begin().map_err(cause)?;
                batch.begun_number = segment.file.number;
                self.table.lock().push(segment.clone());
            }
            let (file, offset) = (&segment.file.file, segment.header.offset_of(group.lsn));
            let bytes = group.seal(self.seal, batch.durable_lsn);
            file.write_all_at(bytes, offset).and_then(|()| file.sync_data()).map_err(|error| cause(error.into()))?;
            batch.durable_lsn = group.end_lsn();
        }
        Ok(())
    }

    fn wake_all(&self) {
        for condition in &self.generation_done {
            condition.notify_all();
        }
    }
}

impl State {
    fn check_healthy(&self) -> Result<()> {
        match &self.failure {
            Some(cause) => Err(Error::Poisoned { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    fn check_usable(&self) -> Result<()> {
        self.check_healthy()?;
        if self.closed { Err(Error::Invalid("the log is closed".into())) } else { Ok(()) }
    }

    /// Completes the open group and opens one in the first prepared file that takes the entry.
    fn go_on_in_next_segment(&mut self, length: usize, store_id: [u8; 16], session: u64) -> Result<()> {
        let Some(index) = self.prepared.iter().position(|file| takes(file, length)) else {
            return Err(Error::Full { what: format!("a log entry of {length} bytes, because no segment is prepared") });
        };
        self.skipped.extend(self.prepared.drain(..index));
        let file = self.prepared.pop_front().expect("the position was found");
        let base_lsn = self.open.end_lsn();
        let current = &self.open.segment;
        // A current segment without a group never begins, unless it has begun already.
        let unused = base_lsn == current.header.base_lsn && current.file.number != self.begun_number;
        let previous = if unused { current.header.previous() } else { current.header.as_previous() };
        if unused {
            self.skipped.push(current.file.clone());
        }
        let segment = Segment::new(file, store_id, session, base_lsn, previous);
        self.open_group(Arc::new(segment), base_lsn);
        Ok(())
    }

    /// Takes all groups for a leader.
    fn take(&mut self, durable_lsn: Lsn) -> Batch {
        if !self.open.is_empty() {
            self.open_group(self.open.segment.clone(), self.open.end_lsn());
        }
        self.leading = true;
        self.generation += 1;
        self.taken_lsn = self.open.lsn;
        Batch { groups: std::mem::take(&mut self.complete), begun_number: self.begun_number, durable_lsn }
    }

    fn open_group(&mut self, segment: Arc<Segment>, lsn: Lsn) {
        let opened = PendingGroup::new(segment, lsn, std::mem::take(&mut self.idle_buffer));
        let completed = std::mem::replace(&mut self.open, opened);
        if !completed.is_empty() {
            self.complete.push(completed);
        }
    }
}

/// Whether a prepared file has room for a group with one entry of `length` bytes.
fn takes(file: &SegmentFile, length: usize) -> bool {
    GROUP_HEADER_LENGTH as u64 + entry_space(length) <= file.capacity()
}

fn check_length(length: usize) -> Result<()> {
    if length > ENTRY_LENGTH_MAX {
        return Err(Error::Invalid(format!("a log entry of {length} bytes is longer than {ENTRY_LENGTH_MAX}")));
    }
    Ok(())
}
