//! When components are merged, and the effects of a failed merge.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use crate::support::files::{files_of, storage_of};
use crate::support::workload::{MAIN, first_schema};
use crate::support::{seeded, small_options};
use rand::Rng;
use terrane::{DatasetOptions, Durability, Error, Key, MergePolicy, Options, Query, Record, Store, Value};
use terrane_lsm::manifest::Manifest;
use terrane_storage::Storage;
use terrane_testkit::MemoryStorage;
use terrane_testkit::hook::HookedStorage;

const COMPONENTS_MAX: usize = 3;

fn at(key: i64) -> Record {
    Record::at(key, key as f64, 1.0, vec![Value::Null, Value::Int(key)])
}

fn options(components_max: usize, background: bool) -> Options {
    let merge_policy = MergePolicy::Prefix { mergeable_bytes_max: 1 << 30, components_max };
    Options { background, merge_policy, ..small_options() }
}

/// Number of components of each index.
fn components(storage: &Arc<dyn Storage>) -> Vec<usize> {
    let store = Store::open_read_only_on(storage.clone(), small_options()).unwrap();
    let info = store.info().unwrap();
    info.datasets[0].indexes.iter().map(|index| index.components).collect()
}

/// A store with five unmerged components of each index.
fn unmerged() -> MemoryStorage {
    let disk = MemoryStorage::new();
    let store = Store::open_on(Arc::new(disk.clone()), options(usize::MAX, false)).unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    for key in 0..5 {
        dataset.insert(&at(key)).unwrap();
        dataset.flush().unwrap();
    }
    drop(dataset);
    store.close().unwrap();
    disk
}

#[test]
fn opening_for_writing_merges_components_of_earlier_sessions() {
    for background in [false, true] {
        let storage: Arc<dyn Storage> = Arc::new(unmerged());
        assert_eq!(components(&storage), [5, 5]);
        Store::open_on(storage.clone(), options(COMPONENTS_MAX, background)).unwrap().close().unwrap();
        let left = components(&storage);
        assert!(left.iter().all(|count| *count < COMPONENTS_MAX), "{left:?}, background {background}");
    }
}

/// Each partition has its own components. Only its own flushes add to them.
#[test]
fn partitions_are_merged_separately() {
    for background in [false, true] {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let store = Store::open_on(storage.clone(), options(COMPONENTS_MAX, background)).unwrap();
        let partitions = DatasetOptions { partitions: 4 };
        let dataset = store.create_dataset_with(MAIN, first_schema(), &partitions).unwrap();
        for key in 0..60 {
            // Mostly the same key, so the same partition.
            dataset.upsert(&at(if key % 20 == 0 { key } else { 1 })).unwrap();
            dataset.flush().unwrap();
        }
        drop(dataset);
        store.close().unwrap();
        let manifest = Manifest::read(&*storage).unwrap().unwrap();
        let counts = manifest.datasets[0].partitions.iter().map(|partition| partition.indexes[0].components.len());
        let counts: Vec<usize> = counts.collect();
        assert!(counts.iter().all(|count| *count < COMPONENTS_MAX), "{counts:?}, background {background}");
        let store = Store::open_on(storage.clone(), options(COMPONENTS_MAX, background)).unwrap();
        let report = store.check(false).unwrap();
        assert!(report.findings.is_empty() && report.records == 4, "{report}, background {background}");
        store.compact().unwrap();
        let components: Vec<usize> =
            store.info().unwrap().datasets[0].indexes.iter().map(|index| index.components).collect();
        let touched = counts.iter().filter(|count| **count > 0).count();
        assert_eq!(components, [touched, touched], "one of each partition that has records");
    }
}

#[test]
fn short_sessions_do_not_pile_up_components() {
    for background in [false, true] {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let options = Options { durability: Some(Durability::None), ..options(COMPONENTS_MAX, background) };
        for session in 0..12 {
            let store = Store::open_on(storage.clone(), options.clone()).unwrap();
            if session == 0 {
                store.create_dataset(MAIN, first_schema()).unwrap();
            }
            store.dataset(MAIN).unwrap().insert(&at(session)).unwrap();
            store.close().unwrap();
            let left = components(&storage);
            assert!(left.iter().all(|count| *count <= COMPONENTS_MAX), "{left:?}, background {background}");
        }
    }
}

