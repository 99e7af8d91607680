//! A dropped dataset disappears at once and for good. Its name is free, and its id is never reused.
//! Its files and memory are released. Its users get an error.

use std::sync::Arc;

use crate::support::files::{files_of, storage_of};
use crate::support::small_options;
use crate::support::workload::{SIDE, batch, first_schema, schema_of};
use arrow_array::RecordBatch;
use terrane::schema::{Column, ColumnType};
use terrane::{
    BatchOutcome, Dataset, DatasetOptions, Durability, Error, IndexKind, Join, JoinOn, Key, OnConflict, Options, Query,
    Record, Store, Value,
};
use terrane_lsm::manifest::Manifest;
use terrane_storage::Storage;
use terrane_testkit::MemoryStorage;
use terrane_testkit::hook::HookedStorage;

const KEPT: &str = "kept";
const GONE: &str = "gone";

fn memory() -> Arc<dyn Storage> {
    Arc::new(MemoryStorage::new())
}

fn open(storage: &Arc<dyn Storage>) -> Store {
    Store::open_on(storage.clone(), small_options()).unwrap()
}

fn at(key: i64) -> Record {
    Record::at(key, key as f64, 1.0, vec![Value::Utf8("n".repeat(50)), Value::Int(key)])
}

fn fill(dataset: &Dataset, keys: std::ops::Range<i64>) {
    keys.for_each(|key| dataset.insert(&at(key)).unwrap());
}

fn count(dataset: &Dataset) -> u64 {
    dataset.count(&Query::new()).unwrap()
}

fn assert_sound(store: &Store) {
    let report = store.check(false).unwrap();
    assert!(report.findings.is_empty(), "{report}");
}

fn rows(keys: &[i64]) -> RecordBatch {
    batch(&first_schema(), &keys.iter().map(|&key| at(key)).collect::<Vec<_>>())
}

fn is_dropped<T: std::fmt::Debug>(outcome: terrane::Result<T>) {
    assert!(matches!(outcome, Err(Error::Dropped { .. })), "{outcome:?}");
}

/// A store with two datasets, one of them partitioned, with records on disk and in memory.
fn two(storage: &Arc<dyn Storage>) -> (Store, Dataset, Dataset) {
    let store = open(storage);
    let kept = store.create_dataset(KEPT, first_schema()).unwrap();
    let gone = store.create_dataset_with(GONE, first_schema(), &DatasetOptions { partitions: 3 }).unwrap();
    for dataset in [&kept, &gone] {
        fill(dataset, 0..20);
        dataset.flush().unwrap();
        fill(dataset, 20..40);
    }
    (store, kept, gone)
}

#[test]
fn its_name_is_free_at_once_for_records_of_another_schema() {
    let storage = memory();
    let (store, kept, gone) = two(&storage);
    drop(gone);
    let unknown = store.drop_dataset("gnoe").unwrap_err();
    assert!(matches!(&unknown, Error::UnknownDataset { existing, .. } if *existing == [GONE, KEPT]), "{unknown}");
    assert_eq!(unknown.exit_code(), Error::USAGE);
    store.drop_dataset(GONE).unwrap();
    assert_eq!(store.dataset_names(), [KEPT]);
    assert!(matches!(store.dataset(GONE), Err(Error::UnknownDataset { .. })));
    assert!(matches!(store.drop_dataset(GONE), Err(Error::UnknownDataset { .. })));
    assert_sound(&store);
    let anew = store.create_dataset(GONE, schema_of(SIDE)).unwrap();
    assert_eq!((anew.schema().columns.len(), count(&anew), count(&kept)), (2, 0, 40));
    anew.insert(&Record { key: Key::Int(7), geometry: None, values: vec![Value::Null, Value::Int(1)] }).unwrap();
    drop((anew, kept));
    store.close().unwrap();
    let store = open(&storage);
    assert_eq!((count(&store.dataset(GONE).unwrap()), count(&store.dataset(KEPT).unwrap())), (1, 40));
    assert_sound(&store);
}

