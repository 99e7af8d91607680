//! Backups. A restored point is the store at that point, whatever was written in between. Damage of
//! a backup is reported.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use crate::support::files::{files_of, storage_of};
use crate::support::workload::{MAIN, Plan, Runner, State, Step, first_schema, options, state_of};
use crate::support::{keys_of, record, seeded, small_options};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terrane::{Dataset, Durability, Error, Key, Options, Query, Record, RestoreReport, Store, Value};
use terrane_storage::{File, OpenMode, RealStorage, Storage};
use terrane_testkit::MemoryStorage;
use terrane_testkit::crash::{Budget, Controller};
use terrane_testkit::hook::HookedStorage;

fn memory() -> Arc<dyn Storage> {
    Arc::new(MemoryStorage::new())
}

fn restore(backup: &Arc<dyn Storage>, store: &Arc<dyn Storage>, point: Option<&str>) -> terrane::Result<RestoreReport> {
    Store::restore_on(backup, store.clone(), point, &small_options())
}

/// The contents of a restored point. The restored store must be sound and usable.
fn restored(backup: &Arc<dyn Storage>, point: Option<&str>) -> State {
    let storage = memory();
    restore(backup, &storage, point).unwrap();
    let store = Store::open_on(storage, small_options()).unwrap();
    let state = state_of(&store);
    let report = store.check(false).unwrap();
    assert!(report.is_clean() && report.foreign_files.is_empty(), "{report}");
    if let Ok(dataset) = store.dataset(MAIN) {
        let values = vec![Value::Null; dataset.schema().columns.len()];
        dataset.upsert(&Record::at(777, 1.0, 2.0, values)).unwrap();
        dataset.compact().unwrap();
        assert!(dataset.get(&Key::Int(777)).unwrap().is_some());
    }
    store.close().unwrap();
    state
}

#[test]
fn every_point_restores_the_state_of_its_time() {
    for (durability, partitions, seed) in [(Durability::Power, 3, 31), (Durability::None, 1, 32)] {
        let (mut rng, seed) = seeded(seed);
        let plan = Plan::new(seed, 200);
        let (source, backup) = (memory(), memory());
        let runner = Runner::open(source.clone(), options(durability)).unwrap();
        let mut runner = runner.with_partitions(partitions);
        let mut points = Vec::new();
        for (number, step) in plan.steps.iter().enumerate() {
            runner.apply(step).unwrap();
            if !rng.random_ratio(1, 8) {
                continue;
            }
            if durability == Durability::None {
                runner.store().flush().unwrap();
            }
            // Through the writing handle, and through another one.
            let report = match rng.random() {
                true => runner.store().backup_to(backup.clone(), None).unwrap(),
                false => {
                    let beside = Store::open_read_only_on(source.clone(), options(durability)).unwrap();
                    beside.backup_to(backup.clone(), None).unwrap()
                }
            };
            points.push((report.point, number + 1));
        }
        assert!(points.len() > 10);
        for (point, number) in &points {
            assert_eq!(restored(&backup, Some(point)), plan.states[*number], "{point} after {number} steps");
        }
        assert_eq!(restored(&backup, None), plan.states[points[points.len() - 1].1]);
    }
}

fn sized(key: i64) -> Record {
    Record::at(key, key as f64, 1.0, vec![Value::Utf8("n".repeat(50)), Value::Int(key)])
}

fn filled(storage: &Arc<dyn Storage>, keys: std::ops::Range<i64>) -> Store {
    let store = Store::open_on(storage.clone(), small_options()).unwrap();
    let dataset = match store.dataset(MAIN) {
        Ok(dataset) => dataset,
        Err(_) => store.create_dataset(MAIN, first_schema()).unwrap(),
    };
    for key in keys {
        dataset.insert(&sized(key)).unwrap();
    }
    store
}

fn keys(storage: &Arc<dyn Storage>) -> Vec<Key> {
    let store = Store::open_on(storage.clone(), small_options()).unwrap();
    let mut keys = keys_of(&store.dataset(MAIN).unwrap().snapshot(), &Query::new());
    keys.sort_unstable_by_key(|key| format!("{key:?}").len());
    keys
}

