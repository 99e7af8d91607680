//! The words of texts.

use std::borrow::Cow;

use unicode_segmentation::UnicodeSegmentation;

/// The words of a text by Unicode's rules (UAX 29) with a letter or a number, in lower case.
/// Characters are not normalised.
pub(crate) fn words(text: &str) -> impl Iterator<Item = Cow<'_, str>> {
    text.unicode_words().map(|word| {
        let is_lower = word.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase());
        if is_lower { Cow::Borrowed(word) } else { Cow::Owned(word.to_lowercase()) }
    })
}

/// Words that a text must have: what [`Condition::matches_anywhere`](crate::Condition) and
/// [`ConditionColumn::matches`] look for.
///
/// [`ConditionColumn::matches`]: crate::condition::ConditionColumn::matches
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequiredWords {
    /// Ascending and distinct.
    words: Vec<String>,
}

impl RequiredWords {
    /// The words of a text.
    pub fn of(text: &str) -> Self {
        let mut words: Vec<String> = words(text).map(Cow::into_owned).collect();
        words.sort_unstable();
        words.dedup();
        Self { words }
    }

    /// Whether there is none, which conditions refuse.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Whether a text has all of them.
    pub fn all_in(&self, text: &str) -> bool {
        self.search().look_into(text)
    }

    /// The words, ascending and distinct.
    pub(crate) fn as_slice(&self) -> &[String] {
        &self.words
    }

    /// Starts a search for them.
    pub(crate) fn search(&self) -> WordSearch<'_> {
        WordSearch { words: &self.words, found: vec![false; self.words.len()], missing: self.words.len() }
    }
}

/// The words that have been found in the texts so far.
pub(crate) struct WordSearch<'w> {
    words: &'w [String],
    found: Vec<bool>,
    missing: usize,
}

impl WordSearch<'_> {
    /// Searches a text for the missing words; true when all have been found.
    pub fn look_into(&mut self, text: &str) -> bool {
        let mut words = words(text);
        while self.missing > 0
            && let Some(word) = words.next()
        {
            if let Ok(place) = self.words.binary_search_by(|wanted| wanted.as_str().cmp(&word)) {
                self.missing -= usize::from(!std::mem::replace(&mut self.found[place], true));
            }
        }
        self.missing == 0
    }
}
