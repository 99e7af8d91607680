//! What the trees of this crate can be.

use crate::Error;

/// Fewest entries of a full node: two halves of two.
pub(crate) const FAN_OUT_MIN: usize = 4;

/// Most entries of a node: what eight words of an FBR-tree's bitmap tell, without the flags.
pub(crate) const FAN_OUT_MAX: usize = 503;

/// Highest level that a root can have, and so how deep searches go: a root becomes one of a higher level by the split of a
/// full one, so a tree with this one has seen more insertions than addresses of 48 bits tell apart.
pub(crate) const LEVEL_MAX: u64 = 48;

/// Refuses to compile for trees of other than two to four dimensions: nodes of others have not been tried, and an entry
/// would take three lines.
pub(crate) const fn check_dimensions<const D: usize>() {
    assert!(D >= 2 && D <= 4, "trees have two to four dimensions");
}

/// Whether nodes can have so many entries.
pub(crate) fn is_fan_out(fan_out: usize) -> bool {
    (FAN_OUT_MIN..=FAN_OUT_MAX).contains(&fan_out)
}

/// That they cannot.
pub(crate) fn no_fan_out(fan_out: usize) -> Error {
    Error::FanOut { fan_out, least: FAN_OUT_MIN, most: FAN_OUT_MAX }
}
