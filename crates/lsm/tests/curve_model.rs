//! The curve-keyed indexes in a partition against a scanned list: changes, flushes, merges, and
//! snapshots held across them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::curve_objects::{Setting, object, settings, stored, window};
use crate::disk_support::seeded;
use rand::Rng;
use rand::rngs::SmallRng;
use terrane_lsm::curve::CurveOptions;
use terrane_lsm::disk::{PageCache, ReadGuard};
use terrane_lsm::index::{Cancellation, CurveIndex, Index, RTreeIndex, encode_rect};
use terrane_lsm::log::LogPosition;
use terrane_lsm::manifest::{DatasetState, IndexState, Manifest, ManifestFile, PartitionState};
use terrane_lsm::operation::Operation;
use terrane_lsm::partition::{NumberedIndex, Partitions, PinnedVersions, Version, Workshop};
use terrane_lsm::policy::MergePolicy;
use terrane_lsm::search::{WindowScan, owned_spatial_sources, spatial_sources, visit_source};
use terrane_space::{CoordinateSystem, Rect};
use terrane_storage::Storage;
use terrane_testkit::MemoryStorage;

const INDEX: u32 = 0;
const PLACE: usize = 0;
const BYTES_MAX: u64 = 1 << 20;

type Model = BTreeMap<Vec<u8>, Rect>;

/// A partition with one spatial index.
struct Bench {
    workshop: Workshop,
    partitions: Partitions,
    index: Arc<dyn Index>,
    points: bool,
    sequence: u64,
    model: Model,
}

impl Bench {
    fn new(index: Arc<dyn Index>, points: bool, partitions: u32) -> Self {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        storage.create_directory("components").unwrap();
        let indexes = vec![IndexState::new(INDEX)];
        let state = |id| {
            let (indexes, sources) = (indexes.clone(), BTreeMap::new());
            PartitionState { id, flushed_sequence: 0, loads: 0, sources, indexes }
        };
        let states: Vec<PartitionState> = (0..partitions).map(state).collect();
        let catalog = serde_json::Value::Null;
        let dataset = DatasetState { id: 0, name: "d".into(), catalog, partitions: states.clone() };
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
        let manifest = ManifestFile::create(storage.clone(), manifest).unwrap();
        let cache = PageCache::new(1 << 20);
        let numbered = vec![NumberedIndex { id: INDEX, index: index.clone() }];
        let mut sound = |_: usize, _: usize, error| Err(error);
        let partitions = Partitions::open(&storage, &cache, 0, &states, &numbered, &mut sound).unwrap();
        let workshop = Workshop {
            storage,
            cache,
            next_file_id: Arc::new(AtomicU64::new(1)),
            manifest: Arc::new(manifest),
            threads_max: 2,
            merges: Arc::default(),
        };
        Self { workshop, partitions, index, points, sequence: 0, model: Model::new() }
    }

    fn partition_of(&self, key: &[u8]) -> usize {
        key.iter().map(|byte| usize::from(*byte)).sum::<usize>() % self.partitions.count()
    }

    /// Replaces the object of a key, or deletes it.
    fn change(&mut self, key: &[u8], rect: Option<Rect>) {
        self.sequence += 1;
        let generation = self.partitions.active(self.partition_of(key));
        generation.note_lsn(self.sequence);
        let operate = |rect: &Rect, delete: bool| {
            let mut place = Vec::new();
            encode_rect(rect, self.points, &mut place);
            let operation = Operation { index: INDEX, delete, key: &place, value: key };
            generation.apply(&operation, self.sequence).unwrap();
        };
        if let Some(old) = self.model.remove(key) {
            operate(&old, true);
        }
        if let Some(rect) = rect {
            operate(&rect, false);
            self.model.insert(key.to_vec(), rect);
        }
    }

    fn flush(&self) {
        self.partitions.seal(self.sequence).unwrap();
        while self.partitions.flush(&self.workshop, &|_| Ok(()), &|_| ()).unwrap().is_some() {}
        self.check();
    }