#[test]
fn a_later_backup_copies_new_components_and_keeps_the_wanted_points() {
    let (source, backup) = (memory(), memory());
    let store = filled(&source, 0..100);
    store.flush().unwrap();
    let first = store.backup_to(backup.clone(), None).unwrap();
    assert_eq!((first.components, first.components_copied), (2, 2));
    store.dataset(MAIN).unwrap().insert(&sized(100)).unwrap();
    let second = store.backup_to(backup.clone(), None).unwrap();
    assert_eq!((second.components, second.components_copied), (2, 0), "the log is not a component");
    assert!(second.bytes_written > 0 && second.sequence == first.sequence + 1);
    store.flush().unwrap();
    let third = store.backup_to(backup.clone(), Some(2)).unwrap();
    assert_eq!((third.components, third.components_copied, third.points_removed), (4, 2, 1));
    store.compact().unwrap();
    let fourth = store.backup_to(backup.clone(), Some(1)).unwrap();
    assert_eq!((fourth.components, fourth.components_copied, fourth.points_removed), (2, 2, 2));
    // Only the components of the point remain.
    assert_eq!(backup.list("components").unwrap().len(), 2);
    assert_eq!(backup.list("points").unwrap().len(), 2);
    let gone = restore(&backup, &memory(), Some(&third.point)).unwrap_err();
    assert!(gone.to_string().contains(&fourth.point), "{gone}");
    let place = memory();
    let report = restore(&backup, &place, None).unwrap();
    assert_eq!((report.point, report.sequence, report.datasets), (fourth.point, 101, 1));
    assert_eq!(keys(&place).len(), 101);
    assert!(matches!(store.backup_to(backup, Some(0)), Err(Error::Usage(_))));
}

#[test]
fn a_backup_beside_writers_has_every_acknowledged_write() {
    let source = memory();
    let store = Store::open_on(source, Options { background: true, ..small_options() }).unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    let (backup, done, acknowledged) = (memory(), AtomicBool::new(false), AtomicI64::new(0));
    let mut points = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for key in 1.. {
                dataset.insert(&sized(key)).unwrap();
                acknowledged.store(key, Ordering::SeqCst);
                if key % 500 == 0 {
                    dataset.flush().unwrap();
                }
                if done.load(Ordering::SeqCst) {
                    return;
                }
            }
        });
        while points.len() < 12 {
            let before = acknowledged.load(Ordering::SeqCst);
            let report = store.backup_to(backup.clone(), None).unwrap();
            points.push((before, report.point));
        }
        done.store(true, Ordering::SeqCst);
    });
    for (before, point) in points {
        let place = memory();
        restore(&backup, &place, Some(&point)).unwrap();
        let count = keys(&place).len() as i64;
        assert!(count >= before, "{point} has {count} of {before}");
        let store = Store::open_on(place, small_options()).unwrap();
        let dataset = store.dataset(MAIN).unwrap();
        assert!((1..=count).all(|key| dataset.get(&Key::Int(key)).unwrap().is_some()), "the first {count} and no gap");
    }
}

