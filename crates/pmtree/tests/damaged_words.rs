//! PM-RTREEs and PeaR-Trees in which something else has changed a few words. They lead to errors or
//! answers, never to a panic or a loop.

use rand::Rng;
use rand::rngs::SmallRng;
use terrane_pmem::interrupting::Interrupting;
use terrane_pmem::{PersistenceDomain, ROOT};
use terrane_pmtree::pear::{self, Budget, PearTree};
use terrane_pmtree::pmr::{self, LeafForm, PmrTree};
use terrane_pmtree::{Error, Rect};
use terrane_testkit::{MemoryStorage, is_soak};

use crate::damage::{bytes, is_damage, with};
use crate::support::{TestedTree, ends, random, rect, with_seeds};

type Pear = PearTree<2, Interrupting>;
type Pmr = PmrTree<2, Interrupting>;

/// Entries of a tree before it is damaged.
const COUNT: u64 = 60;

fn entries(count: u64) -> impl Iterator<Item = (Rect<2>, u64)> {
    let mut random = random(1);
    (0..count).map(move |payload| (rect(&mut random, 30), payload))
}

/// The file of a tree that was closed or killed, and the blocks of the tree with their lengths.
fn file<T: TestedTree<2>>(options: &T::Options, is_closed: bool) -> (Vec<u8>, Vec<(u64, u64)>) {
    let storage = MemoryStorage::new();
    let tree = T::create(&storage, "tree", options).unwrap();
    entries(COUNT).for_each(|(rect, payload)| tree.insert(&rect, payload).unwrap());
    let mut blocks = Vec::new();
    tree.pool().visit_blocks(|block, length| blocks.push((block, length))).unwrap();
    match is_closed {
        true => Box::new(tree).close().unwrap(),
        false => drop(tree),
    }
    (bytes(&storage), blocks)
}

/// Runs every operation, with any result.
fn use_all<T: TestedTree<2>>(what: &str, file: &[u8], options: &T::Options, begins_with_check: bool) -> bool {
    let storage = with(file);
    let used = ends(what, || {
        let mut tree = T::open(&storage, "tree", options)?;
        if begins_with_check {
            tree.check()?;
        }
        let mut is_right = tree.window_in(&everything(), T::MODES[0], &mut |_, _| {}).is_ok();
        is_right &= tree.nearest(&[1.0, 2.0], 10, &|_, _| true).is_ok();
        for (rect, payload) in entries(40) {
            is_right &= tree.delete(&rect, payload).is_ok();
        }
        for (rect, payload) in entries(90).skip(COUNT as usize) {
            is_right &= tree.insert(&rect, payload).is_ok();
        }
        tree.check()?;
        Box::new(tree).close()?;
        Ok::<bool, Error>(is_right)
    });
    used.unwrap_or(false)
}

fn everything() -> Rect<2> {
    Rect::new([-1e300; 2], [1e300; 2]).unwrap()
}

fn word(file: &[u8], at: u64) -> u64 {
    u64::from_le_bytes(file[at as usize..][..8].try_into().unwrap())
}

fn set(file: &mut [u8], at: u64, value: u64) {
    file[at as usize..][..8].copy_from_slice(&value.to_le_bytes());
}

/// Number of the opening that comes after the creation of a tree.
const NEXT_SESSION: u64 = 2;

/// A value for a word of a block: another block, or one that looks like a state or a lock.
fn hostile(random: &mut SmallRng, before: u64, blocks: &[(u64, u64)]) -> u64 {
    let (other, _) = blocks[random.random_range(0..blocks.len())];
    match random.random_range(0..12) {
        0 => 0,
        1 => u64::MAX,
        2 => random.random(),
        3 => other,
        4 => other + 64,
        5 => other | random.random_range(1..8),
        6 => random.random_range(0..70),
        7 => before & 0xffff_ffff | NEXT_SESSION << 32 | 1,
        8 => before | random.random_range(0..32),
        9 => before | 1,
        _ => before ^ 1 << random.random_range(0..64),
    }
}

/// Changes one to three words of the first line or the last word of blocks, or any words.
fn damage(random: &mut SmallRng, file: &mut [u8], blocks: &[(u64, u64)]) -> String {
    let mut what = String::new();
    for _ in 0..random.random_range(1..4) {
        let (block, length) = blocks[random.random_range(0..blocks.len())];
        let place = match random.random_range(0..4) {
            0 => random.random_range(0..length / 8),
            1 => length / 8 - 1,
            _ => random.random_range(0..24.min(length / 8)),
        };
        let at = block + place * 8;
        let value = hostile(random, word(file, at), blocks);
        set(file, at, value);
        what += &format!("word {place} of {block} is {value:#x}; ");
    }
    what
}