    /// Merges some of the components of a partition, including places where anti-matter is kept.
    fn merge(&self, random: &mut SmallRng) {
        let cancellation = Cancellation::default();
        let partition = random.random_range(0..self.partitions.count());
        if random.random_ratio(1, 3) {
            let count = random.random_range(1..4);
            self.partitions.merge_oldest(&self.workshop, partition, PLACE, count, BYTES_MAX, &cancellation).unwrap();
        } else {
            let mergeable_bytes_max = 1 << random.random_range(11..16);
            let policy = MergePolicy::Prefix { mergeable_bytes_max, components_max: 2 };
            self.partitions.merge(&self.workshop, partition, &policy, BYTES_MAX, &cancellation).unwrap();
        }
        self.check();
    }

    fn check(&self) {
        for part in self.partitions.versions().iter().flat_map(|version| version.components(PLACE)) {
            self.index.check(part).unwrap();
        }
    }
}

fn sorted(mut found: Vec<(Vec<u8>, [u64; 4])>) -> Vec<(Vec<u8>, [u64; 4])> {
    found.sort();
    found
}

/// The results of a scan over all components, each object as often as it comes.
fn found(versions: &[Arc<Version>], snapshot: u64, window: &Rect) -> Vec<(Vec<u8>, [u64; 4])> {
    let mut found = Vec::new();
    let mut scan = WindowScan::new(spatial_sources(versions, PLACE).unwrap(), *window, snapshot);
    while scan
        .advance(&ReadGuard::enter(), &mut |hit| {
            found.push((hit.key().to_vec(), stored(&hit.rect())));
            ControlFlow::Continue(())
        })
        .unwrap()
    {}
    sorted(found)
}

fn expected(model: &Model, window: &Rect) -> Vec<(Vec<u8>, [u64; 4])> {
    let meets = |(_, rect): &(&Vec<u8>, &Rect)| rect.intersects(window);
    sorted(model.iter().filter(meets).map(|(key, rect)| (key.clone(), stored(rect))).collect())
}

/// Numbers like the keys of a dataset, and keys of other lengths.
fn key(random: &mut SmallRng) -> Vec<u8> {
    let number = random.random_range(0..120u64);
    if number < 100 { number.to_be_bytes().to_vec() } else { vec![number as u8; (number - 95) as usize] }
}

/// The changes go to several partitions, which searches treat as one index.
fn agrees_with_a_scan(setting: &Setting, index: Arc<dyn Index>, partitions: u32, random: &mut SmallRng) {
    let mut bench = Bench::new(index, setting.points, partitions);
    let mut pins: Vec<(Arc<PinnedVersions>, Model)> = Vec::new();
    let rounds = if terrane_testkit::is_soak() { 6_000 } else { 1_200 };
    for round in 0..rounds {
        let key = key(random);
        // Often to an occupied place.
        let near = random.random_ratio(1, 4).then(|| bench.model.values().nth(random.random_range(0..40)).copied());
        let rect = near.flatten().unwrap_or_else(|| object(random, setting));
        bench.change(&key, random.random_ratio(3, 4).then_some(rect));
        if random.random_ratio(1, 60) {
            pins.push((bench.partitions.pin(|| bench.sequence), bench.model.clone()));
        }
        if random.random_ratio(1, 60) && !pins.is_empty() {
            pins.swap_remove(random.random_range(0..pins.len()));
        }
        if random.random_ratio(1, 40) {
            bench.flush();
        }
        if random.random_ratio(1, 80) {
            bench.merge(random);
        }
        if round % 20 > 0 {
            continue;
        }
        for _ in 0..3 {
            let known = bench.model.values().nth(random.random_range(0..60)).copied();
            let window = window(random, setting, known);
            let wanted = expected(&bench.model, &window);
            let versions = bench.partitions.versions();
            assert_eq!(found(&versions, bench.sequence, &window), wanted, "{setting:?}, {window:?}, round {round}");
            for (pin, model) in &pins {
                let (versions, wanted) = (pin.versions_full(), expected(model, &window));
                assert_eq!(found(&versions, pin.sequence(), &window), wanted, "{setting:?}, {window:?}, a snapshot");
            }
        }
    }
    drop(pins);
    bench.flush();
    let cancellation = Cancellation::default();
    for partition in 0..partitions as usize {
        let (workshop, all) = (&bench.workshop, usize::MAX);
        bench.partitions.merge_oldest(workshop, partition, PLACE, all, BYTES_MAX, &cancellation).unwrap();
    }
    bench.check();
    let versions = bench.partitions.versions();
    let everything = Rect::new(f64::NEG_INFINITY, f64::NEG_INFINITY, f64::INFINITY, f64::INFINITY);
    assert_eq!(found(&versions, bench.sequence, &everything), expected(&bench.model, &everything));
    let mut parts = versions.iter().flat_map(|version| version.components(PLACE));
    assert!(parts.all(|part| part.file().meta().statistics.antimatter == 0));
}

