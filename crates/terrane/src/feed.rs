//! Feeds: sources of records whose positions commit with their records.
//!
//! A feed's records are transactions as any others. The log entry of each says how far the source has been read with
//! it, and a flush takes the position to the manifest together with the records; so after a crash the store holds
//! the records up to the position that it tells, and none behind it.

mod definition;

use std::sync::Arc;

use arrow_array::RecordBatch;
use serde::Serialize;

pub(crate) use self::definition::{FeedDefinition, FeedsInUse};

use crate::dataset::{BatchOutcome, Dataset, OnConflict};
use crate::engine::{DatasetHandle, Origin};
use crate::{Error, Result};

/// Longest name, in bytes: the path of a file is one.
const NAME_BYTES_MAX: usize = 4096;
/// Longest description of a source, in bytes.
const SOURCE_BYTES_MAX: usize = 4096;

/// A feed of a dataset, as it is in the store.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FeedInfo {
    /// Name.
    pub name: String,
    /// How far its source has been read.
    pub position: u64,
    /// By what its user knows the source again.
    pub source: Option<String>,
}

/// A source of records for a dataset, of which the store keeps how far it has been read. What a position is the source
/// decides, such as a byte of a file: a number that grows with each record, and 0 before the first.
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
    /// Opens a feed, which is created if there is none of the name.
    ///
    /// # Errors
    /// A name that cannot be; a feed that has a user already; storage.
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

    /// The feeds there are.
    pub fn feeds(&self) -> Vec<FeedInfo> {
        feeds_of(&self.handle)
    }

    /// Forgets a feed and its position; false if there is none of the name. The records stay.
    ///
    /// # Errors
    /// A feed that is in use; storage.
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

/// Refuses what is no name for a feed.
///
/// # Errors
/// [`Error::Usage`], which says what names are.
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

    /// How far the source has been read: what was written of it up to here is durable, as the store's mode says, and
    /// nothing was written of it from behind.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// What [`Self::set_source`] or [`Self::restart`] was told last.
    pub fn source(&self) -> Option<&str> {
        self.definition.source.as_deref()
    }

    /// Keeps a text, of 4096 bytes at most, by which the source is known again, such as a checksum of a file's first
    /// bytes. It is durable on return.
    ///
    /// # Errors
    /// A text that cannot be; storage.
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

    /// Begins anew at a position of another source, such as 0 of a file that has taken the place of the one that was
    /// read; without a text the source is unknown. It is durable on return, and one step: a crash leaves the feed
    /// where it was in the old source, or at this position of the new one. The records stay.
    ///
    /// # Errors
    /// A text that cannot be, as for [`Self::set_source`]; storage.
    pub fn restart(&mut self, position: u64, source: Option<&str>) -> Result<()> {
        source.map_or(Ok(()), check_source)?;
        let Dataset { handle, engine } = &self.dataset;
        self.definition = engine.catalog.begin_feed(handle, &self.definition.name, position, source)?;
        self.position = position;
        Ok(())
    }

    /// Writes the rows of a batch as [`Dataset::write_batch_into`], and with each the position that the source has
    /// been read to then: one for each row, growing from row to row. Rows that are refused are passed.
    ///
    /// # Errors
    /// As [`Dataset::write_batch_into`]; positions that do not fit (nothing is written then). [`Self::position`] tells
    /// after an error, too, which rows were written.
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
        // What is applied is durable, unless the store refuses everything from now on.
        if self.dataset.engine.check_writable().is_ok() {
            self.position = self.definition.position(&self.dataset.handle.partitions);
        }
        written?;
        positions.last().map_or(Ok(()), |&last| self.pass(last))
    }

    /// Notes that the source has been read up to a position, with nothing to be written on the way. It is durable on
    /// return; nothing happens if the feed is there already.
    ///
    /// # Errors
    /// No space or a failed sync.
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
            return Err(Error::usage(format!("feed {name:?}: {rows} rows come with {count} positions")));
        }
        let mut before = self.position;
        for &position in positions {
            if position <= before {
                let name = self.name();
                return Err(Error::usage(format!(
                    "feed {name:?}: position {position} comes after {before}; every record has to bring a higher one"
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
    check_text("what a feed's source is known by", source, SOURCE_BYTES_MAX)
}

fn check_text(what: &str, text: &str, bytes_max: usize) -> Result<()> {
    match text.is_empty() || text.len() > bytes_max || text.chars().any(char::is_control) {
        true => Err(Error::usage(format!("{what} has 1 to {bytes_max} bytes without control characters: {text:?}"))),
        false => Ok(()),
    }
}
