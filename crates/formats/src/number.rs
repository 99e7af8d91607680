//! Numbers as text. In a column of unknown type, only plain numbers count: codes with leading zeros
//! and texts with a plus sign stay text. In a column of numbers, those are numbers too. No number
//! has thousands separators.

use std::borrow::Cow;

use terrane_literal::{exact_float, exact_integer};

/// The kind of a text, as a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum NumberClass {
    /// An integer that fits int64, even if written with a fraction of zeros or an exponent.
    Integer(i64),
    /// A positive integer that only uint64 holds.
    IntegerBeyondI64(u64),
    /// A number with a fraction or an exponent (also one that overflows).
    Float,
    /// `NaN`, `inf`, `Infinity`.
    NonFinite,
    /// Not a number.
    None,
}

/// Classifies `text`; the decimal separator is the comma if `decimal_comma`.
pub(crate) fn classify(text: &str, decimal_comma: bool) -> NumberClass {
    let bytes = text.as_bytes();
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    match digits.first() {
        Some(b'0'..=b'9' | b'.' | b',') => {}
        Some(b'n' | b'N' | b'i' | b'I') if is_non_finite(text) => return NumberClass::NonFinite,
        _ => return NumberClass::None,
    }
    let integer_length = count_digits(digits);
    // A code such as 07001 is not a number, 0.5 is.
    if integer_length > 1 && digits[0] == b'0' {
        return NumberClass::None;
    }
    let rest = &digits[integer_length..];
    if rest.is_empty() {
        return classify_integer(text, bytes.len() != digits.len());
    }
    match is_fraction_and_exponent(rest, integer_length, decimal_comma) {
        true if is_plain_fraction(digits, integer_length) => NumberClass::Float,
        true => float(text, decimal_comma).and_then(exact_integer).map_or(NumberClass::Float, NumberClass::Integer),
        false => NumberClass::None,
    }
}

/// Whether a number is far from every integer. Its digits tell that without parsing: float64
/// distinguishes numbers of 15 digits.
fn is_plain_fraction(digits: &[u8], integer_length: usize) -> bool {
    const DIGITS_MAX: usize = 15;
    let Some([b'.' | b',', fraction @ ..]) = digits.get(integer_length..) else {
        return false;
    };
    digits.len() <= DIGITS_MAX + 1
        && fraction.iter().all(u8::is_ascii_digit)
        && fraction.iter().any(|&digit| digit != b'0')
}