#[test]
fn backups_of_another_store_or_history_are_refused() {
    let (source, backup) = (memory(), memory());
    let store = filled(&source, 0..10);
    store.backup_to(backup.clone(), None).unwrap();
    let refused = |store: &Store, target: &Arc<dyn Storage>, reason: &str| {
        let error = store.backup_to(target.clone(), None).unwrap_err();
        assert!(matches!(error, Error::Usage(_)) && error.to_string().contains(reason), "{error}");
    };
    // Stores are distinguished by clocks, and memory has none.
    let directory = tempfile::tempdir().unwrap();
    let other: Arc<dyn Storage> = Arc::new(RealStorage::new(directory.path().join("other")));
    refused(&filled(&other, 0..10), &backup, "another store");
    refused(&store, &source, "is a store");
    let foreign = memory();
    foreign.open("notes.txt", OpenMode::CreateNew).unwrap();
    refused(&store, &foreign, "notes.txt");
    // Restored to an earlier point, and changed in another way since.
    store.dataset(MAIN).unwrap().insert(&sized(10)).unwrap();
    let point = store.backup_to(backup.clone(), None).unwrap().point;
    let first = Store::restore_on(&backup, memory(), Some("x"), &small_options()).unwrap_err();
    assert!(first.to_string().contains(&point), "{first}");
    let earlier = {
        let place = memory();
        let names = backup.list("points").unwrap();
        restore(&backup, &place, names[0].strip_suffix(".log")).unwrap();
        Store::open_on(place, small_options()).unwrap()
    };
    refused(&earlier, &backup, "before it was restored");
    // Also with the same number of commits.
    earlier.dataset(MAIN).unwrap().insert(&sized(11)).unwrap();
    refused(&earlier, &backup, "before it was restored");
    let anew = memory();
    earlier.backup_to(anew.clone(), None).unwrap();
    refused(&store, &anew, "before it was restored");
    // A restoration never overwrites another store or anything else.
    for place in [&source, &foreign, &backup] {
        assert!(matches!(restore(&backup, place, None), Err(Error::Usage(_))));
    }
    assert!(matches!(restore(&memory(), &memory(), None), Err(Error::Usage(_))));
}

#[test]
fn a_power_loss_leaves_the_earlier_points_and_permits_the_next_backup() {
    let source = memory();
    let store = filled(&source, 0..30);
    store.flush().unwrap();
    let controller = Controller::new();
    store.backup_to(controller.storage(), None).unwrap();
    let begun = controller.events();
    store.dataset(MAIN).unwrap().insert(&sized(30)).unwrap();
    store.flush().unwrap();
    store.dataset(MAIN).unwrap().insert(&sized(31)).unwrap();
    store.backup_to(controller.storage(), Some(1)).unwrap();
    let budget = Budget { exhaustive_pending: 4, samples: 2, ..Budget::default() };
    let mut counts = Vec::new();
    for cut in begun..=controller.events() {
        for image in controller.images(cut, &budget, 7) {
            let backup = image.restart().storage();
            let place = memory();
            let report = restore(&backup, &place, None).unwrap_or_else(|error| panic!("{error}: {}", image.describe()));
            let count = keys(&place).len();
            assert_eq!(count as u64, report.sequence, "{}", image.describe());
            counts.push(count);
            // Every point is complete, even while it is being removed.
            for point in backup.list("points").unwrap().iter().filter_map(|name| name.strip_suffix(".manifest")) {
                restore(&backup, &memory(), Some(point))
                    .unwrap_or_else(|error| panic!("{error}: {}", image.describe()));
            }
            if cut % 4 == 0 {
                store.backup_to(backup.clone(), Some(1)).unwrap();
                let place = memory();
                restore(&backup, &place, None).unwrap();
                assert_eq!(keys(&place).len(), 32);
                assert_eq!((backup.list("components").unwrap().len(), backup.list("points").unwrap().len()), (4, 2));
            }
        }
    }
    counts.dedup();
    assert!(counts.contains(&30) && counts.contains(&32), "{counts:?}");
}

#[test]
fn a_power_loss_in_a_restoration_leaves_no_store_or_the_whole() {
    let (source, backup) = (memory(), memory());
    let store = filled(&source, 0..30);
    store.flush().unwrap();
    store.dataset(MAIN).unwrap().insert(&sized(30)).unwrap();
    store.backup_to(backup.clone(), None).unwrap();
    let controller = Controller::new();
    restore(&backup, &controller.storage(), None).unwrap();
    let budget = Budget { exhaustive_pending: 4, samples: 2, ..Budget::default() };
    let (mut whole, mut none) = (0, 0);
    for cut in 0..=controller.events() {
        for image in controller.images(cut, &budget, 8) {
            let storage = image.restart().storage();
            match Store::open_on(storage.clone(), Options { create: false, ..small_options() }) {
                Ok(store) => {
                    assert_eq!(keys_of(&store.dataset(MAIN).unwrap().snapshot(), &Query::new()).len(), 31);
                    whole += 1;
                }
                Err(error) => {
                    assert!(!storage.exists("MANIFEST").unwrap(), "{error}: {}", image.describe());
                    none += 1;
                }
            }
        }
    }
    assert!(whole > 0 && none > 0, "{whole} whole, {none} none");
}

