//! B+-trees and maps in which something else has changed a few words. They lead to errors or
//! answers, never to a panic, an endless wait, or a log that is read up to the damage only.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use rand::Rng;
use rand::rngs::SmallRng;
use terrane_pmem::interrupting::Interrupting;
use terrane_pmem::{PersistenceDomain, ROOT};
use terrane_pmtree::btree::{
    BTree, BTreeLs, BTreeWal, Census, FastFair, FastFairSp, Options, PersistentMap, PersistentUnsorted, VolatileBTree,
};
use terrane_pmtree::map::{self, Map};
use terrane_pmtree::{Error, PersistentTree};
use terrane_testkit::{MemoryStorage, is_soak};

use crate::damage::{bytes, is_damage, with};
use crate::support::{ends, random};

pub type Of<M> = BTree<M, 1, 1, Interrupting>;

/// Entries of a tree before it is damaged.
pub const COUNT: u64 = 120;

const LINE: u64 = 64;
/// Bytes of a node.
pub const NODE: u64 = 128;
/// Offset of the log in the tree's block.
const LOG: u64 = 128;

pub fn options() -> Options {
    let mut options = Options { node_length: NODE, recovery_threads: 1, ..Options::new(PersistenceDomain::PageCache) };
    options.pool.chunk_length = 1 << 15;
    options.pool.address_space = 1 << 26;
    options.logs.count = 2;
    options.logs.segment_length = 1024;
    options
}

pub fn word(file: &[u8], at: u64) -> u64 {
    u64::from_le_bytes(file[at as usize..][..8].try_into().unwrap())
}

pub fn set(file: &mut [u8], at: u64, value: u64) {
    file[at as usize..][..8].copy_from_slice(&value.to_le_bytes());
}

pub fn flipped(file: &[u8], at: u64, bit: u32) -> Vec<u8> {
    let mut file = file.to_vec();
    let value = word(&file, at) ^ 1 << bit;
    set(&mut file, at, value);
    file
}

/// The file of a tree that was closed or killed, its blocks with their lengths, and its entries.
pub struct File {
    pub bytes: Vec<u8>,
    pub blocks: Vec<(u64, u64)>,
    pub model: BTreeMap<u64, u64>,
}

pub fn file<T>(is_closed: bool) -> File
where
    T: PersistentMap<1, 1> + PersistentTree<Options = Options>,
{
    let storage = MemoryStorage::new();
    let tree = T::create(&storage, "tree", &options()).unwrap();
    let (mut random, mut model) = (random(1), BTreeMap::new());
    for number in 0..COUNT * 2 {
        let key = random.random_range(0..COUNT);
        tree.upsert(&[key], &[number]).unwrap();
        model.insert(key, number);
        if number % 4 == 0 {
            tree.remove(&[number / 2]).unwrap();
            model.remove(&(number / 2));
        }
    }
    let mut blocks = Vec::new();
    tree.pool().visit_blocks(|block, length| blocks.push((block, length))).unwrap();
    match is_closed {
        true => Box::new(tree).close().unwrap(),
        false => drop(tree),
    }
    File { bytes: bytes(&storage), blocks, model }
}

/// The entries of a tree.
pub fn scan<T: PersistentMap<1, 1>>(tree: &T) -> Result<BTreeMap<u64, u64>, Error> {
    let mut entries = BTreeMap::new();
    tree.range((Bound::Unbounded, Bound::Unbounded), &mut |key, value| {
        entries.insert(key[0], value[0]);
        ControlFlow::Continue(())
    })?;
    Ok(entries)
}