/// Damages trees in ways that a seed decides. Gives how many uses met no error.
fn damage_and_use<T: TestedTree<2>>(options: &T::Options, seed: u64, times: usize) -> usize {
    let mut random = random(seed);
    let files = [true, false].map(|is_closed| file::<T>(options, is_closed));
    for (sound, _) in &files {
        assert!(use_all::<T>("a sound tree", sound, options, true), "{options:?}");
    }
    let mut unnoticed = 0;
    for number in 0..times {
        let (sound, blocks) = &files[number % 2];
        let mut damaged = sound.clone();
        let what = damage(&mut random, &mut damaged, blocks);
        let what = format!("seed {seed}, {number}, {what}{options:?}");
        unnoticed += usize::from(use_all::<T>(&what, &damaged, options, number % 4 < 2));
    }
    unnoticed
}

fn times() -> usize {
    if is_soak() { 20_000 } else { 250 }
}

#[test]
fn any_words_of_a_pear_tree_may_be_damaged() {
    with_seeds("any_words_of_a_pear_tree_may_be_damaged", 0..8, |seed| {
        let budgets = [Budget::Nodes(0), Budget::Nodes(5), Budget::Levels(1), Budget::Levels(9)];
        let budget = budgets[seed as usize % 4];
        let options = pear::Options { budget, ..Pear::options(PersistenceDomain::PageCache, 4 + seed as usize / 4) };
        assert!(damage_and_use::<Pear>(&options, seed, times()) < times());
    });
}

#[test]
fn any_words_of_a_pmr_tree_may_be_damaged() {
    with_seeds("any_words_of_a_pmr_tree_may_be_damaged", 0..4, |seed| {
        let leaves = [LeafForm::Bitmap, LeafForm::SelfValidating][seed as usize % 2];
        let fan_out = [4, 60][seed as usize / 2];
        let options = pmr::Options { leaves, ..Pmr::options(PersistenceDomain::PageCache, fan_out) };
        assert!(damage_and_use::<Pmr>(&options, seed, times()) < times());
    });
}

/// Numbers of the words of a node of a PeaR-Tree, and offsets in the tree's block.
const META: u64 = 0;
const BITMAP: u64 = 1;
const NEXT: u64 = 2;
const SEQUENCE: u64 = 3;
const TOP: u64 = 64;
const DYING_PARENT: u64 = 72;
const DYING: u64 = 80;
const HEAD: u64 = 128;

/// A PeaR-Tree in the pool, with leaves of four entries, that was closed.
struct InPool {
    options: pear::Options,
    file: Vec<u8>,
}

impl InPool {
    fn new(count: u64) -> Self {
        let options = crate::pear::options(PersistenceDomain::PageCache, 4, Budget::Nodes(0));
        let storage = MemoryStorage::new();
        let tree = Pear::create(&storage, "tree", &options).unwrap();
        entries(count).for_each(|(rect, payload)| tree.insert(&rect, payload).unwrap());
        tree.close().unwrap();
        Self { options, file: bytes(&storage) }
    }

    fn block(&self) -> u64 {
        word(&self.file, ROOT)
    }

    fn top(&self) -> u64 {
        word(&self.file, self.block() + TOP)
    }

    /// A leaf that is not the first one of the chain.
    fn leaf(&self) -> u64 {
        word(&self.file, word(&self.file, self.block() + HEAD) + NEXT * 8)
    }

    fn last_word(&self) -> u64 {
        let second = word(&self.file, self.leaf() + NEXT * 8);
        let lies = |place: &u64| word(&self.file, self.leaf() + place * 8) == word(&self.file, self.block() + HEAD);
        assert_ne!(second, 0);
        (8..64).rev().find(lies).expect("the leaf names the one before it")
    }

    fn set(mut self, at: u64, value: u64) -> Self {
        set(&mut self.file, at, value);
        self
    }

    fn open(&self) -> Result<Pear, Error> {
        ends("open", || Pear::open(&with(&self.file), "tree", &self.options))
    }

    /// Runs operations until one fails, in the order of `searches_first`. Each must end, and the
    /// failure must be damage.
    fn assert_met(&self, what: &str, changes: bool) {
        let tree = self.open().unwrap_or_else(|error| panic!("{what}: {error}"));
        let outcome = match changes {
            true => entries(COUNT).try_for_each(|(rect, payload)| {
                ends(what, || tree.insert(&rect, 1000))?;
                ends(what, || tree.delete(&rect, payload)).map(drop)
            }),
            false => ends(what, || tree.window(&everything(), |_, _| {}))
                .and_then(|()| ends(what, || tree.nearest(&[1.0, 2.0], 1000, |_, _| true)).map(drop)),
        };
        assert!(outcome.as_ref().is_err_and(is_damage), "{what}: {outcome:?}");
        let check = ends(what, || self.open().unwrap().check());
        assert!(check.as_ref().is_err_and(is_damage), "{what}: {check:?}");
    }
}

/// Readers would wait for ever, and with a dead node writers too.
#[test]
fn an_odd_number_without_a_lock_and_a_dead_node_that_is_linked_are_damage() {
    for (value, is_top) in [1, 7, u64::MAX].into_iter().flat_map(|value| [(value, true), (value, false)]) {
        let tree = InPool::new(COUNT);
        let node = if is_top { tree.top() } else { tree.leaf() };
        let tree = tree.set(node + SEQUENCE * 8, value);
        if is_top {
            assert!(tree.open().is_err_and(|error| is_damage(&error)), "{value}");
            continue;
        }
        tree.assert_met(&format!("number {value}"), false);
        if value == u64::MAX {
            tree.assert_met("a dead node", true);
        }
    }
}

