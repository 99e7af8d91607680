//! Why a columnar file is not passed to its decoder.

use std::io::{self, Read};
use std::path::Path;

use crate::error::{FormatError, Location};

/// Most bytes that LZ4 makes of one.
pub(crate) const LZ4_EXPANSION_MAX: u64 = 255;

/// The result of a failed size check.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// The sizes contradict each other.
    Damaged(String),
    /// A piece that has to be decoded at once takes too much memory.
    TooLarge {
        /// The piece.
        what: &'static str,
        /// Memory that it takes.
        bytes: u64,
        /// Memory that it may take.
        bytes_max: u64,
    },
}

impl From<String> for Unfit {
    fn from(reason: String) -> Self {
        Self::Damaged(reason)
    }
}

impl From<&str> for Unfit {
    fn from(reason: &str) -> Self {
        Self::Damaged(reason.to_string())
    }
}

impl Unfit {
    /// The error about a file of this format, with advice for pieces that are too large.
    pub(crate) fn into_error(self, path: &Path, format: &str, advice: &str) -> FormatError {
        match self {
            Self::Damaged(reason) => {
                FormatError::damaged(path, Location::File, format!("not a whole {format}: {reason}"))
            }
            Self::TooLarge { what, bytes, bytes_max } => FormatError::refused(
                path,
                Location::File,
                format!("decoding {what} takes {bytes} bytes, but only {bytes_max} are available"),
                advice,
            ),
        }
    }
}

/// Refuses content that expands to more than it claims.
pub(crate) fn check_claim(decoder: impl Read, what: &str, claimed: u64) -> Result<(), String> {
    // The decoder reports content that cannot be decompressed at all.
    let decoded = io::copy(&mut decoder.take(claimed.saturating_add(1)), &mut io::sink());
    if decoded.is_ok_and(|decoded| decoded > claimed) {
        return Err(format!("{what} expands to more than the {claimed} bytes that it claims"));
    }
    Ok(())
}
