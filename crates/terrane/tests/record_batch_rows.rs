//! Rows of Arrow batches as stored records.

use std::sync::Arc;

use crate::record_support::*;
use arrow_array::types::Int32Type;
use arrow_array::{
    Array, ArrayRef, BinaryArray, Date64Array, Decimal128Array, DictionaryArray, Float32Array, Float64Array,
    Int16Array, Int32Array, Int64Array, NullArray, RecordBatch, StringArray, TimestampMillisecondArray,
    TimestampNanosecondArray, UInt64Array,
};
use terrane::batch::{BatchError, BatchRecords, RowGeometry};
use terrane::key::{Key, KeyType};
use terrane::record::{Record, RecordView};
use terrane::schema::{ColumnType, GeometryColumn, KeyColumn, Schema, SchemaHistory};
use terrane::value::Value;
use terrane_space::{CoordinateSystem, Point};

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true)))
        .expect("a batch")
}

fn xy() -> Vec<(&'static str, ArrayRef)> {
    vec![
        ("id", Arc::new(Int64Array::from(vec![7])) as ArrayRef),
        ("lon", Arc::new(Float64Array::from(vec![1.0]))),
        ("lat", Arc::new(Float64Array::from(vec![2.0]))),
    ]
}

/// Encodes one row and reads it back.
fn read_row(batch: &RecordBatch, history: &SchemaHistory, row: usize) -> Result<Record, terrane::record::RowError> {
    let mut rows = BatchRecords::new(batch, history.newest()).expect("a fitting batch");
    let (mut key, mut value) = (Vec::new(), Vec::new());
    rows.encode_row(row, &mut key, &mut value)?;
    let key = Key::decode(history.newest().key.key_type, &key).expect("a sound key");
    Ok(RecordView::parse(&value, history).expect("a sound record").to_record(key).expect("a sound record"))
}

#[test]
fn missing_columns_are_null_and_unknown_ones_refused() {
    let history = history(KeyType::Int64, points(), &[ColumnType::Int64, ColumnType::Utf8]);
    let mut columns = xy();
    columns.push(("c1", Arc::new(StringArray::from(vec!["text"]))));
    let read = read_row(&batch(columns.clone()), &history, 0).expect("a valid row");
    assert_eq!(read, Record::at(7, 1.0, 2.0, vec![Value::Null, Value::Utf8("text".into())]));
    columns.push(("c9", Arc::new(Int64Array::from(vec![1]))));
    let error = BatchRecords::new(&batch(columns), history.newest()).err().expect("an unknown column").to_string();
    assert!(error.contains("c9") && error.contains("c0"), "{error}");
}

#[test]
fn other_encodings_of_a_type_are_accepted() {
    let types = [
        ColumnType::Int64,
        ColumnType::Float64,
        ColumnType::Utf8,
        ColumnType::Timestamp { utc: false },
        ColumnType::Float64,
        ColumnType::Bool,
        ColumnType::Int64,
    ];
    let history = history(KeyType::Int64, points(), &types);
    let dictionary: DictionaryArray<arrow_array::types::Int32Type> = vec!["word"].into_iter().collect();
    let mut columns = vec![
        ("id", Arc::new(Int16Array::from(vec![3])) as ArrayRef),
        ("lon", Arc::new(Int64Array::from(vec![10]))),
        ("lat", Arc::new(Float32Array::from(vec![0.5]))),
    ];
    columns.extend([
        ("c0", Arc::new(Int16Array::from(vec![-4])) as ArrayRef),
        ("c1", Arc::new(Int64Array::from(vec![5]))),
        ("c2", Arc::new(dictionary)),
        ("c3", Arc::new(TimestampMillisecondArray::from(vec![-6]))),
        ("c4", Arc::new(UInt64Array::from(vec![1u64 << 63]))),
        ("c5", Arc::new(NullArray::new(1))),
        ("c6", Arc::new(UInt64Array::from(vec![8]))),
    ]);
    let values = vec![
        Value::Int(-4),
        Value::Float64(5.0),
        Value::Utf8("word".into()),
        Value::Timestamp(-6000),
        Value::Float64((1u64 << 63) as f64),
        Value::Null,
        Value::Int(8),
    ];
    assert_eq!(read_row(&batch(columns), &history, 0), Ok(Record::at(3, 10.0, 0.5, values)));
}

