//! Widening integer columns to float64, without changing stored records.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;

use super::Dataset;
use crate::query::Query;
use crate::value::exact_float;
use crate::{Error, Result};

impl Dataset {
    /// Makes an int64 attribute float64, so that it accepts fractions. Reads all records first,
    /// while writers wait, because no stored integer may change.
    ///
    /// # Errors
    /// An unknown column or one of another type; an integer in it that float64 cannot hold exactly;
    /// damage; storage.
    pub fn widen_column(&self, name: &str) -> Result<()> {
        // Held until the change is made, so that no integer is added in between.
        let mut gate = None;
        let changed = self.engine.change_schema(&self.handle, |history| {
            let widened = history.widen(name)?;
            gate = Some(self.handle.exclude()?);
            self.check_exact_as_float(name)?;
            Ok(widened)
        });
        drop(gate);
        changed
    }

    /// Refuses to widen an attribute if a stored integer would change. The gate must be held.
    pub(super) fn check_exact_as_float(&self, name: &str) -> Result<()> {
        for batch in self.snapshot().query(&Query::new().columns([name]))? {
            let batch = batch?;
            let integers = batch.column(0).as_primitive_opt::<Int64Type>();
            if let Some(integer) =
                integers.into_iter().flatten().flatten().find(|&integer| exact_float(integer).is_none())
            {
                return Err(not_exact(name, integer));
            }
        }
        Ok(())
    }

    /// Refuses records encoded for a schema with an integer column that has been widened since.
    /// Their integers were not checked. The gate must be held.
    pub(super) fn check_not_widened_since(&self, widenings: usize) -> Result<()> {
        match self.handle.history.load().widenings() == widenings {
            true => Ok(()),
            false => Err(Error::refused("a column was made float64 meanwhile; start again with the new schema")),
        }
    }
}

/// The error of an integer column that cannot become float64.
pub(super) fn not_exact(name: &str, integer: i64) -> Error {
    Error::Refused {
        row: None,
        column: Some(name.to_owned()),
        reason: format!(
            "the column holds the integer {integer}, which a float64 cannot hold exactly, so it takes no fractions"
        ),
    }
}
