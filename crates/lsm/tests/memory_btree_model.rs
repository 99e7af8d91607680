//! The key-value memory component answers like a map of version lists.

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use terrane_lsm::memory::btree::{KeyRange, KeyValue, Version};
use terrane_lsm::memory::{ErasedMemory, Kind, MemoryBTree, SEQUENCE_MAX, Shape, Versioned};

type Versions = Vec<(u64, Kind, Vec<u8>)>;

/// Versions of each key, oldest first.
#[derive(Default)]
struct Model(BTreeMap<Vec<u8>, Versions>);

impl Model {
    fn apply(&mut self, key: &[u8], sequence: u64, value: Option<&[u8]>) {
        let kind = if value.is_some() { Kind::Put } else { Kind::AntiMatter };
        self.0.entry(key.to_vec()).or_default().push((sequence, kind, value.unwrap_or_default().to_vec()));
    }

    fn seen(versions: &Versions, snapshot: u64) -> Option<Versioned<Vec<u8>>> {
        let at = versions.iter().rposition(|version| version.0 <= snapshot)?;
        let end = versions.get(at + 1).map_or(SEQUENCE_MAX, |next| next.0);
        let (begin, kind, value) = versions[at].clone();
        Some(Versioned { entry: value, kind, begin, end })
    }
}

fn owned(version: Version<'_>) -> Versioned<Vec<u8>> {
    Versioned { entry: version.value.to_vec(), kind: version.kind, begin: version.begin, end: version.end }
}

/// Keys that often collide, share prefixes and lengths, and cross the eight inline bytes.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(255)], 0..12),
        (0_u64..60).prop_map(|number| number.to_be_bytes().to_vec()),
        (0_usize..4, 0_u8..8).prop_map(|(length, last)| [vec![7; 10 + 300 * length], vec![last]].concat()),
    ]
}

fn operation() -> impl Strategy<Value = (Vec<u8>, Option<Vec<u8>>)> {
    (key(), prop::option::weighted(0.7, prop::collection::vec(any::<u8>(), 0..20)))
}

fn shape() -> impl Strategy<Value = Shape> {
    (2_usize..40, 4_usize..12).prop_map(|(leaf_slots, fanout)| Shape::new(leaf_slots, fanout).expect("a valid shape"))
}

fn build(shape: Shape, operations: &[(Vec<u8>, Option<Vec<u8>>)]) -> (MemoryBTree, Model) {
    let tree = MemoryBTree::with_shape(shape).expect("memory");
    let mut model = Model::default();
    for ((key, value), sequence) in operations.iter().zip(1..) {
        match value {
            Some(value) => tree.put(key, value, sequence),
            None => tree.delete(key, sequence),
        }
        .expect("the write is admissible");
        model.apply(key, sequence, value.as_deref());
    }
    (tree, model)
}

/// More alike than the part of a key that nodes store, and more of them than a print can
/// distinguish for sure.
#[test]
fn keys_that_begin_alike_are_told_apart() {
    const KEYS: u32 = if cfg!(miri) { 200 } else { 40_000 };
    let key = |number: u32| format!("they all begin with this: {number:08}").into_bytes();
    let tree = MemoryBTree::new().expect("memory");
    // Each even number once, in no order; the odd ones are absent.
    let numbers = (0..KEYS / 2).map(|number| number * 7919 % (KEYS / 2) * 2);
    for (number, sequence) in numbers.zip(1..) {
        tree.put(&key(number), &number.to_le_bytes(), sequence).expect("the write is admissible");
    }
    for number in 0..KEYS {
        let found = tree.get_newest(&key(number)).map(|version| version.value.to_vec());
        assert_eq!(found, number.is_multiple_of(2).then(|| number.to_le_bytes().to_vec()), "{number}");
    }
    let found: Vec<_> = tree.range(KeyRange::ALL, SEQUENCE_MAX).map(|(key, _)| key.to_vec()).collect();
    assert_eq!(found, (0..KEYS).step_by(2).map(key).collect::<Vec<_>>());
    tree.check().expect("the tree is sound");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 192 }))]

    #[test]
    fn every_snapshot_reads_what_the_model_reads(shape in shape(), operations in prop::collection::vec(operation(), 0..400), absent in key()) {
        let (tree, model) = build(shape, &operations);
        let step = (operations.len() as u64 / 12).max(1);
        let snapshots = (0..=operations.len() as u64).step_by(step as usize).chain([SEQUENCE_MAX]);
        for snapshot in snapshots {
            let mut expected = Vec::new();
            for (key, versions) in &model.0 {
                let seen = Model::seen(versions, snapshot);
                prop_assert_eq!(tree.get(key, snapshot).map(owned), seen.clone());
                expected.extend(seen.map(|version| (key.clone(), version)));
            }
            let found: Vec<_> = tree.range(KeyRange::ALL, snapshot).map(|(key, version)| (key.to_vec(), owned(version))).collect();
            prop_assert_eq!(found, expected);
        }
        prop_assert_eq!(tree.get_newest(&absent).is_some(), model.0.contains_key(&absent));
        prop_assert_eq!(tree.check().map_err(|error| TestCaseError::fail(error.to_string()))?.entries, model.0.len());
    }

    #[test]
    fn ranges_have_the_bounds_asked_for(
        shape in shape(),
        operations in prop::collection::vec(operation(), 0..200),
        bounds in prop::collection::vec((key(), 0_u8..3, key(), 0_u8..3), 8),
    ) {
        let (tree, model) = build(shape, &operations);
        for (from, from_kind, to, to_kind) in &bounds {
            let bound = |key, kind: &u8| match kind { 0 => Bound::Included(key), 1 => Bound::Excluded(key), _ => Bound::Unbounded };
            let range = KeyRange { from: bound(from.as_slice(), from_kind), to: bound(to.as_slice(), to_kind) };
            let after = |key: &[u8]| match range.from { Bound::Included(from) => key >= from, Bound::Excluded(from) => key > from, Bound::Unbounded => true };
            let before = |key: &[u8]| match range.to { Bound::Included(to) => key <= to, Bound::Excluded(to) => key < to, Bound::Unbounded => true };
            let expected: Vec<_> = model.0.keys().filter(|key| after(key) && before(key)).cloned().collect();
            let found: Vec<_> = tree.range(range, SEQUENCE_MAX).map(|(key, _)| key.to_vec()).collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_drain_gives_every_version_by_key_and_newest_first(shape in shape(), operations in prop::collection::vec(operation(), 0..300)) {
        let (tree, model) = build(shape, &operations);
        let mut expected = Vec::new();
        for (key, versions) in &model.0 {
            let mut end = SEQUENCE_MAX;
            for (begin, kind, value) in versions.iter().rev() {
                expected.push((key.clone(), Versioned { entry: value.clone(), kind: *kind, begin: *begin, end }));
                end = *begin;
            }
        }
        let mut found = Vec::new();
        let drained = tree.drain(&mut |version: Versioned<KeyValue<'_>>| {
            let Versioned { entry, kind, begin, end } = version;
            found.push((entry.key.to_vec(), Versioned { entry: entry.value.to_vec(), kind, begin, end }));
            Ok(ControlFlow::Continue(()))
        });
        prop_assert!(drained.is_ok());
        prop_assert_eq!(&found, &expected);
        prop_assert_eq!(tree.len(), expected.len());
        prop_assert_eq!(tree.anti_matter_len(), operations.iter().filter(|(_, value)| value.is_none()).count());
        let sequences = (!operations.is_empty()).then_some((1, operations.len() as u64));
        prop_assert_eq!(tree.sequences(), sequences);
    }
}
