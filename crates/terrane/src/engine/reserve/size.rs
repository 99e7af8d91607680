//! How large a reserve is.

/// Part of the bytes of all components that an automatic reserve has.
const AUTOMATIC_PART: u64 = 16;
/// An automatic reserve has no fewer bytes, as a file of the log and a small flush take as many.
pub(super) const AUTOMATIC_MIN: u64 = 2 << 20;
/// Nor more.
const AUTOMATIC_MAX: u64 = 256 << 20;
/// The last bytes of a reserve of four times as many at least: a file of the log and some parts of a merge, with their
/// manifests.
pub(super) const LAST: u64 = last_of(LAST_BLOCKS);
/// As many blocks as have them. Where the disk has fewer left, these are kept.
pub(super) const LAST_BLOCKS: u64 = 128;
const BLOCK_LENGTH: u64 = 4 << 10;
/// What the length of a reserve that was given up lacks of whole blocks: it tells so, and nobody asks for such a one.
const LACKING: u64 = 512;
/// Bytes that components get for each of the log, at most: an operation is there once, and in each index a part of it.
/// What is in memory is known better, and is counted as it is.
const FLUSHED_PER_LOGGED: u64 = 2;

/// How much disk space a store keeps back for deletes, flushes and merges on a full disk. Of 2 MiB and more, the last half
/// MiB is for opening the store and for merges that free more than they take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskReserve {
    /// A sixteenth of the bytes of the components, from 2 to 256 MiB, and what the flush of memory takes; none where
    /// there is nothing.
    #[default]
    Automatic,
    /// So many bytes, and what the flush of memory takes; none when it is 0.
    Bytes(u64),
}

/// What a reserve is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    /// Bytes of all components.
    pub(super) stored: u64,
    /// Bytes in memory.
    pub(super) in_memory: u64,
    /// Bytes of the log that come before it needs another file.
    pub(super) logged: u64,
}

/// Bytes of a file of the log, and of the flush of what it brings.
pub(super) fn with_flush(file: u64) -> u64 {
    file.saturating_mul(1 + FLUSHED_PER_LOGGED)
}

impl Needs {
    /// Bytes that components get at most before the log needs another file.
    pub(super) fn to_flush(self) -> u64 {
        self.in_memory + self.logged.saturating_mul(FLUSHED_PER_LOGGED)
    }
}

/// Bytes of a reserve that was given up but for so many blocks.
pub(super) const fn last_of(blocks: u64) -> u64 {
    if blocks == 0 { 0 } else { blocks * BLOCK_LENGTH - LACKING }
}

/// Blocks of a reserve that was given up.
pub(super) fn blocks_of(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_LENGTH)
}

/// Whether a reserve of so many bytes is one that was given up.
pub(crate) fn is_given_up(bytes: u64) -> bool {
    bytes == 0 || bytes % BLOCK_LENGTH == BLOCK_LENGTH - LACKING
}

impl DiskReserve {
    /// Bytes that are kept back beside those for the flush of memory.
    fn kept(self, needs: Needs) -> u64 {
        match self {
            Self::Automatic => (needs.stored / AUTOMATIC_PART).clamp(AUTOMATIC_MIN, AUTOMATIC_MAX),
            Self::Bytes(bytes) => bytes,
        }
    }

    /// The last of the file's bytes, which only what leads out of a full disk has.
    pub(super) fn last(self) -> u64 {
        match self {
            Self::Bytes(bytes) if bytes / 4 < LAST => 0,
            _ => LAST,
        }
    }

    /// Bytes of the file.
    pub(super) fn bytes(self, needs: Needs) -> u64 {
        match self {
            Self::Automatic if needs.stored == 0 && needs.in_memory == 0 => 0,
            Self::Bytes(0) => 0,
            _ => {
                let bytes = self.kept(needs).saturating_add(needs.to_flush());
                bytes + u64::from(is_given_up(bytes))
            }
        }
    }

    /// Whether a length differs from what is wanted by more than what is let pass.
    pub(super) fn is_off(self, length: Option<u64>, needs: Needs) -> bool {
        let wanted = self.bytes(needs);
        let Some(length) = length else { return wanted > 0 };
        let is_too_long = match self {
            Self::Bytes(_) => length > wanted,
            Self::Automatic => length > wanted * 2,
        };
        wanted == 0 || is_too_long || !self.is_enough(length, needs, needs.to_flush())
    }

    /// Whether a length is enough for a flush of so many bytes beside what is kept; of that an automatic reserve may lack
    /// a little, so that the file is not changed with every component.
    pub(super) fn is_enough(self, length: u64, needs: Needs, to_flush: u64) -> bool {
        let kept = match self {
            Self::Bytes(bytes) => bytes,
            Self::Automatic => self.kept(needs) / 4 * 3,
        };
        length >= kept.saturating_add(to_flush)
    }
}
