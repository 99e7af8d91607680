//! What a dataset held at one moment.

use std::ops::ControlFlow;
use std::sync::Arc;

use terrane_lsm::disk::ReadGuard;
use terrane_lsm::partition::PinnedVersion;
use terrane_lsm::search::{self, WindowScan, spatial_sources};
use terrane_space::windows;

use crate::engine::{DatasetHandle, Engine, PRIMARY, SPATIAL};
use crate::key::{Key, KeyType};
use crate::query::{Explanation, Filters, Nearest, Query, Rows, nearest};
use crate::record::{Record, RecordView};
use crate::schema::{GeometryColumn, SchemaHistory};
use crate::{Error, Result};

/// A dataset as it was at one moment, for any number of queries; later writes, flushes and
/// merges do not change what it sees. While it lives, files that it reads are kept.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(crate) engine: Arc<Engine>,
    pub(crate) pinned: Arc<PinnedVersion>,
    pub(crate) history: Arc<SchemaHistory>,
}

/// A key as a visitor gets it, without a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyRef<'a> {
    /// Of an int64 key.
    Int(i64),
    /// Of a uint64 key.
    UInt(u64),
    /// Of a utf8 key.
    Utf8(&'a str),
    /// Of a binary key.
    Binary(&'a [u8]),
}

impl<'a> KeyRef<'a> {
    /// Reads an encoded key.
    #[inline]
    pub(crate) fn decode(key_type: KeyType, encoded: &'a [u8]) -> Result<Self> {
        let damaged =
            || Error::damaged("a stored key", 0, format!("{} bytes are no key of type {key_type:?}", encoded.len()));
        let number = || <[u8; 8]>::try_from(encoded).map(u64::from_be_bytes).map_err(|_| damaged());
        Ok(match key_type {
            KeyType::Int64 => Self::Int((number()? ^ (1 << 63)) as i64),
            KeyType::UInt64 => Self::UInt(number()?),
            KeyType::Utf8 => Self::Utf8(std::str::from_utf8(encoded).map_err(|_| damaged())?),
            KeyType::Binary => Self::Binary(encoded),
        })
    }
}

impl Snapshot {
    pub(crate) fn new(engine: Arc<Engine>, handle: &DatasetHandle) -> Self {
        let pinned = handle.partition.pin(|| engine.visibility.visible());
        // A schema is older than the records written under it, so it is read after them.
        let history = handle.history.load_full();
        Self { engine, pinned, history }
    }

    /// Changes up to this number of the store's commits are seen.
    pub fn sequence(&self) -> u64 {
        self.pinned.sequence()
    }

    /// The dataset's schema.
    pub fn schema(&self) -> Arc<crate::schema::Schema> {
        self.history.newest().clone()
    }

    /// The record of a key.
    ///
    /// # Errors
    /// A key of another type than the dataset's; damage; storage.
    pub fn get(&self, key: &Key) -> Result<Option<Record>> {
        let wanted = self.history.newest().key.key_type;
        if key.key_type() != wanted {
            return Err(Error::usage(format!(
                "the key {key} is {:?}, the dataset's keys are {wanted:?}",
                key.key_type()
            )));
        }
        let encoded = key.to_encoded()?;
        let version = self.pinned.version();
        match search::get(&version, PRIMARY as usize, &encoded, self.sequence())? {
            None => Ok(None),
            Some(stored) => Ok(Some(RecordView::parse(&stored, &self.history)?.to_record(key.clone())?)),
        }
    }

    /// Runs a query; the rows come in batches.
    ///
    /// # Errors
    /// A query that makes no sense; damage; storage.
    pub fn query(&self, query: &Query) -> Result<Rows> {
        Rows::new(self.clone(), query)
    }

    /// Number of records that a query matches; without reading records where the spatial index
    /// alone can tell.
    ///
    /// # Errors
    /// As [`Self::query`].
    pub fn count(&self, query: &Query) -> Result<u64> {
        Rows::counting(self.clone(), query)?.count_all()
    }

    /// Calls `visit` with the key of every indexed record whose box meets the window, from
    /// the spatial index alone, in no order. For points the box is the point and the answer
    /// exact; for other geometries it encloses the geometry. In `lonlat`, a window with `x0 > x1`
    /// crosses the antimeridian.
    ///
    /// # Errors
    /// A window that makes no sense; damage; storage.
    pub fn visit_window(
        &self,
        x0: f64,
        y0: f64,
        x1: f64,
        y1: f64,
        mut visit: impl FnMut(KeyRef<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let schema = self.history.newest();
        let key_type = schema.key.key_type;
        let windows = windows(schema.system, x0, y0, x1, y1).map_err(|error| Error::usage(error.to_string()))?;
        let version = self.pinned.version();
        // Entered once, not again for every leaf.
        let _guard = ReadGuard::enter();
        let mut failed = None;
        for (number, window) in windows.iter().enumerate() {
            let mut broken = false;
            let mut scan = WindowScan::new(spatial_sources(&version, SPATIAL as usize)?, *window, self.sequence());
            while scan.advance(&mut |hit| {
                // What meets both halves of a window is met in the first.
                if number > 0 && windows[..number].iter().any(|earlier| earlier.intersects(&hit.rect())) {
                    return ControlFlow::Continue(());
                }
                let flow = match KeyRef::decode(key_type, &hit.key()) {
                    Ok(key) => visit(key),
                    Err(error) => {
                        failed = Some(error);
                        ControlFlow::Break(())
                    }
                };
                broken |= flow.is_break();
                flow
            })? {}
            if let Some(error) = failed {
                return Err(error);
            }
            if broken {
                break;
            }
        }
        Ok(())
    }

    /// Calls `visit` with the keys and distances of the `k` nearest points, nearest first, from the
    /// spatial index alone; points at one distance come by their keys. Distances are in the
    /// units of a planar dataset, and in metres in `lonlat`.
    ///
    /// # Errors
    /// A dataset of other geometries than points (use [`Self::query`]); a place that makes no
    /// sense; damage; storage.
    pub fn visit_nearest(
        &self,
        x: f64,
        y: f64,
        k: usize,
        mut visit: impl FnMut(KeyRef<'_>, f64) -> ControlFlow<()>,
    ) -> Result<()> {
        let schema = self.history.newest();
        if !matches!(schema.geometry, GeometryColumn::Point { .. }) {
            return Err(Error::usage("visit_nearest takes datasets of points; use a query with nearest for others"));
        }
        let key_type = schema.key.key_type;
        let filters = Filters::new(&Query::new(), schema.system)?;
        let mut found = nearest::search(self, &filters, &Nearest { x, y, k }, None, &mut Explanation::default())?;
        while let Some((key, distance)) = found.take() {
            if visit(KeyRef::decode(key_type, key)?, distance).is_break() {
                break;
            }
        }
        Ok(())
    }
}
