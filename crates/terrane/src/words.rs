//! Numbers in sentences.

/// A count with its noun, in the singular for one thing.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    let noun = if count == 1 { one } else { many };
    format!("{count} {noun}")
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn one_thing_is_singular() {
        let text = |count| counted(count, "entry", "entries").to_string();
        assert_eq!([text(0), text(1), text(2)], ["0 entries", "1 entry", "2 entries"]);
    }
}
