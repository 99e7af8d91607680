//! The PeaR-Tree: against a list, costs, and budgets that change.

use rand::Rng;
use rand::rngs::SmallRng;
use terrane_pmem::interrupting::Interrupting;
use terrane_pmem::{Backend, Counted, PersistenceDomain, ROOT, Traced};
use terrane_pmtree::pear::{Budget, Options, PearTree, Persisting};
use terrane_pmtree::{Error, Rect};
use terrane_testkit::MemoryStorage;

use crate::support::{ONE_LEAF, ends, grow_and_shrink_with};

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

const BUDGETS: [Budget; 9] = [
    Budget::Nodes(0),
    Budget::Nodes(1),
    Budget::Nodes(2),
    Budget::Nodes(7),
    Budget::Nodes(1000),
    Budget::Levels(0),
    Budget::Levels(1),
    Budget::Levels(2),
    Budget::Levels(9),
];

/// Grows and shrinks a tree beside a list, reopens it, and changes its budget.
fn compare<const D: usize>(seed: u64, options: &Options, operations: usize) {
    let what = format!("seed {seed}, {D} dimensions, {options:?}");
    let between = |tree: &PearTree<D, Traced>, operation: usize, random: &mut SmallRng| {
        if let (Budget::Nodes(most), Persisting::InPlace) = (tree.budget(), options.persisting) {
            assert!(tree.volatile_nodes() <= most, "{what}: {} of {most}", tree.volatile_nodes());
        }
        if operation % 50 == 30 {
            tree.set_budget(BUDGETS[random.random_range(0..BUDGETS.len())]).unwrap();
        }
    };
    assert_eq!(grow_and_shrink_with::<D, PearTree<D, Traced>>(seed, options, operations, between), ONE_LEAF, "{what}");
}

#[test]
fn a_tree_holds_what_a_list_holds() {
    let domain = PersistenceDomain::PageCache;
    for (seed, fan_out) in [(1, 4), (2, 5), (3, 12), (4, 64)] {
        compare::<2>(seed, &options(domain, fan_out, BUDGETS[seed as usize]), 2000);
    }
    compare::<3>(5, &options(domain, 6, Budget::Levels(2)), 2000);
    compare::<4>(6, &Options { recovers_by_parents: false, ..options(domain, 6, Budget::Nodes(5)) }, 1000);
    for (seed, budget) in [(7, Budget::Nodes(3)), (8, Budget::Levels(0)), (9, Budget::Levels(2))] {
        compare::<2>(seed, &Options { persisting: Persisting::Background, ..options(domain, 4, budget) }, 1000);
    }
}

/// The new root lies in memory, since its children do. It moves when the program says so.
#[test]
fn an_insertion_that_splits_a_root_in_memory_ends_although_no_level_may_lie_there() {
    for persisting in [Persisting::InPlace, Persisting::Background] {
        let options = Options { persisting, ..options(PersistenceDomain::Adr, 4, Budget::Levels(9)) };
        let mut tree = PearTree::<2, Interrupting>::create(&MemoryStorage::new(), "tree", &options).unwrap();
        let insert = |tree: &PearTree<2, Interrupting>, numbers: std::ops::Range<u32>| {
            let rects = numbers.map(|number| Rect::point([f64::from(number), 0.0]).unwrap());
            rects.into_iter().for_each(|rect| ends("insert", || tree.insert(&rect, 0).unwrap()));
        };
        insert(&tree, 0..8);
        tree.set_budget(Budget::Levels(0)).unwrap();
        let in_background = persisting == Persisting::Background;
        assert_eq!(tree.volatile_nodes() > 0, in_background);
        insert(&tree, 8..100);
        assert_eq!(tree.volatile_nodes() > 1, in_background);
        tree.adapt_step(usize::MAX).unwrap();
        assert_eq!((tree.volatile_nodes(), tree.check().unwrap().entries), (0, 100));
    }
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

#[test]
fn moves_in_the_background_end_when_the_budget_is_used() {
    let options =
        Options { persisting: Persisting::Background, ..options(PersistenceDomain::Adr, 4, Budget::Nodes(5)) };
    let mut tree = PearTree::<2, Traced>::create(&MemoryStorage::new(), "tree", &options).unwrap();
    (0..200).for_each(|number| tree.insert(&Rect::point([f64::from(number), 0.0]).unwrap(), 0).unwrap());
    assert!(tree.volatile_nodes() > 5);
    for budget in [5, 9, 0, 3] {
        tree.set_budget(Budget::Nodes(budget)).unwrap();
        assert!(tree.adapt_step(1000).unwrap() < 1000);
        assert_eq!((tree.volatile_nodes(), tree.adapt_step(1).unwrap()), (budget, 0));
    }
    assert_eq!(tree.check().unwrap().entries, 200);
}

/// Recovery reads leaves by their places, and not as the chain leads.
#[test]
fn a_chain_of_leaves_that_is_a_circle_or_leads_elsewhere_is_refused() {
    /// Offsets of words: the first leaf's offset, in the tree's block, and the next leaf's, in a
    /// leaf.
    const HEAD: u64 = 128;
    const NEXT: u64 = 16;
    let options = options(PersistenceDomain::PageCache, 4, Budget::Levels(9));
    let open_after = |damage: fn(&Traced, u64, u64)| {
        let storage = MemoryStorage::new();
        let tree = PearTree::<2, Traced>::create(&storage, "tree", &options).unwrap();
        (0..40).for_each(|number| tree.insert(&Rect::point([f64::from(number), 0.0]).unwrap(), 0).unwrap());
        let backend = tree.pool().backend();
        let block = backend.load(ROOT);
        damage(backend, block, backend.load(block + HEAD));
        drop(tree);
        PearTree::<2, Traced>::open(&storage, "tree", &options).map(|mut tree| tree.check().unwrap().entries)
    };
    assert_eq!(open_after(|_, _, _| ()).unwrap(), 40);
    let damages: [fn(&Traced, u64, u64); 4] = [
        |backend, _, first| backend.store(backend.load(first + NEXT) + NEXT, first),
        |backend, _, first| backend.store(first + NEXT, first + 8),
        |backend, block, first| backend.store(first + NEXT, block),
        |backend, block, _| backend.store(block + HEAD, u64::MAX - 255),
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let refused = open_after(damage);
        assert!(matches!(refused, Err(Error::Damaged { .. })), "damage {number}: {refused:?}");
    }
}

/// A damaged leaf has a bit for a slot beyond its capacity. The check reports it.
#[test]
fn slots_beyond_the_capacity_of_a_node_are_not_read() {
    /// Offsets of words: the root's offset, in the tree's block, and the bitmap, in a leaf.
    const TOP: u64 = 64;
    const BITMAP: u64 = 8;
    let options = options(PersistenceDomain::PageCache, 4, Budget::Nodes(0));
    let mut tree = PearTree::<2, Traced>::create(&MemoryStorage::new(), "tree", &options).unwrap();
    let rect = Rect::point([1.0, 2.0]).unwrap();
    tree.insert(&rect, 7).unwrap();
    let backend = tree.pool().backend();
    let leaf = backend.load(backend.load(ROOT) + TOP);
    backend.store(leaf + BITMAP, backend.load(leaf + BITMAP) | 1 << 63);
    assert_eq!(window(&tree, &rect), [7]);
    assert!(tree.contains(&rect, 7).unwrap() && !tree.contains(&rect, 8).unwrap());
    let refused = tree.check();
    assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
}
