//! The times of stored records, for the statistics of components.

use std::sync::Arc;

use arc_swap::ArcSwap;
use terrane_lsm::disk::RecordTimes;
use terrane_lsm::{Error, Result};

use crate::record::RecordView;
use crate::schema::{ColumnId, SchemaHistory};
use crate::value::ValueRef;

/// Reads the first timestamp attribute of the newest schema.
#[derive(Debug)]
pub(crate) struct StoredTimes {
    history: Arc<ArcSwap<SchemaHistory>>,
}

impl StoredTimes {
    /// For records of any version of a history, which may grow.
    pub fn new(history: Arc<ArcSwap<SchemaHistory>>) -> Self {
        Self { history }
    }
}

impl RecordTimes for StoredTimes {
    fn attribute(&self) -> Option<u32> {
        self.history.load().first_timestamp().map(ColumnId::number)
    }

    fn time(&self, attribute: u32, record: &[u8]) -> Result<Option<i64>> {
        let history = self.history.load();
        let unreadable = |reason: String| Error::Invalid(reason);
        let record = RecordView::parse(record, &history).map_err(|damage| unreadable(damage.to_string()))?;
        match record.value_of(ColumnId::of_number(attribute)).map_err(|damage| unreadable(damage.to_string()))? {
            ValueRef::Null => Ok(None),
            ValueRef::Timestamp(time) => Ok(Some(time)),
            _ => Err(unreadable(format!("attribute {attribute} is no timestamp"))),
        }
    }
}
