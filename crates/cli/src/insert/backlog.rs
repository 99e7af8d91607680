//! Lines that arrive faster than they are written. A thread reads them, and keeps them on disk or
//! drops them.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::lines::{Arrivals, Line};
use super::spill::{PIECE_BYTES, SpillFiles};
use super::stop::Stop;

/// Memory that a line takes besides its text.
const LINE_BYTES: usize = size_of::<Line>();
/// Interval of checks whether a full disk has space again, without another event.
const ROOM_PAUSE: Duration = Duration::from_millis(100);

/// What to do with lines that do not fit in memory.
#[derive(Debug)]
pub enum Overflow {
    /// They are written to unnamed files, and later to the store. While the disk has no space,
    /// reading stops.
    Spill(SpillFiles),
    /// They are dropped and counted.
    Discard,
}

impl Overflow {
    /// Files in a directory for lines that do not fit.
    ///
    /// # Errors
    /// When the operating system refuses it.
    pub fn spill(directory: &Path) -> io::Result<Self> {
        SpillFiles::new(directory).map(Self::Spill)
    }
}

/// Lines between the thread that reads them and the one that writes them to the store.
#[derive(Debug)]
pub struct Backlog {
    state: Mutex<State>,
    changed: Condvar,
    bytes_max: usize,
}

#[derive(Debug)]
struct State {
    lines: VecDeque<Line>,
    /// Bytes of `lines`.
    bytes: usize,
    overflow: Overflow,
    discarded: u64,
    /// How the input ended, once it has.
    ended: Option<io::Result<()>>,
    /// Whether the consumer needs no more lines.
    is_closed: bool,
}

impl Backlog {
    /// Keeps at most `bytes_max` of lines in memory.
    pub fn new(bytes_max: usize, overflow: Overflow) -> Self {
        let state = State { lines: VecDeque::new(), bytes: 0, overflow, discarded: 0, ended: None, is_closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), bytes_max }
    }

    /// Reads an input to its end, or until the consumer needs no more lines.
    pub fn fill(&self, input: &mut dyn Arrivals, count_max: usize) {
        let _abandoned = Abandoned(self);
        loop {
            let arrived = input.next(count_max);
            let mut state = self.lock();
            let ended = match arrived {
                _ if state.is_closed => Some(Ok(())),
                Ok(lines) if lines.is_empty() => Some(Ok(())),
                Ok(lines) => {
                    let mut left = state.take(lines, self.bytes_max);
                    while left.as_ref().is_ok_and(|left| !left.is_empty()) && !state.is_closed {
                        self.changed.notify_all();
                        let waited = self.changed.wait_timeout(state, ROOM_PAUSE);
                        state = waited.unwrap_or_else(PoisonError::into_inner).0;
                        left = left.and_then(|left| state.take(left, self.bytes_max));
                    }
                    left.err().map(Err)
                }
                Err(error) => Some(Err(error)),
            };
            self.changed.notify_all();
            if ended.is_some() {
                state.ended = ended;
                return;
            }
        }
    }

    /// Number of lines dropped so far.
    pub fn discarded(&self) -> u64 {
        self.lock().discarded
    }

    /// Tells the reading thread that the consumer needs no more lines.
    pub fn close(&self) {
        self.lock().is_closed = true;
    }

    /// Ends the reading thread when it is dropped.
    pub fn end_with<'b>(&'b self, stop: &'b Stop) -> End<'b> {
        End { backlog: self, stop }
    }

    /// Whoever joins a thread that panicked reports the panic.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the reading when it is dropped.
#[derive(Debug)]
pub struct End<'b> {
    backlog: &'b Backlog,
    stop: &'b Stop,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        if self.backlog.lock().ended.is_none() {
            self.backlog.close();
            self.stop.end();
        }
    }
}

/// Wakes the waiting consumer if the reading thread panics.
struct Abandoned<'b>(&'b Backlog);

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.lock().ended = Some(Err(io::Error::other("the thread that reads panicked")));
            self.0.changed.notify_all();
        }
    }
}

impl Arrivals for &Backlog {
    fn next(&mut self, count_max: usize) -> io::Result<Vec<Line>> {
        let mut state = self.lock();
        loop {
            let lines = state.give(count_max)?;
            if !lines.is_empty() {
                // There is memory for lines that wait.
                self.changed.notify_all();
                return Ok(lines);
            }
            match state.ended.take() {
                Some(ended) => {
                    state.ended = Some(Ok(()));
                    return ended.map(|()| Vec::new());
                }
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl State {
    /// Takes lines that arrived; returns those that have to wait.
    fn take(&mut self, arrived: Vec<Line>, bytes_max: usize) -> io::Result<Vec<Line>> {
        let mut lines = arrived.into_iter();
        // Lines keep their order: none overtakes those in the file.
        if !matches!(&self.overflow, Overflow::Spill(files) if !files.is_empty()) {
            while self.bytes < bytes_max {
                let Some(line) = lines.next() else { return Ok(Vec::new()) };
                self.bytes += bytes_of(&line);
                self.lines.push_back(line);
            }
        }
        match &mut self.overflow {
            Overflow::Spill(files) => Ok(files.write(lines.collect())?.err().unwrap_or_default()),
            Overflow::Discard => {
                self.discarded += lines.len() as u64;
                Ok(Vec::new())
            }
        }
    }

    fn give(&mut self, count_max: usize) -> io::Result<Vec<Line>> {
        if let Overflow::Spill(files) = &mut self.overflow
            && self.lines.is_empty()
        {
            self.lines.extend(files.read()?);
            self.bytes = self.lines.iter().map(bytes_of).sum();
        }
        let (mut bytes, mut count) = (0, 0);
        for line in self.lines.iter().take(count_max) {
            bytes += bytes_of(line);
            count += 1;
            if bytes >= PIECE_BYTES as usize {
                break;
            }
        }
        self.bytes -= bytes;
        Ok(self.lines.drain(..count).collect())
    }
}

fn bytes_of(line: &Line) -> usize {
    let (Ok(text) | Err(text)) = &line.text;
    LINE_BYTES + text.len()
}

#[cfg(test)]
#[path = "backlog_tests.rs"]
mod tests;