#[test]
fn nanoseconds_that_are_whole_microseconds_are_accepted() {
    let history = history(KeyType::Int64, points(), &[ColumnType::Timestamp { utc: false }]);
    let with = |nanoseconds: i64| {
        let mut columns = xy();
        columns.push(("c0", Arc::new(TimestampNanosecondArray::from(vec![nanoseconds])) as ArrayRef));
        batch(columns)
    };
    let taken = read_row(&with(-3000), &history, 0).expect("whole microseconds");
    assert_eq!(taken.values, [Value::Timestamp(-3)]);
    let refused = read_row(&with(-3001), &history, 0).expect_err("finer than stored").to_string();
    assert!(refused.contains("c0") && refused.contains("-3001 nanoseconds"), "{refused}");
}

#[test]
fn milliseconds_that_are_whole_days_are_accepted_as_dates() {
    let history = history(KeyType::Int64, points(), &[ColumnType::Date]);
    let day = 86_400_000;
    for is_dictionary in [false, true] {
        let with = |milliseconds: i64| {
            let array = Arc::new(Date64Array::from(vec![milliseconds])) as ArrayRef;
            let dictionary = || DictionaryArray::<Int32Type>::new(Int32Array::from(vec![0]), array.clone());
            let mut columns = xy();
            columns.push(("c0", if is_dictionary { Arc::new(dictionary()) } else { array.clone() }));
            read_row(&batch(columns), &history, 0)
        };
        for (milliseconds, days) in [(0, 0), (-day, -1), (day * i64::from(i32::MAX), i32::MAX)] {
            assert_eq!(with(milliseconds).expect("whole days").values, [Value::Date(days)]);
        }
        for (milliseconds, part) in [
            (-3_600_000, "not a whole number of days"),
            (day + 1, "not a whole number of days"),
            (day * (i64::from(i32::MAX) + 1), "beyond the range of dates"),
            (i64::MIN, "beyond the range of dates"),
        ] {
            let refused = with(milliseconds).expect_err("no date").to_string();
            assert!(refused.contains("c0") && refused.contains(part), "{refused}");
        }
    }
}

#[test]
fn decimal_numbers_become_the_nearest_float64() {
    let history = history(KeyType::Int64, points(), &[ColumnType::Float64]);
    for (digits, nearest) in [
        (900_719_925_474_099_300, 9_007_199_254_740_992.0),
        (900_719_925_474_099_301, 9_007_199_254_740_994.0),
        (-900_719_925_474_099_500, -9_007_199_254_740_996.0),
    ] {
        let digits = Decimal128Array::from(vec![digits]);
        let digits = Arc::new(digits.with_precision_and_scale(18, 2).expect("in range")) as ArrayRef;
        let dictionary = DictionaryArray::<Int32Type>::new(Int32Array::from(vec![0]), digits.clone());
        for array in [digits, Arc::new(dictionary)] {
            let mut columns = xy();
            columns.push(("c0", array));
            let values = read_row(&batch(columns), &history, 0).expect("a number").values;
            assert_eq!(values, [Value::Float64(nearest)]);
        }
    }
}

#[test]
fn a_type_that_does_not_fit_is_named_with_both_types() {
    let history = history(KeyType::Int64, points(), &[ColumnType::Int64, ColumnType::Timestamp { utc: true }]);
    let cases: [(&str, ArrayRef, &str, &str); 4] = [
        ("c0", Arc::new(Float64Array::from(vec![1.0])), "Float64", "int64"),
        ("c0", Arc::new(StringArray::from(vec!["1"])), "Utf8", "int64"),
        ("c1", Arc::new(TimestampMillisecondArray::from(vec![1])), "Timestamp", "UTC"),
        ("lon", Arc::new(StringArray::from(vec!["1"])), "Utf8", "float64"),
    ];
    for (name, array, found, wanted) in cases {
        let mut columns: Vec<_> = xy().into_iter().filter(|(column, _)| *column != name).collect();
        columns.push((name, array));
        let error = BatchRecords::new(&batch(columns), history.newest()).err().expect("another type").to_string();
        assert!(error.contains(name) && error.contains(found) && error.contains(wanted), "{error}");
    }
}

#[test]
fn missing_keys_and_coordinates_are_refused() {
    let history = history(KeyType::Int64, points(), &[]);
    for (left_out, role) in [("id", "key"), ("lon", "first coordinate"), ("lat", "second coordinate")] {
        let columns = xy().into_iter().filter(|(name, _)| *name != left_out).collect();
        let error = BatchRecords::new(&batch(columns), history.newest()).err().expect("a column is missing");
        assert!(matches!(error, BatchError::MissingColumn { role: found, .. } if found == role), "{error}");
    }
}

