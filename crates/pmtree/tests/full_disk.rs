//! Full disks, and power losses on them.

use std::sync::{Arc, Barrier};

use crate::support::{BOTH, FORMS, TestedTree, options, random, with_seeds};
use rand::Rng;
use rand::rngs::SmallRng;
use terrane_pmem::{Dropping, Instruction, PersistenceDomain, Traced};
use terrane_pmtree::fbr::{FbrTree, LeafForm, Options, Rebalancing};
use terrane_pmtree::logged::LoggedTree;
use terrane_pmtree::{Error, PersistentRTree, PersistentTree, Rect};
use terrane_storage::{OpenMode, Storage};
use terrane_testkit::MemoryStorage;
use terrane_testkit::crash::{Budget, Controller, Image, NameOrder};
use terrane_testkit::turns::in_turn;

type Tree = FbrTree<2, Dropping<Traced>>;
type Entry = (Rect<2>, u64);

const BUDGET: Budget = Budget { exhaustive_pending: 2, samples: 4, name_order: NameOrder::AnySubset };

/// Space for some leaves.
const CAPACITY: u64 = 40 << 10;

fn point(random: &mut SmallRng, across: std::ops::Range<f64>) -> Rect<2> {
    Rect::point([random.random_range(across), random.random_range(0.0..100.0)]).unwrap()
}

/// A tree on a disk with no space for another node, durable.
fn full(options: &Options, seed: u64) -> (Image, Vec<Entry>) {
    let controller = Controller::new();
    controller.memory().set_capacity(CAPACITY);
    let storage = controller.storage();
    let tree = Tree::create(&*storage, "tree", options).unwrap();
    let mut random = random(seed);
    let mut entries = Vec::new();
    for payload in 0.. {
        let rect = point(&mut random, 0.0..100.0);
        match tree.insert(&rect, payload) {
            Ok(()) => entries.push((rect, payload)),
            Err(Error::Pool(_)) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(entries.len() > 50);
    drop(tree);
    storage.open("tree", OpenMode::Write).unwrap().sync_data().unwrap();
    (controller.process_kill(controller.events()), entries)
}

fn restart(image: &Image, options: &Options) -> (Arc<Controller>, Tree) {
    let controller = image.restart();
    controller.memory().set_capacity(CAPACITY);
    let tree = Tree::open(&*controller.storage(), "tree", options).unwrap();
    (controller, tree)
}

/// Checks that this entry survives a power loss now.
fn check(controller: &Controller, options: &Options, count: usize, (rect, payload): &Entry) -> Result<(), String> {
    for image in controller.images(controller.events(), &BUDGET, 1) {
        let mut tree = Tree::open(&*image.storage(), "tree", options).unwrap();
        let census = tree.check().map_err(|error| format!("{error}, {image:?}"))?;
        if census.entries != count as u64 || !tree.contains(rect, *payload).unwrap() {
            return Err(format!("{census:?} in place of {count} entries, {image:?}"));
        }
    }
    Ok(())
}

/// Inserts into boxes that a failed insertion of another thread has enlarged. Gives what a power
/// loss takes away, if it does.
fn inserted_and_gone(leaves: LeafForm, dropped: Option<(Instruction, &str)>) -> Option<String> {
    let mut options = Options { leaves, ..options(PersistenceDomain::Adr, 4, Rebalancing::InPlace) };
    options.pool.chunk_length = 4096;
    let (image, entries) = full(&options, 1);
    let mut random = random(2);
    let mut inserted = 0;
    for _ in 0..400 {
        let (controller, tree) = restart(&image, &options);
        if let Some((instruction, site)) = dropped {
            tree.pool().backend().leave_out(instruction, site);
        }
        // Outside of the boxes, and then between that and the others.
        let [failing, later] = [100.0..110.0, 99.0..108.0].map(|across| point(&mut random, across));
        let failed = std::thread::scope(|scope| scope.spawn(|| tree.insert(&failing, 9000)).join().unwrap());
        if failed.is_ok() || tree.insert(&later, 9001).is_err() {
            continue;
        }
        inserted += 1;
        if let Err(lost) = check(&controller, &options, entries.len() + 1, &(later, 9001)) {
            return Some(lost);
        }
    }
    assert!(inserted > 20, "{inserted}");
    None
}

/// Boxes that one thread has enlarged and flushed are not durable by another one's fence.
#[test]
fn what_is_inserted_into_boxes_that_a_failed_insertion_has_enlarged_survives_a_power_loss() {
    for leaves in FORMS {
        assert_eq!(inserted_and_gone(leaves, None), None, "{leaves:?}");
    }
}

#[test]
fn what_a_failed_insertion_has_enlarged_is_lost_without_its_fence() {
    for leaves in FORMS {
        let lost = inserted_and_gone(leaves, Some((Instruction::Fence, "fbr.insert.failed")));
        assert!(lost.is_some(), "{leaves:?}: the fence can be left out");
    }
}

/// Readers keep unlinked nodes, so that slots to record merges run out.
#[test]
fn everything_can_be_deleted_where_nothing_can_be_written_down_any_more() {
    for rebalancing in BOTH {
        let mut options = options(PersistenceDomain::Adr, 4, rebalancing);
        options.pool.chunk_length = 4096;
        let (image, entries) = full(&options, 1);
        let (controller, mut tree) = restart(&image, &options);
        let (entered, leave) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _reader = tree.pool().pin();
                entered.wait();
                leave.wait();
            });
            entered.wait();
            let deleted: Vec<_> = entries.iter().map(|(rect, payload)| tree.delete(rect, *payload)).collect();
            leave.wait();
            assert!(deleted.iter().all(|outcome| matches!(outcome, Ok(true))), "{deleted:?}");
        });
        let census = tree.check().unwrap();
        assert!(census.entries == 0 && census.leaves > 1, "nodes could be merged: {census:?}");
        for image in controller.images(controller.events(), &BUDGET, 1) {
            let mut tree = Tree::open(&*image.storage(), "tree", &options).unwrap();
            assert_eq!(tree.check().unwrap().entries, 0, "{image:?}");
        }
    }
}

