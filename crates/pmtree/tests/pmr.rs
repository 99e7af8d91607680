//! The PM-RTREE: against a list, costs, recovery, and the holes of the paper.

use rand::Rng;
use terrane_pmem::{Backend, Counted, Counters, PersistenceDomain, Traced};
use terrane_pmtree::pmr::{Options, PmrTree, Publication};
use terrane_pmtree::{Census, Error, Rect};
use terrane_storage::{OpenMode, Storage};
use terrane_testkit::MemoryStorage;

use crate::support::{Model, random, rect};

/// Options of small chunks and small inner nodes.
pub fn options(domain: PersistenceDomain, fan_out: usize) -> Options {
    let mut options = Options { fan_out, inner_fan_out: 4, ..Options::new(domain) };
    options.pool.chunk_length = 1 << 17;
    options.pool.address_space = 1 << 28;
    options
}

fn window<const D: usize, B: Backend>(tree: &PmrTree<D, B>, window: &Rect<D>) -> Vec<u64> {
    let mut hits = Vec::new();
    tree.window(window, |_, payload| hits.push(payload)).unwrap();
    hits.sort_unstable();
    hits
}

/// Grows and shrinks a tree beside a list, and reopens it.
fn compare<const D: usize>(seed: u64, options: &Options, operations: usize) {
    let what = format!("seed {seed}, {D} dimensions, {options:?}");
    let (storage, mut random) = (MemoryStorage::new(), random(seed));
    let mut tree = PmrTree::<D, Traced>::create(&storage, "tree", options).unwrap();
    let mut model = Model::<D>::default();
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
        assert!(!tree.delete(&rect(&mut random, 40), 1000).unwrap(), "{what}");
        if operation % 16 == 0 {
            let query = rect(&mut random, 40);
            assert_eq!(window(&tree, &query), model.window(&query), "{what}");
            let passes = |rect: &Rect<D>, payload: u64| payload % 5 == 1 && rect.min()[0] > query.min()[0];
            let nearest = tree.nearest(query.min(), 7, passes).unwrap();
            let distances: Vec<f64> = nearest.iter().map(|&(distance, ..)| distance).collect();
            let mut passing = model.clone();
            passing.0.retain(|(rect, payload)| passes(rect, *payload));
            assert_eq!(distances, passing.distances(query.min(), 7), "{what}");
        }
        if operation % 64 == 0 {
            let census = tree.check().unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!((census.entries, census.underfull), (model.0.len() as u64, 0), "{what}: {census:?}");
        }
        if operation % 500 == 250 {
            tree.close().unwrap();
            tree = PmrTree::open(&storage, "tree", options).unwrap();
        }
    }
    for (rect, payload) in model.0 {
        assert!(tree.delete(&rect, payload).unwrap(), "{what}");
    }
    let census = tree.check().unwrap();
    assert_eq!(census, Census { leaves: 1, inner_nodes: 1, height: 1, ..Census::default() }, "{what}");
}

#[test]
fn a_tree_holds_what_a_list_holds() {
    let domain = PersistenceDomain::PageCache;
    for (seed, fan_out) in [(1, 4), (2, 5), (3, 48), (4, 100)] {
        compare::<2>(seed, &options(domain, fan_out), 2000);
    }
    compare::<3>(5, &Options { interleaved: false, ..options(domain, 60) }, 2000);
    compare::<4>(6, &Options { publication: Publication::Descriptor, ..options(domain, 6) }, 1000);
}

fn counted<const D: usize>(
    tree: &PmrTree<D, Counted<Traced>>,
    run: impl FnOnce(&PmrTree<D, Counted<Traced>>),
) -> Counters {
    tree.pool().backend().take();
    run(tree);
    tree.pool().backend().take()
}

#[test]
fn an_insertion_takes_two_flushes_and_two_fences_a_deletion_one_of_each_and_a_search_none() {
    for interleaved in [true, false] {
        let options = Options { interleaved, ..options(PersistenceDomain::Adr, 96) };
        let tree = PmrTree::<3, Counted<Traced>>::create(&MemoryStorage::new(), "tree", &options).unwrap();
        let rects: Vec<Rect<3>> = (0..96).map(|number| Rect::point([f64::from(number); 3]).unwrap()).collect();
        for rect in &rects {
            let insertion = counted(&tree, |tree| tree.insert(rect, 1).unwrap());
            assert_eq!((insertion.flushes, insertion.lines_flushed, insertion.fences), (2, 2, 2));
        }
        let deletion = counted(&tree, |tree| assert!(tree.delete(&rects[7], 1).unwrap()));
        assert_eq!((deletion.flushes, deletion.fences), (1, 1));
        let search = counted(&tree, |tree| assert_eq!(window(tree, &rects[8]), [1]));
        assert_eq!((search.flushes, search.fences, search.stores), (0, 0, 0));
    }
}

