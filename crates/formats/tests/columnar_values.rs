//! Values of columnar files that cannot be converted: each refuses its own row.

use std::sync::Arc;

use crate::columnar::{parquet_bytes, stream_bytes, table};
use crate::support::{TestFile, Whole, floats, read, read_text, texts};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{
    Array, ArrayRef, Date64Array, Decimal128Array, DictionaryArray, DurationSecondArray, Float64Array, Int32Array,
    ListArray, ListViewArray, NullArray, RecordBatch, RunArray, StringArray, StructArray, Time32SecondArray,
    TimestampNanosecondArray, TimestampSecondArray, UnionArray,
};
use arrow_buffer::OffsetBuffer;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field, UnionFields};
use terrane_formats::{ColumnType, ReadOptions};

/// Seconds that do not fit a timestamp of microseconds.
const TOO_LATE: i64 = 1 << 62;

/// Reads a stream of one batch with coordinates and these columns.
fn read_stream(columns: Vec<(&str, ArrayRef)>, options: &ReadOptions) -> Whole {
    let row_count = columns[0].1.len();
    let coordinate: ArrayRef = Arc::new(Float64Array::from_iter_values((0..row_count).map(|row| row as f64 / 100.0)));
    let columns = [("lon", Arc::clone(&coordinate)), ("lat", coordinate)].into_iter().chain(columns);
    let batch = RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true)))
        .expect("columns of one length");
    let mut bytes = Vec::new();
    let mut writer = StreamWriter::try_new(&mut bytes, &batch.schema()).expect("a writer");
    writer.write(&batch).expect("a vector takes everything");
    writer.finish().expect("a vector takes everything");
    drop(writer);
    let file = TestFile::new("values.arrows", &bytes);
    read(&file.path, options).expect("a sound file")
}

fn times_of(whole: &Whole) -> Vec<Option<i64>> {
    let column = whole.batch.column_by_name("t").expect("the column");
    column.as_primitive::<TimestampMicrosecondType>().iter().collect()
}

fn rejected(whole: &Whole) -> Vec<(u64, &str)> {
    whole.rejected.iter().map(|bad| (bad.row, bad.reason.as_str())).collect()
}

#[test]
fn milliseconds_that_no_timestamp_holds_refuse_their_row_alone() {
    let largest = i64::MAX / 1000;
    let milliseconds =
        || Date64Array::from(vec![Some(-3_600_000), Some(largest + 1), None, Some(largest), Some(i64::MIN)]);
    let keys = Int32Array::from(vec![0, 1, 2, 3, 4]);
    let dictionary = DictionaryArray::<Int32Type>::new(keys, Arc::new(milliseconds()));
    for times in [Arc::new(milliseconds()) as ArrayRef, Arc::new(dictionary)] {
        let whole = read_stream(vec![("t", times)], &ReadOptions::default());
        assert_eq!(times_of(&whole), [Some(-3_600_000_000), None, Some(largest * 1000)]);
        let reasons = rejected(&whole);
        assert_eq!(reasons.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [2, 5]);
        let wanted = format!("{} milliseconds since 1970 are beyond the range of a timestamp", largest + 1);
        assert!(reasons[0].1.contains(&wanted), "{reasons:?}");
    }
}

#[test]
fn a_time_that_does_not_fit_refuses_its_row_alone() {
    let seconds = |row: i64| match row {
        17 | 998 => Some(TOO_LATE + row),
        500 => None,
        _ => Some(row),
    };
    let times: ArrayRef = Arc::new(TimestampSecondArray::from_iter((0..1000).map(seconds)));
    let whole = read_stream(vec![("t", times)], &ReadOptions::default());
    let reason = |row: i64| {
        let value = TOO_LATE + row;
        format!(
            "column \"t\": the value cannot be converted: Arithmetic overflow: Overflow happened on: {value} * 1000000"
        )
    };
    assert_eq!(rejected(&whole), [(18, reason(17).as_str()), (999, reason(998).as_str())]);
    let expected = (0..1000).filter(|row| ![17, 998].contains(row));
    let expected = expected.map(|row| seconds(row).map(|seconds| seconds * 1_000_000)).collect::<Vec<_>>();
    assert_eq!(times_of(&whole), expected);
}

