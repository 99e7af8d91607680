//! Parallel reading of text. One thread cuts a file into pieces between records, several threads
//! process the pieces, and the results are returned in the order of the file. A piece that is large
//! compared to the allowed memory is processed alone.

use std::any::Any;
use std::io;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crate::error::FormatError;
use crate::source::{BATCH_BYTES_SOFT, BATCH_ROWS_MAX};

/// Most threads that process the pieces of one file.
const THREADS_MAX: usize = 8;
/// Least text in a piece, where memory allows and the file does not end.
const PIECE_BYTES: usize = 512 << 10;
/// Number of pieces that share the allowed memory.
const PIECES_IN_MEMORY: usize = 16;
/// Memory of a tree of JSON values, in bytes per byte of its text.
const TREE_FACTOR: usize = 32;

/// The size of pieces, and the memory they take together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PieceSize {
    /// A piece ends with the record that reaches this many bytes of text,
    pub bytes: usize,
    /// or this many rows.
    pub rows: usize,
    /// The least memory that the values of a row take.
    row_bytes: usize,
    bytes_in_memory: usize,
}

impl PieceSize {
    /// For rows of `columns` columns, where decoding may take about `bytes_max`.
    pub(crate) fn new(columns: usize, bytes_max: u64) -> PieceSize {
        let bytes_in_memory = usize::try_from(bytes_max / 2).unwrap_or(usize::MAX);
        let row_bytes = columns.max(1) * 8;
        let soft = BATCH_BYTES_SOFT.min(bytes_in_memory / 4);
        PieceSize {
            bytes: PIECE_BYTES.min(bytes_in_memory / PIECES_IN_MEMORY),
            rows: (soft / row_bytes).clamp(1, BATCH_ROWS_MAX),
            row_bytes,
            bytes_in_memory,
        }
    }

    /// Memory of a piece, as text and as values.
    fn weight(&self, extent: Extent) -> usize {
        let Extent { bytes, rows, tree_bytes } = extent;
        2 * bytes + rows * self.row_bytes + tree_bytes.saturating_mul(TREE_FACTOR)
    }
}

/// How large a piece is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Extent {
    /// Bytes of text.
    pub bytes: usize,
    pub rows: usize,
    /// Bytes of the longest text that becomes a tree of values.
    pub tree_bytes: usize,
}

/// A file that can be cut into pieces.
pub(crate) trait PieceSource: Send + 'static {
    type Piece: Send + 'static;

    /// The next piece, or `None` at the end of the file.
    fn next_piece(&mut self, size: &PieceSize) -> Result<Option<Self::Piece>, FormatError>;

    fn extent(piece: &Self::Piece) -> Extent;
}

/// The memory of the pieces that are processed or wait.
#[derive(Default)]
struct MemoryInUse {
    state: Mutex<MemoryInUseState>,
    has_changed: Condvar,
}

#[derive(Default)]
struct MemoryInUseState {
    bytes: usize,
    pieces: usize,
    /// The consumer needs no more pieces.
    is_over: bool,
}

impl MemoryInUse {
    fn lock(&self) -> MutexGuard<'_, MemoryInUseState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until another piece may be read. Returns false if the consumer needs no more pieces.
    fn wait_for_room(&self, (bytes_max, pieces_max): (usize, usize)) -> bool {
        self.wait_while(|in_use| in_use.pieces >= pieces_max || in_use.bytes >= bytes_max)
    }

    /// Waits until there is memory for a piece. Returns false if the consumer needs no more pieces.
    fn take(&self, weight: usize, (bytes_max, _): (usize, usize)) -> bool {
        let is_wanted = self.wait_while(|in_use| in_use.bytes.saturating_add(weight) > bytes_max);
        let mut in_use = self.lock();
        in_use.bytes += weight;
        in_use.pieces += 1;
        is_wanted
    }

    /// Waits while memory is full, unless no piece is in use.
    fn wait_while(&self, is_full: impl Fn(&MemoryInUseState) -> bool) -> bool {
        let must_wait = |in_use: &mut MemoryInUseState| !in_use.is_over && in_use.pieces > 0 && is_full(in_use);
        let in_use = self.has_changed.wait_while(self.lock(), must_wait).unwrap_or_else(PoisonError::into_inner);
        !in_use.is_over
    }

    fn give_back(&self, weight: usize) {
        let mut in_use = self.lock();
        in_use.bytes -= weight;
        in_use.pieces -= 1;
        self.has_changed.notify_all();
    }

    fn end(&self) {
        self.lock().is_over = true;
        self.has_changed.notify_all();
    }
}

/// The future result of a piece, and the piece's weight.
type Promise<T> = Result<(Receiver<T>, usize), FormatError>;

/// What is done with each piece.
type Work<P, T> = Arc<dyn Fn(P) -> T + Send + Sync>;

/// The results for the pieces of a file, in their order. Reading begins with the first request.
pub(crate) struct Pieces<S: PieceSource, T> {
    path: PathBuf,
    size: PieceSize,
    /// Before reading begins.
    waiting: Option<(S, Work<S::Piece, T>)>,
    running: Option<Running<S, T>>,
    /// After reading has ended.
    ended: Option<S>,
}

