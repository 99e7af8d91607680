//! What can go wrong with pools, and what to do about it.

use terrane_storage::StorageError;

/// Result of calls of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure; the pool's file is as it was, unless the variant says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Files, space, locks.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The file, its file system or this machine cannot hold a pool of the wanted kind.
    #[error("{pool} cannot be a pool of persistent memory: {reason}")]
    Unsuitable {
        /// The file.
        pool: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The range of addresses that was set aside is used up.
    #[error(
        "{pool} cannot grow to {wanted} bytes: {reserved} bytes of address space were set aside for it; open it with more"
    )]
    AddressSpace {
        /// The file.
        pool: String,
        /// Bytes that were to be mapped.
        wanted: u64,
        /// Bytes set aside.
        reserved: u64,
    },
}
