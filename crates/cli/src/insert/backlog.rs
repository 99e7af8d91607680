//! Lines that arrive faster than they are written: read by a thread of their own, and kept on disk or let go.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::lines::{Arrivals, Line};
use super::stop::Stop;

/// Bytes of a piece of the file of lines; a line that is larger is a piece of its own.
const PIECE_BYTES: u64 = 1 << 20;
/// Bytes that a line takes in memory besides its text.
const LINE_BYTES: usize = size_of::<Line>();

/// What becomes of lines that do not fit in memory.
#[derive(Debug)]
pub enum Excess {
    /// They are written to a file that has no name, and written to the store in their turn.
    Spill(SpillFile),
    /// They are dropped and counted.
    Discard,
}

impl Excess {
    /// A file in a directory for lines that do not fit.
    ///
    /// # Errors
    /// Of the operating system.
    pub fn spill(directory: &Path) -> io::Result<Self> {
        Ok(Self::Spill(SpillFile { file: tempfile::tempfile_in(directory)?, end: 0, pieces: VecDeque::new() }))
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
    excess: Excess,
    discarded: u64,
    /// How the input ended, if it has.
    ended: Option<io::Result<()>>,
    /// Whether nobody wants more.
    is_closed: bool,
}

impl Backlog {
    /// Keeps so many bytes of lines in memory.
    pub fn new(bytes_max: usize, excess: Excess) -> Self {
        let state = State { lines: VecDeque::new(), bytes: 0, excess, discarded: 0, ended: None, is_closed: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), bytes_max }
    }

    /// Reads an input to its end, or until nobody wants more.
    pub fn fill(&self, input: &mut dyn Arrivals, count_max: usize) {
        let _abandoned = Abandoned(self);
        loop {
            let arrived = input.next(count_max);
            let mut state = self.lock();
            let ended = match arrived {
                _ if state.is_closed => Some(Ok(())),
                Ok(lines) if lines.is_empty() => Some(Ok(())),
                Ok(lines) => state.take(lines, self.bytes_max).err().map(Err),
                Err(error) => Some(Err(error)),
            };
            self.changed.notify_all();
            if ended.is_some() {
                state.ended = ended;
                return;
            }
        }
    }

    /// Lets the thread that reads know that nobody wants more.
    pub fn close(&self) {
        self.lock().is_closed = true;
    }

    /// What ends the reading of a thread when it is dropped, if it goes on then.
    pub fn end_with<'b>(&'b self, stop: &'b Stop) -> End<'b> {
        End { backlog: self, stop }
    }

    /// How many lines were dropped.
    pub fn discarded(&self) -> u64 {
        self.lock().discarded
    }

    /// A thread that panicked is told of by who joins it.
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

/// Tells who waits for lines if the thread that reads them panics.
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
    /// Takes lines that arrived.
    fn take(&mut self, arrived: Vec<Line>, bytes_max: usize) -> io::Result<()> {
        let mut lines = arrived.into_iter();
        // In the order in which they came: behind what is in the file nothing goes past it.
        if !matches!(&self.excess, Excess::Spill(file) if !file.pieces.is_empty()) {
            while self.bytes < bytes_max {
                let Some(line) = lines.next() else { return Ok(()) };
                self.bytes += bytes_of(&line);
                self.lines.push_back(line);
            }
        }
        match &mut self.excess {
            Excess::Spill(file) => file.write(lines)?,
            Excess::Discard => self.discarded += lines.len() as u64,
        }
        Ok(())
    }

    fn give(&mut self, count_max: usize) -> io::Result<Vec<Line>> {
        if let Excess::Spill(file) = &mut self.excess
            && self.lines.is_empty()
        {
            self.lines.extend(file.read()?);
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

/// Lines in a file, in pieces that are read as a whole.
#[derive(Debug)]
pub struct SpillFile {
    file: File,
    end: u64,
    /// Where the pieces are that have not been read, as offset and length.
    pieces: VecDeque<(u64, u64)>,
}

impl SpillFile {
    fn write(&mut self, lines: impl Iterator<Item = Line>) -> io::Result<()> {
        let mut bytes = Vec::new();
        for line in lines {
            let (is_text, text) = match &line.text {
                Ok(text) => (true, text),
                Err(reason) => (false, reason),
            };
            for number in [line.number, line.end, text.len() as u64, u64::from(is_text)] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            bytes.extend_from_slice(text.as_bytes());
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let failed = |error: io::Error| {
            io::Error::new(error.kind(), format!("lines that wait for their turn cannot be written to disk: {error}"))
        };
        self.file.write_all_at(&bytes, self.end).map_err(failed)?;
        match self.pieces.back_mut().filter(|(_, length)| *length < PIECE_BYTES) {
            Some((_, length)) => *length += bytes.len() as u64,
            None => self.pieces.push_back((self.end, bytes.len() as u64)),
        }
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// The lines of the first piece, which is gone then.
    fn read(&mut self) -> io::Result<Vec<Line>> {
        let Some((offset, length)) = self.pieces.pop_front() else { return Ok(Vec::new()) };
        let mut bytes = vec![0; length as usize];
        self.file.read_exact_at(&mut bytes, offset)?;
        if self.pieces.is_empty() {
            // All has been read: its room is given back.
            self.file.set_len(0)?;
            self.end = 0;
        }
        let mut rest = &bytes[..];
        let mut lines = Vec::new();
        while !rest.is_empty() {
            lines.push(read_line(&mut rest).ok_or(io::ErrorKind::InvalidData)?);
        }
        Ok(lines)
    }
}

/// The first of the lines as they were written.
fn read_line(rest: &mut &[u8]) -> Option<Line> {
    let mut number = || {
        let (bytes, after) = rest.split_first_chunk()?;
        *rest = after;
        Some(u64::from_le_bytes(*bytes))
    };
    let (number, end, length, is_text) = (number()?, number()?, number()?, number()? == 1);
    let (text, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = after;
    let text = String::from_utf8(text.to_vec()).ok()?;
    Some(Line { number, end, text: if is_text { Ok(text) } else { Err(text) } })
}

#[cfg(test)]
#[path = "backlog_tests.rs"]
mod tests;