/// The log still has its entries, with its id.
#[test]
fn its_log_entries_are_skipped_and_its_id_is_never_reused() {
    let ids = |storage: &Arc<dyn Storage>| {
        let manifest = Manifest::read(&**storage).unwrap().unwrap();
        (manifest.datasets.iter().map(|dataset| dataset.id).collect::<Vec<_>>(), manifest.next_dataset_id)
    };
    let storage = memory();
    let (store, kept, gone) = two(&storage);
    assert_eq!(ids(&storage), (vec![1, 2], 3));
    store.drop_dataset(GONE).unwrap();
    fill(&kept, 40..50);
    // The state after a kill.
    let killed = storage_of(&files_of(&*storage));
    drop((store, kept, gone));
    for storage in [storage, killed] {
        let reader = Store::open_read_only_on(storage.clone(), small_options()).unwrap();
        assert_eq!(count(&reader.dataset(KEPT).unwrap()), 50);
        drop(reader);
        let store = open(&storage);
        assert_eq!((store.dataset_names(), count(&store.dataset(KEPT).unwrap())), (vec![KEPT.to_owned()], 50));
        let anew = store.create_dataset(GONE, first_schema()).unwrap();
        assert_eq!((ids(&storage), count(&anew)), ((vec![1, 3], 4), 0));
        fill(&anew, 0..5);
        let killed = storage_of(&files_of(&*storage));
        let store = open(&killed);
        assert_eq!(count(&store.dataset(GONE).unwrap()), 5);
        assert_sound(&store);
    }
}

#[test]
fn open_handles_feeds_and_batches_fail_as_dropped() {
    let storage = memory();
    let (store, kept, gone) = two(&storage);
    let mut feed = gone.feed("source").unwrap();
    let mut outcome = BatchOutcome::default();
    feed.write_batch(&rows(&[100]), &[7], OnConflict::Refuse, &mut outcome).unwrap();
    let mut atomic = gone.atomic_batch();
    atomic.insert(&at(101)).unwrap();
    let mut importer = store.importer(GONE, first_schema()).unwrap();
    importer.push(&rows(&[102])).unwrap();
    store.drop_dataset(GONE).unwrap();
    // Also if another dataset has taken the name.
    let anew = store.create_dataset(GONE, first_schema()).unwrap();
    is_dropped(gone.insert(&at(103)));
    is_dropped(gone.upsert(&at(103)));
    is_dropped(gone.delete(&Key::Int(0)));
    is_dropped(gone.write_batch(&rows(&[104]), OnConflict::Refuse));
    is_dropped(gone.delete_where(&"size = 1".parse().unwrap(), &[]));
    is_dropped(atomic.commit());
    is_dropped(feed.write_batch(&rows(&[105]), &[8], OnConflict::Refuse, &mut outcome));
    is_dropped(feed.pass(9));
    is_dropped(feed.restart(0, None));
    is_dropped(gone.feed("other"));
    is_dropped(importer.finish(&mut |_| Ok(())));
    is_dropped(gone.add_column(Column::new("more", ColumnType::Int64)));
    is_dropped(gone.widen_column("size"));
    is_dropped(gone.create_index("by-size", IndexKind::BTree, &["size"]));
    is_dropped(gone.drop_index("by-size"));
    is_dropped(gone.build_indexes());
    is_dropped(gone.set_merge_policy(None));
    is_dropped(gone.flush());
    is_dropped(gone.compact());
    is_dropped(gone.get(&Key::Int(0)));
    is_dropped(gone.count(&Query::new()));
    is_dropped(gone.count(&Query::new().window(0.0, 0.0, 9.0, 9.0)));
    is_dropped(gone.query(&Query::new().nearest(0.0, 0.0, 3)).and_then(|rows| rows.collect::<Result<Vec<_>, _>>()));
    is_dropped(gone.snapshot().visit_window(0.0, 0.0, 9.0, 9.0, |_| std::ops::ControlFlow::Continue(())));
    is_dropped(gone.snapshot().visit_nearest(0.0, 0.0, 3, |_, _| std::ops::ControlFlow::Continue(())));
    is_dropped(kept.snapshot().get(&Key::Int(0)).and_then(|_| gone.snapshot().get(&Key::Int(0))));
    assert_eq!((count(&anew), count(&kept)), (0, 40));
    drop((feed, gone, anew));
    assert_sound(&store);
}

