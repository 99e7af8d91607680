//! What a dataset held at one moment.

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

/// A dataset as it was at one moment, for any number of queries; later writes, flushes and
/// merges do not change what it sees. While it lives, files that it reads are kept.
#[derive(Clone, Debug)]
pub struct Snapshot {
    handle: Arc<DatasetHandle>,
    pinned: Arc<PinnedVersions>,
    /// Those of which this sees the records: all, but where the work on them is divided.
    scope: Range<usize>,
    /// How many divide the working memory of a query.
    sharers: usize,
    pub(crate) history: Arc<SchemaHistory>,
    /// Those that there are; what is built yet, and what was there with the snapshot, says the version.
    pub(crate) indexes: Arc<Indexes>,
    /// Dropped last, as this may unlock the store. Files that were merged away go with the versions.
    pub(crate) core: Arc<CommitCore>,
}

/// Gets the key and the stored form of a record, and tells whether to go on.
pub(crate) type RecordVisitor<'a> = dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>> + 'a;

/// Records that are read between two looks at a version, so that sealed memory is not kept for long.
pub(crate) const RECORDS_STEP: usize = 8192;

/// How far a scan of all records, or of an index, has come.
#[derive(Debug)]
pub(crate) struct ScanPosition {
    /// Where the rest begins: behind the last key that was visited, or at the first that is wanted.
    from: Bound<Vec<u8>>,
    /// Whether there are no more.
    pub ended: bool,
}

impl Default for ScanPosition {
    fn default() -> Self {
        Self { from: Bound::Unbounded, ended: false }
    }
}

impl ScanPosition {
    /// Before the first key that is not less.
    pub fn at(key: &[u8]) -> Self {
        Self { from: Bound::Included(key.to_vec()), ended: false }
    }
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
    /// Of a uuid key: its 16 bytes.
    Uuid(&'a [u8; 16]),
}

impl<'a> KeyRef<'a> {
    /// Reads an encoded key.
    #[inline]
    pub(crate) fn decode(key_type: KeyType, encoded: &'a [u8]) -> Result<Self> {
        let damaged = || KeyError::Damaged { bytes: encoded.len(), wanted: key_type }.into();
        Self::read(key_type, encoded).ok_or_else(damaged)
    }

    /// As [`Self::decode`]; none where the bytes are no key of the type.
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

/// The components of the partitions that a snapshot sees.
#[derive(Debug)]
pub(crate) struct Seen<G> {
    versions: G,
    scope: Range<usize>,
}

impl Deref for Seen<arc_swap::Guard<Arc<Versions>>> {
    type Target = [Arc<Version>];

    fn deref(&self) -> &[Arc<Version>] {
        &self.versions[self.scope.clone()]
    }
}

impl Deref for Seen<Arc<Versions>> {
    type Target = [Arc<Version>];

    fn deref(&self) -> &[Arc<Version>] {
        &self.versions[self.scope.clone()]
    }
}

impl Snapshot {
    pub(crate) fn new(core: Arc<CommitCore>, handle: &Arc<DatasetHandle>) -> Self {
        // Before the version, which then has a place for each of them.
        let indexes = handle.indexes.load_full();
        let pinned = handle.partitions.pin(|| core.visible());
        // A schema is older than the records written under it, so it is read after them.
        let history = handle.history.load_full();
        let scope = 0..handle.partitions.count();
        Self { handle: handle.clone(), pinned, scope, sharers: 1, history, indexes, core }
    }

    /// The same of some of the partitions.
    pub(crate) fn of_partitions(&self, scope: Range<usize>) -> Self {
        Self { scope, ..self.clone() }
    }

    /// The same for one of several who answer a query together.
    pub(crate) fn with_sharers(self, sharers: usize) -> Self {
        Self { sharers, ..self }
    }

    /// Bytes of memory that a query may take for sorting and collecting.
    pub(crate) fn work_bytes(&self) -> usize {
        self.core.environment().shares.work / self.sharers
    }

    /// Pages that were read from files since the store was opened, by whomever.
    pub(crate) fn pages_read(&self) -> u64 {
        self.core.environment().cache().counters().pages_read
    }

    /// The partitions of which this sees the records.
    pub(crate) fn scope(&self) -> Range<usize> {
        self.scope.clone()
    }

    /// The components to read. A long reader asks anew from batch to batch.
    pub(crate) fn versions(&self) -> Seen<arc_swap::Guard<Arc<Versions>>> {
        Seen { versions: self.pinned.versions(), scope: self.scope.clone() }
    }

    /// The components to read, held on their own.
    pub(crate) fn versions_full(&self) -> Seen<Arc<Versions>> {
        Seen { versions: self.pinned.versions_full(), scope: self.scope.clone() }
    }

