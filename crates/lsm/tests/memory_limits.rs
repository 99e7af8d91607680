//! Errors of memory components, and that an error changes nothing.

use std::ops::ControlFlow;
use terrane_lsm::Error;
use terrane_lsm::memory::btree::VALUE_LENGTH_MAX;
use terrane_lsm::memory::hilbert::Shapes;
use terrane_lsm::memory::{ErasedMemory, KEY_LENGTH_MAX, Kind, MemoryBTree, MemoryRTree, SEQUENCE_MAX, Shape};
use terrane_space::Rect;

const POINT: Rect = Rect { x0: 1.0, y0: 2.0, x1: 1.0, y1: 2.0 };

fn refused(outcome: Result<(), Error>, part: &str) {
    let message = outcome.expect_err("the write must be refused").to_string();
    assert!(message.contains(part), "{message:?} does not mention {part:?}");
}

#[test]
fn a_sealed_component_refuses_writes_and_still_answers() {
    let keys = MemoryBTree::new().expect("memory");
    keys.put(b"a", b"1", 1).expect("open");
    keys.seal();
    assert!(keys.is_sealed());
    refused(keys.put(b"b", b"2", 2), "sealed");
    refused(keys.delete(b"a", 2), "sealed");
    assert_eq!(keys.get_newest(b"a").map(|version| version.value), Some(&b"1"[..]));
    assert_eq!(keys.get_newest(b"b"), None);

    let spatial = MemoryRTree::new(Shapes::Points).expect("memory");
    spatial.insert(5, POINT, b"a", 1).expect("open");
    spatial.seal();
    refused(spatial.insert(6, POINT, b"b", 2), "sealed");
    refused(spatial.delete(5, POINT, b"a", 2), "sealed");
    assert_eq!(spatial.len(), 1);
    let mut ends = Vec::new();
    spatial.search(&POINT, 9, &mut |entry| {
        ends.push(entry.end);
        ControlFlow::Continue(())
    });
    assert_eq!(ends, [SEQUENCE_MAX]);
}

#[test]
fn keys_and_values_of_the_greatest_length_fit_and_longer_ones_are_refused() {
    let keys = MemoryBTree::new().expect("memory");
    let (key, value) = (vec![3; KEY_LENGTH_MAX], vec![4; VALUE_LENGTH_MAX]);
    keys.put(&key, &value, 1).expect("greatest length");
    assert_eq!(keys.get_newest(&key).map(|version| version.value), Some(&value[..]));
    refused(keys.put(&[&key[..], &[0]].concat(), b"", 2), &format!("{} bytes", KEY_LENGTH_MAX + 1));
    refused(keys.put(b"k", &[&value[..], &[0]].concat(), 2), "16777217 bytes");
    assert_eq!(keys.get_newest(b"k"), None);
    assert_eq!(keys.len(), 1);

    let spatial = MemoryRTree::new(Shapes::Points).expect("memory");
    spatial.insert(5, POINT, &key, 1).expect("greatest length");
    refused(spatial.insert(5, POINT, &[&key[..], &[0]].concat(), 2), &format!("{} bytes", KEY_LENGTH_MAX + 1));
    assert_eq!(spatial.len(), 1);
}

#[test]
fn a_key_written_against_its_sequence_order_is_refused_and_equal_numbers_are_not() {
    let keys = MemoryBTree::new().expect("memory");
    keys.put(b"k", b"old", 7).expect("first");
    refused(keys.put(b"k", b"older", 6), "after a higher one");
    keys.delete(b"k", 7).expect("the same transaction");
    keys.put(b"k", b"new", 7).expect("the same transaction");
    assert_eq!(keys.get(b"k", 7).map(|version| version.value), Some(&b"new"[..]));
    assert_eq!(keys.get(b"k", 6), None);
}

#[test]
fn the_highest_sequence_number_is_reserved() {
    refused(MemoryBTree::new().expect("memory").put(b"k", b"", SEQUENCE_MAX), "highest sequence number");
    refused(
        MemoryRTree::new(Shapes::Points).expect("memory").insert(1, POINT, b"k", SEQUENCE_MAX),
        "highest sequence number",
    );
}

#[test]
fn rectangles_that_cannot_be_found_again_are_refused() {
    let points = MemoryRTree::new(Shapes::Points).expect("memory");
    let rects = MemoryRTree::new(Shapes::Rects).expect("memory");
    let wide = Rect { x0: 0.0, y0: 0.0, x1: 1.0, y1: 1.0 };
    let not_a_number = Rect { x0: f64::NAN, ..wide };
    refused(points.insert(1, wide, b"k", 1), "not a point");
    refused(points.insert(1, not_a_number, b"k", 1), "not a number");
    refused(rects.insert(1, Rect { y1: f64::NAN, ..wide }, b"k", 1), "not a number");
    refused(rects.insert(1, Rect::EMPTY, b"k", 1), "empty");
    refused(rects.delete(1, not_a_number, b"k", 1), "not a number");
    rects.insert(1, wide, b"k", 1).expect("a rectangle");
    assert_eq!((points.len(), rects.len()), (0, 1));
    assert_eq!(rects.bounds(), wide);
}

#[test]
fn shapes_outside_of_the_nodes_are_refused() {
    for (leaf_slots, fanout) in [(1, 8), (129, 8), (8, 3), (8, 33)] {
        assert!(matches!(Shape::new(leaf_slots, fanout), Err(Error::Invalid(_))), "{leaf_slots} {fanout}");
    }
}

#[test]
fn a_drain_stops_where_its_visitor_stops_and_passes_its_error_on() {
    let keys = MemoryBTree::with_shape(Shape::new(2, 4).expect("valid")).expect("memory");
    for key in 0_u8..50 {
        keys.put(&[key], b"", u64::from(key)).expect("open");
    }
    let mut visited = 0;
    keys.drain(&mut |_| {
        visited += 1;
        Ok(if visited == 20 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })
    .expect("the visitor gives no error");
    assert_eq!(visited, 20);
    let outcome = keys.drain(&mut |_| Err(Error::Invalid("stop".into())));
    assert_eq!(outcome.expect_err("the visitor's error").to_string(), "stop");
}

#[test]
fn anti_matter_is_recorded_without_an_entry_to_delete() {
    let keys = MemoryBTree::new().expect("memory");
    keys.delete(b"k", 3).expect("open");
    assert_eq!(keys.get(b"k", 2), None);
    assert_eq!(keys.get(b"k", 3).map(|version| (version.kind, version.value)), Some((Kind::AntiMatter, &[][..])));
    assert_eq!((keys.len(), keys.anti_matter_len()), (1, 1));
}
