//! The B-tree on disk against a map.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::disk_support::Bench;
use proptest::prelude::*;
use terrane_lsm::disk::ComponentMeta;
use terrane_lsm::disk::btree::{BTreeBuilder, BTreeComponent, BTreeCursor};

type Versions = BTreeMap<Vec<u8>, Vec<(u64, Option<Vec<u8>>)>>;

fn build(bench: &mut Bench, entries: &Versions, has_sequences: bool) -> ComponentMeta {
    fill(BTreeBuilder::new(bench.writer(), has_sequences).with_filters(), entries)
}

fn fill(mut builder: BTreeBuilder, entries: &Versions) -> ComponentMeta {
    for (key, versions) in entries {
        for (begin, value) in versions {
            builder.push(key, value.is_none(), *begin, value.as_deref().unwrap_or(&[])).unwrap();
        }
    }
    builder.finish((1, 100)).unwrap()
}

fn open(bench: &Bench, meta: &ComponentMeta) -> Arc<BTreeComponent> {
    Arc::new(BTreeComponent::open(bench.open(meta).unwrap()).unwrap())
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        (0u64..3000).prop_map(|number| number.to_be_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..30),
        (0usize..1000).prop_map(|length| vec![7; length]),
    ]
}

fn value() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop_oneof![
        1 => Just(None),
        8 => prop::collection::vec(any::<u8>(), 0..200).prop_map(Some),
        1 => (10_000usize..40_000).prop_map(|length| Some(vec![3; length])),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn every_entry_is_found_and_nothing_else(
        entries in prop::collection::btree_map(key(), value(), 0..400),
        absent in prop::collection::vec(key(), 0..50),
    ) {
        let mut bench = Bench::new();
        let versions: Versions = entries.iter().map(|(key, value)| (key.clone(), vec![(5, value.clone())])).collect();
        let meta = build(&mut bench, &versions, false);
        let component = open(&bench, &meta);
        component.check(None).unwrap();
        for (key, value) in &entries {
            let found = component.get(key, u64::MAX).unwrap().expect("a key that was loaded");
            prop_assert_eq!(found.is_antimatter(), value.is_none());
            prop_assert_eq!(found.value(), value.as_deref().unwrap_or(&[]));
        }
        for key in absent.iter().filter(|key| !entries.contains_key(*key)) {
            prop_assert!(component.get(key, u64::MAX).unwrap().is_none());
            let mut cursor = BTreeCursor::seek(component.clone(), key).unwrap();
            let following = entries.range(key.clone()..).next();
            prop_assert_eq!(cursor.entry().map(|entry| entry.key.to_vec()), following.map(|(key, _)| key.clone()));
            cursor.advance().unwrap();
        }
        let mut cursor = BTreeCursor::seek(component, &[]).unwrap();
        for (key, value) in &entries {
            let entry = cursor.entry().unwrap();
            prop_assert_eq!(&*entry.key, key.as_slice());
            prop_assert_eq!(entry.value, value.as_deref().unwrap_or(&[]));
            cursor.advance().unwrap();
        }
        prop_assert!(cursor.entry().is_none());
    }

    #[test]
    fn a_snapshot_sees_the_newest_version_up_to_it(
        entries in prop::collection::btree_map(key(), prop::collection::btree_map(1u64..100, value(), 1..12), 1..60),
        snapshots in prop::collection::vec(0u64..110, 1..6),
    ) {
        let mut bench = Bench::new();
        let versions: Versions = entries
            .iter()
            .map(|(key, versions)| (key.clone(), versions.iter().rev().map(|(begin, value)| (*begin, value.clone())).collect()))
            .collect();
        let meta = build(&mut bench, &versions, true);
        let component = open(&bench, &meta);
        component.check(None).unwrap();
        for (key, versions) in &versions {
            for snapshot in &snapshots {
                let wanted = versions.iter().find(|(begin, _)| begin <= snapshot);
                let found = component.get(key, *snapshot).unwrap();
                prop_assert_eq!(found.as_ref().map(|found| found.is_antimatter()), wanted.map(|(_, value)| value.is_none()));
                if let (Some(found), Some((_, value))) = (&found, wanted) {
                    prop_assert_eq!(found.value(), value.as_deref().unwrap_or(&[]));
                }
            }
        }
    }
}