/// Runs every operation, with any result. Gives whether none met an error.
fn use_all<T>(what: &str, file: &[u8]) -> bool
where
    T: PersistentMap<1, 1> + PersistentTree<Options = Options, Census = Census>,
{
    let storage = with(file);
    let used = ends(what, || {
        let mut tree = T::open(&storage, "tree", &options())?;
        let mut is_right = scan(&tree).is_ok();
        for key in 0..COUNT {
            is_right &= tree.get(&[key]).is_ok();
            is_right &= tree.upsert(&[COUNT + key], &[1]).is_ok();
        }
        for key in 0..COUNT * 2 {
            is_right &= tree.remove(&[key * 7 % (COUNT * 2)]).is_ok();
        }
        tree.check()?;
        Box::new(tree).close()?;
        Ok::<bool, Error>(is_right)
    });
    used.unwrap_or(false)
}

/// A value for a word: another block, or a bit more or less.
fn hostile(random: &mut SmallRng, before: u64, blocks: &[(u64, u64)]) -> u64 {
    let (other, length) = blocks[random.random_range(0..blocks.len())];
    match random.random_range(0..10) {
        0 => 0,
        1 => u64::MAX,
        2 => other,
        3 => other + length / 2,
        4 => other | random.random_range(1..8),
        5 => before & !0xff | random.random_range(0..4),
        _ => before ^ 1 << random.random_range(0..64),
    }
}

/// Damages one word at a time. Everything of each block, if all tests run; otherwise a sample.
fn damage_and_use<T>(seed: u64)
where
    T: PersistentMap<1, 1> + PersistentTree<Options = Options, Census = Census>,
{
    let mut random = random(seed);
    let mut unnoticed = 0;
    let (mut used, times) = (0, if is_soak() { 8 } else { 1 });
    for is_closed in [true, false] {
        let File { bytes: sound, blocks, .. } = file::<T>(is_closed);
        // A tree that is not durable opens only after a close.
        if is_closed || T::open(&with(&sound), "tree", &options()).is_ok() {
            assert!(use_all::<T>("a sound tree", &sound));
        }
        for at in blocks.iter().flat_map(|(block, length)| (*block..block + length).step_by(8)) {
            if !is_soak() && random.random_range(0..16) != 0 {
                continue;
            }
            for _ in 0..times {
                let mut damaged = sound.clone();
                let value = hostile(&mut random, word(&sound, at), &blocks);
                set(&mut damaged, at, value);
                let what = format!("{}, {at} is {value:#x}, closed: {is_closed}", std::any::type_name::<T>());
                used += 1;
                unnoticed += usize::from(use_all::<T>(&what, &damaged));
            }
        }
    }
    assert!(unnoticed < used && used > 100, "{unnoticed} of {used}");
}

#[test]
fn any_words_of_a_tree_of_each_method_may_be_damaged() {
    damage_and_use::<Of<PersistentUnsorted>>(1);
    damage_and_use::<Of<BTreeWal>>(2);
    damage_and_use::<Of<FastFair>>(3);
    damage_and_use::<Of<FastFairSp>>(4);
    damage_and_use::<Of<VolatileBTree>>(5);
    damage_and_use::<Of<BTreeLs>>(6);
}

/// Each bit of each child's offset. A table of versions for any offset would need all memory.
#[test]
fn look_ups_below_a_damaged_link_give_an_error_or_an_answer() {
    type Tree = Of<PersistentUnsorted>;
    let File { bytes: sound, model, .. } = file::<Tree>(true);
    let root = word(&sound, word(&sound, ROOT) + LINE);
    let (level, children) = (word(&sound, root) & 0xff, word(&sound, root) >> 32);
    assert!(level > 1 && children > 1, "{level}, {children}");
    let mut refused = 0;
    for (child, bit) in (0..children).flat_map(|child| (0..64).map(move |bit| (child, bit))) {
        let storage = with(&flipped(&sound, root + 16 + child * 16 + 8, bit));
        let Ok(mut tree) = Tree::open(&storage, "tree", &options()) else { continue };
        for key in model.keys() {
            let found = tree.get(&[*key]);
            assert!(found.as_ref().err().is_none_or(is_damage), "{found:?}");
            refused += usize::from(found.is_err());
        }
        assert!(tree.count(..).err().as_ref().is_none_or(is_damage));
        assert!(is_damage(&tree.check().unwrap_err()));
    }
    assert!(refused > 0);
}