/// In the logging tree, a deletion may need space for an image that no operation used before. Once
/// the entry is gone, it needs none.
#[test]
fn a_deletion_that_fails_leaves_the_entry() {
    let mut failed = 0;
    for seed in 0..120 {
        let mut random = random(seed);
        let mut options = LoggedTree::<2>::options(PersistenceDomain::Adr, [4, 5, 9, 30][seed as usize % 4]);
        options.pool.chunk_length = 4096 << (seed / 4 % 3);
        let storage = MemoryStorage::new();
        storage.set_capacity((24 << 10) + 4096 * random.random_range(4..20));
        let Ok(mut tree) = LoggedTree::<2, Traced>::create(&storage, "tree", &options) else { continue };
        let mut entries: Vec<Entry> = Vec::new();
        let mut refused = 0;
        for payload in 0.. {
            let rect = point(&mut random, 0.0..100.0);
            match tree.insert(&rect, payload) {
                Ok(()) => entries.push((rect, payload)),
                Err(error) => {
                    assert!(!tree.contains(&rect, payload).unwrap(), "seed {seed}, {payload}: {error}");
                    refused += 1;
                }
            }
            if refused == 20 {
                break;
            }
        }
        entries.retain(|(rect, payload)| match tree.delete(rect, *payload) {
            Ok(is_deleted) => !is_deleted,
            Err(error) => {
                assert!(tree.contains(rect, *payload).unwrap(), "seed {seed}, {payload} is gone: {error}");
                failed += 1;
                true
            }
        });
        let census = tree.check().unwrap();
        assert_eq!(census.entries, entries.len() as u64, "seed {seed}");
    }
    assert!(failed > 0, "all deletions had the space that they needed");
}

/// Creates a tree with a limited capacity. Gives whether that was enough; if not, nothing is left.
fn created_or_nothing<T: TestedTree<2>>(capacity: u64, options: &T::Options) -> bool {
    let storage = MemoryStorage::new();
    storage.set_capacity(capacity);
    let Err(error) = T::create(&storage, "tree", options) else { return true };
    assert!(matches!(error, Error::Pool(_)), "{error}");
    assert_eq!(storage.list("").unwrap(), [""; 0], "{capacity} bytes: {error}");
    false
}

