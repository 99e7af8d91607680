//! Which states of a dataset an answer may rest on.

use std::fmt;

use serde::Serialize;

use crate::{Error, Result};

/// Which states of a dataset the answer to a query may rest on (Kim 2016, section 3.4.1). At both levels, what a query
/// reads is committed and visible, so a crash cannot take it back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// One: the whole answer is of one sequence number of the store. Nobody is waited for.
    #[default]
    Snapshot,
    /// Each step of the query reads the newest state that is visible when the step begins, and a record is fetched only when no
    /// writer holds its key. Steps are the search of a spatial index in one partition, some thousand entries of another
    /// index or of the records, and some records that are fetched together.
    ///
    /// A row is a version of its record that was visible at some moment of the query. It meets all conditions. If the index alone gave
    /// the row, it did when the search of the partition began; else it did when the record was read. Where a writer holds the key
    /// of an entry that would be a row without its record, the writer is waited for, and the record decides.
    ///
    /// What one state of the dataset excludes is possible here: changes of one atomic batch of which the answer shows some (read
    /// skew); records that are inserted after the query began (phantoms); rows of records whose newest version does not match any
    /// more; and, through an index on attributes or words, a record that is returned once for each of several of its versions
    /// (a read that is not repeated), or not at all although each of them matches, as it moved behind the search. Through
    /// the records and through spatial indexes, a record is returned once at most, and not missed
    /// while all its versions match.
    ReadCommitted,
}

impl Isolation {
    /// Refuses what is not of one state of the dataset, where `what` is.
    pub(crate) fn check_one_state(self, what: &str) -> Result<()> {
        match self {
            Self::Snapshot => Ok(()),
            Self::ReadCommitted => Err(Error::Unsupported {
                what: format!("{what} at read committed"),
                instead: "it is of one state of the dataset; ask at snapshot, or ask the dataset itself with Dataset::query",
            }),
        }
    }

    /// Refuses a query for the nearest that is not of one state of the dataset.
    pub(super) fn check_nearest(self) -> Result<()> {
        match self {
            Self::Snapshot => Ok(()),
            Self::ReadCommitted => Err(Error::Unsupported {
                what: "a query for the nearest at read committed".into(),
                instead: "which records are nearest can be told of one state of the dataset alone; ask at snapshot",
            }),
        }
    }
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Snapshot => "snapshot",
            Self::ReadCommitted => "read committed",
        })
    }
}
