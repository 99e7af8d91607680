//! Messages for people, on standard error and never on standard output.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Levels of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum LogLevel {
    /// Only the error that ends the command.
    Error,
    /// Also warnings.
    Warn,
    /// Also results of the command.
    Info,
    /// Also details of the execution.
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

/// Whether a text has characters that a terminal would interpret.
pub fn has_control(text: &str) -> bool {
    text.contains(is_control)
}

/// Line ends belong to the message; other control characters come from names and values.
fn is_control(character: char) -> bool {
    character.is_control() && character != '\n'
}

/// A text with the control characters of foreign names and values escaped.
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
#[derive(Clone, Debug)]
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

    /// An answer that was asked for, at any level.
    pub fn answer(&self, text: impl fmt::Display) {
        self.say("", &text);
    }

    /// The error that ends the command.
    pub fn error(&self, text: impl fmt::Display) {
        self.say(&self.label("error", RED), &text);
    }

    /// A warning.
    pub fn warn(&self, text: impl fmt::Display) {
        if self.level >= LogLevel::Warn {
            self.say(&self.label("warning", YELLOW), &text);
        }
    }

    /// A result.
    pub fn info(&self, text: impl fmt::Display) {
        if self.level >= LogLevel::Info {
            self.say("", &text);
        }
    }

    /// A detail of the execution.
    pub fn debug(&self, text: impl fmt::Display) {
        if self.level >= LogLevel::Debug {
            self.say("debug: ", &text);
        }
    }

    /// Prints the events of the engine like messages of the same level.
    pub fn print_events(&self) {
        let level = match self.level {
            LogLevel::Error => LevelFilter::ERROR,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Debug => LevelFilter::DEBUG,
        };
        let subscriber = tracing_subscriber::fmt().with_max_level(level).event_format(self.clone());
        // Set once, at the program's start.
        subscriber.with_writer(io::stderr).init();
    }

    /// A progress bar for the rows of a file, shown on a terminal only.
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
        // If standard error is closed, there is nobody to tell.
        let _ = writeln!(io::stderr(), "{label}{}", escaped(text));
    }
}

impl<S, F> FormatEvent<S, F> for Messages
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    F: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, F>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut text = String::new();
        context.format_fields(Writer::new(&mut text), event)?;
        let label = match *event.metadata().level() {
            Level::ERROR => self.label("error", RED),
            Level::WARN => self.label("warning", YELLOW),
            Level::INFO => String::new(),
            _ => "debug: ".to_owned(),
        };
        writeln!(writer, "{label}{}", escaped(text))
    }
}
