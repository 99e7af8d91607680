//! The stored position up to which a source has been read.

use std::io;
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use terrane::{BatchOutcome, Dataset, Feed, OnConflict};
use terrane_formats::JsonRecord;

use super::follow::Follow;
use super::lines::Line;
use super::mark::{LastBytes, Left, LeftFiles, Mark};
use super::row::member;
use crate::args::InsertArguments;
use crate::failure::Failure;

/// Name of the feed of standard input.
const STANDARD_INPUT: &str = "stdin";

/// A source whose position commits with its records.
#[derive(Debug)]
pub struct Source {
    name: String,
    positions: Positions,
    /// Open once there is a dataset.
    feed: Option<Feed>,
    restarts: bool,
    /// The position at the start.
    begun_at: u64,
    /// The current position.
    read: u64,
    /// The bytes of the file that were read last.
    last: LastBytes,
    /// The files that were followed before this one. Each may get its name back.
    left: LeftFiles,
}

/// The meaning of positions.
#[derive(Debug)]
enum Positions {
    /// Bytes of a file.
    File(Arc<Follow>),
    /// One more than the value of this member of a record.
    Member(String),
}

/// The state of a record.
#[derive(Debug, PartialEq, Eq)]
pub enum Place {
    /// To be written; the position then is behind it.
    New(u64),
    /// It was read in an earlier run.
    Known,
}

impl Source {
    /// The source that the flags name, if its position is kept.
    ///
    /// # Errors
    /// When a file cannot be followed, or a name does not suit a feed.
    pub fn new(arguments: &InsertArguments) -> Result<Option<Self>, Failure> {
        let (positions, default_name) = match (&arguments.follow, &arguments.offset_field) {
            (Some(path), _) => {
                let file = Follow::open(path, arguments.feed.is_some())?;
                let name = name_of(file.path(), arguments.feed.is_some())?;
                (Positions::File(Arc::new(file)), name)
            }
            (None, Some(member)) => (Positions::Member(member.clone()), STANDARD_INPUT.to_owned()),
            (None, None) => return Ok(None),
        };
        let name = arguments.feed.clone().unwrap_or(default_name);
        terrane::check_feed_name(&name)?;
        let restarts = arguments.restart;
        Ok(Some(Self {
            name,
            positions,
            feed: None,
            restarts,
            begun_at: 0,
            read: 0,
            last: LastBytes::default(),
            left: LeftFiles::default(),
        }))
    }

    /// The followed file, if any.
    pub fn file(&self) -> Option<&Arc<Follow>> {
        match &self.positions {
            Positions::File(file) => Some(file),
            Positions::Member(_) => None,
        }
    }

    /// The bytes of the file that were read last.
    pub fn last(&self) -> &LastBytes {
        &self.last
    }

    /// The name of its feed.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The current position.
    pub fn position(&self) -> u64 {
        self.read
    }

    /// Opens the feed, and checks that the source can be the one it has read.
    ///
    /// # Errors
    /// When the feed is in use or has read another source, or the store fails.
    pub fn open(&mut self, dataset: &Dataset) -> Result<(), Failure> {
        if !self.restarts {
            self.check_name(dataset)?;
        }
        let mut feed = dataset.feed(&self.name)?;
        if std::mem::take(&mut self.restarts) && (feed.position() > 0 || feed.source().is_some()) {
            feed.restart(0, Some(&self.mark_text()))?;
        }
        self.check_source(&feed)?;
        self.left = feed.source().and_then(LeftFiles::parse).map(|(_, left)| left).unwrap_or_default();
        if let (Positions::File(file), 1..) = (&self.positions, feed.position()) {
            self.last = file.last_bytes(feed.position()).map_err(|error| cannot_read(file.path(), &error))?;
        }
        // The first record, which the dataset was created from, has been read.
        (self.begun_at, self.read) = (feed.position(), feed.position().max(self.read));
        self.feed = Some(feed);
        self.mark()
    }

