//! Indexes that are created and dropped while a partition takes changes, flushes and merges.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use terrane_lsm::Result;
use terrane_lsm::disk::btree::BTreeBuilder;
use terrane_lsm::disk::{ComponentFile, ComponentMeta, ComponentWriter, PageCache, component_name};
use terrane_lsm::index::{BTreeIndex, Cancellation, ComponentCheck, DiskPart, FlushPlan, Index};
use terrane_lsm::log::LogPosition;
use terrane_lsm::manifest::{DatasetState, IndexState, Manifest, ManifestFile, PartitionState};
use terrane_lsm::memory::ErasedMemory;
use terrane_lsm::operation::Operation;
use terrane_lsm::partition::{IndexSlot, MaintenanceContext, NumberedIndex, Partitions, Version};
use terrane_lsm::search;
use terrane_storage::Storage;
use terrane_testkit::MemoryStorage;

const FIRST: u32 = 0;
const SECOND: u32 = 7;
const BYTES_MAX: u64 = 1 << 20;

type Hook = Box<dyn FnOnce() + Send>;

/// A B-tree that calls a test's hook while components are merged.
#[derive(Default)]
struct HookedIndex {
    inner: BTreeIndex,
    merging: Mutex<Option<Hook>>,
}

impl fmt::Debug for HookedIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Index for HookedIndex {
    fn kind(&self) -> &'static str {
        self.inner.kind()
    }

    fn new_memory(&self) -> Result<Arc<dyn ErasedMemory>> {
        self.inner.new_memory()
    }

    fn apply(&self, memory: &dyn ErasedMemory, operation: &Operation<'_>, sequence: u64) -> Result<()> {
        self.inner.apply(memory, operation, sequence)
    }

    fn flush(&self, memory: &dyn ErasedMemory, writer: ComponentWriter, plan: &FlushPlan) -> Result<ComponentMeta> {
        self.inner.flush(memory, writer, plan)
    }

    fn merge(
        &self,
        parts: &[Arc<dyn DiskPart>],
        writer: ComponentWriter,
        is_oldest: bool,
        cancellation: &Cancellation,
    ) -> Result<Option<ComponentMeta>> {
        if let Some(hook) = self.merging.lock().unwrap().take() {
            hook();
        }
        self.inner.merge(parts, writer, is_oldest, cancellation)
    }

    fn open(&self, file: Arc<ComponentFile>) -> Result<Arc<dyn DiskPart>> {
        self.inner.open(file)
    }

    fn check(&self, part: &Arc<dyn DiskPart>) -> Result<ComponentCheck> {
        self.inner.check(part)
    }
}

/// A partition whose two indexes are to hold the same: keys with numbers.
struct Bench {
    storage: Arc<dyn Storage>,
    context: MaintenanceContext,
    partitions: Arc<Partitions>,
    second: Arc<HookedIndex>,
    sequence: u64,
    model: BTreeMap<u64, u64>,
}

impl Bench {
    fn new() -> Self {
        Self::new_on(Arc::new(MemoryStorage::new()))
    }

    fn new_on(storage: Arc<dyn Storage>) -> Self {
        storage.create_directory("components").unwrap();
        let indexes = vec![IndexState::new(FIRST)];
        let partition = PartitionState { id: 0, flushed_sequence: 0, loads: 0, sources: BTreeMap::new(), indexes };
        let dataset =
            DatasetState { id: 0, name: "d".into(), catalog: serde_json::Value::Null, partitions: vec![partition] };
        let manifest = Manifest {
            store_id: "0".into(),
            branch: String::new(),
            generation: 0,
            durability: "none".into(),
            next_file_id: 1,
            next_dataset_id: 1,
            last_sequence: 0,
            low_water: LogPosition::START,
            datasets: vec![dataset],
        };
        drop(ManifestFile::create(storage.clone(), manifest).unwrap());
        Self::open(storage)
    }

    /// Opens the partition with the indexes that the manifest names.
    fn open(storage: Arc<dyn Storage>) -> Self {
        let manifest = Manifest::read(&*storage).unwrap().unwrap();
        let cache = PageCache::new(1 << 20);
        let state = manifest.datasets[0].partitions[0].clone();
        let second = Arc::new(HookedIndex::default());
        let numbered = |index: &IndexState| match index.id {
            FIRST => NumberedIndex { id: FIRST, index: Arc::new(BTreeIndex { is_sought: true, times: None }) },
            id => NumberedIndex { id, index: second.clone() },
        };
        let numbered: Vec<NumberedIndex> = state.indexes.iter().map(numbered).collect();
        let sequence = state.flushed_sequence;
        let mut sound = |_: usize, _: usize, error| Err(error);
        let partitions = Partitions::open(&storage, &cache, 0, &[state], &numbered, &mut sound).unwrap();
        let context = MaintenanceContext {
            storage: storage.clone(),
            cache,
            next_file_id: Arc::new(AtomicU64::new(manifest.next_file_id)),
            manifest: Arc::new(ManifestFile::open(storage.clone(), manifest)),
            threads_max: 2,
            merges: Arc::default(),
        };
        Self { storage, context, partitions: Arc::new(partitions), second, sequence, model: BTreeMap::new() }
    }

