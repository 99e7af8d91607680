//! Sizes in bytes, as people write them.

use std::num::{IntErrorKind, ParseIntError};

/// Suffixes and their factors: powers of 1024 with an `i`, powers of 1000 without.
const UNITS: [(&str, u64); 12] = [
    ("b", 1),
    ("k", 1000),
    ("kb", 1000),
    ("kib", 1 << 10),
    ("m", 1_000_000),
    ("mb", 1_000_000),
    ("mib", 1 << 20),
    ("g", 1_000_000_000),
    ("gb", 1_000_000_000),
    ("gib", 1 << 30),
    ("t", 1_000_000_000_000),
    ("tib", 1 << 40),
];

/// Most digits behind the point of a size; more would be fractions of a byte.
const FRACTION_DIGITS_MAX: usize = 12;

/// Reads a size such as `64MiB`, `1.5GiB`, `500M` or a number of bytes.
///
/// # Errors
/// When the text is no size; the message tells what one looks like.
pub fn parse_size(text: &str) -> Result<usize, String> {
    let refuse = || {
        format!(
            "{text:?} is not a size; write a whole number of bytes, or a number with a unit such as 64MiB, 1.5GiB or 500M"
        )
    };
    let length = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, unit) = text.split_at(length);
    let unit = unit.trim().to_ascii_lowercase();
    let factor = match unit.as_str() {
        "" => 1,
        unit => UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor).ok_or_else(refuse)?,
    };
    let (whole, fraction) = match number.split_once('.') {
        Some((whole, fraction)) if factor > 1 && (1..=FRACTION_DIGITS_MAX).contains(&fraction.len()) => {
            (whole, fraction)
        }
        Some(_) => return Err(refuse()),
        None => (number, ""),
    };
    // Exact: a fraction is a number of tenths, hundredths, … of the unit.
    let too_large = || format!("{text:?} is too large, as it takes more than 64 bits");
    let digits: u128 = format!("{whole}{fraction}").parse().map_err(|error: ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow => too_large(),
        _ => refuse(),
    })?;
    let bytes = digits.checked_mul(factor.into()).ok_or_else(too_large)? / 10_u128.pow(fraction.len() as u32);
    usize::try_from(bytes).map_err(|_| too_large())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_bytes_and_in_units() {
        let cases = [
            ("0", 0),
            ("8388608", 8 << 20),
            ("64MiB", 64 << 20),
            ("1GiB", 1 << 30),
            ("500M", 500_000_000),
            ("12 kb", 12_000),
            ("3kib", 3072),
            ("1.5GiB", 3 << 29),
            ("0.25 MB", 250_000),
            ("1.0001k", 1000),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "MiB", "-1", "1.5", "1.5b", ".", ".GiB", "1.GiB", "1.2.3k", "12 parsecs", "1e9", "٣"] {
            assert!(parse_size(text).unwrap_err().contains("is not a size"), "{text}");
        }
        let digits = "9".repeat(50);
        for text in ["18446744073709551616", "99999999999TiB", &digits, &format!("{digits}TiB")] {
            assert!(parse_size(text).unwrap_err().contains("too large"), "{text}");
        }
    }
}
