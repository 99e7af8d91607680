//! Imports: keys in any order, duplicates, existing records, concurrent writers.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::workload::{MAIN, batch, first_schema};
use crate::support::{keys_of, record, seeded, small_options};
use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use terrane::schema::{KeyColumn, KeyType, Schema};
use terrane::{
    CoordinateSystem, Error, Geometry, Importer, Key, OnConflict, Options, Query, Record, RefusedRow, Result, Store,
    Value,
};
use terrane_lsm::manifest::Manifest;
use terrane_storage::{Operation, RealStorage, Storage};
use terrane_testkit::hook::HookedStorage;
use terrane_testkit::{FaultyStorage, MemoryStorage};

fn store() -> (MemoryStorage, Store) {
    let disk = MemoryStorage::new();
    let store = Store::open_on(Arc::new(disk.clone()), small_options()).unwrap();
    (disk, store)
}

fn import(store: &Store, records: &[Record]) -> Result<(u64, Vec<RefusedRow>)> {
    let mut importer = store.importer(MAIN, first_schema())?;
    let mut refused = Vec::new();
    let mut start = 0;
    for chunk in records.chunks(997) {
        let rows = importer.push(&batch(&first_schema(), chunk))?;
        refused.extend(rows.into_iter().map(|row| RefusedRow { row: start + row.row, ..row }));
        start += chunk.len();
    }
    let report = importer.finish(&mut |row| {
        refused.push(row);
        Ok(())
    })?;
    assert_eq!(report.refused, refused.len() as u64);
    Ok((report.records, refused))
}

/// Asserts that the dataset holds exactly these records, and every index agrees.
fn verify(store: &Store, model: &BTreeMap<i64, Record>) {
    let snapshot = store.dataset(MAIN).unwrap().snapshot();
    let keys = keys_of(&snapshot, &Query::new());
    assert_eq!(keys, model.keys().map(|key| Key::Int(*key)).collect::<Vec<_>>());
    for record in model.values().step_by(1 + model.len() / 500) {
        assert_eq!(snapshot.get(&record.key).unwrap().as_ref(), Some(record));
    }
    let report = store.check(false).unwrap();
    assert!(report.findings.is_empty(), "{report}");
    assert_eq!(report.records, model.len() as u64);
    let files = report.components as usize;
    assert!(files <= 4 * snapshot.schema().columns.len() + 8, "{files} components");
}

fn key_of(record: &Record) -> i64 {
    match record.key {
        Key::Int(key) => key,
        _ => panic!("integer keys"),
    }
}

fn large(rng: &mut SmallRng, key: i64) -> Record {
    let mut record = record(rng, Key::Int(key), true);
    record.values[0] = Value::Utf8("n".repeat(rng.random_range(0..600)));
    record
}

/// The remaining records, and the rows whose key an earlier row has.
fn first_of_each(records: &[Record], existing: &BTreeMap<i64, Record>) -> (BTreeMap<i64, Record>, Vec<usize>) {
    let (mut model, mut refused) = (existing.clone(), Vec::new());
    for (row, record) in records.iter().enumerate() {
        match model.entry(key_of(record)) {
            Entry::Vacant(entry) => {
                entry.insert(record.clone());
            }
            Entry::Occupied(_) => refused.push(row),
        }
    }
    (model, refused)
}

fn rows_of(refused: &[RefusedRow]) -> Vec<usize> {
    assert!(refused.iter().all(|row| matches!(row.error, Error::DuplicateKey { .. })), "{refused:?}");
    let mut rows: Vec<usize> = refused.iter().map(|row| row.row).collect();
    rows.sort_unstable();
    rows
}

#[test]
fn unsorted_keys_in_several_spilled_runs_keep_the_first_of_each() {
    let (mut rng, _) = seeded(51);
    let (disk, store) = store();
    let mut records: Vec<Record> = (0..20_000).map(|key| large(&mut rng, key)).collect();
    for _ in 0..300 {
        let key = rng.random_range(0..20_000);
        records.push(large(&mut rng, key));
    }
    records.shuffle(&mut rng);
    let mut importer = store.importer(MAIN, first_schema()).unwrap();
    importer.push(&batch(&first_schema(), &records)).unwrap();
    assert!(disk.list("components").unwrap().len() > 2, "several runs are spilled");
    drop(importer);
    assert!(disk.list("components").unwrap().is_empty(), "a dropped importer leaves nothing");
    let (taken, refused) = import(&store, &records).unwrap();
    let (model, wanted) = first_of_each(&records, &BTreeMap::new());
    assert_eq!(taken, model.len() as u64);
    assert_eq!(rows_of(&refused), wanted);
    verify(&store, &model);
    assert_eq!(disk.list("components").unwrap().len(), 2, "runs are removed");
}