#[test]
fn a_value_of_a_dictionary_that_does_not_fit_refuses_only_rows_that_have_it() {
    let values: ArrayRef = Arc::new(TimestampSecondArray::from(vec![Some(TOO_LATE), Some(5), None]));
    let keys = Int32Array::from(vec![Some(1), Some(0), None, Some(2), Some(1), Some(0)]);
    let times: ArrayRef = Arc::new(DictionaryArray::<Int32Type>::new(keys, values));
    let whole = read_stream(vec![("t", times)], &ReadOptions::default());
    assert_eq!(whole.rejected.iter().map(|bad| bad.row).collect::<Vec<_>>(), [2, 6]);
    assert_eq!(times_of(&whole), [Some(5_000_000), None, None, Some(5_000_000)]);
}

/// Digits beyond the microsecond are cut like digits of text, before 1970 as after it.
#[test]
fn nanoseconds_become_the_microsecond_that_they_are_in() {
    let nanoseconds = [-1_001, -1_000, -999, -1, 0, 999, 1_000, i64::MIN, i64::MAX];
    let expected = [-2, -1, -1, -1, 0, 0, 1, i64::MIN / 1000 - 1, i64::MAX / 1000];
    let plain = TimestampNanosecondArray::from(nanoseconds.to_vec());
    let keys = Int32Array::from_iter_values(0..nanoseconds.len() as i32);
    let shared = DictionaryArray::<Int32Type>::new(keys, Arc::new(plain.clone()));
    let zoned = plain.clone().with_timezone("Europe/Paris");
    for (times, data_type) in [
        (Arc::new(plain) as ArrayRef, ColumnType::Timestamp),
        (Arc::new(shared), ColumnType::Timestamp),
        (Arc::new(zoned), ColumnType::TimestampUtc),
    ] {
        let whole = read_stream(vec![("t", times)], &ReadOptions::default());
        assert_eq!(times_of(&whole), expected.map(Some));
        let column = whole.batch.column_by_name("t").expect("the column");
        assert_eq!(*column.data_type(), data_type.data_type());
    }
    let csv =
        read_text("a.csv", "t,v\n1969-12-31T23:59:59.999998999,1\n1969-12-31T23:59:59.999999001,2\n").expect("valid");
    assert_eq!(times_of(&csv), [Some(-2), Some(-1)], "text of -1,001 and of -999 nanoseconds");
}

#[test]
fn values_that_have_no_text_refuse_their_rows_alone() {
    let clock: ArrayRef = Arc::new(Time32SecondArray::from(vec![Some(1), Some(1_000_000_000), None, Some(3)]));
    let late: ArrayRef = Arc::new(TimestampSecondArray::from(vec![Some(0), Some(0), Some(0), Some(TOO_LATE)]));
    let field = Arc::new(Field::new("at", late.data_type().clone(), true));
    let nested: ArrayRef = Arc::new(StructArray::from(vec![(field, late)]));
    let columns = vec![("clock", clock), ("nested", nested)];
    let whole = read_stream(columns, &ReadOptions::default());
    let rejected = rejected(&whole);
    assert_eq!(rejected.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [2, 4]);
    assert!(rejected[0].1.starts_with("column \"clock\": the value cannot be converted: "), "{rejected:?}");
    assert!(rejected[1].1.starts_with("column \"nested\": the value cannot be converted: "), "{rejected:?}");
    assert_eq!(texts(&whole, "clock"), [Some("00:00:01".to_string()), None]);
    assert_eq!(whole.rows, [1, 3]);
}

