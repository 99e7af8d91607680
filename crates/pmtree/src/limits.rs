//! Limits of the trees of this crate.

use crate::Error;

/// Least entries of a full node: two halves of two.
pub(crate) const FAN_OUT_MIN: usize = 4;

/// Highest level of a root, which bounds the depth of searches. A root of a higher level comes from
/// the split of a full one. So a tree of this level has seen more insertions than 48-bit addresses
/// distinguish.
pub(crate) const LEVEL_MAX: u64 = 48;

/// Whether nodes can have this many entries, if `most` is their limit.
pub(crate) fn is_fan_out(fan_out: usize, most: usize) -> bool {
    (FAN_OUT_MIN..=most).contains(&fan_out)
}

/// The error if they cannot.
pub(crate) fn fan_out_error(fan_out: usize, most: usize) -> Error {
    Error::FanOut { fan_out, least: FAN_OUT_MIN, most }
}
