//! Searches beside threads that write, in any tree that finds nearest neighbours.

use std::sync::atomic::{AtomicBool, Ordering};

use rand::Rng;
use terrane_pmem::Native;
use terrane_pmtree::{NearestSearch, PersistentTree};
use terrane_storage::RealStorage;
use terrane_testkit::is_soak;

use crate::seen::{everything, point};
use crate::support::{directory, random, rect};

const PERMANENT: u64 = 300;
const WRITERS: u64 = 3;

/// Inserts and deletes own entries, and looks them up. Gives how many are left.
fn write(tree: &impl NearestSearch<2>, writer: u64) -> u64 {
    let (mut random, mut own) = (random(writer), Vec::new());
    for operation in 0..if is_soak() { 100_000 } else { 3000 } {
        let payload = (writer + 1) << 32 | operation;
        if own.len() < 30 || random.random_bool(if operation % 400 < 200 { 0.8 } else { 0.2 }) {
            let rect = rect::<2>(&mut random, 40);
            tree.insert(&rect, payload).unwrap();
            own.push((rect, payload));
        } else {
            let (rect, payload) = own.swap_remove(random.random_range(0..own.len()));
            assert!(tree.contains(&rect, payload).unwrap(), "{payload:#x} is not found");
            assert!(tree.delete(&rect, payload).unwrap(), "{payload:#x} is not found");
            assert!(!tree.contains(&rect, payload).unwrap(), "{payload:#x} is found after its deletion");
        }
    }
    own.len() as u64
}

/// Finds what is always there.
fn read(tree: &impl NearestSearch<2>) {
    let mut seen = Vec::new();
    tree.window(&everything(), &mut |_, payload| seen.push(payload)).unwrap();
    let all = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), all, "an entry is found twice");
    assert!(seen.into_iter().take_while(|payload| *payload < PERMANENT).eq(0..PERMANENT));
    let nearest = tree.nearest(&[3.0; 2], 5, &|_, payload| payload < PERMANENT).unwrap();
    let mut distances: Vec<f64> = (0..PERMANENT).map(|payload| point(payload).distance_squared(&[3.0; 2])).collect();
    distances.sort_unstable_by(f64::total_cmp);
    assert!(nearest.iter().map(|(distance, ..)| distance).eq(&distances[..5]));
}

fn count(tree: &impl NearestSearch<2>) -> u64 {
    let mut count = 0;
    tree.window(&everything(), &mut |_, _| count += 1).unwrap();
    count
}

/// Several threads write, others search, and one more repeats something. Then the tree has all
/// entries, and has them again when it is opened after a kill.
pub fn finds_what_is_always_there<T>(options: &T::Options, repeated: impl Fn(&T) + Sync)
where
    T: NearestSearch<2> + PersistentTree<Backend = Native, Options: Sized>,
{
    let directory = directory();
    let storage = RealStorage::new(directory.path());
    let mut tree = T::create(&storage, "tree", options).unwrap();
    (0..PERMANENT).for_each(|payload| tree.insert(&point(payload), payload).unwrap());
    let (is_over, shared) = (AtomicBool::new(false), &tree);
    let repeat = |work: &(dyn Fn(&T) + Sync)| {
        while !is_over.load(Ordering::Relaxed) {
            work(shared);
        }
    };
    let left: u64 = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || write(shared, writer))).collect();
        (0..2).for_each(|_| _ = scope.spawn(|| repeat(&|tree| read(tree))));
        scope.spawn(|| repeat(&repeated));
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        ended.into_iter().map(Result::unwrap).sum()
    });
    tree.check().unwrap();
    assert_eq!(count(&tree), PERMANENT + left);
    drop(tree);
    let mut tree = T::open(&storage, "tree", options).unwrap();
    tree.check().unwrap();
    assert_eq!(count(&tree), PERMANENT + left);
}
