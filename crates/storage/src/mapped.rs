//! Words of files in memory.

use std::fmt::Debug;

use crate::event::{PersistenceDomain, ThreadNumber};

/// The words of a file in memory. Reads and writes of the file see them at once.
///
/// Every access is one indivisible step, and a recorder hears of the steps in the order in which
/// they took effect. The content is little-endian on every machine.
pub trait MappedMemory: Send + Sync + Debug {
    /// Says what a power loss leaves of the stores that follow.
    fn set_domain(&self, domain: PersistenceDomain);

    /// The word at a byte offset; `None` if that is not aligned, or the file ends before.
    fn load(&self, offset: u64) -> Option<u64>;

    /// Stores a word at a byte offset, in one step. Gives the word before; `None` as [`MappedMemory::load`].
    ///
    /// The word before tells what was there. To go by it takes [`MappedMemory::update`].
    fn store(&self, thread: ThreadNumber, offset: u64, value: u64) -> Option<u64>;

    /// Replaces the word at a byte offset by what `change` makes of it, or leaves it if that is
    /// nothing, in one step. Gives the word before, and whether it was replaced; `None` as [`MappedMemory::load`].
    ///
    /// Calls `change` once at most.
    fn update(
        &self,
        thread: ThreadNumber,
        offset: u64,
        change: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> Option<Result<u64, u64>>;

    /// Begins to write a line back; `line` is the byte offset of its start.
    fn flush(&self, thread: ThreadNumber, line: u64, site: &'static str);

    /// Waits for all that the thread has begun to write back.
    fn fence(&self, thread: ThreadNumber, site: &'static str);
}
