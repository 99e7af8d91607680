//! The store agrees with a map and a linear scan under random mixes of operations on two datasets.
//!
//! - Every type of key is combined with every kind of geometry, in the plane and on the globe.
//! - Snapshots stay open over flushes, merges and reopenings.
//! - Indexes of every kind are created and dropped. Each query is asked through each of them.
//! - Columns are added, renamed and dropped.
//! - Some datasets have several partitions.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::support::kinds::{self, KINDS};
use crate::support::oracle::{filters, matching, nearest, query};
use crate::support::shapes::{Shape, place};
use crate::support::{Model, committed_keys_of, encoded, key, keys_of, schema, seeded, small_options};
use rand::Rng;
use rand::rngs::SmallRng;
use terrane::schema::{Column, ColumnType, KeyType};
use terrane::{
    Condition, CoordinateSystem, Dataset, DatasetOptions, Error, Filter, IndexKind, Isolation, Key, MergePolicy,
    Options, Query, Record, Snapshot, Store, Value,
};
use terrane_storage::Storage;
use terrane_testkit::MemoryStorage;
use terrane_testkit::is_soak;

const KEY_TYPES: [KeyType; 5] = [KeyType::Int64, KeyType::UInt64, KeyType::Utf8, KeyType::Binary, KeyType::Uuid];
const SYSTEMS: [CoordinateSystem; 2] = [CoordinateSystem::Planar, CoordinateSystem::LonLat];

/// The kinds on attributes, named as the kind, with the place of the attribute that each is on.
const ON_ATTRIBUTES: [(IndexKind, usize); 2] = [(IndexKind::Inverted, 0), (IndexKind::BTree, 1)];

/// What a dataset holds.
#[derive(Clone, Copy, Debug)]
struct Kind {
    key_type: KeyType,
    shape: Shape,
    system: CoordinateSystem,
    /// Keys that are in use.
    keys: u64,
    /// Bytes of the longest text.
    text_bytes_max: usize,
    partitions: usize,
}

impl Kind {
    fn new(key_type: KeyType, shape: Shape, system: CoordinateSystem) -> Self {
        Self { key_type, shape, system, keys: 60, text_bytes_max: 40, partitions: 1 }
    }

    fn key(&self, rng: &mut SmallRng) -> Key {
        key(rng, self.key_type, self.keys)
    }

    /// A record with values for these attributes, which begin with a text and an integer.
    fn record(&self, rng: &mut SmallRng, key: Key, columns: &[Column]) -> Record {
        let geometry = (!rng.random_ratio(1, 20)).then(|| self.shape.geometry(rng, self.system));
        let text = match rng.random_ratio(1, 5) {
            true => Value::Null,
            false => Value::Utf8("n".repeat(rng.random_range(0..self.text_bytes_max))),
        };
        let mut values = vec![text, Value::Int(rng.random_range(-9..9))];
        values.extend(columns[2..].iter().map(|column| match column.column_type {
            _ if rng.random_ratio(1, 5) => Value::Null,
            ColumnType::Bool => Value::Bool(rng.random()),
            _ => Value::Utf8("e".repeat(rng.random_range(0..5))),
        }));
        Record { key, geometry, values }
    }
}

/// A dataset beside its model.
struct Side {
    name: &'static str,
    kind: Kind,
    dataset: Dataset,
    model: Model,
    /// Spatial kinds of which it has an index, named as the kind.
    indexes: BTreeSet<IndexKind>,
    /// Those of [`ON_ATTRIBUTES`] that it has.
    on_attributes: BTreeSet<IndexKind>,
    held: Vec<Held>,
}

/// A snapshot with what it should show, and the indexes that it sees.
struct Held {
    snapshot: Snapshot,
    model: Model,
    indexes: BTreeSet<IndexKind>,
    on_attributes: BTreeSet<IndexKind>,
}

impl Side {
    /// What there is now.
    fn now(&self) -> Held {
        Held {
            snapshot: self.dataset.snapshot(),
            model: self.model.clone(),
            indexes: self.indexes.clone(),
            on_attributes: self.on_attributes.clone(),
        }
    }
}

