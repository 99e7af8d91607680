//! Why a condition is refused.

use super::{CONDITION_BYTES_MAX, CONDITION_DEPTH_MAX, IN_ITEMS_MAX};
use crate::schema::SchemaError;

/// Why a condition is refused: its text, or what it asks of a dataset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConditionError {
    /// The text is no condition.
    #[error("at character {position} of the condition: {reason}: {around}")]
    Syntax {
        /// Where, in characters from 1.
        position: usize,
        /// What was expected and found.
        reason: String,
        /// The text around it, with an arrow at the place.
        around: String,
    },
    /// The text is too long.
    #[error("the condition has {bytes} bytes; at most {CONDITION_BYTES_MAX} are possible")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// The condition is nested too deeply.
    #[error("the condition is nested too deeply; at most {CONDITION_DEPTH_MAX} levels are possible")]
    TooDeep,
    /// A list of literals is too long.
    #[error("\"in\" has {items} items; at most {IN_ITEMS_MAX} are possible, so ask several times")]
    TooManyItems {
        /// Their number.
        items: usize,
    },
    /// A column is not there.
    #[error(transparent)]
    UnknownColumn(#[from] SchemaError),
    /// A column cannot be asked for what the condition asks.
    #[error("column {column:?} {reason}")]
    Column {
        /// The column.
        column: String,
        /// What it is and what can be done.
        reason: String,
    },
    /// A text has no words to look for.
    #[error("{text:?} has no words to look for; a word has a letter or a number")]
    NoWords {
        /// The text, shortened where it is long.
        text: String,
    },
    /// Words are looked for where there are no texts.
    #[error("the dataset has no column of texts to look for words in; the columns are {}", known.join(", "))]
    NoTexts {
        /// The columns there are.
        known: Vec<String>,
    },
}

impl ConditionError {
    pub(super) fn column(column: &str, reason: impl Into<String>) -> Self {
        Self::Column { column: column.to_owned(), reason: reason.into() }
    }
}

/// Characters of the condition that are shown on either side of a place.
const AROUND_CHARACTERS: usize = 30;

/// A syntax error at a byte of the text.
pub(super) fn syntax(text: &str, byte: usize, reason: impl Into<String>) -> ConditionError {
    let (before, after) = text.split_at_checked(byte).unwrap_or((text, ""));
    let position = before.chars().count() + 1;
    let cut = before.char_indices().rev().nth(AROUND_CHARACTERS - 1).map_or(0, |(index, _)| index);
    let mut around = String::new();
    around.push_str(if cut > 0 { "…" } else { "" });
    around.push_str(&before[cut..]);
    around.push('→');
    around.extend(after.chars().take(AROUND_CHARACTERS));
    if after.chars().nth(AROUND_CHARACTERS).is_some() {
        around.push('…');
    }
    // One line, whatever the text.
    let around = around.replace(|character: char| character.is_whitespace() && character != ' ', " ");
    ConditionError::Syntax { position, reason: reason.into(), around }
}

/// The beginning of a text, for messages.
pub(super) fn shortened(text: &str) -> String {
    let mut start: String = text.chars().take(AROUND_CHARACTERS).collect();
    if start.len() < text.len() {
        start.push('…');
    }
    start
}