    /// Reports a feed under the resolved path of the file. Earlier versions named the feeds of
    /// links so.
    fn check_name(&self, dataset: &Dataset) -> Result<(), Failure> {
        let Positions::File(file) = &self.positions else { return Ok(()) };
        let feeds = dataset.feeds();
        if file.path().as_os_str() != self.name.as_str() || feeds.iter().any(|feed| feed.name == self.name) {
            return Ok(());
        }
        let target = file.target().map_err(|error| cannot_read(file.path(), &error))?;
        let is_of_target = |name: &str| target.as_ref().is_some_and(|target| target.as_os_str() == name);
        match feeds.iter().find(|feed| feed.position > 0 && is_of_target(&feed.name)) {
            Some(feed) => Err(Failure::new(
                Failure::FAILURE,
                format!(
                    "{} is a link, and no feed has its name; feed {:?} has read its target up to {}: continue with \
                     --feed {1:?}, or start from the beginning with --restart",
                    file.path().display(),
                    feed.name,
                    feed.position
                ),
            )),
            None => Ok(()),
        }
    }

    fn check_source(&self, feed: &Feed) -> Result<(), Failure> {
        let position = feed.position();
        let is_known = match (feed.source(), &self.positions) {
            (None, _) => position == 0,
            (Some(source), Positions::Member(member)) => source == member_mark(member),
            (Some(source), Positions::File(file)) => {
                let known = LeftFiles::parse(source).map(|(mark, _)| file.is_marked(&mark, position)).transpose();
                known.map_err(|error| cannot_read(file.path(), &error))?.unwrap_or(false)
            }
        };
        if is_known {
            return Ok(());
        }
        let (what, first) = match &self.positions {
            Positions::File(file) => (
                format!("{} is not the file", file.path().display()),
                format!(
                    "if that file has another name now, read the rest of it first, with --feed {:?}; then ",
                    self.name
                ),
            ),
            Positions::Member(member) => (format!("positions in {member:?} are not those"), String::new()),
        };
        Err(Failure::new(
            Failure::FAILURE,
            format!(
                "{what} that feed {:?} has read up to {position}; {first}use another --feed, or start from the \
                 beginning with --restart",
                self.name
            ),
        ))
    }

    /// The text by which the feed recognises its source.
    fn mark_text(&self) -> String {
        match &self.positions {
            Positions::Member(member) => member_mark(member),
            Positions::File(file) => {
                let last = self.last.part().or_else(|| self.known_mark()?.last());
                self.left.text_behind(&file.mark(last))
            }
        }
    }

    /// The mark by which the feed recognises its file.
    fn known_mark(&self) -> Option<Mark> {
        LeftFiles::parse(self.feed.as_ref()?.source()?).map(|(mark, _)| mark)
    }

    /// Stores by what the feed recognises its source, including the files that were left.
    ///
    /// # Errors
    /// When the feed cannot be written.
    pub fn mark(&mut self) -> Result<(), Failure> {
        let mark = self.mark_text();
        let Some(feed) = &mut self.feed else { return Ok(()) };
        match feed.source() == Some(&mark) {
            true => Ok(()),
            false => Ok(feed.set_source(&mark)?),
        }
    }

    /// The same, before a position is stored: a position is meaningless without its source. For a
    /// known source this happens only now and then, as it takes a durable step.
    fn mark_if_due(&mut self) -> Result<(), Failure> {
        let is_due = match (&self.positions, self.known_mark()) {
            (Positions::File(file), Some(known)) => file.mark(self.last.part()).renews(&known),
            _ => self.feed.as_ref().is_some_and(|feed| feed.source().is_none()),
        };
        if is_due { self.mark() } else { Ok(()) }
    }

    /// Continues with the file that replaced the one that was read to its end. The feed does so in
    /// one durable step. A kill before it leaves the feed at the end of the old file. A kill after
    /// it leaves the feed at the beginning of the new file, or where that was left before. No third
    /// file is ever taken for either.
    ///
    /// # Errors
    /// When the file cannot be read, or the store fails.
    pub fn follow(&mut self) -> Result<(), Failure> {
        let Some(file) = self.file().cloned() else { return Ok(()) };
        let next = file.successor()?;
        let left = Left { id: file.id(), position: self.read, mark: file.mark(self.last.part()) };
        self.left.push(left, file.handle());
        let (position, last) =
            self.left_at(&next).map_err(|error| cannot_read(next.path(), &error))?.unwrap_or_default();
        let mark = self.left.text_behind(&next.mark(last.part()));
        self.positions = Positions::File(Arc::new(next));
        (self.begun_at, self.read, self.last) = (position, position, last);
        self.feed.as_mut().map_or(Ok(()), |feed| Ok(feed.restart(position, Some(&mark))?))
    }