/// Two places of a parent that lead to one leaf. Its lock would be waited for with the lock held.
#[test]
fn a_leaf_that_is_linked_twice_does_not_let_a_removal_wait_for_itself() {
    type Tree = Of<PersistentUnsorted>;
    let File { bytes: sound, model, .. } = file::<Tree>(true);
    let mut node = word(&sound, word(&sound, ROOT) + LINE);
    while word(&sound, node) & 0xff > 1 {
        node = word(&sound, node + 24);
    }
    let mut damaged = sound.clone();
    set(&mut damaged, node + 16 + 16 + 8, word(&sound, node + 24));
    let storage = with(&damaged);
    let tree = Tree::open(&storage, "tree", &options()).unwrap();
    let outcomes: Vec<_> = model.keys().map(|key| ends("remove", || tree.remove(&[*key]))).collect();
    assert!(outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).all(is_damage));
    assert!(outcomes.iter().any(Result::is_err), "nothing was noticed");
}

/// The leaves or the inner nodes of a tree, whose root word leads to the root or the first leaf.
pub fn nodes(File { bytes, .. }: &File, is_leaf: bool) -> Vec<u64> {
    let root = word(bytes, word(bytes, ROOT) + LINE);
    let (mut found, mut waiting) = (Vec::new(), vec![root]);
    while let Some(node) = waiting.pop() {
        let (level, children) = (word(bytes, node) & 0xff, word(bytes, node) >> 32);
        if (level == 0) == is_leaf {
            found.push(node);
        }
        match level {
            0 if word(bytes, root) & 0xff == 0 => waiting.extend(Some(word(bytes, node + 8)).filter(|next| *next != 0)),
            0 => {}
            _ => waiting.extend((0..children).map(|child| word(bytes, node + 24 + child * 16))),
        }
    }
    found
}

/// The offset of an entry of the log.
fn log_entry(File { bytes, blocks, .. }: &File, index: u64) -> u64 {
    let block = word(bytes, ROOT);
    let length = blocks.iter().find(|(offset, _)| *offset == block).unwrap().1;
    block + LOG + (length - LOG) / 16 * index
}

/// A closing leaves no change to undo, so nothing is freed that a damaged word of the log names.
#[test]
fn a_closed_tree_with_an_entry_of_the_log_in_use_is_refused() {
    fn check<T>()
    where
        T: PersistentMap<1, 1> + PersistentTree<Options = Options, Census = Census>,
    {
        let file = file::<T>(true);
        let node = nodes(&file, true)[0];
        for (index, number) in (0..16).flat_map(|index| [1, 2].map(|number| (index, number))) {
            let mut damaged = file.bytes.clone();
            set(&mut damaged, log_entry(&file, index) + number * 8, node);
            let storage = with(&damaged);
            let error = T::open(&storage, "tree", &options()).expect_err("it was not noticed");
            assert!(is_damage(&error), "{error}");
            assert!(bytes(&storage) == damaged, "the file was changed");
        }
    }
    check::<Of<PersistentUnsorted>>();
    check::<Of<FastFair>>();
    check::<Of<FastFairSp>>();
    check::<Of<BTreeWal>>();
    check::<Of<VolatileBTree>>();
}

/// After a kill, recovery frees what an entry names. So a split may get its own parent as a block.
#[test]
fn a_killed_tree_whose_log_names_a_node_in_use_is_no_reason_to_panic() {
    fn check<T>()
    where
        T: PersistentMap<1, 1> + PersistentTree<Options = Options, Census = Census>,
    {
        let file = file::<T>(false);
        let mut unnoticed = 0;
        for node in [true, false].into_iter().flat_map(|is_leaf| nodes(&file, is_leaf)) {
            let mut damaged = file.bytes.clone();
            set(&mut damaged, log_entry(&file, 3) + 8, node);
            unnoticed += usize::from(use_all::<T>(&format!("the log names {node}"), &damaged));
        }
        assert_eq!(unnoticed, 0);
    }
    check::<Of<PersistentUnsorted>>();
    check::<Of<FastFair>>();
    check::<Of<FastFairSp>>();
    check::<Of<BTreeWal>>();
}

