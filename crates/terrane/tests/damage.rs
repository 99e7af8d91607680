//! Damage in any region of any file causes an error that names the file, or leaves every answer
//! unchanged. It never causes wrong rows or a panic.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::support::files::{Files, files_of, spatial_file, storage_of};
use crate::support::workload::{MAIN, PLACES, Plan, Runner, State, Step, first_schema, options, state_of};
use crate::support::{keys_of, record, seeded};
use rand::Rng;
use rand::rngs::SmallRng;
use terrane::{Durability, Error, Key, MergePolicy, Options, Query, Record, Snapshot, Store, Value};
use terrane_lsm::disk::component_name;
use terrane_lsm::manifest::Manifest;
use terrane_storage::OpenMode;
use terrane_testkit::{Fault, FaultPlan, FaultyStorage, MemoryStorage};

/// The files of a closed store, at an earlier time and now. The main dataset has two partitions and
/// several components of every index. The log has a tail.
fn store(rng: &mut SmallRng, seed: u64) -> (Files, Files, Plan) {
    let disk = MemoryStorage::new();
    let mut plan = Plan::new(seed, 110);
    plan.push(Step::Import(MAIN.into(), (20_000..20_400).map(|key| record(rng, Key::Int(key), true)).collect()));
    plan.push(Step::Insert(record(rng, Key::Int(-500), true)));
    let runner = Runner::open(Arc::new(disk.clone()), options(Durability::Power)).unwrap();
    let mut runner = runner.with_partitions(2);
    let mut earlier = Files::new();
    for (number, step) in plan.steps.iter().enumerate() {
        runner.apply(step).unwrap();
        if number == 70 {
            earlier = files_of(&disk);
        }
    }
    drop(runner);
    (earlier, files_of(&disk), plan)
}

/// The answers without damage.
struct Answers {
    state: State,
    windows: Vec<(Query, Vec<Key>)>,
}

fn sorted(mut keys: Vec<Key>) -> Vec<Key> {
    keys.sort_by_key(crate::support::encoded);
    keys
}

impl Answers {
    fn of(files: &Files, plan: &Plan, rng: &mut SmallRng) -> Self {
        let store = Store::open_on(storage_of(files), options(Durability::Power)).unwrap();
        let snapshot = store.dataset(MAIN).unwrap().snapshot();
        let state = state_of(&store);
        assert_eq!(Some(&state), plan.states.last());
        let mut windows = Vec::new();
        for _ in 0..4 {
            let (x, y) = (rng.random_range(-10.0..8.0), rng.random_range(-10.0..8.0));
            let window = Query::new().window(x, y, x + 3.0, y + 3.0);
            for query in [window.clone(), window.using_index(PLACES), Query::new().nearest(x, y, 7)] {
                windows.push((query.clone(), sorted(keys_of(&snapshot, &query))));
            }
        }
        Self { state, windows }
    }

    /// Whether an error of damage occurred. Panics on a wrong answer.
    fn compare(&self, store: &Store, what: &str) -> Vec<Error> {
        let mut met = Vec::new();
        assert_eq!(store.dataset_names(), self.state.keys().cloned().collect::<Vec<_>>(), "{what}");
        for (name, held) in &self.state {
            let snapshot = store.dataset(name).unwrap().snapshot();
            match scan(&snapshot, &Query::new()) {
                Ok(keys) => {
                    let wanted: Vec<_> = held.records.values().map(|record| record.key.clone()).collect();
                    assert_eq!(sorted(keys), wanted, "{what}");
                }
                Err(error) => met.push(error),
            }
            for record in held.records.values().step_by(5) {
                match snapshot.get(&record.key) {
                    Ok(found) => {
                        let found = found.unwrap_or_else(|| panic!("{:?} is gone, {what}", record.key));
                        let same = found.geometry == record.geometry && found.values.starts_with(&record.values);
                        assert!(same, "{found:?} instead of {record:?}, {what}");
                    }
                    Err(error) => met.push(error),
                }
            }
        }
        let snapshot = store.dataset(MAIN).unwrap().snapshot();
        for (query, wanted) in &self.windows {
            match scan(&snapshot, query) {
                Ok(keys) => assert_eq!(&sorted(keys), wanted, "{query:?} {what}"),
                Err(error) => met.push(error),
            }
            match snapshot.count(query) {
                Ok(count) => assert_eq!(count, wanted.len() as u64, "{query:?} {what}"),
                Err(error) => met.push(error),
            }
        }
        met
    }
}