#[test]
fn keys_of_existing_records_are_refused_by_row() {
    let (mut rng, _) = seeded(52);
    for ascending in [true, false] {
        let (_, store) = store();
        let first: Vec<Record> = (0..500).map(|key| large(&mut rng, key * 3)).collect();
        import(&store, &first).unwrap();
        let dataset = store.dataset(MAIN).unwrap();
        let (mut model, _) = first_of_each(&first, &BTreeMap::new());
        dataset.insert(&large(&mut rng, 1)).unwrap();
        model.insert(1, dataset.get(&Key::Int(1)).unwrap().unwrap());
        dataset.delete(&Key::Int(3)).unwrap();
        model.remove(&3);
        let mut records: Vec<Record> = (0..400).map(|key| large(&mut rng, key * 2 - 9)).collect();
        // Rows that are refused at once, so that row numbers and positions in a run differ.
        records.insert(5, records[4].clone());
        records.insert(90, records[89].clone());
        if !ascending {
            records.shuffle(&mut rng);
        }
        let (wanted_model, wanted) = first_of_each(&records, &model);
        let (_, refused) = import(&store, &records).unwrap();
        assert_eq!(rows_of(&refused), wanted, "ascending {ascending}");
        verify(&store, &wanted_model);
    }
}

#[test]
fn an_import_abandoned_on_a_refused_row_changes_nothing() {
    let (mut rng, _) = seeded(53);
    let (disk, store) = store();
    let first: Vec<Record> = (0..50).map(|key| large(&mut rng, key)).collect();
    import(&store, &first).unwrap();
    let files = disk.list("components").unwrap();
    let mut importer = store.importer(MAIN, first_schema()).unwrap();
    let records: Vec<Record> = (40..90).rev().map(|key| large(&mut rng, key)).collect();
    importer.push(&batch(&first_schema(), &records)).unwrap();
    let outcome = importer.finish(&mut |row| Err(row.error));
    assert!(matches!(outcome, Err(Error::DuplicateKey { .. })), "{outcome:?}");
    assert_eq!(disk.list("components").unwrap(), files);
    verify(&store, &first_of_each(&first, &BTreeMap::new()).0);
}

#[test]
fn records_without_geometry_are_kept_and_not_indexed() {
    let (mut rng, _) = seeded(54);
    let (_, store) = store();
    let mut records: Vec<Record> = (0..100).map(|key| large(&mut rng, key)).collect();
    records.iter_mut().step_by(2).for_each(|record| record.geometry = None::<Geometry>);
    import(&store, &records).unwrap();
    let (model, _) = first_of_each(&records, &BTreeMap::new());
    verify(&store, &model);
    let placed = model.values().filter(|record| record.geometry.is_some()).count() as u64;
    let everywhere = Query::new().window(-100.0, -100.0, 100.0, 100.0);
    assert_eq!(store.dataset(MAIN).unwrap().snapshot().count(&everywhere).unwrap(), placed);
}

/// The manifest has the sequence numbers of each component's records, including imported ones.
#[test]
fn components_have_the_sequence_numbers_of_their_records() {
    let (disk, store) = store();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    let (mut rng, _) = seeded(71);
    let ranges = || -> Vec<Vec<(u64, u64)>> {
        let manifest = Manifest::read(&disk).unwrap().unwrap();
        let indexes = manifest.datasets.iter().flat_map(|dataset| &dataset.partitions).flat_map(|part| &part.indexes);
        indexes.map(|index| index.components.iter().map(|meta| meta.statistics.sequence).collect()).collect()
    };
    for key in 0..2 {
        dataset.insert(&record(&mut rng, Key::Int(key), true)).unwrap();
    }
    dataset.flush().unwrap();
    let imported: Vec<Record> = (10..13).map(|key| record(&mut rng, Key::Int(key), true)).collect();
    import(&store, &imported).unwrap();
    assert_eq!(ranges(), vec![vec![(3, 3), (1, 2)]; 2]);
    // Also after reopening, and after a merge with others.
    drop((dataset, store));
    let store = Store::open_on(Arc::new(disk.clone()), small_options()).unwrap();
    store.dataset(MAIN).unwrap().compact().unwrap();
    assert_eq!(ranges(), vec![vec![(1, 3)]; 2]);
}

