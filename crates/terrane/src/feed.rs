//! Feeds: sources of records whose positions commit with their records.
//!
//! A feed's records are transactions like all others. The log entry of each has the position behind
//! it in the source, and a flush stores the position in the manifest together with the records. So
//! after a crash the store holds the records up to the stored position, and none behind it.

mod definition;
mod queue;
mod spill;

use std::sync::Arc;

use arrow_array::RecordBatch;
use serde::Serialize;

pub(crate) use self::definition::{FeedDefinition, FeedsInUse};
pub(crate) use self::queue::queue;
pub use self::queue::{FeedReceiver, FeedSender, OnOverload};
pub use self::spill::QueuedRecord;

use crate::dataset::{BatchOutcome, Dataset, OnConflict};
use crate::engine::{DatasetHandle, Origin};
use crate::{Error, Result};

/// Longest name, in bytes. It may be the path of a file.
const NAME_BYTES_MAX: usize = 4096;
/// Longest description of a source, in bytes.
const SOURCE_BYTES_MAX: usize = 4096;

/// A feed of a dataset, as stored.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FeedInfo {
    /// Name.
    pub name: String,
    /// The position up to which its source has been read.
    pub position: u64,
    /// The text by which its user recognises the source.
    pub source: Option<String>,
}

/// A source of records for a dataset, with the stored position up to which it has been read. The
/// source defines its positions, such as bytes of a file. A position is a number that grows with
/// each record, and is 0 before the first.
///
/// Each feed has one user at a time.
#[derive(Debug)]
pub struct Feed {
    dataset: Dataset,
    definition: FeedDefinition,
    position: u64,
    _claim: Claim,
}

impl Dataset {
    /// Opens a feed, or creates it.
    ///
    /// # Errors
    /// When the name is not possible, the feed has a user already, or the storage fails.
    pub fn feed(&self, name: &str) -> Result<Feed> {
        self.engine.check_writable()?;
        check_feed_name(name)?;
        self.handle.check_present()?;
        let claim = Claim::new(&self.handle, name)?;
        let found = self.handle.feeds.load().iter().find(|feed| feed.name == name).cloned();
        let definition = match found {
            Some(definition) => definition,
            None => self.engine.catalog.begin_feed(&self.handle, name, 0, None)?,
        };
        let position = definition.position(&self.handle.partitions);
        Ok(Feed { dataset: self.clone(), definition, position, _claim: claim })
    }

    /// Its feeds.
    pub fn feeds(&self) -> Vec<FeedInfo> {
        feeds_of(&self.handle)
    }

    /// Forgets a feed and its position. Returns whether there was one with the name. The records
    /// stay.
    ///
    /// # Errors
    /// When the feed is in use, or the storage fails.
    pub fn drop_feed(&self, name: &str) -> Result<bool> {
        self.engine.check_writable()?;
        let _claim = Claim::new(&self.handle, name)?;
        self.engine.catalog.change_feeds(&self.handle, |feeds| {
            let count = feeds.len();
            feeds.retain(|feed| feed.name != name);
            feeds.len() < count
        })
    }
}

/// Checks the name of a feed.
///
/// # Errors
/// [`Error::Usage`] if a feed cannot have it, with the rule.
pub fn check_feed_name(name: &str) -> Result<()> {
    check_text("a feed's name", name, NAME_BYTES_MAX)
}

/// The feeds of a dataset.
pub(crate) fn feeds_of(dataset: &DatasetHandle) -> Vec<FeedInfo> {
    let feeds = dataset.feeds.load();
    let info = |feed: &FeedDefinition| FeedInfo {
        name: feed.name.clone(),
        position: feed.position(&dataset.partitions),
        source: feed.source.clone(),
    };
    feeds.iter().map(info).collect()
}

impl Feed {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// The position up to which the source has been read. Its records up to here are durable, as
    /// the store's mode says, and none from behind is stored.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The last text of [`Self::set_source`] or [`Self::restart`].
    pub fn source(&self) -> Option<&str> {
        self.definition.source.as_deref()
    }