#[test]
fn a_tree_that_cannot_be_created_leaves_nothing_under_its_name() {
    fn find_ways<T: TestedTree<2>>() {
        let mut options = T::options(PersistenceDomain::Adr, 55);
        T::pool_of(&mut options).chunk_length = 8192;
        let enough = (0..40).map(|pages| created_or_nothing::<T>(pages * 4096, &options)).collect::<Vec<_>>();
        assert!(enough.is_sorted() && !enough[2] && enough[39], "{enough:?}");
        // No block of the allocator is longer than a chunk.
        let mut options = T::options(PersistenceDomain::Adr, 503);
        T::pool_of(&mut options).chunk_length = 4096;
        assert!(!created_or_nothing::<T>(1 << 20, &options));
    }
    find_ways::<Tree>();
    find_ways::<LoggedTree<2, Traced>>();
}

/// A tree in a small storage that insertions have filled, and its entries.
fn filled(rebalancing: Rebalancing) -> (MemoryStorage, Options, Tree, Vec<Entry>) {
    let options = options(PersistenceDomain::PageCache, 4, rebalancing);
    let storage = MemoryStorage::new();
    storage.set_capacity(400 << 10);
    let tree = Tree::create(&storage, "tree", &options).unwrap();
    let mut random = random(1);
    let points = (0..).map(|payload| (point(&mut random, 0.0..100.0), payload));
    let entries = points.take_while(|(rect, payload)| tree.insert(rect, *payload).is_ok()).collect();
    (storage, options, tree, entries)
}

fn is_inserted(tree: &Tree, (rect, payload): &Entry) -> bool {
    match tree.insert(rect, *payload) {
        Err(Error::Pool(terrane_pmem::Error::Storage(error))) if error.is_storage_full() => false,
        outcome => outcome.map(|()| true).unwrap(),
    }
}

/// Each thread keeps a few retired slots of intents to itself. Those of eight threads are more than
/// a pool has that only insertions have filled, and there is no space for further ones.
#[test]
fn what_threads_have_retired_does_not_keep_freed_space_on_a_full_disk() {
    for rebalancing in BOTH {
        let (_storage, _, mut tree, entries) = filled(rebalancing);
        // One at a time, and no guard lives in between.
        let deleted = in_turn(8, entries.len(), |number| tree.delete(&entries[number].0, entries[number].1).unwrap());
        assert_eq!(deleted, vec![true; entries.len()]);
        let mut after = 0;
        tree.pool().visit_blocks(|_, _| after += 1).unwrap();
        assert!(after < 100, "{rebalancing:?}: {after} blocks of a tree with {} entries before", entries.len());
        let rect = Rect::point([50.0, 50.0]).unwrap();
        (0..200).for_each(|payload| tree.insert(&rect, payload).unwrap());
        tree.check().unwrap();
    }
}

/// A reader keeps everything, so deletions merge nothing meanwhile. Nobody deletes anything later,
/// and the blocks are available for insertions.
#[test]
fn nodes_that_deletions_left_are_merged_when_space_is_needed() {
    for rebalancing in BOTH {
        for is_opened_again in [false, true] {
            let (storage, options, mut tree, entries) = filled(rebalancing);
            {
                let _reader = tree.pool().pin();
                entries.iter().for_each(|(rect, payload)| assert!(tree.delete(rect, *payload).unwrap()));
            }
            let census = tree.check().unwrap();
            assert!(census.underfull > 100 && census.entries == 0, "{census:?}");
            if is_opened_again {
                tree.close().unwrap();
                tree = Tree::open(&storage, "tree", &options).unwrap();
            }
            let inserted = entries.iter().filter(|(rect, payload)| tree.insert(rect, *payload).is_ok()).count();
            assert_eq!(tree.check().unwrap().entries, inserted as u64);
            assert!(inserted * 10 > entries.len() * 9, "{rebalancing:?}: {inserted} of {}", entries.len());
        }
    }
}

