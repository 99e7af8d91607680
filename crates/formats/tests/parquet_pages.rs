//! Page headers of Parquet files that the decoder would read in another way than they look.

use crate::support::thrift::{Fields, I32, I64, STRUCT, integer};
use crate::support::{parquet_file, read_text};
use terrane_formats::FormatError;

/// A file of one row and one column of int64 in these pages, the first of which may be a dictionary.
fn one_column(pages: &[Vec<u8>], has_dictionary: bool) -> Vec<u8> {
    let body = pages.concat();
    let schema =
        [Fields::default().text(4, "root").i32(5, 1).end(), Fields::default().i32(1, 2).i32(3, 0).text(4, "x").end()];
    let data_start = if has_dictionary { 4 + pages[0].len() } else { 4 };
    let column = Fields::default().i32(1, 2).list(2, I32, &[integer(0)]).i32(4, 0).i64(5, 1);
    let column = column.i64(6, body.len() as i64).i64(7, body.len() as i64).i64(9, data_start as i64);
    let column = if has_dictionary { column.i64(11, 4) } else { column };
    let chunk = Fields::default().i64(2, 4).structure(3, column).end();
    let row_group = Fields::default().list(1, STRUCT, &[chunk]).i64(2, body.len() as i64).i64(3, 1).end();
    let footer = Fields::default().i32(1, 1).list(2, STRUCT, &schema).i64(3, 1).list(4, STRUCT, &[row_group]).end();
    parquet_file(&body, &footer)
}

/// The fields of a data page's own header.
fn data_header() -> Fields {
    Fields::default().i32(1, 1).i32(2, 0).i32(3, 3).i32(4, 3)
}

fn page(header: Fields, data: &[u8]) -> Vec<u8> {
    [header.end(), data.to_vec()].concat()
}

#[test]
fn a_page_s_length_in_another_type_is_refused() {
    let value = 7_i64.to_le_bytes();
    let begun = || Fields::default().i32(1, 0);
    let sound = page(begun().i32(2, 8).i32(3, 8).structure(5, data_header()), &value);
    let whole = read_text("a.parquet", one_column(&[sound], false)).expect("a sound page");
    assert_eq!(whole.rows, [1]);
    let claim = integer(i64::from(i32::MAX));
    for (name, header) in [
        ("decompressed", begun().field(2, I64, &claim).i32(3, 8).structure(5, data_header())),
        ("compressed", begun().i32(2, 8).field(3, I64, &claim).structure(5, data_header())),
        ("beyond 16 bits", begun().i32(2, 8).i32(3, 8).i32(3 + (1 << 16), 9).structure(5, data_header())),
        ("values", begun().i32(2, 8).i32(3, 8).structure(5, Fields::default().i64(1, 1).i32(2, 0).i32(3, 3).i32(4, 3))),
    ] {
        let error = read_text("a.parquet", one_column(&[page(header, &value)], false)).expect_err(name);
        assert!(matches!(error, FormatError::Damaged { .. }), "{name}: {error:?}");
        let error = error.to_string();
        assert!(error.contains("column \"x\": the header of the page at byte 4: "), "{name}: {error}");
        assert!(error.contains("wrong type 6") || error.contains("no field 65539"), "{name}: {error}");
    }
}

/// The decoder makes that many values before it reads any.
#[test]
fn the_values_that_a_dictionary_claims_are_held_against_its_bytes() {
    let with_claim = |values: i64| {
        let own = Fields::default().i32(1, values).i32(2, 0);
        let dictionary = Fields::default().i32(1, 2).i32(2, 8).i32(3, 8).structure(7, own);
        let dictionary = page(dictionary, &7_i64.to_le_bytes());
        // One index of one bit: a run of one zero.
        let indexes = [1, 2, 0];
        let own = Fields::default().i32(1, 1).i32(2, 8).i32(3, 3).i32(4, 3);
        let data = page(Fields::default().i32(1, 0).i32(2, 3).i32(3, 3).structure(5, own), &indexes);
        one_column(&[dictionary, data], true)
    };
    assert_eq!(read_text("a.parquet", with_claim(1)).expect("a sound dictionary").rows, [1]);
    let error = read_text("a.parquet", with_claim(i64::from(i32::MAX))).expect_err("a lie").to_string();
    assert!(error.contains("a dictionary claims 2147483647 values in 8 bytes"), "{error}");
}
