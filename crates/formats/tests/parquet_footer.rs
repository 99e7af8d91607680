//! Parquet files whose footers and page headers claim more than there is, are nested without an
//! end, or write values as other types. All end in errors, before anything is allocated or
//! followed.

use crate::support::thrift::{BINARY, Fields, I32, I64, LIST, STRUCT, TRUE, claimed_list, integer, list};
use crate::support::{TestFile, parquet_file, read, read_text};
use base64::Engine;
use terrane_formats::{FormatError, ReadOptions};

/// More than any file here has bytes.
const CLAIM: u64 = i32::MAX as u64;

fn group(name: &str, children: i64) -> Vec<u8> {
    Fields::default().i32(3, 0).text(4, name).i32(5, children).end()
}

fn leaf(name: &str, physical_type: i64) -> Fields {
    Fields::default().i32(1, physical_type).i32(3, 0).text(4, name)
}

/// A footer with this schema and row groups, followed by `more`.
fn footer(schema: &[Vec<u8>], row_groups: &[Vec<u8>], more: impl Fn(Fields) -> Fields) -> Vec<u8> {
    let footer = Fields::default().i32(1, 1).list(2, STRUCT, schema).i64(3, 0).list(4, STRUCT, row_groups);
    more(footer).end()
}

fn one_column() -> Vec<Vec<u8>> {
    vec![group("root", 1), leaf("x", 2).end()]
}

/// The required fields of a column chunk.
fn column() -> Fields {
    Fields::default().i32(1, 2).list(2, I32, &[integer(0)]).i32(4, 0).i64(5, 0).i64(6, 0).i64(7, 0).i64(9, 4)
}

fn row_group(column: Fields) -> Vec<u8> {
    let chunk = Fields::default().i64(2, 4).structure(3, column).end();
    Fields::default().list(1, STRUCT, &[chunk]).i64(2, 0).i64(3, 0).end()
}

fn error(bytes: Vec<u8>) -> String {
    let error = read_text("a.parquet", bytes).expect_err("a lie");
    assert!(matches!(error, FormatError::Damaged { .. }), "{error:?}");
    error.to_string()
}

#[test]
fn the_sound_parts_that_these_tests_spoil_make_a_file() {
    let whole =
        read_text("a.parquet", parquet_file(&[], &footer(&one_column(), &[row_group(column())], |footer| footer)));
    assert_eq!(whole.expect("a file without rows").batch.num_rows(), 0);
}

#[test]
fn counts_of_lists_in_a_footer_are_held_against_its_length() {
    let claimed = |kind: u8| claimed_list(kind, CLAIM, &[]);
    let in_column = |number: i64, kind: u8| row_group(column().field(number, LIST, &claimed(kind)));
    let in_struct = |number: i64, inner: i64, kind: u8| {
        row_group(column().structure(number, Fields::default().field(inner, LIST, &claimed(kind))))
    };
    let sorted = Fields::default().i64(2, 0).i64(3, 0).field(4, LIST, &claimed(STRUCT)).end();
    let with_group = |row_group: Vec<u8>| footer(&one_column(), &[row_group], |footer| footer);
    let begun = || Fields::default().i32(1, 1).list(2, STRUCT, &one_column()).i64(3, 0);
    for (name, footer) in [
        ("schema", Fields::default().i32(1, 1).field(2, LIST, &claimed(STRUCT)).end()),
        ("row groups", begun().field(4, LIST, &claimed(STRUCT)).end()),
        (
            "row groups whose field is numbered twice",
            begun().list(4, STRUCT, &[]).field(4, LIST, &claimed(STRUCT)).end(),
        ),
        ("metadata", footer(&one_column(), &[], |footer| footer.field(5, LIST, &claimed(STRUCT)))),
        ("column orders", footer(&one_column(), &[], |footer| footer.field(7, LIST, &claimed(STRUCT)))),
        ("an unknown list", footer(&one_column(), &[], |footer| footer.field(99, LIST, &claimed(STRUCT)))),
        ("columns", with_group(Fields::default().field(1, LIST, &claimed(STRUCT)).end())),
        ("sorting columns", with_group(sorted)),
        ("encodings", with_group(in_column(2, I32))),
        ("encodings of pages", with_group(in_column(13, STRUCT))),
        ("levels", with_group(in_struct(16, 2, I64))),
        ("geometry types", with_group(in_struct(17, 2, I32))),
    ] {
        let error = error(parquet_file(&[], &footer));
        assert!(error.contains("not a whole Parquet file: the footer, at its byte "), "{name}: {error}");
        assert!(error.contains(": a list claims 2147483647 elements, and "), "{name}: {error}");
    }
}

