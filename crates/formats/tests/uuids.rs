//! Columns of UUIDs: those marked in Parquet and Arrow, those that `--type` asks for, and how each
//! format writes them.

use std::sync::Arc;

use crate::columnar::{file_bytes, parquet_bytes, stream_bytes};
use crate::support::{TestFile, read, written};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, DictionaryArray, FixedSizeBinaryArray, Float64Array, Int8Array, RecordBatch};
use arrow_array::{LargeStringArray, ListArray, StringArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, Schema};
use parquet::basic::LogicalType;
use parquet::file::reader::{FileReader, SerializedFileReader};
use terrane_formats::{ColumnType, DemandedType, GeometryColumns, OutputFormat, ReadOptions};
use terrane_literal::{format_uuid, is_uuid, marked_uuid, uuid_at};

const TEXTS: [&str; 2] = ["550e8400-e29b-41d4-a716-446655440000", "ffffffff-0000-0000-0000-00000000000a"];

/// Two UUIDs and a null between them.
fn uuids() -> FixedSizeBinaryArray {
    let [first, last] = TEXTS.map(|text| terrane_literal::parse_uuid(text).expect("a UUID"));
    FixedSizeBinaryArray::try_from_sparse_iter_with_size([Some(first), None, Some(last)].into_iter(), 16)
        .expect("16 bytes")
}

fn field(name: &str, array: &ArrayRef) -> Field {
    Field::new(name, array.data_type().clone(), true)
}

fn batch(columns: Vec<(Field, ArrayRef)>) -> RecordBatch {
    let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns.into_iter().unzip();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).expect("columns of one length")
}

/// The UUIDs marked, without the mark, in a dictionary and in lists; and as texts.
fn sample() -> RecordBatch {
    let plain: ArrayRef = Arc::new(uuids());
    let dictionary: ArrayRef =
        Arc::new(DictionaryArray::new(Int8Array::from(vec![Some(2), None, Some(0)]), Arc::clone(&plain)));
    let item = Arc::new(marked_uuid(field("item", &plain)));
    let lists: ArrayRef =
        Arc::new(ListArray::new(item, OffsetBuffer::from_lengths([2, 0, 1]), Arc::clone(&plain), None));
    let texts: ArrayRef = Arc::new(StringArray::from(vec![Some(TEXTS[0]), None, Some("no uuid")]));
    let x: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 2.0, 3.0]));
    batch(vec![
        (marked_uuid(field("id", &plain)), Arc::clone(&plain)),
        (field("bytes", &plain), plain),
        (marked_uuid(field("dictionary", &dictionary)), dictionary),
        (field("lists", &lists), lists),
        (field("text", &texts), texts),
        (field("x", &x), Arc::clone(&x)),
        (field("y", &x), x),
    ])
}

fn texts_of(batch: &RecordBatch, name: &str) -> Vec<Option<String>> {
    let array = batch.column_by_name(name).expect("the column").as_fixed_size_binary();
    (0..array.len()).map(|row| uuid_at(array, row).map(format_uuid)).collect()
}

fn demanded(column: &str, column_type: ColumnType) -> ReadOptions {
    ReadOptions { demanded_types: vec![(column.into(), DemandedType::Plain(column_type))], ..ReadOptions::default() }
}

#[test]
fn what_a_file_marks_as_uuids_is_and_other_binary_data_of_16_bytes_is_not() {
    let wanted = [Some(TEXTS[0].to_string()), None, Some(TEXTS[1].to_string())];
    let turned = [wanted[2].clone(), None, wanted[0].clone()];
    for (name, bytes) in [
        ("u.parquet", parquet_bytes(&sample(), None)),
        ("u.arrow", file_bytes(&sample())),
        ("u.arrows", stream_bytes(&sample())),
    ] {
        let file = TestFile::new(name, bytes);
        let whole = read(&file.path, &ReadOptions::default()).expect("sound");
        let fields = whole.source.schema();
        let is_marked = |column: &str| is_uuid(fields.field_with_name(column).expect("the column"));
        assert!(is_marked("id") && is_marked("dictionary") && !is_marked("text"), "{name}: {fields:?}");
        assert_eq!(texts_of(&whole.batch, "id")[..3], wanted, "{name}");
        assert_eq!(texts_of(&whole.batch, "dictionary")[..3], turned, "{name}");
        assert_eq!(*fields.field_with_name("bytes").expect("the column").data_type(), DataType::Binary, "{name}");
        let lists = whole.batch.column_by_name("lists").expect("the column").as_string::<i32>();
        assert_eq!(lists.value(0), format!("[\"{}\",null]", TEXTS[0]), "{name}");
        // Unless the user asks for it.
        let whole = read(&file.path, &demanded("bytes", ColumnType::Uuid)).expect("sound");
        assert_eq!(texts_of(&whole.batch, "bytes")[..3], wanted, "{name}");
        let whole = read(&file.path, &demanded("id", ColumnType::Utf8)).expect("sound");
        let id = arrow_cast::cast(whole.batch.column(0), &DataType::LargeUtf8).expect("text");
        let id: &LargeStringArray = id.as_string();
        assert_eq!((id.value(0), id.is_null(1)), (TEXTS[0], true), "{name}");
        let whole = read(&file.path, &demanded("id", ColumnType::Binary)).expect("sound");
        assert_eq!(whole.batch.column(0).as_binary::<i32>().value(0)[..2], [0x55, 0x0e], "{name}");
    }
}