impl<S: PieceSource, T: Send + 'static> Pieces<S, T> {
    /// Runs `work` on every piece of the file at `path`, with as many threads as there are cores.
    pub(crate) fn new(
        path: &Path,
        source: S,
        size: PieceSize,
        work: impl Fn(S::Piece) -> T + Send + Sync + 'static,
    ) -> Pieces<S, T> {
        let waiting = Some((source, Arc::new(work) as Work<S::Piece, T>));
        Pieces { path: path.to_path_buf(), size, waiting, running: None, ended: None }
    }

    /// The result for the next piece, or `None` after the last one.
    ///
    /// # Errors
    /// The file cannot be read on. The system cannot start a thread.
    pub(crate) fn next(&mut self) -> Result<Option<T>, FormatError> {
        if let Some((source, work)) = self.waiting.take() {
            self.running = Some(Running::start(source, self.size, work).map_err(|error| FormatError::Io {
                path: self.path.clone(),
                action: "start a thread to read the file",
                source: error,
            })?);
        }
        let Some(running) = &mut self.running else { return Ok(None) };
        let result = running.next();
        if !matches!(result, Ok(Some(_))) {
            self.end();
        }
        result
    }

    /// The source, after the last piece.
    pub(crate) fn into_source(mut self) -> S {
        self.end();
        let waiting = self.waiting.take().map(|(source, _)| source);
        self.ended.take().or(waiting).expect("reading gives the source back when it ends")
    }

    /// Ends the threads. Passes on their panic.
    fn end(&mut self) {
        if let Some(running) = self.running.take() {
            self.ended = Some(running.end().unwrap_or_else(|panic| panic::resume_unwind(panic)));
        }
    }
}

/// The threads that read and process pieces.
struct Running<S, T> {
    promises: Receiver<Promise<T>>,
    in_use: Arc<MemoryInUse>,
    reader: Option<JoinHandle<S>>,
    workers: Vec<JoinHandle<()>>,
}

impl<S: PieceSource, T: Send + 'static> Running<S, T> {
    fn start(source: S, size: PieceSize, work: Work<S::Piece, T>) -> io::Result<Self> {
        let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let in_use = Arc::new(MemoryInUse::default());
        let (to_workers, pieces) = mpsc::channel::<(S::Piece, Sender<T>)>();
        let (promise, promises) = mpsc::channel();
        let pieces = Arc::new(Mutex::new(pieces));
        let mut running = Running { promises, in_use: Arc::clone(&in_use), reader: None, workers: Vec::new() };
        for _ in 0..threads {
            let (work, pieces) = (Arc::clone(&work), Arc::clone(&pieces));
            let run = move || {
                // The lock is free before the work begins.
                let next = || pieces.lock().unwrap_or_else(PoisonError::into_inner).recv();
                while let Ok((piece, result)) = next() {
                    // The consumer may be gone.
                    let _ = result.send(work(piece));
                }
            };
            match thread::Builder::new().name("terrane-convert".to_string()).spawn(run) {
                Ok(worker) => running.workers.push(worker),
                // Fewer threads than planned are enough.
                Err(_) if !running.workers.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        let bounds = (size.bytes_in_memory, threads * 2 + 2);
        let read = move || Self::read(source, size, bounds, &in_use, &promise, &to_workers);
        running.reader = Some(thread::Builder::new().name("terrane-read".to_string()).spawn(read)?);
        Ok(running)
    }

    fn read(
        mut source: S,
        size: PieceSize,
        bounds: (usize, usize),
        in_use: &MemoryInUse,
        promise: &Sender<Promise<T>>,
        to_workers: &Sender<(S::Piece, Sender<T>)>,
    ) -> S {
        while in_use.wait_for_room(bounds) {
            let piece = match source.next_piece(&size) {
                Ok(Some(piece)) => piece,
                Ok(None) => break,
                Err(error) => {
                    let _ = promise.send(Err(error));
                    break;
                }
            };
            let weight = size.weight(S::extent(&piece));
            let (result, receiver) = mpsc::channel();
            let is_wanted = in_use.take(weight, bounds);
            if !is_wanted || promise.send(Ok((receiver, weight))).is_err() || to_workers.send((piece, result)).is_err()
            {
                break;
            }
        }
        source
    }

    fn next(&mut self) -> Result<Option<T>, FormatError> {
        let Ok(promise) = self.promises.recv() else { return Ok(None) };
        let (result, weight) = promise?;
        // A thread that sends nothing has panicked, which the end passes on.
        let Ok(made) = result.recv() else { return Ok(None) };
        self.in_use.give_back(weight);
        Ok(Some(made))
    }

    /// Ends the threads and gives the source back, or the panic of one of them.
    fn end(mut self) -> Result<S, Box<dyn Any + Send>> {
        self.in_use.end();
        let workers: Vec<_> = self.workers.drain(..).filter_map(|worker| worker.join().err()).collect();
        let reader = self.reader.take().expect("it is taken once").join();
        match workers.into_iter().next() {
            Some(panic) => Err(panic),
            None => reader,
        }
    }
}

impl<S, T> Drop for Running<S, T> {
    fn drop(&mut self) {
        self.in_use.end();
        let threads = self.workers.drain(..).map(|worker| worker.join().is_ok());
        let _ = threads.count();
        let _ = self.reader.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests;