/// A condition that an index on an attribute answers, and the keys of the model's records that meet
/// it and the filters.
fn attribute_query(
    (kind, place): (IndexKind, usize),
    columns: &[Column],
    model: &Model,
    filters: (&[Filter], CoordinateSystem),
    rng: &mut SmallRng,
) -> (Query, Vec<Key>) {
    let column = Condition::on(&columns[place].name);
    // Texts are a word each.
    let (condition, value) = match kind {
        IndexKind::Inverted => {
            let word = "n".repeat(rng.random_range(1..20));
            (column.matches(&word), Value::Utf8(word))
        }
        _ => {
            let size = rng.random_range(-9..9);
            (column.at_most(size), Value::Int(size))
        }
    };
    let meets = |key: &Key| match (&model[&encoded(key)].values[place], &value) {
        (Value::Int(size), Value::Int(most)) => size <= most,
        (found, wanted) => found == wanted,
    };
    let (filters, system) = filters;
    // Without a filter also those without a geometry.
    let candidates = match filters {
        [] => model.values().map(|record| record.key.clone()).collect(),
        filters => matching(model, system, filters),
    };
    let wanted = candidates.into_iter().filter(meets).collect();
    (query(filters).condition(condition).using_index(kind.name()), wanted)
}

fn sorted(mut keys: Vec<Key>) -> Vec<Key> {
    keys.sort_by_key(encoded);
    keys
}

/// What there is now is the same at both levels of isolation, as nobody writes meanwhile.
fn compare_now(side: &Side, rng: &mut SmallRng, what: &str) {
    let now = side.now();
    compare(&now, &side.kind, rng, what);
    let committed = |query: &Query| sorted(committed_keys_of(&side.dataset, query));
    assert_eq!(committed(&Query::new()), sorted(keys_of(&now.snapshot, &Query::new())), "read committed, {what}");
    let count = rng.random_range(1..3);
    let filters = filters(rng, side.kind.system, count);
    let wanted = matching(&side.model, side.kind.system, &filters);
    assert_eq!(committed(&query(&filters)), wanted, "{filters:?} at read committed, {what}");
    for on in ON_ATTRIBUTES.into_iter().filter(|(kind, _)| side.on_attributes.contains(kind)) {
        let columns = &side.dataset.schema().columns;
        let (query, wanted) = attribute_query(on, columns, &side.model, (&filters, side.kind.system), rng);
        assert_eq!(committed(&query), wanted, "{query:?} at read committed, {what}");
    }
    for name in side.indexes.iter().map(|kind| kind.name()).chain(["primary", "geometry"]) {
        let query = query(&filters).using_index(name);
        assert_eq!(committed(&query), wanted, "{filters:?} by {name} at read committed, {what}");
        // With their records, which are judged again.
        let rows = side.dataset.query(&query.isolation(Isolation::ReadCommitted)).unwrap();
        let rows: usize = rows.map(|batch| batch.unwrap().num_rows()).sum();
        assert_eq!(rows, wanted.len(), "rows of {filters:?} by {name} at read committed, {what}");
    }
}