/// Sessions may be too short for their merges. Their components are merged before a session ends,
/// once they are several times more than the policy wants.
#[test]
fn components_of_very_short_sessions_do_not_pile_up() {
    for background in [false, true] {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let store = Store::open_on(storage.clone(), options(usize::MAX, false)).unwrap();
        let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
        for part in 0..4 * COMPONENTS_MAX as i64 + 1 {
            for key in 0..1_500 {
                dataset.insert(&at(part * 1_500 + key)).unwrap();
            }
            dataset.flush().unwrap();
        }
        drop(dataset);
        store.close().unwrap();
        assert!(components(&storage).iter().all(|count| *count > 4 * COMPONENTS_MAX));
        Store::open_on(storage.clone(), options(COMPONENTS_MAX, background)).unwrap().close().unwrap();
        let left = components(&storage);
        assert!(left.iter().all(|count| *count < COMPONENTS_MAX), "{left:?}, background {background}");
    }
}

/// Whether an error says that all records are stored, and that damage prevents a merge of the main
/// dataset.
fn is_unmerged(told: &Result<(), Error>) -> bool {
    matches!(told, Err(Error::Unmerged { dataset, cause }) if dataset == MAIN && matches!(**cause, Error::Damaged { .. }))
}

/// A merge that finds damage does not prevent opening. The next flush or the close reports it,
/// once.
#[test]
fn a_failed_merge_is_reported() {
    let files = files_of(&unmerged());
    let oldest = files.keys().find(|name| name.starts_with("components/")).unwrap();
    for background in [false, true] {
        for told_by_flush in [false, true] {
            let mut files = files.clone();
            files.get_mut(oldest).unwrap()[40] ^= 1;
            let store = Store::open_on(storage_of(&files), options(COMPONENTS_MAX, background)).unwrap();
            store.dataset(MAIN).unwrap().insert(&at(77)).unwrap();
            if told_by_flush && !background {
                assert!(is_unmerged(&store.flush()));
            }
            let told = store.close();
            let again = told_by_flush && !background;
            assert_eq!(is_unmerged(&told), !again, "{told:?}, background {background}");
        }
    }
}

/// Without the thread that merges, no merge would ever run, and writers would be slowed.
#[test]
fn a_merge_that_panics_is_a_failed_merge() {
    let hooked = Arc::new(HookedStorage::new(Arc::new(unmerged())));
    hooked.on_create(|name| {
        let is_merging = std::thread::current().name() == Some("terrane-merge");
        assert!(!(is_merging && name.starts_with("components/")), "a merge that panics on purpose");
    });
    let told = Store::open_on(hooked.clone(), options(COMPONENTS_MAX, true)).unwrap().close();
    let Err(Error::Unmerged { dataset, cause }) = &told else { panic!("{told:?}") };
    assert_eq!(
        (dataset.as_str(), cause.to_string().as_str()),
        (MAIN, "the merge panicked: a merge that panics on purpose")
    );
    let storage: Arc<dyn Storage> = hooked;
    assert_eq!(components(&storage), [5, 5]);
    Store::open_on(storage.clone(), options(COMPONENTS_MAX, false)).unwrap().close().unwrap();
    assert!(components(&storage).iter().all(|count| *count < COMPONENTS_MAX));
}

/// Damage in one dataset does not prevent merges of others.
#[test]
fn datasets_are_merged_beside_one_with_a_failing_merge() {
    for background in [false, true] {
        let disk = unmerged();
        let files = files_of(&disk);
        let oldest = files.keys().find(|name| name.starts_with("components/")).unwrap();
        let store = Store::open_on(Arc::new(disk.clone()), options(usize::MAX, false)).unwrap();
        // By name, it comes after the damaged one.
        let other = store.create_dataset("z", first_schema()).unwrap();
        for key in 0..5 {
            other.insert(&at(key)).unwrap();
            other.flush().unwrap();
        }
        drop(other);
        store.close().unwrap();
        let mut files = files_of(&disk);
        files.get_mut(oldest).unwrap()[40] ^= 1;
        let storage = storage_of(&files);
        let told = Store::open_on(storage.clone(), options(COMPONENTS_MAX, background)).unwrap().close();
        assert!(is_unmerged(&told), "{told:?}");
        let store = Store::open_read_only_on(storage, small_options()).unwrap();
        let info = store.info().unwrap();
        for dataset in &info.datasets {
            let is_merged = dataset.indexes.iter().all(|index| index.components < COMPONENTS_MAX);
            assert_eq!(is_merged, dataset.name == "z", "{}, background {background}", dataset.name);
        }
    }
}

