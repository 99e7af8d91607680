//! The PM-RTREE: against a list, costs, recovery, and the holes of the paper.

use rand::Rng;
use terrane_pmem::{Backend, Counted, Counters, PersistenceDomain, Traced};
use terrane_pmtree::pmr::{LeafForm, Options, PmrTree, Publication, UnpartitionedTree};
use terrane_pmtree::{Census, Error, Rect};
use terrane_storage::{OpenMode, Storage};
use terrane_testkit::MemoryStorage;

use crate::support::{ONE_LEAF, grow_and_shrink, random};

/// Options of small chunks and small inner nodes.
pub fn options(domain: PersistenceDomain, fan_out: usize) -> Options {
    let mut options = Options { fan_out, inner_fan_out: 4, ..Options::new(domain) };
    options.pool.chunk_length = 1 << 17;
    options.pool.address_space = 1 << 28;
    options
}

fn self_validating(options: Options) -> Options {
    Options { leaves: LeafForm::SelfValidating, ..options }
}

fn window<const D: usize, B: Backend>(tree: &PmrTree<D, B>, window: &Rect<D>) -> Vec<u64> {
    let mut hits = Vec::new();
    tree.window(window, |_, payload| hits.push(payload)).unwrap();
    hits.sort_unstable();
    hits
}

/// Grows and shrinks a tree beside a list, and reopens it.
fn compare<const D: usize>(seed: u64, options: &Options, operations: usize) {
    let census = grow_and_shrink::<D, PmrTree<D, Traced>>(seed, options, operations);
    assert_eq!(census, Census { inner_nodes: 1, height: 1, ..ONE_LEAF }, "seed {seed}, {options:?}");
}

#[test]
fn a_tree_holds_what_a_list_holds() {
    let domain = PersistenceDomain::PageCache;
    for (seed, fan_out) in [(1, 4), (2, 5), (3, 48), (4, 100)] {
        compare::<2>(seed, &options(domain, fan_out), 2000);
    }
    compare::<3>(5, &Options { interleaved: false, ..options(domain, 60) }, 2000);
    for (seed, fan_out) in [(7, 5), (8, 100)] {
        compare::<3>(seed, &self_validating(options(domain, fan_out)), 2000);
    }
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

#[test]
fn an_entry_that_validates_itself_takes_one_flush_and_one_fence() {
    let options = self_validating(options(PersistenceDomain::Adr, 96));
    let tree = PmrTree::<3, Counted<Traced>>::create(&MemoryStorage::new(), "tree", &options).unwrap();
    let rects: Vec<Rect<3>> = (0..96).map(|number| Rect::point([f64::from(number); 3]).unwrap()).collect();
    for rect in &rects {
        let insertion = counted(&tree, |tree| tree.insert(rect, 1).unwrap());
        assert_eq!((insertion.flushes, insertion.lines_flushed, insertion.fences), (1, 1, 1));
    }
    let deletion = counted(&tree, |tree| assert!(tree.delete(&rects[7], 1).unwrap()));
    assert_eq!((deletion.flushes, deletion.fences), (1, 1));
    let search = counted(&tree, |tree| assert_eq!(window(tree, &rects[8]), [1]));
    assert_eq!((search.flushes, search.fences, search.stores), (0, 0, 0));
    let refused = PmrTree::<4, Counted<Traced>>::create(&MemoryStorage::new(), "tree", &options);
    assert!(matches!(refused, Err(Error::LongEntries { dimensions: 4 })), "{refused:?}");
}

/// Caches survive a power loss there, so nothing is flushed, splits included.
#[test]
fn nothing_is_flushed_where_caches_are_durable() {
    for options in [options(PersistenceDomain::Eadr, 96), self_validating(options(PersistenceDomain::Eadr, 96))] {
        let tree = PmrTree::<3, Counted<Traced>>::create(&MemoryStorage::new(), "tree", &options).unwrap();
        let rects = random_boxes(1000, 3);
        let cost = counted(&tree, |tree| {
            rects.iter().for_each(|rect| tree.insert(rect, 1).unwrap());
            rects.iter().for_each(|rect| assert!(tree.delete(rect, 1).unwrap()));
        });
        assert_eq!(cost.flushes, 0, "{options:?}");
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
    let forms = [(LeafForm::Bitmap, 4.2), (LeafForm::SelfValidating, 3.2)];
    for (fan_out, (leaves, most)) in [96, 336].into_iter().flat_map(|fan_out| forms.map(|form| (fan_out, form))) {
        let options = Options { leaves, inner_fan_out: 32, ..options(PersistenceDomain::Adr, fan_out) };
        let tree = PmrTree::<3, Counted<Traced>>::create(&MemoryStorage::new(), "tree", &options).unwrap();
        let rects = random_boxes(10_000, 1);
        let cost = counted(&tree, |tree| rects.iter().for_each(|rect| tree.insert(rect, 1).unwrap()));
        let lines = cost.flushes as f64 / rects.len() as f64;
        println!("{leaves:?}, {fan_out} entries a leaf: {lines} lines an insertion");
        assert!(lines <= most, "{leaves:?}, {fan_out} entries a leaf: {lines} lines");
    }
}

/// It is only measured, so it has no deletion and is not opened again.
#[test]
fn a_tree_without_partition_holds_what_several_threads_insert_and_flushes_more() {
    let options = Options { publication: Publication::Descriptor, ..options(PersistenceDomain::Adr, 100) };
    let tree = UnpartitionedTree::<3, Counted<Traced>>::create(&MemoryStorage::new(), "tree", &options).unwrap();
    let rects = random_boxes(4000, 4);
    tree.pool().backend().take();
    let insert = |part: &[Rect<3>], first: usize| {
        part.iter().zip(first as u64..).for_each(|(rect, payload)| tree.insert(rect, payload).unwrap());
    };
    std::thread::scope(|scope| {
        for (number, part) in rects.chunks(1000).enumerate() {
            scope.spawn(move || insert(part, number * 1000));
        }
    });
    let flushes = tree.pool().backend().take().flushes;
    let mut random = random(5);
    for _ in 0..50 {
        let query = Rect::point([(); 3].map(|()| random.random_range(0.0..1.0))).unwrap();
        let mut hits = Vec::new();
        tree.window(&query, |_, payload| hits.push(payload)).unwrap();
        hits.sort_unstable();
        assert!(hits.into_iter().eq((0..4000).filter(|&payload| rects[payload as usize].overlaps(&query))));
    }
    let partitioned = PmrTree::<3, Counted<Traced>>::create(&MemoryStorage::new(), "tree", &options).unwrap();
    let cost = counted(&partitioned, |tree| rects.iter().for_each(|rect| tree.insert(rect, 1).unwrap()));
    assert!(flushes > cost.flushes, "{flushes} and {}", cost.flushes);
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
    [self_validating(options.clone()), options].iter().for_each(damage_each_word);
}

fn damage_each_word(options: &Options) {
    let storage = MemoryStorage::new();
    let tree = PmrTree::<2, Traced>::create(&storage, "tree", options).unwrap();
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
            let Ok(mut tree) = PmrTree::<2, Traced>::open(&damaged, "tree", options) else {
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
