//! Writers that wait for each other.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use terrane_space::CoordinateSystem;
use terrane_testkit::MemoryStorage;

use crate::locks::collisions;
use crate::schema::{GeometryColumn, KeyColumn, KeyType, Schema};
use crate::{Condition, Dataset, DatasetOptions, Error, Key, OnConflict, Options, Query, Record, Result, Store};
use terrane_testkit::gate::{Gate, gated};

/// A dataset of points without attributes. Its syncs pass a gate.
fn dataset(gate: &Arc<Gate>) -> (Store, Dataset) {
    let storage = gated(Arc::new(MemoryStorage::new()), gate.clone());
    let store = Store::open_on(storage, Options { background: false, ..Options::default() }).unwrap();
    let id = KeyColumn { name: "id".into(), key_type: KeyType::Int64, generated: false };
    let geometry = GeometryColumn::Point { x: "x".into(), y: "y".into() };
    let schema = Schema::new(id, geometry, CoordinateSystem::Planar, vec![]).unwrap();
    let dataset = store.create_dataset("d", schema).unwrap();
    (store, dataset)
}

fn hash_of(dataset: &Dataset, key: i64) -> u64 {
    dataset.lock_hash(&dataset.encode_key(&Key::Int(key)).unwrap())
}

/// A thread's write to a dataset, and its outcome.
type Write = fn(&Dataset) -> Result<String>;

fn write_rows(dataset: &Dataset, keys: &[i64]) -> Result<String> {
    let coordinate: ArrayRef = Arc::new(Float64Array::from(vec![1.0; keys.len()]));
    let id: ArrayRef = Arc::new(Int64Array::from(keys.to_vec()));
    let batch = RecordBatch::try_from_iter([("id", id), ("x", coordinate.clone()), ("y", coordinate)]).unwrap();
    let outcome = dataset.write_batch(&batch, OnConflict::Refuse)?;
    Ok(format!("{} written, {:?} refused", outcome.keys.len(), outcome.refused))
}

/// A writer that waits for a key first makes its earlier changes durable.
#[test]
fn a_delete_is_durable_before_its_lock_is_released() {
    let gate = Arc::new(Gate::default());
    let (_store, dataset) = dataset(&gate);
    (1..=2).for_each(|key| dataset.insert(&Record::at(key, 1.0, 1.0, vec![])).unwrap());
    let locks = &dataset.engine.locks;
    let [first, second] = [1, 2].map(|key| hash_of(&dataset, key));
    let held = locks.lock(second);
    gate.close();
    std::thread::scope(|scope| {
        let deletion = scope.spawn(|| dataset.delete_where(&Condition::on("id").is_not_null(), &[]));
        while !gate.one_waits() && locks.waiting(second) == 0 {
            std::thread::yield_now();
        }
        let is_free = locks.try_lock(first).is_some();
        gate.open();
        drop(held);
        assert_eq!(deletion.join().unwrap().unwrap(), 2);
        assert!(!is_free, "the lock was released before the sync");
    });
}

/// An atomic batch that inserts a new key and deletes it again.
fn insert_and_delete(dataset: &Dataset, key: i64) -> Result<String> {
    let mut batch = dataset.atomic_batch();
    batch.insert(&Record::at(key, 1.0, 1.0, vec![]))?;
    batch.delete(&Key::Int(key))?;
    batch.commit().map(|()| String::new())
}