fn compare(held: &Held, kind: &Kind, rng: &mut SmallRng, what: &str) {
    let Held { snapshot, model, indexes, on_attributes } = held;
    let system = kind.system;
    let all = sorted(keys_of(snapshot, &Query::new()));
    assert_eq!(all, model.values().map(|record| record.key.clone()).collect::<Vec<_>>(), "all records, {what}");
    assert_eq!(snapshot.count(&Query::new()).unwrap(), model.len() as u64, "{what}");
    for record in model.values().step_by(7) {
        assert_eq!(snapshot.get(&record.key).unwrap().as_ref(), Some(record), "{what}");
    }
    for count in 1..=3 {
        let filters = filters(rng, system, count);
        let wanted = matching(model, system, &filters);
        assert_eq!(sorted(keys_of(snapshot, &query(&filters))), wanted, "{filters:?}, {what}");
        assert_eq!(snapshot.count(&query(&filters)).unwrap(), wanted.len() as u64, "{filters:?}, {what}");
        for name in indexes.iter().map(|kind| kind.name()).chain(["primary", "geometry"]) {
            let query = query(&filters).using_index(name);
            assert_eq!(sorted(keys_of(snapshot, &query)), wanted, "{filters:?} by {name}, {what}");
            assert_eq!(snapshot.count(&query).unwrap(), wanted.len() as u64, "{filters:?} by {name}, {what}");
        }
        for on in ON_ATTRIBUTES.into_iter().filter(|(kind, _)| on_attributes.contains(kind)) {
            let columns = &snapshot.schema().columns;
            let (query, wanted) = attribute_query(on, columns, model, (&filters[1..], system), rng);
            assert_eq!(sorted(keys_of(snapshot, &query)), wanted, "{query:?}, {what}");
            assert_eq!(snapshot.count(&query).unwrap(), wanted.len() as u64, "{query:?}, {what}");
        }
    }
    let (mut place, k) = (place(rng, system), rng.random_range(1..20));
    if system == CoordinateSystem::LonLat && rng.random_ratio(1, 4) {
        place.1 = if rng.random() { 90.0 } else { -90.0 };
    }
    let count = rng.random_range(0..2);
    let filters = filters(rng, system, count);
    let wanted = nearest(model, system, &filters, place, k);
    let near = query(&filters).nearest(place.0, place.1, k);
    assert_eq!(keys_of(snapshot, &near), wanted, "nearest {k} to {place:?} of {filters:?}, {what}");
    for kind in indexes {
        let near = near.clone().using_index(kind.name());
        if *kind == IndexKind::RTree {
            assert_eq!(keys_of(snapshot, &near), wanted, "nearest {k} to {place:?} of {filters:?} by {kind}, {what}");
        } else {
            let refused = snapshot.query(&near).unwrap_err().to_string();
            assert!(refused.contains(kind.name()) && refused.contains("use one of kind rtree"), "{refused}, {what}");
        }
    }
}

/// Creates an index of a kind, or drops it; one that cannot hold the geometries is refused.
fn change_index(side: &mut Side, rng: &mut SmallRng, what: &str) {
    let number = rng.random_range(0..KINDS.len() + ON_ATTRIBUTES.len());
    if let Some(&(kind, place)) = number.checked_sub(KINDS.len()).and_then(|number| ON_ATTRIBUTES.get(number)) {
        if side.on_attributes.remove(&kind) {
            return side.dataset.drop_index(kind.name()).unwrap();
        }
        let column = &side.dataset.schema().columns[place].name;
        side.dataset.create_index(kind.name(), kind, &[column.as_str()]).unwrap();
        side.on_attributes.insert(kind);
        return;
    }
    let kind = KINDS[number];
    if side.indexes.remove(&kind) {
        return side.dataset.drop_index(kind.name()).unwrap();
    }
    let points = side.kind.shape.is_coordinates();
    let options = kinds::options(rng, kind, points, side.kind.system);
    let created = side.dataset.create_index_with(kind.name(), kind, &[], &options);
    if points || kinds::EXTENDED.contains(&kind) {
        created.unwrap_or_else(|error| panic!("{kind} with {options:?}: {error}, {what}"));
        side.indexes.insert(kind);
    } else {
        let refused = created.unwrap_err().to_string();
        assert!(refused.contains("points only"), "{refused}, {what}");
    }
}

/// Adds a column, drops one that was added, or renames any.
fn change_columns(side: &mut Side, rng: &mut SmallRng) {
    let columns = side.dataset.schema().columns.clone();
    let name = format!("c{}", rng.random::<u64>());
    match rng.random_range(0..3) {
        0 if columns.len() < 5 => {
            let column_type = if rng.random() { ColumnType::Bool } else { ColumnType::Utf8 };
            side.dataset.add_column(Column::new(name, column_type)).unwrap();
            side.model.values_mut().for_each(|record| record.values.push(Value::Null));
        }
        1 if columns.len() > 2 => {
            let place = rng.random_range(2..columns.len());
            side.dataset.drop_column(&columns[place].name).unwrap();
            side.model.values_mut().for_each(|record| drop(record.values.remove(place)));
        }
        _ => side.dataset.rename_column(&columns[rng.random_range(0..columns.len())].name, &name).unwrap(),
    }
}