fn record_at(key: i64) -> Record {
    Record::at(key, key as f64, 1.0, vec![Value::Null, Value::Int(key)])
}

fn scan(snapshot: &Snapshot, query: &Query) -> Result<Vec<Key>, Error> {
    let mut keys = Vec::new();
    for batch in snapshot.query(&query.clone().columns(["id"]))? {
        let batch = batch?;
        let key = |row| crate::support::array_key(batch.column(0), row, terrane::schema::KeyType::Int64);
        keys.extend((0..batch.num_rows()).map(key));
    }
    Ok(keys)
}

/// Whether each dataset equals an earlier state. A log may give this if its last segment is
/// completely lost, because no later segment proves that it existed. Later manifest steps (flushes,
/// imports and schemas) are not lost with it.
fn lost_the_tail(store: &Store, plan: &Plan) -> bool {
    let (found, steps) = (state_of(store), plan.steps.len());
    let last = &plan.states[steps];
    found.len() == last.len()
        && found.iter().all(|(name, held)| {
            let mut before = (0..=steps).filter_map(|number| plan.held_under(number, steps, name));
            last.get(name).is_some_and(|last| last.columns == held.columns)
                && before.any(|(before, _)| before == held.records)
        })
}

/// Merges nothing. A merge at opening may work without the damaged part of a file, such as a
/// filter, and remove the file. Then there is nothing to notice any more.
fn unmerged() -> Options {
    let merge_policy = MergePolicy::Prefix { mergeable_bytes_max: u64::MAX, components_max: usize::MAX };
    Options { merge_policy, ..options(Durability::Power) }
}

/// Opens damaged files and compares all answers. Returns whether the damage was noticed.
fn examine(files: &Files, damaged: &str, answers: &Answers, may_lose_tail: Option<&Plan>, what: &str) -> bool {
    let tried = catch_unwind(AssertUnwindSafe(|| {
        let names_it = |error: &Error| match error {
            Error::Damaged { file, .. } if damaged.starts_with("log/") => file.starts_with("log"),
            Error::Damaged { file, .. } | Error::UnknownVersion { file, .. } => file == damaged,
            _ => false,
        };
        let store = match Store::open_on(storage_of(files), unmerged()) {
            Ok(store) => store,
            Err(error) => {
                assert!(names_it(&error), "{error}, {what}");
                return true;
            }
        };
        if may_lose_tail.is_some_and(|plan| lost_the_tail(&store, plan)) {
            let report = store.check(false).unwrap_or_else(|error| panic!("check fails: {error}, {what}"));
            assert!(report.findings.is_empty(), "{report}, {what}");
            return false;
        }
        let met = answers.compare(&store, what);
        met.iter().for_each(|error| assert!(names_it(error), "{error}, {what}"));
        let report = store.check(false).unwrap_or_else(|error| panic!("check fails: {error}, {what}"));
        assert!(met.is_empty() || !report.findings.is_empty(), "check overlooks {:?}, {what}", met[0]);
        !report.findings.is_empty()
    }));
    tried.unwrap_or_else(|_| panic!("a panic or a wrong answer: {what}"))
}

