//! Stored records as Arrow batches.

use crate::record_support::*;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use proptest::collection::vec;
use proptest::prelude::*;
use terrane::batch::{BATCH_ROWS_MAX, BatchBuilder, BatchError, BatchRecords};
use terrane::key::KeyType;
use terrane::record::Record;
use terrane::schema::{ColumnType, SchemaHistory};
use terrane::value::Value;

fn any_records() -> impl Strategy<Value = (SchemaHistory, Vec<Record>)> {
    let geometry = proptest::sample::select(vec![points(), shapes()]);
    (any_key_type(), geometry, vec(any_column_type(), 0..9)).prop_flat_map(|(key_type, geometry, types)| {
        let history = history(key_type, geometry.clone(), &types);
        let values: Vec<_> = types.iter().map(|column_type| any_value(*column_type)).collect();
        let record = (any_key(key_type), any_geometry(&geometry), values).prop_map(|(key, geometry, values)| Record {
            key,
            geometry,
            values,
        });
        (Just(history), vec(record, 0..12))
    })
}

proptest! {
    #[test]
    fn rows_survive_a_round_trip_through_arrow((history, records) in any_records()) {
        let mut builder = BatchBuilder::new(&history, None, false).expect("all columns");
        let mut stored = Vec::new();
        for record in &records {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            record.key.encode(&mut key).expect("a short key");
            let row = record.encode(&history, &mut value).expect("a valid record");
            builder.append(&key, &value, None).expect("room for a row");
            stored.push((key, value, row));
        }
        let batch = builder.finish().expect("a batch");
        prop_assert_eq!(batch.schema_ref().as_ref(), &history.newest().to_arrow());
        prop_assert_eq!(batch.num_rows(), records.len());
        let mut rows = BatchRecords::new(&batch, history.newest()).expect("a fitting batch");
        for (row, expected) in stored.into_iter().enumerate() {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            let geometry = rows.encode_row(row, &mut key, &mut value).expect("a valid row");
            prop_assert_eq!((key, value, geometry), expected);
        }
    }
}

#[test]
fn projections_give_the_columns_in_their_order() {
    let types = [ColumnType::Int64, ColumnType::Utf8, ColumnType::Float64];
    let history = history(KeyType::Utf8, points(), &types);
    let mut value = Vec::new();
    let values = vec![Value::Int(1), Value::Utf8("text".into()), Value::Null];
    Record::at("k", 1.0, 2.0, values).encode(&history, &mut value).expect("a valid record");
    let names = ["lat", "c1", "id"].map(str::to_owned);
    let mut builder = BatchBuilder::new(&history, Some(&names), true).expect("known columns");
    builder.append(b"k", &value, Some(4.5)).expect("room for a row");
    assert_eq!((builder.rows(), builder.bytes()), (1, 33));
    let batch = builder.finish().expect("a batch");
    let fields: Vec<_> = batch.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(fields, ["lat", "c1", "id", "distance"]);
    assert_eq!(batch.column(0).as_primitive::<Float64Type>().value(0), 2.0);
    assert_eq!(batch.column(1).as_string::<i32>().value(0), "text");
    assert_eq!(batch.column(2).as_string::<i32>().value(0), "k");
    assert_eq!(batch.column(3).as_primitive::<Float64Type>().value(0), 4.5);
    assert_eq!(builder.rows(), 0);

    let unknown = ["c7"].map(str::to_owned);
    assert!(matches!(BatchBuilder::new(&history, Some(&unknown), false), Err(BatchError::UnknownColumn { .. })));
    let twice = ["c0", "c0"].map(str::to_owned);
    assert!(matches!(BatchBuilder::new(&history, Some(&twice), false), Err(BatchError::DuplicateColumn { .. })));
}

#[test]
fn keys_alone_and_no_columns_at_all_need_no_records() {
    let history = history(KeyType::Int64, points(), &[ColumnType::Int64]);
    let names = ["id".to_owned()];
    let mut builder = BatchBuilder::new(&history, Some(&names), false).expect("the key");
    assert!(!builder.reads_records());
    for key in 0..BATCH_ROWS_MAX as i64 {
        assert!(!builder.is_full());
        builder.append(&terrane::key::encode_int(key), &[], None).expect("room for a row");
    }
    assert!(builder.is_full());
    let batch = builder.finish().expect("a batch");
    assert_eq!(batch.column(0).as_primitive::<Int64Type>().value(5), 5);

    let mut builder = BatchBuilder::new(&history, Some(&[]), false).expect("no columns");
    builder.append(&terrane::key::encode_int(1), &[], None).expect("room for a row");
    assert_eq!(builder.finish().expect("a batch").num_rows(), 1);
}

#[test]
fn damaged_records_and_keys_are_refused() {
    let history = history(KeyType::Int64, points(), &[ColumnType::Int64]);
    let mut builder = BatchBuilder::new(&history, None, false).expect("all columns");
    assert!(matches!(builder.append(&[1; 8], &[9, 9, 9, 9], None), Err(BatchError::Record(_))));
    let mut value = Vec::new();
    Record::at(1, 0.0, 0.0, vec![Value::Null]).encode(&history, &mut value).expect("a valid record");
    assert!(matches!(builder.append(&[1; 7], &value, None), Err(BatchError::Key(_))));
}

/// Slots count like texts. Otherwise, those of thousands of columns would take hundreds of
/// megabytes.
#[test]
fn batches_of_many_columns_have_few_rows() {
    const COLUMNS: usize = 2000;
    let types: Vec<ColumnType> = [ColumnType::Int64, ColumnType::Utf8].into_iter().cycle().take(COLUMNS).collect();
    let history = history(KeyType::Int64, points(), &types);
    let mut value = Vec::new();
    Record::at(1, 1.0, 2.0, vec![Value::Null; COLUMNS]).encode(&history, &mut value).expect("a valid record");
    let bytes_max = 1 << 20;
    let mut builder = BatchBuilder::new(&history, None, false).expect("all columns").with_bytes_max(bytes_max);
    while !builder.is_full() {
        assert!(builder.rows_left() > 0);
        builder.append(&terrane::key::encode_int(1), &value, None).expect("room for a row");
    }
    assert_eq!((builder.rows_left(), builder.bytes_left()), (0, 0));
    let rows = builder.rows();
    assert!((40..150).contains(&rows), "{rows}");
    let taken = builder.finish().expect("a batch").get_array_memory_size();
    // Builders double their size, and each column has a few words of overhead.
    assert!(taken < 2 * bytes_max + COLUMNS * 300, "{taken}");

    let mut tiny = BatchBuilder::new(&history, None, false).expect("all columns").with_bytes_max(1);
    assert!(!tiny.is_full(), "a batch has at least one row");
    tiny.append(&terrane::key::encode_int(1), &value, None).expect("room for a row");
    assert!(tiny.is_full());
}