fn step(side: &mut Side, rng: &mut SmallRng, what: &str) {
    let kind = side.kind;
    let held = rng.random_range(0..100);
    if held < 2 {
        return side.held.push(side.now());
    }
    if held < 4 {
        return change_index(side, rng, what);
    }
    if held < 6 {
        return change_columns(side, rng);
    }
    let schema = side.dataset.schema();
    let (dataset, model) = (&side.dataset, &mut side.model);
    let key = kind.key(rng);
    match rng.random_range(0..94) {
        0..35 => {
            let record = kind.record(rng, key, &schema.columns);
            match dataset.insert(&record) {
                Ok(()) => assert!(model.insert(encoded(&record.key), record).is_none(), "{what}"),
                Err(Error::DuplicateKey { .. }) => assert!(model.contains_key(&encoded(&record.key)), "{what}"),
                Err(error) => panic!("{error} {what}"),
            }
        }
        35..60 => {
            let record = kind.record(rng, key, &schema.columns);
            dataset.upsert(&record).unwrap();
            model.insert(encoded(&record.key), record);
        }
        60..80 => {
            let deleted = dataset.delete(&key).unwrap();
            assert_eq!(deleted, model.remove(&encoded(&key)).is_some(), "{what}");
        }
        80..84 => {
            let mut batch = dataset.atomic_batch();
            for _ in 0..rng.random_range(0..6) {
                let key = kind.key(rng);
                if rng.random_ratio(1, 3) {
                    batch.delete(&key).unwrap();
                    model.remove(&encoded(&key));
                } else {
                    let record = kind.record(rng, key, &schema.columns);
                    batch.upsert(&record).unwrap();
                    model.insert(encoded(&record.key), record);
                }
            }
            batch.commit().unwrap();
        }
        84..90 => assert_eq!(dataset.get(&key).unwrap().as_ref(), model.get(&encoded(&key)), "{what}"),
        90..93 => dataset.flush().unwrap(),
        _ => dataset.compact().unwrap(),
    }
}

fn reopen(store: &mut Option<Store>, storage: &Arc<dyn Storage>, options: &Options, sides: [Side; 2]) -> [Side; 2] {
    let kept =
        sides.map(|Side { name, kind, model, indexes, on_attributes, .. }| (name, kind, model, indexes, on_attributes));
    store.take().unwrap().close().unwrap();
    let opened = store.insert(Store::open_on(storage.clone(), options.clone()).unwrap());
    kept.map(|(name, kind, model, indexes, on_attributes)| Side {
        name,
        kind,
        dataset: opened.dataset(name).unwrap(),
        model,
        indexes,
        on_attributes,
        held: Vec::new(),
    })
}

/// The store's own, which mostly merges all components, and those that merge new ones beside a
/// larger old one.
const POLICIES: [Option<MergePolicy>; 3] = [
    None,
    Some(MergePolicy::Prefix { mergeable_bytes_max: 4 << 10, components_max: 2 }),
    Some(MergePolicy::SizeTiered { components_min: 2, size_ratio: 2, bytes_min: 1 << 10 }),
];

