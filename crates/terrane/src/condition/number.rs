//! Integers and floats in one order, exactly.

use std::cmp::Ordering;

/// An integer compared with a float that is a whole number, as the float that is nearest to an integer is.
fn compare(integer: i128, whole: f64) -> Ordering {
    /// Where the integers end; a float, as all powers of two.
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

/// The least integer that is not less than a number, or, if that does not count, greater; saturating.
pub(super) fn integer_at_least(float: f64, inclusive: bool) -> i128 {
    // From where floats have no fractions on, both roundings give the float itself.
    if inclusive { float.ceil() as i128 } else { (float.floor() as i128).saturating_add(1) }
}

/// The greatest integer that is not greater than a number, or, if that does not count, less; saturating.
pub(super) fn integer_at_most(float: f64, inclusive: bool) -> i128 {
    if inclusive { float.floor() as i128 } else { (float.ceil() as i128).saturating_sub(1) }
}
