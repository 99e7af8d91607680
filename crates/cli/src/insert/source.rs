//! The stored position up to which a source has been read.

use std::io;
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use terrane::{BatchOutcome, Dataset, Feed, OnConflict};
use terrane_formats::JsonRecord;

use super::follow::{Follow, Mark};
use super::row::member;
use crate::args::InsertArguments;
use crate::failure::Failure;
use crate::messages::Messages;

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
                let file = Follow::open(path)?;
                let name = name_of(file.path(), arguments.feed.is_some())?;
                (Positions::File(Arc::new(file)), name)
            }
            (None, Some(member)) => (Positions::Member(member.clone()), STANDARD_INPUT.to_owned()),
            (None, None) => return Ok(None),
        };
        let name = arguments.feed.clone().unwrap_or(default_name);
        terrane::check_feed_name(&name)?;
        Ok(Some(Self { name, positions, feed: None, restarts: arguments.restart, begun_at: 0, read: 0 }))
    }

    /// The followed file, if any.
    pub fn file(&self) -> Option<&Arc<Follow>> {
        match &self.positions {
            Positions::File(file) => Some(file),
            Positions::Member(_) => None,
        }
    }

    /// The name of its feed.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The current position.
    pub fn position(&self) -> u64 {
        self.read
    }

    /// Opens the feed, and finds its position in the source.
    ///
    /// # Errors
    /// When the feed is in use or has read another source, or the store fails.
    pub fn open(&mut self, dataset: &Dataset, messages: &Messages) -> Result<(), Failure> {
        let mut feed = dataset.feed(&self.name)?;
        if std::mem::take(&mut self.restarts) {
            feed.restart(0, Some(&self.mark_text()))?;
        } else if let Some(source) = feed.source() {
            self.resume(source, feed.position(), messages)?;
            // Of a truncated file, nothing has been read.
            let mark = self.mark_text();
            if feed.source() != Some(&mark) {
                feed.restart(self.begun_at, Some(&mark))?;
            }
        } else if feed.position() > 0 {
            return Err(self.has_other_source("another source", feed.position()));
        }
        self.feed = Some(feed);
        self.mark()
    }

    /// Continues where a feed has read its source up to a position.
    fn resume(&mut self, source: &str, position: u64, messages: &Messages) -> Result<(), Failure> {
        let mut resumed_at = position;
        match (&self.positions, Mark::parse_all(source)) {
            (Positions::Member(member), _) if source == member_mark(member) => {}
            (Positions::File(file), Some(marks)) => {
                let resumed = file.resume(&marks, position).map_err(|error| cannot_read(file.path(), &error))?;
                let resumed = resumed.ok_or_else(|| self.does_not_fit(file, source, position))?;
                resumed.warnings.iter().for_each(|warning| messages.warn(warning));
                self.positions = Positions::File(Arc::new(resumed.file));
                resumed_at = resumed.position;
            }
            _ => return Err(self.has_other_source(source, position)),
        }
        (self.begun_at, self.read) = (resumed_at, resumed_at);
        Ok(())
    }

    fn has_other_source(&self, source: &str, position: u64) -> Failure {
        Failure::new(
            Failure::FAILURE,
            format!(
                "feed {:?} has read another source up to {position}: {source}; use another --feed, or start from the \
                 beginning with --restart",
                self.name
            ),
        )
    }

    fn does_not_fit(&self, file: &Follow, mark: &str, position: u64) -> Failure {
        Failure::new(
            Failure::FAILURE,
            format!(
                "{} is not the file that feed {:?} has read up to byte {position} ({mark}), and no file in its \
                 directory is; if there is a copy of that file, insert its rest first: tail -c +{} COPY | terrane \
                 insert STORE DATASET; then start from the beginning with --restart",
                file.path().display(),
                self.name,
                position + 1
            ),
        )
    }

    /// The text by which the feed recognises its source.
    fn mark_text(&self) -> String {
        match &self.positions {
            Positions::Member(member) => member_mark(member),
            Positions::File(file) => file.marks(),
        }
    }

    /// Stores the mark of the source unless it is stored. A position is meaningless without it.
    fn mark(&mut self) -> Result<(), Failure> {
        let mark = self.mark_text();
        match &mut self.feed {
            Some(feed) if feed.source() != Some(&mark) => Ok(feed.set_source(&mark)?),
            _ => Ok(()),
        }
    }

    /// Continues with the file that comes after the one that was read to its end. The feed does so
    /// in one durable step: a kill leaves it at the end of the old file or at the beginning of the
    /// new one.
    ///
    /// # Errors
    /// When the store fails.
    pub fn follow(&mut self) -> Result<(), Failure> {
        let Some(next) = self.file().and_then(|file| file.next()) else { return Ok(()) };
        self.positions = Positions::File(Arc::new(next));
        (self.begun_at, self.read) = (0, 0);
        let mark = self.mark_text();
        self.feed.as_mut().map_or(Ok(()), |feed| Ok(feed.restart(0, Some(&mark))?))
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
        self.mark()?;
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
        self.mark()?;
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
            "the path {path:?} is not UTF-8, has control characters or is too long to be a feed's name; give the feed \
             one with --feed"
        ))),
    }
}
