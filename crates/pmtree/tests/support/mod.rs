//! Common parts of the tests: small trees in memory, random boxes, and a list as the model of a
//! tree.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::fmt::Debug;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;
use terrane_pmem::interrupting::{At, interrupt};
use terrane_pmem::{Backend, PersistenceDomain, probe};
use terrane_pmtree::fbr::{FbrTree, LeafForm, Options, Rebalancing, SearchMode};
use terrane_pmtree::logged::{self, LoggedTree};
use terrane_pmtree::pear::{self, PearTree};
use terrane_pmtree::pmr::{self, PmrTree};
use terrane_pmtree::{Census, NearestSearch, PersistentRTree, PersistentTree, Rect, Result, Split};
use terrane_testkit::{MemoryStorage, pool_directory};

/// A directory that is removed at the end, on a file system that keeps pools in the page cache.
pub fn directory() -> TempDir {
    pool_directory(|file| probe::page_cache(file).is_ok())
}

pub const BOTH: [Rebalancing; 2] = [Rebalancing::InPlace, Rebalancing::CopyOnWrite];

pub const FORMS: [LeafForm; 2] = [LeafForm::Bitmap, LeafForm::SelfValidating];

/// Small nodes first, then ones with bitmaps of two words. Copies treat leaves of both forms alike,
/// so large ones of one form are enough.
pub fn configurations(domain: PersistenceDomain) -> impl Iterator<Item = Options> {
    let shapes = [4, 60].into_iter().flat_map(|fan_out| FORMS.map(|leaves| (fan_out, leaves)));
    let all = shapes.flat_map(move |(fan_out, leaves)| {
        BOTH.map(|rebalancing| Options { leaves, ..options(domain, fan_out, rebalancing) })
    });
    all.filter(|options| {
        let Options { fan_out, leaves, rebalancing, .. } = options;
        (*fan_out, *leaves, *rebalancing) != (60, LeafForm::SelfValidating, Rebalancing::CopyOnWrite)
    })
}

/// Options of small chunks, so that tests grow pools and stay fast.
pub fn options(domain: PersistenceDomain, fan_out: usize, rebalancing: Rebalancing) -> Options {
    // Each of the splits with one of them.
    let split = if rebalancing == Rebalancing::InPlace { Split::RStar } else { Split::Quadratic };
    let mut options = Options { fan_out, rebalancing, split, ..Options::new(domain) };
    in_small_chunks(&mut options.pool);
    options
}

fn in_small_chunks(pool: &mut terrane_pmem::Options) {
    pool.chunk_length = 1 << 16;
    pool.address_space = 1 << 28;
}

/// The census of an empty tree: its root is a leaf.
pub const ONE_LEAF: Census = Census { entries: 0, leaves: 1, inner_nodes: 0, height: 0, underfull: 0 };

/// A tree with a common interface for tests.
pub trait TestedTree<const D: usize>:
    Sized + NearestSearch<D> + PersistentTree<Options: Clone + Debug + Sync, Census = Census>
{
    /// Its search modes.
    const MODES: &'static [SearchMode];

    /// Options of small chunks, otherwise the defaults.
    fn options(domain: PersistenceDomain, fan_out: usize) -> Self::Options;

    /// The options of the pool.
    fn pool_of(options: &mut Self::Options) -> &mut terrane_pmem::Options;

    /// Searches in one of its modes.
    fn window_in(&self, window: &Rect<D>, mode: SearchMode, visit: &mut dyn FnMut(&Rect<D>, u64)) -> Result<()>;
}

impl<const D: usize, B: Backend> TestedTree<D> for FbrTree<D, B> {
    const MODES: &'static [SearchMode] = &[SearchMode::Validated, SearchMode::ReadUncommitted, SearchMode::SharedLock];

    fn options(domain: PersistenceDomain, fan_out: usize) -> Options {
        options(domain, fan_out, Rebalancing::default())
    }

    fn pool_of(options: &mut Options) -> &mut terrane_pmem::Options {
        &mut options.pool
    }

