//! Errors: exit codes, and messages with remedies.

use std::io;
use std::sync::Arc;

use terrane::key::Key;
use terrane::record::{RecordView, RowError};
use terrane::schema::{GeometryColumn, KeyColumn, KeyType, Schema, SchemaError, SchemaHistory};
use terrane::{CoordinateSystem, Error, Options, Record, Store};
use terrane_storage::{Operation, StorageError};
use terrane_testkit::MemoryStorage;

fn storage(kind: io::ErrorKind) -> StorageError {
    StorageError::new(Operation::Write, "log/1.log", Some(4096), io::Error::from(kind))
}

#[test]
fn every_group_has_its_exit_code() {
    let refused = Error::refused("no");
    let cases = [
        (Error::usage("wrong"), 2),
        (Error::UnknownDataset { name: "a".into(), existing: vec![] }, 2),
        (Error::Unsupported { what: "durability dax".into(), instead: "there are others" }, 2),
        (Error::ReadOnly, 2),
        (Error::damaged("manifest", 7, "the checksum differs"), 3),
        (Error::Locked { pid: Some(17) }, 4),
        (refused, 5),
        (Error::DuplicateKey { key: Key::Int(1) }, 5),
        (storage(io::ErrorKind::PermissionDenied).into(), 1),
        (storage(io::ErrorKind::StorageFull).into(), 1),
        (Error::Poisoned { cause: "fdatasync".into() }, 1),
        (Error::Cancelled, 1),
    ];
    for (error, code) in cases {
        assert_eq!(error.exit_code(), code, "{error}");
    }
}

#[test]
fn a_full_disk_is_distinguished_from_other_failures() {
    assert!(matches!(Error::from(storage(io::ErrorKind::StorageFull)), Error::Full { .. }));
    assert!(matches!(Error::from(storage(io::ErrorKind::PermissionDenied)), Error::Storage(_)));
    let through_lsm = terrane_lsm::Error::from(storage(io::ErrorKind::StorageFull));
    assert!(matches!(Error::from(through_lsm), Error::Full { .. }));
    let full = StorageError::new(Operation::Write, "components/5.tc", Some(7), io::ErrorKind::StorageFull);
    let message = Error::from(full.below(std::path::Path::new("/data"))).to_string();
    assert_eq!(message, "no space left for /data/components/5.tc at byte 7; free some space and try again");
}

#[test]
fn damage_keeps_its_file_and_offset() {
    let error = Error::from(terrane_lsm::Error::damaged("components/5.tc", 8192, "a page"));
    assert!(error.is_damage());
    let message = error.to_string();
    assert!(message.contains("components/5.tc") && message.contains("8192"), "{message}");
}

#[test]
fn damage_of_a_record_names_dataset_and_key_if_known_and_no_file() {
    let history = SchemaHistory::new(points(CoordinateSystem::Planar)).unwrap();
    let error = Error::from(RecordView::parse(&[9, 0, 0, 0], &history).unwrap_err());
    assert!(error.is_damage() && error.exit_code() == Error::CORRUPTION);
    let advice = "; run `terrane check`, and restore a backup if it confirms this";
    let reason = "is damaged: at its byte 0, its format is unknown";
    assert_eq!(error.to_string(), format!("a stored record {reason}{advice}"));
    let named = error.of_record("rides", Some(Key::Int(7).to_string()));
    assert_eq!(named.to_string(), format!("the record with key 7 of dataset \"rides\" {reason}{advice}"));
    assert_eq!(named.clone().of_record("other", None).to_string(), named.to_string(), "the first name stays");
    let key = Key::decode(KeyType::Int64, b"abc").unwrap_err();
    let key = Error::from(key).of_record("rides", None);
    assert_eq!(
        key.to_string(),
        format!("a record of dataset \"rides\" is damaged: 3 bytes are not an encoded int64 key{advice}")
    );
    let page = Error::damaged("components/5.tc", 8192, "a page");
    assert_eq!(page.clone().of_record("rides", None).to_string(), page.to_string());
}

fn points(system: CoordinateSystem) -> Schema {
    let key = KeyColumn { name: "id".into(), key_type: KeyType::Int64, generated: false };
    let geometry = GeometryColumn::Point { x: "x".into(), y: "y".into() };
    Schema::new(key, geometry, system, Vec::new()).unwrap()
}

#[test]
fn refusals_name_row_column_and_reason() {
    let row = RowError { column: Some("speed".into()), reason: "it is null".into() };
    let error = Error::from(row).at_row(12);
    assert_eq!(error.to_string(), "row 12: column \"speed\": it is null");
    assert_eq!(error.clone().at_row(13).to_string(), error.to_string(), "the first row stays");
    assert!(error.is_refusal());
}

#[test]
fn the_wrong_coordinate_is_named() {
    let store = Store::open_on(Arc::new(MemoryStorage::new()), Options::default()).unwrap();
    let dataset = store.create_dataset("d", points(CoordinateSystem::LonLat)).unwrap();
    for (x, y, column) in [(1.0, 91.0, "y"), (181.0, 1.0, "x"), (f64::NAN, 1.0, "x"), (1.0, f64::INFINITY, "y")] {
        let message = dataset.insert(&Record::at(1, x, y, vec![])).unwrap_err().to_string();
        assert!(message.contains(&format!("column \"{column}\"")), "{message}");
    }
}

#[test]
fn errors_of_unknown_names_list_the_existing_ones() {
    let existing = vec!["roads".to_owned(), "trips".to_owned()];
    let message = Error::UnknownDataset { name: "road".into(), existing }.to_string();
    assert_eq!(message, "there is no dataset \"road\"; the store has roads, trips");
    let column = SchemaError::UnknownColumn { name: "a".into(), known: vec!["b".into()] };
    assert_eq!(Error::from(column).exit_code(), 2);
}
