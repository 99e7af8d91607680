//! The tree against a list under random operations.

mod support;

use rand::Rng;
use support::{BOTH, FORMS, Model, options, random, rect, window};
use terrane_pmem::{PersistenceDomain, Traced};
use terrane_pmtree::{Error, FbrTree, LeafForm, Options, Rebalancing, SearchMode};
use terrane_storage::MemoryStorage;

const MODES: [SearchMode; 3] = [SearchMode::Validated, SearchMode::ReadUncommitted, SearchMode::SharedLock];

/// Grows and shrinks a tree, with checks of everything in between, and reopens it.
fn compare<const D: usize>(seed: u64, fan_out: usize, leaves: LeafForm, operations: usize) {
    for rebalancing in BOTH {
        compare_with::<D>(
            seed,
            Options { leaves, ..options(PersistenceDomain::PageCache, fan_out, rebalancing) },
            operations,
        );
    }
}

fn compare_with<const D: usize>(seed: u64, options: Options, operations: usize) {
    let storage = MemoryStorage::new();
    let Options { fan_out, rebalancing, leaves, .. } = options;
    let mut random = random(seed);
    let mut tree: FbrTree<D, Traced> = FbrTree::create(&storage, "tree", &options).unwrap();
    let mut model = Model::<D>::default();
    let what = format!("seed {seed}, {D} dimensions, fan-out {fan_out}, {rebalancing:?}, {leaves:?}");
    for operation in 0..operations {
        let grows = (operation / (operations / 4)).is_multiple_of(2);
        if model.0.is_empty() || random.random_bool(if grows { 0.8 } else { 0.2 }) {
            let (rect, payload) = (rect(&mut random, 40), random.random_range(0..1000));
            tree.insert(&rect, payload).unwrap();
            model.0.push((rect, payload));
        } else {
            let (rect, payload) = model.0[random.random_range(0..model.0.len())];
            assert!(tree.contains(&rect, payload).unwrap(), "{what}");
            assert!(tree.delete(&rect, payload).unwrap(), "{what}");
            model.delete(&rect, payload);
        }
        let absent = rect(&mut random, 40);
        assert!(!tree.delete(&absent, 1000).unwrap(), "{what}");
        if operation % 16 == 0 {
            let query = rect(&mut random, 40);
            for mode in MODES {
                assert_eq!(window(&tree, &query, mode), model.window(&query), "{what}, {mode:?}");
            }
            let nearest = tree.nearest(query.min(), 7, SearchMode::Validated).unwrap();
            let distances: Vec<f64> = nearest.iter().map(|&(distance, ..)| distance).collect();
            assert_eq!(distances, model.distances(query.min(), 7), "{what}");
        }
        if operation % 64 == 0 {
            let census = tree.check().unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(census.entries, model.0.len() as u64, "{what}");
            // Copies of the smallest nodes cannot all be half full.
            assert!(
                census.underfull == 0 || fan_out == 4 && rebalancing == Rebalancing::CopyOnWrite,
                "{what}: {census:?}"
            );
        }
        if operation % 500 == 250 {
            tree.close().unwrap();
            tree = FbrTree::open(&storage, "tree", &options).unwrap();
        }
    }
    for (rect, payload) in std::mem::take(&mut model.0) {
        assert!(tree.delete(&rect, payload).unwrap(), "{what}");
    }
    let census = tree.check().unwrap();
    assert_eq!((census.entries, census.leaves, census.inner_nodes, census.height), (0, 1, 0, 0), "{what}");
}

#[test]
fn small_nodes_hold_what_a_list_holds() {
    for leaves in FORMS {
        for fan_out in [4, 5, 6, 9] {
            compare::<2>(1, fan_out, leaves, 2000);
        }
        compare::<3>(2, 4, leaves, 1000);
    }
    compare::<4>(3, 7, LeafForm::Bitmap, 1000);
}

#[test]
fn nodes_of_several_bitmap_words_hold_what_a_list_holds() {
    for leaves in FORMS {
        for fan_out in [55, 56, 183, 503] {
            compare::<2>(4, fan_out, leaves, 4000);
        }
    }
}

#[test]
fn entries_longer_than_a_line_cannot_validate_themselves() {
    let options =
        Options { leaves: LeafForm::SelfValidating, ..options(PersistenceDomain::Adr, 8, Rebalancing::InPlace) };
    let refused = FbrTree::<4, Traced>::create(&MemoryStorage::new(), "tree", &options);
    assert!(matches!(refused, Err(Error::LongEntries { dimensions: 4 })), "{refused:?}");
}

#[test]
fn a_tree_keeps_the_form_of_its_leaves() {
    for [first, later] in [FORMS, [FORMS[1], FORMS[0]]] {
        let storage = MemoryStorage::new();
        let with = |leaves| Options { leaves, ..options(PersistenceDomain::Adr, 8, Rebalancing::InPlace) };
        let tree: FbrTree<2, Traced> = FbrTree::create(&storage, "tree", &with(first)).unwrap();
        let entries: Vec<_> = (0..40).map(|payload| (rect::<2>(&mut random(payload), 40), payload)).collect();
        entries.iter().for_each(|(rect, payload)| tree.insert(rect, *payload).unwrap());
        tree.close().unwrap();
        let mut tree: FbrTree<2, Traced> = FbrTree::open(&storage, "tree", &with(later)).unwrap();
        assert!(entries.iter().all(|(rect, payload)| tree.delete(rect, *payload).unwrap()));
        assert_eq!(tree.check().unwrap().entries, 0);
    }
}