    fn window_in(&self, window: &Rect<D>, mode: SearchMode, visit: &mut dyn FnMut(&Rect<D>, u64)) -> Result<()> {
        self.window(window, mode, visit)
    }
}

impl<const D: usize, B: Backend> TestedTree<D> for LoggedTree<D, B> {
    const MODES: &'static [SearchMode] = &[SearchMode::Validated];

    fn options(domain: PersistenceDomain, fan_out: usize) -> logged::Options {
        let mut options = logged::Options { fan_out, ..logged::Options::new(domain) };
        in_small_chunks(&mut options.pool);
        options
    }

    fn pool_of(options: &mut logged::Options) -> &mut terrane_pmem::Options {
        &mut options.pool
    }

    fn window_in(&self, window: &Rect<D>, _: SearchMode, visit: &mut dyn FnMut(&Rect<D>, u64)) -> Result<()> {
        PersistentRTree::window(self, window, visit)
    }
}

impl<const D: usize, B: Backend> TestedTree<D> for PmrTree<D, B> {
    const MODES: &'static [SearchMode] = &[SearchMode::Validated];

    fn options(domain: PersistenceDomain, fan_out: usize) -> pmr::Options {
        let mut options = pmr::Options { fan_out, inner_fan_out: 4, ..pmr::Options::new(domain) };
        in_small_chunks(&mut options.pool);
        options
    }

    fn pool_of(options: &mut pmr::Options) -> &mut terrane_pmem::Options {
        &mut options.pool
    }

    fn window_in(&self, window: &Rect<D>, _: SearchMode, visit: &mut dyn FnMut(&Rect<D>, u64)) -> Result<()> {
        PersistentRTree::window(self, window, visit)
    }
}

/// Some of its nodes lie in memory.
impl<const D: usize, B: Backend> TestedTree<D> for PearTree<D, B> {
    const MODES: &'static [SearchMode] = &[SearchMode::Validated];

    fn options(domain: PersistenceDomain, fan_out: usize) -> pear::Options {
        let budget = pear::Budget::Nodes(8);
        let mut options = pear::Options { fan_out, inner_fan_out: 4, budget, ..pear::Options::new(domain) };
        in_small_chunks(&mut options.pool);
        options
    }

    fn pool_of(options: &mut pear::Options) -> &mut terrane_pmem::Options {
        &mut options.pool
    }

    fn window_in(&self, window: &Rect<D>, _: SearchMode, visit: &mut dyn FnMut(&Rect<D>, u64)) -> Result<()> {
        PersistentRTree::window(self, window, visit)
    }
}

/// After this many loads, an operation on a small tree is considered endless.
const LOADS_MAX: usize = 1_000_000;

/// Runs an operation on trees whose back-end is `Interrupting`, and panics if it does not end.
pub fn ends<R>(what: &str, run: impl FnOnce() -> R) -> R {
    let what = what.to_owned();
    interrupt(At::Load, LOADS_MAX, move || panic!("{what} goes on"), run).0
}

/// Runs a test with these seeds, or with the one of `TERRANE_TEST_SEED`. Says how to replay a
/// failure of the test of this name.
pub fn with_seeds(test: &str, seeds: Range<u64>, run: impl Fn(u64)) {
    const SEED: &str = "TERRANE_TEST_SEED";
    let given = std::env::var(SEED).ok().and_then(|seed| seed.parse::<u64>().ok());
    for seed in given.map_or(seeds, |seed| seed..seed + 1) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed))) {
            eprintln!("replay with {SEED}={seed} cargo test -p terrane-pmtree {test}");
            resume_unwind(panic);
        }
    }
}

pub fn random(seed: u64) -> SmallRng {
    SmallRng::seed_from_u64(seed)
}

/// A box with corners on a grid, so that borders meet often.
pub fn rect<const D: usize>(random: &mut SmallRng, grid: u32) -> Rect<D> {
    let min: [f64; D] = std::array::from_fn(|_| f64::from(random.random_range(0..grid)));
    let max = std::array::from_fn(|axis| min[axis] + f64::from(random.random_range(0..3u32)));
    Rect::new(min, max).unwrap()
}

