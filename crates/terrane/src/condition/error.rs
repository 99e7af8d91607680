//! Why a condition is refused.

use super::{CONDITION_BYTES_MAX, CONDITION_DEPTH_MAX, IN_ITEMS_MAX};
use crate::schema::SchemaError;

/// Why a condition is refused: a defect of its text, or a mismatch with the dataset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConditionError {
    /// The text is no condition.
    #[error("at character {position} of the condition: {reason}: {around}")]
    Syntax {
        /// Position in characters, from 1.
        position: usize,
        /// The expected and the found text.
        reason: String,
        /// The text around the position, with an arrow.
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
    /// A column does not exist.
    #[error(transparent)]
    UnknownColumn(#[from] SchemaError),
    /// A column cannot be used in this way.
    #[error("column {column:?} {reason}")]
    Column {
        /// The column.
        column: String,
        /// Its type, and the remedy.
        reason: String,
    },
    /// A search text has no words.
    #[error("{text:?} has no words to search for; a word has a letter or a number")]
    NoWords {
        /// The text, shortened if it is long.
        text: String,
    },
    /// The dataset has no text columns to search.
    #[error("the dataset has no text column to search for words; the columns are {}", known.join(", "))]
    NoTexts {
        /// The dataset's columns.
        known: Vec<String>,
    },
}

impl ConditionError {
    pub(super) fn column(column: &str, reason: impl Into<String>) -> Self {
        Self::Column { column: column.to_owned(), reason: reason.into() }
    }
}

/// Number of characters shown on either side of the position.
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
    // The message stays on one line.
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
