//! Indexes are created and dropped while the dataset is in use.

use super::Dataset;
use crate::Result;
use crate::secondary::{IndexKind, IndexOptions};

impl Dataset {
    /// Creates an index and builds it from the records, while others read and write. Queries use it
    /// when this returns. An index of this name whose creation was interrupted is completed, if
    /// that has not happened since the store was opened.
    ///
    /// # Errors
    /// - A name that is taken, and columns that the kind cannot index.
    /// - No space or another failure of the storage before it was begun.
    /// - [`Error::Uncreated`](crate::Error::Uncreated) if it failed later, and the index is gone
    ///   again; [`Error::Unbuilt`](crate::Error::Unbuilt) if it is there, but unfinished.
    /// - [`Error::Cancelled`](crate::Error::Cancelled) if the store is closed meanwhile. The next
    ///   session completes it.
    pub fn create_index(&self, name: &str, kind: IndexKind, columns: &[&str]) -> Result<()> {
        self.create_index_with(name, kind, columns, &IndexOptions::default())
    }

    /// As [`Self::create_index`], with options of the kind.
    ///
    /// # Errors
    /// As [`Self::create_index`]; options that the kind does not have, and grids that are not
    /// possible.
    pub fn create_index_with(
        &self,
        name: &str,
        kind: IndexKind,
        columns: &[&str],
        options: &IndexOptions,
    ) -> Result<()> {
        let columns: Vec<String> = columns.iter().map(|&column| column.to_owned()).collect();
        self.engine.index_builds.create(&self.handle, name, kind, &columns, options)
    }

    /// Removes an index. Snapshots that there are can search it as long as they live.
    ///
    /// # Errors
    /// A name that no index has, or one of the two that every dataset has; storage.
    pub fn drop_index(&self, name: &str) -> Result<()> {
        self.engine.index_builds.drop_index(&self.handle, name)
    }

    /// Completes indexes whose creation was interrupted. With background threads, a store that is
    /// opened does so on its own.
    ///
    /// # Errors
    /// - [`Error::Unbuilt`](crate::Error::Unbuilt), which names the first that could not be
    ///   completed.
    /// - [`Error::Cancelled`](crate::Error::Cancelled) if the store is closed meanwhile.
    pub fn build_indexes(&self) -> Result<()> {
        self.engine.check_writable()?;
        self.engine.index_builds.resume(&self.handle)
    }
}