/// The paper's data set *Random*: all boxes contain one point.
fn random_boxes(count: usize, seed: u64) -> Vec<Rect<3>> {
    let mut random = random(seed);
    let mut corner = |least: f64| [0, 1, 2].map(|_| least + random.random_range(0.0..1.0));
    (0..count).map(|_| Rect::new(corner(0.0), corner(1.0)).unwrap()).collect()
}

/// Both halves of a split leaf are copied.
#[test]
fn an_insertion_with_its_share_of_splits_flushes_few_lines() {
    for fan_out in [96, 336] {
        let options = Options { inner_fan_out: 32, ..options(PersistenceDomain::Adr, fan_out) };
        let tree = PmrTree::<3, Counted<Traced>>::create(&MemoryStorage::new(), "tree", &options).unwrap();
        let rects = random_boxes(10_000, 1);
        let cost = counted(&tree, |tree| rects.iter().for_each(|rect| tree.insert(rect, 1).unwrap()));
        let lines = cost.flushes as f64 / rects.len() as f64;
        println!("{fan_out} entries a leaf: {lines} lines an insertion");
        assert!(lines <= 4.2, "{lines} lines with {fan_out} entries a leaf");
    }
}

/// A line is flushed again right after itself where consecutive entries share a word.
#[test]
fn interleaving_avoids_flushing_a_line_twice_in_a_row() {
    let reflushes = [true, false].map(|interleaved| {
        let options = Options { interleaved, ..options(PersistenceDomain::Adr, 336) };
        let tree = PmrTree::<3, Counted<Traced>>::create(&MemoryStorage::new(), "tree", &options).unwrap();
        counted(&tree, |tree| random_boxes(300, 2).iter().for_each(|rect| tree.insert(rect, 1).unwrap())).reflushes
    });
    assert!(reflushes[0] < reflushes[1], "{reflushes:?}");
}

fn point(payload: u64) -> Rect<2> {
    Rect::point([(payload * 7 % 101) as f64, (payload * 11 % 89) as f64]).unwrap()
}

#[test]
fn several_threads_recover_what_one_does() {
    let storage = MemoryStorage::new();
    let options = options(PersistenceDomain::PageCache, 4);
    let tree = PmrTree::<2, Traced>::create(&storage, "tree", &options).unwrap();
    (0..1000).for_each(|payload| tree.insert(&point(payload), payload).unwrap());
    (0..400).for_each(|payload| assert!(tree.delete(&point(payload), payload).unwrap()));
    drop(tree);
    let mut leaves = Vec::new();
    for recovery_threads in [1, 2, 7] {
        let options = Options { recovery_threads, ..options.clone() };
        let mut tree = PmrTree::<2, Traced>::open(&storage, "tree", &options).unwrap();
        let census = tree.check().unwrap();
        assert_eq!(census.entries, 600, "{recovery_threads} threads");
        leaves.push(census.leaves);
        assert!((0..1000).all(|payload| tree.contains(&point(payload), payload).unwrap() == (payload >= 400)));
    }
    assert!(leaves[0] > 100 && leaves.windows(2).all(|pair| pair[0] == pair[1]), "{leaves:?}");
}

/// A word of the first page that nothing uses.
const UNUSED: u64 = 1216;

#[test]
fn recovery_frees_a_block_that_the_chain_does_not_reach() {
    let storage = MemoryStorage::new();
    let options = options(PersistenceDomain::PageCache, 4);
    let tree = PmrTree::<2, Traced>::create(&storage, "tree", &options).unwrap();
    (0..20).for_each(|payload| tree.insert(&point(payload), payload).unwrap());
    let mut intent = tree.pool().intent();
    let lost = intent.acquire(1000, UNUSED).unwrap();
    tree.pool().backend().store(UNUSED, lost);
    intent.finish();
    tree.pool().backend().store(UNUSED, 0);
    drop(tree);
    let mut tree = PmrTree::<2, Traced>::open(&storage, "tree", &options).unwrap();
    assert!(!tree.pool().is_acquired(lost).unwrap());
    assert_eq!(tree.check().unwrap().entries, 20);
}