/// Entries in no order.
#[derive(Clone, Debug, Default)]
pub struct Model<const D: usize>(pub Vec<(Rect<D>, u64)>);

impl<const D: usize> Model<D> {
    pub fn delete(&mut self, rect: &Rect<D>, payload: u64) -> bool {
        let place = self.0.iter().position(|entry| *entry == (*rect, payload));
        place.map(|place| self.0.swap_remove(place)).is_some()
    }

    pub fn window(&self, window: &Rect<D>) -> Vec<u64> {
        let mut hits: Vec<u64> =
            self.0.iter().filter(|(rect, _)| rect.overlaps(window)).map(|&(_, payload)| payload).collect();
        hits.sort_unstable();
        hits
    }

    pub fn distances(&self, point: &[f64; D], count: usize) -> Vec<f64> {
        let mut distances: Vec<f64> = self.0.iter().map(|(rect, _)| rect.distance_squared(point)).collect();
        distances.sort_unstable_by(f64::total_cmp);
        distances.truncate(count);
        distances
    }
}

pub fn window<const D: usize, T: TestedTree<D>>(tree: &T, window: &Rect<D>, mode: SearchMode) -> Vec<u64> {
    let mut hits = Vec::new();
    tree.window_in(window, mode, &mut |_, payload| hits.push(payload)).unwrap();
    hits.sort_unstable();
    hits
}

/// Grows and shrinks a tree beside a list, with checks of everything in between, and reopens it.
/// Gives the census of the emptied tree.
pub fn grow_and_shrink<const D: usize, T: TestedTree<D>>(seed: u64, options: &T::Options, operations: usize) -> Census {
    grow_and_shrink_with::<D, T>(seed, options, operations, |_, _, _| {})
}

/// As [`grow_and_shrink`], and calls `between` after each operation with its number.
pub fn grow_and_shrink_with<const D: usize, T: TestedTree<D>>(
    seed: u64,
    options: &T::Options,
    operations: usize,
    mut between: impl FnMut(&T, usize, &mut SmallRng),
) -> Census {
    let what = format!("seed {seed}, {D} dimensions, {options:?}");
    let storage = MemoryStorage::new();
    let mut random = random(seed);
    let mut tree = T::create(&storage, "tree", options).unwrap();
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
            for &mode in T::MODES {
                assert_eq!(window(&tree, &query, mode), model.window(&query), "{what}, {mode:?}");
            }
            let nearest = tree.nearest(query.min(), 7, &|_, _| true).unwrap();
            let distances: Vec<f64> = nearest.iter().map(|&(distance, ..)| distance).collect();
            assert_eq!(distances, model.distances(query.min(), 7), "{what}");
            // Few pass, so that the search has to continue behind the closest.
            let passes = |rect: &Rect<D>, payload: u64| payload % 5 == 1 && rect.min()[0] > query.min()[0];
            let nearest = tree.nearest(query.min(), 7, &passes).unwrap();
            assert!(nearest.iter().all(|(_, rect, payload)| passes(rect, *payload)), "{what}");
            let distances: Vec<f64> = nearest.iter().map(|&(distance, ..)| distance).collect();
            let mut passing = model.clone();
            passing.0.retain(|(rect, payload)| passes(rect, *payload));
            assert_eq!(distances, passing.distances(query.min(), 7), "{what}");
        }
        if operation % 64 == 0 {
            let census = tree.check().unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(census.entries, model.0.len() as u64, "{what}");
            assert_eq!(census.underfull, 0, "{what}: {census:?}");
        }
        between(&tree, operation, &mut random);
        if operation % 500 == 250 {
            Box::new(tree).close().unwrap();
            tree = T::open(&storage, "tree", options).unwrap();
        }
    }
    for (rect, payload) in model.0 {
        assert!(tree.delete(&rect, payload).unwrap(), "{what}");
    }
    tree.check().unwrap_or_else(|error| panic!("{what}: {error}"))
}