/// Damages every file whose name begins with `prefix`, in every way and region, at steps of
/// `stride`.
fn damage(prefix: &str, stride: usize, must_be_noticed: bool, default_seed: u64) {
    let (mut rng, seed) = seeded(default_seed);
    let (_, files, plan) = store(&mut rng, seed);
    let answers = Answers::of(&files, &plan, &mut rng);
    let names: Vec<&String> = files.keys().filter(|name| name.starts_with(prefix)).collect();
    assert!(!names.is_empty());
    let (mut tried, mut noticed) = (0, 0);
    let mut examine = |damaged: &str, bytes: Option<Vec<u8>>, whole: bool, what: String| {
        if bytes.as_ref() == Some(&files[damaged]) {
            return;
        }
        let mut files = files.clone();
        match bytes {
            Some(bytes) => files.insert(damaged.to_owned(), bytes),
            None => files.remove(damaged),
        };
        let what = format!("{damaged}: {what}, seed {seed}");
        let may_lose_tail = (whole && damaged.starts_with("log/")).then_some(&plan);
        let found = examine(&files, damaged, &answers, may_lose_tail, &what);
        assert!(found || !must_be_noticed, "nothing noticed: {what}");
        tried += 1;
        noticed += u32::from(found);
    };
    for name in &names {
        let original = &files[*name];
        let first = rng.random_range(0..stride);
        for offset in (first..original.len()).step_by(stride) {
            let mut bytes = original.clone();
            bytes[offset] ^= 1 << rng.random_range(0..8);
            examine(name, Some(bytes), false, format!("bit flipped in byte {offset}"));
        }
        for _ in 0..6 {
            let length = rng.random_range(0..original.len());
            examine(name, Some(original[..length].to_vec()), true, format!("cut to {length} bytes"));
            let other = &files[names[rng.random_range(0..names.len())]];
            let end = original.len().min(other.len());
            let (from, to) = (rng.random_range(0..end), rng.random_range(0..end));
            let region = rng.random_range(8..600).min(end - from.max(to));
            let mut bytes = original.clone();
            bytes[to..to + region].copy_from_slice(&other[from..from + region]);
            examine(name, Some(bytes), false, format!("{region} bytes at {to} from byte {from} of a file of its kind"));
            let mut bytes = original.clone();
            bytes[to..to + region].copy_from_slice(&other[to..to + region]);
            examine(
                name,
                Some(bytes),
                false,
                format!("{region} bytes at {to} from the same place in a file of its kind"),
            );
            examine(name, Some(vec![0; original.len()]), true, "all zeros".to_owned());
            examine(name, Some(other.clone()), true, "another file of its kind".to_owned());
        }
        examine(name, None, true, "missing".to_owned());
    }
    eprintln!("{tried} damages, {noticed} noticed");
}

#[test]
fn damaged_components_are_noticed() {
    damage("components/", 97, true, 31);
}

#[test]
fn a_damaged_manifest_is_noticed() {
    damage("MANIFEST", 11, true, 32);
}

#[test]
fn a_damaged_log_gives_an_error_or_the_same_answers() {
    damage("log/", 61, false, 33);
}

/// The exceptions: a complete older manifest, or an older log, may give an older state. It must be
/// one that the store had.
#[test]
fn older_files_give_an_error_or_an_older_state() {
    let (mut rng, seed) = seeded(34);
    let (earlier, files, plan) = store(&mut rng, seed);
    let answers = Answers::of(&files, &plan, &mut rng);
    let mut tried = 0;
    for (name, old) in earlier.iter().filter(|(name, old)| files.get(*name).is_some_and(|new| new != *old)) {
        let mut whole = files.clone();
        whole.insert(name.clone(), old.clone());
        if let Ok(store) = Store::open_on(storage_of(&whole), options(Durability::Power)) {
            let found = state_of(&store);
            assert!(plan.states.contains(&found), "{name} as it was");
        }
        let new = &files[name];
        for start in (0..new.len().min(old.len())).step_by(512) {
            let end = (start + 512).min(new.len()).min(old.len());
            let mut part = files.clone();
            part.get_mut(name).unwrap()[start..end].copy_from_slice(&old[start..end]);
            if part != files {
                tried += 1;
                examine(&part, name, &answers, None, &format!("{name}: bytes {start}..{end} as they were"));
            }
        }
    }
    assert!(tried > 0, "some file has an older version");
}

