//! Imports into an existing dataset. Each mode refuses it, adds to it, replaces records with the
//! same keys, or replaces the dataset, all at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::kinds::{self, EXTENDED, KINDS};
use crate::support::workload::{MAIN, batch};
use crate::support::{geometry, keys_of, schema, seeded, small_options};
use rand::Rng;
use rand::rngs::SmallRng;
use terrane::schema::{Column, ColumnType, GeometryColumn, KeyColumn, KeyType, Schema};
use terrane::{
    CoordinateSystem, Dataset, DatasetOptions, Error, ImportMode, ImportReport, IndexKind, IndexOptions, Key,
    MergePolicy, OnConflict, Options, Query, Record, Result, Store, Value,
};
use terrane_lsm::manifest::Manifest;
use terrane_storage::Storage;
use terrane_testkit::MemoryStorage;

const MODES: [ImportMode; 5] =
    [ImportMode::CreateOrAppend, ImportMode::Create, ImportMode::Append, ImportMode::Upsert, ImportMode::Replace];

fn memory() -> Arc<dyn Storage> {
    Arc::new(MemoryStorage::new())
}

fn open(storage: &Arc<dyn Storage>) -> Store {
    Store::open_on(storage.clone(), small_options()).unwrap()
}

fn of_points(points: bool) -> Schema {
    schema(KeyType::Int64, points, CoordinateSystem::Planar)
}

fn named(rng: &mut SmallRng, key: i64, points: bool) -> Record {
    let word = |rng: &mut SmallRng| ["red", "green", "blue", "grey"][rng.random_range(0..4)];
    let name = format!("{} {} {}", word(rng), word(rng), "n".repeat(rng.random_range(0..200)));
    let values = vec![Value::Utf8(name), Value::Int(rng.random_range(-9..9))];
    Record { key: Key::Int(key), geometry: geometry(rng, points), values }
}

fn at(key: i64, size: i64) -> Record {
    Record::at(key, key as f64, size as f64, vec![Value::Utf8(format!("red {size}")), Value::Int(size)])
}

fn import(store: &Store, mode: ImportMode, schema: &Schema, records: &[Record]) -> Result<ImportReport> {
    let mut importer = store.importer_in(mode, MAIN, copy(schema), &DatasetOptions::default())?;
    for chunk in records.chunks(97) {
        if let Some(refused) = importer.push(&batch(schema, chunk))?.pop() {
            return Err(refused.error);
        }
    }
    importer.finish(&mut |row| Err(row.error))
}

/// A copy of the schema that belongs to no dataset.
fn copy(schema: &Schema) -> Schema {
    Schema::new(schema.key.clone(), schema.geometry.clone(), schema.system, schema.columns.clone()).unwrap()
}

fn is_usage<T: std::fmt::Debug>(outcome: Result<T>, part: &str) {
    match outcome {
        Err(error @ (Error::Usage(_) | Error::UnknownDataset { .. })) => {
            assert!(error.to_string().contains(part), "{error}");
            assert_eq!(error.exit_code(), Error::USAGE);
        }
        other => panic!("{other:?}"),
    }
}

fn assert_sound(store: &Store) {
    let report = store.check(false).unwrap();
    assert!(report.findings.is_empty(), "{report}");
}

/// Every path through an index gives the same records of the model as a scan.
fn verify(store: &Store, model: &BTreeMap<i64, Record>, what: &str) {
    assert_sound(store);
    let dataset = store.dataset(MAIN).unwrap();
    let snapshot = dataset.snapshot();
    for record in model.values() {
        assert_eq!(snapshot.get(&record.key).unwrap().as_ref(), Some(record), "{what}");
    }
    let sorted = |query: Query| {
        let mut keys: Vec<String> = keys_of(&snapshot, &query).iter().map(Key::to_string).collect();
        keys.sort_unstable();
        keys
    };
    let mut wanted: Vec<String> = model.keys().map(i64::to_string).collect();
    wanted.sort_unstable();
    assert_eq!(sorted(Query::new()), wanted, "{what}");
    let windows = [(-10.0, -10.0, 10.0, 10.0), (-5.0, -4.0, 0.25, 3.5), (2.0, 2.0, 2.5, 9.0)];
    let by_place = windows.iter().map(|&(x0, y0, x1, y1)| Query::new().window(x0, y0, x1, y1));
    let by_value = Query::new().condition("size between -3 and 4".parse().unwrap());
    let by_word = Query::new().condition("name match 'red'".parse().unwrap());
    for index in store.info().unwrap().datasets.remove(0).indexes.into_iter().skip(1) {
        let queries = match index.kind.as_str() {
            "btree" => vec![by_value.clone()],
            "inverted" => vec![by_word.clone()],
            _ => by_place.clone().collect(),
        };
        for query in queries {
            let found = sorted(query.clone().using_index(&index.name));
            assert_eq!(found, sorted(query.using_index("primary")), "{} of kind {}, {what}", index.name, index.kind);
        }
    }
}

