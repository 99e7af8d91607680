//! A check stays within its memory and names the defects.

use std::ops::ControlFlow;
use std::sync::Arc;

use terrane_space::{CoordinateSystem, Point, Rect};
use terrane_testkit::MemoryStorage;

use super::compare::{bytes_of, differences};
use super::digest::{Slices, key_hash};
use super::index::IndexReader;
use super::{CheckReport, Finding};
use crate::schema::KeyType;
use crate::secondary::{SPATIAL, box_entry};
use crate::snapshot::Snapshot;
use crate::testing::{delete, points, put, replace_primary_of, replace_spatial};
use crate::{Dataset, DatasetOptions, Key, Options, Query, Store};

fn place(number: i64) -> Rect {
    Rect::from_point(Point::new((number % 200) as f64, (number / 200) as f64))
}

fn put_numbers(dataset: &Dataset, numbers: impl Iterator<Item = i64>) {
    put(dataset, numbers.map(|number| (Key::Int(number), place(number).x0, place(number).y0)));
}

fn reader_of(snapshot: &Snapshot) -> IndexReader<'_> {
    let place = SPATIAL as usize;
    IndexReader::new(snapshot, place, snapshot.indexes.get(place).unwrap().clone())
}

/// The contents of the index, as the reader sees them.
fn slices_of(reader: &IndexReader<'_>) -> Slices {
    let mut found = Slices::new(Slices::ALL);
    reader
        .read(&Slices::ALL, &|_| true, &mut |hash, entry, key| {
            found.add(hash, entry, key);
            Ok(())
        })
        .unwrap();
    found
}

#[test]
fn deleted_keys_are_noted_within_the_memory_limit() {
    const COUNT: i64 = 30_000;
    let (store, dataset) = points(CoordinateSystem::Planar, KeyType::Int64);
    put_numbers(&dataset, 0..COUNT);
    dataset.flush().unwrap();
    delete(&dataset, (0..COUNT).filter(|number| number % 10 > 0).map(Key::Int));
    dataset.flush().unwrap();
    // Some keys return, at the old place and at others.
    put_numbers(&dataset, (1..COUNT).step_by(100));
    put(&dataset, (2..COUNT).step_by(100).map(|number| (Key::Int(number), 5.5, 7.5)));
    delete(&dataset, (10..COUNT).step_by(100).map(Key::Int));
    let snapshot = dataset.snapshot();
    let reader = reader_of(&snapshot);
    let found = slices_of(&reader);
    assert!(reader.passes.get() > 1, "the deleted keys fit at once, so nothing is tested");
    let largest = reader.hidden_bytes_max.get();
    assert!(largest > 0 && largest <= reader.budget, "{largest} of {}", reader.budget);
    assert_eq!(found.entries(), snapshot.count(&crate::Query::new()).unwrap());
    let report = CheckReport::of(&dataset.engine, false).unwrap();
    assert!(report.findings.is_empty(), "{report}");
    store.close().unwrap();
}

/// A dataset of `count` records with a faulty index: 700 is missing, 701 is elsewhere, 702 occurs
/// twice, and -5 is superfluous.
fn wrong(count: i64) -> (crate::Store, Dataset) {
    let (store, dataset) = points(CoordinateSystem::Planar, KeyType::Int64);
    put_numbers(&dataset, 0..count);
    dataset.flush().unwrap();
    let wrong = (0..count).filter(|number| *number != 700).map(|number| match number {
        701 => (Key::Int(number), place(1)),
        _ => (Key::Int(number), place(number)),
    });
    let more = [(Key::Int(702), place(702)), (Key::Int(-5), place(9))];
    replace_spatial(&dataset, wrong.chain(more));
    (store, dataset)
}

const NAMED: [&str; 4] =
    ["lacks key 700 ", "has key 701 at Rect { x0: 1.0", "has key 702 at Rect { x0: 102.0", "has key -5 "];

fn assert_names_all(reasons: &[String]) {
    for named in NAMED {
        let found = reasons.iter().filter(|reason| reason.contains(named)).count();
        assert_eq!(found, 1, "{named}: {reasons:#?}");
    }
    // The first reason is the summary.
    assert_eq!(reasons.len(), 5, "{reasons:#?}");
}

#[test]
fn every_kind_of_difference_is_named() {
    let (_store, dataset) = wrong(2000);
    let report = CheckReport::of(&dataset.engine, false).unwrap();
    let reasons: Vec<String> = report.findings.iter().map(|finding| finding.reason.clone()).collect();
    assert_names_all(&reasons);
    let repaired = CheckReport::of(&dataset.engine, true).unwrap();
    assert!(repaired.is_clean() && !repaired.findings.is_empty(), "{repaired}");
    let report = CheckReport::of(&dataset.engine, false).unwrap();
    assert!(report.findings.is_empty(), "{report}");
}

