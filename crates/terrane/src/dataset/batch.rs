//! Record batches. Each row is a transaction; many share one sync.

use arrow_array::RecordBatch;
use terrane_lsm::search;
use terrane_space::Rect;

use super::Dataset;
use super::pipeline::Pipeline;
use super::write::{Change, Origin};
use crate::batch::BatchRecords;
use crate::key::{Key, check_length};
use crate::secondary::PRIMARY;
use crate::{Error, Result};

/// What to do with a record whose key exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// Refuse it.
    #[default]
    Refuse,
    /// Replace the stored record.
    Replace,
}

/// A refused row.
#[derive(Clone, Debug)]
pub struct RefusedRow {
    /// Its index in the batch, from 0.
    pub row: usize,
    /// The reason.
    pub error: Error,
}

/// Result of writing a batch.
#[derive(Clone, Debug, Default)]
pub struct BatchOutcome {
    /// Keys of the durable records, in the order of their rows.
    pub keys: Vec<Key>,
    /// The refused rows.
    pub refused: Vec<RefusedRow>,
}

impl Dataset {
    /// Writes the rows of a batch, each in its own transaction.
    ///
    /// All rows that are not refused are durable and visible on return. Without a key column, keys
    /// are numbered from the largest key on.
    ///
    /// Locks are tried row by row. Before waiting for a lock, the earlier rows are committed and
    /// synced (Kim 2016, section 3.4.2). The same happens whenever their entries in the log take a
    /// quarter of the working memory.
    ///
    /// # Errors
    /// Columns that do not fit the schema, and then nothing is written. No space or a failed sync,
    /// and then earlier rows may be durable.
    pub fn write_batch(&self, batch: &RecordBatch, on_conflict: OnConflict) -> Result<BatchOutcome> {
        let mut outcome = BatchOutcome::default();
        self.write_batch_into(batch, on_conflict, &mut outcome)?;
        Ok(outcome)
    }

    /// Like [`Self::write_batch`]. After an error, `outcome` describes the rows before it, so that
    /// the caller can acknowledge the durable ones.
    ///
    /// # Errors
    /// Those of [`Self::write_batch`].
    pub fn write_batch_into(
        &self,
        batch: &RecordBatch,
        on_conflict: OnConflict,
        outcome: &mut BatchOutcome,
    ) -> Result<()> {
        self.write_batch_from(batch, on_conflict, &|_| Origin::default(), outcome)
    }

    /// Like [`Self::write_batch_into`], with the origin of each row by its index in the batch.
    pub(crate) fn write_batch_from(
        &self,
        batch: &RecordBatch,
        on_conflict: OnConflict,
        origin: &dyn Fn(usize) -> Origin,
        outcome: &mut BatchOutcome,
    ) -> Result<()> {
        self.engine.check_writable()?;
        // Before the schema is read: no column is widened until the rows are stored.
        let _gate = self.handle.enter()?;
        let schema = self.schema();
        let mut rows = BatchRecords::new(batch, &schema)?;
        *outcome = BatchOutcome::default();
        let mut pipeline = Pipeline::new(&self.engine);
        let written = self.write_rows(&mut rows, on_conflict, origin, &mut pipeline, outcome);
        // After an error too: earlier rows are synced before their locks are released.
        let acknowledged = pipeline.acknowledge();
        outcome.keys.truncate(pipeline.durable());
        written.and(acknowledged)
    }

    /// Writes rows until one fails.
    fn write_rows(
        &self,
        rows: &mut BatchRecords<'_>,
        on_conflict: OnConflict,
        origin: &dyn Fn(usize) -> Origin,
        pipeline: &mut Pipeline<'_>,
        outcome: &mut BatchOutcome,
    ) -> Result<()> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for row in 0..rows.rows() {
            key.clear();
            value.clear();
            let encoded = rows.encode_row(row, &mut key, &mut value).map_err(Error::from);
            let rect = encoded.map(|geometry| geometry.rect());
            let written = rect.and_then(|rect| match on_conflict {
                _ if !rows.has_keys() => self.write_numbered(&mut key, &value, rect, origin(row), pipeline),
                OnConflict::Replace => self.write_row(&key, Change::Upsert(&value), rect, origin(row), pipeline),
                OnConflict::Refuse => self.write_row(&key, Change::Insert(&value), rect, origin(row), pipeline),
            });
            match written {
                Ok(key) => outcome.keys.push(key),
                Err(error) if error.is_refusal() => outcome.refused.push(RefusedRow { row, error }),
                Err(error) => return Err(error),
            }
            pipeline.acknowledge_many()?;
        }
        Ok(())
    }

    /// Inserts a record under the next free number, which is encoded into `key`.
    fn write_numbered(
        &self,
        key: &mut Vec<u8>,
        value: &[u8],
        rect: Option<Rect>,
        origin: Origin,
        pipeline: &mut Pipeline<'_>,
    ) -> Result<Key> {
        loop {
            key.clear();
            self.generate_key(key)?;
            match self.write_row(key, Change::Insert(value), rect, origin, pipeline) {
                // Another writer has used the number as a key meanwhile.
                Err(Error::DuplicateKey { .. }) => {}
                written => return written,
            }
        }
    }

    fn write_row(
        &self,
        key: &[u8],
        change: Change<'_>,
        rect: Option<Rect>,
        origin: Origin,
        pipeline: &mut Pipeline<'_>,
    ) -> Result<Key> {
        check_length(key)?;
        pipeline.lock(self.lock_hash(key))?;
        let decoded = Key::decode(self.schema().key.key_type, key)?;
        self.handle.row_numbers.note(&decoded);
        if let Some(committed) = self.change(key, change, rect, origin)? {
            pipeline.note(committed);
        }
        Ok(decoded)
    }

    /// Appends the next row number as an encoded key.
    pub(super) fn generate_key(&self, key: &mut Vec<u8>) -> Result<()> {
        let key_type = self.schema().key.key_type;
        let number = self.handle.row_numbers.take(key_type, || {
            let mut largest: Option<Vec<u8>> = None;
            for version in self.handle.partitions.versions().iter() {
                largest = largest.max(search::key_range(version, PRIMARY as usize)?.map(|(_, largest)| largest));
            }
            Ok(largest.map(|largest| Key::decode(key_type, &largest)).transpose()?)
        })?;
        key.extend_from_slice(&number.to_encoded()?);
        Ok(())
    }
}