/// A copy of the store with the same id, which was written independently since.
#[test]
fn a_log_file_of_a_diverged_copy_is_noticed() {
    let (mut rng, seed) = seeded(36);
    let (_, files, _) = store(&mut rng, seed);
    let diverged = |first_key: i64| {
        let disk = storage_of(&files);
        for session in 0..3 {
            let store = Store::open_on(disk.clone(), options(Durability::Power)).unwrap();
            assert!(store.dataset(MAIN).unwrap().delete(&Key::Int(first_key + session)).unwrap());
        }
        files_of(&*disk)
    };
    let (ours, theirs) = (diverged(20_000), diverged(20_100));
    let mut replaced = 0;
    for (name, bytes) in theirs
        .iter()
        .filter(|(name, bytes)| name.starts_with("log/") && ours.get(*name).is_some_and(|own| own != *bytes))
    {
        let mixed =
            ours.iter().map(|(own, kept)| (own.clone(), if own == name { bytes } else { kept }.clone())).collect();
        let error = Store::open_on(storage_of(&mixed), options(Durability::Power)).expect_err(name);
        assert!(error.to_string().contains("log/"), "{name}: {error}");
        replaced += 1;
    }
    assert!(replaced >= 4, "the last common file and three of each copy's own");
}

#[test]
fn repair_rebuilds_a_damaged_secondary_from_an_intact_primary() {
    let (mut rng, seed) = seeded(35);
    let (_, files, plan) = store(&mut rng, seed);
    let answers = Answers::of(&files, &plan, &mut rng);
    let mut repaired = 0;
    for name in files.keys().filter(|name| name.starts_with("components/")) {
        for missing in [false, true] {
            let mut files = files.clone();
            if missing {
                files.remove(name);
            } else {
                let bytes = files.get_mut(name).unwrap();
                let offset = rng.random_range(20..bytes.len() / 2);
                bytes[offset] ^= 0xff;
            }
            let lenient = Options { lenient: true, ..options(Durability::Power) };
            let storage = storage_of(&files);
            // Opening refuses a damaged primary, or the primary remains damaged.
            let Ok(store) = Store::open_on(storage.clone(), lenient) else { continue };
            let report = store.check(true).unwrap();
            assert!(!report.findings.is_empty(), "{name}");
            if !report.is_clean() {
                assert!(report.findings.iter().any(|finding| finding.index == "primary"), "{report}");
                continue;
            }
            repaired += 1;
            assert!(answers.compare(&store, name).is_empty());
            store.close().unwrap();
            let store = Store::open_on(storage, options(Durability::Power)).unwrap();
            assert!(answers.compare(&store, name).is_empty());
            assert!(store.check(false).unwrap().findings.is_empty());
        }
    }
    assert!(repaired > 2, "{repaired} repairs");
}

/// A store whose spatial index lacks a component, with a record that the log deletes. Returns its
/// files, the component's name and bytes, and the number of records.
fn store_without_a_component() -> (Files, String, Vec<u8>, u64) {
    let disk = MemoryStorage::new();
    let store = Store::open_on(Arc::new(disk.clone()), options(Durability::Power)).unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    let at = |key: i64| Record::at(key, key as f64, 1.0, vec![Value::Null, Value::Int(key)]);
    (0..20).for_each(|key| dataset.insert(&at(key)).unwrap());
    dataset.flush().unwrap();
    dataset.delete(&Key::Int(7)).unwrap();
    dataset.insert(&at(20)).unwrap();
    drop(dataset);
    store.close().unwrap();
    let mut files = files_of(&disk);
    let name = spatial_file(&disk);
    let bytes = files.remove(&name).unwrap();
    (files, name, bytes, 20)
}