#[test]
fn a_record_in_a_partition_that_is_not_its_own_is_named() {
    let options = Options { background: false, ..Options::default() };
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).unwrap();
    let (_other, like) = points(CoordinateSystem::Planar, KeyType::Int64);
    let schema = (*like.schema()).clone();
    let dataset = store.create_dataset_with("d", schema, &DatasetOptions { partitions: 2 }).unwrap();
    put_numbers(&dataset, 0..100);
    dataset.flush().unwrap();
    assert!(store.check(false).unwrap().findings.is_empty());
    let snapshot = dataset.snapshot();
    let of = |partition| {
        let is_of = |number: &i64| snapshot.partition_of(&Key::Int(*number).to_encoded().unwrap()) == partition;
        (0..100).filter(is_of).collect::<Vec<i64>>()
    };
    let mut stored = Vec::new();
    let mut keys = of(1);
    keys.push(of(0)[0]);
    keys.sort_unstable();
    snapshot
        .visit_records(&mut |key, record| {
            stored.push((Key::decode(KeyType::Int64, key)?, record.to_vec()));
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
    let record = |key: &i64| stored.iter().find(|(stored, _)| *stored == Key::Int(*key)).unwrap();
    let records: Vec<(Key, &[u8])> = keys.iter().map(record).map(|(key, record)| (key.clone(), &record[..])).collect();
    replace_primary_of(&dataset, 1, &records);
    let report = store.check(true).unwrap();
    let [finding] = &report.findings[..] else { panic!("{report}") };
    assert_eq!((finding.partition, finding.index.as_str(), finding.repaired), (Some(1), "primary", false));
    assert!(finding.reason.contains("partition 1, but its key belongs to 0"), "{report}");
}

/// An index of one partition is damaged. The other partitions are clean, and the index is rebuilt
/// from the records of its partition.
#[test]
fn an_index_of_one_partition_is_named_and_rebuilt() {
    let options = Options { background: false, ..Options::default() };
    let store = Store::open_on(Arc::new(MemoryStorage::new()), options).unwrap();
    let (_other, like) = points(CoordinateSystem::Planar, KeyType::Int64);
    let schema = (*like.schema()).clone();
    let dataset = store.create_dataset_with("d", schema, &DatasetOptions { partitions: 3 }).unwrap();
    put_numbers(&dataset, 0..300);
    dataset.flush().unwrap();
    // The first partition's index gets the entries of all partitions.
    replace_spatial(&dataset, (0..300).map(|number| (Key::Int(number), place(number))));
    let report = store.check(true).unwrap();
    assert!(!report.findings.is_empty() && report.is_clean(), "{report}");
    let is_named = |finding: &Finding| finding.partition == Some(0) && finding.index == "geometry";
    assert!(report.findings.iter().all(is_named), "{report}");
    let report = store.check(false).unwrap();
    assert!(report.findings.is_empty() && report.records == 300, "{report}");
    let window = Query::new().window(-1.0, -1.0, 300.0, 300.0);
    assert_eq!(dataset.snapshot().count(&window).unwrap(), 300);
}

#[test]
fn slices_that_do_not_fit_are_sliced_in_turn() {
    const COUNT: i64 = 20_000;
    const BUDGET: usize = 400;
    let (_store, dataset) = wrong(COUNT);
    let snapshot = dataset.snapshot();
    // The entries of one key fit in memory, those of a slice of all keys do not.
    let reader = IndexReader { budget: BUDGET, ..reader_of(&snapshot) };
    let mut expected = Slices::new(Slices::ALL);
    for number in 0..COUNT {
        let key = Key::Int(number).to_encoded().unwrap();
        expected.add(key_hash(&key), &box_entry(&place(number), true), &key);
    }
    let found = slices_of(&reader);
    assert!(expected.different(&found).all(|(_, digests)| bytes_of(&digests) > BUDGET as u64));
    assert_names_all(&differences(&reader, &expected, &found).unwrap());
}

#[test]
fn an_index_without_a_component_is_named_in_few_words() {
    let (_store, dataset) = points(CoordinateSystem::Planar, KeyType::Int64);
    put_numbers(&dataset, 0..5000);
    dataset.flush().unwrap();
    replace_spatial(&dataset, []);
    let report = CheckReport::of(&dataset.engine, false).unwrap();
    assert!((20..=22).contains(&report.findings.len()), "{report}");
    assert!(report.findings[0].reason.contains("0 entries and should have 5000"), "{report}");
}
