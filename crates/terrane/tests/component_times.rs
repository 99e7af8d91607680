//! The statistics of components have the range of times of their records.

use std::sync::Arc;

use crate::support::small_options;
use crate::support::workload::{MAIN, first_schema};
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, TimestampMicrosecondArray};
use terrane::schema::{Column, ColumnType};
use terrane::{Dataset, Key, Record, Store, TimesInfo, Value};
use terrane_storage::Storage;
use terrane_testkit::MemoryStorage;

const SECOND: i64 = 1_000_000;

/// A record with two timestamps: the first in seconds after 1970, the second a day later.
fn at(key: i64, seconds: Option<i64>) -> Record {
    let time = |offset: i64| seconds.map_or(Value::Null, |seconds| Value::Timestamp((seconds + offset) * SECOND));
    Record::at(key, 1.0, 2.0, vec![Value::Null, Value::Null, time(0), time(86_400)])
}

fn times(store: &Store) -> Option<TimesInfo> {
    let report = store.check(false).unwrap();
    assert!(report.is_clean(), "{report:?}");
    store.info().unwrap().datasets.remove(0).times
}

fn of(column: &str, first: &str, last: &str) -> Option<TimesInfo> {
    Some(TimesInfo { column: column.into(), first: first.into(), last: last.into() })
}

fn created() -> (Arc<dyn Storage>, Store, Dataset) {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let store = Store::open_on(storage.clone(), small_options()).unwrap();
    let dataset = store.create_dataset(MAIN, first_schema()).unwrap();
    (storage, store, dataset)
}

#[test]
fn flushes_and_merges_keep_the_range_of_the_first_timestamp() {
    let (storage, store, dataset) = created();
    dataset.insert(&Record::at(1, 1.0, 2.0, vec![Value::Null, Value::Null])).unwrap();
    dataset.flush().unwrap();
    assert_eq!(times(&store), None, "no attribute holds a time");
    for name in ["begun", "ended"] {
        dataset.add_column(Column::new(name, ColumnType::Timestamp { utc: true })).unwrap();
    }
    dataset.compact().unwrap();
    assert_eq!(times(&store), None, "no record has a time");
    for (key, seconds) in [(2, Some(-5)), (3, Some(60)), (4, None), (5, Some(90))] {
        dataset.insert(&at(key, seconds)).unwrap();
        dataset.flush().unwrap();
    }
    let (first, last) = ("1969-12-31T23:59:55Z", "1970-01-01T00:01:30Z");
    assert_eq!(times(&store), of("begun", first, last));
    dataset.delete(&Key::Int(5)).unwrap();
    dataset.flush().unwrap();
    assert_eq!(times(&store), of("begun", first, last), "an older component has the deleted record");
    dataset.compact().unwrap();
    assert_eq!(times(&store), of("begun", first, "1970-01-01T00:01:00Z"));
    dataset.rename_column("begun", "since").unwrap();
    assert_eq!(times(&store), of("since", first, "1970-01-01T00:01:00Z"));
    dataset.drop_column("since").unwrap();
    assert_eq!(times(&store), None, "the components have the times of an attribute that is gone");
    // A record without times, so that there is something to merge.
    dataset.insert(&Record::at(6, 1.0, 2.0, vec![Value::Null; 3])).unwrap();
    dataset.compact().unwrap();
    let after = of("ended", "1970-01-01T23:59:55Z", "1970-01-02T00:01:00Z");
    assert_eq!(times(&store), after);
    drop((store, dataset));
    assert_eq!(times(&Store::open_on(storage, small_options()).unwrap()), after);
}

#[test]
fn imports_keep_the_range_also_of_an_attribute_that_they_add() {
    // Ascending keys become the component as they come; others are sorted and merged.
    for keys in [[1, 2, 3], [3, 1, 2]] {
        let (_, store, _) = created();
        let mut importer = store.importer(MAIN, first_schema()).unwrap();
        importer.add_column(Column::new("seen", ColumnType::Timestamp { utc: false })).unwrap();
        let schema = Arc::new(importer.schema().to_arrow());
        let columns = schema.fields().iter().map(|field| match field.name().as_str() {
            "seen" => {
                Arc::new(TimestampMicrosecondArray::from(vec![Some(7 * SECOND), None, Some(2 * SECOND)])) as ArrayRef
            }
            "id" => Arc::new(Int64Array::from(keys.to_vec())),
            _ if *field.data_type() == arrow_schema::DataType::Float64 => Arc::new(Float64Array::from(vec![1.0; 3])),
            _ => arrow_array::new_null_array(field.data_type(), 3),
        });
        let batch = RecordBatch::try_new(schema.clone(), columns.collect()).unwrap();
        assert!(importer.push(&batch).unwrap().is_empty());
        importer.finish(&mut |refused| panic!("{refused:?}")).unwrap();
        assert_eq!(times(&store), of("seen", "1970-01-01T00:00:02", "1970-01-01T00:00:07"));
    }
}
