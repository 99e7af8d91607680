//! A dataset's state at one moment.

use std::ops::{Bound, ControlFlow, Deref, Range};
use std::sync::Arc;

use terrane_lsm::partition::{Partitions, PinnedVersions, Version, Versions};
use terrane_lsm::search::{self, PrimaryValue};

use crate::engine::{CommitCore, DatasetHandle};
use crate::key::{Key, KeyError, KeyType};
use crate::record::{Record, RecordView};
use crate::schema::SchemaHistory;
use crate::secondary::{DatasetIndex, Indexes, PRIMARY, SPATIAL};
use crate::{Error, Result};

/// A dataset at one moment, for any number of queries. Later writes, flushes and merges do not
/// change it. While it lives, the files that it reads are kept.
#[derive(Clone, Debug)]
pub struct Snapshot {
    handle: Arc<DatasetHandle>,
    pinned: Arc<PinnedVersions>,
    /// The partitions whose records are visible: all of them, unless threads divide the work.
    scope: Range<usize>,
    /// Number of threads that share a query's working memory.
    sharers: usize,
    pub(crate) history: Arc<SchemaHistory>,
    /// The dataset's indexes. The version shows which of them were complete when the snapshot was
    /// taken.
    pub(crate) indexes: Arc<Indexes>,
    /// Dropped last, because it may hold the store's lock: files of merged components are removed
    /// with the versions.
    pub(crate) core: Arc<CommitCore>,
}

/// Receives the key and the stored form of a record. Returns whether to continue.
pub(crate) type RecordVisitor<'a> = dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>> + 'a;

/// Number of records read before the version is loaded again, so that sealed memory is not held for
/// long.
pub(crate) const RECORDS_STEP: usize = 8192;

/// Progress of a scan of all records, or of an index.
#[derive(Debug)]
pub(crate) struct ScanPosition {
    /// Start of the remaining part: after the last visited key, or at the first wanted one.
    from: Bound<Vec<u8>>,
    /// Whether the scan has ended.
    pub ended: bool,
}

impl Default for ScanPosition {
    fn default() -> Self {
        Self { from: Bound::Unbounded, ended: false }
    }
}

impl ScanPosition {
    /// Starts at the first key that is not less.
    pub fn at(key: &[u8]) -> Self {
        Self { from: Bound::Included(key.to_vec()), ended: false }
    }
}