/// The child is linked already, as the last one of more than there is room for.
#[test]
fn an_entry_of_the_log_that_has_added_a_child_to_a_full_node_is_refused() {
    type Tree = Of<FastFair>;
    let file = file::<Tree>(false);
    let parent = nodes(&file, false).into_iter().find(|node| word(&file.bytes, *node) & 0xff == 1).unwrap();
    let mut damaged = file.bytes.clone();
    let (entry, child) = (log_entry(&file, 0), word(&file.bytes, parent + 24));
    set(&mut damaged, parent, 8 << 32 | 1);
    for (number, content) in [1 | 1 << 16, child, 0, parent | 1 | 7 << 44].into_iter().enumerate() {
        set(&mut damaged, entry + number as u64 * 8, content);
    }
    let storage = with(&damaged);
    assert!(is_damage(&Tree::open(&storage, "tree", &options()).unwrap_err()));
    assert!(bytes(&storage) == damaged, "the file was changed");
}

type InLogs = Of<BTreeLs>;

/// The segments of each log, oldest first.
fn segments(file: &[u8]) -> Vec<Vec<u64>> {
    let heads = word(file, ROOT) + LOG;
    let of_log = |log: u64| {
        let first = word(file, heads + log * LINE);
        std::iter::successors(Some(first), |segment| Some(word(file, segment + 8)))
            .take_while(|segment| *segment != 0)
            .collect()
    };
    (0..options().logs.count).map(of_log).collect()
}

fn opens_whole(file: &[u8], model: &BTreeMap<u64, u64>, what: &str) -> bool {
    let storage = with(file);
    match InLogs::open(&storage, "tree", &options()) {
        Ok(tree) => {
            assert_eq!(&scan(&tree).unwrap(), model, "{what}: entries are missing");
            true
        }
        Err(error) => {
            assert!(is_damage(&error), "{what}: {error}");
            assert!(bytes(&storage) == file, "{what}: the file was changed");
            false
        }
    }
}

/// Bits to flip: all of a word, or a sample.
fn bits() -> impl Iterator<Item = u32> {
    (0..64).filter(|bit| is_soak() || bit % 9 == 0)
}

/// Otherwise a single bit would take all records behind it away, without an error.
#[test]
fn a_damaged_stamp_or_header_of_a_closed_log_loses_no_records() {
    let File { bytes: sound, model, .. } = file::<InLogs>(true);
    let block = word(&sound, ROOT);
    let all = segments(&sound);
    assert!(all.iter().all(|log| log.len() > 1), "{all:?}");
    assert!(opens_whole(&sound, &model, "a sound tree"));
    let heads = (0..all.len() as u64).flat_map(|log| (0..3).map(move |word| block + LOG + log * LINE + word * 8));
    let headers = all.iter().flatten().flat_map(|segment| (0..4).map(move |word| segment + word * 8));
    let stamps = all.iter().flatten().flat_map(|segment| {
        let lines = word(&sound, segment + 16) & 0xffff_ffff;
        (segment + LINE..segment + lines * LINE).step_by(LINE as usize).map(|line| line + LINE - 8)
    });
    for (at, bit) in heads.chain(headers).chain(stamps).flat_map(|at| bits().map(move |bit| (at, bit))) {
        let what = format!("bit {bit} of the word at {at}");
        assert!(!opens_whole(&flipped(&sound, at, bit), &model, &what), "{what} was not noticed");
    }
    for segment in all.iter().flatten() {
        let mut damaged = sound.clone();
        set(&mut damaged, segment + 16, 0);
        assert!(!opens_whole(&damaged, &model, "no end"), "that the segment at {segment} has no end was not noticed");
    }
}

