//! The manifest: the components that make up the store, and its catalog. It is always replaced as a
//! whole.
//!
//! File: magic 8 · version u32 · CRC-32C u32 over everything behind it · length u64 · body (JSON,
//! so that people can read it).
//!
//! A step writes `MANIFEST.new`, syncs it and the names of the components, renames it over
//! `MANIFEST` and syncs the directory. A crash leaves:
//! - before the rename is durable: the whole old manifest; the new file, if its name is there, is a
//!   stray;
//! - after it: the whole new manifest, as its contents were synced before the rename.
//!
//! After a failed rename or sync of the store's directory, either may be found. After any other
//! failed sync, a later one may succeed although data are lost: the new manifest, or the names of
//! component files that a concurrent step is about to name. The handle therefore stops writing
//! after each of these failures.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use terrane_storage::{File, OpenMode, Storage};

use crate::disk::ComponentMeta;
use crate::log::LogPosition;
use crate::{Error, Result};
use terrane_storage::sync::Mutex;

/// Version of the manifest format.
pub const FORMAT_VERSION: u32 = 2;
const MAGIC: &[u8; 8] = b"TERRANEm";
const HEADER_LEN: usize = 24;
/// Name of the manifest.
pub const NAME: &str = "MANIFEST";
const NEW_NAME: &str = "MANIFEST.new";
const BODY_LEN_MAX: u64 = 1 << 30;

/// One index of a partition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IndexState {
    /// Number within the dataset; operations in the log use it.
    pub id: u32,
    /// Components, newest first.
    pub components: Vec<ComponentMeta>,
    /// Whether it lacks the records from before its creation.
    #[serde(default, skip_serializing_if = "is_false")]
    pub building: bool,
    /// The part of those that it has so far, besides the components.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded: Option<Loaded>,
}

/// The progress of loading the records from before an index's creation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Loaded {
    /// Sorted runs of entries, in no order.
    pub runs: Vec<ComponentMeta>,
    /// The runs have the entries of all records with keys before this one; of all records if
    /// `None`.
    pub next_key: Option<Vec<u8>>,
    /// Whether some of them may be in components as well, as the load continued from a later state
    /// than it began with.
    pub overlaps: bool,
}

impl Loaded {
    /// Of a load whose runs have become the oldest component. That component may repeat entries of
    /// others.
    pub const OVERLAPPING: Self = Self { runs: Vec::new(), next_key: None, overlaps: true };
}

impl IndexState {
    /// An empty index.
    pub fn new(id: u32) -> Self {
        Self { id, components: Vec::new(), building: false, loaded: None }
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

/// One partition of a dataset.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartitionState {
    /// Number within the dataset.
    pub id: u32,
    /// All changes up to this sequence number are in disk components, in all indexes.
    pub flushed_sequence: u64,
    /// Number of bulk loads, whose records are in no log.
    #[serde(default)]
    pub loads: u64,
    /// The position of each source of records, for the changes that are in disk components.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sources: BTreeMap<u32, u64>,
    /// Its indexes.
    pub indexes: Vec<IndexState>,
}

/// One dataset. The content of `catalog` belongs to the database.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DatasetState {
    /// Number within the store, never used again.
    pub id: u32,
    /// Name.
    pub name: String,
    /// Schema, indexes, options.
    pub catalog: serde_json::Value,
    /// Its partitions.
    pub partitions: Vec<PartitionState>,
}

/// The store's description of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Drawn at random when the store was created, hexadecimal.
    pub store_id: String,
    /// Drawn when the store was restored from a backup, hexadecimal: from then on its history
    /// differs. Empty before.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub branch: String,
    /// Number of steps.
    pub generation: u64,
    /// Durability mode, fixed at creation.
    pub durability: String,
    /// Ids below this one are taken.
    pub next_file_id: u64,
    /// Dataset ids below this one are taken.
    pub next_dataset_id: u32,
    /// Highest sequence number that a component holds.
    pub last_sequence: u64,
    /// Entries of the log before this position are in components.
    pub low_water: LogPosition,
    /// The datasets.
    pub datasets: Vec<DatasetState>,
}

impl Manifest {
    /// Reads the manifest; `None` if there is none.
    pub fn read(storage: &dyn Storage) -> Result<Option<Self>> {
        Self::read_from(storage, NAME)
    }

