//! Damaged records cause errors: never a panic, never bytes outside the record.

use crate::record_support::*;
use proptest::collection::vec;
use proptest::prelude::*;
use terrane::key::{Key, KeyType};
use terrane::record::{Record, RecordView, stored_geometry};
use terrane::schema::{ColumnType, SchemaHistory};
use terrane::value::Value;

/// Reads the whole record. Returns the first error, if any.
fn read_all(bytes: &[u8], history: &SchemaHistory) -> Result<Record, terrane::record::DamagedRecord> {
    stored_geometry(bytes)?;
    RecordView::parse(bytes, history)?.to_record(Key::Int(0))
}

fn every_type() -> SchemaHistory {
    history(KeyType::Int64, shapes(), &COLUMN_TYPES)
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..200)) {
        let _ = read_all(&bytes, &every_type());
    }

    #[test]
    fn random_bytes_behind_a_sound_header_never_panic(kind in 0u8..3, bytes in vec(any::<u8>(), 0..200)) {
        let mut record = vec![1, kind, 1, 0];
        record.extend(bytes);
        let _ = read_all(&record, &every_type());
    }

    #[test]
    fn changed_bytes_never_panic(
        (history, record) in any_record(),
        changes in vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = Vec::new();
        record.encode(&history, &mut bytes).expect("a valid record");
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        let _ = read_all(&bytes, &history);
    }

    #[test]
    fn every_cut_and_every_surplus_is_found((history, record) in any_record()) {
        let mut bytes = Vec::new();
        record.encode(&history, &mut bytes).expect("a valid record");
        for length in 0..bytes.len() {
            prop_assert!(RecordView::parse(&bytes[..length], &history).is_err(), "cut at {} of {}", length, bytes.len());
        }
        bytes.push(0);
        prop_assert!(RecordView::parse(&bytes, &history).is_err());
    }
}

#[test]
fn errors_name_the_byte() {
    let types = [ColumnType::Bool, ColumnType::Utf8, ColumnType::Utf8];
    let history = history(KeyType::Int64, points(), &types);
    let values = vec![Value::Bool(true), Value::Utf8("ab".into()), Value::Utf8("cd".into())];
    let mut sound = Vec::new();
    Record::at(1, 0.0, 0.0, values).encode(&history, &mut sound).expect("a valid record");
    // Header 0..4, point 4..20, null bitmap 20, bool 21, ends 22..26 and 26..30, text 30..34.
    let cases: [(usize, u8, usize, &str); 7] = [
        (0, 9, 0, "format"),
        (1, 9, 1, "kind"),
        (2, 9, 2, "version"),
        (21, 2, 21, "bool"),
        (22, 200, 22, "outside"),
        (26, 3, 22, "size"),
        (32, 0xFF, 26, "UTF-8"),
    ];
    for (place, byte, offset, part) in cases {
        let mut bytes = sound.clone();
        bytes[place] = byte;
        let error = read_all(&bytes, &history).expect_err("damage");
        assert_eq!(error.offset, offset, "{error}");
        assert!(error.reason.contains(part), "{error}");
    }
}

#[test]
fn a_geometry_longer_than_the_record_is_not_followed() {
    let mut bytes = vec![1, 2, 1, 0];
    bytes.extend(u32::MAX.to_le_bytes());
    bytes.extend([0; 40]);
    let error = stored_geometry(&bytes).expect_err("damage");
    assert!(error.reason.contains("longer"), "{error}");
}