/// Values of types that datasets do not have are kept as full text, or their rows are refused.
#[test]
fn values_of_rare_types_are_whole_or_refused() {
    let floats_of = |values: &[f64]| -> ArrayRef { Arc::new(Float64Array::from(values.to_vec())) };
    let lists = |values: ArrayRef, sizes: &[i32]| -> ArrayRef {
        let field = Arc::new(Field::new("item", values.data_type().clone(), true));
        let offsets: Vec<i32> = sizes.iter().scan(0, |at, size| Some(std::mem::replace(at, *at + size))).collect();
        Arc::new(ListViewArray::new(field, offsets.into(), sizes.to_vec().into(), values, None))
    };
    let words: ArrayRef = Arc::new(StringArray::from(vec![Some("a, b"), Some("a"), None, Some("")]));
    let runs = |values: &dyn Array| -> ArrayRef {
        let ends = Int32Array::from(vec![1, 3, 4]);
        Arc::new(RunArray::<Int32Type>::try_new(&ends, values).expect("runs"))
    };
    let texts_in_runs = runs(&StringArray::from(vec![Some(""), None, Some("x")]));
    let lists_in_runs = runs(&lists(floats_of(&[1.0, 2.0, 3.0]), &[1, 0, 2]));
    let twice = StructArray::from(vec![
        (Arc::new(Field::new("a", DataType::Float64, true)), floats_of(&[1.0; 4])),
        (Arc::new(Field::new("a", DataType::Float64, true)), floats_of(&[3.0; 4])),
    ]);
    let durations = DurationSecondArray::from(vec![Some(90), None, Some(TOO_LATE), Some(0)]);
    let keys = Int32Array::from(vec![Some(0), Some(2), Some(1), None]);
    let encoded = DictionaryArray::<Int32Type>::new(keys, Arc::new(durations.clone()));
    let members =
        UnionFields::from_fields(vec![Field::new("n", DataType::Float64, true), Field::new("s", DataType::Utf8, true)]);
    let union = UnionArray::try_new(
        members,
        vec![0, 1, 1, 1].into(),
        None,
        vec![floats_of(&[1.5, 0.0, 0.0, 0.0]), words.clone()],
    )
    .expect("a sparse union");
    /// A column, its texts, and the rows that are refused.
    type Case<'a> = (ArrayRef, [Option<&'a str>; 4], &'a [u64]);
    let cases: Vec<Case<'_>> = vec![
        (Arc::new(durations), [Some("PT90S"), None, None, Some("P0D")], &[3]),
        (Arc::new(encoded), [Some("PT90S"), None, None, None], &[2]),
        (lists(words, &[1, 2, 1, 0]), [Some("[\"a, b\"]"), Some("[\"a\",null]"), Some("[\"\"]"), Some("[]")], &[]),
        (
            lists(floats_of(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.5]), &[1, 1, 1, 1]),
            [Some("[\"NaN\"]"), Some("[\"Infinity\"]"), Some("[\"-Infinity\"]"), Some("[0.5]")],
            &[],
        ),
        (texts_in_runs, [Some(""), None, None, Some("x")], &[]),
        (lists_in_runs, [Some("[1.0]"), Some("[]"), Some("[]"), Some("[2.0,3.0]")], &[]),
        (Arc::new(twice), [None; 4], &[1, 2, 3, 4]),
        (Arc::new(union), [Some("1.5"), Some("\"a\""), None, Some("\"\"")], &[]),
    ];
    for (array, expected, refused) in cases {
        let what = array.data_type().clone();
        let whole = read_stream(vec![("v", array)], &ReadOptions::default());
        assert_eq!(rejected(&whole).iter().map(|(row, _)| *row).collect::<Vec<_>>(), refused, "{what}");
        let kept = (1..).zip(expected).filter(|(row, _)| !refused.contains(row));
        assert_eq!(texts(&whole, "v"), kept.map(|(_, text)| text.map(str::to_string)).collect::<Vec<_>>(), "{what}");
    }
    let numbers =
        read_stream(vec![("v", runs(&Int32Array::from(vec![Some(5), None, Some(7)])))], &ReadOptions::default());
    let values: Vec<_> =
        numbers.batch.column_by_name("v").expect("the column").as_primitive::<Int64Type>().iter().collect();
    assert_eq!(values, [Some(5), None, None, Some(7)]);
}

