//! The PM-RTREE: against a list, costs, recovery, and the holes of the paper.

use rand::Rng;
use terrane_pmem::{Backend, Counted, Counters, PersistenceDomain, Traced};
use terrane_pmtree::pmr::{Options, PmrTree, Publication};
use terrane_pmtree::{Census, Rect};
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