#[test]
fn lengths_of_texts_and_of_the_footer_itself_are_held_against_what_there_is() {
    let claimed = [0xff, 0xff, 0xff, 0xff, 7];
    let pair = Fields::default().field(1, BINARY, &claimed).end();
    let statistics = Fields::default().field(5, BINARY, &claimed);
    for (name, footer) in [
        ("a name", footer(&[Fields::default().field(4, BINARY, &claimed).end()], &[], |footer| footer)),
        ("a key", footer(&one_column(), &[], |footer| footer.list(5, STRUCT, std::slice::from_ref(&pair)))),
        ("the writer", footer(&one_column(), &[], |footer| footer.field(6, BINARY, &claimed))),
        ("a minimum", footer(&one_column(), &[row_group(column().structure(12, statistics))], |footer| footer)),
    ] {
        let error = error(parquet_file(&[], &footer));
        assert!(error.contains(": a text claims 2147483647 bytes, and "), "{name}: {error}");
    }
    let mut bytes = parquet_file(&[], &footer(&one_column(), &[], |footer| footer));
    let (place, length) = (bytes.len() - 8, bytes.len());
    bytes[place..place + 4].copy_from_slice(&(length as u32).to_le_bytes());
    let error = error(bytes);
    assert!(error.contains(&format!("the footer claims {length} bytes, and the file has {length}")), "{error}");
}

/// The decoder reads known fields by their expected types, whatever type is written before them.
#[test]
fn a_known_field_that_is_written_as_another_type_is_refused() {
    // A reader that trusts the written type sees a number, then a double field that hides the count
    // of row groups.
    let hidden = Fields::default().i32(1, 1).list(2, STRUCT, &one_column()).i64(3, 0);
    let row_groups = hidden.clone().field(4, I64, &[0xfc, 0xff, 0xff, 0xff, 0xff, 7]).end();
    let cut_number = hidden.field(4 + (1 << 16), LIST, &claimed_list(STRUCT, CLAIM, &[])).end();
    let children = Fields::default().text(4, "root").text(5, "\u{1}").end();
    let unit = Fields::default().field(1, TRUE, &[]).field(2, LIST, &list(STRUCT, &[]));
    let timestamp = leaf("x", 2).structure(10, Fields::default().structure(8, unit)).end();
    for (name, footer, reason) in [
        ("row groups", row_groups, "a known field has the wrong type 6"),
        ("row groups beyond 16 bits", cut_number, "there is no field 65540"),
        ("children", footer(&[children], &[], |footer| footer), "a known field has the wrong type 8"),
        ("a unit", footer(&[group("root", 1), timestamp], &[], |footer| footer), "a known field has the wrong type 9"),
        (
            "truth values, which the decoder does not pass over",
            footer(&one_column(), &[], |footer| footer.list(99, TRUE, &[vec![1]])),
            "an unknown field is a list of truth values",
        ),
    ] {
        let error = error(parquet_file(&[], &footer));
        assert!(error.contains(reason), "{name}: {error}");
    }
}

fn nested(levels: usize) -> Vec<u8> {
    let mut schema = vec![group("g", 1); levels];
    schema.push(leaf("x", 2).end());
    parquet_file(&[], &footer(&schema, &[], |footer| footer))
}

