//! A bump arena: memory that is allocated piece by piece and freed as a whole.
//!
//! Addresses are stable until the arena is dropped. Before that nothing is freed, and no destructor
//! runs. One thread allocates at a time (`&mut self`). Any thread may read what it placed, through
//! the pointers it published.

use crate::{Error, Result};
use std::alloc::{Layout, alloc, dealloc};
use std::mem::needs_drop;
use std::ptr::NonNull;
use std::sync::Arc;
use terrane_storage::sync::{AtomicUsize, Ordering};

/// The first chunk is small, as many datasets with few entries each may be written at a time.
const CHUNK_BYTES_MIN: usize = 4 << 10;
const CHUNK_BYTES_MAX: usize = 256 << 10;
/// In a large arena, a chunk is at most this share of it. Memory that is taken and not yet used
/// counts against a limit that can be small.
const CHUNK_PART: usize = 8;
/// A piece larger than this share of a chunk gets its own chunk.
const PIECE_PART: usize = 4;
/// Alignment of every chunk, and the largest possible alignment of a piece.
const CHUNK_ALIGN: usize = 64;

/// Bytes of an arena's chunks, readable while another thread allocates.
#[derive(Debug, Clone)]
pub(super) struct ArenaBytes(Arc<AtomicUsize>);

impl ArenaBytes {
    /// Bytes that the arena has taken from the allocator.
    pub(super) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Chunks of memory, and the free part of the newest one.
#[derive(Debug)]
pub(super) struct Arena {
    chunks: Vec<(NonNull<u8>, Layout)>,
    /// Start of the free part of the current chunk; dangling when `free` is 0.
    next: NonNull<u8>,
    free: usize,
    bytes: ArenaBytes,
}

// SAFETY: the chunks are owned by the arena alone, and plain memory is not bound to a thread.
unsafe impl Send for Arena {}

impl Arena {
    /// An arena without memory; the first allocation takes a chunk.
    pub(super) fn new() -> Self {
        Self {
            chunks: Vec::new(),
            next: NonNull::dangling(),
            free: 0,
            bytes: ArenaBytes(Arc::new(AtomicUsize::new(0))),
        }
    }

    /// The counter of the bytes taken.
    pub(super) fn bytes(&self) -> ArenaBytes {
        self.bytes.clone()
    }

    /// Uninitialised memory of the given layout, valid until the arena is dropped.
    ///
    /// # Errors
    /// [`Error::Full`] if the allocator has no memory; [`Error::Invalid`] for a layout that no
    /// chunk can hold.
    pub(super) fn allocate(&mut self, layout: Layout) -> Result<NonNull<u8>> {
        if layout.align() > CHUNK_ALIGN {
            return Err(Error::Invalid(format!(
                "an arena aligns to {CHUNK_ALIGN} bytes at most, not {}",
                layout.align()
            )));
        }
        if let Some(place) = self.take(layout) {
            return Ok(place);
        }
        let part = self.bytes.get() / CHUNK_PART;
        let size = part.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX).next_multiple_of(CHUNK_BYTES_MIN);
        if layout.size() > size / PIECE_PART {
            // A chunk of its own: the free part of the current one stays in use.
            return self.chunk(layout.size());
        }
        self.next = self.chunk(size)?;
        self.free = size;
        self.take(layout)
            .ok_or_else(|| Error::Invalid(format!("{} bytes do not fit into a new chunk of {size}", layout.size())))
    }

    /// Moves a value into the arena. Its destructor never runs, so it must not need one.
    pub(super) fn place<T>(&mut self, value: T) -> Result<NonNull<T>> {
        const { assert!(!needs_drop::<T>(), "an arena runs no destructors") };
        let place = self.allocate(Layout::new::<T>())?.cast::<T>();
        // SAFETY: `place` is fresh memory of `T`'s layout that nobody else knows.
        unsafe { place.write(value) };
        Ok(place)
    }

