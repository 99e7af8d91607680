//! The queue between a thread that receives a feed's records and one that writes them.
//!
//! Records that fit in the queue's memory wait there; [`OnOverload`] decides about the others.
//! Records keep their order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use terrane_storage::sync::{Condvar, Mutex};

use super::spill::{PIECE_BYTES, QueuedRecord, SpillFiles};
use crate::Result;
use crate::engine::Engine;

/// Interval of checks whether a full disk has space again, without another event.
const SPACE_PAUSE: Duration = Duration::from_millis(100);

/// What to do with records that arrive faster than they are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnOverload {
    /// The sender waits.
    #[default]
    Throttle,
    /// They wait in unnamed files in the store's directory. The files are limited to a part of the
    /// disk's free space; beyond it, the sender waits.
    Spill,
    /// They are dropped and counted.
    Discard,
}

/// Creates a queue; see [`crate::Store::feed_queue`].
pub(crate) fn queue<R: QueuedRecord>(
    engine: &Arc<Engine>,
    on_overload: OnOverload,
    memory_bytes: usize,
) -> Result<(FeedSender<R>, FeedReceiver<R>)> {
    engine.check_writable()?;
    let overload = match on_overload {
        OnOverload::Throttle => Overload::Throttle,
        OnOverload::Spill => Overload::Spill(SpillFiles::new(engine.clone())),
        OnOverload::Discard => Overload::Discard { discarded: 0 },
    };
    let state = State {
        records: VecDeque::new(),
        bytes: 0,
        bytes_max: memory_bytes,
        overload,
        is_finished: false,
        is_closed: false,
    };
    let queue = Arc::new(Queue { state: Mutex::new(state), changed: Condvar::new() });
    Ok((FeedSender(queue.clone()), FeedReceiver(queue)))
}

#[derive(Debug)]
struct Queue<R> {
    state: Mutex<State<R>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<R> {
    records: VecDeque<R>,
    /// Bytes of `records`.
    bytes: usize,
    bytes_max: usize,
    overload: Overload,
    /// Whether the sender was dropped.
    is_finished: bool,
    /// Whether the receiver was dropped.
    is_closed: bool,
}

/// The state of each [`OnOverload`].
#[derive(Debug)]
enum Overload {
    Throttle,
    Spill(SpillFiles),
    Discard { discarded: u64 },
}

/// The sending side of a [`crate::Store::feed_queue`]. Dropping it ends the queue.
#[derive(Debug)]
pub struct FeedSender<R: QueuedRecord>(Arc<Queue<R>>);

impl<R: QueuedRecord> FeedSender<R> {
    /// Sends records; waits if [`OnOverload`] says so. Returns whether the receiver still exists.
    ///
    /// # Errors
    /// When waiting records cannot be written to disk, except for a full disk.
    pub fn send(&self, records: Vec<R>) -> Result<bool> {
        let mut state = self.0.state.lock();
        let mut left = records;
        loop {
            if state.is_closed {
                return Ok(false);
            }
            left = state.add(left)?;
            self.0.changed.notify_all();
            if left.is_empty() {
                return Ok(true);
            }
            self.0.changed.wait_for(&mut state, SPACE_PAUSE);
        }
    }
}

impl<R: QueuedRecord> Drop for FeedSender<R> {
    fn drop(&mut self) {
        self.0.state.lock().is_finished = true;
        self.0.changed.notify_all();
    }
}

/// The receiving side of a [`crate::Store::feed_queue`]. Dropping it ends the queue.
#[derive(Debug)]
pub struct FeedReceiver<R: QueuedRecord>(Arc<Queue<R>>);

impl<R: QueuedRecord> FeedReceiver<R> {
    /// Removes and returns the first records of the queue: at most `count_max` of them, and not
    /// many more bytes than one read of a file. Waits only if there is none. Returns none once the
    /// sender was dropped and the queue is empty.
    ///
    /// # Errors
    /// When waiting records cannot be read from disk.
    pub fn receive(&self, count_max: usize) -> Result<Vec<R>> {
        let mut state = self.0.state.lock();
        loop {
            let records = state.remove(count_max)?;
            if !records.is_empty() {
                // There is memory for others.
                self.0.changed.notify_all();
                return Ok(records);
            }
            if state.is_finished {
                return Ok(Vec::new());
            }
            self.0.changed.wait(&mut state);
        }
    }

    /// Number of records dropped so far.
    pub fn discarded(&self) -> u64 {
        match self.0.state.lock().overload {
            Overload::Discard { discarded } => discarded,
            Overload::Throttle | Overload::Spill(_) => 0,
        }
    }
}

impl<R: QueuedRecord> Drop for FeedReceiver<R> {
    fn drop(&mut self) {
        self.0.state.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}

impl<R: QueuedRecord> State<R> {
    /// Adds records; returns those that have to wait.
    fn add(&mut self, records: Vec<R>) -> Result<Vec<R>> {
        let mut records = records.into_iter();
        // None overtakes those in files.
        if !matches!(&self.overload, Overload::Spill(files) if !files.is_empty()) {
            while self.bytes < self.bytes_max {
                let Some(record) = records.next() else { return Ok(Vec::new()) };
                self.bytes += record.memory_bytes();
                self.records.push_back(record);
            }
        }
        let left: Vec<R> = records.collect();
        match &mut self.overload {
            Overload::Throttle => Ok(left),
            Overload::Spill(files) => Ok(if files.write(&left)? { Vec::new() } else { left }),
            Overload::Discard { discarded } => {
                *discarded += left.len() as u64;
                Ok(Vec::new())
            }
        }
    }

    fn remove(&mut self, count_max: usize) -> Result<Vec<R>> {
        if let Overload::Spill(files) = &mut self.overload
            && self.records.is_empty()
        {
            self.records.extend(files.read()?);
            self.bytes = self.records.iter().map(R::memory_bytes).sum();
        }
        let (mut bytes, mut count) = (0, 0);
        for record in self.records.iter().take(count_max) {
            bytes += record.memory_bytes();
            count += 1;
            if bytes >= PIECE_BYTES {
                break;
            }
        }
        self.bytes -= bytes;
        Ok(self.records.drain(..count).collect())
    }
}