/// A search for an absent key reads a leaf only if no filter excludes it before.
#[test]
fn without_filters_the_same_is_found_by_other_pages() {
    let mut bench = Bench::new();
    let entries: Versions =
        (0..20_000u32).map(|key| ((key * 2).to_be_bytes().to_vec(), vec![(0, Some(vec![1; 30]))])).collect();
    let with = build(&mut bench, &entries, false);
    let without = fill(BTreeBuilder::new(bench.writer(), false), &entries);
    assert!(without.pages < with.pages, "{without:?}, {with:?}");
    let mut pages_read = Vec::new();
    for meta in [&with, &without] {
        let component = open(&bench, meta);
        component.check(None).unwrap();
        let before = bench.cache.counters().pages_read;
        for key in (1..40_000u32).step_by(200) {
            assert!(component.get(&key.to_be_bytes(), u64::MAX).unwrap().is_none());
        }
        pages_read.push(bench.cache.counters().pages_read - before);
        for key in (0..40_000u32).step_by(2) {
            assert!(component.get(&key.to_be_bytes(), u64::MAX).unwrap().is_some());
        }
    }
    assert!(pages_read[0] * 4 < pages_read[1], "{pages_read:?}");
}

#[test]
fn entries_out_of_order_are_refused() {
    let mut bench = Bench::new();
    let mut builder = BTreeBuilder::new(bench.writer(), false);
    builder.push(b"b", false, 0, b"").unwrap();
    assert!(builder.push(b"a", false, 0, b"").is_err());
    assert!(builder.push(b"b", false, 0, b"").is_err());
}

#[test]
fn a_builder_that_is_dropped_leaves_no_file() {
    let mut bench = Bench::new();
    let mut builder = BTreeBuilder::new(bench.writer(), false);
    builder.push(b"a", false, 0, b"value").unwrap();
    drop(builder);
    assert!(bench.storage.list("components").unwrap().is_empty());
}

#[test]
fn an_empty_component_has_nothing() {
    let mut bench = Bench::new();
    let meta = build(&mut bench, &Versions::new(), false);
    let component = open(&bench, &meta);
    component.check(None).unwrap();
    assert!(component.get(b"a", u64::MAX).unwrap().is_none());
    assert!(BTreeCursor::seek(component, &[]).unwrap().entry().is_none());
}

#[test]
fn the_cache_keeps_to_its_size_and_the_answers_stay() {
    let mut bench = Bench::with_cache(200_000);
    let versions: Versions =
        (0u64..20_000).map(|key| (key.to_be_bytes().to_vec(), vec![(1, Some(vec![1; 60]))])).collect();
    let meta = build(&mut bench, &versions, false);
    let component = open(&bench, &meta);
    for round in 0..3 {
        for key in (0u64..20_000).step_by(7) {
            assert!(component.get(&key.to_be_bytes(), u64::MAX).unwrap().is_some(), "round {round}, key {key}");
        }
        assert!(bench.cache.counters().bytes_cached <= 200_000);
    }
    assert!(bench.cache.counters().evictions > 0);
    drop(component);
    assert_eq!(bench.cache.counters().bytes_cached, 0);
}

/// In components that keep sequence numbers, keys are searched as in others: filters and the cache
/// answer, not the file.
#[test]
fn absent_keys_are_cheap_where_versions_are_kept() {
    let mut bench = Bench::new();
    // 30 versions each, so that some keys continue from leaf to leaf.
    let versions = |key: u64| (0..30).rev().map(move |begin| (begin, Some(vec![key as u8; 200]))).collect();
    let entries: Versions = (0..2_000_u64).map(|key| ((2 * key).to_be_bytes().to_vec(), versions(key))).collect();
    let meta = build(&mut bench, &entries, true);
    let component = open(&bench, &meta);
    for key in 0..2_000 {
        assert!(component.get(&(2 * key as u64).to_be_bytes(), 7).unwrap().is_some(), "{key}");
    }
    let absent = || {
        let before = bench.cache.counters().pages_read;
        for key in 0..2_000_u64 {
            assert!(component.get(&(2 * key + 1).to_be_bytes(), u64::MAX).unwrap().is_none());
        }
        bench.cache.counters().pages_read - before
    };
    absent();
    assert_eq!(absent(), 0);
}