#[test]
fn without_keys_the_caller_numbers_the_records() {
    let key = KeyColumn { name: "key".into(), key_type: KeyType::Int64, generated: true };
    let schema = Schema::new(key, points(), CoordinateSystem::LonLat, vec![]).expect("a sound schema");
    let columns = xy().into_iter().filter(|(name, _)| *name != "id").collect();
    let batch = batch(columns);
    let mut rows = BatchRecords::new(&batch, &schema).expect("a fitting batch");
    assert!(!rows.has_keys());
    let (mut key, mut value) = (Vec::new(), Vec::new());
    rows.encode_row(0, &mut key, &mut value).expect("a valid row");
    assert!(key.is_empty() && !value.is_empty());
}

#[test]
fn faulty_rows_name_their_column_and_leave_the_buffers() {
    let history = history(KeyType::Int64, points(), &[ColumnType::Int64]);
    let nan = f64::NAN;
    let batch = batch(vec![
        (
            "id",
            Arc::new(Int64Array::from(vec![
                None,
                Some(1),
                Some(2),
                Some(3),
                Some(4),
                Some(5),
                Some(6),
                Some(7),
                Some(8),
            ])),
        ),
        (
            "lon",
            Arc::new(Float64Array::from(vec![
                Some(0.0),
                None,
                Some(0.0),
                Some(190.0),
                Some(50.0),
                Some(0.0),
                Some(nan),
                Some(nan),
                Some(0.0),
            ])),
        ),
        (
            "lat",
            Arc::new(Float64Array::from(vec![
                Some(0.0),
                Some(0.0),
                None,
                Some(0.0),
                Some(100.0),
                Some(0.0),
                Some(nan),
                None,
                Some(nan),
            ])),
        ),
        ("c0", Arc::new(UInt64Array::from(vec![0, 0, 0, 0, 0, u64::MAX, 0, 0, 0]))),
    ]);
    let mut rows = BatchRecords::new(&batch, history.newest()).expect("a fitting batch");
    let expected = [
        ("id", "null"),
        ("lon", "null"),
        ("lat", "null"),
        ("lon", "190"),
        ("lat", "swap latitude and longitude"),
        ("c0", "18446744073709551615"),
        // Only null stands for a missing coordinate.
        ("lon", "NaN"),
        ("lat", "null"),
        ("lat", "NaN"),
    ];
    for (row, (column, part)) in expected.into_iter().enumerate() {
        let (mut key, mut value) = (vec![1], vec![2]);
        let error = rows.encode_row(row, &mut key, &mut value).expect_err("a faulty row");
        assert_eq!(error.column.as_deref(), Some(column), "row {row}: {error}");
        assert!(error.reason.contains(part), "row {row}: {error}");
        assert_eq!((key, value), (vec![1], vec![2]));
    }
    let (mut key, mut value) = (Vec::new(), Vec::new());
    assert!(rows.encode_row(9, &mut key, &mut value).is_err(), "there is no such row");
}

#[test]
fn geometries_are_validated_and_normalised() {
    let history = history(KeyType::Int64, shapes(), &[]);
    let mut big_endian = vec![0, 0, 0, 0, 1];
    big_endian.extend(3.0f64.to_be_bytes());
    big_endian.extend(4.0f64.to_be_bytes());
    let line = line_wkb(&[Point::new(0.0, 0.0), Point::new(2.0, 1.0)]);
    let beyond = line_wkb(&[Point::new(0.0, 0.0), Point::new(2.0, 91.0)]);
    let wkb: Vec<Option<&[u8]>> = vec![Some(&big_endian), Some(&line), None, Some(b"nonsense"), Some(&beyond)];
    let batch = batch(vec![
        ("id", Arc::new(Int64Array::from_iter_values(0..5))),
        ("geometry", Arc::new(BinaryArray::from(wkb))),
    ]);
    let mut rows = BatchRecords::new(&batch, history.newest()).expect("a fitting batch");
    let mut encode = |row| rows.encode_row(row, &mut Vec::new(), &mut Vec::new());
    assert_eq!(encode(0), Ok(RowGeometry::Point(Point::new(3.0, 4.0))));
    let rect = encode(1).expect("a line").rect().expect("a box");
    assert!(rect.contains_point(Point::new(0.0, 0.0)) && rect.contains_point(Point::new(2.0, 1.0)));
    assert_eq!(encode(2), Ok(RowGeometry::None));
    for row in [3, 4] {
        assert_eq!(encode(row).expect_err("no geometry").column.as_deref(), Some("geometry"));
    }
}