    /// Copies bytes into the arena.
    pub(super) fn copy(&mut self, bytes: &[u8]) -> Result<NonNull<u8>> {
        let layout =
            Layout::array::<u8>(bytes.len()).map_err(|_| Error::Invalid("too many bytes for an arena".into()))?;
        let place = self.allocate(layout)?;
        // SAFETY: `place` is fresh memory of `bytes.len()` bytes, so the two do not overlap.
        unsafe { place.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        Ok(place)
    }

    fn take(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        let padding = self.next.align_offset(layout.align());
        let end = padding.checked_add(layout.size())?;
        if end > self.free {
            return None;
        }
        // SAFETY: `padding <= end <= self.free`, the bytes left in the chunk behind `next`.
        let place = unsafe { self.next.add(padding) };
        // SAFETY: `end <= self.free`, as above; the end of the chunk itself is allowed.
        self.next = unsafe { self.next.add(end) };
        self.free -= end;
        Some(place)
    }

    fn chunk(&mut self, size: usize) -> Result<NonNull<u8>> {
        let layout = Layout::from_size_align(size.max(1), CHUNK_ALIGN)
            .map_err(|_| Error::Invalid("too many bytes for an arena".into()))?;
        self.chunks
            .try_reserve(1)
            .map_err(|_| Error::Full { what: "the list of chunks of a memory component".into() })?;
        // SAFETY: the layout has a size above zero.
        let Some(start) = NonNull::new(unsafe { alloc(layout) }) else {
            return Err(Error::Full { what: format!("{size} bytes of a memory component") });
        };
        self.chunks.push((start, layout));
        self.bytes.0.fetch_add(layout.size(), Ordering::Relaxed);
        Ok(start)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for (start, layout) in self.chunks.drain(..) {
            // SAFETY: `start` came from `alloc` with this layout and is freed once.
            unsafe { dealloc(start.as_ptr(), layout) };
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_aligned_disjoint_and_keep_their_bytes() {
        let mut arena = Arena::new();
        let mut pieces = Vec::new();
        let pieces_count = if cfg!(miri) { 60 } else { 2_000_usize };
        for index in 0..pieces_count {
            let size = index * 7 % 900;
            let byte = u8::try_from(index % 251).unwrap_or(0);
            let place = arena.copy(&vec![byte; size]).expect("memory");
            let word = arena.place(index as u64).expect("memory");
            assert_eq!(word.as_ptr() as usize % align_of::<u64>(), 0);
            pieces.push((place, size, byte, word, index as u64));
        }
        for (place, size, byte, word, value) in pieces {
            // SAFETY: the arena is alive and `size` bytes were written at `place`.
            let bytes = unsafe { std::slice::from_raw_parts(place.as_ptr(), size) };
            assert!(bytes.iter().all(|&found| found == byte));
            // SAFETY: the arena is alive and a `u64` was placed there.
            assert_eq!(unsafe { word.read() }, value);
        }
    }

    #[test]
    fn a_large_piece_gets_a_chunk_of_its_size_and_leaves_the_current_chunk_in_use() {
        let mut arena = Arena::new();
        let bytes = arena.bytes();
        assert_eq!(bytes.get(), 0);
        arena.copy(&[1; 100]).expect("memory");
        assert_eq!(bytes.get(), CHUNK_BYTES_MIN);
        arena.copy(&vec![2; 5 << 20]).expect("memory");
        arena.copy(&[3; 100]).expect("memory");
        assert_eq!(bytes.get(), CHUNK_BYTES_MIN + (5 << 20));
    }

    #[test]
    fn what_is_taken_is_little_more_than_what_is_used() {
        for piece in [1, 40, 900, 1100, 5_000, 70_000] {
            let mut arena = Arena::new();
            let mut used = 0;
            while used < 8 << 20 {
                arena.copy(&vec![0; piece]).unwrap();
                used += piece;
                // A piece may leave a quarter of a chunk unused, and the newest chunk may be empty.
                let most = used / 3 * 4 / 8 * 9 + CHUNK_BYTES_MIN + piece;
                assert!(arena.bytes().get() <= most, "{} for {used} in pieces of {piece}", arena.bytes().get());
            }
        }
    }

    #[test]
    fn an_alignment_beyond_a_chunks_is_refused() {
        let layout = Layout::from_size_align(8, 4096).expect("a valid layout");
        assert!(matches!(Arena::new().allocate(layout), Err(Error::Invalid(_))));
    }
}
