//! The failure of a command: an exit code and a message.

use std::fmt;
use std::io;

use terrane_formats::{FormatError, WriteError};
use terrane_load::LoadError;

/// The failure of a command.
#[derive(Debug)]
pub struct Failure {
    exit_code: u8,
    message: Option<String>,
}

impl Failure {
    /// Any failure that neither the call nor the data causes.
    pub const FAILURE: u8 = 1;
    /// Wrong usage.
    pub const USAGE: u8 = 2;
    /// The store is damaged.
    pub const CORRUPTION: u8 = 3;
    /// Data was refused.
    pub const REFUSED: u8 = 5;

    /// A failure with a message.
    pub fn new(exit_code: u8, message: impl Into<String>) -> Self {
        Self { exit_code, message: Some(message.into()) }
    }

    /// Wrong usage.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Self::USAGE, message)
    }

    /// Refused data.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(Self::REFUSED, message)
    }

    /// An exit code after the message has been printed already.
    pub fn silent(exit_code: u8) -> Self {
        Self { exit_code, message: None }
    }

    /// A failed input or output, with the operation.
    pub fn io(action: impl fmt::Display, error: &io::Error) -> Self {
        let exit_code = match error.kind() {
            io::ErrorKind::NotFound => Self::USAGE,
            _ => Self::FAILURE,
        };
        Self::new(exit_code, format!("cannot {action}: {error}"))
    }

    /// Standard output failed. That its reader has closed it is no failure.
    pub fn stdout(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::silent(0),
            _ => Self::new(Self::FAILURE, format!("cannot write to standard output: {error}")),
        }
    }

    /// The same message for a command whose result is decided elsewhere.
    pub fn with_exit_code(self, exit_code: u8) -> Self {
        Self { exit_code, ..self }
    }

    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        self.exit_code
    }

    /// The message, unless it has been printed.
    pub fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    /// The same failure with a consequence after its message.
    pub fn followed_by(mut self, consequence: &str) -> Self {
        self.message = self.message.map(|message| format!("{message}; {consequence}"));
        self
    }

    /// The same failure with its location before its message.
    pub fn within(mut self, place: impl fmt::Display) -> Self {
        self.message = self.message.map(|message| format!("{place}: {message}"));
        self
    }
}

impl From<terrane::Error> for Failure {
    fn from(error: terrane::Error) -> Self {
        let exit_code = u8::try_from(error.exit_code()).unwrap_or(Self::FAILURE);
        Self::new(exit_code, error.to_string())
    }
}

impl From<FormatError> for Failure {
    fn from(error: FormatError) -> Self {
        let exit_code = match &error {
            FormatError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => Self::USAGE,
            FormatError::Io { .. } => Self::FAILURE,
            FormatError::Usage { .. } => Self::USAGE,
            // A broken input counts as refused data; corruption is about stores.
            _ => Self::REFUSED,
        };
        Self::new(exit_code, error.to_string())
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Schema { source_name, error } => Self::from(terrane::Error::from(error)).within(source_name),
            other => Self::refused(other.to_string()),
        }
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        if error.is_broken_pipe() {
            return Self::silent(0);
        }
        Self::new(Self::FAILURE, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_database_keep_their_exit_codes() {
        let cases = [
            (terrane::Error::usage("x"), 2),
            (terrane::Error::damaged("f", 0, "x"), 3),
            (terrane::Error::Locked { pid: Some(7) }, 4),
            (terrane::Error::refused("x"), 5),
            (terrane::Error::Cancelled, 1),
        ];
        for (error, exit_code) in cases {
            assert_eq!(Failure::from(error.clone()).exit_code(), exit_code, "{error}");
        }
    }

    #[test]
    fn a_reader_that_has_gone_away_is_no_failure() {
        let broken = io::Error::from(io::ErrorKind::BrokenPipe);
        assert_eq!(Failure::stdout(&broken).exit_code(), 0);
        assert_eq!(Failure::stdout(&broken).message(), None);
        let full = io::Error::from(io::ErrorKind::StorageFull);
        assert_eq!(Failure::stdout(&full).exit_code(), 1);
    }
}
