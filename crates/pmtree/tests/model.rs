//! The tree against a list under random operations.

use crate::support::{BOTH, FORMS, ONE_LEAF, grow_and_shrink, options, random, rect};
use terrane_pmem::{PersistenceDomain, Traced};
use terrane_pmtree::fbr::{FbrTree, LeafForm, Options, Rebalancing};
use terrane_pmtree::{Error, Rect};
use terrane_testkit::MemoryStorage;

fn compare<const D: usize>(seed: u64, fan_out: usize, leaves: LeafForm, operations: usize) {
    for rebalancing in BOTH {
        let options = Options { leaves, ..options(PersistenceDomain::PageCache, fan_out, rebalancing) };
        assert_eq!(grow_and_shrink::<D, FbrTree<D, Traced>>(seed, &options, operations), ONE_LEAF);
    }
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

/// A constant number of entries. The oldest is deleted for each new one.
#[test]
fn a_tree_through_which_entries_pass_stays_as_small_as_they_are_few() {
    for (fan_out, leaves) in [4, 5, 6].into_iter().flat_map(|fan_out| FORMS.map(|leaves| (fan_out, leaves))) {
        for rebalancing in BOTH {
            let options = Options { leaves, ..options(PersistenceDomain::PageCache, fan_out, rebalancing) };
            let mut tree: FbrTree<2, Traced> = FbrTree::create(&MemoryStorage::new(), "tree", &options).unwrap();
            let place = |number: u64| Rect::point([(number * 7_919 % 2_000) as f64, 0.0]).unwrap();
            for number in 0..2_000 {
                tree.insert(&place(number), number).unwrap();
                if let Some(oldest) = number.checked_sub(50) {
                    assert!(tree.delete(&place(oldest), oldest).unwrap());
                }
            }
            let census = tree.check().unwrap();
            let nodes = census.leaves + census.inner_nodes;
            assert!(census.underfull == 0 && census.height <= 6 && nodes <= 50, "{options:?}: {census:?}");
        }
    }
}

/// Nodes have at least the requested share, or are merged with a sibling.
#[test]
fn nodes_are_as_full_as_is_asked_for() {
    const FAN_OUT: usize = 10;
    let leaves = [20, 50].map(|fill_min_percent| {
        let options =
            Options { fill_min_percent, ..options(PersistenceDomain::PageCache, FAN_OUT, Rebalancing::InPlace) };
        assert_eq!(grow_and_shrink::<2, FbrTree<2, Traced>>(5, &options, 1000), ONE_LEAF);
        let mut tree: FbrTree<2, Traced> = FbrTree::create(&MemoryStorage::new(), "tree", &options).unwrap();
        let entries: Vec<_> = (0..400).map(|payload| (rect::<2>(&mut random(payload), 40), payload)).collect();
        entries.iter().for_each(|(rect, payload)| tree.insert(rect, *payload).unwrap());
        entries.iter().skip(100).for_each(|(rect, payload)| assert!(tree.delete(rect, *payload).unwrap()));
        let census = tree.check().unwrap();
        assert_eq!((census.entries, census.underfull), (100, 0), "{census:?}");
        assert!(census.leaves * (FAN_OUT as u64 * u64::from(fill_min_percent) / 100) <= 100, "{census:?}");
        census.leaves
    });
    assert!(leaves[0] > 100 / 5, "leaves of a fifth are kept where fuller ones would not be: {leaves:?}");
}

#[test]
fn a_share_that_two_halves_cannot_have_is_refused() {
    let storage = MemoryStorage::new();
    let with = |fill_min_percent| Options {
        fill_min_percent,
        ..options(PersistenceDomain::PageCache, 8, Rebalancing::InPlace)
    };
    let refused = FbrTree::<2, Traced>::create(&storage, "tree", &with(51));
    assert!(matches!(refused, Err(Error::FillMin { percent: 51, most: 50 })), "{refused:?}");
    FbrTree::<2, Traced>::create(&storage, "tree", &with(50)).unwrap().close().unwrap();
    let refused = FbrTree::<2, Traced>::open(&storage, "tree", &with(51));
    assert!(matches!(refused, Err(Error::FillMin { .. })), "{refused:?}");
    FbrTree::<2, Traced>::open(&storage, "tree", &with(0)).unwrap();
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