#[test]
fn without_space_insertions_fail_and_lose_nothing_and_deletions_make_room() {
    let mut options = options(PersistenceDomain::PageCache, 8);
    options.pool.chunk_length = 1 << 13;
    options.pool.address_space = 1 << 17;
    let mut tree = PmrTree::<2, Traced>::create(&MemoryStorage::new(), "tree", &options).unwrap();
    let fill = |tree: &PmrTree<2, Traced>, first: u64| {
        (first..).find(|&payload| tree.insert(&point(payload), payload).is_err()).unwrap()
    };
    let inserted = fill(&tree, 0);
    assert!(inserted > 100, "{inserted}");
    assert_eq!(tree.check().unwrap().entries, inserted);
    assert!((0..inserted).all(|payload| tree.contains(&point(payload), payload).unwrap()));
    (0..inserted).for_each(|payload| assert!(tree.delete(&point(payload), payload).unwrap(), "{payload}"));
    assert_eq!(tree.check().unwrap().entries, 0);
    let again = fill(&tree, 1_000_000) - 1_000_000;
    assert!(again * 4 > inserted * 3, "{again} after {inserted}");
}

/// Any word of a closed pool is overwritten. An opening refuses the pool and leaves it as it is, or
/// operations meet errors. Nothing panics.
#[test]
fn a_damaged_word_is_an_error_or_harmless_and_never_a_panic() {
    let options = options(PersistenceDomain::PageCache, 4);
    let storage = MemoryStorage::new();
    let tree = PmrTree::<2, Traced>::create(&storage, "tree", &options).unwrap();
    (0..40).for_each(|payload| tree.insert(&point(payload), payload).unwrap());
    tree.close().unwrap();
    let read = |storage: &MemoryStorage| {
        let file = storage.open("tree", OpenMode::Read).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    let whole = read(&storage);
    let used = (1024..whole.len()).step_by(8).filter(|&at| whole[at..at + 8] != [0; 8]);
    let mut refused = 0;
    for at in used {
        for value in [0, 1, 64, 8192, u64::MAX >> 1, f64::NAN.to_bits(), 1 << 60, whole.len() as u64] {
            let damaged = MemoryStorage::new();
            let file = damaged.open("tree", OpenMode::CreateNew).unwrap();
            file.write_all_at(&whole, 0).unwrap();
            file.write_all_at(&u64::to_le_bytes(value), at as u64).unwrap();
            drop(file);
            let before = read(&damaged);
            let Ok(mut tree) = PmrTree::<2, Traced>::open(&damaged, "tree", &options) else {
                refused += 1;
                assert_eq!(read(&damaged), before, "{value:#x} at {at}");
                continue;
            };
            for payload in 0..60 {
                let _ = tree.contains(&point(payload), payload);
                let _ = tree.insert(&point(payload), payload);
                let _ = tree.delete(&point(payload), payload);
            }
            let _ = tree.check();
        }
    }
    assert!(refused > 50, "{refused}");
}

#[test]
fn options_that_no_tree_can_have_and_other_shapes_are_refused() {
    let storage = MemoryStorage::new();
    let good = options(PersistenceDomain::PageCache, 8);
    let wrong = [
        Options { fan_out: 3, ..good.clone() },
        Options { fan_out: 2017, ..good.clone() },
        Options { inner_fan_out: 3, ..good.clone() },
        Options { inner_fan_out: 256, ..good.clone() },
    ];
    for options in wrong {
        let refused = PmrTree::<2, Traced>::create(&storage, "tree", &options);
        assert!(matches!(refused, Err(Error::FanOut { .. })), "{refused:?}");
    }
    PmrTree::<2, Traced>::create(&storage, "tree", &good).unwrap().close().unwrap();
    let other = PmrTree::<3, Traced>::open(&storage, "tree", &good);
    assert!(matches!(other, Err(Error::OtherShape { .. })), "{other:?}");
    let other = Options { fan_out: 100, ..good };
    let mut tree = PmrTree::<2, Traced>::open(&storage, "tree", &other).unwrap();
    (0..9).for_each(|payload| tree.insert(&point(payload), payload).unwrap());
    assert_eq!(tree.check().unwrap().leaves, 2, "an existing tree keeps its fan-out");
}