/// Writers would wait for ever. A lock with an odd number would stop readers, too.
#[test]
fn a_lock_that_nobody_holds_is_damage() {
    for is_top in [true, false] {
        let tree = InPool::new(COUNT);
        let node = if is_top { tree.top() } else { tree.leaf() };
        let meta = word(&tree.file, node + META * 8) & 0xffff_ffff | NEXT_SESSION << 32 | 1;
        let tree = tree.set(node + META * 8, meta);
        if is_top {
            assert!(tree.open().is_err_and(|error| is_damage(&error)));
            continue;
        }
        tree.assert_met("a lock", true);
        let tree = tree.set(node + SEQUENCE * 8, 1);
        tree.assert_met("a lock and an odd number", true);
        tree.assert_met("a lock and an odd number", false);
    }
    // The close says that there is none of an earlier session either. Operations would remove it.
    let tree = InPool::new(COUNT);
    let meta = word(&tree.file, tree.leaf() + META * 8) | 1;
    let at = tree.leaf() + META * 8;
    let check = tree.set(at, meta).open().unwrap().check();
    assert!(check.as_ref().is_err_and(is_damage), "{check:?}");
}

/// The arena would be asked for a node that it never had.
#[test]
fn a_word_of_the_pool_that_names_a_node_in_memory_is_damage() {
    let tree = InPool::new(COUNT);
    let (leaf, top, last) = (tree.leaf(), tree.top(), tree.last_word());
    let first_child = 8 + 4 * 2 + u64::from(word(&tree.file, top + BITMAP * 8).trailing_zeros());
    let places = [("next", leaf + NEXT * 8), ("child", top + first_child * 8)];
    for (what, at) in places {
        for value in [3, (1 << 40) + 1, word(&tree.file, at) + 1, word(&tree.file, at) + 64, 64] {
            let tree = InPool::new(COUNT).set(at, value);
            tree.assert_met(&format!("{what} is {value}"), true);
        }
    }
    // Only leaves that leave the chain use these words, which need not be right otherwise.
    for value in [3, (1 << 40) + 1, 64] {
        let mut tree = InPool::new(COUNT);
        let mut leaf = leaf;
        while leaf != 0 {
            set(&mut tree.file, leaf + last * 8, value);
            leaf = word(&tree.file, leaf + NEXT * 8);
        }
        let tree = tree.open().unwrap();
        let delete = |(rect, payload): (Rect<2>, u64)| ends("delete", || tree.delete(&rect, payload)).map(drop);
        let deleted = entries(COUNT).try_for_each(delete);
        assert!(deleted.as_ref().is_err_and(is_damage), "previous is {value}: {deleted:?}");
    }
    for (dying_parent, dying) in [(3, leaf), (leaf, 3), (0, 3), (leaf + 64, leaf), (0, leaf + 1)] {
        let tree = InPool::new(COUNT);
        let block = tree.block();
        let tree = tree.set(block + DYING_PARENT, dying_parent).set(block + DYING, dying);
        let before = tree.file.clone();
        let storage = with(&tree.file);
        let opened = ends("open", || Pear::open(&storage, "tree", &tree.options));
        assert!(opened.as_ref().is_err_and(is_damage), "{dying_parent} and {dying}: {opened:?}");
        assert!(bytes(&storage) == before, "the file was changed");
    }
}

/// The paths to the leaves are too many to follow.
#[test]
fn searches_of_a_pear_tree_end_where_each_node_is_linked_many_times() {
    let mut tree = InPool::new(2000);
    let everything = u64::from((-1e30_f32).to_bits()) | u64::from(1e30_f32.to_bits()) << 32;
    // All children of each inner node become its first one.
    let mut node = tree.top();
    let height = word(&tree.file, node) >> 8 & 0x3f;
    assert!(height > 4, "{height}");
    for _ in 0..height {
        let child = node + (8 + 4 * 2) * 8;
        let first = word(&tree.file, child + 8 * u64::from(word(&tree.file, node + BITMAP * 8).trailing_zeros()));
        let words =
            (0..4).flat_map(|slot| [(8 + 2 * slot, everything), (9 + 2 * slot, everything), (16 + slot, first)]);
        for (number, value) in words.chain([(BITMAP, 15)]) {
            set(&mut tree.file, node + number * 8, value);
        }
        node = first;
    }
    // With 4 to the power of the height, these are more than there are blocks.
    let tree = tree.open().unwrap();
    let met = ends("window", || tree.window(&self::everything(), |_, _| {}));
    assert!(met.as_ref().is_err_and(is_damage), "{met:?}");
    let met = ends("nearest", || tree.nearest(&[1.0, 2.0], usize::MAX, |_, _| true));
    assert!(met.as_ref().is_err_and(is_damage), "{met:?}");
    let met = ends("delete", || tree.delete(&Rect::point([1e7, 1e7]).unwrap(), 1 << 40));
    assert!(met.as_ref().is_err_and(is_damage), "{met:?}");
}
