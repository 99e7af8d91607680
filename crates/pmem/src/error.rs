//! Errors of pools, and what to do about them.

use terrane_storage::StorageError;

/// Result of calls of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure. The pool's file is unchanged, unless the variant says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Files, space, locks.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The file, its file system, this machine or the options do not suit the wanted kind of pool.
    #[error("{pool} cannot be used as a pool: {reason}")]
    Unsuitable {
        /// The file.
        pool: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The reserved range of addresses is used up.
    #[error(
        "{pool} needs {wanted} bytes of address space, and {reserved} are reserved for it; open it with a larger `address_space`"
    )]
    AddressSpace {
        /// The file.
        pool: String,
        /// Bytes that were to be mapped.
        wanted: u64,
        /// Bytes reserved.
        reserved: u64,
    },
    /// A block that is empty or longer than a chunk can hold.
    #[error(
        "{pool} cannot hold a block of {wanted} bytes: its blocks have 1 to {longest} bytes; create it with longer chunks"
    )]
    BlockLength {
        /// The file.
        pool: String,
        /// Bytes asked for.
        wanted: u64,
        /// Bytes of the longest block.
        longest: u64,
    },
    /// Another process, or another handle of this one, has it open.
    #[error("{pool} is in use: another process or handle has it open; close that first")]
    Locked {
        /// The file.
        pool: String,
    },
    /// The file is something else.
    #[error("{pool} is not a pool: it does not begin with a pool header; check the path")]
    NotAPool {
        /// The file.
        pool: String,
    },
    /// A later version of this program made it.
    #[error(
        "{pool} has version {found} of the pool format, and this program knows versions up to {known}; use a newer one"
    )]
    Newer {
        /// The file.
        pool: String,
        /// Version of the file.
        found: u64,
        /// Newest version that is known.
        known: u64,
    },
    /// The file ends too early.
    #[error("{pool} is truncated: it has {found} bytes of {expected}; restore it from a copy")]
    Truncated {
        /// The file.
        pool: String,
        /// Its length.
        found: u64,
        /// The length that its header states, or that every pool has.
        expected: u64,
    },
    /// What the file holds contradicts itself.
    #[error("{pool} is damaged at byte {offset}: {reason}; restore it from a copy")]
    Damaged {
        /// The file.
        pool: String,
        /// Where.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// It holds another structure than the one that was asked for.
    #[error("{pool} holds a structure with layout {}, not {}; open it as that structure", layout_name(*found), layout_name(*expected))]
    OtherLayout {
        /// The file.
        pool: String,
        /// Layout id of the file.
        found: u64,
        /// Layout id that was asked for.
        expected: u64,
    },
    /// Stores may be missing that later stores rely on.
    #[error("{pool} cannot be trusted: {reason}; delete it and rebuild its contents, or restore it from a copy")]
    Untrusted {
        /// The file.
        pool: String,
        /// What happened.
        reason: &'static str,
    },
}

/// A layout id as text, if its bytes are letters and digits. They are in file order.
fn layout_name(id: u64) -> String {
    let bytes = id.to_le_bytes();
    match std::str::from_utf8(&bytes) {
        Ok(text) if bytes.iter().all(u8::is_ascii_alphanumeric) => text.to_owned(),
        _ => format!("{id:#x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_named_as_their_programs_name_them() {
        let (found, expected) = (u64::from_le_bytes(*b"FBRTREE1"), 0x7e57);
        let error = Error::OtherLayout { pool: "pool".to_owned(), found, expected };
        assert!(error.to_string().contains("layout FBRTREE1, not 0x7e57"), "{error}");
    }
}
