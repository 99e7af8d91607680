//! A stored record is read unchanged.

use crate::record_support::*;
use proptest::prelude::*;
use terrane::key::{Key, KeyType};
use terrane::record::{Geometry, GeometryRef, RECORD_BYTES_MAX, Record, RecordView, RowGeometry, stored_geometry};
use terrane::schema::ColumnType;
use terrane::value::Value;
use terrane_space::{CoordinateSystem, Point};

proptest! {
    #[test]
    fn records_are_read_unchanged((history, record) in any_record()) {
        let mut bytes = vec![0xAA; 3];
        let row = record.encode(&history, &mut bytes).expect("a valid record");
        prop_assert_eq!(&bytes[..3], &[0xAA; 3], "appended, not overwritten");
        let view = RecordView::parse(&bytes[3..], &history).expect("a sound record");
        prop_assert_eq!(view.geometry(), stored_geometry(&bytes[3..]).expect("a sound record"));
        prop_assert_eq!(view.row_geometry(CoordinateSystem::LonLat).expect("a valid geometry"), row);
        prop_assert_eq!(view.to_record(record.key.clone()).expect("a sound record"), record);
    }

    #[test]
    fn equal_records_have_equal_bytes((history, record) in any_record()) {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        record.encode(&history, &mut first).expect("a valid record");
        let view = RecordView::parse(&first, &history).expect("a sound record");
        let copy = view.to_record(record.key.clone()).expect("a sound record");
        copy.encode(&history, &mut second).expect("a valid record");
        prop_assert_eq!(first, second);
    }
}

#[test]
fn the_layout_is_as_documented() {
    let types = [ColumnType::Int64, ColumnType::Utf8, ColumnType::Bool, ColumnType::Binary];
    let history = history(KeyType::Int64, points(), &types);
    let values = vec![Value::Int(-2), Value::Utf8("ab".into()), Value::Null, Value::Binary(vec![7])];
    let mut bytes = Vec::new();
    Record::at(1, 1.5, -2.0, values).encode(&history, &mut bytes).expect("a valid record");
    let mut expected = vec![1, 1, 1, 0];
    expected.extend(1.5f64.to_le_bytes());
    expected.extend((-2.0f64).to_le_bytes());
    expected.push(0b0100);
    expected.extend((-2i64).to_le_bytes());
    expected.push(0);
    expected.extend(2u32.to_le_bytes());
    expected.extend(3u32.to_le_bytes());
    expected.extend(b"ab\x07");
    assert_eq!(bytes, expected);
}

#[test]
fn points_of_a_geometry_column_are_stored_compactly_and_read_as_wkb() {
    let history = history(KeyType::Int64, shapes(), &[]);
    let point = Point::new(3.0, 4.0);
    for geometry in [Geometry::Point(point), Geometry::Wkb(point_wkb(point))] {
        let record = Record { key: Key::Int(1), geometry: Some(geometry), values: vec![] };
        let mut bytes = Vec::new();
        assert_eq!(record.encode(&history, &mut bytes), Ok(RowGeometry::Point(point)));
        assert_eq!(stored_geometry(&bytes), Ok(Some(GeometryRef::Point(point))));
        let view = RecordView::parse(&bytes, &history).expect("a sound record");
        let read = view.to_record(Key::Int(1)).expect("a sound record");
        assert_eq!(read.geometry, Some(Geometry::Wkb(point_wkb(point))));
    }
}

#[test]
fn points_with_height_keep_it_and_are_indexed_as_points() {
    let history = history(KeyType::Int64, shapes(), &[]);
    let mut wkb = vec![1];
    wkb.extend(1001u32.to_le_bytes());
    for number in [5.0f64, 6.0, 700.0] {
        wkb.extend(number.to_le_bytes());
    }
    let record = Record { key: Key::Int(1), geometry: Some(Geometry::Wkb(wkb.clone())), values: vec![] };
    let mut bytes = Vec::new();
    assert_eq!(record.encode(&history, &mut bytes), Ok(RowGeometry::Point(Point::new(5.0, 6.0))));
    assert_eq!(stored_geometry(&bytes), Ok(Some(GeometryRef::Wkb(&wkb))));
}