    /// Writes, or deletes, in both indexes, as far as they exist.
    fn change(&mut self, key: u64, value: Option<u64>) {
        self.sequence += 1;
        let generation = self.partitions.active(0);
        generation.note_lsn(self.sequence);
        let bytes = value.unwrap_or(0).to_be_bytes();
        for index in [FIRST, SECOND] {
            let value: &[u8] = if value.is_some() { &bytes } else { &[] };
            let operation = Operation { index, delete: value.is_empty(), key: &key.to_be_bytes(), value };
            generation.apply(&operation, self.sequence).unwrap();
        }
        match value {
            Some(value) => self.model.insert(key, value),
            None => self.model.remove(&key),
        };
    }

    fn flush(&self) {
        self.partitions.seal(self.sequence).unwrap();
        while self.partitions.flush(&self.context, &|_| Ok(()), &|_| ()).unwrap().is_some() {}
    }

    fn begin(&self) -> usize {
        self.partitions.seal(self.sequence).unwrap();
        let numbered = NumberedIndex { id: SECOND, index: self.second.clone() };
        self.partitions.begin_index(&self.context, numbered, self.sequence, |_| Ok(())).unwrap()
    }

    /// A component of some keys.
    fn component(&self, entries: &BTreeMap<u64, u64>) -> ComponentMeta {
        let mut builder = BTreeBuilder::new(self.context.writer().unwrap(), false).with_filters();
        for (key, value) in entries {
            builder.push(&key.to_be_bytes(), false, 0, &value.to_be_bytes()).unwrap();
        }
        builder.finish((0, self.sequence)).unwrap()
    }

    fn merge_all(&self, slot: usize) {
        let cancellation = Cancellation::default();
        self.partitions
            .merge_oldest(&self.context, IndexSlot { partition: 0, slot }, usize::MAX, BYTES_MAX, &cancellation)
            .unwrap();
    }

    fn assert_holds_the_model(&self, slot: usize) {
        assert_eq!(content(&self.partitions.version(0), slot, u64::MAX), self.model, "slot {slot}");
    }

    /// The directory holds exactly the files that the manifest names.
    fn assert_no_strays(&self) {
        assert_eq!(strays(&*self.storage), BTreeSet::new());
        let manifest = Manifest::read(&*self.storage).unwrap().unwrap();
        assert_eq!(self.storage.list("components").unwrap().len(), manifest.components().count());
    }
}

/// Files that the manifest does not name.
fn strays(storage: &dyn Storage) -> BTreeSet<String> {
    let manifest = Manifest::read(storage).unwrap().unwrap();
    let named: BTreeSet<String> = manifest.components().map(|meta| component_name(meta.file_id)).collect();
    let files = storage.list("components").unwrap().into_iter().map(|name| format!("components/{name}"));
    files.filter(|name| !named.contains(name)).collect()
}

fn content(version: &Version, slot: usize, snapshot: u64) -> BTreeMap<u64, u64> {
    let mut found = BTreeMap::new();
    let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap());
    let ended = search::scan(version, slot, std::ops::Bound::Unbounded, snapshot, &mut |key, value| {
        found.insert(number(key), number(value));
        Ok(ControlFlow::Continue(()))
    });
    assert!(ended.unwrap());
    found
}

#[test]
fn an_index_that_is_created_among_changes_holds_what_came_before_and_after() {
    let mut bench = Bench::new();
    (0..10).for_each(|key| bench.change(key, Some(key)));
    bench.flush();
    (10..20).for_each(|key| bench.change(key, Some(key)));
    let slot = bench.begin();
    let before = bench.model.clone();
    let pinned = bench.partitions.pin(|| bench.sequence);
    for key in 15..25 {
        bench.change(key, Some(100 + key));
    }
    bench.change(3, None);
    // The generation that ends at the cut has nothing of the index, the next one has.
    bench.flush();
    bench.change(4, None);
    bench.flush();
    bench.merge_all(slot);
    assert_eq!(bench.partitions.version(0).components(slot).len(), 1);
    let refused = search::get(&bench.partitions.version(0), slot, &3u64.to_be_bytes(), u64::MAX).unwrap_err();
    assert!(refused.to_string().contains("not built"), "{refused}");
    let meta = bench.component(&before);
    bench.partitions.complete_index(&bench.context, slot, &[Some(meta)]).unwrap();
    bench.assert_holds_the_model(FIRST as usize);
    bench.assert_holds_the_model(slot);
    // Anti-matter was kept while the index was built, and is dropped when all components are one.
    bench.merge_all(slot);
    bench.assert_holds_the_model(slot);
    let part = bench.partitions.version(0).components(slot)[0].clone();
    assert_eq!(part.file().meta().statistics.antimatter, 0);
    // Earlier snapshots do not see the index, and still see the rest.
    assert!(!pinned.versions()[0].indexes[slot].is_whole());
    assert_eq!(content(&pinned.versions()[0], FIRST as usize, pinned.sequence()), before);
    drop((pinned, part));
    bench.assert_no_strays();
    let again = Bench::open(bench.storage.clone());
    assert_eq!(content(&again.partitions.version(0), slot, u64::MAX), bench.model);
}

