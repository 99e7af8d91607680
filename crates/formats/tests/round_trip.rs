//! Written data reads back the same.
//!
//! proptest prints the shrunk case and stores its seed beside this file; the
//! stored seeds are replayed by every later run.

use std::sync::Arc;

use crate::support::{TestFile, read, written};
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use proptest::prelude::*;
use terrane_formats::{ColumnType, GeometryColumns, OutputFormat, ReadOptions};

#[derive(Debug, Clone)]
struct Row {
    id: Option<i64>,
    value: Option<f64>,
    flag: Option<bool>,
    name: Option<String>,
    day: Option<i32>,
    at: Option<i64>,
    point: Option<(f64, f64)>,
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let finite = prop_oneof![any::<f64>().prop_filter("finite", |value| value.is_finite()), -1e3..1e3];
    let name = prop_oneof![
        "[ -~]{0,12}",
        any::<String>().prop_map(|text| text.replace('\0', "")),
        Just("a\r\n\"b\",;\t|".to_string()),
    ];
    let row = (
        any::<Option<i64>>(),
        proptest::option::of(finite),
        any::<Option<bool>>(),
        proptest::option::of(name),
        proptest::option::of(-700_000..2_900_000_i32),
        proptest::option::of(-60_000_000_000_000_000..250_000_000_000_000_000_i64),
        proptest::option::of((-180.0..180.0, -90.0..90.0)),
    )
        .prop_map(|(id, value, flag, name, day, at, point)| Row { id, value, flag, name, day, at, point });
    proptest::collection::vec(row, 1..40)
}

fn batch_of(rows: &[Row]) -> RecordBatch {
    let wkb: Vec<Option<Vec<u8>>> = rows
        .iter()
        .map(|row| row.point.map(|(x, y)| [&[1, 1, 0, 0, 0][..], &x.to_le_bytes(), &y.to_le_bytes()].concat()))
        .collect();
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(rows.iter().map(|row| row.id).collect::<Int64Array>())),
        ("value", Arc::new(rows.iter().map(|row| row.value).collect::<Float64Array>())),
        ("flag", Arc::new(rows.iter().map(|row| row.flag).collect::<BooleanArray>())),
        ("name", Arc::new(rows.iter().map(|row| row.name.clone()).collect::<StringArray>())),
        ("day", Arc::new(rows.iter().map(|row| row.day).collect::<Date32Array>())),
        ("at", Arc::new(rows.iter().map(|row| row.at).collect::<TimestampMicrosecondArray>())),
        ("geometry", Arc::new(wkb.iter().map(Option::as_deref).collect::<BinaryArray>())),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true)))
        .expect("columns of one length")
}

/// The types of all columns except the geometry. Text formats may not show them if every value is
/// null.
fn column_types() -> Vec<(String, ColumnType)> {
    [
        ("id", ColumnType::Int64),
        ("value", ColumnType::Float64),
        ("flag", ColumnType::Boolean),
        ("name", ColumnType::Utf8),
        ("day", ColumnType::Date32),
        ("at", ColumnType::Timestamp),
    ]
    .map(|(name, column_type)| (name.to_string(), column_type))
    .to_vec()
}

fn check(format: OutputFormat, name: &str, rows: &[Row]) {
    let geometry = GeometryColumns::Column { name: "geometry".to_string() };
    let batch = batch_of(rows);
    let file = TestFile::new(name, written(format, std::slice::from_ref(&batch), geometry));
    let options =
        ReadOptions { geometry: Some("geometry".to_string()), column_types: column_types(), ..ReadOptions::default() };
    let whole = read(&file.path, &options).expect("what was written is valid");
    assert!(whole.rejected.is_empty(), "{format}: {:?}", whole.rejected);
    for column in batch.schema_ref().fields() {
        let read = whole.batch.column_by_name(column.name()).expect("the column");
        let written = batch.column_by_name(column.name()).expect("the column");
        assert_eq!(&read.to_data(), &written.to_data(), "{format}: {}", column.name());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn csv_reads_back(rows in rows()) {
        check(OutputFormat::Csv, "a.csv", &rows);
    }

    #[test]
    fn ndjson_reads_back(rows in rows()) {
        check(OutputFormat::Ndjson, "a.ndjson", &rows);
    }

    #[test]
    fn geojson_reads_back(rows in rows()) {
        check(OutputFormat::GeoJson, "a.geojson", &rows);
    }

    #[test]
    fn parquet_reads_back(rows in rows()) {
        check(OutputFormat::Parquet, "a.parquet", &rows);
    }

    #[test]
    fn arrow_streams_read_back(rows in rows()) {
        check(OutputFormat::Arrow, "a.arrows", &rows);
    }
}