#[test]
fn points_with_a_height_or_measure_that_is_not_finite_are_refused_and_are_damage() {
    let history = history(KeyType::Int64, shapes(), &[]);
    let point = |code: u32, numbers: &[f64]| {
        let mut wkb = vec![1];
        wkb.extend(code.to_le_bytes());
        wkb.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        Record { key: Key::Int(1), geometry: Some(Geometry::Wkb(wkb)), values: vec![] }
    };
    let extended = [0x8000_0001, 0x4000_0001, 0xc000_0001];
    for (code, others) in [1001, 2001, 3001].into_iter().zip([1, 1, 2]).chain(extended.into_iter().zip([1, 1, 2])) {
        let sound = vec![5.0; 2 + others];
        let mut stored = Vec::new();
        point(code, &sound).encode(&history, &mut stored).expect("a finite point");
        let numbers_start = stored.len() - 8 * sound.len();
        for (place, bad) in (2..sound.len()).flat_map(|place| [f64::NAN, f64::INFINITY].map(|bad| (place, bad))) {
            let mut numbers = sound.clone();
            numbers[place] = bad;
            let error = point(code, &numbers).encode(&history, &mut Vec::new()).expect_err("no finite point");
            assert!(error.reason.contains("finite"), "{code}: {error}");
            let mut damaged = stored.clone();
            damaged[numbers_start + 8 * place..][..8].copy_from_slice(&bad.to_le_bytes());
            let view = RecordView::parse(&damaged, &history).expect("of the right size");
            assert!(view.row_geometry(CoordinateSystem::LonLat).is_err(), "{code}: {numbers:?}");
        }
    }
}

#[test]
fn big_endian_and_extended_wkb_is_normalised_and_checked() {
    let history = history(KeyType::Int64, shapes(), &[]);
    let extended = |x: f64, srid: u32| {
        let mut wkb = vec![0];
        wkb.extend(0x2000_0001u32.to_be_bytes());
        wkb.extend(srid.to_be_bytes());
        wkb.extend(x.to_be_bytes());
        wkb.extend(2.0f64.to_be_bytes());
        Record { key: Key::Int(1), geometry: Some(Geometry::Wkb(wkb)), values: vec![] }
    };
    let mut bytes = Vec::new();
    let row = extended(1.0, 4326).encode(&history, &mut bytes);
    assert_eq!(row, Ok(RowGeometry::Point(Point::new(1.0, 2.0))));
    assert_eq!(stored_geometry(&bytes), Ok(Some(GeometryRef::Point(Point::new(1.0, 2.0)))));
    let out_of_range = extended(181.0, 4326).encode(&history, &mut bytes).expect_err("no such longitude");
    assert!(out_of_range.reason.contains("181"), "{out_of_range}");
    let reference = extended(1.0, 3857).encode(&history, &mut bytes).expect_err("another reference system");
    assert!(reference.reason.contains("3857"), "{reference}");
}

#[test]
fn refused_records_leave_the_buffer_as_it_was_and_name_the_column() {
    let history = history(KeyType::Int64, points(), &[ColumnType::Int64, ColumnType::Utf8]);
    let sound = |index: usize, value: Value| {
        let mut values = vec![Value::Int(1), Value::Utf8("text".into())];
        values[index] = value;
        Record::at(1, 0.0, 0.0, values)
    };
    let cases = [
        (sound(0, Value::Float64(1.5)), Some("c0"), "int64"),
        (sound(1, Value::Int(1)), Some("c1"), "utf8"),
        (sound(1, Value::Utf8("x".repeat(RECORD_BYTES_MAX))), None, "16777216"),
        (Record::at(1, 0.0, 0.0, vec![Value::Null]), None, "2"),
        (Record::at("1", 0.0, 0.0, vec![Value::Null, Value::Null]), Some("id"), "utf8"),
        (Record::at(1, 200.0, 0.0, vec![Value::Null, Value::Null]), Some("lon"), "200"),
        (Record::at(1, f64::NAN, 0.0, vec![Value::Null, Value::Null]), Some("lon"), "NaN"),
        (
            Record {
                key: Key::Int(1),
                geometry: Some(Geometry::Wkb(line_wkb(&[Point::new(0.0, 0.0), Point::new(1.0, 1.0)]))),
                values: vec![Value::Null, Value::Null],
            },
            Some("lon"),
            "points",
        ),
    ];
    for (record, column, part) in cases {
        let mut out = vec![1, 2, 3];
        let error = record.encode(&history, &mut out).expect_err("a record to refuse");
        assert_eq!(error.column.as_deref(), column, "{error}");
        assert!(error.reason.contains(part), "{error} should mention {part}");
        assert_eq!(out, [1, 2, 3]);
    }
}

#[test]
fn the_largest_record_is_stored() {
    let history = history(KeyType::Int64, points(), &[ColumnType::Binary]);
    // Header, point, null bitmap and end offset.
    let fixed = 4 + 16 + 1 + 4;
    let mut out = Vec::new();
    let record = |bytes| Record::at(1, 0.0, 0.0, vec![Value::Binary(vec![9; bytes])]);
    record(RECORD_BYTES_MAX - fixed).encode(&history, &mut out).expect("the largest record");
    assert_eq!(out.len(), RECORD_BYTES_MAX);
    assert!(record(RECORD_BYTES_MAX - fixed + 1).encode(&history, &mut Vec::new()).is_err());
    let view = RecordView::parse(&out, &history).expect("a sound record");
    assert_eq!(view.to_record(Key::Int(1)), Ok(record(RECORD_BYTES_MAX - fixed)));
}