/// After a kill, only the last record of a log may be torn.
#[test]
fn a_damaged_stamp_of_a_killed_log_takes_away_its_last_record_at_most() {
    /// Lines of the longest record: a base of seven entries.
    const LINES_MAX: u64 = 3;
    let File { bytes: sound, model, .. } = file::<InLogs>(false);
    assert!(opens_whole(&sound, &model, "a sound tree"));
    let mut undetectable = 0;
    for log in segments(&sound) {
        for &segment in &log {
            let number = word(&sound, segment);
            let has_stamp = |line: &u64| word(&sound, line + LINE - 8) == number;
            let lines: Vec<u64> =
                (segment + LINE..segment + 1024).step_by(LINE as usize).take_while(has_stamp).collect();
            let is_last = log.last() == Some(&segment);
            for (place, line) in lines.iter().enumerate() {
                if is_last && lines.len() as u64 - place as u64 <= LINES_MAX {
                    undetectable += 1;
                    continue;
                }
                let what = format!("the stamp of line {place} of segment {number}");
                let is_noticed = !opens_whole(&flipped(&sound, line + LINE - 8, 1), &model, &what);
                assert!(is_noticed, "{what} was not noticed");
            }
            for bit in bits() {
                let what = format!("bit {bit} of the number of segment {number}");
                assert!(!opens_whole(&flipped(&sound, segment, bit), &model, &what), "{what} was not noticed");
            }
        }
    }
    assert!(undetectable <= 2 * LINES_MAX, "{undetectable}");
}

/// The next number would wrap, or would not fit into the word that commits an entry.
#[test]
fn numbers_that_no_program_reaches_are_refused() {
    fn refuses(what: &str, damaged: &[u8], opened: Option<Error>) {
        let error = opened.unwrap_or_else(|| panic!("{what} was not noticed"));
        assert!(is_damage(&error), "{what}: {error}");
        assert_eq!(damaged.len() % 64, 0);
    }
    let File { bytes: sound, .. } = file::<Of<BTreeWal>>(true);
    let stamp = word(&sound, ROOT) + LOG + 2 * LINE - 8;
    for value in [1 << 47, 1 << 48, u64::MAX] {
        let mut damaged = sound.clone();
        set(&mut damaged, stamp, value);
        refuses("a stamp", &damaged, Of::<BTreeWal>::open(&with(&damaged), "tree", &options()).err());
    }
    let File { bytes: sound, .. } = file::<InLogs>(true);
    let newest = *segments(&sound)[0].last().unwrap();
    for value in [1 << 56, u64::MAX] {
        let mut damaged = sound.clone();
        set(&mut damaged, newest + LINE + 8, value);
        refuses("the number of a record", &damaged, InLogs::open(&with(&damaged), "tree", &options()).err());
        let mut damaged = sound.clone();
        set(&mut damaged, newest, value);
        set(&mut damaged, newest + 24, !value);
        refuses("the number of a segment", &damaged, InLogs::open(&with(&damaged), "tree", &options()).err());
    }
}

type Long = Map<u64, Interrupting>;

const VALUES: u64 = 40;
const LENGTH: u64 = 100;

fn map_options() -> map::Options {
    let mut options = map::Options::on(PersistenceDomain::PageCache);
    options.pool.chunk_length = 1 << 17;
    options.pool.address_space = 1 << 26;
    options
}

fn map_file() -> Vec<u8> {
    let storage = MemoryStorage::new();
    let map = Long::create(&storage, "tree", &map_options()).unwrap();
    (0..VALUES).for_each(|key| _ = map.upsert(&key, &[key as u8; LENGTH as usize]).unwrap());
    map.close().unwrap();
    bytes(&storage)
}

/// Offsets of the words that lead to blocks of values.
fn links(file: &[u8]) -> Vec<u64> {
    let slot = 0xff << 56 | LENGTH;
    (8..file.len() as u64 - 8).step_by(8).filter(|at| word(file, *at) == slot).map(|at| at - 8).collect()
}