#[test]
fn existing_snapshots_can_be_read_and_keep_the_files() {
    let storage = memory();
    let (store, kept, gone) = two(&storage);
    drop(kept);
    let files = || storage.list("components").unwrap().len();
    let of_kept = 2;
    let snapshot = gone.snapshot();
    let reader = Store::open_read_only_on(storage.clone(), small_options()).unwrap();
    store.drop_dataset(GONE).unwrap();
    drop(gone);
    assert!(files() > of_kept);
    let window = Query::new().window(-1.0, 0.0, 29.5, 2.0);
    for _ in 0..2 {
        assert_eq!((snapshot.count(&Query::new()).unwrap(), snapshot.count(&window).unwrap()), (40, 30));
        assert_eq!(snapshot.get(&Key::Int(33)).unwrap(), Some(at(33)));
        // They do not rely on unaccounted memory.
        store.dataset(KEPT).unwrap().compact().unwrap();
    }
    let theirs = reader.dataset(GONE).unwrap();
    assert_eq!((count(&theirs), theirs.count(&window).unwrap()), (40, 30));
    drop(snapshot);
    assert_eq!(files(), of_kept, "the last reader here has taken them along");
    assert_eq!(count(&theirs), 40, "a reader in another process has them open");
    assert_sound(&store);
}

#[test]
fn memory_and_disk_are_freed_after_the_last_reader() {
    let storage = memory();
    let (store, kept, gone) = two(&storage);
    let memory = || store.info().unwrap().datasets.iter().map(|dataset| dataset.memory_bytes).sum::<u64>();
    let before = memory();
    let flushes = store.maintenance().flushes;
    store.drop_dataset(GONE).unwrap();
    let after = memory();
    assert!(after < before && after > 0, "{after} of {before}");
    assert_eq!(store.maintenance().flushes, flushes, "a dropped dataset is not flushed before");
    assert_eq!(storage.list("components").unwrap().len(), 2);
    // Handles keep no memory or files.
    drop((gone, kept));
    store.drop_dataset(KEPT).unwrap();
    assert_eq!((memory(), storage.list("components").unwrap().len()), (0, 0));
}

/// The log has none of its row numbers any more, and no other dataset has such high ones.
#[test]
fn its_numbers_are_not_reused() {
    let (storage, backup) = (memory(), memory());
    let (store, _kept, gone) = two(&storage);
    for round in 0..40 {
        fill(&gone, 100 * round + 100..100 * round + 120);
    }
    let sequence = store.info().unwrap().sequence;
    let before = store.backup_to(backup.clone(), None).unwrap();
    assert_eq!(before.sequence, sequence);
    store.drop_dataset(GONE).unwrap();
    store.dataset(KEPT).unwrap().flush().unwrap();
    let killed = storage_of(&files_of(&*storage));
    let store = open(&killed);
    assert_eq!(store.info().unwrap().sequence, sequence);
    assert!(store.backup_to(backup, None).unwrap().sequence >= sequence);
}

/// Runs `work`, and drops the dataset during it, when a component file is created for the `at`-th
/// time.
fn dropped_during(at: usize, work: impl Fn(&Dataset) -> terrane::Result<()>) -> terrane::Result<()> {
    let inner = memory();
    let storage = Arc::new(HookedStorage::new(inner.clone()));
    let hooked: Arc<dyn Storage> = storage.clone();
    let (store, kept, gone) = two(&hooked);
    for key in 0..5 {
        fill(&gone, 200 + 10 * key..205 + 10 * key);
        gone.flush().unwrap();
    }
    fill(&gone, 300..305);
    let store = Arc::new(store);
    let mut created = 0;
    let dropping = store.clone();
    storage.on_create(move |name| {
        created += usize::from(name.starts_with("components/"));
        if created == at {
            created += 1;
            dropping.drop_dataset(GONE).unwrap();
        }
    });
    let outcome = work(&gone);
    storage.unhook();
    assert_eq!(store.dataset_names(), [KEPT]);
    assert_eq!(count(&kept), 40);
    drop(gone);
    let named: usize = Manifest::read(&*inner).unwrap().unwrap().components().count();
    assert_eq!(inner.list("components").unwrap().len(), named, "no file is left of it");
    assert_sound(&store);
    kept.flush().unwrap();
    store.compact().unwrap();
    let reopened = open(&storage_of(&files_of(&*inner)));
    assert_eq!(count(&reopened.dataset(KEPT).unwrap()), 40);
    outcome
}

