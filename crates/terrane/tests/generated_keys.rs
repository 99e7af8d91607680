//! Records without keys are numbered above every key that is there.

mod support;

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use support::{schema, small_options};
use terrane::schema::KeyType;
use terrane::{CoordinateSystem, Key, OnConflict, Store};
use terrane_storage::MemoryStorage;

fn batch(keys: Option<&[i64]>, rows: usize) -> RecordBatch {
    let coordinate: ArrayRef = Arc::new(Float64Array::from(vec![1.0; rows]));
    let mut columns = vec![("x", coordinate.clone()), ("y", coordinate)];
    if let Some(keys) = keys {
        columns.push(("id", Arc::new(Int64Array::from(keys.to_vec()))));
    }
    RecordBatch::try_from_iter(columns).unwrap()
}

#[test]
fn numbers_go_on_above_keys_of_the_same_session() {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), small_options()).unwrap();
    let mut schema = schema(KeyType::Int64, true, CoordinateSystem::Planar);
    schema.key.generated = true;
    let dataset = store.create_dataset("d", schema).unwrap();
    let write = |keys: Option<&[i64]>, rows| {
        let outcome = dataset.write_batch(&batch(keys, rows), OnConflict::Refuse).unwrap();
        assert!(outcome.refused.is_empty(), "{:?}", outcome.refused);
        outcome.keys
    };
    assert_eq!(write(None, 2), [Key::Int(0), Key::Int(1)]);
    assert_eq!(write(Some(&[2, 7, -5]), 3), [Key::Int(2), Key::Int(7), Key::Int(-5)]);
    assert_eq!(write(None, 1), [Key::Int(8)]);
    dataset.insert(&terrane::Record::at(20, 0.0, 0.0, vec![terrane::Value::Null, terrane::Value::Null])).unwrap();
    assert_eq!(write(None, 1), [Key::Int(21)]);
}
