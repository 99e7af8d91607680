//! Parquet's deprecated 96-bit times: they are right in all years that fit microseconds, and rows
//! with others are refused.

use std::sync::Arc;

use crate::support::{TestFile, Whole, columns, read, texts};
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use parquet::arrow::{ARROW_SCHEMA_META_KEY, encode_arrow_schema};
use parquet::data_type::{Int64Type, Int96, Int96Type};
use parquet::file::metadata::KeyValue;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use terrane_formats::{FormatError, ReadOptions};

/// The Julian day that begins with 1970.
const EPOCH_DAY: i64 = 2_440_588;

const DAY: i64 = 86_400_000_000;

/// Days since 1970 of the first of January of year 1, and of the last of December of year 9999.
const YEAR_1: i64 = -719_162;
const YEAR_9999: i64 = 2_932_896;

/// The last day that begins within what int64 has in microseconds.
const LAST_DAY: i64 = i64::MAX / DAY;

fn time(day: i64, nanoseconds: i64) -> Int96 {
    let mut time = Int96::new();
    time.set_data(nanoseconds as u32, (nanoseconds >> 32) as u32, (day + EPOCH_DAY) as i32 as u32);
    time
}

/// Values with their definition and repetition levels, if any.
struct Column<'a> {
    values: &'a [Int96],
    definitions: Option<&'a [i16]>,
    repetitions: Option<&'a [i16]>,
}