#[test]
fn a_coordinate_that_is_no_number_refuses_its_row_alone() {
    let x: ArrayRef = Arc::new(StringArray::from(vec!["1.5", "east", "3"]));
    let y: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 2.0, 3.0]));
    let options = ReadOptions { x: Some("x".to_string()), y: Some("y".to_string()), ..ReadOptions::default() };
    let whole = read_stream(vec![("x", x), ("y", y)], &options);
    let rejected = rejected(&whole);
    assert_eq!(rejected.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [2]);
    assert!(rejected[0].1.contains("column \"x\"") && rejected[0].1.contains("east"), "{rejected:?}");
    assert_eq!(floats(&whole, "x"), [Some(1.5), Some(3.0)]);
}

/// Lists of nulls take no bytes in an Arrow file, whatever their length.
#[test]
fn a_list_of_more_values_than_json_may_have_refuses_its_row_alone() {
    let list = |lengths: [usize; 3]| {
        let values: ArrayRef = Arc::new(NullArray::new(lengths.iter().sum()));
        let field = Arc::new(Field::new("item", DataType::Null, true));
        let offsets = OffsetBuffer::from_lengths(lengths);
        Arc::new(ListArray::new(field, offsets, values, None)) as ArrayRef
    };
    let whole = read_stream(vec![("n", list([1, i32::MAX as usize - 10, 2]))], &ReadOptions::default());
    assert_eq!(texts(&whole, "n"), [Some("[null]".to_string()), Some("[null,null]".to_string())]);
    let rejected = rejected(&whole);
    assert_eq!(rejected.len(), 1);
    assert!(rejected[0].0 == 2 && rejected[0].1.contains("more than 4194304 parts"), "{rejected:?}");
    let whole = read_stream(vec![("n", list([0, 4 << 20, (4 << 20) + 1]))], &ReadOptions::default());
    assert_eq!(whole.rows, [1, 2]);
}

/// Keys and counts of databases are often decimal numbers without a fraction.
#[test]
fn decimal_numbers_without_a_fraction_are_integers_where_they_fit() {
    let decimals = |values: &[i128], digits: u8| -> ArrayRef {
        let array = Decimal128Array::from_iter_values(values.iter().copied());
        Arc::new(array.with_precision_and_scale(digits, 0).expect("digits enough"))
    };
    let large = i128::from(i64::MAX) + 1;
    let columns = vec![
        ("short", decimals(&[-7, 999], 18)),
        ("long", decimals(&[-7, i64::MAX.into()], 38)),
        ("beyond", decimals(&[-7, large], 38)),
    ];
    let batch = table(columns);
    let types = |name: &str, bytes: Vec<u8>| -> Vec<DataType> {
        let whole = read_text(name, bytes).expect("valid");
        let fields = whole.source.schema.fields().iter().map(|field| field.data_type().clone());
        fields.collect()
    };
    let [int64, float64] = [DataType::Int64, DataType::Float64];
    assert_eq!(types("a.parquet", parquet_bytes(&batch, None)), [int64.clone(), int64.clone(), float64.clone()]);
    // Without statistics nothing is known of the longer ones.
    assert_eq!(types("a.arrow", stream_bytes(&batch)), [int64, float64.clone(), float64]);
    let file = TestFile::new("a.parquet", parquet_bytes(&batch, None));
    let demanded_types = vec![("beyond".to_string(), "utf8".parse().expect("a type"))];
    let whole = read(&file.path, &ReadOptions { demanded_types, ..ReadOptions::default() }).expect("valid");
    assert_eq!(texts(&whole, "beyond")[1].as_deref(), Some("9223372036854775808"));
}