/// A key without a copy, for visitors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyRef<'a> {
    /// An int64 key.
    Int(i64),
    /// A uint64 key.
    UInt(u64),
    /// A utf8 key.
    Utf8(&'a str),
    /// A binary key.
    Binary(&'a [u8]),
    /// A uuid key: its 16 bytes.
    Uuid(&'a [u8; 16]),
}

impl<'a> KeyRef<'a> {
    /// Reads an encoded key.
    #[inline]
    pub(crate) fn decode(key_type: KeyType, encoded: &'a [u8]) -> Result<Self> {
        let damaged = || KeyError::Damaged { bytes: encoded.len(), wanted: key_type }.into();
        Self::read(key_type, encoded).ok_or_else(damaged)
    }

    /// Like [`Self::decode`]; `None` if the bytes are not a key of the type.
    #[inline]
    pub(crate) fn read(key_type: KeyType, encoded: &'a [u8]) -> Option<Self> {
        let number = || encoded.try_into().ok().map(u64::from_be_bytes);
        Some(match key_type {
            KeyType::Int64 => Self::Int((number()? ^ (1 << 63)) as i64),
            KeyType::UInt64 => Self::UInt(number()?),
            KeyType::Utf8 => Self::Utf8(std::str::from_utf8(encoded).ok()?),
            KeyType::Binary => Self::Binary(encoded),
            KeyType::Uuid => Self::Uuid(encoded.try_into().ok()?),
        })
    }
}

/// The visible partitions of a dataset, with their components.
#[derive(Debug)]
pub(crate) struct Visible<G> {
    versions: G,
    scope: Range<usize>,
}

impl Deref for Visible<arc_swap::Guard<Arc<Versions>>> {
    type Target = [Arc<Version>];

    fn deref(&self) -> &[Arc<Version>] {
        &self.versions[self.scope.clone()]
    }
}

impl Deref for Visible<Arc<Versions>> {
    type Target = [Arc<Version>];

    fn deref(&self) -> &[Arc<Version>] {
        &self.versions[self.scope.clone()]
    }
}

impl Snapshot {
    pub(crate) fn new(core: Arc<CommitCore>, handle: &Arc<DatasetHandle>) -> Self {
        // Before the version, which then has a slot for each of them.
        let indexes = handle.indexes.load_full();
        let pinned = handle.partitions.pin(|| core.visible());
        // A schema is installed before the records written under it, so it must be read after them.
        let history = handle.history.load_full();
        let scope = 0..handle.partitions.count();
        Self { handle: handle.clone(), pinned, scope, sharers: 1, history, indexes, core }
    }

    /// The same state, for some of the partitions.
    pub(crate) fn of_partitions(&self, scope: Range<usize>) -> Self {
        Self { scope, ..self.clone() }
    }

    /// The same state, for one of several that divide this one's working memory.
    pub(crate) fn with_sharers(self, sharers: usize) -> Self {
        Self { sharers: self.sharers * sharers, ..self }
    }

    /// Memory in bytes for sorting and collecting in one query.
    pub(crate) fn work_bytes(&self) -> usize {
        self.core.environment().shares.work / self.sharers
    }

    /// Number of pages read from files since the store was opened, by any caller.
    pub(crate) fn pages_read(&self) -> u64 {
        self.core.environment().cache().counters().pages_read
    }

    /// The visible partitions.
    pub(crate) fn scope(&self) -> Range<usize> {
        self.scope.clone()
    }

    /// The components to read. A long reader calls this again for every batch.
    pub(crate) fn versions(&self) -> Visible<arc_swap::Guard<Arc<Versions>>> {
        Visible { versions: self.pinned.versions(), scope: self.scope.clone() }
    }

    /// The components to read, as an owned reference.
    pub(crate) fn versions_full(&self) -> Visible<Arc<Versions>> {
        Visible { versions: self.pinned.versions_full(), scope: self.scope.clone() }
    }

    /// The components of an encoded key's partition, if it is visible.
    pub(crate) fn version_of<'v>(&self, versions: &'v [Arc<Version>], key: &[u8]) -> Option<&'v Version> {
        let place = self.partition_of(key).checked_sub(self.scope.start)?;
        versions.get(place).map(|version| &**version)
    }

    /// The stored record of an encoded key, if it is visible.
    pub(crate) fn stored<'v>(&self, versions: &'v [Arc<Version>], key: &[u8]) -> Result<Option<PrimaryValue<'v>>> {
        match self.version_of(versions, key) {
            Some(version) => Ok(search::get(version, PRIMARY as usize, key, self.sequence())?),
            None => Ok(None),
        }
    }

    /// The partition of an encoded key.
    pub(crate) fn partition_of(&self, key: &[u8]) -> usize {
        self.handle.partition_of(key)
    }

    /// Advances to the current visible state. Returns false if the snapshot already shows it.
    pub(crate) fn renew(&mut self) -> bool {
        // Schema and indexes may change without a commit.
        let has_all = Arc::ptr_eq(&self.history, &self.handle.history.load())
            && Arc::ptr_eq(&self.indexes, &self.handle.indexes.load());
        if has_all && self.core.visible() == self.sequence() {
            return false;
        }
        let newest = Self::new(self.core.clone(), &self.handle);
        *self = Self { scope: self.scope(), sharers: self.sharers, ..newest };
        true
    }

    /// The hash that writers lock for an encoded key.
    pub(crate) fn lock_hash(&self, key: &[u8]) -> u64 {
        self.handle.lock_hash(key)
    }

    /// Datasets at one moment. A commit is in all snapshots or in none.
    pub(crate) fn together(core: &Arc<CommitCore>, handles: &[&Arc<DatasetHandle>]) -> Vec<Self> {
        let mut different: Vec<&Arc<DatasetHandle>> = Vec::with_capacity(handles.len());
        for handle in handles {
            if !different.iter().any(|known| Arc::ptr_eq(known, handle)) {
                different.push(handle);
            }
        }
        // As for one dataset: indexes before the versions, schemas after them.
        let indexes: Vec<_> = different.iter().map(|handle| handle.indexes.load_full()).collect();
        let partitions: Vec<&Partitions> = different.iter().map(|handle| &handle.partitions).collect();
        let pinned = Partitions::pin_all(&partitions, || core.visible());
        let of = |((handle, indexes), pinned): ((&&Arc<DatasetHandle>, _), _)| {
            let history = handle.history.load_full();
            let scope = 0..handle.partitions.count();
            Self { handle: (*handle).clone(), pinned, scope, sharers: 1, history, indexes, core: core.clone() }
        };
        let snapshots: Vec<Self> = different.iter().zip(indexes).zip(pinned).map(of).collect();
        let of_handle =
            |handle: &&Arc<DatasetHandle>| snapshots.iter().find(|snapshot| snapshot.is_of(handle)).cloned();
        handles.iter().filter_map(of_handle).collect()
    }

    /// The name of its dataset.
    pub(crate) fn dataset_name(&self) -> &str {
        &self.handle.name
    }

    /// Whether it is one of this dataset.
    pub(crate) fn is_of(&self, handle: &Arc<DatasetHandle>) -> bool {
        Arc::ptr_eq(&self.handle, handle)
    }

    /// Whether both belong to the same dataset.
    pub(crate) fn is_of_dataset_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.handle, &other.handle)
    }

    /// The components, to search the spatial index that every dataset has.
    ///
    /// # Errors
    /// Those of [`Self::damaged_index`].
    pub(crate) fn spatial_versions(&self) -> Result<Visible<arc_swap::Guard<Arc<Versions>>>> {
        let versions = self.versions();
        if versions.iter().any(|version| version.indexes[SPATIAL as usize].damage().is_some()) {
            return Err(self.damaged_index(SPATIAL as usize));
        }
        Ok(versions)
    }

    /// [`Error::DamagedIndex`]: some components of an index could not be opened, so rows would be
    /// missing from every answer.
    pub(crate) fn damaged_index(&self, slot: usize) -> Error {
        self.handle.damaged_index(slot)
    }

    /// The index with a name, and its slot.
    ///
    /// # Errors
    /// No index has the name. The error lists the existing ones.
    pub(crate) fn find_index(&self, name: &str) -> Result<(usize, &Arc<DatasetIndex>)> {
        self.indexes.find(name).ok_or_else(|| self.indexes.unknown(&self.handle.name, name))
    }

    /// Adds the record's key to an error about a damaged record.
    #[cold]
    pub(crate) fn name_record(&self, error: Error, key: &[u8]) -> Error {
        self.handle.name_record(&self.history, error, key)
    }

    /// Calls `visit` with the key and the stored form of every record, in key order within each
    /// partition. Never holds sealed memory for long.
    pub(crate) fn visit_records(&self, visit: &mut RecordVisitor<'_>) -> Result<()> {
        self.visit_btree(PRIMARY as usize, &mut |key, stored| {
            visit(key, stored).map_err(|error| self.name_record(error, key))
        })
    }

    /// Calls `visit` with the key and the value of every entry of the B-tree in a slot, in key
    /// order within each partition. Never holds sealed memory for long.
    pub(crate) fn visit_btree(&self, slot: usize, visit: &mut RecordVisitor<'_>) -> Result<()> {
        for partition in self.scope() {
            let mut position = ScanPosition::default();
            self.visit_btree_from(partition, slot, &mut position, visit)?;
            if !position.ended {
                break;
            }
        }
        Ok(())
    }

    /// Calls `visit` with the key and the value of every entry of a partition's B-tree in a slot,
    /// in key order, from a position on. The position moves behind the last visited entry. Never
    /// holds sealed memory for long.
    pub(crate) fn visit_btree_from(
        &self,
        partition: usize,
        slot: usize,
        position: &mut ScanPosition,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<()> {
        while !position.ended && self.visit_btree_step(partition, slot, position, visit)?.is_continue() {}
        Ok(())
    }

    /// Like [`Self::visit_btree_from`], for the entries that are read from one version, at most
    /// [`RECORDS_STEP`]. Returns whether the visitor continues.
    pub(crate) fn visit_btree_step(
        &self,
        partition: usize,
        slot: usize,
        position: &mut ScanPosition,
        visit: &mut RecordVisitor<'_>,
    ) -> Result<ControlFlow<()>> {
        let version = self.pinned.versions()[partition].clone();
        let (mut last, mut count) = (Vec::new(), 0);
        let (mut broken, mut failed) = (false, None);
        let step = &mut |key: &[u8], value: &[u8]| {
            match visit(key, value) {
                Ok(flow) => broken = flow.is_break(),
                Err(error) => failed = Some(error),
            }
            last.clear();
            last.extend_from_slice(key);
            count += 1;
            let stop = broken || failed.is_some() || count == RECORDS_STEP;
            Ok(if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        };
        let from = position.from.as_ref().map(Vec::as_slice);
        position.ended = search::scan(&version, slot, from, self.sequence(), step)?;
        if let Some(error) = failed {
            return Err(error);
        }
        position.from = Bound::Excluded(last);
        Ok(if broken { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    /// The snapshot has all commits up to this sequence number.
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
        let versions = self.versions();
        match self.stored(&versions, &encoded)? {
            None => Ok(None),
            Some(stored) => {
                let read = RecordView::parse(&stored, &self.history).and_then(|record| record.to_record(key.clone()));
                read.map(Some).map_err(|error| self.name_record(error.into(), &encoded))
            }
        }
    }
}