#[test]
fn every_kind_finds_what_a_scan_finds_whatever_is_flushed_merged_and_held() {
    let mut random = seeded("every_kind_finds", 71);
    for (setting, partitions) in settings().into_iter().zip([1, 3, 3].into_iter().cycle()) {
        let index = Arc::new(CurveIndex::new(&setting.options, setting.system, setting.points).unwrap());
        agrees_with_a_scan(&setting, index, partitions, &mut random);
    }
}

/// The same changes, for the parts that the kinds share with it.
#[test]
fn the_r_tree_finds_what_a_scan_finds_whatever_is_flushed_merged_and_held() {
    let mut random = seeded("the_r_tree_finds", 72);
    let boxes = settings().into_iter().filter(|setting| !setting.points || setting.options == CurveOptions::Dhb);
    for (setting, partitions) in boxes.zip([1, 3, 3].into_iter().cycle()) {
        let index = Arc::new(RTreeIndex { system: setting.system, points: setting.points });
        agrees_with_a_scan(&setting, index, partitions, &mut random);
    }
}

/// The reads of `check` of a store: every entry of one component, once.
#[test]
fn a_component_gives_every_object_once_to_who_reads_all_of_it() {
    let mut random = seeded("a_component_gives_every_object_once", 73);
    for setting in settings() {
        let index = Arc::new(CurveIndex::new(&setting.options, setting.system, setting.points).unwrap());
        let mut bench = Bench::new(index, setting.points, 2);
        for number in 0..400u64 {
            bench.change(&number.to_be_bytes(), Some(object(&mut random, &setting)));
        }
        let everything = Rect::new(f64::NEG_INFINITY, f64::NEG_INFINITY, f64::INFINITY, f64::INFINITY);
        let read = |bench: &Bench| {
            let mut keys = Vec::new();
            for source in owned_spatial_sources(&bench.partitions.versions(), PLACE) {
                let source = terrane_lsm::search::HoldsSource::source(&source).unwrap();
                let complete = visit_source(source, &everything, u64::MAX, &mut |_, key, antimatter| {
                    assert!(!antimatter);
                    keys.push(key.to_vec());
                    ControlFlow::Continue(())
                });
                assert!(complete.unwrap());
            }
            keys.sort();
            keys
        };
        let keys: Vec<_> = bench.model.keys().cloned().collect();
        assert_eq!(read(&bench), keys, "{setting:?}, in memory");
        bench.flush();
        assert_eq!(read(&bench), keys, "{setting:?}, on disk");
    }
}

/// Where entries of one position fill many nodes: in the first cells of all levels and of the
/// curve, and in cells that each have a part of every rectangle.
#[test]
fn many_keys_at_the_same_positions_are_all_found_once() {
    let corner = Rect::new(-180.0, -90.0, -180.0, -90.0);
    let across = Rect::new(-0.5, -0.5, 0.5, 0.5);
    for setting in settings().into_iter().filter(|setting| setting.system == CoordinateSystem::LonLat) {
        for rect in if setting.points { vec![corner] } else { vec![corner, across] } {
            let index = Arc::new(CurveIndex::new(&setting.options, setting.system, setting.points).unwrap());
            let mut bench = Bench::new(index, setting.points, 2);
            for number in 0..3_000u64 {
                bench.change(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(), Some(rect));
            }
            for place in ["in memory", "on disk"] {
                let found = found(&bench.partitions.versions(), bench.sequence, &rect);
                assert_eq!(found, expected(&bench.model, &rect), "{setting:?}, {place}");
                bench.flush();
            }
        }
    }
}