/// A merge holds one page per component. With long pages, a compaction merges few components at a
/// time.
#[test]
fn a_compaction_merges_as_many_at_once_as_fit_in_memory() {
    let disk: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let store = Store::open_on(disk.clone(), options(usize::MAX, false)).unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    // Three of them are more than a quarter of the memory limit.
    let long = || Value::Utf8("t".repeat(700 << 10));
    for key in 0..9 {
        dataset.upsert(&Record::at(key % 8, 1.0, 1.0, vec![long(), Value::Int(key)])).unwrap();
        dataset.flush().unwrap();
    }
    dataset.delete(&Key::Int(3)).unwrap();
    dataset.compact().unwrap();
    let counters = store.maintenance();
    let stored = counters.merge_read_bytes / (700 << 10);
    assert!((20..=30).contains(&stored), "two at a time, {stored} records are read, {counters:?}");
    let info = store.info().unwrap();
    assert!(info.datasets[0].indexes.iter().all(|index| index.components == 1), "{info}");
    assert_eq!(dataset.snapshot().count(&Query::new()).unwrap(), 7);
    assert_eq!(dataset.snapshot().get(&Key::Int(0)).unwrap().unwrap().values[1], Value::Int(8));
    assert!(store.check(false).unwrap().findings.is_empty());
}

/// A compaction merges the components that exist when it begins, not those that writers add
/// meanwhile.
#[test]
fn a_compaction_ends_beside_continuing_writers() {
    let hooked = Arc::new(HookedStorage::new(Arc::new(unmerged())));
    let store = Store::open_on(hooked.clone(), options(usize::MAX, false)).unwrap();
    let dataset = store.dataset(MAIN).unwrap();
    let written = Arc::new(AtomicUsize::new(0));
    hooked.on_create({
        let (dataset, written) = (dataset.clone(), written.clone());
        move |name| {
            let number = written.load(Ordering::Relaxed);
            if name.starts_with("components/") && number < 40 {
                dataset.insert(&at(1000 + number as i64)).unwrap();
                dataset.flush().unwrap();
                written.store(number + 1, Ordering::Relaxed);
            }
        }
    });
    dataset.compact().unwrap();
    hooked.unhook();
    let written = written.load(Ordering::Relaxed);
    assert_eq!(store.maintenance().merges, 2, "one of each index, during {written} flushes");
    assert_eq!(dataset.snapshot().count(&Query::new()).unwrap(), 5 + written as u64);
    dataset.compact().unwrap();
    let info = store.info().unwrap();
    assert!(info.datasets[0].indexes.iter().all(|index| index.components == 1), "{info}");
    assert!(store.check(false).unwrap().findings.is_empty());
}

/// One thread merges for all datasets.
#[test]
fn a_long_compaction_of_one_dataset_does_not_stop_the_merges_of_others() {
    let hooked = Arc::new(HookedStorage::new(Arc::new(unmerged())));
    let store = Store::open_on(hooked.clone(), Options { lenient: true, ..options(COMPONENTS_MAX, false) }).unwrap();
    let (main, other) = (store.dataset(MAIN).unwrap(), store.create_dataset("other", first_schema()).unwrap());
    let ((begun, has_begun), (go_on, may_go_on)) = (mpsc::channel(), mpsc::channel::<()>());
    hooked.on_create(move |name| {
        if name.starts_with("components/") && thread::current().name() == Some("compacting") {
            begun.send(()).unwrap();
            let _ = may_go_on.recv();
        }
    });
    let compacting = thread::Builder::new().name("compacting".into()).spawn(move || main.compact()).unwrap();
    has_begun.recv().unwrap();
    let (done, is_done) = mpsc::channel();
    let flushing = thread::spawn(move || {
        for key in 0..5 {
            other.insert(&at(key)).unwrap();
            other.flush().unwrap();
        }
        done.send(()).unwrap();
    });
    is_done.recv_timeout(Duration::from_secs(60)).expect("the other dataset waits for the compaction");
    assert!(store.maintenance().merges > 0);
    hooked.unhook();
    drop(go_on);
    compacting.join().unwrap().unwrap();
    flushing.join().unwrap();
}

