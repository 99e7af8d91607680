//! Parallel reading of text. One thread cuts a file into pieces between records, several threads
//! process the pieces, and the results are returned in the order of the file. A piece that is large
//! compared to the allowed memory is processed alone.

use std::any::Any;
use std::io;
use std::panic;
use std::path::Path;
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
    fn weight(&self, (bytes, rows): (usize, usize)) -> usize {
        2 * bytes + rows * self.row_bytes
    }
}

/// A file that can be cut into pieces.
pub(crate) trait PieceSource: Send + 'static {
    type Piece: Send;

    /// The next piece, or `None` at the end of the file.
    fn next_piece(&mut self, size: &PieceSize) -> Result<Option<Self::Piece>, FormatError>;

    /// Bytes of text and number of rows in a piece.
    fn extent(piece: &Self::Piece) -> (usize, usize);
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

    /// Waits until there is memory for a piece. Returns false if the consumer needs no more pieces.
    fn take(&self, weight: usize, (bytes_max, pieces_max): (usize, usize)) -> bool {
        let is_full = |in_use: &MemoryInUseState| {
            in_use.pieces > 0 && (in_use.pieces >= pieces_max || in_use.bytes.saturating_add(weight) > bytes_max)
        };
        let mut in_use = self
            .has_changed
            .wait_while(self.lock(), |in_use| !in_use.is_over && is_full(in_use))
            .unwrap_or_else(PoisonError::into_inner);
        in_use.bytes += weight;
        in_use.pieces += 1;
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

/// The results for the pieces of a file, in their order.
pub(crate) struct Pieces<S, T> {
    promises: Receiver<Promise<T>>,
    in_use: Arc<MemoryInUse>,
    reader: Option<JoinHandle<S>>,
    workers: Vec<JoinHandle<()>>,
    /// The source, after reading has ended.
    source: Option<S>,
}

impl<S: PieceSource, T: Send + 'static> Pieces<S, T> {
    /// Runs `work` on every piece of the file at `path`, with as many threads as there are cores.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub(crate) fn new(
        path: &Path,
        mut source: S,
        size: PieceSize,
        work: impl Fn(S::Piece) -> T + Send + Sync + 'static,
    ) -> Result<Pieces<S, T>, FormatError> {
        let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let in_use = Arc::new(MemoryInUse::default());
        let (to_workers, pieces) = mpsc::channel::<(S::Piece, Sender<T>)>();
        let (promise, promises) = mpsc::channel();
        let work = Arc::new((work, Mutex::new(pieces)));
        let started = |error: io::Error| FormatError::Io {
            path: path.to_path_buf(),
            action: "start a thread to read the file",
            source: error,
        };
        let mut made =
            Pieces { promises, in_use: Arc::clone(&in_use), reader: None, workers: Vec::new(), source: None };
        for _ in 0..threads {
            let work = Arc::clone(&work);
            let run = move || {
                let (work, pieces) = &*work;
                // The lock is free before the work begins.
                let next = || pieces.lock().unwrap_or_else(PoisonError::into_inner).recv();
                while let Ok((piece, result)) = next() {
                    // The consumer may be gone.
                    let _ = result.send(work(piece));
                }
            };
            match thread::Builder::new().name("terrane-convert".to_string()).spawn(run) {
                Ok(worker) => made.workers.push(worker),
                // Fewer threads than planned are enough.
                Err(_) if !made.workers.is_empty() => break,
                Err(error) => return Err(started(error)),
            }
        }
        let bounds = (size.bytes_in_memory, threads * 2 + 2);
        let read = move || {
            while let Some(piece) = source.next_piece(&size).transpose() {
                let (piece, weight) = match piece {
                    Ok(piece) => {
                        let weight = size.weight(S::extent(&piece));
                        (piece, weight)
                    }
                    Err(error) => {
                        let _ = promise.send(Err(error));
                        break;
                    }
                };
                let (result, receiver) = mpsc::channel();
                let is_wanted = in_use.take(weight, bounds);
                if !is_wanted || promise.send(Ok((receiver, weight))).is_err() {
                    break;
                }
                if to_workers.send((piece, result)).is_err() {
                    break;
                }
            }
            source
        };
        made.reader = Some(thread::Builder::new().name("terrane-read".to_string()).spawn(read).map_err(started)?);
        Ok(made)
    }

    /// The result for the next piece, or `None` after the last one.
    pub(crate) fn next(&mut self) -> Result<Option<T>, FormatError> {
        let Ok(promise) = self.promises.recv() else {
            self.pass_panic_on();
            return Ok(None);
        };
        let (result, weight) = promise?;
        let Ok(made) = result.recv() else {
            self.pass_panic_on();
            unreachable!("a thread that sends nothing has panicked");
        };
        self.in_use.give_back(weight);
        Ok(Some(made))
    }

    /// The source, after the last piece.
    pub(crate) fn into_source(mut self) -> S {
        self.pass_panic_on();
        self.source.take().expect("a thread that does not panic gives it back")
    }
}

impl<S, T> Pieces<S, T> {
    /// Ends the threads. One of them may have panicked.
    fn end(&mut self) -> Option<Box<dyn Any + Send>> {
        self.in_use.end();
        let workers: Vec<_> = self.workers.drain(..).filter_map(|worker| worker.join().err()).collect();
        let reader = match self.reader.take().map(JoinHandle::join) {
            Some(Ok(source)) => {
                self.source = Some(source);
                None
            }
            Some(Err(panic)) => Some(panic),
            None => None,
        };
        workers.into_iter().chain(reader).next()
    }

    fn pass_panic_on(&mut self) {
        if let Some(panic) = self.end() {
            panic::resume_unwind(panic);
        }
    }
}

impl<S, T> Drop for Pieces<S, T> {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
