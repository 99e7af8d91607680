//! Words of files in memory.

use std::fmt::Debug;

use crate::event::{PersistenceDomain, ThreadNumber};

/// The words of a file in memory. Reads and writes of the file see them at once.
///
/// Every access is one atomic step. A recorder gets the steps in the order in which they took
/// effect. The content is little-endian on every machine.
pub trait MappedMemory: Send + Sync + Debug {
    /// Sets the part of later stores that a power loss keeps.
    fn set_domain(&self, domain: PersistenceDomain);

    /// The word at a byte offset; `None` if the offset is not aligned or the word is beyond the
    /// end.
    fn load(&self, offset: u64) -> Option<u64>;

    /// Stores a word at a byte offset, in one step. Returns the previous word; `None` like
    /// [`MappedMemory::load`].
    ///
    /// The previous word is for information. To decide by it, use [`MappedMemory::update`].
    fn store(&self, thread: ThreadNumber, offset: u64, value: u64) -> Option<u64>;

    /// Replaces the word at a byte offset by the result of `change`, in one step; a result of
    /// `None` leaves it. Returns the previous word, and whether it was replaced; `None` like
    /// [`MappedMemory::load`].
    ///
    /// Calls `change` at most once.
    fn update(
        &self,
        thread: ThreadNumber,
        offset: u64,
        change: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Option<Result<u64, u64>>;

    /// Begins to write a line back; `line` is the byte offset of its start.
    fn flush(&self, thread: ThreadNumber, line: u64, site: &'static str);

    /// Waits for all write-backs that the thread has begun.
    fn fence(&self, thread: ThreadNumber, site: &'static str);
}