    /// Reads a manifest under another name; `None` if there is none.
    pub fn read_from(storage: &dyn Storage, name: &str) -> Result<Option<Self>> {
        let file = match storage.open(name, OpenMode::Read) {
            Ok(file) => file,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let damaged = |offset: u64, reason: &str| Error::damaged(name, offset, reason);
        let length = file.len()?;
        if length < HEADER_LEN as u64 {
            return Err(damaged(0, "the file is too short for a manifest"));
        }
        let mut header = [0; HEADER_LEN];
        file.read_exact_at(&mut header, 0)?;
        if &header[..8] != MAGIC {
            return Err(damaged(0, "the file does not begin as a manifest does"));
        }
        let version = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        if version != FORMAT_VERSION {
            return Err(Error::UnknownVersion { file: name.into(), found: version, known: FORMAT_VERSION });
        }
        let checksum = u32::from_le_bytes([header[12], header[13], header[14], header[15]]);
        let body_len = u64::from_le_bytes(std::array::from_fn(|byte| header[16 + byte]));
        if body_len > BODY_LEN_MAX || body_len != length - HEADER_LEN as u64 {
            return Err(damaged(16, "the length does not match the file's"));
        }
        let mut body = vec![0; body_len as usize];
        file.read_exact_at(&mut body, HEADER_LEN as u64)?;
        if crc32c::crc32c_append(crc32c::crc32c(&header[16..]), &body) != checksum {
            return Err(damaged(12, "the checksum does not match"));
        }
        let manifest = serde_json::from_slice(&body)
            .map_err(|error| damaged(HEADER_LEN as u64, &format!("the body cannot be read: {error}")))?;
        Ok(Some(manifest))
    }

    /// Writes it under a new name, and makes the content durable. The name is not durable yet.
    pub fn write_to(&self, storage: &dyn Storage, name: &str) -> Result<()> {
        let file = storage.open(name, OpenMode::CreateNew)?;
        file.write_all_at(&self.encode()?, 0)?;
        Ok(file.sync_data()?)
    }

    fn encode(&self) -> Result<Vec<u8>> {
        let body = serde_json::to_vec(self)
            .map_err(|error| Error::Invalid(format!("the manifest cannot be written: {error}")))?;
        if body.len() as u64 > BODY_LEN_MAX {
            let reason =
                format!("the manifest would have {} bytes, but at most {BODY_LEN_MAX} are possible", body.len());
            return Err(Error::Invalid(format!("{reason}: too many datasets, columns or components")));
        }
        let mut bytes = Vec::with_capacity(HEADER_LEN + body.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&body);
        let checksum = crc32c::crc32c(&bytes[16..]);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        Ok(bytes)
    }

    /// Whether a later manifest of the store has the same content in other places. Between the two,
    /// records may have been flushed and components merged. Every change in between must be in the
    /// log.
    pub fn has_content_of(&self, later: &Self) -> bool {
        let partitions_agree = |(ours, theirs): (&PartitionState, &PartitionState)| {
            (ours.id, ours.loads, ours.indexes.len()) == (theirs.id, theirs.loads, theirs.indexes.len())
        };
        let datasets_agree = |(ours, theirs): (&DatasetState, &DatasetState)| {
            (ours.id, &ours.name, &ours.catalog) == (theirs.id, &theirs.name, &theirs.catalog)
                && ours.partitions.len() == theirs.partitions.len()
                && ours.partitions.iter().zip(&theirs.partitions).all(partitions_agree)
        };
        self.store_id == later.store_id
            && self.datasets.len() == later.datasets.len()
            && self.datasets.iter().zip(&later.datasets).all(datasets_agree)
    }

    /// The dataset with an id.
    ///
    /// # Errors
    /// [`Error::Dropped`] if there is none with this id any more.
    pub fn dataset_mut(&mut self, id: u32) -> Result<&mut DatasetState> {
        self.datasets.iter_mut().find(|dataset| dataset.id == id).ok_or(Error::Dropped)
    }

    /// Adds a dataset. Its id is never reused, even after it is dropped.
    pub fn add_dataset(&mut self, dataset: DatasetState) {
        self.next_dataset_id = self.next_dataset_id.max(dataset.id + 1);
        self.datasets.push(dataset);
    }

    /// Removes a dataset. Entries of the log with its id are skipped from then on.
    ///
    /// # Errors
    /// As for [`Self::dataset_mut`].
    pub fn remove_dataset(&mut self, id: u32) -> Result<DatasetState> {
        let place = self.datasets.iter().position(|dataset| dataset.id == id).ok_or(Error::Dropped)?;
        Ok(self.datasets.remove(place))
    }

    /// Raises the low-water mark; returns the resulting position. The mark never goes back, since
    /// everything before it is in components for good and its segments may be gone. A caller may
    /// come with an older position: it may have read a dataset between a flush's manifest step and
    /// the exchange of the version.
    pub fn raise_low_water(&mut self, position: LogPosition) -> LogPosition {
        self.low_water = self.low_water.max(position);
        self.low_water
    }

    /// Discards the runs of indexes that are being built. A restart from this manifest begins them
    /// anew.
    pub fn forget_runs(&mut self) {
        let partitions = self.datasets.iter_mut().flat_map(|dataset| &mut dataset.partitions);
        partitions.flat_map(|partition| &mut partition.indexes).for_each(|index| index.loaded = None);
    }

    /// All components of all datasets, and the runs that will become components.
    pub fn components(&self) -> impl Iterator<Item = &ComponentMeta> {
        self.datasets
            .iter()
            .flat_map(|dataset| &dataset.partitions)
            .flat_map(|partition| &partition.indexes)
            .flat_map(|index| index.components.iter().chain(index.loaded.iter().flat_map(|loaded| &loaded.runs)))
    }
}

#[derive(Debug)]
struct State {
    manifest: Arc<Manifest>,
    failed: Option<String>,
}

/// The manifest of a store that is open for writing. Steps are serialised.
#[derive(Debug)]
pub struct ManifestFile {
    storage: Arc<dyn Storage>,
    state: Mutex<State>,
}

impl ManifestFile {
    /// Writes the first manifest of a new store.
    pub fn create(storage: Arc<dyn Storage>, manifest: Manifest) -> Result<Self> {
        let file = Self::open(storage, manifest);
        file.update(|_| Ok(()))?;
        Ok(file)
    }

