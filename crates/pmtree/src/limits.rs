//! What the trees of this crate can be.

use crate::Error;

/// Fewest entries of a full node: two halves of two.
pub(crate) const FAN_OUT_MIN: usize = 4;

/// Highest level that a root can have, and so how deep searches go: a root becomes one of a higher
/// level by the split of a full one, so a tree with this one has seen more insertions than
/// addresses of 48 bits tell apart.
pub(crate) const LEVEL_MAX: u64 = 48;

/// Whether nodes can have so many entries, where they can have `most`.
pub(crate) fn is_fan_out(fan_out: usize, most: usize) -> bool {
    (FAN_OUT_MIN..=most).contains(&fan_out)
}

/// That they cannot.
pub(crate) fn no_fan_out(fan_out: usize, most: usize) -> Error {
    Error::FanOut { fan_out, least: FAN_OUT_MIN, most }
}
