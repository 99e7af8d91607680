//! The bytes of one file, in chunks that copies share until they are written.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

/// Bytes per chunk.
const CHUNK_LENGTH: usize = 4096;
/// Chunks that are found by position. Those behind are rare and may lie anywhere. The number is
/// small in this crate's unit tests, so that they use both kinds.
const NEAR: usize = if cfg!(test) { 3 } else { 1 << 16 };

type Chunk = [u8; CHUNK_LENGTH];

/// A byte array whose chunks are allocated when they are written. A clone costs one reference count
/// per chunk.
///
/// Invariant: bytes of a chunk at or beyond `length` are zero, so extending reads zeros.
#[derive(Clone, Default)]
pub(crate) struct Content {
    length: u64,
    /// The first [`NEAR`] chunks, up to the last one that was written; zeros if there is none.
    near: Vec<Option<Arc<Chunk>>>,
    /// The other written chunks, by number.
    far: BTreeMap<usize, Arc<Chunk>>,
}

impl Content {
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Fills the buffer, with zeros where nothing was written or the file has ended.
    pub(crate) fn read(&self, buffer: &mut [u8], offset: u64) {
        for (chunk, start, range) in pieces(offset, buffer.len()) {
            let target = &mut buffer[range];
            match self.chunk(chunk) {
                Some(bytes) => target.copy_from_slice(&bytes[start..start + target.len()]),
                None => target.fill(0),
            }
        }
    }

    /// The little-endian word at an offset that is a multiple of 8.
    pub(crate) fn word(&self, offset: u64) -> u64 {
        let start = (offset % CHUNK_LENGTH as u64) as usize;
        self.chunk(offset as usize / CHUNK_LENGTH).map_or(0, |chunk| {
            let mut bytes = [0; size_of::<u64>()];
            bytes.copy_from_slice(&chunk[start..start + size_of::<u64>()]);
            u64::from_le_bytes(bytes)
        })
    }

    /// Adds the whole content to a hash.
    pub(crate) fn hash(&self, hasher: &mut Xxh3) {
        hasher.update(&self.length.to_le_bytes());
        let near = self.near.iter().enumerate().filter_map(|(number, chunk)| Some((number, chunk.as_ref()?)));
        for (number, chunk) in near.chain(self.far.iter().map(|(number, chunk)| (*number, chunk))) {
            hasher.update(&(number as u64).to_le_bytes());
            hasher.update(&chunk[..]);
        }
    }

    /// Writes, extending the length if needed.
    pub(crate) fn write(&mut self, bytes: &[u8], offset: u64) {
        if bytes.is_empty() {
            return;
        }
        self.length = self.length.max(offset + bytes.len() as u64);
        for (chunk, start, range) in pieces(offset, bytes.len()) {
            let source = &bytes[range];
            let target = Arc::make_mut(self.made(chunk));
            target[start..start + source.len()].copy_from_slice(source);
        }
    }

    /// A chunk; allocated with zeros if there is none.
    fn made(&mut self, number: usize) -> &mut Arc<Chunk> {
        let zeros = || Arc::new([0; CHUNK_LENGTH]);
        if number >= NEAR {
            return self.far.entry(number).or_insert_with(zeros);
        }
        if self.near.len() <= number {
            self.near.resize(number + 1, None);
        }
        self.near[number].get_or_insert_with(zeros)
    }

    fn chunk(&self, number: usize) -> Option<&Chunk> {
        match number < NEAR {
            true => self.near.get(number)?.as_deref(),
            false => self.far.get(&number).map(|chunk| &**chunk),
        }
    }

    fn chunk_mut(&mut self, number: usize) -> Option<&mut Arc<Chunk>> {
        match number < NEAR {
            true => self.near.get_mut(number)?.as_mut(),
            false => self.far.get_mut(&number),
        }
    }

    /// Writes zeros without changing the length.
    pub(crate) fn clear(&mut self, offset: u64, length: usize) {
        for (chunk, start, range) in pieces(offset, length) {
            if let Some(bytes) = self.chunk_mut(chunk) {
                Arc::make_mut(bytes)[start..start + range.len()].fill(0);
            }
        }
    }

    /// Truncates, or extends with zeros.
    pub(crate) fn set_length(&mut self, length: u64) {
        if length < self.length {
            let whole = length.div_ceil(CHUNK_LENGTH as u64) as usize;
            self.near.truncate(whole);
            drop(self.far.split_off(&whole));
            let rest = whole * CHUNK_LENGTH - length as usize;
            self.clear(length, rest);
        }
        self.length = length;
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "Content({} bytes, {} chunks)",
            self.length,
            self.near.iter().flatten().count() + self.far.len()
        )
    }
}

/// Splits a byte range at chunk borders: chunk number, start within it, and range of the buffer.
fn pieces(offset: u64, length: usize) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == length {
            return None;
        }
        let position = offset + done as u64;
        let start = (position % CHUNK_LENGTH as u64) as usize;
        let step = (CHUNK_LENGTH - start).min(length - done);
        let range = done..done + step;
        done += step;
        Some((position as usize / CHUNK_LENGTH, start, range))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    fn all(content: &Content) -> Vec<u8> {
        let mut bytes = vec![0xee; content.length() as usize];
        content.read(&mut bytes, 0);
        bytes
    }

    #[test]
    fn behaves_like_a_vector_and_copies_do_not_change() {
        for seed in 0..50 {
            let mut random = SmallRng::seed_from_u64(seed);
            let mut content = Content::default();
            let mut model: Vec<u8> = Vec::new();
            let mut copies = Vec::new();
            for _ in 0..60 {
                let offset = random.random_range(0..20_000usize);
                let length = random.random_range(0..9_000usize);
                match random.random_range(0..4) {
                    0 => {
                        content.set_length(offset as u64);
                        model.resize(offset, 0);
                    }
                    1 => {
                        let end = model.len().min(offset + length);
                        let start = offset.min(end);
                        content.clear(start as u64, end - start);
                        model[start..end].fill(0);
                    }
                    2 => {
                        let byte = random.random();
                        content.write(&vec![byte; length], offset as u64);
                        if length > 0 {
                            model.resize(model.len().max(offset + length), 0);
                            model[offset..offset + length].fill(byte);
                        }
                    }
                    _ => copies.push((content.clone(), model.clone())),
                }
                assert_eq!(all(&content), model, "seed {seed}");
            }
            for (copy, expected) in copies {
                assert_eq!(all(&copy), expected, "a copy changed, seed {seed}");
            }
        }
    }
}