    /// The position and the last bytes of a file that was left before.
    fn left_at(&mut self, file: &Follow) -> io::Result<Option<(u64, LastBytes)>> {
        match self.left.take(file.id(), file.handle()) {
            // Otherwise it was truncated.
            Some(Left { position, mark, .. }) if file.is_marked(&mark, position)? => {
                Ok(Some((position, file.last_bytes(position)?)))
            }
            _ => Ok(None),
        }
    }

    /// The state of a line's record, or why it has no position.
    pub fn place(&mut self, line_end: u64, record: &JsonRecord) -> Result<Place, String> {
        let Positions::Member(name) = &self.positions else { return Ok(Place::New(line_end)) };
        let value = member(record, name);
        let position = value.and_then(serde_json::Value::as_u64).and_then(|offset| offset.checked_add(1));
        let Some(position) = position else {
            let found = value.map_or_else(|| "there is none".into(), |value| format!("{value} is none"));
            return Err(format!("column {name:?}: {found}; the position of a record is a whole number, 0 or more"));
        };
        if position <= self.begun_at {
            return Ok(Place::Known);
        }
        if position <= self.read {
            let before = self.read - 1;
            return Err(format!(
                "column {name:?}: position {} comes after {before}; positions rise from record to record",
                position - 1
            ));
        }
        self.read = position;
        Ok(Place::New(position))
    }

    /// Notes the content of a line of a file, before it is processed.
    pub fn note_bytes(&mut self, line: &Line) {
        if let (Positions::File(_), Ok(text)) = (&self.positions, &line.text) {
            let end = line.number + text.len() as u64;
            self.last.push(line.number, text.as_bytes());
            self.last.push(end, if line.end > end { b"\n" } else { b"" });
        }
    }

    /// Notes that a line has been read, whatever its result.
    pub fn note_line(&mut self, line_end: u64) {
        if matches!(self.positions, Positions::File(_)) {
            self.read = line_end;
        }
    }

    /// Writes rows with their positions.
    ///
    /// # Errors
    /// When the feed cannot be written.
    pub fn write(
        &mut self,
        batch: &RecordBatch,
        positions: &[u64],
        on_conflict: OnConflict,
        outcome: &mut BatchOutcome,
    ) -> Result<(), Failure> {
        self.mark_if_due()?;
        match &mut self.feed {
            Some(feed) => Ok(feed.write_batch(batch, positions, on_conflict, outcome)?),
            None => Err(Failure::new(Failure::FAILURE, "records came before their dataset")),
        }
    }

    /// Stores the position once all rows are written, so that refused records are not read again.
    ///
    /// # Errors
    /// When the feed cannot be written.
    pub fn pass(&mut self) -> Result<(), Failure> {
        self.mark_if_due()?;
        self.feed.as_mut().map_or(Ok(()), |feed| Ok(feed.pass(self.read)?))
    }
}

fn cannot_read(path: &Path, error: &io::Error) -> Failure {
    Failure::io(format_args!("read {}", path.display()), error)
}

fn member_mark(member: &str) -> String {
    format!("positions in {member:?}")
}

/// The default name of a file's feed.
fn name_of(path: &Path, has_name: bool) -> Result<String, Failure> {
    match path.to_str() {
        _ if has_name => Ok(String::new()),
        Some(path) if terrane::check_feed_name(path).is_ok() => Ok(path.to_owned()),
        _ => Err(Failure::usage(format!(
            "the path {path:?} is not UTF-8, has control characters or is too long to be a feed's name; give the feed one with --feed"
        ))),
    }
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