#[test]
fn keys_of_another_type_are_refused() {
    let unsigned = history(KeyType::UInt64, points(), &[]);
    assert!(BatchRecords::new(&batch(xy()), unsigned.newest()).is_err(), "an int64 may be negative");
    let mut columns = xy();
    columns[0].1 = Arc::new(UInt64Array::from(vec![u64::MAX]));
    assert_eq!(read_row(&batch(columns.clone()), &unsigned, 0), Ok(Record::at(u64::MAX, 1.0, 2.0, vec![])));
    let signed = history(KeyType::Int64, points(), &[]);
    assert!(BatchRecords::new(&batch(columns), signed.newest()).is_err(), "a uint64 may be beyond int64");
}

#[test]
fn rows_of_a_slice_are_the_rows_of_the_slice() {
    let history = history(KeyType::Int64, points(), &[]);
    let all = batch(vec![
        ("id", Arc::new(Int64Array::from(vec![Some(1), None, Some(3)]))),
        ("lon", Arc::new(Float64Array::from(vec![1.0, 2.0, 3.0]))),
        ("lat", Arc::new(Float64Array::from(vec![1.0, 2.0, 3.0]))),
    ]);
    assert_eq!(read_row(&all.slice(2, 1), &history, 0), Ok(Record::at(3, 3.0, 3.0, vec![])));
    assert_eq!(all.slice(2, 1).column(0).null_count(), 0);
}

#[test]
fn planar_datasets_accept_any_finite_coordinates() {
    let geometry = GeometryColumn::Point { x: "lon".into(), y: "lat".into() };
    let schema =
        Schema::new(key_column(KeyType::Int64), geometry, CoordinateSystem::Planar, vec![]).expect("a sound schema");
    let history = SchemaHistory::new(schema).expect("a first version");
    let at = |x: f64| {
        let mut columns = xy();
        columns[1].1 = Arc::new(Float64Array::from(vec![x]));
        read_row(&batch(columns), &history, 0)
    };
    assert_eq!(at(-1e300), Ok(Record::at(7, -1e300, 2.0, vec![])));
    assert_eq!(at(f64::INFINITY).expect_err("not finite").column.as_deref(), Some("lon"));
}

#[test]
fn integers_without_an_exact_float_are_refused_as_coordinates() {
    let geometry = GeometryColumn::Point { x: "lon".into(), y: "lat".into() };
    let schema =
        Schema::new(key_column(KeyType::Int64), geometry, CoordinateSystem::Planar, vec![]).expect("a sound schema");
    let history = SchemaHistory::new(schema).expect("a first version");
    let at = |place: usize, coordinate: ArrayRef| {
        let mut columns = xy();
        columns[place].1 = coordinate;
        read_row(&batch(columns), &history, 0)
    };
    let last = 1i64 << 53;
    for integer in [last, -last, last + 2, i64::MIN, 1 << 62] {
        let read = at(1, Arc::new(Int64Array::from(vec![integer])));
        assert_eq!(read, Ok(Record::at(7, integer as f64, 2.0, vec![])));
    }
    let unsigned = at(2, Arc::new(UInt64Array::from(vec![1 << 63])));
    assert_eq!(unsigned, Ok(Record::at(7, 1.0, (1u64 << 63) as f64, vec![])));
    let refused: [(usize, ArrayRef, &str); 4] = [
        (1, Arc::new(Int64Array::from(vec![last + 1])), "9007199254740993"),
        (2, Arc::new(Int64Array::from(vec![-last - 1])), "-9007199254740993"),
        (1, Arc::new(Int64Array::from(vec![i64::MAX])), "9223372036854775807"),
        (2, Arc::new(UInt64Array::from(vec![u64::MAX])), "18446744073709551615"),
    ];
    for (place, coordinate, integer) in refused {
        let error = at(place, coordinate).expect_err(integer);
        assert_eq!(error.column.as_deref(), Some(["lon", "lat"][place - 1]));
        assert!(error.reason.contains(integer) && error.reason.contains("exactly"), "{error}");
    }
}