#[test]
fn generated_keys_continue_after_the_largest() {
    let (mut rng, _) = seeded(55);
    let (_, store) = store();
    let first = first_schema();
    let key = KeyColumn { generated: true, ..first.key.clone() };
    let schema = Schema::new(key, first.geometry.clone(), first.system, first.columns.clone()).unwrap();
    let records: Vec<Record> = (0..30).map(|key| large(&mut rng, key)).collect();
    let whole = batch(&first_schema(), &records);
    let without_key = whole.project(&(1..whole.num_columns()).collect::<Vec<_>>()).unwrap();
    let mut ends = Vec::new();
    for _ in 0..3 {
        let mut importer = store.importer(MAIN, schema.clone()).unwrap();
        assert!(importer.push(&without_key).unwrap().is_empty());
        assert_eq!(importer.finish(&mut |row| Err(row.error)).unwrap().records, 30);
        ends.push(keys_of(&store.dataset(MAIN).unwrap().snapshot(), &Query::new()).len());
    }
    assert_eq!(ends, [30, 60, 90]);
    let outcome = store.dataset(MAIN).unwrap().write_batch(&without_key, Default::default()).unwrap();
    assert_eq!((outcome.keys.len(), outcome.refused.len()), (30, 0));
    assert!(store.check(false).unwrap().findings.is_empty());
}

/// Pushes records, runs `meanwhile`, and finishes.
fn finish_after(mut importer: Importer, records: &[Record], meanwhile: impl FnOnce()) -> Result<u64> {
    importer.push(&batch(&first_schema(), records))?;
    meanwhile();
    Ok(importer.finish(&mut |row| Err(row.error))?.records)
}

#[test]
fn records_inserted_while_an_import_runs_stay() {
    let (mut rng, _) = seeded(56);
    let (_, store) = store();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    let records: Vec<Record> = (0..200).map(|key| large(&mut rng, key)).collect();
    let (inserted, refused) = (large(&mut rng, 1000), large(&mut rng, 100));
    let importer = store.importer(MAIN, first_schema()).unwrap();
    finish_after(importer, &records, || {
        dataset.insert(&inserted).unwrap();
        dataset.upsert(&large(&mut rng, 7)).unwrap();
        dataset.delete(&Key::Int(7)).unwrap();
    })
    .unwrap();
    let (mut model, _) = first_of_each(&records, &BTreeMap::new());
    model.insert(1000, inserted);
    verify(&store, &model);
    assert!(matches!(dataset.insert(&refused), Err(Error::DuplicateKey { .. })));
}

/// The outcome of an import whose keys lie between existing ones, and the number of component pages
/// that it reads while writers wait. `meanwhile` runs just before, when all files of the import are
/// written.
fn reads_of_installing(records: &[Record], meanwhile: impl FnOnce(&Store)) -> (usize, Result<u64>) {
    let (mut rng, _) = seeded(59);
    let storage = Arc::new(FaultyStorage::new(Arc::new(MemoryStorage::new())));
    let store = Store::open_on(storage.clone(), small_options()).unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    for part in 0..2 {
        // Even keys, so that the import's keys lie between them.
        let existing: Vec<Record> = (0..4000).map(|key| large(&mut rng, 2 * (4000 * part + key))).collect();
        dataset.write_batch(&batch(&first_schema(), &existing), OnConflict::Refuse).unwrap();
        store.flush().unwrap();
    }
    let mut importer = store.importer(MAIN, first_schema()).unwrap();
    importer.push(&batch(&first_schema(), records)).unwrap();
    let mut meanwhile = Some(meanwhile);
    let report = importer.finish_after(&mut |row| Err(row.error), &mut |_| {
        if let Some(meanwhile) = meanwhile.take() {
            meanwhile(&store);
        }
        storage.record_calls();
        Ok(())
    });
    let calls = storage.recorded_calls();
    let reads = calls.iter().filter(|call| call.operation == Operation::Read && call.name.starts_with("components/"));
    (reads.count(), report.map(|report| report.records))
}