/// Indexes of every kind suitable for the dataset.
fn create_indexes(rng: &mut SmallRng, dataset: &Dataset, points: bool) {
    for &kind in if points { &KINDS[..] } else { &EXTENDED[..] } {
        let options = kinds::options(rng, kind, points, CoordinateSystem::Planar);
        dataset.create_index_with(kind.name(), kind, &[], &options).unwrap();
    }
    dataset.create_index("by-size", IndexKind::BTree, &["size"]).unwrap();
    dataset.create_index("by-both", IndexKind::BTree, &["size", "name"]).unwrap();
    dataset.create_index("words", IndexKind::Inverted, &["name"]).unwrap();
}

#[test]
fn a_mode_that_does_not_fit_the_store_is_refused() {
    let schema = of_points(true);
    for mode in MODES {
        let store = open(&memory());
        let outcome = import(&store, mode, &schema, &[at(1, 1)]);
        if mode == ImportMode::Append {
            is_usage(outcome, "the store has none");
            assert!(store.dataset_names().is_empty());
            continue;
        }
        assert_eq!(outcome.unwrap().records, 1, "{mode:?} creates a dataset");
        let again = import(&store, mode, &schema, &[at(2, 2)]);
        let expected = match mode {
            ImportMode::Create => {
                is_usage(again, "exists already");
                1
            }
            ImportMode::Replace => again.map(|_| 1).unwrap(),
            _ => again.map(|_| 2).unwrap(),
        };
        assert_eq!(store.dataset(MAIN).unwrap().count(&Query::new()).unwrap(), expected, "{mode:?}");
        assert_eq!(store.check_import(mode, MAIN).is_err(), mode == ImportMode::Create);
        assert_eq!(store.check_import(mode, "other").is_err(), mode == ImportMode::Append);
        assert_sound(&store);
    }
}

#[test]
fn an_upsert_needs_keys() {
    let schema = of_points(true);
    let key = KeyColumn { generated: true, ..schema.key.clone() };
    let numbered = Schema::new(key, schema.geometry.clone(), schema.system, schema.columns.clone()).unwrap();
    let store = open(&memory());
    is_usage(import(&store, ImportMode::Upsert, &numbered, &[at(1, 1)]), "row numbers");
    store.create_dataset(MAIN, copy(&numbered)).unwrap();
    is_usage(import(&store, ImportMode::Upsert, &schema, &[at(1, 1)]), "row numbers");
    assert_eq!(store.dataset(MAIN).unwrap().count(&Query::new()).unwrap(), 0);
}

