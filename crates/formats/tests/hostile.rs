//! Arbitrary bytes: every reader returns an answer, none panics.
//!
//! proptest prints the shrunk case and stores its seed beside this file; the
//! stored seeds are replayed by every later run.

use std::sync::Arc;

use crate::support::{TestFile, parse_record, read, written};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use proptest::prelude::*;
use terrane_formats::{Format, GeometryColumns, OutputFormat, ReadOptions};

const FORMATS: [Format; 7] = [
    Format::Csv,
    Format::Ndjson,
    Format::GeoJson,
    Format::GeoJsonSeq,
    Format::Parquet,
    Format::ArrowFile,
    Format::ArrowStream,
];

/// Reads bytes as every format and as the detected one. The test asserts that an answer comes, and
/// that every row is either good or refused.
fn answer(bytes: &[u8]) {
    for name in ["a.bin", "a.csv", "a.geojson", "a.ndjson", "a.csv.zst"] {
        let file = TestFile::new(name, bytes);
        let _ = read(&file.path, &ReadOptions::default());
    }
    let file = TestFile::new("a.bin", bytes);
    for format in FORMATS {
        let options = ReadOptions { format: Some(format), ..ReadOptions::default() };
        if let Ok(whole) = read(&file.path, &options)
            && let Some(count) = whole.source.row_count_hint
        {
            let mut rows = whole.rows;
            rows.extend(whole.rejected.iter().map(|bad| bad.row));
            rows.sort_unstable();
            assert!(rows.into_iter().eq(1..=count), "{format}: every row has one answer");
        }
    }
}

fn good_files() -> Vec<Vec<u8>> {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from_iter_values(0..50))),
        ("name", Arc::new(StringArray::from_iter_values((0..50).map(|i| format!("name {i}"))))),
    ];
    let batch = RecordBatch::try_from_iter(columns).expect("columns of one length");
    [OutputFormat::Parquet, OutputFormat::Arrow, OutputFormat::GeoJson, OutputFormat::Csv]
        .map(|format| written(format, std::slice::from_ref(&batch), GeometryColumns::None))
        .to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn random_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        answer(&bytes);
    }

    #[test]
    fn random_bytes_after_a_magic_number_are_answered(
        magic in prop_oneof![
            Just(&b"PAR1"[..]),
            Just(&b"ARROW1\0\0"[..]),
            Just(&[0xff, 0xff, 0xff, 0xff][..]),
            Just(&[0x28, 0xb5, 0x2f, 0xfd][..]),
            Just(&[0x1f, 0x8b, 8, 0][..]),
            Just(&b"{\"type\":\"FeatureCollection\",\"features\":["[..]),
        ],
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        end in prop_oneof![Just(&b""[..]), Just(&b"PAR1"[..]), Just(&b"ARROW1"[..])],
    ) {
        answer(&[magic, &bytes, end].concat());
    }

    #[test]
    fn json_like_text_is_answered(text in r#"([\[\]{}:, \n"0-9a-z\\.-]|"type"|"Feature"|"features"|"geometry"|"coordinates"|"Point"){0,60}"#) {
        answer(text.as_bytes());
        let _ = parse_record(&text, false);
    }

    #[test]
    fn csv_like_text_is_answered(text in "([,;\t\"\r\n a-z0-9.-]){0,200}") {
        answer(text.as_bytes());
    }

    #[test]
    fn flipped_bytes_are_answered(
        file in 0_usize..4,
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 1_u8..), 1..6),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = good_files().swap_remove(file);
        for (index, flip) in flips {
            let index = index.index(bytes.len());
            bytes[index] ^= flip;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        answer(&bytes);
    }
}