#[test]
fn installing_an_import_reads_only_pages_near_its_keys() {
    const PAGES_MAX: usize = 40;
    let (mut rng, _) = seeded(60);
    let records: Vec<Record> = (0..10).map(|key| large(&mut rng, 8001 + 2 * key)).collect();
    let (reads, imported) = reads_of_installing(&records, |store| store.compact().unwrap());
    assert_eq!(imported.unwrap(), 10);
    assert!(reads < PAGES_MAX, "{reads} pages of what was only merged");
    let (reads, imported) = reads_of_installing(&records, |store| {
        store.dataset(MAIN).unwrap().insert(&large(&mut seeded(61).0, 8000 * 2)).unwrap();
        store.compact().unwrap();
    });
    assert_eq!(imported.unwrap(), 10);
    assert!(reads < PAGES_MAX, "{reads} pages of what another key was merged into");
    let wide = [large(&mut rng, 1), large(&mut rng, 15_999)];
    let (reads, imported) = reads_of_installing(&wide, |store| store.compact().unwrap());
    assert_eq!(imported.unwrap(), 2);
    assert!(reads < PAGES_MAX, "{reads} pages of what was only merged, between the first key and the last");
}

/// A key written or imported meanwhile is noticed, even if it was merged with existing records.
#[test]
fn a_key_written_meanwhile_is_noticed_in_merged_components() {
    let (mut rng, _) = seeded(62);
    let records: Vec<Record> = (0..10).map(|key| large(&mut rng, 8001 + 2 * key)).collect();
    for key in [8001, 8009, 8019] {
        let other = large(&mut rng, key);
        let (_, inserted) = reads_of_installing(&records, |store| {
            store.dataset(MAIN).unwrap().insert(&other).unwrap();
            store.flush().unwrap();
            store.compact().unwrap();
        });
        assert!(matches!(inserted, Err(Error::DuplicateKey { .. })), "{inserted:?}");
        let (_, imported) = reads_of_installing(&records, |store| {
            import(store, std::slice::from_ref(&other)).unwrap();
            store.compact().unwrap();
        });
        assert!(matches!(imported, Err(Error::DuplicateKey { .. })), "{imported:?}");
    }
}

#[test]
fn an_import_into_a_dataset_created_meanwhile_is_refused() {
    let (mut rng, _) = seeded(57);
    let (disk, store) = store();
    let records: Vec<Record> = (0..20).map(|key| large(&mut rng, key)).collect();
    let importer = store.importer(MAIN, first_schema()).unwrap();
    let outcome = finish_after(importer, &records, || {
        store.create_dataset(MAIN, first_schema()).unwrap();
    });
    assert!(matches!(outcome, Err(Error::Usage(_))), "{outcome:?}");
    assert!(disk.list("components").unwrap().is_empty());
    verify(&store, &BTreeMap::new());
}

#[test]
fn imports_race_with_writers() {
    let (mut rng, seed) = seeded(58);
    let options = Options { background: true, ..small_options() };
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    let imports: Vec<Vec<Record>> = (0..12i64)
        .map(|round| (0..300).map(|key| large(&mut rng, 10_000 + round * 300 + key)).rev().collect())
        .collect();
    let writers: Vec<Vec<Record>> =
        (0..4i64).map(|writer| (0..400).map(|key| large(&mut rng, writer * 400 + key)).collect()).collect();
    std::thread::scope(|scope| {
        for records in &writers {
            let dataset = dataset.clone();
            scope.spawn(move || records.iter().for_each(|record| dataset.insert(record).unwrap()));
        }
        for records in &imports {
            assert_eq!(import(&store, records).unwrap_or_else(|error| panic!("{error}, seed {seed}")).0, 300);
        }
    });
    let all: Vec<Record> = writers.into_iter().chain(imports).flatten().collect();
    store.compact().unwrap();
    verify(&store, &first_of_each(&all, &BTreeMap::new()).0);
}

/// Maximal number of component files that an import may have open.
const OPEN_MAX: usize = 24;