    /// Continues with a manifest that was read.
    pub fn open(storage: Arc<dyn Storage>, manifest: Manifest) -> Self {
        Self { storage, state: Mutex::new(State { manifest: Arc::new(manifest), failed: None }) }
    }

    /// The current manifest.
    pub fn current(&self) -> Arc<Manifest> {
        self.state.lock().manifest.clone()
    }

    /// Whether a failed step forbids any other. The disk may hold either manifest.
    pub fn has_failed(&self) -> bool {
        self.state.lock().failed.is_some()
    }

    /// One step: changes a copy, makes it durable, and makes it current. Component files that the
    /// change names must be synced; this makes their directory's names durable.
    pub fn update<T>(&self, change: impl FnOnce(&mut Manifest) -> Result<T>) -> Result<T> {
        let mut state = self.state.lock();
        if let Some(cause) = &state.failed {
            return Err(Error::Poisoned { cause: cause.clone() });
        }
        let mut manifest = (*state.manifest).clone();
        let result = change(&mut manifest)?;
        manifest.generation += 1;
        // Only until here may a step fail, for example on a full disk, and be tried again.
        let file = self.write_new(&manifest)?;
        let renamed = match file.sync_data().and_then(|()| self.storage.sync_directory("components")) {
            // No sync has failed, for example because descriptors are short and the directory
            // cannot be opened.
            Err(error) if !error.operation().is_sync() => return Err(error.into()),
            synced => {
                synced.and_then(|()| self.storage.rename(NEW_NAME, NAME)).and_then(|()| self.storage.sync_directory(""))
            }
        };
        if let Err(error) = renamed {
            let cause = error.to_string();
            state.failed = Some(cause.clone());
            // Free space alone does not help any more.
            return Err(if error.is_storage_full() && !error.operation().is_sync() {
                Error::Poisoned { cause }
            } else {
                error.into()
            });
        }
        state.manifest = Arc::new(manifest);
        Ok(result)
    }

    fn write_new(&self, manifest: &Manifest) -> Result<Arc<dyn File>> {
        if self.storage.exists(NEW_NAME)? {
            self.storage.remove(NEW_NAME)?;
        }
        let file = self.storage.open(NEW_NAME, OpenMode::CreateNew)?;
        if let Err(error) = file.write_all_at(&manifest.encode()?, 0) {
            // Its space is needed elsewhere. If it cannot be removed, the next step or opening does
            // that.
            let _ = self.storage.remove(NEW_NAME);
            return Err(error.into());
        }
        Ok(file)
    }
}
