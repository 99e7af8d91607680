//! What people are told while a command works: on standard error, never on standard output.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How much is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum LogLevel {
    /// Only what ends the command.
    Error,
    /// Also what may be wrong.
    Warn,
    /// Also what was done.
    Info,
    /// Also how it was done.
    Debug,
}

/// When colours are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

const RED: &str = "\x1b[1;31m";
const YELLOW: &str = "\x1b[1;33m";
const PLAIN: &str = "\x1b[0m";

/// Whether a text has characters that a terminal would obey.
pub fn has_control(text: &str) -> bool {
    text.contains(is_control)
}

/// Ends of lines are those of the message; whatever else a terminal would obey comes from names and values.
fn is_control(character: char) -> bool {
    character.is_control() && character != '\n'
}

/// A text for people, in which a terminal finds nothing to obey: names may be anybody's.
pub fn escaped(text: impl fmt::Display) -> String {
    let text = text.to_string();
    if !has_control(&text) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match is_control(character) {
            true => escaped.extend(character.escape_debug()),
            false => escaped.push(character),
        }
    }
    escaped
}

/// Standard error, with a level and colours.
#[derive(Debug)]
pub struct Messages {
    level: LogLevel,
    is_colored: bool,
}

impl Messages {
    /// Messages up to a level.
    pub fn new(level: LogLevel, color: Color) -> Self {
        let is_colored = match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            }
        };
        Self { level, is_colored }
    }

    /// What was asked for, at any level.
    pub fn answer(&self, text: impl fmt::Display) {
        self.say("", &text);
    }

    /// What ends the command.
    pub fn error(&self, text: impl fmt::Display) {
        self.say(&self.label("error", RED), &text);
    }

    /// What may be wrong.
    pub fn warn(&self, text: impl fmt::Display) {
        if self.level >= LogLevel::Warn {
            self.say(&self.label("warning", YELLOW), &text);
        }
    }

    /// What was done.
    pub fn info(&self, text: impl fmt::Display) {
        if self.level >= LogLevel::Info {
            self.say("", &text);
        }
    }

    /// How it was done.
    pub fn debug(&self, text: impl fmt::Display) {
        if self.level >= LogLevel::Debug {
            self.say("debug: ", &text);
        }
    }

    /// A bar for the rows of a file, on a terminal; elsewhere it is not shown.
    pub fn progress(&self, path: &Path, rows: Option<u64>) -> ProgressBar {
        if self.level < LogLevel::Info || !io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let bar = ProgressBar::with_draw_target(rows, ProgressDrawTarget::stderr());
        let template = match rows {
            Some(_) => "{msg} {bar:30} {human_pos} of {human_len} rows, {eta} left",
            None => "{msg} {spinner} {human_pos} rows in {elapsed}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(escaped(path.display()));
        bar
    }

    fn label(&self, word: &str, color: &str) -> String {
        match self.is_colored {
            true => format!("{color}{word}:{PLAIN} "),
            false => format!("{word}: "),
        }
    }

    fn say(&self, label: &str, text: &dyn fmt::Display) {
        // Nobody can be told that standard error is closed.
        let _ = writeln!(io::stderr(), "{label}{}", escaped(text));
    }
}