/// The prefix policy, for sizes from the oldest on. Starts after the last component above the
/// limit. Takes the shortest sequence whose sum exceeds the limit, or that has `count` components.
/// Then adds newer components while the sum is within the limit.
fn by_prefix(sizes: &[u64], limit: u64, count: usize) -> Option<Range<usize>> {
    let first = sizes.iter().rposition(|size| *size > limit).map_or(0, |large| large + 1);
    let sum = |end: usize| sizes[first..end].iter().sum::<u64>();
    let end = (first + 2..=sizes.len()).find(|end| sum(*end) > limit || end - first >= count)?;
    Some(first..(end + 1..=sizes.len()).take_while(|end| sum(*end) <= limit).last().unwrap_or(end))
}

/// The tiered policy: the oldest neighbours whose sizes differ by at most the ratio, once there are
/// `count` of them. All such neighbours are merged. Sizes below `bytes_min` count as `bytes_min`.
fn by_tiers(sizes: &[u64], count: usize, ratio: u64, bytes_min: u64) -> Option<Range<usize>> {
    let sizes: Vec<u64> = sizes.iter().map(|&size| size.max(bytes_min)).collect();
    let is_tier = |range: &Range<usize>| {
        let tier = &sizes[range.clone()];
        tier.iter().all(|size| tier.iter().all(|other| *size <= other * ratio))
    };
    (0..sizes.len()).find_map(|first| (first + count..=sizes.len()).rev().map(|end| first..end).find(is_tier))
}

/// The choice of a policy by its definition, independent of its code.
fn by_definition(policy: MergePolicy, sizes: &[u64]) -> Option<Range<usize>> {
    match policy {
        MergePolicy::Prefix { mergeable_bytes_max, components_max } => {
            by_prefix(sizes, mergeable_bytes_max, components_max)
        }
        MergePolicy::Constant { components_max } => (sizes.len() >= components_max).then_some(0..sizes.len()),
        MergePolicy::SizeTiered { components_min, size_ratio, bytes_min } => {
            by_tiers(sizes, components_min, size_ratio, bytes_min)
        }
    }
}

/// Bytes that merges write for flushes of these sizes, by a policy's definition.
fn predicted(policy: MergePolicy, flushes: &[u64]) -> u64 {
    let (mut sizes, mut written) = (Vec::new(), 0);
    for flush in flushes {
        sizes.push(*flush);
        while let Some(range) = by_definition(policy, &sizes) {
            let sum = sizes[range.clone()].iter().sum();
            sizes.splice(range, [sum]);
            written += sum;
        }
    }
    written
}

#[test]
fn policies_choose_by_their_definitions() {
    let (mut rng, seed) = seeded(0x5EED);
    for _ in 0..20_000 {
        let sizes: Vec<u64> = (0..rng.random_range(0..12)).map(|_| 1 << rng.random_range(0..7)).collect();
        let newest_first: Vec<u64> = sizes.iter().rev().copied().collect();
        let count = rng.random_range(2..6);
        for policy in [
            MergePolicy::Prefix { mergeable_bytes_max: rng.random_range(1..100), components_max: count },
            MergePolicy::Constant { components_max: count },
            MergePolicy::SizeTiered {
                components_min: count,
                size_ratio: rng.random_range(1..9),
                bytes_min: rng.random_range(0..9),
            },
        ] {
            let chosen = policy.choose(&newest_first).map(|range| sizes.len() - range.end..sizes.len() - range.start);
            assert_eq!(chosen, by_definition(policy, &sizes), "{policy:?} of {sizes:?}, seed {seed}");
        }
    }
}

