//! Words that an index of words leaves out.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::definition::{IndexDefinition, IndexKind};
use crate::condition::words;
use crate::{Error, Result};

/// Most bytes of all of them together: they are in the catalog, which each manifest has.
const BYTES_MAX: usize = 64 << 10;

/// Words that an index of kind `inverted` leaves out, as they are in most texts: it gets smaller,
/// and queries for other words as well find the same rows. A query for such words alone cannot go
/// through the index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct StopWords {
    /// In lower case, ascending, without repetitions.
    words: Vec<String>,
}

impl StopWords {
    /// These words, in letters of any case; repetitions are left out.
    ///
    /// # Errors
    /// What is not one word as indexes of words find them (UAX 29); more than 64 KiB.
    pub fn new(given: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self> {
        let mut all = Vec::new();
        for text in given {
            let text = text.as_ref();
            let mut found = words(text);
            match (found.next(), found.next()) {
                // Words are found in texts, so one with spaces around it would be no other word.
                (Some(word), None) if word == text.to_lowercase() => all.push(word.into_owned()),
                _ => return Err(Error::usage(format!("{text:?} is not one word, as an index of words finds them"))),
            }
        }
        all.sort_unstable();
        all.dedup();
        let bytes: usize = all.iter().map(String::len).sum();
        if bytes > BYTES_MAX {
            return Err(Error::usage(format!(
                "the words to leave out have {bytes} bytes; an index takes at most {BYTES_MAX}"
            )));
        }
        Ok(Self { words: all })
    }

    /// The words in lower case, ascending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.words.iter().map(String::as_str)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Whether a word, in lower case, is one of them.
    pub(crate) fn contains(&self, word: &str) -> bool {
        self.words.binary_search_by(|known| known.as_str().cmp(word)).is_ok()
    }

    /// Those of an index, by its options in the catalog.
    ///
    /// # Errors
    /// Options that are not those of the kind, or that are not possible.
    pub(super) fn of(definition: &IndexDefinition) -> Result<Self> {
        let Some(options) = &definition.options else { return Ok(Self::default()) };
        let damaged = |reason: String| {
            let IndexDefinition { name, kind, .. } = definition;
            Error::damaged("MANIFEST", 0, format!("the options of the index {name:?}, of kind {kind}: {reason}"))
        };
        let options = InvertedOptions::deserialize(options).map_err(|error| damaged(error.to_string()))?;
        if options.kind != IndexKind::Inverted.name() {
            return Err(damaged(format!("they are those of kind {}", options.kind)));
        }
        let known = Self::new(&options.stop_words).map_err(|error| damaged(error.to_string()))?;
        match known.words == options.stop_words {
            true => Ok(known),
            false => Err(damaged("its words are not in lower case, ascending, each once".into())),
        }
    }

    /// The options as the catalog keeps them; none without words.
    pub(super) fn to_options(&self) -> Option<serde_json::Value> {
        let kind = IndexKind::Inverted.name();
        (!self.is_empty()).then(|| serde_json::json!({ "kind": kind, "stop_words": self.words }))
    }
}

impl fmt::Display for StopWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words.join(","))
    }
}

/// The options of an index of words in the catalog.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InvertedOptions {
    kind: String,
    stop_words: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_kept_in_lower_case_and_once() {
        let words = StopWords::new(["The", "a", "the", "Don't", "ΟΔΟΣ"]).unwrap();
        assert_eq!(words.iter().collect::<Vec<_>>(), ["a", "don't", "the", "οδος"]);
        assert!(words.contains("don't") && !words.contains("don") && !words.contains("The"));
        assert!(StopWords::default().to_options().is_none() && !StopWords::default().contains(""));
    }

    #[test]
    fn what_is_not_one_word_is_refused() {
        for text in ["", "of the", " the", "the.", "-", "a-b"] {
            let error = StopWords::new([text]).unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?} is not one word")), "{error}");
        }
        let many = (0..BYTES_MAX / 5).map(|number| format!("w{number:05}"));
        assert!(StopWords::new(many).unwrap_err().to_string().contains("at most 65536"));
    }
}
