//! Checks stay within their memory and name what is wrong.

use terrane_space::{CoordinateSystem, Point, Rect};

use super::CheckReport;
use super::compare::{bytes_of, differences};
use super::digest::{Slices, key_hash};
use super::index::IndexReader;
use crate::schema::KeyType;
use crate::secondary::{SPATIAL, box_entry};
use crate::snapshot::Snapshot;
use crate::testing::{delete, points, put, replace_spatial};
use crate::{Dataset, Key};

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

/// What the index holds, as the reader sees it.
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
fn what_is_deleted_is_noted_within_the_limit_however_much_it_is() {
    const COUNT: i64 = 30_000;
    let (store, dataset) = points(CoordinateSystem::Planar, KeyType::Int64);
    put_numbers(&dataset, 0..COUNT);
    dataset.flush().unwrap();
    delete(&dataset, (0..COUNT).filter(|number| number % 10 > 0).map(Key::Int));
    dataset.flush().unwrap();
    // Some come back, at the old place and at others.
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

/// A dataset of so many records, of which the index has 700 not, 701 elsewhere, 702 twice, and one
/// too much.
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
    // The first tells the sums.
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
fn slices_that_do_not_fit_are_sliced_in_turn() {
    const COUNT: i64 = 20_000;
    const BUDGET: usize = 400;
    let (_store, dataset) = wrong(COUNT);
    let snapshot = dataset.snapshot();
    // The entries of one key fit, those of a slice of all keys do not.
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
    assert!(report.findings[0].reason.contains("0 entries, the records call for 5000"), "{report}");
}