/// Number of open files of this process in a directory.
fn open_files(components: &Path) -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| fd.unwrap().path().read_link().ok());
    links.filter(|path| path.starts_with(components)).count()
}

/// A store on disk, the directory of its components, and the maximal number of its open files,
/// counted at each creation of a file.
fn counting_store(directory: &Path) -> (Store, PathBuf, Arc<AtomicUsize>) {
    let disk = Arc::new(HookedStorage::new(Arc::new(RealStorage::new(directory))));
    let store = Store::open_on(disk.clone(), small_options()).unwrap();
    let components = directory.canonicalize().unwrap().join("components");
    let open_max = Arc::new(AtomicUsize::new(0));
    let (counted, counter) = (components.clone(), open_max.clone());
    disk.on_create(move |_| {
        counter.fetch_max(open_files(&counted), Ordering::Relaxed);
    });
    (store, components, open_max)
}

/// An import merges a bounded number of runs at once, however many it spills.
#[cfg(target_os = "linux")]
#[test]
fn many_spilled_runs_are_merged_with_few_open_files() {
    let (mut rng, _) = seeded(59);
    let directory = tempfile::tempdir().unwrap();
    let (store, components, open_max) = counting_store(directory.path());
    let mut importer = store.importer(MAIN, first_schema()).unwrap();
    let mut all = Vec::new();
    for round in 0..80 {
        // Some keys recur in a later run, and one in nearly all.
        let mut keys: Vec<i64> = (0..16).map(|number| round * 13 + number).chain([-7]).collect();
        keys.shuffle(&mut rng);
        let records = keys.into_iter().map(|key| {
            let mut record = record(&mut rng, Key::Int(key), true);
            record.values[0] = Value::Utf8("n".repeat(60_000));
            record
        });
        let records: Vec<Record> = records.collect();
        importer.push(&batch(&first_schema(), &records)).unwrap();
        all.extend(records);
    }
    let runs = std::fs::read_dir(&components).unwrap().count();
    assert!(runs > OPEN_MAX, "{runs} runs");
    let mut refused = Vec::new();
    importer
        .finish(&mut |row| {
            refused.push(row);
            open_max.fetch_max(open_files(&components), Ordering::Relaxed);
            Ok(())
        })
        .unwrap();
    let open_max = open_max.load(Ordering::Relaxed);
    assert!(open_max <= OPEN_MAX, "{open_max} files are open for {runs} runs");
    let (model, wanted) = first_of_each(&all, &BTreeMap::new());
    assert_eq!(rows_of(&refused), wanted);
    verify(&store, &model);
    assert_eq!(std::fs::read_dir(&components).unwrap().count(), 2, "runs are removed");
}

/// With ascending keys, the primary is one run. The boxes, in curve order, are many.
#[cfg(target_os = "linux")]
#[test]
fn many_runs_of_the_spatial_index_are_merged_with_few_open_files() {
    let directory = tempfile::tempdir().unwrap();
    let (store, components, open_max) = counting_store(directory.path());
    let schema = crate::support::schema(KeyType::Utf8, true, CoordinateSystem::Planar);
    let mut importer = store.importer(MAIN, schema.clone()).unwrap();
    const RECORDS: u64 = 60_000;
    for first in (0..RECORDS).step_by(1000) {
        let records: Vec<Record> = (first..first + 1000)
            .map(|number| {
                let place = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
                Record::at(format!("{number:01000}"), place as f64, 1.0, vec![Value::Null, Value::Null])
            })
            .collect();
        assert!(importer.push(&batch(&schema, &records)).unwrap().is_empty());
    }
    importer.finish(&mut |row| Err(row.error)).unwrap();
    let open_max = open_max.load(Ordering::Relaxed);
    assert!(open_max > OPEN_MAX / 2, "{open_max} files were open: too few runs to tell anything");
    assert!(open_max <= OPEN_MAX, "{open_max} files were open");
    let everywhere = Query::new().window(-1.0, 0.0, 1e9, 2.0);
    assert_eq!(store.dataset(MAIN).unwrap().snapshot().count(&everywhere).unwrap(), RECORDS);
    assert!(store.check(false).unwrap().findings.is_empty());
    assert_eq!(std::fs::read_dir(&components).unwrap().count(), 2, "runs are removed");
}
