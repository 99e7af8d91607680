//! Which components have Bloom filters: those of the primary, in whatever way they came to be.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};

use crate::schema::KeyType;
use crate::testing::{points, put};
use crate::{CoordinateSystem, Dataset, Key, Store};

const RECORDS: i64 = 20_000;

/// Writes records under keys, in this order.
type Fill = fn(&Store, &Dataset, &mut dyn Iterator<Item = i64>);
/// The keys by number.
type KeyOf = fn(i64) -> i64;

fn flush(_: &Store, dataset: &Dataset, keys: &mut dyn Iterator<Item = i64>) {
    put(dataset, keys.map(|key| (Key::Int(key), key as f64, 0.0)));
    dataset.flush().unwrap();
}

fn merge(store: &Store, dataset: &Dataset, keys: &mut dyn Iterator<Item = i64>) {
    flush(store, dataset, &mut keys.take(RECORDS as usize / 2));
    flush(store, dataset, keys);
    dataset.compact().unwrap();
}

fn import(store: &Store, dataset: &Dataset, keys: &mut dyn Iterator<Item = i64>) {
    let mut importer = store.importer("d", (*dataset.schema()).clone()).unwrap();
    let keys: Vec<i64> = keys.collect();
    for keys in keys.chunks(1000) {
        let x: ArrayRef = Arc::new(Float64Array::from_iter_values(keys.iter().map(|key| *key as f64)));
        let id: ArrayRef = Arc::new(Int64Array::from(keys.to_vec()));
        let batch = RecordBatch::try_from_iter([("id", id), ("x", x.clone()), ("y", x)]).unwrap();
        assert!(importer.push(&batch).unwrap().is_empty());
    }
    importer.finish(&mut |row| Err(row.error)).unwrap();
}

#[test]
fn keys_that_are_not_there_are_mostly_told_without_their_leaves() {
    // Every second one, in order or shuffled.
    let ascending = |number: i64| number * 2;
    let shuffled = |number: i64| number * 7919 % RECORDS * 2;
    let cases: [(&str, Fill, KeyOf); 4] = [
        ("flushed", flush, ascending),
        ("merged", merge, shuffled),
        ("imported in order", import, ascending),
        ("imported from runs", import, shuffled),
    ];
    for (name, fill, key) in cases {
        let (store, dataset) = points(CoordinateSystem::Planar, KeyType::Int64);
        fill(&store, &dataset, &mut (0..RECORDS).map(key));
        let pages_read = |keys: &mut dyn Iterator<Item = i64>, is_there: bool| {
            let before = dataset.engine.environment().cache().counters().pages_read;
            for key in keys {
                assert_eq!(dataset.get(&Key::Int(key)).unwrap().is_some(), is_there, "{name}: {key}");
            }
            dataset.engine.environment().cache().counters().pages_read - before
        };
        let absent = pages_read(&mut (1..RECORDS * 2).step_by(800), false);
        let leaves = pages_read(&mut (0..RECORDS * 2).step_by(800), true);
        assert!(absent * 4 < leaves, "{name}: {absent} pages of those that are not there, then {leaves}");
    }
}
