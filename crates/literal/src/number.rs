//! Exact conversions between integers and floats.

/// Up to here every integer is a float, and a float that was read is the integer that was written.
const FLOAT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// The float that equals this integer, if there is one.
pub fn exact_float(integer: impl Into<i128>) -> Option<f64> {
    const FLOAT_END: f64 = (1u128 << 127) as f64;
    let integer = integer.into();
    let float = integer as f64;
    // From here on the conversion back saturates.
    (float < FLOAT_END && float as i128 == integer).then_some(float)
}

/// The integer that a JSON number equals, even if written with a fraction of zeros or an exponent.
/// Every reader of numbers takes those for integers, and a new column with nothing else is one of
/// integers.
pub fn json_integer(number: &serde_json::Number) -> Option<i64> {
    number.as_i64().or_else(|| exact_integer(number.as_f64().filter(|_| number.is_f64())?))
}

/// The integer that equals this float, if there is one and no other integer rounds to the same
/// float.
pub fn exact_integer(float: f64) -> Option<i64> {
    (float.trunc() == float && float.abs() < FLOAT_INTEGER_MAX).then_some(float as i64)
}

/// The float64 with the fewest digits that parses to this float32: 333.6, and not
/// 333.6000061035156.
pub fn shortest(float: f32) -> f64 {
    float.to_string().parse().unwrap_or(f64::from(float))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_floats_as_long_as_no_digit_is_lost() {
        assert_eq!(exact_float(1i64 << 60), Some((1u64 << 60) as f64));
        assert_eq!(exact_float((1i64 << 53) + 1), None);
        assert_eq!(exact_float(i64::MAX), None);
        assert_eq!(exact_float(u64::MAX), None);
        assert_eq!(exact_float(i128::MAX), None);
        assert_eq!(exact_float(i128::MIN), Some(-(2f64.powi(127))));
    }

    #[test]
    fn floats_are_integers_as_long_as_they_are_not_rounded() {
        for (float, integer) in [
            (5.0, Some(5)),
            (-0.0, Some(0)),
            (-3e3, Some(-3000)),
            (9_007_199_254_740_991.0, Some((1 << 53) - 1)),
            (9_007_199_254_740_992.0, None),
            (5.5, None),
            (1e300, None),
            (f64::NAN, None),
            (f64::NEG_INFINITY, None),
        ] {
            assert_eq!(exact_integer(float), integer, "{float}");
        }
    }

    #[test]
    fn a_json_number_is_an_integer_however_it_is_written() {
        for (text, integer) in [
            ("5", Some(5)),
            ("5.0", Some(5)),
            ("-3e3", Some(-3000)),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
            ("9007199254740993.0", None),
            ("0.5", None),
        ] {
            assert_eq!(json_integer(&text.parse().unwrap()), integer, "{text}");
        }
    }
}
