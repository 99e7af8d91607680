//! The PeaR-Tree: against a list, costs, and budgets that change.

use rand::Rng;
use terrane_pmem::{Backend, Counted, PersistenceDomain, Traced};
use terrane_pmtree::pear::{Budget, Options, PearTree, Persisting};
use terrane_pmtree::{Census, Rect};
use terrane_testkit::MemoryStorage;

use crate::support::{Model, random, rect};

/// Options of small chunks.
pub fn options(domain: PersistenceDomain, fan_out: usize, budget: Budget) -> Options {
    let mut options = Options { fan_out, inner_fan_out: fan_out, budget, ..Options::new(domain) };
    options.pool.chunk_length = 1 << 17;
    options.pool.address_space = 1 << 28;
    options
}

pub fn window<const D: usize, B: Backend>(tree: &PearTree<D, B>, window: &Rect<D>) -> Vec<u64> {
    let mut hits = Vec::new();
    tree.window(window, |_, payload| hits.push(payload)).unwrap();
    hits.sort_unstable();
    hits
}

const BUDGETS: [Budget; 8] = [
    Budget::Nodes(0),
    Budget::Nodes(1),
    Budget::Nodes(2),
    Budget::Nodes(7),
    Budget::Nodes(1000),
    Budget::Levels(1),
    Budget::Levels(2),
    Budget::Levels(9),
];

/// Grows and shrinks a tree beside a list, reopens it, and changes its budget.
fn compare<const D: usize>(seed: u64, options: &Options, operations: usize) {
    let what = format!("seed {seed}, {D} dimensions, {options:?}");
    let (storage, mut random) = (MemoryStorage::new(), random(seed));
    let mut tree = PearTree::<D, Traced>::create(&storage, "tree", options).unwrap();
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
            let census = tree.check().unwrap_or_else(|error| panic!("{what}: operation {operation}: {error}"));
            assert_eq!((census.entries, census.underfull), (model.0.len() as u64, 0), "{what}: {census:?}");
        }
        if let (Budget::Nodes(most), Persisting::InPlace) = (tree.budget(), options.persisting) {
            assert!(tree.volatile_nodes() <= most, "{what}: {} of {most}", tree.volatile_nodes());
        }
        if operation % 50 == 30 {
            tree.set_budget(BUDGETS[random.random_range(0..BUDGETS.len())]).unwrap();
        }
        if operation % 300 == 250 {
            tree.close().unwrap();
            tree = PearTree::open(&storage, "tree", options).unwrap();
        }
    }
    for (rect, payload) in model.0 {
        assert!(tree.delete(&rect, payload).unwrap(), "{what}");
    }
    let census = tree.check().unwrap();
    assert_eq!(census, Census { leaves: 1, ..Census::default() }, "{what}");
}

#[test]
fn a_tree_holds_what_a_list_holds() {
    let domain = PersistenceDomain::PageCache;
    for (seed, fan_out) in [(1, 4), (2, 5), (3, 12), (4, 64)] {
        compare::<2>(seed, &options(domain, fan_out, BUDGETS[seed as usize]), 2000);
    }
    compare::<3>(5, &options(domain, 6, Budget::Levels(2)), 2000);
    compare::<4>(6, &Options { recovers_by_parents: false, ..options(domain, 6, Budget::Nodes(5)) }, 1000);
    compare::<2>(7, &Options { persisting: Persisting::Background, ..options(domain, 4, Budget::Nodes(3)) }, 1000);
}

#[test]
fn an_insertion_takes_two_flushes_and_two_fences_a_deletion_one_of_each_and_a_search_none() {
    let options = options(PersistenceDomain::Adr, 38, Budget::Nodes(0));
    let tree = PearTree::<2, Counted<Traced>>::create(&MemoryStorage::new(), "tree", &options).unwrap();
    let counters = |run: &dyn Fn()| {
        tree.pool().backend().take();
        run();
        tree.pool().backend().take()
    };
    let rects: Vec<Rect<2>> = (0..30).map(|number| Rect::point([f64::from(number); 2]).unwrap()).collect();
    for rect in &rects {
        let insertion = counters(&|| tree.insert(rect, 1).unwrap());
        // An entry's box and its payload lie in two lines.
        assert_eq!((insertion.lines_flushed, insertion.fences), (3, 2));
    }
    let deletion = counters(&|| assert!(tree.delete(&rects[7], 1).unwrap()));
    assert_eq!((deletion.lines_flushed, deletion.fences), (1, 1));
    let search = counters(&|| assert_eq!(window(&tree, &rects[8]), [1]));
    assert_eq!((search.flushes, search.fences, search.stores), (0, 0, 0));
}