    /// The components of the partition of an encoded key, among those that this sees.
    pub(crate) fn version_of<'v>(&self, versions: &'v [Arc<Version>], key: &[u8]) -> Option<&'v Version> {
        let place = self.partition_of(key).checked_sub(self.scope.start)?;
        versions.get(place).map(|version| &**version)
    }

    /// The stored record of an encoded key, in some of the components that this sees.
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

    /// Moves on to what is visible now; false if that is what this shows already.
    pub(crate) fn renew(&mut self) -> bool {
        // Schema and indexes change without a commit, too.
        let has_all = Arc::ptr_eq(&self.history, &self.handle.history.load())
            && Arc::ptr_eq(&self.indexes, &self.handle.indexes.load());
        if has_all && self.core.visible() == self.sequence() {
            return false;
        }
        let newest = Self::new(self.core.clone(), &self.handle);
        *self = Self { scope: self.scope(), sharers: self.sharers, ..newest };
        true
    }

    /// Hash under which writers lock the record of an encoded key.
    pub(crate) fn lock_hash(&self, key: &[u8]) -> u64 {
        self.handle.lock_hash(key)
    }

    /// Two datasets at one moment: what was committed together is in both or in neither.
    pub(crate) fn pair(
        core: &Arc<CommitCore>,
        first: &Arc<DatasetHandle>,
        second: &Arc<DatasetHandle>,
    ) -> (Self, Self) {
        if Arc::ptr_eq(first, second) {
            let snapshot = Self::new(core.clone(), first);
            return (snapshot.clone(), snapshot);
        }
        // As for one: indexes before the versions, schemas behind them.
        let (first_indexes, second_indexes) = (first.indexes.load_full(), second.indexes.load_full());
        let (first_pinned, second_pinned) =
            Partitions::pin_pair(&first.partitions, &second.partitions, || core.visible());
        let of = |handle: &Arc<DatasetHandle>, pinned, indexes| {
            let history = handle.history.load_full();
            let scope = 0..handle.partitions.count();
            Self { handle: handle.clone(), pinned, scope, sharers: 1, history, indexes, core: core.clone() }
        };
        (of(first, first_pinned, first_indexes), of(second, second_pinned, second_indexes))
    }

    /// The name of its dataset.
    pub(crate) fn dataset_name(&self) -> &str {
        &self.handle.name
    }

    /// Whether both are of one dataset.
    pub(crate) fn is_of_dataset_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.handle, &other.handle)
    }

    /// The components, to search the spatial index in that every dataset has.
    ///
    /// # Errors
    /// As [`Self::damaged_index`].
    pub(crate) fn spatial_versions(&self) -> Result<Seen<arc_swap::Guard<Arc<Versions>>>> {
        let versions = self.versions();
        if versions.iter().any(|version| version.indexes[SPATIAL as usize].damage().is_some()) {
            return Err(self.damaged_index(SPATIAL as usize));
        }
        Ok(versions)
    }

    /// [`Error::DamagedIndex`]: some of the components of an index could not be opened, so their rows would be missing
    /// from every answer.
    pub(crate) fn damaged_index(&self, slot: usize) -> Error {
        self.handle.damaged_index(slot)
    }

    /// The index of a name, with its slot.
    ///
    /// # Errors
    /// A name that no index has, with those that there are.
    pub(crate) fn find_index(&self, name: &str) -> Result<(usize, &Arc<DatasetIndex>)> {
        self.indexes.find(name).ok_or_else(|| self.indexes.unknown(&self.handle.name, name))
    }

    /// Says which record is damaged, if that is what an error is about.
    #[cold]
    pub(crate) fn name_record(&self, error: Error, key: &[u8]) -> Error {
        self.handle.name_record(&self.history, error, key)
    }

    /// Calls `visit` with the key and the stored form of every record, in each partition in the order of keys. Keeps no
    /// sealed memory for long.
    pub(crate) fn visit_records(&self, visit: &mut RecordVisitor<'_>) -> Result<()> {
        self.visit_btree(PRIMARY as usize, &mut |key, stored| {
            visit(key, stored).map_err(|error| self.name_record(error, key))
        })
    }

    /// Calls `visit` with the key and the value of every entry of the B-trees at a slot, in each partition in the order
    /// of keys. Keeps no sealed memory for long.
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

    /// Calls `visit` with the key and the value of every entry of a partition's B-tree at a slot, in the order of keys,
    /// from a position on, which is moved behind the last entry visited. Keeps no sealed memory for long.
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

    /// As [`Self::visit_btree_from`], of so many entries at most as are read from one version, and tells whether the
    /// visitor goes on.
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
