//! Isolation levels: the states of a dataset that an answer may combine.

use std::fmt;

use serde::Serialize;

use crate::{Error, Result};

/// The isolation level of a query (Kim 2016, section 3.4.1). At both levels, a query reads only
/// committed and visible records, so a crash cannot undo them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// The whole answer has one sequence number of the store. The query waits for no writer.
    #[default]
    Snapshot,
    /// Each step of the query reads the newest state that is visible when the step begins. A record
    /// is fetched only when no writer holds its key.
    ///
    /// A step is the search of a spatial index in one partition, some thousand entries of another
    /// index or of the records, or some records that are fetched together.
    ///
    /// A row is a version of its record that was visible at some moment of the query, and it meets
    /// all conditions. If the index alone gave the row, the version was visible when the search of
    /// the partition began. Otherwise it was visible when the record was read. If a writer holds
    /// the key of an entry that would be a row without its record, the query waits for the writer,
    /// and the record decides.
    ///
    /// Compared with a single state, the following anomalies are possible:
    /// - Read skew: the answer shows some changes of an atomic batch and not others.
    /// - Phantoms: records inserted after the query began.
    /// - Rows of records whose newest version no longer matches.
    /// - Through an index on attributes or words, a record may be returned once for each of several
    ///   versions (a non-repeatable read). Or it is missed although all its versions match, because
    ///   it moved behind the search.
    ///
    /// Through the records and through spatial indexes, a record is returned at most once, and is
    /// not missed while all its versions match.
    ReadCommitted,
}

impl Isolation {
    /// Refuses read committed for an operation, named `what`, that needs a single state of the
    /// dataset.
    pub(crate) fn check_one_state(self, what: &str) -> Result<()> {
        match self {
            Self::Snapshot => Ok(()),
            Self::ReadCommitted => Err(Error::Unsupported {
                what: format!("{what} at read committed"),
                instead: "it needs a single state of the dataset; ask at snapshot, or use Dataset::query of the dataset itself",
            }),
        }
    }

    /// Refuses read committed for a nearest-neighbour query.
    pub(super) fn check_nearest(self) -> Result<()> {
        match self {
            Self::Snapshot => Ok(()),
            Self::ReadCommitted => Err(Error::Unsupported {
                what: "a nearest-neighbour query at read committed".into(),
                instead: "the nearest records are defined only for a single state of the dataset; ask at snapshot",
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