/// Carries out random steps on the datasets of one store and compares on the way.
fn run(options: &Options, kinds: [Kind; 2], steps: usize, rng: &mut SmallRng, seed: u64) {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let mut store = Some(Store::open_on(storage.clone(), options.clone()).unwrap());
    let mut sides = [("first", kinds[0]), ("second", kinds[1])].map(|(name, kind)| {
        let schema = schema(kind.key_type, kind.shape.is_coordinates(), kind.system);
        let options = DatasetOptions { partitions: kind.partitions };
        let dataset = store.as_ref().unwrap().create_dataset_with(name, schema, &options).unwrap();
        dataset.set_merge_policy(POLICIES[rng.random_range(0..POLICIES.len())]).unwrap();
        let (indexes, on_attributes) = (BTreeSet::new(), BTreeSet::new());
        Side { name, kind, dataset, model: Model::new(), indexes, on_attributes, held: Vec::new() }
    });
    for number in 0..steps {
        let side = &mut sides[usize::from(rng.random_ratio(1, 3))];
        let what = format!("{:?} {}, step {number}, seed {seed}", side.kind, side.name);
        match rng.random_range(0..100) {
            0..94 => step(side, rng, &what),
            94..96 if !side.held.is_empty() => {
                let held = side.held.swap_remove(rng.random_range(0..side.held.len()));
                compare(&held, &side.kind, rng, &format!("held snapshot, {what}"));
            }
            96 if rng.random_ratio(1, 2) => {
                // Snapshots and datasets keep a store open.
                sides = reopen(&mut store, &storage, options, sides);
            }
            _ => compare_now(side, rng, &what),
        }
    }
    for side in &sides {
        let what = format!("{:?} {} at the end, seed {seed}", side.kind, side.name);
        for held in &side.held {
            compare(held, &side.kind, rng, &format!("held, {what}"));
        }
        compare_now(side, rng, &what);
    }
    let report = store.unwrap().check(false).unwrap();
    assert!(report.findings.is_empty(), "{report}, {kinds:?}, seed {seed}");
    assert_eq!(report.records, sides.iter().map(|side| side.model.len() as u64).sum::<u64>());
}

/// Every type of key with two kinds of geometry, in the plane and on the globe, beside another
/// dataset. `make soak` takes every kind of geometry in both.
#[test]
fn keys_of_every_type_agree_with_the_model() {
    let (mut rng, seed) = seeded(0x0DE1_0001);
    for (number, key_type) in KEY_TYPES.into_iter().enumerate() {
        for (place, shape) in Shape::ALL.into_iter().enumerate() {
            for (turn, system) in SYSTEMS.into_iter().enumerate() {
                if !is_soak() && place != (number + turn) % Shape::ALL.len() {
                    continue;
                }
                let beside = Kind::new(
                    KEY_TYPES[rng.random_range(0..KEY_TYPES.len())],
                    Shape::ALL[rng.random_range(0..Shape::ALL.len())],
                    SYSTEMS[rng.random_range(0..2)],
                );
                let beside = Kind { partitions: rng.random_range(2..6), ..beside };
                let kinds = [Kind::new(key_type, shape, system), beside];
                run(&small_options(), kinds, if is_soak() { 8000 } else { 500 }, &mut rng, seed);
            }
        }
    }
}

/// Long runs with more keys, so that components overlap much.
#[test]
fn many_records_agree_with_the_model() {
    let (mut rng, seed) = seeded(0x0DE1_0009);
    for (key_type, shape) in [(KeyType::Int64, Shape::Coordinates), (KeyType::Utf8, Shape::Mixed)] {
        let partitions = |system| if system == SYSTEMS[0] { 1 } else { 3 };
        let kind = |system| Kind { keys: 400, partitions: partitions(system), ..Kind::new(key_type, shape, system) };
        let kinds = SYSTEMS.map(kind);
        run(&small_options(), kinds, if is_soak() { 30_000 } else { 1000 }, &mut rng, seed);
    }
}

/// More than the memory limit takes: writes flush by themselves, and reopening replays a full log.
#[test]
fn records_beyond_the_memory_limit_agree_with_the_model() {
    let (mut rng, seed) = seeded(0x0DE1_000A);
    for memory_limit in [terrane::MEMORY_LIMIT_MIN, 12 << 20] {
        let options = Options { memory_limit, ..small_options() };
        let kinds = [
            Kind {
                text_bytes_max: 60_000,
                partitions: 4,
                ..Kind::new(KeyType::UInt64, Shape::Coordinates, SYSTEMS[1])
            },
            Kind { text_bytes_max: 60_000, ..Kind::new(KeyType::Binary, Shape::Mixed, SYSTEMS[0]) },
        ];
        run(&options, kinds, if is_soak() { 15_000 } else { 800 }, &mut rng, seed);
    }
}
