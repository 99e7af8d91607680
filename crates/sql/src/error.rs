//! Why a statement failed.

use std::fmt;

use datafusion::error::DataFusionError;

/// Most characters of a line that is shown under an error.
const SHOWN_MAX: usize = 120;

/// Why a statement failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum SqlError {
    /// The statement does not parse or cannot be planned.
    Statement {
        /// The reason.
        reason: String,
        /// The line of the statement, with a mark under the position, if it is known.
        excerpt: Option<String>,
    },
    /// The memory limit does not suffice.
    Memory {
        /// The reason.
        reason: String,
        /// Bytes for sorting, grouping and joining.
        bytes: usize,
    },
    /// The values do not allow the operation.
    Execution(String),
    /// A row cannot be stored: its values have to be corrected.
    Refused(String),
    /// An error of the store.
    Store(terrane::Error),
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Statement { reason, excerpt: None } => f.write_str(reason),
            Self::Statement { reason, excerpt: Some(excerpt) } => write!(f, "{reason}\n{excerpt}"),
            Self::Memory { reason, bytes } => write!(
                f,
                "the memory limit leaves {bytes} bytes for sorting, grouping and joining, which do not suffice; raise \
                 the limit: {reason}"
            ),
            Self::Execution(reason) | Self::Refused(reason) => f.write_str(reason),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SqlError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            _ => None,
        }
    }
}

impl From<terrane::Error> for SqlError {
    fn from(error: terrane::Error) -> Self {
        Self::Store(error)
    }
}

impl SqlError {
    /// The exit code of the command line: 2 for statements that do not parse or plan.
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Statement { .. } => 2,
            Self::Memory { .. } | Self::Execution(_) => 1,
            Self::Refused(_) => terrane::Error::REFUSED,
            Self::Store(error) => error.exit_code(),
        }
    }

    /// A refused statement, without a position.
    pub(crate) fn refused(reason: impl Into<String>) -> Self {
        Self::Statement { reason: reason.into(), excerpt: None }
    }

    /// An error of planning, with the position in the text.
    pub(crate) fn planning(error: &DataFusionError, text: &str) -> Self {
        if let Some(error) = store_error(error) {
            return Self::Store(error);
        }
        let position = position_of(error);
        let reason = match error.diagnostic() {
            Some(diagnostic) => diagnostic.message.replace("Invalid function", "there is no function"),
            None => reason_of(error),
        };
        let excerpt = position.and_then(|(line, column)| excerpt(text, line, column));
        Self::Statement { reason, excerpt }
    }

    /// An error of execution.
    pub(crate) fn execution(error: &DataFusionError, bytes: usize) -> Self {
        if let Some(error) = store_error(error) {
            return Self::Store(error);
        }
        match error.find_root() {
            DataFusionError::ResourcesExhausted(reason) => Self::Memory { reason: first_line(reason), bytes },
            _ => Self::Execution(reason_of(error)),
        }
    }
}

/// The store's error inside of one of DataFusion.
fn store_error(error: &DataFusionError) -> Option<terrane::Error> {
    match error.find_root() {
        DataFusionError::External(inner) => inner.downcast_ref::<terrane::Error>().cloned(),
        _ => None,
    }
}

/// The message of the innermost error.
fn reason_of(error: &DataFusionError) -> String {
    let root = error.find_root();
    let message = match root {
        DataFusionError::SQL(error, _) => error.to_string(),
        other => other.message().into_owned(),
    };
    let message = message.trim_start_matches("sql parser error: ");
    match message.find(" at Line: ") {
        Some(end) => message[..end].to_owned(),
        None => message.to_owned(),
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// Line and column, from 1.
fn position_of(error: &DataFusionError) -> Option<(usize, usize)> {
    if let Some(span) = error.diagnostic().and_then(|diagnostic| diagnostic.span) {
        let position = (usize::try_from(span.start.line).ok()?, usize::try_from(span.start.column).ok()?);
        return (position.0 > 0 && position.1 > 0).then_some(position);
    }
    let text = error.find_root().to_string();
    let (_, rest) = text.rsplit_once(" at Line: ")?;
    let (line, rest) = rest.split_once(", Column: ")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some((line.trim().parse().ok()?, digits.parse().ok()?))
}

/// A line of the text with a mark under a column.
fn excerpt(text: &str, line: usize, column: usize) -> Option<String> {
    let line: Vec<char> = text.lines().nth(line.checked_sub(1)?)?.chars().collect();
    let column = column.checked_sub(1)?.min(line.len());
    let start = column.saturating_sub(SHOWN_MAX / 2);
    let shown = &line[start..line.len().min(start + SHOWN_MAX)];
    let shown: String = shown.iter().map(|c| if c.is_control() { ' ' } else { *c }).collect();
    Some(format!("  {shown}\n  {}^", " ".repeat(column - start)))
}