/// The WAIT of Algorithm 1. While it waits, the earlier changes are visible, and their keys are
/// free.
#[test]
fn a_waiting_writer_has_made_its_earlier_changes_durable_and_visible_and_released_their_keys() {
    let delete_where: Write = |dataset| {
        let deleted = dataset.delete_where(&Condition::on("id").is_not_null(), &[])?;
        Ok(format!("{deleted} deleted"))
    };
    let write_batch: Write = |dataset| write_rows(dataset, &[3, 4]);
    for (write, [first, second], left, told) in
        [(delete_where, [1, 2], 1, "2 deleted"), (write_batch, [3, 4], 3, "2 written, [] refused")]
    {
        let (_store, dataset) = dataset(&Arc::default());
        (1..=2).for_each(|key| dataset.insert(&Record::at(key, 1.0, 1.0, vec![])).unwrap());
        let (locks, log) = (&dataset.engine.locks, dataset.engine.log.as_ref().unwrap());
        let [first, second] = [first, second].map(|key| hash_of(&dataset, key));
        let held = locks.lock(second);
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| write(&dataset));
            while locks.waiting(second) == 0 && !writing.is_finished() {
                std::thread::yield_now();
            }
            let is_free = locks.try_lock(first).is_some();
            let (durable, end) = (log.durable_lsn(), log.end_lsn());
            let count = dataset.snapshot().count(&Query::new());
            // Released in any case: the other thread waits for it.
            drop(held);
            assert_eq!(writing.join().unwrap().unwrap(), told);
            assert!(is_free, "{told}: the first key is still locked");
            assert_eq!((durable, count.unwrap()), (end, left), "{told}: the first change");
        });
    }
}

/// A writer waits for a key until the sync of the key's last change fails. It is not told of that
/// change.
#[test]
fn changes_whose_sync_failed_show_in_no_answer() {
    let delete: Write = |dataset| dataset.delete(&Key::Int(1)).map(|found| found.to_string());
    let insert: Write = |dataset| dataset.insert(&Record::at(2, 1.0, 1.0, vec![])).map(|()| String::new());
    let write_batch: Write = |dataset| write_rows(dataset, &[2]);
    let delete_where: Write = |dataset| {
        let condition = Condition::on("id").equals(1);
        dataset.delete_where(&condition, &[]).map(|deleted| deleted.to_string())
    };
    let insert_and_delete_first: Write = |dataset| insert_and_delete(dataset, 1);
    let insert_and_delete_second: Write = |dataset| insert_and_delete(dataset, 2);
    for (key, first, second) in [
        (1, delete, delete),
        (1, delete, delete_where),
        (1, delete, insert_and_delete_first),
        (2, insert, insert),
        (2, insert, write_batch),
        (2, insert, insert_and_delete_second),
    ] {
        let gate = Arc::new(Gate::default());
        let (_store, dataset) = dataset(&gate);
        dataset.insert(&Record::at(1, 1.0, 1.0, vec![])).unwrap();
        let hash = hash_of(&dataset, key);
        gate.close();
        std::thread::scope(|scope| {
            let changing = scope.spawn(|| first(&dataset));
            gate.wait_until_one_waits();
            let waiting = scope.spawn(|| second(&dataset));
            while dataset.engine.locks.waiting(hash) == 0 && !waiting.is_finished() {
                std::thread::yield_now();
            }
            gate.open_with_failure();
            for outcome in [changing.join().unwrap(), waiting.join().unwrap()] {
                assert!(matches!(outcome, Err(Error::Poisoned { .. })), "{outcome:?}");
            }
        });
    }
}

/// Tests for deadlocks rely on this.
#[test]
fn keys_made_for_a_hash_have_its_lock_with_any_number_of_partitions() {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), Options::default()).unwrap();
    for (partitions, name) in [(1, "whole"), (2, "halves"), (5, "fifths")] {
        let id = KeyColumn { name: "id".into(), key_type: KeyType::Binary, generated: false };
        let geometry = GeometryColumn::Point { x: "x".into(), y: "y".into() };
        let schema = Schema::new(id, geometry, CoordinateSystem::Planar, vec![]).unwrap();
        let dataset = store.create_dataset_with(name, schema, &DatasetOptions { partitions }).unwrap();
        for hash in [0, 7, u64::MAX] {
            let keys = collisions::keys_locked_as(hash, dataset.handle.id.into(), partitions as u32, 10);
            assert!(keys.iter().all(|key| dataset.lock_hash(key) == hash), "{partitions} partitions");
            let of = |partition| keys.iter().filter(|key| dataset.handle.partition_of(key) == partition).count();
            assert!((0..partitions).all(|partition| of(partition) == 10 / partitions), "{partitions} partitions");
        }
    }
}