#[test]
fn an_index_that_was_not_complete_is_begun_anew() {
    let mut bench = Bench::new();
    (0..10).for_each(|key| bench.change(key, Some(key)));
    bench.begin();
    bench.change(3, None);
    bench.flush();
    let model = bench.model.clone();
    let mut again = Bench { model, ..Bench::open(bench.storage.clone()) };
    let slot = SECOND_SLOT;
    assert!(!again.partitions.version(0).indexes[slot].is_whole());
    again.change(4, None);
    again.flush();
    again.partitions.resume_index(&again.context, slot, || Ok::<_, terrane_lsm::Error>(()), || ()).unwrap();
    let before = again.model.clone();
    again.change(5, None);
    let meta = again.component(&before);
    again.partitions.complete_index(&again.context, slot, &[Some(meta)]).unwrap();
    again.assert_holds_the_model(slot);
    again.flush();
    again.merge_all(slot);
    again.assert_holds_the_model(slot);
    again.assert_no_strays();
}

/// The slot of the second index.
const SECOND_SLOT: usize = 1;

/// A bench whose second index is complete and has three components.
fn with_second() -> Bench {
    let mut bench = Bench::new();
    let slot = bench.begin();
    assert_eq!(slot, SECOND_SLOT);
    let meta = bench.component(&BTreeMap::new());
    bench.partitions.complete_index(&bench.context, slot, &[Some(meta)]).unwrap();
    for key in 0..3 {
        bench.change(key, Some(key));
        bench.flush();
    }
    bench.change(9, Some(9));
    bench
}

fn assert_dropped(bench: &Bench) {
    assert!(bench.partitions.version(0).components(SECOND_SLOT).is_empty());
    let refused = search::get(&bench.partitions.version(0), SECOND_SLOT, b"", u64::MAX).unwrap_err();
    assert!(refused.to_string().contains("dropped"), "{refused}");
    bench.assert_holds_the_model(FIRST as usize);
    bench.assert_no_strays();
    assert_eq!(Bench::open(bench.storage.clone()).partitions.version(0).indexes.len(), 1);
}

fn drop_second(partitions: &Partitions, context: &MaintenanceContext) {
    partitions.drop_index(context, SECOND_SLOT, |_| Ok(())).unwrap();
}

#[test]
fn an_index_that_is_dropped_goes_with_its_files_when_its_last_reader_goes() {
    let mut bench = with_second();
    let pinned = bench.partitions.pin(|| bench.sequence);
    let known = bench.model.clone();
    drop_second(&bench.partitions, &bench.context);
    bench.change(10, Some(10));
    bench.flush();
    assert_eq!(content(&pinned.versions()[0], FIRST as usize, pinned.sequence()), known);
    drop(pinned);
    assert_dropped(&bench);
    // Its number may be reused.
    let slot = bench.begin();
    assert_eq!(slot, 2, "places are not used again");
    let meta = bench.component(&bench.model);
    bench.partitions.complete_index(&bench.context, slot, &[Some(meta)]).unwrap();
    bench.change(11, Some(11));
    bench.flush();
    bench.assert_holds_the_model(slot);
    bench.assert_no_strays();
}

#[test]
fn an_index_can_be_dropped_while_it_is_flushed() {
    let bench = with_second();
    bench.partitions.seal(bench.sequence).unwrap();
    // Between reading the indexes and the step that installs their components.
    let while_waiting = |_| {
        drop_second(&bench.partitions, &bench.context);
        Ok(())
    };
    bench.partitions.flush(&bench.context, &while_waiting, &|_| ()).unwrap();
    assert_dropped(&bench);
}

#[test]
fn an_index_can_be_dropped_while_it_is_merged() {
    let bench = with_second();
    let (partitions, context) = (bench.partitions.clone(), bench.context.clone());
    *bench.second.merging.lock().unwrap() = Some(Box::new(move || drop_second(&partitions, &context)));
    let cancellation = Cancellation::default();
    let merged = bench
        .partitions
        .merge_oldest(&bench.context, IndexSlot { partition: 0, slot: SECOND_SLOT }, 3, BYTES_MAX, &cancellation)
        .unwrap();
    assert!(merged.is_none());
    assert!(bench.second.merging.lock().unwrap().is_none(), "it was merged");
    bench.flush();
    assert_dropped(&bench);
}
