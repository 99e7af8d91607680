//! Counts and lists in messages.

use std::fmt::Display;

/// Maximal number of names in a message.
const NAMES_MAX: usize = 10;

/// A count with its noun, singular for 1.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    let noun = if count == 1 { one } else { many };
    format!("{count} {noun}")
}

/// The first names of a list, and the number of the others.
pub fn first_of(names: &[impl Display], separator: &str) -> String {
    let shown: Vec<String> = names.iter().take(NAMES_MAX).map(ToString::to_string).collect();
    match names.len() - shown.len() {
        0 => shown.join(separator),
        more => format!("{} and {more} more", shown.join(separator)),
    }
}

/// The names, ordered by their edit distance from the wanted one.
pub fn nearest_to<'a>(wanted: &str, names: &'a [String]) -> Vec<&'a str> {
    let mut nearest: Vec<&str> = names.iter().map(String::as_str).collect();
    nearest.sort_by_cached_key(|name| changes(wanted, name));
    nearest
}

/// Number of letters to insert, remove or replace to turn one word into the other (Levenshtein
/// 1966).
fn changes(from: &str, to: &str) -> usize {
    // For each prefix of `to`, the distance from the letters of `from` read so far.
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (number, letter) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], number + 1);
        for (place, other) in to.chars().enumerate() {
            let replaced = diagonal + usize::from(letter != other);
            diagonal = row[place + 1];
            row[place + 1] = replaced.min(diagonal + 1).min(row[place] + 1);
        }
    }
    row[row.len() - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut_and_counted() {
        let names: Vec<u32> = (0..12).collect();
        assert_eq!(first_of(&names[..2], ", "), "0, 1");
        assert_eq!(first_of(&names[..10], ", "), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9");
        assert_eq!(first_of(&names, ", "), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more");
    }

    #[test]
    fn the_nearest_name_takes_the_fewest_changes() {
        for (from, to, count) in [("", "abc", 3), ("kitten", "sitting", 3), ("rides", "rides", 0), ("ab", "ba", 2)] {
            assert_eq!((changes(from, to), changes(to, from)), (count, count), "{from}, {to}");
        }
        let names = ["areas", "cities", "rides"].map(str::to_owned);
        assert_eq!(nearest_to("citeis", &names), ["cities", "rides", "areas"]);
    }

    #[test]
    fn one_thing_is_singular() {
        let text = |count| counted(count, "entry", "entries").to_string();
        assert_eq!([text(0), text(1), text(2)], ["0 entries", "1 entry", "2 entries"]);
    }
}