/// Imports that replace some records, between writes of all kinds.
#[test]
fn after_upserts_every_index_agrees_with_a_scan() {
    for (points, partitions, rounds, default_seed) in [(true, 1, 6, 501), (false, 3, 6, 502), (true, 2, 3, 503)] {
        let (mut rng, seed) = seeded(default_seed);
        let storage = memory();
        let mut store = open(&storage);
        let dataset = store.create_dataset_with(MAIN, of_points(points), &DatasetOptions { partitions }).unwrap();
        create_indexes(&mut rng, &dataset, points);
        drop(dataset);
        let mut model = BTreeMap::new();
        for round in 0..rounds {
            let what = format!("seed {seed}, round {round}");
            let count = [3, 40, 1500][rng.random_range(0..3)];
            let mut keys: Vec<i64> = (0..count).map(|_| rng.random_range(0..2000)).collect();
            keys.sort_unstable();
            keys.dedup();
            if rng.random() {
                keys.reverse();
            }
            // Some are unchanged, or at the same place.
            let records: Vec<Record> = keys
                .iter()
                .map(|&key| match (model.get(&key), rng.random_range(0..4)) {
                    (Some(before), 0) => Record::clone(before),
                    (Some(before), 1) => Record { geometry: before.geometry.clone(), ..named(&mut rng, key, points) },
                    _ => named(&mut rng, key, points),
                })
                .collect();
            let before = store.dataset(MAIN).unwrap().snapshot();
            let report = import(&store, ImportMode::Upsert, &of_points(points), &records).unwrap();
            assert_eq!(report.records, records.len() as u64, "{what}");
            assert_eq!(before.count(&Query::new()).unwrap(), model.len() as u64, "{what}");
            drop(before);
            model.extend(records.into_iter().zip(keys).map(|(record, key)| (key, record)));
            verify(&store, &model, &what);
            let dataset = store.dataset(MAIN).unwrap();
            for _ in 0..40 {
                let key = rng.random_range(0..2000);
                match rng.random_range(0..3) {
                    0 => _ = (dataset.delete(&Key::Int(key)).unwrap(), model.remove(&key)),
                    _ => {
                        let record = named(&mut rng, key, points);
                        dataset.upsert(&record).unwrap();
                        model.insert(key, record);
                    }
                }
            }
            if rng.random_ratio(1, 3) {
                dataset.compact().unwrap();
            }
            drop(dataset);
            if rng.random_ratio(1, 3) {
                store.close().unwrap();
                store = open(&storage);
            }
        }
        store.compact().unwrap();
        verify(&store, &model, &format!("seed {seed}, compacted"));
        let info = store.info().unwrap().datasets.remove(0);
        assert!(info.indexes.iter().all(|index| index.antimatter == 0), "{info:?}");
    }
}

/// Records written between the import's look at the old records and its end are replaced too.
#[test]
fn keys_written_during_an_upsert_are_replaced_too() {
    for partitions in [1, 3] {
        let (mut rng, _) = seeded(511);
        let store = open(&memory());
        let dataset = store.create_dataset_with(MAIN, of_points(true), &DatasetOptions { partitions }).unwrap();
        create_indexes(&mut rng, &dataset, true);
        let mut model: BTreeMap<i64, Record> = (0..60).map(|key| (key, named(&mut rng, key, true))).collect();
        model.values().for_each(|record| dataset.insert(record).unwrap());
        let records: Vec<Record> = (20..80).map(|key| named(&mut rng, key, true)).collect();
        let options = DatasetOptions::default();
        let mut importer = store.importer_in(ImportMode::Upsert, MAIN, of_points(true), &options).unwrap();
        assert!(importer.push(&batch(&of_points(true), &records)).unwrap().is_empty());
        importer
            .finish_after(&mut |row| Err(row.error), &mut |_| {
                dataset.upsert(&named(&mut rng, 30, true))?;
                dataset.upsert(&named(&mut rng, 70, true))?;
                dataset.delete(&Key::Int(31))?;
                dataset.flush()?;
                dataset.upsert(&named(&mut rng, 32, true))?;
                dataset.delete(&Key::Int(33))?;
                dataset.insert(&at(1000, 1))?;
                dataset.create_index("late", IndexKind::BTree, &["size"])
            })
            .unwrap();
        model.insert(1000, at(1000, 1));
        model.extend((20..80).zip(records));
        verify(&store, &model, &format!("{partitions} partitions"));
    }
}