fn file(field: &str, groups: &[(usize, Column<'_>)]) -> Vec<u8> {
    file_with(field, groups, None)
}

/// A file with a column `id` of row numbers from 1 and a column of this type, in a row group for
/// each of `groups`, with the schema that Arrow's writers add.
fn file_with(field: &str, groups: &[(usize, Column<'_>)], arrow: Option<&Schema>) -> Vec<u8> {
    let schema = parse_message_type(&format!("message root {{ required int64 id; {field} }}")).expect("a schema");
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::default()).expect("a writer");
    let mut id = 0;
    for (rows, column) in groups {
        let mut group = writer.next_row_group().expect("a row group");
        let ids: Vec<i64> = (id + 1..).take(*rows).collect();
        id += *rows as i64;
        let mut ids_writer = group.next_column().expect("a vector takes everything").expect("the first column");
        ids_writer.typed::<Int64Type>().write_batch(&ids, None, None).expect("a vector takes everything");
        ids_writer.close().expect("a vector takes everything");
        let mut times = group.next_column().expect("a vector takes everything").expect("the second column");
        let typed = times.typed::<Int96Type>();
        typed.write_batch(column.values, column.definitions, column.repetitions).expect("a vector takes everything");
        times.close().expect("a vector takes everything");
        group.close().expect("a vector takes everything");
    }
    if let Some(arrow) = arrow {
        let pair = KeyValue::new(ARROW_SCHEMA_META_KEY.to_string(), encode_arrow_schema(arrow));
        writer.append_key_value_metadata(pair);
    }
    writer.close().expect("a vector takes everything");
    bytes
}

fn required(values: &[Int96]) -> (usize, Column<'_>) {
    (values.len(), Column { values, definitions: None, repetitions: None })
}

fn read_bytes(bytes: Vec<u8>) -> Result<Whole, FormatError> {
    read(&TestFile::new("a.parquet", bytes).path, &ReadOptions::default())
}

fn times(whole: &Whole) -> Vec<Option<i64>> {
    whole.batch.column_by_name("t").expect("the column").as_primitive::<TimestampMicrosecondType>().iter().collect()
}

const WARNING: &str = "column \"t\": nanoseconds are cut to microseconds";

#[test]
fn times_of_all_years_come_out_right() {
    let noon = DAY / 2 * 1000;
    let values = [time(0, 0), time(YEAR_9999, noon + 1_999), time(YEAR_1, 0), time(-1, noon + 999), time(LAST_DAY, 0)];
    let whole = read_bytes(file("required int96 t;", &[required(&values)])).expect("a sound file");
    assert_eq!(columns(&whole), ["id: Int64", "t: Timestamp(µs)"]);
    assert!(whole.rejected.is_empty(), "{:?}", whole.rejected);
    let expected = [0, YEAR_9999 * DAY + DAY / 2 + 1, YEAR_1 * DAY, -DAY / 2, LAST_DAY * DAY];
    assert_eq!(times(&whole), expected.map(Some));
    assert_eq!(whole.source.warnings, [WARNING]);
}

#[test]
fn times_without_room_refuse_their_rows_alone() {
    // The first and the last that fit, and their neighbours.
    let (first_day, last_time) = (-LAST_DAY - 1, i64::MAX % DAY * 1000);
    let first_time = (DAY + i64::MIN % DAY) * 1000;
    let first = [
        time(1, 0),
        time(LAST_DAY, last_time),
        time(LAST_DAY, last_time + 1000),
        time(i64::from(i32::MAX) - EPOCH_DAY, 0),
    ];
    let second = [time(first_day, first_time), time(first_day, first_time - 1000), time(2, 0)];
    let groups =
        [required(&first), (4, Column { values: &second, definitions: Some(&[1, 0, 1, 1]), repetitions: None })];
    // All are optional, so that the second group may have a missing one.
    let definitions = [1; 4];
    let groups = groups
        .map(|(rows, column)| (rows, Column { definitions: column.definitions.or(Some(&definitions)), ..column }));
    let whole = read_bytes(file("optional int96 t;", &groups)).expect("a sound file");
    let reason = "column \"t\": a 96-bit time is outside of the range of int64 microseconds";
    let rejected: Vec<_> = whole.rejected.iter().map(|bad| (bad.row, bad.reason.as_str())).collect();
    assert_eq!(rejected, [(3, reason), (4, reason), (7, reason)]);
    assert_eq!(whole.rows, [1, 2, 5, 6, 8]);
    assert_eq!(times(&whole), [Some(DAY), Some(i64::MAX), Some(i64::MIN), None, Some(2 * DAY)]);
}

#[test]
fn a_column_with_too_many_times_without_room_refuses_the_file() {
    let good = [time(0, 0); 10];
    for (count, fits) in [(1000, true), (1001, false)] {
        let values = [&good[..], &vec![time(LAST_DAY + 1, 0); count]].concat();
        match read_bytes(file("required int96 t;", &[required(&values)])) {
            Ok(whole) => assert!(fits && whole.rows.len() == 10 && whole.rejected.len() == count, "{count}"),
            Err(error) => {
                assert!(!fits && matches!(error, FormatError::Refused { .. }), "{count}: {error:?}");
                assert!(error.to_string().contains("column \"t\""), "{error}");
            }
        }
    }
}

#[test]
fn nested_times_come_out_right_and_refuse_the_rows_that_they_are_in() {
    let list = "optional group t (LIST) { repeated group list { optional int96 element; } }";
    let values = [time(YEAR_9999, 1_000), time(YEAR_1, 0), time(LAST_DAY + 1, 0), time(5, 0)];
    // [9999, null, 1], null, [], [beyond, 5th], and again as a second group.
    let levels = Column {
        values: &values,
        definitions: Some(&[3, 2, 3, 0, 1, 3, 3]),
        repetitions: Some(&[0, 1, 1, 0, 0, 0, 1]),
    };
    let again = Column { ..levels };
    let whole = read_bytes(file(list, &[(4, levels), (4, again)])).expect("a sound file");
    let row = Some("[\"9999-12-31T00:00:00.000001\",null,\"0001-01-01T00:00:00\"]".to_string());
    assert_eq!(texts(&whole, "t"), [row.clone(), None, Some("[]".to_string()), row, None, Some("[]".to_string())]);
    assert_eq!(whole.rejected.iter().map(|bad| bad.row).collect::<Vec<_>>(), [4, 8]);
    assert!(whole.source.warnings.iter().any(|warning| warning == WARNING), "{:?}", whole.source.warnings);

    let structure = "required group t { required int96 at; }";
    let whole = read_bytes(file(structure, &[required(&values)])).expect("a sound file");
    assert_eq!(texts(&whole, "t")[1], Some("{\"at\":\"0001-01-01T00:00:00\"}".to_string()));
    assert_eq!(whole.rejected.iter().map(|bad| bad.row).collect::<Vec<_>>(), [3]);
}

/// As `pyarrow` writes them: only Arrow's schema has the zone.
#[test]
fn the_zone_that_arrow_s_schema_gives_stays() {
    let zoned = DataType::Timestamp(TimeUnit::Nanosecond, Some("Europe/Paris".into()));
    let metadata = [("k".to_string(), "v".to_string())];
    let field = Field::new("t", zoned, false).with_metadata(metadata.into());
    let arrow = Schema::new(vec![Field::new("id", DataType::Int64, false), field]);
    let values = [time(YEAR_9999, 0), time(YEAR_1, 0)];
    let bytes = file_with("required int96 t;", &[required(&values)], Some(&arrow));
    let whole = read_bytes(bytes).expect("a sound file");
    assert_eq!(columns(&whole)[1], "t: Timestamp(µs, \"UTC\")");
    assert_eq!(times(&whole), [YEAR_9999, YEAR_1].map(|day| Some(day * DAY)));
}