/// More than there are notes, so that all would be kept by changes that cannot be finished.
#[test]
fn values_whose_blocks_are_damaged_are_refused_and_all_others_can_be_changed() {
    let sound = map_file();
    let links = links(&sound);
    assert_eq!(links.len() as u64, VALUES);
    for damage in [8, 64, 1 << 40] {
        let mut damaged = sound.clone();
        for link in &links[..20] {
            let value = word(&sound, *link) ^ damage;
            set(&mut damaged, *link, value);
        }
        let storage = with(&damaged);
        let map = Long::open(&storage, "tree", &map_options()).unwrap();
        let outcomes: Vec<_> = (0..VALUES).map(|key| map.upsert(&key, &[7; 200])).collect();
        let errors: Vec<&Error> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
        assert!(errors.len() == 20 && errors.iter().all(|error| is_damage(error)), "{damage}: {errors:?}");
        let removed: Vec<_> = (0..VALUES).map(|key| map.remove(&key)).collect();
        assert_eq!(removed.iter().filter(|outcome| outcome.is_ok()).count(), 20, "{damage}");
        drop(map);
        let map = Long::open(&storage, "tree", &map_options()).unwrap();
        assert!(map.insert(&1000, &[1; 300]).unwrap(), "{damage}");
    }
}

/// The iterator has read them at once.
#[test]
fn entries_before_a_damaged_value_are_given_before_the_error() {
    const DAMAGED: u64 = 30;
    let mut damaged = map_file();
    let of_key = |link: &u64| word(&damaged, word(&damaged, *link)) & 0xff == DAMAGED;
    let link = links(&damaged).into_iter().find(of_key).unwrap();
    set(&mut damaged, link, u64::MAX);
    let map = Long::open(&with(&damaged), "tree", &map_options()).unwrap();
    fn keys(entries: impl Iterator<Item = Result<(u64, Vec<u8>), Error>>) -> Vec<u64> {
        let mut all: Vec<_> = entries.collect();
        assert!(is_damage(&all.pop().unwrap().unwrap_err()), "the error is the last item");
        all.into_iter().map(|entry| entry.unwrap().0).collect()
    }
    assert_eq!(keys(map.iter()), (0..DAMAGED).collect::<Vec<_>>());
    assert_eq!(keys(map.iter().rev()), (DAMAGED + 1..VALUES).rev().collect::<Vec<_>>());
}

#[test]
fn any_words_of_a_map_may_be_damaged() {
    let sound = map_file();
    let used = sound.iter().rposition(|byte| *byte != 0).unwrap() as u64 / 8;
    let links = links(&sound);
    let blocks: Vec<(u64, u64)> = links.iter().map(|link| (word(&sound, *link), 128)).collect();
    let mut random = random(1);
    for _ in 0..if is_soak() { 20_000 } else { 400 } {
        // Half of them in the entries.
        let link = links[random.random_range(0..links.len())];
        let at =
            if random.random() { link + random.random_range(0..2) * 8 } else { random.random_range(1024..used) * 8 };
        let mut damaged = sound.clone();
        let value = hostile(&mut random, word(&sound, at), &blocks);
        set(&mut damaged, at, value);
        let storage = with(&damaged);
        ends(&format!("{at} is {value:#x}"), || {
            let Ok(mut map) = Long::open(&storage, "tree", &map_options()) else { return };
            let _ = map.iter().count();
            for key in 0..VALUES {
                let _ = map.get(&key);
                let _ = map.upsert(&key, &[1; 200][..(key % 3) as usize * 90]);
                let _ = map.insert(&(key + 1000), &[2; 100]);
            }
            (0..VALUES).for_each(|key| _ = map.remove(&key));
            let _ = map.check();
            drop(map);
            let _ = Long::open(&storage, "tree", &map_options());
        });
    }
}