/// Old and new entries lie in one of several runs, for an index with several entries per record.
#[test]
fn an_upsert_of_many_records_spills_old_and_new_entries() {
    const RECORDS: i64 = 20_000;
    let (mut rng, _) = seeded(521);
    let unmerged = MergePolicy::Prefix { mergeable_bytes_max: 1 << 30, components_max: 100 };
    let store = Store::open_on(memory(), Options { merge_policy: unmerged, ..small_options() }).unwrap();
    let dataset = store.create_dataset(MAIN, of_points(true)).unwrap();
    let grid = IndexOptions::default().levels("m,l,l,l,l".parse().unwrap()).domain(0.0, 0.0, 8.0, 8.0);
    dataset.create_index_with("cells", IndexKind::Sif, &[], &grid).unwrap();
    dataset.create_index("by-size", IndexKind::BTree, &["size"]).unwrap();
    let mut place = |key: i64| {
        let (x, y) = (rng.random_range(0.0..8.0), rng.random_range(0.0..8.0));
        Record::at(key, x, y, vec![Value::Null, Value::Int(rng.random())])
    };
    for mode in [ImportMode::Append, ImportMode::Upsert] {
        let records: Vec<Record> = (0..RECORDS).map(&mut place).collect();
        let created = store.maintenance();
        import(&store, mode, &of_points(true), &records).unwrap();
        assert_eq!(store.maintenance(), created, "{mode:?} bypasses the log and the memory components");
    }
    let info = store.info().unwrap().datasets.remove(0);
    let antimatter: Vec<u64> = info.indexes.iter().map(|index| index.antimatter).collect();
    assert_eq!(antimatter, [0, RECORDS as u64, 5 * RECORDS as u64, RECORDS as u64]);
    assert_sound(&store);
    let count = |index: &str| dataset.count(&Query::new().window(1.0, 1.0, 5.0, 5.5).using_index(index)).unwrap();
    assert_eq!((count("cells"), count("geometry")), (count("primary"), count("primary")));
    store.compact().unwrap();
    assert_sound(&store);
    assert_eq!(count("cells"), count("primary"));
}

#[test]
fn a_key_that_occurs_twice_in_an_upsert_is_refused() {
    let store = open(&memory());
    import(&store, ImportMode::Create, &of_points(true), &[at(1, 1), at(2, 1)]).unwrap();
    // In order, out of order, and far from each other.
    for records in [vec![at(2, 2), at(2, 3)], vec![at(2, 2), at(1, 2), at(2, 3)]] {
        let refused = import(&store, ImportMode::Upsert, &of_points(true), &records);
        assert!(matches!(refused, Err(Error::DuplicateKey { key: Key::Int(2) })), "{refused:?}");
    }
    verify(&store, &BTreeMap::from([(1, at(1, 1)), (2, at(2, 1))]), "nothing was replaced");
}

#[test]
fn an_upsert_that_widens_a_column_replaces_entries_of_integers() {
    let storage = memory();
    let store = open(&storage);
    import(&store, ImportMode::Create, &of_points(true), &[at(1, 1), at(2, 2), at(3, 3)]).unwrap();
    let dataset = store.dataset(MAIN).unwrap();
    dataset.create_index("by-size", IndexKind::BTree, &["size"]).unwrap();
    let mut importer =
        store.importer_in(ImportMode::Upsert, MAIN, of_points(true), &DatasetOptions::default()).unwrap();
    importer.widen_column("size").unwrap();
    let records = [Record::at(2, 2.0, 2.0, vec![Value::Null, Value::Float64(2.5)])];
    assert!(importer.push(&batch(importer.schema(), &records)).unwrap().is_empty());
    importer.finish(&mut |row| Err(row.error)).unwrap();
    let find = |condition: &str| {
        keys_of(&dataset.snapshot(), &Query::new().condition(condition.parse().unwrap()).using_index("by-size"))
    };
    assert_eq!((find("size = 2"), find("size >= 2.5")), (vec![], vec![Key::Int(2), Key::Int(3)]));
    assert_sound(&store);
}