fn bytes_of(file: &dyn File) -> Vec<u8> {
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn damage_of_a_backup_is_reported_and_never_restored() {
    let (mut rng, _) = seeded(33);
    let (source, backup) = (memory(), memory());
    let store = filled(&source, 0..400);
    store.flush().unwrap();
    for key in 400..500 {
        store.dataset(MAIN).unwrap().insert(&record(&mut rng, Key::Int(key), true)).unwrap();
    }
    store.backup_to(backup.clone(), None).unwrap();
    let whole = restored(&backup, None);
    let (mut told, mut same) = (0, 0);
    for directory in ["components", "points"] {
        for name in backup.list(directory).unwrap() {
            let name = format!("{directory}/{name}");
            let file = backup.open(&name, OpenMode::Write).unwrap();
            let bytes = bytes_of(&*file);
            let length = bytes.len() as u64;
            for _ in 0..60 {
                let at = rng.random_range(0..length);
                match rng.random_range(0..4) {
                    0 => file.set_len(at).unwrap(),
                    1 => file.write_all_at(&[0xff; 8], length).unwrap(),
                    _ => file.write_all_at(&[bytes[at as usize] ^ (1 << rng.random_range(0..8))], at).unwrap(),
                }
                let place = memory();
                match restore(&backup, &place, None) {
                    Ok(_) => {
                        let store = Store::open_on(place, small_options()).unwrap();
                        assert_eq!(state_of(&store), whole, "{name} at {at}");
                        same += 1;
                    }
                    Err(error) => {
                        assert!(!matches!(error, Error::Usage(_)), "{name} at {at}: {error}");
                        let advice = error.to_string();
                        assert!(!error.is_damage() || advice.contains("back up again"), "{advice}");
                        assert!(!place.exists("MANIFEST").unwrap());
                        let left =
                            |directory| place.exists(directory).unwrap() && !place.list(directory).unwrap().is_empty();
                        assert!(!left("components") && !left("log"));
                        told += 1;
                    }
                }
                file.set_len(length).unwrap();
                file.write_all_at(&bytes, 0).unwrap();
            }
        }
    }
    assert!(told > 200, "{told} told, {same} without consequence");
    // A log that ends too early is reported, even if it ends with a complete group.
    let names = backup.list("points").unwrap();
    let log = backup.open(&format!("points/{}", names[0]), OpenMode::Write).unwrap();
    let bytes = bytes_of(&*log);
    let (mut last, mut next) = (0, 0);
    while next < bytes.len() {
        last = next;
        next += 8 + 128 + u64::from_le_bytes(bytes[last..last + 8].try_into().unwrap()) as usize;
    }
    let groups = last + 8 + 128;
    let (mut group, mut after) = (groups, groups);
    while after < bytes.len() {
        group = after;
        after += 64 + u32::from_le_bytes(bytes[group + 12..group + 16].try_into().unwrap()) as usize;
    }
    log.set_len(group as u64).unwrap();
    log.write_all_at(&(group as u64 - groups as u64).to_le_bytes(), last as u64).unwrap();
    let error = restore(&backup, &memory(), None).unwrap_err();
    assert!(error.is_damage() && error.to_string().contains("commit 499 instead of 500"), "{error}");
    log.set_len(0).unwrap();
    assert!(restore(&backup, &memory(), None).unwrap_err().is_damage());
}

/// A point is valid only if all of it is sound, including components shared with earlier points.
#[test]
fn damaged_components_of_a_backup_are_copied_again() {
    let (source, backup) = (memory(), memory());
    let store = filled(&source, 0..5000);
    store.flush().unwrap();
    store.backup_to(backup.clone(), None).unwrap();
    let sizes = |name: &String| backup.open(&format!("components/{name}"), OpenMode::Read).unwrap().len().unwrap();
    let largest = backup.list("components").unwrap().into_iter().max_by_key(sizes).unwrap();
    let name = format!("components/{largest}");
    let damages: [fn(&dyn File); 4] = [
        |file| {
            let (mut byte, middle) = ([0], file.len().unwrap() / 2);
            file.read_exact_at(&mut byte, middle).unwrap();
            file.write_all_at(&[byte[0] ^ 1], middle).unwrap();
        },
        |file| file.set_len(100).unwrap(),
        |file| file.set_len(0).unwrap(),
        |file| file.write_all_at(b"more", file.len().unwrap()).unwrap(),
    ];
    for damage in damages {
        damage(&*backup.open(&name, OpenMode::Write).unwrap());
        assert!(restore(&backup, &memory(), None).unwrap_err().is_damage());
        let report = store.backup_to(backup.clone(), Some(1)).unwrap();
        assert_eq!((report.components_copied, report.points_removed), (1, 1));
        let place = memory();
        restore(&backup, &place, None).unwrap();
        assert_eq!(keys(&place).len(), 5000);
    }
}

/// It is reported, and does not prevent later backups.
#[test]
fn a_damaged_manifest_does_not_prevent_later_points() {
    for at in 0..2 {
        let (source, backup) = (memory(), memory());
        let store = filled(&source, 0..10);
        let point = || store.backup_to(backup.clone(), None);
        let names = [point().unwrap().point, point().unwrap().point];
        let manifest = format!("points/{}.manifest", names[at]);
        let file = backup.open(&manifest, OpenMode::Write).unwrap();
        let sound = bytes_of(&*file);
        file.write_all_at(&[sound[100] ^ 1], 100).unwrap();
        let third = point().unwrap();
        assert_eq!(third.points_damaged, [names[at].clone()]);
        assert_eq!(restored_keys(&backup).len(), 10);
        assert!(matches!(restore(&backup, &memory(), Some(&names[at])), Err(Error::DamagedBackup { .. })));
        restore(&backup, &memory(), Some(&names[1 - at])).unwrap();
        // Once it is removed, nothing is reported.
        let kept = store.backup_to(backup.clone(), Some(1)).unwrap();
        assert_eq!((kept.points_removed, kept.points_damaged), (3, vec![names[at].clone()]));
        let last = point().unwrap();
        assert!(last.points_damaged.is_empty());
        // If no manifest shows which store the backup belongs to, nothing is added.
        for name in [kept.point, last.point] {
            backup.open(&format!("points/{name}.manifest"), OpenMode::Write).unwrap().set_len(50).unwrap();
        }
        let error = point().unwrap_err();
        assert!(matches!(error, Error::UnreadableBackup { .. }) && error.exit_code() == Error::CORRUPTION, "{error}");
        assert!(error.to_string().ends_with("take the backup to another directory"), "{error}");
        store.backup_to(memory(), None).unwrap();
    }
}

/// Once its manifest is repaired, the point is valid again: none of its components was removed as
/// unused.
#[test]
fn a_point_with_a_damaged_manifest_keeps_its_components() {
    let (source, backup) = (memory(), memory());
    let store = filled(&source, 0..10);
    let point = |keep| {
        store.dataset(MAIN).unwrap().compact().unwrap();
        store.backup_to(backup.clone(), keep).unwrap()
    };
    let insert = |key| store.dataset(MAIN).unwrap().insert(&sized(key)).unwrap();
    let first = point(None).point;
    insert(10);
    point(None);
    let manifest = backup.open(&format!("points/{first}.manifest"), OpenMode::Write).unwrap();
    let sound = bytes_of(&*manifest);
    manifest.write_all_at(&[sound[100] ^ 1], 100).unwrap();
    insert(11);
    assert_eq!(point(Some(20)).points_damaged, std::slice::from_ref(&first));
    manifest.write_all_at(&sound[100..101], 100).unwrap();
    let place = memory();
    restore(&backup, &place, Some(&first)).unwrap();
    assert_eq!(keys(&place).len(), 10);
}

#[test]
fn removing_a_point_during_its_restoration_is_not_damage() {
    for named in [false, true] {
        let (source, backup) = (memory(), memory());
        let store = Arc::new(filled(&source, 0..10));
        let compact = |store: &Store| store.dataset(MAIN).unwrap().compact().unwrap();
        compact(&store);
        let first = store.backup_to(backup.clone(), None).unwrap().point;
        let place = Arc::new(HookedStorage::new(memory()));
        let (pruning, pruned) = (store.clone(), backup.clone());
        let mut is_pruned = false;
        place.on_create(move |name| {
            if name.starts_with("components/") && !std::mem::replace(&mut is_pruned, true) {
                pruning.dataset(MAIN).unwrap().insert(&sized(10)).unwrap();
                compact(&pruning);
                pruning.backup_to(pruned.clone(), Some(1)).unwrap();
            }
        });
        let place: Arc<dyn Storage> = place;
        match restore(&backup, &place, named.then_some(first.as_str())) {
            Ok(report) => {
                assert!(!named && report.point != first, "{report:?}");
                assert_eq!(keys(&place).len(), 11);
            }
            Err(error) => {
                assert!(named && matches!(error, Error::Failed(_)), "{error}");
                assert!(error.to_string().contains("was removed while it was restored"), "{error}");
                assert_eq!(place.list("").unwrap(), Vec::<String>::new());
                assert_eq!(restored_keys(&backup).len(), 11);
            }
        }
    }
}

/// If points are removed faster than they are restored, this is reported, and restoring ends.
#[test]
fn a_restoration_starts_at_most_three_times() {
    for removals in [2, 3] {
        let (source, backup) = (memory(), memory());
        let store = Arc::new(filled(&source, 0..10));
        let point = |store: &Store, backup: &Arc<dyn Storage>| {
            store.dataset(MAIN).unwrap().compact().unwrap();
            store.backup_to(backup.clone(), Some(1)).unwrap();
        };
        point(&store, &backup);
        let place = Arc::new(HookedStorage::new(memory()));
        let begun = Arc::new(AtomicI64::new(0));
        let (counter, pruned) = (begun.clone(), backup.clone());
        place.on_create(move |name| {
            if name == "RESTORING" {
                let attempt = counter.fetch_add(1, Ordering::Relaxed);
                if attempt < removals {
                    store.dataset(MAIN).unwrap().insert(&sized(10 + attempt)).unwrap();
                    point(&store, &pruned);
                }
            }
        });
        let place: Arc<dyn Storage> = place;
        let restored = restore(&backup, &place, None);
        assert_eq!(begun.load(Ordering::Relaxed), 3);
        match restored {
            Ok(_) => assert_eq!((removals, keys(&place).len()), (2, 12)),
            Err(error) => {
                assert!(removals == 3 && matches!(error, Error::Failed(_)), "{error}");
                assert!(error.to_string().contains("was removed while it was restored"), "{error}");
                assert_eq!(place.list("").unwrap(), Vec::<String>::new());
            }
        }
    }
}

fn restored_keys(backup: &Arc<dyn Storage>) -> Vec<Key> {
    let place = memory();
    restore(backup, &place, None).unwrap();
    keys(&place)
}

#[test]
fn without_a_log_a_backup_has_the_records_in_memory() {
    let (source, backup) = (memory(), memory());
    let store = Store::open_on(source.clone(), options(Durability::None)).unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    for key in 0..100 {
        dataset.insert(&sized(key)).unwrap();
    }
    assert_eq!(store.backup_to(backup.clone(), None).unwrap().sequence, 100);
    let place = memory();
    restore(&backup, &place, None).unwrap();
    assert_eq!(keys(&place).len(), 100);
}

#[test]
fn nothing_is_restored_through_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let source: Arc<dyn Storage> = Arc::new(RealStorage::new(at("store")));
    let store = filled(&source, 0..10);
    store.backup(at("backup"), None).unwrap();
    for name in ["components", "log", "LOCK", "RESERVE"] {
        let (place, elsewhere) = (at(&format!("restored-{name}")), at(&format!("elsewhere-{name}")));
        std::fs::create_dir(&place).unwrap();
        std::fs::create_dir(&elsewhere).unwrap();
        // To a file that does not exist. An existing file would belong to somebody.
        let target = if name == "RESERVE" { elsewhere.join(name) } else { elsewhere.clone() };
        std::os::unix::fs::symlink(target, place.join(name)).unwrap();
        let error = Store::restore(at("backup"), &place, None, &small_options()).unwrap_err();
        assert!(matches!(&error, Error::Usage(reason) if reason.contains(name)), "{error}");
        assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
    }
}

