//! Columns that are added, renamed and dropped: one manifest step each, without a look at the records.
//!
//! A crash leaves the columns as they were or as they will be. What was written under older columns, also by a writer that
//! has begun, is read by the numbers that attributes keep (S2).

use super::Dataset;
use crate::schema::Column;
use crate::{Error, Result};

impl Dataset {
    /// Adds a nullable attribute; the records there are have null in it, also where the name is that of an attribute
    /// that was dropped.
    ///
    /// # Errors
    /// A name that is taken; storage.
    pub fn add_column(&self, column: Column) -> Result<()> {
        self.engine.catalog.change_schema(&self.handle, |history| Ok(history.with_column(column)?))
    }

    /// Gives a column another name: the key, one of the geometry, or an attribute. Indexes on it go on, under the new name of
    /// the column. Snapshots that there are keep the old one.
    ///
    /// # Errors
    /// A column that is not there; a name that is empty, too long, or taken; storage.
    pub fn rename_column(&self, from: &str, to: &str) -> Result<()> {
        self.engine.catalog.change_columns(&self.handle, |history, indexes| {
            // Nothing of the data is refused.
            let renamed = history.rename(from, to).map_err(|error| Error::usage(error.to_string()))?;
            Ok((renamed, indexes.renamed(from, to)))
        })
    }

    /// Drops an attribute: its values are in no answer any more, but of snapshots that there are, and never come back. The
    /// attributes behind it move up, in the schema and in [`Record::values`](crate::Record::values): who has records of
    /// the old schema in hand reads the schema again. Records that are stored keep the bytes until they are replaced or
    /// deleted and then merged.
    ///
    /// # Errors
    /// A column that is not there; the key, and the geometry; an attribute that an index is on, which has to be dropped
    /// first, and is named; storage.
    pub fn drop_column(&self, name: &str) -> Result<()> {
        self.engine.catalog.change_columns(&self.handle, |history, indexes| {
            let history = history.without_column(name)?;
            let held: Vec<String> = indexes.on(name).map(|index| format!("{index:?}")).collect();
            if held.is_empty() {
                return Ok((history, indexes.clone()));
            }
            let (which, them) = if held.len() == 1 { ("the index", "that") } else { ("the indexes", "those") };
            Err(Error::usage(format!("column {name:?} is in {which} {}; drop {them} first", held.join(", "))))
        })
    }
}