fn float(text: &str, decimal_comma: bool) -> Option<f64> {
    let text = if decimal_comma { Cow::Owned(text.replace(',', ".")) } else { Cow::Borrowed(text) };
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

fn classify_integer(text: &str, is_negative: bool) -> NumberClass {
    if let Ok(value) = text.parse() {
        NumberClass::Integer(value)
    } else if let Some(value) = text.parse().ok().filter(|_| !is_negative) {
        NumberClass::IntegerBeyondI64(value)
    } else {
        // Longer than any integer type: an identifier, kept as text.
        NumberClass::None
    }
}

/// Whether `text` is written as an integer that no integer type holds.
pub(crate) fn is_too_large(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
    let is_integer = digits.first().is_some_and(|&digit| digit != b'0') && count_digits(digits) == digits.len();
    is_integer && classify(text, false) == NumberClass::None
}

/// Whether `rest`, after the integer digits, is a fraction, an exponent or both.
fn is_fraction_and_exponent(mut rest: &[u8], integer_length: usize, decimal_comma: bool) -> bool {
    let point = if decimal_comma { b',' } else { b'.' };
    if rest.first() == Some(&point) {
        let fraction_length = count_digits(&rest[1..]);
        if fraction_length + integer_length == 0 {
            return false;
        }
        rest = &rest[1 + fraction_length..];
    } else if integer_length == 0 {
        return false;
    }
    match rest.split_first() {
        None => true,
        Some((b'e' | b'E', exponent)) => {
            let exponent = exponent.strip_prefix(b"-").or_else(|| exponent.strip_prefix(b"+")).unwrap_or(exponent);
            !exponent.is_empty() && count_digits(exponent) == exponent.len()
        }
        Some(_) => false,
    }
}

fn count_digits(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

fn is_non_finite(text: &str) -> bool {
    let text = text.strip_prefix('-').unwrap_or(text);
    ["nan", "inf", "infinity"].iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// `text` without a plus sign and leading zeros, if it is a number with those.
fn plain(text: &str) -> Cow<'_, str> {
    let (sign, digits) = match (text.strip_prefix('-'), text.strip_prefix('+')) {
        (Some(digits), _) => ("-", digits),
        (None, Some(digits)) if digits.starts_with(|first: char| first.is_ascii_digit() || ".,".contains(first)) => {
            ("", digits)
        }
        _ => ("", text),
    };
    let zeros = digits.bytes().take_while(|byte| *byte == b'0').count();
    // One zero stays unless a digit follows.
    let is_before_digit = digits.as_bytes().get(zeros).is_some_and(u8::is_ascii_digit);
    let digits = &digits[if is_before_digit { zeros } else { zeros.saturating_sub(1) }..];
    match sign {
        "-" if digits.len() + 1 < text.len() => Cow::Owned(format!("-{digits}")),
        "-" => Cow::Borrowed(text),
        _ => Cow::Borrowed(digits),
    }
}

/// The integer in `text`, in a column of numbers; `None` if it is no integer or does not fit.
pub(crate) fn parse_integer(text: &str, decimal_comma: bool) -> Option<i64> {
    match classify(&plain(text), decimal_comma) {
        NumberClass::Integer(value) => Some(value),
        _ => None,
    }
}

/// The float nearest to the number in `text`, in a column of numbers; `None` if it is no number or
/// overflows.
pub(crate) fn parse_float(text: &str, decimal_comma: bool) -> Option<f64> {
    let text = plain(text);
    match classify(&text, decimal_comma) {
        NumberClass::None if !is_too_large(&text) => None,
        NumberClass::NonFinite => text.parse().ok(),
        _ => float(&text, decimal_comma),
    }
}

/// Whether `text` is a number that is no integer, in a column of numbers.
pub(crate) fn is_fraction(text: &str, decimal_comma: bool) -> bool {
    classify(&plain(text), decimal_comma) == NumberClass::Float
}

/// Whether `text` is written as an integer that no float64 holds exactly.
pub(crate) fn is_inexact_integer(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text).as_bytes();
    // Integers of fewer digits are exact.
    const DIGITS_MIN: usize = 16;
    let is_integer = digits.len() >= DIGITS_MIN && count_digits(digits) == digits.len();
    // Of integers beyond 128 bits it is unknown.
    is_integer && text.parse().ok().and_then(|integer: i128| exact_float(integer)).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_from_codes() {
        use NumberClass::*;
        for (text, class) in [
            ("0", Integer(0)),
            ("-12", Integer(-12)),
            ("9223372036854775807", Integer(i64::MAX)),
            ("9223372036854775808", IntegerBeyondI64(1 << 63)),
            ("-9223372036854775809", None),
            ("123456789012345678901234", None),
            ("07001", None),
            ("-007", None),
            ("00.5", None),
            ("0.5", Float),
            (".5", Float),
            ("5.", Integer(5)),
            ("-12.00", Integer(-12)),
            ("9007199254740992.0", Float),
            ("9007199254740992.5", Float),
            ("0.00000000000001", Float),
            ("12345678901234.5", Float),
            ("4503599627370497.25", Integer(4_503_599_627_370_497)),
            ("0.99999999999999999999", Integer(1)),
            (".", None),
            ("-", None),
            ("", None),
            ("1e5", Integer(100_000)),
            ("1e-5", Float),
            ("1e", None),
            ("1e+05", Integer(100_000)),
            ("1e999", Float),
            ("12.5E", None),
            ("1.2.3", None),
            ("1,5", None),
            ("+5", None),
            ("NaN", NonFinite),
            ("-Infinity", NonFinite),
            ("nano", None),
            ("0x10", None),
            ("1_000", None),
        ] {
            assert_eq!(classify(text, false), class, "{text}");
        }
        assert_eq!(classify("-12,5", true), Float);
        assert_eq!(classify("-12,0", true), Integer(-12));
        assert_eq!(classify("12.5", true), None);
    }

    #[test]
    fn integers_are_read_however_they_are_written() {
        for (text, integer) in [
            ("5", Some(5)),
            ("5.0", Some(5)),
            ("007", Some(7)),
            ("007.0", Some(7)),
            ("+5", Some(5)),
            ("-007", Some(-7)),
            ("+0", Some(0)),
            ("-0", Some(0)),
            ("-00", Some(0)),
            ("-3e3", Some(-3000)),
            ("+03e3", Some(3000)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-009223372036854775808", Some(i64::MIN)),
        ] {
            assert_eq!(parse_integer(text, false), integer, "{text}");
            assert_eq!(parse_float(text, false), integer.map(|integer| integer as f64), "{text}");
        }
        for text in ["", "+", "-", "+-5", "-+5", "++5", "--5", "0x10", "1_000", "+nano", "."] {
            assert_eq!(parse_integer(text, false), Option::None, "{text}");
            assert_eq!(parse_float(text, false), Option::None, "{text}");
        }
        for text in ["5.5", "1e20", "nan", "9223372036854775808"] {
            assert_eq!(parse_integer(text, false), Option::None, "{text}");
        }
    }

    #[test]
    fn floats_that_overflow_are_not_taken() {
        assert_eq!(parse_float("1e999", false), Option::None);
        assert_eq!(parse_float("-12,5", true), Some(-12.5));
        assert_eq!(parse_float("1e-400", false), Some(0.0));
        assert_eq!(parse_float(&"9".repeat(400), false), Option::None);
    }

    #[test]
    fn floats_are_read_with_signs_and_zeros_and_however_many_digits() {
        for (text, value) in [
            ("+59.250", 59.25),
            ("-008.667", -8.667),
            ("00.5", 0.5),
            ("+.5", 0.5),
            ("-00", -0.0),
            ("100000000000000000000", 1e20),
            ("-123456789012345678901234567890123456789012", -1.234_567_890_123_456_8e41),
        ] {
            assert_eq!(parse_float(text, false).map(f64::to_bits), Some(f64::to_bits(value)), "{text}");
        }
        assert_eq!(parse_float("+012,5", true), Some(12.5));
        for (integer, is_inexact) in [
            ("9007199254740993", true),
            ("+09007199254740993", true),
            ("100000000000000000000", false),
            ("-9007199254740992", false),
            ("9007199254740993.0", false),
            ("", false),
            ("-", false),
        ] {
            assert_eq!(is_inexact_integer(integer), is_inexact, "{integer}");
        }
    }
}