#[test]
fn damage_of_the_store_is_not_backed_up() {
    let (source, backup) = (memory(), memory());
    let store = filled(&source, 0..5000);
    store.flush().unwrap();
    store.backup_to(backup.clone(), None).unwrap();
    for key in 5000..9000 {
        store.dataset(MAIN).unwrap().insert(&sized(key)).unwrap();
    }
    store.flush().unwrap();
    store.close().unwrap();
    let mut rng = SmallRng::seed_from_u64(3);
    let names = source.list("components").unwrap();
    let name = format!("components/{}", names[names.len() - 1]);
    let file = source.open(&name, OpenMode::Write).unwrap();
    let mut byte = [0];
    let at = rng.random_range(0..file.len().unwrap() / 2);
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    let store = Store::open_read_only_on(source, small_options()).unwrap();
    let error = store.backup_to(backup.clone(), None).unwrap_err();
    assert!(error.is_damage() && error.to_string().contains(&name), "{error}");
    let place = memory();
    restore(&backup, &place, None).unwrap();
    assert_eq!(keys(&place).len(), 5000, "the earlier point is there");
}

/// Points that could be confused because they have the same commit.
#[test]
fn points_of_the_same_commit_are_told_apart() {
    let (source, backup) = (memory(), memory());
    let mut runner = Runner::open(source, options(Durability::Power)).unwrap();
    runner.apply(&Step::Import(MAIN.into(), Vec::new())).unwrap();
    let first = runner.store().backup_to(backup.clone(), None).unwrap();
    runner.apply(&Step::AddColumn("added".into())).unwrap();
    let second = runner.store().backup_to(backup.clone(), None).unwrap();
    assert!(first.sequence == second.sequence && first.point < second.point);
    assert_eq!(restored(&backup, Some(&first.point))[MAIN].columns.len(), 2);
    runner.apply(&Step::RenameColumn("added".into(), "other".into())).unwrap();
    runner.apply(&Step::DropColumn("name".into())).unwrap();
    let third = runner.store().backup_to(backup.clone(), None).unwrap();
    assert!(third.sequence == second.sequence && second.point < third.point);
    assert_eq!(restored(&backup, Some(&second.point))[MAIN].columns, ["name", "size", "added"]);
    assert_eq!(restored(&backup, None)[MAIN].columns, ["size", "other"]);
}

/// A copy from before the last steps. They commit no record, so they have no sequence number.
#[test]
fn an_older_copy_of_the_store_is_refused() {
    let (disk, backup) = (MemoryStorage::new(), memory());
    let source: Arc<dyn Storage> = Arc::new(disk.clone());
    let store = filled(&source, 0..10);
    store.flush().unwrap();
    let older = |change: &dyn Fn(&Dataset)| {
        let copy = storage_of(&files_of(&disk));
        change(&store.dataset(MAIN).unwrap());
        let newest = store.backup_to(backup.clone(), None).unwrap();
        let points = backup.list("points").unwrap();
        let copy = Store::open_read_only_on(copy, small_options()).unwrap();
        let error = copy.backup_to(backup.clone(), None).unwrap_err();
        assert!(matches!(error, Error::Usage(_)) && error.to_string().contains("it is an older copy"), "{error}");
        assert_eq!(backup.list("points").unwrap(), points);
        newest.sequence
    };
    let inserted = older(&|dataset| dataset.insert(&sized(10)).unwrap());
    let renamed = older(&|dataset| dataset.rename_column("size", "other").unwrap());
    assert_eq!(inserted, renamed, "there is a number between the copies");
}
