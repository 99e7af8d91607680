//! Adding, renaming and dropping columns. Each is one manifest step and reads no record.
//!
//! A crash leaves the columns as they were or as they will be. Attributes keep their numbers, by
//! which records of older schemas are read, including those of writers that have already begun
//! (S2).

use super::Dataset;
use crate::schema::Column;
use crate::{Error, Result};

impl Dataset {
    /// Adds a nullable attribute. It is null in the stored records, even if a dropped attribute had
    /// its name.
    ///
    /// # Errors
    /// The name is taken; storage.
    pub fn add_column(&self, column: Column) -> Result<()> {
        self.engine.change_schema(&self.handle, |history| Ok(history.with_column(column)?))
    }

    /// Renames a column: the key, a geometry column, or an attribute. Its indexes remain, under the
    /// new name. Existing snapshots keep the old name.
    ///
    /// # Errors
    /// The column does not exist; the name is empty, too long, or taken; storage.
    pub fn rename_column(&self, from: &str, to: &str) -> Result<()> {
        self.engine.change_columns(&self.handle, |history, indexes| {
            // No data was refused, so this is an error of usage.
            let renamed = history.rename(from, to).map_err(|error| Error::usage(error.to_string()))?;
            Ok((renamed, indexes.renamed(from, to)))
        })
    }

    /// Drops an attribute. Its values leave all answers, except those of existing snapshots, and
    /// never return.
    ///
    /// The attributes behind it move up, in the schema and in
    /// [`Record::values`](crate::Record::values). Callers with records of the old schema must read
    /// the schema again. Stored records keep the bytes until they are replaced or deleted, and then
    /// merged.
    ///
    /// # Errors
    /// The column does not exist, or is the key or the geometry; an index is on it, which the error
    /// names and which has to be dropped first; storage.
    pub fn drop_column(&self, name: &str) -> Result<()> {
        self.engine.change_columns(&self.handle, |history, indexes| {
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