#[test]
fn texts_become_uuids_on_demand_and_one_that_is_none_is_refused_with_its_row() {
    let csv = format!("text,x,y\n{},1,2\n,2,2\nno uuid,3,3\n", TEXTS[0].to_uppercase());
    let json = format!(
        "{{\"text\":\"{}\",\"x\":1,\"y\":2}}\n{{\"x\":2,\"y\":2}}\n{{\"text\":\"no uuid\",\"x\":3,\"y\":3}}\n",
        TEXTS[0]
    );
    for (name, bytes) in
        [("t.parquet", parquet_bytes(&sample(), None)), ("t.csv", csv.into_bytes()), ("t.ndjson", json.into_bytes())]
    {
        let file = TestFile::new(name, bytes);
        let whole = read(&file.path, &demanded("text", ColumnType::Uuid)).expect("sound");
        assert!(is_uuid(whole.source.schema().field_with_name("text").expect("the column")), "{name}");
        assert_eq!(texts_of(&whole.batch, "text"), [Some(TEXTS[0].to_string()), None], "{name}");
        let [refused] = &whole.rejected[..] else { panic!("{name}: {:?}", whole.rejected) };
        assert_eq!(refused.row, 3, "{name}");
        let reason = &refused.reason;
        assert!(reason.contains("\"text\"") && reason.contains("not a valid uuid"), "{name}: {reason}");
        let whole = read(&file.path, &ReadOptions::default()).expect("sound");
        assert_eq!(*whole.batch.column_by_name("text").expect("the column").data_type(), DataType::Utf8, "{name}");
    }
}

#[test]
fn a_text_column_is_refused_where_the_dataset_has_uuids_and_the_other_way_round() {
    let file = TestFile::new("d.parquet", parquet_bytes(&sample(), None));
    for (column, column_type, advice) in
        [("text", ColumnType::Uuid, "--type text=uuid"), ("id", ColumnType::Utf8, "--type id=utf8")]
    {
        let options = ReadOptions { column_types: vec![(column.into(), column_type)], ..ReadOptions::default() };
        let error = read(&file.path, &options).expect_err("another type").to_string();
        assert!(error.contains(&format!("{column:?}")) && error.contains(advice), "{error}");
    }
}

#[test]
fn written_uuids_have_their_mark_or_are_text() {
    let id: ArrayRef = Arc::new(uuids());
    let rows = batch(vec![(marked_uuid(field("id", &id)), Arc::clone(&id)), (field("bytes", &id), id)]);
    let write = |format| written(format, std::slice::from_ref(&rows), GeometryColumns::None);
    let csv = String::from_utf8(write(OutputFormat::Csv)).expect("text");
    assert_eq!(csv.lines().nth(1), Some(&*format!("{},VQ6EAOKbQdSnFkRmVUQAAA==", TEXTS[0])));
    let json = String::from_utf8(write(OutputFormat::Ndjson)).expect("text");
    let first = format!("{{\"id\":\"{}\",\"bytes\":\"VQ6EAOKbQdSnFkRmVUQAAA==\"}}", TEXTS[0]);
    assert_eq!(json.lines().next(), Some(&*first));
    assert_eq!(json.lines().nth(1), Some("{\"id\":null,\"bytes\":null}"));
    let parquet = TestFile::new("w.parquet", write(OutputFormat::Parquet));
    let reader = SerializedFileReader::new(std::fs::File::open(&parquet.path).expect("a file")).expect("Parquet");
    let types = reader.metadata().file_metadata().schema_descr();
    assert_eq!(types.column(0).logical_type_ref(), Some(&LogicalType::Uuid));
    assert_eq!(types.column(1).logical_type_ref(), None);
    let arrow = TestFile::new("w.arrows", write(OutputFormat::Arrow));
    for file in [parquet, arrow] {
        let whole = read(&file.path, &ReadOptions::default()).expect("sound");
        assert!(is_uuid(whole.source.schema().field(0)) && !is_uuid(whole.source.schema().field(1)));
        assert_eq!(texts_of(&whole.batch, "id")[2].as_deref(), Some(TEXTS[1]));
    }
}
