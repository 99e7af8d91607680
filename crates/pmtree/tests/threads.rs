//! Many threads on one tree: the promises of searches beside writers, and the tree's final
//! contents.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::support::{BOTH, FORMS, TestedTree, options, random, rect};
use rand::Rng;
use terrane_pmem::PersistenceDomain;
use terrane_pmtree::Rect;
use terrane_pmtree::fbr::{FbrTree, Options, Rebalancing, SearchMode};
use terrane_pmtree::logged::LoggedTree;
use terrane_storage::RealStorage;

const WRITERS: u64 = 3;
const READERS: u64 = 3;
const PERMANENT: u64 = 400;
/// Payloads above this are of temporary entries, by writer.
const PASSING: u64 = 1 << 32;

fn with_tree<T: TestedTree<2>>(options: &T::Options, run: impl FnOnce(&mut T)) {
    let directory = crate::support::directory();
    let storage = RealStorage::new(directory.path());
    run(&mut T::create(&storage, "tree", options).unwrap());
}

/// Inserts and deletes its own entries, which cross those of others. Gives the remaining ones.
fn write(tree: &impl TestedTree<2>, writer: u64, operations: u64, seed: u64) -> BTreeMap<u64, Rect<2>> {
    let mut random = random(seed + writer);
    let mut own = BTreeMap::new();
    for operation in 0..operations {
        let payload = PASSING * (writer + 1) + operation;
        if own.len() < 30 || random.random_bool(if operation % 400 < 200 { 0.8 } else { 0.2 }) {
            let rect = rect(&mut random, 100);
            tree.insert(&rect, payload).unwrap();
            own.insert(payload, rect);
        } else {
            let place = random.random_range(0..own.len());
            let (&payload, &rect) = own.iter().nth(place).unwrap();
            assert!(tree.contains(&rect, payload).unwrap(), "seed {seed}: {payload} is not found");
            assert!(tree.delete(&rect, payload).unwrap(), "seed {seed}: {payload} is not found");
            assert!(!tree.contains(&rect, payload).unwrap(), "seed {seed}: {payload} is found after it was deleted");
            own.remove(&payload);
        }
    }
    own
}

/// Searches as long as others write. Permanent entries are found exactly once, and no entry that
/// never existed.
fn read(tree: &impl TestedTree<2>, permanent: &[Rect<2>], mode: SearchMode, reader: u64, is_over: &AtomicBool) -> u64 {
    let mut random = random(1000 + reader);
    let mut searches = 0;
    while !is_over.load(Ordering::Relaxed) {
        let corner: [f64; 2] = std::array::from_fn(|_| f64::from(random.random_range(0..100u32)));
        let window = Rect::new(corner, corner.map(|value| value + f64::from(random.random_range(0..60u32)))).unwrap();
        let mut found = BTreeSet::new();
        tree.window_in(&window, mode, &mut |rect, payload| {
            assert!(rect.overlaps(&window), "{payload} does not overlap");
            assert!(found.insert(payload), "{payload} is found twice");
        })
        .unwrap();
        for (payload, rect) in permanent.iter().enumerate() {
            assert_eq!(found.contains(&(payload as u64)), rect.overlaps(&window), "{payload} in {window:?}");
        }
        let nearest = tree.nearest(&corner, 5, &|_, _| true).unwrap();
        assert_eq!(nearest.len(), 5);
        let farthest = nearest[4].0;
        let closer = permanent.iter().enumerate().filter(|(_, rect)| rect.distance_squared(&corner) < farthest);
        for (payload, _) in closer {
            let times = nearest.iter().filter(|(_, _, found)| *found == payload as u64).count();
            assert_eq!(times, 1, "{payload} among the nearest");
        }
        searches += 1;
    }
    searches
}

fn write_and_read<T: TestedTree<2>>(options: &T::Options, mode: SearchMode, operations: u64, seed: u64) {
    with_tree(options, |tree: &mut T| {
        let mut random = random(seed);
        let permanent: Vec<Rect<2>> = (0..PERMANENT).map(|_| rect(&mut random, 100)).collect();
        for (payload, rect) in permanent.iter().enumerate() {
            tree.insert(rect, payload as u64).unwrap();
        }
        let is_over = AtomicBool::new(false);
        let searches = AtomicU64::new(0);
        let shared = &*tree;
        let left: Vec<BTreeMap<u64, Rect<2>>> = std::thread::scope(|scope| {
            for reader in 0..READERS {
                let (permanent, is_over, searches) = (&permanent, &is_over, &searches);
                scope.spawn(move || {
                    let count = read(shared, permanent, mode, reader, is_over);
                    searches.fetch_add(count, Ordering::Relaxed);
                });
            }
            let writers = (0..WRITERS).map(|writer| scope.spawn(move || write(shared, writer, operations, seed)));
            let writers: Vec<_> = writers.collect();
            let left: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            is_over.store(true, Ordering::Relaxed);
            left.into_iter().map(Result::unwrap).collect()
        });
        assert!(searches.into_inner() > 0);
        let mut expected: Vec<u64> = (0..PERMANENT).chain(left.iter().flat_map(|own| own.keys().copied())).collect();
        expected.sort_unstable();
        let everything = Rect::new([-1e9; 2], [1e9; 2]).unwrap();
        assert_eq!(crate::support::window(tree, &everything, SearchMode::Validated), expected, "seed {seed}");
        let census = tree.check().unwrap();
        assert_eq!(census.entries, expected.len() as u64, "seed {seed}");
    });
}

#[test]
fn searches_without_locks_find_what_is_always_there_exactly_once() {
    let operations = if terrane_testkit::is_soak() { 100_000 } else { 3000 };
    for (leaves, rebalancing) in FORMS.into_iter().flat_map(|leaves| BOTH.map(|rebalancing| (leaves, rebalancing))) {
        for fan_out in [4, 8, 60] {
            let options = Options { leaves, ..options(PersistenceDomain::PageCache, fan_out, rebalancing) };
            write_and_read::<FbrTree<2>>(&options, SearchMode::Validated, operations, 1);
        }
    }
}

#[test]
fn searches_with_shared_locks_find_what_is_always_there_exactly_once() {
    let options = options(PersistenceDomain::PageCache, 6, Rebalancing::InPlace);
    write_and_read::<FbrTree<2>>(&options, SearchMode::SharedLock, 2000, 2);
}

#[test]
fn searches_of_a_logged_tree_find_what_is_always_there_exactly_once() {
    for fan_out in [4, 60] {
        let options = LoggedTree::<2>::options(PersistenceDomain::PageCache, fan_out);
        write_and_read::<LoggedTree<2>>(&options, SearchMode::Validated, 3000, 3);
    }
}
