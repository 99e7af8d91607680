//! Counts, and sizes in bytes, as people write and read them.

use std::num::{IntErrorKind, ParseIntError};
use std::str::FromStr;

use terrane::DiskReserve;
use terrane_literal::parse_size;

/// Reads a count.
///
/// # Errors
/// When the text is no count; the message tells what one looks like.
pub fn parse_count<N: FromStr<Err = ParseIntError>>(text: &str) -> Result<N, String> {
    text.parse().map_err(|error: ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow => "the number is too large, as it takes more than 64 bits".to_owned(),
        _ => "write a whole number, 0 or more".to_owned(),
    })
}

/// A size with a suitable unit.
pub fn format_size(bytes: u64) -> String {
    const NAMES: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < NAMES.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", NAMES[unit])
}

/// Reads a disk reserve.
///
/// # Errors
/// When the text is none; the message tells what one looks like.
pub fn parse_reserve(text: &str) -> Result<DiskReserve, String> {
    if text == "auto" {
        return Ok(DiskReserve::Automatic);
    }
    parse_size(text)
        .map(|bytes| DiskReserve::Bytes(bytes as u64))
        .map_err(|_| format!("{text:?} is neither auto nor a size such as 64MiB, or 0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_with_a_fitting_unit() {
        assert_eq!(format_size(1023), "1023 bytes");
        assert_eq!(format_size(1536), "1.5 KiB");
        assert_eq!(format_size(5 << 30), "5.0 GiB");
    }
}