/// Restores a component's file and opens the store as usual: the index is complete.
fn put_back(disk: &Arc<dyn terrane_storage::Storage>, name: &str, bytes: &[u8], records: u64, what: &str) {
    disk.open(name, OpenMode::CreateNew).unwrap().write_all_at(bytes, 0).unwrap();
    let store = Store::open_on(disk.clone(), options(Durability::Power)).unwrap();
    let report = store.check(false).unwrap();
    assert!(report.findings.is_empty(), "{what}: {report}");
    let snapshot = store.dataset(MAIN).unwrap().snapshot();
    for query in [Query::new(), Query::new().window(-1.0, 0.0, 100.0, 2.0)] {
        assert_eq!(snapshot.count(&query).unwrap(), records, "{what}");
    }
}

/// Wherever a repair is interrupted, the manifest still names the unreadable component. So the
/// anti-matter for its entries must remain.
#[test]
fn a_delete_survives_an_interrupted_repair() {
    let (files, name, bytes, records) = store_without_a_component();
    let lenient = || Options { lenient: true, ..options(Durability::Power) };
    let mut ended = false;
    for at in 1.. {
        let disk = storage_of(&files);
        let plan = FaultPlan { at, fault: Fault::Eio, persistent: true };
        let faulty = Arc::new(FaultyStorage::with_plan(disk.clone(), plan));
        if let Ok(store) = Store::open_on(faulty.clone(), lenient()) {
            let _ = store.check(true);
        }
        ended |= faulty.faults() == 0;
        put_back(&disk, &name, &bytes, records, &format!("cut off at call {at}"));
        if ended {
            break;
        }
    }
}

/// The same holds for merges of the readable components.
#[test]
fn a_delete_survives_merges_beside_an_unreadable_component() {
    let (files, name, bytes, records) = store_without_a_component();
    let disk = storage_of(&files);
    let store = Store::open_on(disk.clone(), Options { lenient: true, ..options(Durability::Power) }).unwrap();
    store.flush().unwrap();
    store.compact().unwrap();
    store.close().unwrap();
    put_back(&disk, &name, &bytes, records, "after a merge");
}

/// Every kind of query through a spatial index with an unreadable component.
#[test]
fn queries_through_an_unreadable_index_fail() {
    let (files, name, _, records) = store_without_a_component();
    let disk = storage_of(&files);
    let lenient = || Options { lenient: true, ..options(Durability::Power) };
    let window = || Query::new().window(-1.0, 0.0, 100.0, 2.0);
    let queries = [
        window(),
        Query::new().circle(1.0, 1.0, 50.0),
        Query::new().nearest(1.0, 1.0, 5),
        window().nearest(1.0, 1.0, 5),
    ];
    let refuse = |store: &Store| {
        let snapshot = store.dataset(MAIN).unwrap().snapshot();
        let check = |error: Option<Error>| {
            let error = error.expect("the index has lost records");
            let Error::DamagedIndex { dataset, index, reason } = &error else { panic!("{error:?}") };
            assert_eq!((dataset.as_str(), index.as_str()), (MAIN, "geometry"));
            assert!(reason.contains(&name) && error.to_string().contains("terrane check --repair"), "{error}");
            assert_eq!(error.exit_code(), Error::CORRUPTION);
        };
        for query in &queries {
            check(snapshot.query(query).err());
            check(snapshot.count(query).err());
        }
        check(snapshot.visit_window(-1.0, 0.0, 100.0, 2.0, |_| ControlFlow::Continue(())).err());
        check(snapshot.visit_nearest(1.0, 1.0, 5, |_, _| ControlFlow::Continue(())).err());
        // A scan of the records still answers.
        assert_eq!(snapshot.count(&Query::new()).unwrap(), records);
        assert_eq!(
            snapshot.query(&Query::new()).unwrap().map(|batch| batch.unwrap().num_rows()).sum::<usize>(),
            records as usize
        );
        assert!(snapshot.get(&Key::Int(3)).unwrap().is_some());
        snapshot
    };
    refuse(&Store::open_read_only_on(disk.clone(), lenient()).unwrap());
    let store = Store::open_on(disk, lenient()).unwrap();
    let before = refuse(&store);
    store.flush().unwrap();
    refuse(&store);
    assert!(store.check(true).unwrap().is_clean());
    let snapshot = store.dataset(MAIN).unwrap().snapshot();
    assert_eq!(snapshot.count(&window()).unwrap(), records);
    assert_eq!(snapshot.count(&Query::new().nearest(1.0, 1.0, 5)).unwrap(), 5);
    assert!(before.count(&window()).is_err(), "a snapshot keeps the components that it was made with");
}

