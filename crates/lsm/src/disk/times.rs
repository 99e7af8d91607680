//! The times of the records in a component.

use std::fmt::Debug;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Result;

/// Lowest and highest time of the live entries of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeRange {
    /// Number of the attribute that holds the time.
    pub attribute: u32,
    /// Microseconds since 1970-01-01, both included; `None` if no entry has a time.
    pub range: Option<(i64, i64)>,
}

/// Says where stored records have their time. Their format is the host's.
pub trait RecordTimes: Send + Sync + Debug {
    /// Number of the attribute that holds the time now, if there is one.
    fn attribute(&self) -> Option<u32>;
    /// An attribute of a stored record in microseconds since 1970-01-01; `None` if it is null.
    ///
    /// # Errors
    /// The record is damaged, or the attribute is no time.
    fn time(&self, attribute: u32, record: &[u8]) -> Result<Option<i64>>;
}

/// Finds the range of the records that it gets.
#[derive(Debug)]
pub(crate) struct TimeSpan {
    times: Arc<dyn RecordTimes>,
    found: TimeRange,
    /// Whether all records could be read.
    is_known: bool,
}

impl TimeSpan {
    /// Begins with the attribute that holds the time now; `None` if there is none.
    pub fn new(times: Arc<dyn RecordTimes>) -> Option<Self> {
        Some(Self::over(times.attribute()?, times))
    }

    /// Begins with an attribute.
    pub fn over(attribute: u32, times: Arc<dyn RecordTimes>) -> Self {
        let found = TimeRange { attribute, range: None };
        Self { times, found, is_known: true }
    }

    pub fn add(&mut self, record: &[u8]) {
        match self.times.time(self.found.attribute, record) {
            Ok(None) => {}
            Ok(Some(time)) => {
                let (first, last) = self.found.range.unwrap_or((time, time));
                self.found.range = Some((first.min(time), last.max(time)));
            }
            Err(_) => self.is_known = false,
        }
    }

    /// The range, unless a record could not be read.
    pub fn finish(self) -> Option<TimeRange> {
        self.is_known.then_some(self.found)
    }
}
