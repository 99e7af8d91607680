//! Record batches whose rows are transactions of their own, with one sync for many.

use arrow_array::RecordBatch;
use terrane_lsm::search;
use terrane_lsm::sync::Ordering;

use super::Dataset;
use super::write::Change;
use crate::batch::BatchRecords;
use crate::engine::{Committed, PRIMARY};
use crate::key::{Key, KeyType, check_length, encode_int, encode_uint};
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
    /// synced before waiting for it (Kim 2016, section 3.4.2).
    ///
    /// # Errors
    /// Columns that do not fit the schema (nothing is written then); no space or a failed sync
    /// (rows before may be durable).
    pub fn write_batch(&self, batch: &RecordBatch, on_conflict: OnConflict) -> Result<BatchOutcome> {
        self.engine.check_writable()?;
        let schema = self.schema();
        let mut rows = BatchRecords::new(batch, &schema)?;
        let mut outcome = BatchOutcome::default();
        let _gate = self.handle.gate.read();
        let mut frame = Frame::new(&self.engine.locks);
        let mut last: Option<Committed> = None;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for row in 0..rows.rows() {
            key.clear();
            value.clear();
            let geometry = match rows.encode_row(row, &mut key, &mut value) {
                Ok(geometry) => geometry,
                Err(error) => {
                    outcome.refused.push(RefusedRow { row, error: error.into() });
                    continue;
                }
            };
            if !rows.has_keys() {
                self.generate_key(schema.key.key_type, &mut key)?;
            }
            if let Err(error) = check_length(&key) {
                outcome.refused.push(RefusedRow { row, error: error.into() });
                continue;
            }
            let hash = self.lock_hash(&key);
            if frame.acquire(hash) == Acquire::MustWait {
                frame.commit_then_wait(hash, || {
                    last.take().map_or(Ok(()), |committed| self.engine.acknowledge(committed))
                })?;
            }
            let change = match on_conflict {
                OnConflict::Refuse => Change::Insert(&value),
                OnConflict::Replace => Change::Upsert(&value),
            };
            match self.change(&key, change, geometry.rect()) {
                Ok(committed) => {
                    last = committed.or(last);
                    let key = Key::decode(schema.key.key_type, &key)?;
                    self.note_key(&key);
                    outcome.keys.push(key);
                }
                Err(error) if error.is_refusal() => outcome.refused.push(RefusedRow { row, error }),
                Err(error) => return Err(error),
            }
        }
        if let Some(committed) = last {
            self.engine.acknowledge(committed)?;
        }
        Ok(outcome)
    }

    /// Keeps the row numbers above a key that was written.
    pub(super) fn note_key(&self, key: &Key) {
        let number = match key {
            Key::Int(number) => u64::try_from(*number).ok(),
            Key::UInt(number) => Some(*number),
            _ => None,
        };
        let next = &self.handle.next_row_number;
        // While it is 0, the first record without a key looks for the largest one.
        if let Some(number) = number
            && next.load(Ordering::Acquire) != 0
        {
            next.fetch_max(number.saturating_add(2), Ordering::AcqRel);
        }
    }

    /// Appends the next row number as an encoded key.
    pub(super) fn generate_key(&self, key_type: KeyType, key: &mut Vec<u8>) -> Result<()> {
        let next = &self.handle.next_row_number;
        if next.load(Ordering::Acquire) == 0 {
            let after_largest = self.row_number_after_largest()?;
            // Somebody else may have found the same in between.
            let _ = next.compare_exchange(0, after_largest, Ordering::AcqRel, Ordering::Acquire);
        }
        let number = next.fetch_add(1, Ordering::AcqRel) - 1;
        match key_type {
            KeyType::Int64 => key.extend_from_slice(&encode_int(number as i64)),
            KeyType::UInt64 => key.extend_from_slice(&encode_uint(number)),
            other => {
                return Err(Error::refused(format!(
                    "the records have no key, and keys of type {other:?} cannot be numbered"
                )));
            }
        }
        Ok(())
    }

    /// One more than the first free row number: the numbers start at 0, and 0 means unknown.
    fn row_number_after_largest(&self) -> Result<u64> {
        let version = self.handle.partition.version();
        let largest = search::key_range(&version, PRIMARY as usize)?.map(|(_, largest)| largest);
        let number = match largest.map(|key| Key::decode(self.schema().key.key_type, &key)).transpose()? {
            Some(Key::Int(number)) => u64::try_from(number).map_or(0, |number| number + 1),
            Some(Key::UInt(number)) => number.saturating_add(1),
            _ => 0,
        };
        Ok(number.saturating_add(1))
    }
}