#[test]
fn running_flushes_and_merges_install_nothing() {
    for at in [1, 4] {
        dropped_during(at, Dataset::flush).unwrap();
    }
    // After the flush of the memory components, which creates two files per partition.
    for at in [7, 9] {
        dropped_during(at, Dataset::compact).unwrap();
    }
}

#[test]
fn a_running_index_build_ends_as_dropped() {
    for at in [1, 3] {
        is_dropped(dropped_during(at, |gone| gone.create_index("by-size", IndexKind::BTree, &["size"])));
    }
}

#[test]
fn a_backup_continues_over_a_drop() {
    let (storage, backup) = (memory(), memory());
    let (store, kept, gone) = two(&storage);
    let restored = |point: &str| {
        let place = memory();
        Store::restore_on(&backup, place.clone(), Some(point), &small_options()).unwrap();
        let store = open(&place);
        assert_sound(&store);
        let names = store.dataset_names();
        names.into_iter().map(|name| (count(&store.dataset(&name).unwrap()), name)).collect::<Vec<_>>()
    };
    let whole = store.backup_to(backup.clone(), None).unwrap().point;
    store.drop_dataset(GONE).unwrap();
    fill(&kept, 40..45);
    let without = store.backup_to(backup.clone(), None).unwrap().point;
    let anew = store.create_dataset(GONE, first_schema()).unwrap();
    fill(&anew, 0..3);
    let with_another = store.backup_to(backup.clone(), None).unwrap().point;
    anew.flush().unwrap();
    fill(&anew, 3..4);
    let last = store.backup_to(backup.clone(), None).unwrap().point;
    drop(gone);
    assert_eq!(restored(&whole), [(40, GONE.to_owned()), (40, KEPT.to_owned())]);
    assert_eq!(restored(&without), [(45, KEPT.to_owned())]);
    assert_eq!(restored(&with_another), [(3, GONE.to_owned()), (45, KEPT.to_owned())]);
    assert_eq!(restored(&last), [(4, GONE.to_owned()), (45, KEPT.to_owned())]);
}

#[test]
fn a_store_without_a_log_drops_datasets_as_well() {
    let storage = memory();
    let options = Options { durability: Some(Durability::None), ..small_options() };
    let store = Store::open_on(storage.clone(), options.clone()).unwrap();
    let kept = store.create_dataset(KEPT, first_schema()).unwrap();
    let gone = store.create_dataset(GONE, first_schema()).unwrap();
    fill(&kept, 0..5);
    fill(&gone, 0..5);
    store.drop_dataset(GONE).unwrap();
    drop((kept, gone));
    store.close().unwrap();
    let store = Store::open_on(storage, options).unwrap();
    assert_eq!((store.dataset_names(), count(&store.dataset(KEPT).unwrap())), (vec![KEPT.to_owned()], 5));
}

#[test]
fn a_join_with_a_dropped_dataset_fails_as_dropped() {
    let storage = memory();
    let (store, kept, gone) = two(&storage);
    store.drop_dataset(GONE).unwrap();
    let _ = store;
    for (outer, inner) in [(&kept, &gone), (&gone, &kept)] {
        is_dropped(
            outer
                .snapshot()
                .join(&inner.snapshot(), &Join::new(JoinOn::WithinDistance(1.0)))
                .and_then(|rows| rows.collect::<Result<Vec<_>, _>>()),
        );
    }
}