/// A text column becomes numbers with a null, as in a corrected file.
#[test]
fn a_replacement_swaps_records_and_schema_and_keeps_the_rest() {
    let storage = memory();
    let store = open(&storage);
    let schema_with = |column: Column, system| {
        let key = KeyColumn { name: "id".into(), key_type: KeyType::Int64, generated: false };
        let geometry = GeometryColumn::Point { x: "lon".into(), y: "lat".into() };
        Schema::new(key, geometry, system, vec![Column::new("name", ColumnType::Utf8), column]).unwrap()
    };
    let first = schema_with(Column::new("v", ColumnType::Utf8), CoordinateSystem::Planar);
    let then = schema_with(Column::new("v", ColumnType::Int64), CoordinateSystem::LonLat);
    let old = store.create_dataset_with(MAIN, copy(&first), &DatasetOptions { partitions: 3 }).unwrap();
    let policy = MergePolicy::Constant { components_max: 7 };
    old.set_merge_policy(Some(policy)).unwrap();
    old.create_index("by-v", IndexKind::BTree, &["v"]).unwrap();
    old.create_index("gone", IndexKind::BTree, &["name"]).unwrap();
    old.drop_index("gone").unwrap();
    old.create_index("words", IndexKind::Inverted, &["name"]).unwrap();
    old.create_index("hilbert", IndexKind::Dhb, &[]).unwrap();
    let text = |text: &str| Value::Utf8(text.into());
    let mut feed = old.feed("source").unwrap();
    let rows = batch(&first, &[Record::at(9, 1.0, 1.0, vec![text("red"), text("N/A")])]);
    feed.write_batch(&rows, &[77], OnConflict::Refuse, &mut Default::default()).unwrap();
    drop(feed);
    let snapshot = old.snapshot();
    let records = [
        Record::at(1, 1.0, 2.0, vec![text("red"), Value::Null]),
        Record::at(2, 1.0, 2.0, vec![text("blue"), Value::Int(5)]),
    ];
    let report = import(&store, ImportMode::Replace, &then, &records).unwrap();
    assert_eq!(report.records, 2);
    let verify = |store: &Store, what: &str| {
        let dataset = store.dataset(MAIN).unwrap();
        assert_eq!(dataset.schema().columns, then.columns, "{what}");
        assert_eq!(keys_of(&dataset.snapshot(), &Query::new()).len(), 2);
        for record in &records {
            assert_eq!(dataset.get(&record.key).unwrap().as_ref(), Some(record));
        }
        assert_eq!((dataset.partitions(), dataset.merge_policy()), (3, policy), "{what}");
        let feeds: Vec<_> = dataset.feeds().into_iter().map(|feed| (feed.name, feed.position)).collect();
        assert_eq!(feeds, [("source".to_owned(), 0)], "{what}");
        let indexes = store.info().unwrap().datasets.remove(0).indexes;
        let indexes: Vec<_> = indexes.iter().map(|index| (index.name.as_str(), index.kind.as_str())).collect();
        let wanted =
            [("primary", "btree"), ("geometry", "rtree"), ("by-v", "btree"), ("words", "inverted"), ("hilbert", "dhb")];
        assert_eq!(indexes, wanted, "{what}");
        for (condition, index, found) in [("v = 5", "by-v", vec![2]), ("name match 'red'", "words", vec![1])] {
            let query = Query::new().condition(condition.parse().unwrap()).using_index(index);
            let keys: Vec<Key> = found.into_iter().map(Key::Int).collect();
            assert_eq!(keys_of(&dataset.snapshot(), &query), keys, "{condition} {what}");
        }
        assert_eq!(dataset.count(&Query::new().circle(1.0, 2.0, 10.0).using_index("hilbert")).unwrap(), 2);
        assert_sound(store);
    };
    verify(&store, "replaced");
    assert!(matches!(old.delete(&Key::Int(9)), Err(Error::Dropped { .. })));
    assert_eq!(snapshot.count(&Query::new()).unwrap(), 1);
    drop((old, snapshot));
    let manifest = Manifest::read(&*storage).unwrap().unwrap();
    assert_eq!((manifest.datasets.len(), manifest.datasets[0].id, manifest.next_dataset_id), (1, 2, 3));
    assert_eq!(storage.list("components").unwrap().len(), manifest.components().count());
    store.close().unwrap();
    let store = open(&storage);
    verify(&store, "opened again");
    let dataset = store.dataset(MAIN).unwrap();
    dataset.create_index("gone", IndexKind::BTree, &["name"]).unwrap();
    dataset.insert(&Record::at(3, 1.0, 2.0, vec![text("grey"), Value::Int(6)])).unwrap();
    assert_eq!(dataset.count(&Query::new()).unwrap(), 3);
    assert_sound(&store);
}