#[test]
fn a_schema_is_followed_to_a_bounded_depth() {
    assert!(read_text("a.parquet", nested(64)).is_ok(), "64 names lead to the column");
    for levels in [2000, 100_000, 65] {
        let error = error(nested(levels));
        assert!(error.contains("the schema is nested deeper than 64 levels"), "{levels}: {error}");
    }
}

#[test]
fn groups_of_a_schema_have_the_elements_that_they_claim() {
    let leaf = || leaf("x", 2).end();
    for (name, schema, reason) in [
        ("the root", vec![group("root", CLAIM as i64), leaf()], "claim 2147483647 elements, and 1 are left"),
        ("a group", vec![group("root", 2), group("g", 2), leaf(), leaf()], "claim 3 elements, and 2 are left"),
        ("too few", vec![group("root", 1), leaf(), leaf()], "an element of the schema belongs to no group"),
        ("fewer than none", vec![group("root", -1), leaf()], "a group of the schema claims -1 elements"),
        ("beyond 32 bits", vec![group("root", (1 << 32) + 1), leaf()], "a number is too large"),
    ] {
        let error = error(parquet_file(&[], &footer(&schema, &[], |footer| footer)));
        assert!(error.contains(reason), "{name}: {error}");
    }
}

fn too_large(bytes: Vec<u8>) -> String {
    let file = TestFile::new("a.parquet", bytes);
    let options = |bytes_max| ReadOptions { decoded_bytes_max: Some(bytes_max), ..ReadOptions::default() };
    assert!(read(&file.path, &options(1 << 30)).is_ok(), "it is sound");
    let error = read(&file.path, &options(16 << 20)).expect_err("too large");
    assert!(matches!(error, FormatError::Refused { .. }), "{error:?}");
    error.to_string()
}

#[test]
fn a_footer_that_takes_much_more_when_decoded_than_it_has_is_refused_with_advice() {
    // Each column has a copy of the name of its group.
    let mut schema = vec![group("root", 1), group(&"g".repeat(100_000), 300)];
    schema.extend((0..300).map(|number| leaf(&format!("c{number}"), 2).end()));
    let names = parquet_file(&[], &footer(&schema, &[], |footer| footer));
    // And there are as many chunks as row groups and columns.
    let mut schema = vec![group("root", 300)];
    schema.extend((0..300).map(|number| leaf(&format!("c{number}"), 2).end()));
    let chunk = Fields::default().i64(2, 4).structure(3, column()).end();
    let wide = Fields::default().list(1, STRUCT, &vec![chunk; 300]).i64(2, 0).i64(3, 0).end();
    let chunks = parquet_file(&[], &footer(&schema, &vec![wide; 300], |footer| footer));
    for (name, bytes) in [("names", names), ("chunks", chunks)] {
        let error = too_large(bytes);
        assert!(error.contains("decoding the footer takes ") && error.contains("larger row groups"), "{name}: {error}");
    }
}

/// Arrow's schema is checked like that of an Arrow file: one text in it can be shared by many
/// columns.
#[test]
fn arrow_s_own_schema_in_a_footer_counts_with_what_it_takes() {
    let encoded = crate::ipc_schema::shared_metadata(100_000, 300);
    let encoded = base64::engine::general_purpose::STANDARD.encode(encoded);
    let pair = Fields::default().text(1, "ARROW:schema").text(2, &encoded).end();
    let mut schema = vec![group("root", 300)];
    schema.extend((0..300).map(|number| leaf(&format!("c{number}"), 2).end()));
    let bytes = parquet_file(&[], &footer(&schema, &[], |footer| footer.list(5, STRUCT, std::slice::from_ref(&pair))));
    assert!(bytes.len() < 1 << 20);
    assert!(too_large(bytes).contains("decoding the footer takes "));
}