/// One of them repairs nodes, and the others wait for its result. The freed blocks wait for a
/// thread that was stopped in the middle of an insertion.
#[test]
fn threads_that_need_space_at_the_same_time_all_find_it() {
    for rebalancing in BOTH {
        let (_storage, _, mut tree, entries) = filled(rebalancing);
        {
            let _reader = tree.pool().pin();
            entries.iter().for_each(|(rect, payload)| assert!(tree.delete(rect, *payload).unwrap()));
        }
        let wanted = entries.len() / 2;
        let insert = |entry: &Entry| (0..10_000).any(|_| is_inserted(&tree, entry));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (insert, entries) = (&insert, &entries);
                let mut own = entries[..wanted].iter().skip(thread).step_by(4);
                scope.spawn(move || assert!(own.all(insert), "there is no space"));
            }
        });
        assert_eq!(tree.check().unwrap().entries, wanted as u64);
    }
}

/// Some threads have freed blocks one after the other. Each keeps its last retired blocks to itself
/// until it retires more.
#[test]
fn an_operation_without_space_reuses_the_latest_retired_blocks() {
    for (threads, rebalancing) in [1, 8].into_iter().flat_map(|threads| BOTH.map(|rebalancing| (threads, rebalancing)))
    {
        let (_storage, _, mut tree, entries) = filled(rebalancing);
        let is_refused = in_turn(threads, 2 * entries.len(), |number| {
            let entry = &entries[number % entries.len()];
            if number < entries.len() {
                return !tree.delete(&entry.0, entry.1).unwrap();
            }
            let is_refused = !is_inserted(&tree, entry);
            if is_refused {
                tree.pool().reclaim().unwrap();
                assert!(!is_inserted(&tree, entry), "{threads}, {rebalancing:?}: there was room");
            }
            is_refused
        });
        let refused = is_refused.iter().filter(|is_refused| **is_refused).count();
        assert_eq!(tree.check().unwrap().entries, (entries.len() - refused) as u64);
    }
}

/// A tree that is filled, and emptied under readers that come and go. When it is full, no other
/// thread runs. So an operation that is refused once is refused again, and no nodes are left to
/// repair.
fn fill_until_refused(seed: u64) {
    let mut random = random(seed);
    let (fan_out, rebalancing) = ([4, 5, 8][random.random_range(0..3)], BOTH[random.random_range(0..2)]);
    let mut options = options(PersistenceDomain::PageCache, fan_out, rebalancing);
    options.leaves = FORMS[random.random_range(0..2)];
    options.pool.chunk_length = [4 << 10, 8 << 10, 32 << 10][random.random_range(0..3)];
    let storage = MemoryStorage::new();
    storage.set_capacity(random.random_range(160..420) << 10);
    let tree = &mut Tree::create(&storage, "tree", &options).unwrap();
    let (mut entries, mut payload): (Vec<Entry>, u64) = (Vec::new(), 0);
    let mut next = |random: &mut SmallRng| {
        payload += 1;
        (point(random, 0.0..100.0), payload)
    };
    for _ in 0..4 {
        let refused = loop {
            let entry = next(&mut random);
            match is_inserted(tree, &entry) {
                true => entries.push(entry),
                false => break entry,
            }
        };
        tree.pool().reclaim().unwrap();
        assert!(!is_inserted(tree, &refused), "seed {seed}: there was room");
        let census = tree.check().unwrap();
        assert_eq!((census.underfull, census.entries), (0, entries.len() as u64), "seed {seed}");
        let left = random.random_range(0..=entries.len() / 2);
        let _reader = random.random_bool(0.8).then(|| tree.pool().pin());
        while entries.len() > left {
            let (rect, payload) = entries.swap_remove(random.random_range(0..entries.len()));
            assert!(tree.delete(&rect, payload).unwrap());
            if random.random_ratio(1, 20) {
                let entry = next(&mut random);
                entries.extend(is_inserted(tree, &entry).then_some(entry));
            }
        }
    }
}

#[test]
fn an_operation_refused_alone_is_refused_again() {
    let seeds = if terrane_testkit::is_soak() { 4000 } else { 40 };
    with_seeds("an_operation_refused_alone_is_refused_again", 0..seeds, fill_until_refused);
}
