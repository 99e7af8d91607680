//! Record batches whose rows are transactions of their own, with one sync for many.

use arrow_array::RecordBatch;
use terrane_lsm::search;

use super::Dataset;
use super::write::Change;
use crate::batch::BatchRecords;
use crate::engine::{Committed, PRIMARY};
use crate::key::{Key, check_length};
use crate::locks::{Acquire, Frame};
use crate::{Error, Result};

/// What to do with a record whose key is there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// Refuse it.
    #[default]
    Refuse,
    /// Replace what is there.
    Replace,
}

/// A row that was not taken.
#[derive(Clone, Debug)]
pub struct RefusedRow {
    /// Its index in the batch, from 0.
    pub row: usize,
    /// Why.
    pub error: Error,
}

/// What became of the rows of a batch.
#[derive(Clone, Debug, Default)]
pub struct BatchOutcome {
    /// Keys of the records that are durable now, in the order of their rows.
    pub keys: Vec<Key>,
    /// The others.
    pub refused: Vec<RefusedRow>,
}

impl Dataset {
    /// Writes the rows of a batch, each a transaction. All that is not refused is durable and
    /// visible on return. Without a key column, keys are numbered on from the largest.
    ///
    /// Locks are tried row by row; where one is taken, what was written so far is committed and
    /// synced before waiting for it (Kim 2016, section 3.4.2). So it is each time that the log holds a quarter of the working
    /// memory of it.
    ///
    /// # Errors
    /// Columns that do not fit the schema (nothing is written then); no space or a failed sync
    /// (rows before may be durable).
    pub fn write_batch(&self, batch: &RecordBatch, on_conflict: OnConflict) -> Result<BatchOutcome> {
        let mut outcome = BatchOutcome::default();
        self.write_batch_into(batch, on_conflict, &mut outcome)?;
        Ok(outcome)
    }

    /// As [`Self::write_batch`]; after an error `outcome` tells of the rows before it, for who wants to
    /// acknowledge those that are durable.
    ///
    /// # Errors
    /// As [`Self::write_batch`].
    pub fn write_batch_into(
        &self,
        batch: &RecordBatch,
        on_conflict: OnConflict,
        outcome: &mut BatchOutcome,
    ) -> Result<()> {
        self.engine.check_writable()?;
        // Before the schema is looked at: no column is widened until the rows are stored.
        let _gate = self.handle.gate.read();
        let schema = self.schema();
        let mut rows = BatchRecords::new(batch, &schema)?;
        *outcome = BatchOutcome::default();
        let mut frame = Frame::new(&self.engine.locks);
        let mut last = None;
        let written = self.write_rows(&mut rows, on_conflict, &mut frame, &mut last, outcome);
        // Also where a row failed: the rows before it are synced before their locks are given back.
        let acknowledged = last.map_or(Ok(()), |committed| self.engine.acknowledge(committed));
        if acknowledged.is_err() {
            outcome.keys.clear();
        }
        written.and(acknowledged)
    }

    /// Writes rows until one fails. `last` is the last commit that is not acknowledged yet.
    fn write_rows(
        &self,
        rows: &mut BatchRecords<'_>,
        on_conflict: OnConflict,
        frame: &mut Frame<'_>,
        last: &mut Option<Committed>,
        outcome: &mut BatchOutcome,
    ) -> Result<()> {
        let key_type = self.schema().key.key_type;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        // Where the log ended when an acknowledgement had last waited for it, or with the first row: until then it holds
        // what is appended in memory.
        let mut written = None;
        for row in 0..rows.rows() {
            key.clear();
            value.clear();
            let encoded = rows.encode_row(row, &mut key, &mut value).map_err(Error::from).and_then(|geometry| {
                if !rows.has_keys() {
                    self.generate_key(&mut key)?;
                }
                check_length(&key)?;
                Ok(geometry)
            });
            let geometry = match encoded {
                Ok(geometry) => geometry,
                Err(error) if error.is_refusal() => {
                    outcome.refused.push(RefusedRow { row, error });
                    continue;
                }
                Err(error) => return Err(error),
            };
            let hash = self.lock_hash(&key);
            if frame.acquire(hash) == Acquire::MustWait {
                frame
                    .commit_then_wait(hash, || {
                        last.take().map_or(Ok(()), |committed| self.engine.acknowledge(committed))
                    })
                    .inspect_err(|_| outcome.keys.clear())?;
            }
            let change = match on_conflict {
                // A number that another has used as a key meanwhile does not replace its record.
                OnConflict::Replace if rows.has_keys() => Change::Upsert(&value),
                OnConflict::Refuse | OnConflict::Replace => Change::Insert(&value),
            };
            let decoded = Key::decode(key_type, &key)?;
            self.handle.row_numbers.note(&decoded);
            match self.change(&key, change, geometry.rect()) {
                Ok(committed) => {
                    *last = committed.or(*last);
                    if let Some(Committed { end_lsn, .. }) = committed
                        && end_lsn - *written.get_or_insert(end_lsn) > self.engine.shares.work as u64 / 4
                        && let Some(committed) = last.take()
                    {
                        self.engine.acknowledge(committed).inspect_err(|_| outcome.keys.clear())?;
                        written = Some(end_lsn);
                    }
                    outcome.keys.push(decoded);
                }
                Err(error) if error.is_refusal() => outcome.refused.push(RefusedRow { row, error }),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Appends the next row number as an encoded key.
    pub(super) fn generate_key(&self, key: &mut Vec<u8>) -> Result<()> {
        let key_type = self.schema().key.key_type;
        let number = self.handle.row_numbers.take(key_type, || {
            let version = self.handle.partition.version();
            let range = search::key_range(&version, PRIMARY as usize)?;
            Ok(range.map(|(_, largest)| Key::decode(key_type, &largest)).transpose()?)
        })?;
        key.extend_from_slice(&number.to_encoded()?);
        Ok(())
    }
}
