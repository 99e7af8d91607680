//! Indexes that are created and dropped while a partition takes changes, flushes and merges.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use terrane_lsm::disk::btree::BTreeBuilder;
use terrane_lsm::disk::{ComponentFile, ComponentMeta, ComponentWriter, Gone, PageCache, component_name};
use terrane_lsm::index::{BTreeIndex, Cancellation, ComponentCheck, DiskPart, FlushPlan, Index, MergePlan, Merged};
use terrane_lsm::log::LogPosition;
use terrane_lsm::manifest::{DatasetState, IndexState, Manifest, ManifestFile, PartitionState};
use terrane_lsm::memory::ErasedMemory;
use terrane_lsm::memory::btree::KeyRange;
use terrane_lsm::operation::Operation;
use terrane_lsm::partition::{NumberedIndex, Partitions, Version, Workshop};
use terrane_lsm::search;
use terrane_lsm::{Error, Result};
use terrane_storage::Storage;
use terrane_storage::event::{DiskEvent, Event};
use terrane_testkit::crash::{Budget, Controller};
use terrane_testkit::{Fault, FaultPlan, FaultyStorage, MemoryStorage};

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
        plan: &MergePlan,
        cancellation: &Cancellation,
    ) -> Result<Option<Merged>> {
        if let Some(hook) = self.merging.lock().unwrap().take() {
            hook();
        }
        self.inner.merge(parts, writer, plan, cancellation)
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
    workshop: Workshop,
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
            given_up: 0,
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
            FIRST => NumberedIndex { id: FIRST, index: Arc::new(BTreeIndex { is_sought: true }) },
            id => NumberedIndex { id, index: second.clone() },
        };
        let numbered: Vec<NumberedIndex> = state.indexes.iter().map(numbered).collect();
        let sequence = state.flushed_sequence;
        let mut sound = |_: usize, _: usize, error| Err(error);
        let partitions = Partitions::open(&storage, &cache, 0, &[state], &numbered, &mut sound).unwrap();
        let workshop = Workshop {
            storage: storage.clone(),
            cache,
            next_file_id: Arc::new(AtomicU64::new(manifest.next_file_id)),
            manifest: Arc::new(ManifestFile::open(storage.clone(), manifest)),
            threads_max: 2,
            merges: Arc::default(),
        };
        Self { storage, workshop, partitions: Arc::new(partitions), second, sequence, model: BTreeMap::new() }
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
        while self.partitions.flush(&self.workshop, &|_| Ok(()), &|_| ()).unwrap().is_some() {}
    }

    fn begin(&self) -> usize {
        self.partitions.seal(self.sequence).unwrap();
        let numbered = NumberedIndex { id: SECOND, index: self.second.clone() };
        self.partitions.begin_index(&self.workshop, numbered, self.sequence, |_| Ok(())).unwrap()
    }

    /// A component of some keys.
    fn component(&self, entries: &BTreeMap<u64, u64>) -> ComponentMeta {
        let mut builder = BTreeBuilder::new(self.workshop.writer().unwrap(), false).with_filters();
        for (key, value) in entries {
            builder.push(&key.to_be_bytes(), false, 0, &value.to_be_bytes()).unwrap();
        }
        builder.finish((0, self.sequence)).unwrap()
    }

    fn merge_all(&self, place: usize) {
        let cancellation = Cancellation::default();
        self.partitions.merge_oldest(&self.workshop, 0, place, usize::MAX, BYTES_MAX, &cancellation).unwrap();
    }

    fn assert_holds_the_model(&self, place: usize) {
        assert_eq!(content(&self.partitions.version(0), place, u64::MAX), self.model, "place {place}");
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

fn content(version: &Version, place: usize, snapshot: u64) -> BTreeMap<u64, u64> {
    let mut found = BTreeMap::new();
    let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap());
    let ended = search::scan(version, place, std::ops::Bound::Unbounded, snapshot, &mut |key, value| {
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
    let place = bench.begin();
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
    bench.merge_all(place);
    assert_eq!(bench.partitions.version(0).components(place).len(), 1);
    let refused = search::get(&bench.partitions.version(0), place, &3u64.to_be_bytes(), u64::MAX).unwrap_err();
    assert!(refused.to_string().contains("not built"), "{refused}");
    let meta = bench.component(&before);
    bench.partitions.complete_index(&bench.workshop, place, &[Some(meta)]).unwrap();
    bench.assert_holds_the_model(FIRST as usize);
    bench.assert_holds_the_model(place);
    // Anti-matter was kept while the index was built, and is dropped when all components are one.
    bench.merge_all(place);
    bench.assert_holds_the_model(place);
    let part = bench.partitions.version(0).components(place)[0].clone();
    assert_eq!(part.file().meta().statistics.antimatter, 0);
    // Earlier snapshots do not see the index, and still see the rest.
    assert!(!pinned.versions()[0].indexes[place].is_whole());
    assert_eq!(content(&pinned.versions()[0], FIRST as usize, pinned.sequence()), before);
    drop((pinned, part));
    bench.assert_no_strays();
    let again = Bench::open(bench.storage.clone());
    assert_eq!(content(&again.partitions.version(0), place, u64::MAX), bench.model);
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
    let place = SECOND_PLACE;
    assert!(!again.partitions.version(0).indexes[place].is_whole());
    again.change(4, None);
    again.flush();
    again.partitions.resume_index(&again.workshop, place, || Ok::<_, terrane_lsm::Error>(()), || ()).unwrap();
    let before = again.model.clone();
    again.change(5, None);
    let meta = again.component(&before);
    again.partitions.complete_index(&again.workshop, place, &[Some(meta)]).unwrap();
    again.assert_holds_the_model(place);
    again.flush();
    again.merge_all(place);
    again.assert_holds_the_model(place);
    again.assert_no_strays();
}

/// The place of the second index.
const SECOND_PLACE: usize = 1;

/// A bench whose second index is complete and has three components.
fn with_second() -> Bench {
    let mut bench = Bench::new();
    let place = bench.begin();
    assert_eq!(place, SECOND_PLACE);
    let meta = bench.component(&BTreeMap::new());
    bench.partitions.complete_index(&bench.workshop, place, &[Some(meta)]).unwrap();
    for key in 0..3 {
        bench.change(key, Some(key));
        bench.flush();
    }
    bench.change(9, Some(9));
    bench
}

fn assert_dropped(bench: &Bench) {
    assert!(bench.partitions.version(0).components(SECOND_PLACE).is_empty());
    let refused = search::get(&bench.partitions.version(0), SECOND_PLACE, b"", u64::MAX).unwrap_err();
    assert!(refused.to_string().contains("dropped"), "{refused}");
    bench.assert_holds_the_model(FIRST as usize);
    bench.assert_no_strays();
    assert_eq!(Bench::open(bench.storage.clone()).partitions.version(0).indexes.len(), 1);
}

fn drop_second(partitions: &Partitions, workshop: &Workshop) {
    partitions.drop_index(workshop, SECOND_PLACE, |_| Ok(())).unwrap();
}

#[test]
fn an_index_that_is_dropped_goes_with_its_files_when_its_last_reader_goes() {
    let mut bench = with_second();
    let pinned = bench.partitions.pin(|| bench.sequence);
    let known = bench.model.clone();
    drop_second(&bench.partitions, &bench.workshop);
    bench.change(10, Some(10));
    bench.flush();
    assert_eq!(content(&pinned.versions()[0], FIRST as usize, pinned.sequence()), known);
    drop(pinned);
    assert_dropped(&bench);
    // Its number may be reused.
    let place = bench.begin();
    assert_eq!(place, 2, "places are not used again");
    let meta = bench.component(&bench.model);
    bench.partitions.complete_index(&bench.workshop, place, &[Some(meta)]).unwrap();
    bench.change(11, Some(11));
    bench.flush();
    bench.assert_holds_the_model(place);
    bench.assert_no_strays();
}

#[test]
fn an_index_can_be_dropped_while_it_is_flushed() {
    let bench = with_second();
    bench.partitions.seal(bench.sequence).unwrap();
    // Between reading the indexes and the step that installs their components.
    let while_waiting = |_| {
        drop_second(&bench.partitions, &bench.workshop);
        Ok(())
    };
    bench.partitions.flush(&bench.workshop, &while_waiting, &|_| ()).unwrap();
    assert_dropped(&bench);
}

#[test]
fn an_index_can_be_dropped_while_it_is_merged() {
    let bench = with_second();
    let (partitions, workshop) = (bench.partitions.clone(), bench.workshop.clone());
    *bench.second.merging.lock().unwrap() = Some(Box::new(move || drop_second(&partitions, &workshop)));
    let cancellation = Cancellation::default();
    let merged = bench.partitions.merge_oldest(&bench.workshop, 0, SECOND_PLACE, 3, BYTES_MAX, &cancellation).unwrap();
    assert!(merged.is_none());
    assert!(bench.second.merging.lock().unwrap().is_none(), "it was merged");
    bench.flush();
    assert_dropped(&bench);
}

/// In a B-tree of three levels, inner pages are reclaimed as well.
#[test]
fn merges_by_front_parts_keep_every_key() {
    const KEYS: u64 = 130_000;
    let mut bench = Bench::new();
    (0..KEYS).for_each(|key| bench.change(key, Some(key)));
    bench.flush();
    let parts = |bench: &Bench| bench.partitions.version(0).components(FIRST as usize).to_vec();
    assert_eq!(parts(&bench)[0].file().meta().height, 3);
    // While a reader needs the state before each change, the flush keeps the versions with their
    // numbers.
    let early = (bench.partitions.pin(|| bench.sequence), bench.model.clone());
    (0..KEYS).filter(|key| key % 3 > 0).for_each(|key| bench.change(key, None));
    let late = (bench.partitions.pin(|| bench.sequence), bench.model.clone());
    (0..KEYS).step_by(1000).for_each(|key| bench.change(key, Some(7 * key)));
    bench.flush();
    let cancellation = Cancellation::default();
    let step = |bench: &Bench, bytes_max: u64| {
        let place = (0, FIRST as usize);
        let merged = bench.partitions.merge_front(&bench.workshop, place, bytes_max, &cancellation).unwrap().unwrap();
        let index = BTreeIndex { is_sought: true };
        parts(bench).iter().for_each(|part| _ = index.check(part).unwrap());
        bench.assert_holds_the_model(FIRST as usize);
        let version = bench.partitions.version(0);
        for key in (0..KEYS).step_by(997).chain([0, 1, KEYS - 1]) {
            let found = search::get(&version, FIRST as usize, &key.to_be_bytes(), u64::MAX).unwrap();
            let found = found.map(|value| u64::from_be_bytes((*value).try_into().unwrap()));
            assert_eq!(found, bench.model.get(&key).copied(), "key {key}");
            let (from, behind) = (key.to_be_bytes(), bench.model.range(key..).count() as u64);
            let range = KeyRange { from: Bound::Included(&from), to: Bound::Unbounded };
            let estimated = search::estimate(&version, FIRST as usize, range, usize::MAX).unwrap();
            // Deleted ones count until they are merged.
            assert!(estimated <= 3 * KEYS && behind <= 2 * estimated + 1000, "key {key}: {estimated}, {behind}");
        }
        merged.components_left
    };
    let mut steps = 0;
    while step(&bench, 40_000) > 1 {
        steps += 1;
        if steps == 3 {
            for (pinned, model) in [&early, &late] {
                assert_eq!(content(&pinned.versions_full()[0], FIRST as usize, pinned.sequence()), *model);
            }
        }
        bench.change(1, Some(steps));
        if steps % 4 == 2 {
            bench.flush();
        }
    }
    assert!(steps > 5, "{steps} steps");
    drop((early, late));
    bench.flush();
    bench.merge_all(FIRST as usize);
    bench.assert_holds_the_model(FIRST as usize);
    bench.assert_no_strays();
    let again = Bench::open(bench.storage.clone());
    assert_eq!(content(&again.partitions.version(0), FIRST as usize, u64::MAX), bench.model);
}

/// Two components: keys, and the deletion of three in four of them.
fn with_deletions(storage: Arc<dyn Storage>, keys: u64) -> Bench {
    let mut bench = Bench::new_on(storage);
    (0..keys).for_each(|key| bench.change(key, Some(key)));
    bench.flush();
    (0..keys).filter(|key| key % 4 > 0).for_each(|key| bench.change(key, None));
    bench.flush();
    bench
}

/// Merges by front parts until one component is left; how many there were.
fn merge_fronts(bench: &Bench) -> Result<u64> {
    let (cancellation, place) = (Cancellation::default(), (0, FIRST as usize));
    let mut steps = 0;
    while bench.partitions.merge_front(&bench.workshop, place, 4 << 10, &cancellation)?.is_some() {
        steps += 1;
        let version = bench.partitions.version(0);
        if !version.components(FIRST as usize).iter().any(|part| part.file().meta().gone.is_some()) {
            break;
        }
    }
    Ok(steps)
}

/// By the manifest before a merge by front parts, including one in which exactly the leaves before
/// one are reclaimed.
#[test]
fn a_component_is_not_opened_by_a_description_that_has_more_of_it_than_is_left() {
    let bench = with_deletions(Arc::new(MemoryStorage::new()), 6_000);
    let (place, cancellation) = ((0, FIRST as usize), Cancellation::default());
    let metas = || -> Vec<_> {
        let version = bench.partitions.version(0);
        version.components(place.1).iter().map(|part| part.file().meta().clone()).collect()
    };
    let (mut described, mut refused) = (metas(), 0);
    let mut is_begun = true;
    while is_begun {
        bench.partitions.merge_front(&bench.workshop, place, 4 << 10, &cancellation).unwrap().unwrap();
        let now = metas();
        is_begun = now.iter().any(|meta| meta.gone.is_some());
        let front = |meta: &ComponentMeta| meta.gone.map_or(0, |gone| gone.leaf.offset);
        for before in &described {
            let left = now.iter().find(|meta| meta.file_id == before.file_id);
            let is_refused = ComponentFile::open(&bench.storage, &bench.workshop.cache, before).is_err_and(|error| {
                let reason = left.map_or("missing", |_| "older than a merge that has given up this part");
                matches!(&error, Error::Damaged { .. } if error.to_string().contains(reason))
            });
            assert_eq!(is_refused, left.is_none_or(|left| front(before) < front(left)), "{before:?}, {left:?}");
            refused += u64::from(is_refused && left.is_some());
        }
        let on_edges = now.iter().filter_map(|meta| meta.gone.map(|gone| meta.without(Gone { in_leaf: 0, ..gone })));
        described.extend(on_edges.collect::<Vec<_>>());
        described.extend(now);
    }
    assert!(refused > 10, "{refused} refused");
}

/// Opens the files of a partition as a new process does.
fn reopen(Bench { storage, model, .. }: Bench) -> Bench {
    strays(&*storage).iter().for_each(|name| storage.remove(name).unwrap());
    Bench { model, ..Bench::open(storage) }
}

/// At any call of any of the merges, also after some of them have reclaimed merged parts. The
/// results stay the same, here and in the store that is opened afterwards. If only that call
/// failed, merging continues.
#[test]
fn merges_by_front_parts_go_on_after_any_call_has_failed() {
    const KEYS: u64 = 5_000;
    let new = || {
        let storage = FaultyStorage::new(Arc::new(MemoryStorage::new()));
        let bench = with_deletions(Arc::new(storage.clone()), KEYS);
        (storage, bench)
    };
    let mut met_between = 0;
    for fault in [Fault::Eio, Fault::StorageFull, Fault::SyncFailure] {
        let (storage, bench) = new();
        let before = storage.calls_open_to(fault);
        assert!(merge_fronts(&bench).unwrap() > 3, "too few merges");
        let calls = storage.calls_open_to(fault) - before;
        for (at, persistent) in (1..=calls).flat_map(|at| [(at, false), (at, true)]) {
            let what = format!("{fault:?}, call {at}, for good: {persistent}");
            let (storage, bench) = new();
            storage.arm(FaultPlan { at, fault, persistent });
            // A hole that is not made costs only space.
            let outcome = merge_fronts(&bench);
            assert!(storage.faults() > 0, "{what}");
            storage.disarm();
            bench.assert_holds_the_model(FIRST as usize);
            let version = bench.partitions.version(0);
            let is_between = version.components(FIRST as usize).iter().any(|part| part.file().meta().gone.is_some());
            met_between += u64::from(outcome.is_err() && is_between);
            drop(version);
            let bench = match at % 2 {
                0 => reopen(bench),
                _ => match merge_fronts(&bench) {
                    Ok(_) => bench,
                    Err(Error::Poisoned { .. }) => reopen(bench),
                    Err(error) => panic!("{error} after {what}"),
                },
            };
            bench.assert_holds_the_model(FIRST as usize);
            merge_fronts(&bench).unwrap_or_else(|error| panic!("{error} after {what}"));
            bench.assert_holds_the_model(FIRST as usize);
            let again = Bench::open(bench.storage.clone());
            assert_eq!(content(&again.partitions.version(0), FIRST as usize, u64::MAX), bench.model, "{what}");
        }
    }
    assert!(met_between > 50, "{met_between} failed between two parts");
}

/// Merges change no results, so after any crash the results have to be complete.
#[test]
fn merges_by_front_parts_survive_crashes() {
    let controller = Controller::new();
    let bench = with_deletions(controller.storage(), 6_000);
    controller.storage().sync_directory("").unwrap();
    let before = controller.events();
    let steps = merge_fronts(&bench).unwrap();
    assert!(steps > 3, "{steps} steps");
    let is_hole = |event: &Event| matches!(event, Event::Disk(DiskEvent::Write { offset: 0, bytes, .. }) if bytes.len() > 4096 && bytes.iter().all(|byte| *byte == 0));
    assert!(controller.log()[before..].iter().any(is_hole), "nothing was given up");
    let budget = Budget { samples: 6, ..Budget::default() };
    let mut images = 0;
    for cut in before..=controller.events() {
        for image in controller.images(cut, &budget, cut as u64).chain([controller.process_kill(cut)]) {
            images += 1;
            let found = Bench::open(image.storage());
            let version = found.partitions.version(0);
            let what = || image.describe();
            assert_eq!(content(&version, FIRST as usize, u64::MAX), bench.model, "{}", what());
            let index = BTreeIndex { is_sought: true };
            for part in version.components(FIRST as usize) {
                index.check(part).unwrap_or_else(|error| panic!("{error}: {}", what()));
            }
        }
    }
    assert!(images > 100, "{images} images");
}
