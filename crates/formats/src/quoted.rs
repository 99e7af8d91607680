//! Values as messages and reports show them.

/// Most bytes of a refused row that a report shows.
const RAW_BYTES_MAX: usize = 64 << 10;

/// Cuts `raw` to the length in reports.
pub(crate) fn shorten(raw: String) -> String {
    if raw.len() <= RAW_BYTES_MAX {
        return raw;
    }
    let mut end = RAW_BYTES_MAX;
    while !raw.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &raw[..end])
}

/// A value as a message quotes it: short, on one line.
pub(crate) fn quoted(value: &str) -> String {
    const CHARACTERS_MAX: usize = 60;
    if value.chars().nth(CHARACTERS_MAX).is_some() {
        let head: String = value.chars().take(CHARACTERS_MAX).collect();
        format!("{head:?}…")
    } else {
        format!("{value:?}")
    }
}
