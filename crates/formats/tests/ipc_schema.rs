//! Schemas of Arrow IPC whose parts are written once and referred to from many places, or are
//! nested without an end.

use std::sync::Arc;

use crate::support::{TestFile, read};
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StructArray};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_ipc::{
    FieldBuilder, IntBuilder, KeyValueBuilder, MessageBuilder, MessageHeader, MetadataVersion, SchemaBuilder, Type,
};
use arrow_schema::{Field, Schema};
use terrane_formats::{FormatError, ReadOptions};

/// The message of a schema of int64 columns `c0`, `c1` and so on, which share the metadata of one.
pub fn shared_metadata(bytes: usize, columns: usize) -> Vec<u8> {
    let mut builder = arrow_ipc::convert::IpcSchemaEncoder::new().schema_to_fb(&Schema::empty());
    builder.reset();
    let value = builder.create_string(&"x".repeat(bytes));
    let mut pair = KeyValueBuilder::new(&mut builder);
    pair.add_key(value);
    pair.add_value(value);
    let pair = pair.finish();
    let metadata = builder.create_vector(&[pair]);
    let mut int = IntBuilder::new(&mut builder);
    int.add_bitWidth(64);
    int.add_is_signed(true);
    let int = int.finish();
    let mut fields = Vec::new();
    for number in 0..columns {
        let name = builder.create_string(&format!("c{number}"));
        let mut field = FieldBuilder::new(&mut builder);
        field.add_name(name);
        field.add_nullable(true);
        field.add_type_type(Type::Int);
        field.add_type_(int.as_union_value());
        field.add_custom_metadata(metadata);
        fields.push(field.finish());
    }
    let fields = builder.create_vector(&fields);
    let mut schema = SchemaBuilder::new(&mut builder);
    schema.add_fields(fields);
    let schema = schema.finish();
    let mut message = MessageBuilder::new(&mut builder);
    message.add_version(MetadataVersion::V5);
    message.add_header_type(MessageHeader::Schema);
    message.add_header(schema.as_union_value());
    let message = message.finish();
    builder.finish(message, None);
    builder.finished_data().to_vec()
}

#[test]
fn a_schema_that_takes_much_more_when_decoded_than_it_has_is_refused_with_advice() {
    let message = shared_metadata(100_000, 300);
    let length = (message.len() as u32).to_le_bytes();
    let stream = [&[0xff; 4][..], &length, &message, &[0xff; 4], &[0; 4]].concat();
    let file = TestFile::new("a.arrows", stream);
    let options = |bytes_max| ReadOptions { decoded_bytes_max: Some(bytes_max), ..ReadOptions::default() };
    assert!(read(&file.path, &options(1 << 30)).is_ok(), "it is sound");
    let error = read(&file.path, &options(16 << 20)).expect_err("too large");
    assert!(matches!(error, FormatError::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("decoding the schema takes "), "{error}");
}

/// A batch of one column with `structs` nested structs around a number.
fn nested(structs: usize) -> RecordBatch {
    let mut array: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    for _ in 0..structs {
        let field = Arc::new(Field::new("g", array.data_type().clone(), true));
        array = Arc::new(StructArray::from(vec![(field, array)]));
    }
    RecordBatch::try_from_iter([("g", array)]).expect("one column")
}

#[test]
fn a_schema_of_arrow_is_followed_to_a_bounded_depth() {
    for (structs, fits) in [(50, true), (100, false)] {
        let batch = nested(structs);
        let (mut stream, mut whole_file) = (Vec::new(), Vec::new());
        let mut writer = StreamWriter::try_new(&mut stream, &batch.schema()).expect("a writer");
        writer.write(&batch).and_then(|()| writer.finish()).expect("a vector takes everything");
        drop(writer);
        let mut writer = FileWriter::try_new(&mut whole_file, &batch.schema()).expect("a writer");
        writer.write(&batch).and_then(|()| writer.finish()).expect("a vector takes everything");
        drop(writer);
        for (name, bytes) in [("a.arrows", stream), ("a.arrow", whole_file)] {
            let file = TestFile::new(name, bytes);
            match read(&file.path, &ReadOptions::default()) {
                Ok(whole) => assert!(fits && whole.rows == [1], "{structs} in {name}"),
                Err(error) => {
                    assert!(!fits, "{structs} in {name}: {error}");
                    assert!(error.to_string().contains("depth limit reached"), "{error}");
                }
            }
        }
    }
}