    /// Stores a text by which the source is recognised, such as a checksum of a file's first bytes.
    /// It has at most 4096 bytes. It is durable on return.
    ///
    /// # Errors
    /// When the text is not possible, or the storage fails.
    pub fn set_source(&mut self, source: &str) -> Result<()> {
        check_source(source)?;
        let id = self.definition.id;
        self.dataset.engine.catalog.change_feeds(&self.dataset.handle, |feeds| {
            feeds.iter_mut().filter(|feed| feed.id == id).for_each(|feed| feed.source = Some(source.to_owned()));
            true
        })?;
        self.definition.source = Some(source.to_owned());
        Ok(())
    }

    /// Begins anew at a position of another source, such as 0 of a file that has replaced the one
    /// that was read. Without a text the source is unknown. The records stay.
    ///
    /// This is one step, and durable on return. A crash leaves the feed where it was in the old
    /// source, or at this position of the new one.
    ///
    /// # Errors
    /// As for [`Self::set_source`].
    pub fn restart(&mut self, position: u64, source: Option<&str>) -> Result<()> {
        source.map_or(Ok(()), check_source)?;
        let Dataset { handle, engine } = &self.dataset;
        self.definition = engine.catalog.begin_feed(handle, &self.definition.name, position, source)?;
        self.position = position;
        Ok(())
    }

    /// Writes the rows of a batch like [`Dataset::write_batch_into`], each with the position behind
    /// it in the source. Positions grow from row to row. Refused rows are passed.
    ///
    /// # Errors
    /// As [`Dataset::write_batch_into`]. If the positions do not fit, nothing is written.
    /// After an error, [`Self::position`] still tells which rows were written.
    pub fn write_batch(
        &mut self,
        batch: &RecordBatch,
        positions: &[u64],
        on_conflict: OnConflict,
        outcome: &mut BatchOutcome,
    ) -> Result<()> {
        self.check_positions(positions, batch.num_rows())?;
        let feed = self.definition.id;
        let origin = |row: usize| Origin { feed, position: positions[row] };
        let written = self.dataset.write_batch_from(batch, on_conflict, &origin, outcome);
        // Applied rows are durable, unless the store refuses everything from now on.
        if self.dataset.engine.check_writable().is_ok() {
            self.position = self.definition.position(&self.dataset.handle.partitions);
        }
        written?;
        positions.last().map_or(Ok(()), |&last| self.pass(last))
    }

    /// Stores that the source has been read up to a position, without a record. It is durable on
    /// return. Nothing happens if the feed is there already.
    ///
    /// # Errors
    /// When the disk is full or a sync fails.
    pub fn pass(&mut self, position: u64) -> Result<()> {
        if position > self.position {
            let Dataset { handle, engine } = &self.dataset;
            engine.check_writable()?;
            let _gate = handle.enter()?;
            engine.core.acknowledge(self.dataset.pass(Origin { feed: self.definition.id, position })?)?;
            self.position = position;
        }
        Ok(())
    }

    fn check_positions(&self, positions: &[u64], rows: usize) -> Result<()> {
        if positions.len() != rows {
            let (name, count) = (self.name(), positions.len());
            return Err(Error::usage(format!("feed {name:?}: {rows} rows have {count} positions")));
        }
        let mut before = self.position;
        for &position in positions {
            if position <= before {
                let name = self.name();
                return Err(Error::usage(format!(
                    "feed {name:?}: position {position} comes after {before}; each record needs a higher one"
                )));
            }
            before = position;
        }
        Ok(())
    }
}

/// The right to use a feed.
#[derive(Debug)]
struct Claim {
    dataset: Arc<DatasetHandle>,
    name: String,
}

impl Claim {
    fn new(dataset: &Arc<DatasetHandle>, name: &str) -> Result<Self> {
        if !dataset.feeds_in_use.lock().insert(name.to_owned()) {
            return Err(Error::usage(format!("feed {name:?} of dataset {:?} is in use", dataset.name)));
        }
        Ok(Self { dataset: dataset.clone(), name: name.to_owned() })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.dataset.feeds_in_use.lock().remove(&self.name);
    }
}

fn check_source(source: &str) -> Result<()> {
    check_text("the description of a feed's source", source, SOURCE_BYTES_MAX)
}

fn check_text(what: &str, text: &str, bytes_max: usize) -> Result<()> {
    match text.is_empty() || text.len() > bytes_max || text.chars().any(char::is_control) {
        true => Err(Error::usage(format!("{what} needs 1 to {bytes_max} bytes without control characters: {text:?}"))),
        false => Ok(()),
    }
}
