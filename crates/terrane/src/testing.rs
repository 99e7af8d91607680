//! Small stores for tests that need more than the public interface.

use std::sync::Arc;

use terrane_lsm::disk::btree::BTreeBuilder;
use terrane_lsm::index::Cancellation;
use terrane_space::{CoordinateSystem, Rect};
use terrane_storage::Storage;
use terrane_testkit::MemoryStorage;

use crate::load::SpatialLoader;
use crate::schema::{GeometryColumn, KeyColumn, KeyType, Schema};
use crate::secondary::{PRIMARY, SPATIAL};
use crate::{Dataset, Key, MEMORY_LIMIT_MIN, MergePolicy, Options, Record, Store};

/// A dataset of points without attributes, in a store with the smallest memory limit. Every flush
/// stays a separate component.
pub(crate) fn points(system: CoordinateSystem, key_type: KeyType) -> (Store, Dataset) {
    points_within(MEMORY_LIMIT_MIN, system, key_type)
}

/// Like [`points`], with another memory limit.
pub(crate) fn points_within(memory_limit: usize, system: CoordinateSystem, key_type: KeyType) -> (Store, Dataset) {
    points_on(Arc::new(MemoryStorage::new()), Options { memory_limit, ..unmerged() }, system, key_type)
}

/// The options of [`points`].
pub(crate) fn unmerged() -> Options {
    Options {
        memory_limit: MEMORY_LIMIT_MIN,
        background: false,
        merge_policy: MergePolicy::Prefix { mergeable_bytes_max: u64::MAX, components_max: usize::MAX },
        ..Options::default()
    }
}

/// Like [`points`], on a given storage and with options.
pub(crate) fn points_on(
    storage: Arc<dyn Storage>,
    options: Options,
    system: CoordinateSystem,
    key_type: KeyType,
) -> (Store, Dataset) {
    let store = Store::open_on(storage, options).unwrap();
    let geometry = GeometryColumn::Point { x: "x".into(), y: "y".into() };
    let key = KeyColumn { name: "id".into(), key_type, generated: false };
    let dataset = store.create_dataset("d", Schema::new(key, geometry, system, Vec::new()).unwrap()).unwrap();
    (store, dataset)
}

/// Stores records in few commits.
pub(crate) fn put(dataset: &Dataset, records: impl IntoIterator<Item = (Key, f64, f64)>) {
    change(dataset, records.into_iter().map(|(key, x, y)| (key, Some((x, y)))));
}

/// Deletes records in few commits.
pub(crate) fn delete(dataset: &Dataset, keys: impl IntoIterator<Item = Key>) {
    change(dataset, keys.into_iter().map(|key| (key, None)));
}

fn change(dataset: &Dataset, changes: impl Iterator<Item = (Key, Option<(f64, f64)>)>) {
    let mut batch = dataset.atomic_batch();
    for (key, place) in changes {
        match place {
            Some((x, y)) => batch.upsert(&Record::at(key, x, y, Vec::new())).unwrap(),
            None => batch.delete(&key).unwrap(),
        }
        if batch.len() == 500 {
            std::mem::replace(&mut batch, dataset.atomic_batch()).commit().unwrap();
        }
    }
    batch.commit().unwrap();
}

/// Replaces the contents of a dataset's spatial index by these entries.
pub(crate) fn replace_spatial(dataset: &Dataset, entries: impl IntoIterator<Item = (Key, Rect)>) {
    let (engine, schema) = (&dataset.engine, dataset.schema());
    let sequence = (0, engine.visibility.visible());
    let indexes = dataset.handle.indexes.load();
    let index = indexes.get(SPATIAL as usize).and_then(|index| index.spatial.as_ref()).unwrap();
    let points = schema.holds_points();
    let mut loader = SpatialLoader::new(&engine.workshop, &**index, points, engine.shares.work, sequence);
    for (key, rect) in entries {
        loader.add(&key.to_encoded().unwrap(), Some(rect)).unwrap();
    }
    let meta = loader.finish(&Cancellation::default()).unwrap();
    dataset.handle.partitions.replace_index(&engine.workshop, 0, SPATIAL as usize, &meta).unwrap();
}

/// Replaces the contents of a dataset's primary index by these keys, in order, with these bytes as
/// records.
pub(crate) fn replace_primary(dataset: &Dataset, records: &[(Key, &[u8])]) {
    replace_primary_of(dataset, 0, records);
}

/// Like [`replace_primary`], for one partition.
pub(crate) fn replace_primary_of(dataset: &Dataset, partition: usize, records: &[(Key, &[u8])]) {
    let engine = &dataset.engine;
    let mut builder = BTreeBuilder::new(engine.workshop.writer().unwrap(), false).with_filters();
    for (key, stored) in records {
        builder.push(&key.to_encoded().unwrap(), false, 0, stored).unwrap();
    }
    let meta = builder.finish((0, engine.visibility.visible())).unwrap();
    dataset.handle.partitions.replace_index(&engine.workshop, partition, PRIMARY as usize, &meta).unwrap();
}