/// A dataset without its records answers nothing and accepts nothing. Other datasets are not
/// affected.
#[test]
fn datasets_are_read_beside_one_with_unreadable_records() {
    let disk: Arc<dyn terrane_storage::Storage> = Arc::new(MemoryStorage::new());
    let store = Store::open_on(disk.clone(), options(Durability::Power)).unwrap();
    for name in ["sound", "torn"] {
        let dataset = store.create_dataset(name, first_schema()).unwrap();
        for key in 0..20 {
            dataset.insert(&record_at(key)).unwrap();
        }
        dataset.flush().unwrap();
    }
    store.close().unwrap();
    let manifest = Manifest::read(&*disk).unwrap().unwrap();
    let torn = manifest.datasets.iter().find(|dataset| dataset.name == "torn").unwrap();
    let lost = component_name(torn.partitions[0].indexes[0].components[0].file_id);
    disk.remove(&lost).unwrap();
    let is_of_lost = |error: &Error| matches!(error, Error::Damaged { file, .. } if *file == lost);

    assert!(is_of_lost(&Store::open_on(disk.clone(), options(Durability::Power)).unwrap_err()));
    let lenient = || Options { lenient: true, ..options(Durability::Power) };
    for store in
        [Store::open_read_only_on(disk.clone(), lenient()).unwrap(), Store::open_on(disk.clone(), lenient()).unwrap()]
    {
        assert_eq!(store.damage().len(), 1);
        let sound = store.dataset("sound").unwrap().snapshot();
        assert_eq!(keys_of(&sound, &Query::new()).len(), 20);
        let torn = store.dataset("torn").unwrap();
        let snapshot = torn.snapshot();
        assert!(is_of_lost(&snapshot.get(&Key::Int(3)).unwrap_err()));
        assert!(is_of_lost(&scan(&snapshot, &Query::new()).unwrap_err()));
        assert!(is_of_lost(&snapshot.count(&Query::new()).unwrap_err()));
        // The spatial index is complete, and has the keys.
        let window = Query::new().window(-90.0, -90.0, 90.0, 90.0);
        assert_eq!(scan(&snapshot, &window).unwrap().len(), 20);
        let refused = snapshot.query(&window).and_then(|rows| rows.collect::<Result<Vec<_>, _>>()).unwrap_err();
        assert!(is_of_lost(&refused));
        let report = store.check(false).unwrap();
        assert_eq!((report.datasets, report.findings.len()), (2, 1), "{report}");
    }
    let store = Store::open_on(disk.clone(), lenient()).unwrap();
    let torn = store.dataset("torn").unwrap();
    assert!(is_of_lost(&torn.insert(&record_at(50)).unwrap_err()));
    assert!(is_of_lost(&torn.upsert(&record_at(3)).unwrap_err()));
    assert!(is_of_lost(&torn.delete(&Key::Int(3)).unwrap_err()));
    store.dataset("sound").unwrap().insert(&record_at(50)).unwrap();
    let report = store.check(true).unwrap();
    assert!(report.findings.len() == 1 && !report.is_clean(), "{report}");
}

#[test]
fn a_check_after_a_repair_is_clean_through_the_same_handle() {
    let (files, ..) = store_without_a_component();
    let lenient = Options { lenient: true, ..options(Durability::Power) };
    let store = Store::open_on(storage_of(&files), lenient).unwrap();
    assert_eq!(store.check(true).unwrap().findings.len(), 1);
    let report = store.check(false).unwrap();
    assert!(report.findings.is_empty(), "{report}");
}
