//! The order of a tree's entries, and keys as nodes store them.

use super::super::arena::Arena;
use crate::{Error, Result};
use std::ptr::NonNull;

/// Longest key in bytes.
pub const KEY_LENGTH_MAX: usize = 2048;
const INLINE: usize = 8;

/// The first bytes of a key as a number. Padding them with zeros keeps the order, and keys with
/// equal numbers are compared by all of their bytes.
pub(super) fn prefix_of(key: &[u8]) -> u128 {
    let prefix = key.first_chunk().copied().unwrap_or_else(|| {
        let mut padded = [0; size_of::<u128>()];
        padded[..key.len()].copy_from_slice(key);
        padded
    });
    u128::from_be_bytes(prefix)
}

/// The place of an entry in a tree: by head, then key bytes, then tie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::memory) struct Order<'a> {
    /// Compared first, without access to the key.
    pub(in crate::memory) head: u64,
    /// The key's bytes.
    pub(in crate::memory) key: &'a [u8],
    /// Orders the entries of one key.
    pub(in crate::memory) tie: u64,
}

/// A key's bytes if they are at most eight, otherwise their address in the arena. The length is
/// stored beside it.
#[derive(Clone, Copy)]
pub(in crate::memory) union KeyWord {
    inline: [u8; INLINE],
    far: NonNull<u8>,
}

// SAFETY: the bytes behind `far` are written before the word is published and are
// immutable until the arena goes, which outlives every node that holds the word.
unsafe impl Send for KeyWord {}
// SAFETY: as above.
unsafe impl Sync for KeyWord {}

impl KeyWord {
    /// Stores a key; a long one is copied into the arena.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a key longer than [`KEY_LENGTH_MAX`], and the arena's.
    pub(in crate::memory) fn store(arena: &mut Arena, key: &[u8]) -> Result<(Self, u16)> {
        let length =
            u16::try_from(key.len()).ok().filter(|&length| usize::from(length) <= KEY_LENGTH_MAX).ok_or_else(|| {
                Error::Invalid(format!("a key of {} bytes; at most {KEY_LENGTH_MAX} are possible", key.len()))
            })?;
        if key.len() > INLINE {
            return Ok((Self { far: arena.copy(key)? }, length));
        }
        let mut inline = [0; INLINE];
        inline[..key.len()].copy_from_slice(key);
        Ok((Self { inline }, length))
    }

    /// The key's bytes.
    ///
    /// # Safety
    /// `length` is the one that [`KeyWord::store`] returned with this word, and the arena
    /// lives at least as long as `self` is borrowed.
    pub(in crate::memory) unsafe fn bytes(&self, length: u16) -> &[u8] {
        let length = usize::from(length);
        if length <= INLINE {
            // SAFETY: a key of this length is stored inline.
            return unsafe { &self.inline[..length] };
        }
        // SAFETY: a longer key is stored in the arena, with this length, and never changes.
        unsafe { std::slice::from_raw_parts(self.far.as_ptr(), length) }
    }
}

/// An [`Order`] whose key is held by the arena.
#[derive(Clone, Copy)]
pub(in crate::memory) struct StoredOrder {
    pub(in crate::memory) head: u64,
    pub(in crate::memory) rest: StoredRest,
}

/// The part of a [`StoredOrder`] behind the head.
#[derive(Clone, Copy)]
pub(in crate::memory) struct StoredRest {
    pub(in crate::memory) key: KeyWord,
    pub(in crate::memory) tie: u64,
    pub(in crate::memory) length: u16,
    pub(in crate::memory) print: u16,
}

/// A few bits of a key's hash, by which a leaf is searched. If keys have the same beginning, their
/// heads do not distinguish them, and their bytes are far away.
pub(super) fn print_of(key: &[u8]) -> u16 {
    xxhash_rust::xxh3::xxh3_64(key) as u16
}

impl StoredOrder {
    /// The order before every entry.
    pub(in crate::memory) fn lowest() -> Self {
        let rest = StoredRest { key: KeyWord { inline: [0; INLINE] }, tie: 0, length: 0, print: print_of(&[]) };
        Self { head: 0, rest }
    }
}

impl StoredRest {
    /// The order of this rest behind a head.
    pub(in crate::memory) fn order(&self, head: u64) -> Order<'_> {
        // SAFETY: key and length were stored together; a rest lives in nodes of the arena
        // that holds the key, or on the stack of the writer that holds that arena.
        let key = unsafe { self.key.bytes(self.length) };
        Order { head, key, tie: self.tie }
    }
}
