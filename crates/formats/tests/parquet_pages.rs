//! Page headers of Parquet files that the decoder would read differently than written.

use crate::support::thrift::{DOUBLE, Fields, I32, STRUCT, integer, variable};
use crate::support::{TestFile, parquet_file, read, read_text, texts};
use terrane_formats::{FormatError, ReadOptions};

const REQUIRED: i64 = 0;
const REPEATED: i64 = 2;

/// A file with one row and one int64 column in these pages. The first page may be a dictionary.
fn one_column(pages: &[Vec<u8>], has_dictionary: bool) -> Vec<u8> {
    one_column_of(REQUIRED, pages, has_dictionary)
}

fn one_column_of(repetition: i64, pages: &[Vec<u8>], has_dictionary: bool) -> Vec<u8> {
    let body = pages.concat();
    let schema = [
        Fields::default().text(4, "root").i32(5, 1).end(),
        Fields::default().i32(1, 2).i32(3, repetition).text(4, "x").end(),
    ];
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
fn a_page_s_length_counts_in_any_type_of_integers() {
    let long = Fields::default().i32(1, 0).i64(2, i64::from(i32::MAX)).i32(3, 8).structure(5, data_header());
    let bytes = one_column(&[page(long, &7_i64.to_le_bytes())], false);
    let error = read_text("a.parquet", bytes).expect_err("a lie").to_string();
    assert!(error.contains("takes 2147483655 bytes"), "{error}");
}

#[test]
fn a_page_s_length_in_another_type_is_refused() {
    let value = 7_i64.to_le_bytes();
    let begun = || Fields::default().i32(1, 0);
    let sound = page(begun().i32(2, 8).i32(3, 8).structure(5, data_header()), &value);
    let whole = read_text("a.parquet", one_column(&[sound], false)).expect("a sound page");
    assert_eq!(whole.rows, [1]);
    let claim = [&integer(i64::from(i32::MAX))[..], &[0; 3]].concat();
    for (name, header) in [
        ("decompressed", begun().field(2, DOUBLE, &claim).i32(3, 8).structure(5, data_header())),
        ("compressed", begun().i32(2, 8).field(3, DOUBLE, &claim).structure(5, data_header())),
        ("beyond 16 bits", begun().i32(2, 8).i32(3, 8).i32(3 + (1 << 16), 9).structure(5, data_header())),
        (
            "values",
            begun()
                .i32(2, 8)
                .i32(3, 8)
                .structure(5, Fields::default().field(1, DOUBLE, &claim).i32(2, 0).i32(3, 3).i32(4, 3)),
        ),
    ] {
        let error = read_text("a.parquet", one_column(&[page(header, &value)], false)).expect_err(name);
        assert!(matches!(error, FormatError::Damaged { .. }), "{name}: {error:?}");
        let error = error.to_string();
        assert!(error.contains("column \"x\": the header of the page at byte 4: "), "{name}: {error}");
        assert!(error.contains("wrong type 7") || error.contains("no field 65539"), "{name}: {error}");
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

/// Repeated levels are written once.
#[test]
fn a_row_of_more_list_values_than_fit_is_refused_with_advice() {
    let of_values = |count: u64| {
        let run = |count: u64, level: u8| [&variable(count << 1)[..], &[level]].concat();
        let levels = |runs: Vec<u8>| [&(runs.len() as u32).to_le_bytes(), &runs[..]].concat();
        let repetitions = levels([run(1, 0), run(count - 1, 1)].concat());
        // All indexes are those of the only value in the dictionary.
        let data = [repetitions, levels(run(count, 1)), [&[1][..], &run(count, 0)].concat()].concat();
        let own = Fields::default().i32(1, count as i64).i32(2, 8).i32(3, 3).i32(4, 3);
        let length = data.len() as i64;
        let data = page(Fields::default().i32(1, 0).i32(2, length).i32(3, length).structure(5, own), &data);
        let own = Fields::default().i32(1, 1).i32(2, 0);
        let dictionary = Fields::default().i32(1, 2).i32(2, 8).i32(3, 8).structure(7, own);
        one_column_of(REPEATED, &[page(dictionary, &7_i64.to_le_bytes()), data], true)
    };
    let whole = read_text("a.parquet", of_values(3)).expect("a sound list");
    assert_eq!(texts(&whole, "x"), [Some("[7,7,7]".to_string())]);
    let file = TestFile::new("a.parquet", of_values(2_000_000_000));
    let error = read(&file.path, &ReadOptions::default()).expect_err("too many");
    assert!(matches!(error, FormatError::Refused { .. }), "{error:?}");
    let error = error.to_string();
    assert!(error.contains("decoding the lists of a row takes 24000000000 bytes"), "{error}");
}