/// The bytes written by flushes and merges equal those predicted from the sizes of the flushes,
/// within a tenth.
#[test]
fn merges_write_as_much_as_their_policy_predicts() {
    const FLUSHES: i64 = 40;
    const RECORDS: i64 = 120;
    let policies = [
        MergePolicy::Prefix { mergeable_bytes_max: 200 << 10, components_max: 4 },
        MergePolicy::Constant { components_max: 3 },
        MergePolicy::SizeTiered { components_min: 3, size_ratio: 3, bytes_min: 0 },
    ];
    // Sizes of all flushes of each index, oldest first.
    let mut flushed: Vec<Vec<u64>> = Vec::new();
    let run = |policy: MergePolicy, flushed: &mut dyn FnMut(&Store)| {
        let store = Store::open_on(Arc::new(MemoryStorage::new()), options(usize::MAX, false)).unwrap();
        let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
        dataset.set_merge_policy(Some(policy)).unwrap();
        for flush in 0..FLUSHES {
            // Some records are written two, three and four times.
            for key in flush * RECORDS..flush * RECORDS + RECORDS / 4 * (1 + flush * 7 % 4) {
                let text = Value::Utf8("t".repeat(60 + key as usize % 40));
                dataset
                    .upsert(&Record::at(key * 7919 % 100_003, key as f64, 1.0, vec![text, Value::Int(key)]))
                    .unwrap();
            }
            dataset.flush().unwrap();
            flushed(&store);
        }
        drop(dataset);
        store
    };
    let never = MergePolicy::Prefix { mergeable_bytes_max: u64::MAX, components_max: usize::MAX };
    let never = run(never, &mut |store| {
        let indexes = &store.info().unwrap().datasets[0].indexes;
        flushed.resize(indexes.len(), Vec::new());
        for (index, sizes) in indexes.iter().zip(&mut flushed) {
            sizes.push(index.bytes - sizes.iter().sum::<u64>());
            assert_eq!(index.components, sizes.len());
        }
    });
    assert_eq!((never.maintenance().merges, flushed[0].len() as i64), (0, FLUSHES));
    for policy in policies {
        let merged: u64 = flushed.iter().map(|index| predicted(policy, index)).sum();
        let store = run(policy, &mut |_| {});
        let counters = store.maintenance();
        let flushed: u64 = flushed.iter().flatten().sum();
        let amplification = |merged: u64| 1.0 + merged as f64 / flushed as f64;
        let (found, wanted) = (amplification(counters.merge_written_bytes), amplification(merged));
        println!("{policy:?}: write amplification {found:.2}, predicted {wanted:.2}");
        assert!((found / wanted - 1.0).abs() <= 0.1, "{policy:?}: {found} instead of {wanted}");
        assert!(store.check(false).unwrap().findings.is_empty());
    }
}

#[test]
fn a_dataset_keeps_its_policy() {
    let disk: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let open = || Store::open_on(disk.clone(), options(usize::MAX, false)).unwrap();
    let store = open();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    let refused = dataset.set_merge_policy(Some(MergePolicy::Constant { components_max: 1 })).unwrap_err();
    assert!(matches!(&refused, Error::Usage(reason) if reason.contains("at least 2")), "{refused}");
    let policy = MergePolicy::Constant { components_max: 2 };
    dataset.set_merge_policy(Some(policy)).unwrap();
    // Another change keeps it.
    dataset.create_index("sizes", terrane::IndexKind::BTree, &["size"]).unwrap();
    drop(dataset);
    store.close().unwrap();
    let store = open();
    let dataset = store.dataset(MAIN).unwrap();
    assert_eq!(dataset.merge_policy(), policy);
    for key in 0..3 {
        dataset.insert(&at(key)).unwrap();
        dataset.flush().unwrap();
        assert!(store.info().unwrap().datasets[0].indexes.iter().all(|index| index.components == 1));
    }
    dataset.set_merge_policy(None).unwrap();
    dataset.insert(&at(3)).unwrap();
    dataset.flush().unwrap();
    assert!(store.info().unwrap().datasets[0].indexes.iter().all(|index| index.components == 2));
}
