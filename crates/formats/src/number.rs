//! Numbers as text. What is not plainly a number stays text: codes with
//! leading zeros, numbers with a plus sign or with thousands separators.

use std::borrow::Cow;

use terrane_literal::exact_integer;

/// What a text is, as a number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum NumberClass {
    /// An integer that fits int64, be it written with a fraction of zeros or an exponent.
    Integer(i64),
    /// A positive integer that only uint64 holds.
    IntegerBeyondI64,
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
        true => float(text, decimal_comma).and_then(exact_integer).map_or(NumberClass::Float, NumberClass::Integer),
        false => NumberClass::None,
    }
}

fn float(text: &str, decimal_comma: bool) -> Option<f64> {
    let text = if decimal_comma { Cow::Owned(text.replace(',', ".")) } else { Cow::Borrowed(text) };
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

fn classify_integer(text: &str, is_negative: bool) -> NumberClass {
    if let Ok(value) = text.parse() {
        NumberClass::Integer(value)
    } else if !is_negative && text.parse::<u64>().is_ok() {
        NumberClass::IntegerBeyondI64
    } else {
        // Longer than any integer type: an identifier, kept as text.
        NumberClass::None
    }
}

/// Whether `text` is written as an integer, but is one that no type holds.
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

/// The integer that `text` stands for; `None` if it is none or does not fit.
pub(crate) fn parse_integer(text: &str, decimal_comma: bool) -> Option<i64> {
    // Where integers are known to be meant, also codes such as 007 are.
    text.parse().ok().or_else(|| match classify(text, decimal_comma) {
        NumberClass::Integer(value) => Some(value),
        _ => None,
    })
}

/// The float that `text` stands for; `None` if it is no number or overflows.
pub(crate) fn parse_float(text: &str, decimal_comma: bool) -> Option<f64> {
    match classify(text, decimal_comma) {
        NumberClass::None => None,
        NumberClass::NonFinite => text.parse().ok(),
        _ => float(text, decimal_comma),
    }
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
            ("9223372036854775808", IntegerBeyondI64),
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
        for (text, integer) in
            [("5", Some(5)), ("5.0", Some(5)), ("007", Some(7)), ("+5", Some(5)), ("-3e3", Some(-3000))]
        {
            assert_eq!(parse_integer(text, false), integer, "{text}");
        }
        for text in ["5.5", "1e20", "007.0", "", "nan", "9223372036854775808"] {
            assert_eq!(parse_integer(text, false), Option::None, "{text}");
        }
    }

    #[test]
    fn floats_that_overflow_are_not_taken() {
        assert_eq!(parse_float("1e999", false), Option::None);
        assert_eq!(parse_float("-12,5", true), Some(-12.5));
        assert_eq!(parse_float("1e-400", false), Some(0.0));
        assert_eq!(parse_float("07", false), Option::None);
    }
}
