//! Why a columnar file is not given to its decoder.

use std::io::{self, Read};
use std::path::Path;

use crate::error::{FormatError, Location};

/// To how many bytes LZ4 expands one at most.
pub(crate) const LZ4_EXPANSION_MAX: u64 = 255;

/// What a look at the sizes in a file has found.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// They contradict each other.
    Damaged(String),
    /// What has to be decoded at once takes too much memory.
    TooLarge {
        /// The piece.
        what: &'static str,
        /// What it takes.
        bytes: u64,
        /// What it may take.
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
    /// The error about a file of this format, with what to do about pieces that are too large.
    pub(crate) fn into_error(self, path: &Path, format: &str, advice: &str) -> FormatError {
        match self {
            Self::Damaged(reason) => {
                FormatError::damaged(path, Location::File, format!("not a whole {format}: {reason}"))
            }
            Self::TooLarge { what, bytes, bytes_max } => FormatError::refused(
                path,
                Location::File,
                format!("decoding {what} takes {bytes} bytes, and {bytes_max} are available"),
                advice,
            ),
        }
    }
}

/// Refuses what expands to more than it claims.
pub(crate) fn check_claim(decoder: impl Read, what: &str, claimed: u64) -> Result<(), String> {
    // What cannot be decompressed at all is for the decoder to tell.
    let decoded = io::copy(&mut decoder.take(claimed.saturating_add(1)), &mut io::sink());
    if decoded.is_ok_and(|decoded| decoded > claimed) {
        return Err(format!("{what} expands to more than the {claimed} bytes that it claims"));
    }
    Ok(())
}