#[test]
fn a_replacement_without_an_indexed_column_changes_nothing() {
    let store = open(&memory());
    let dataset = store.create_dataset(MAIN, of_points(true)).unwrap();
    dataset.insert(&at(1, 1)).unwrap();
    let schema_of = |columns: Vec<Column>, points: bool, system| {
        let base = schema(KeyType::Int64, points, system);
        Schema::new(base.key, base.geometry, system, columns).unwrap()
    };
    let (name, size) = (Column::new("name", ColumnType::Utf8), Column::new("size", ColumnType::Int64));
    let number = Column::new("name", ColumnType::Int64);
    let planar = CoordinateSystem::Planar;
    let begin = |schema: Schema| store.importer_in(ImportMode::Replace, MAIN, schema, &DatasetOptions::default());
    dataset.create_index("by-size", IndexKind::BTree, &["size"]).unwrap();
    for (schema, parts) in [(schema_of(vec![name.clone()], true, planar), ["\"by-size\"", "\"size\""])] {
        let refused = begin(schema).map(|_| ());
        for part in parts {
            is_usage(refused.clone(), part);
        }
    }
    dataset.drop_index("by-size").unwrap();
    dataset.create_index("words", IndexKind::Inverted, &["name"]).unwrap();
    is_usage(begin(schema_of(vec![number, size.clone()], true, planar)), "\"words\"");
    dataset.drop_index("words").unwrap();
    dataset.create_index("hilbert", IndexKind::Dhb, &[]).unwrap();
    is_usage(begin(schema_of(vec![name.clone()], false, planar)), "\"hilbert\"");
    dataset.drop_index("hilbert").unwrap();
    let grid = IndexOptions::default().domain(0.0, 0.0, 5.0, 5.0);
    dataset.create_index_with("cells", IndexKind::Sif, &[], &grid).unwrap();
    is_usage(begin(schema_of(vec![name.clone()], true, CoordinateSystem::LonLat)), "\"cells\"");
    assert_eq!(dataset.get(&Key::Int(1)).unwrap(), Some(at(1, 1)));
    // With the column it succeeds, unless the indexes change meanwhile.
    let importer = begin(schema_of(vec![name, size], true, planar)).unwrap();
    dataset.drop_index("cells").unwrap();
    let refused = importer.finish(&mut |row| Err(row.error));
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    assert_eq!(store.dataset(MAIN).unwrap().get(&Key::Int(1)).unwrap(), Some(at(1, 1)));
    assert_sound(&store);
}

#[test]
fn imports_into_a_dataset_replaced_meanwhile_fail_as_dropped() {
    for mode in [ImportMode::CreateOrAppend, ImportMode::Append, ImportMode::Upsert, ImportMode::Replace] {
        let store = open(&memory());
        let schema = of_points(true);
        import(&store, ImportMode::Create, &schema, &[at(1, 1)]).unwrap();
        let mut importer = store.importer_in(mode, MAIN, copy(&schema), &DatasetOptions::default()).unwrap();
        importer.push(&batch(&schema, &[at(2, 2)])).unwrap();
        import(&store, ImportMode::Replace, &schema, &[at(3, 3)]).unwrap();
        let outcome = importer.finish(&mut |row| Err(row.error));
        assert!(matches!(outcome, Err(Error::Dropped { .. })), "{mode:?}: {outcome:?}");
        verify(&store, &BTreeMap::from([(3, at(3, 3))]), "replaced");
    }
}

#[test]
fn an_abandoned_import_replaces_nothing() {
    for mode in [ImportMode::Upsert, ImportMode::Replace] {
        let storage = memory();
        let store = Store::open_on(storage.clone(), Options { background: true, ..small_options() }).unwrap();
        let schema = of_points(true);
        import(&store, ImportMode::Create, &schema, &[at(1, 1), at(2, 2)]).unwrap();
        let mut importer = store.importer_in(mode, MAIN, copy(&schema), &DatasetOptions::default()).unwrap();
        importer.push(&batch(&schema, &[at(2, 5), at(7, 5)])).unwrap();
        let given_up = importer.finish_after(&mut |row| Err(row.error), &mut |_| Err(Error::Cancelled));
        assert!(matches!(given_up, Err(Error::Cancelled)));
        verify(&store, &BTreeMap::from([(1, at(1, 1)), (2, at(2, 2))]), "given up");
        let named = Manifest::read(&*storage).unwrap().unwrap().components().count();
        assert_eq!(storage.list("components").unwrap().len(), named);
    }
}
