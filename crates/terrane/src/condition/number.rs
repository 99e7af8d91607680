//! Exact order of integers and floats.

use std::cmp::Ordering;

/// The order of two floats: the two zeros are equal, NaN equals NaN and is greatest.
pub(super) fn compare_floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Compares an integer with a float that is a whole number, such as the nearest float of an
/// integer.
fn compare(integer: i128, whole: f64) -> Ordering {
    /// The end of the integer range. It is a power of two, so the float is exact.
    const END: f64 = (1_u128 << 127) as f64;
    if whole >= END { Ordering::Less } else { integer.cmp(&(whole as i128)) }
}

/// The least float that is not less than an integer.
pub(super) fn float_at_least(integer: i128) -> f64 {
    let nearest = integer as f64;
    if compare(integer, nearest).is_gt() { nearest.next_up() } else { nearest }
}

/// The greatest float that is not greater than an integer.
pub(super) fn float_at_most(integer: i128) -> f64 {
    let nearest = integer as f64;
    if compare(integer, nearest).is_lt() { nearest.next_down() } else { nearest }
}

/// The least integer that is not less than a number, or greater than it if `inclusive` is false.
/// Saturates.
pub(super) fn integer_at_least(float: f64, inclusive: bool) -> i128 {
    // Floats too large for fractions are whole, so both roundings return the float itself.
    if inclusive { float.ceil() as i128 } else { (float.floor() as i128).saturating_add(1) }
}

/// The greatest integer that is not greater than a number, or less than it if `inclusive` is false.
/// Saturates.
pub(super) fn integer_at_most(float: f64, inclusive: bool) -> i128 {
    if inclusive { float.floor() as i128 } else { (float.ceil() as i128).saturating_sub(1) }
}
