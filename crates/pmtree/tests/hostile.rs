//! Malicious pools: links and words that no tree has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use crate::damage::{bytes, is_damage, with};
use crate::support::{BOTH, FORMS, TestedTree, ends, options, random, rect};
use terrane_pmem::interrupting::{At, Interrupting, interrupt};
use terrane_pmem::{Backend, Intent, PersistenceDomain, ROOT, Traced};
use terrane_pmtree::fbr::{FbrTree, LeafForm, Options, SearchMode};
use terrane_pmtree::logged::LoggedTree;
use terrane_pmtree::{Error, PersistentRTree, PersistentTree, Rect};
use terrane_testkit::MemoryStorage;

/// Bytes before the first chunk of a pool.
const METADATA_LENGTH: usize = 8192;

/// The places of words in nodes of a tree with one line for each entry.
struct Places {
    level: usize,
    /// The word that marks valid entries, and its value for the first ones.
    entries: usize,
    first_entries: fn(u32) -> u64,
}

const OF_FBR: Places = Places { level: 24, entries: 0, first_entries: |count| (1 << count) - 1 };
const OF_LOGGED: Places = Places { level: 0, entries: 8, first_entries: |count| u64::from(count) };

/// A tree's file, with changeable words.
struct File {
    bytes: Vec<u8>,
    places: &'static Places,
}

impl File {
    fn new<T: TestedTree<2>>(places: &'static Places, count: u64, options: &T::Options) -> Self {
        let storage = MemoryStorage::new();
        let tree = T::create(&storage, "tree", options).unwrap();
        let mut random = random(1);
        (0..count).for_each(|payload| tree.insert(&rect(&mut random, 30), payload).unwrap());
        Box::new(tree).close().unwrap();
        Self { bytes: bytes(&storage), places }
    }

    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().unwrap())
    }

    fn set(&mut self, at: usize, value: u64) {
        self.bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    fn root_word(&self) -> usize {
        self.word(ROOT as usize) as usize + 64
    }

    fn level(&self, node: usize) -> u64 {
        self.word(node + self.places.level)
    }

    /// The nodes of each level.
    fn nodes(&self) -> BTreeMap<u64, Vec<usize>> {
        let mut nodes = BTreeMap::<u64, Vec<usize>>::new();
        let mut to_visit = vec![self.word(self.root_word()) as usize];
        while let Some(node) = to_visit.pop() {
            let level = self.level(node);
            nodes.entry(level).or_default().push(node);
            if level > 0 {
                let entries = self.word(node + self.places.entries);
                to_visit.extend(self.slots(entries).map(|slot| self.word(target(node, slot)) as usize));
            }
        }
        nodes
    }

    fn slots(&self, entries: u64) -> impl Iterator<Item = usize> + use<> {
        let is_bitmap = self.places.entries == 0;
        (0..4).filter(move |slot| if is_bitmap { entries >> slot & 1 == 1 } else { *slot < entries as usize })
    }

    /// Turns a node into one of a level, whose entries all lead to one child and have one box
    /// around everything.
    fn link(&mut self, node: usize, level: u64, child: usize, entries: u32) {
        self.set(node + self.places.level, level);
        self.set(node + self.places.entries, (self.places.first_entries)(entries));
        for slot in 0..entries as usize {
            let corners = [-1e9, -1e9, 1e9, 1e9].map(f64::to_bits);
            for (word, value) in corners.into_iter().chain([child as u64]).enumerate() {
                self.set(node + 64 + slot * 64 + word * 8, value);
            }
        }
    }

    /// Copies everything behind the pool's metadata into an open tree.
    fn store_into<T: TestedTree<2>>(&self, tree: &T) {
        for at in (METADATA_LENGTH..self.bytes.len()).step_by(8) {
            if tree.pool().backend().load(at as u64) != self.word(at) {
                tree.pool().backend().store(at as u64, self.word(at));
            }
        }
    }

    /// Makes a chain of inner nodes, each with this many links to the next one, from the root to a
    /// leaf. It has as many levels as there are nodes, or as are wanted.
    fn chain(&mut self, levels: usize, links: u32) {
        let nodes = self.nodes();
        let mut child = nodes[&0][0];
        let inner = nodes.values().flatten().filter(|node| **node != child).take(levels);
        for (level, node) in (1..).zip(inner.copied().collect::<Vec<_>>()) {
            self.link(node, level, child, links);
            child = node;
        }
        self.set(self.root_word(), child as u64);
    }
}

fn target(node: usize, slot: usize) -> usize {
    node + 64 + slot * 64 + 32
}

fn small() -> Options {
    small_of::<FbrTree<2, Traced>>()
}

fn small_of<T: TestedTree<2>>() -> T::Options {
    T::options(PersistenceDomain::PageCache, 4)
}

fn assert_damage<T>(what: &str, outcome: Result<T, Error>) {
    let error = outcome.err();
    assert!(error.as_ref().is_some_and(is_damage), "{what}: {error:?}");
}

#[test]
fn a_root_higher_than_any_is_refused_and_the_file_left_as_it_is() {
    fn refuses<T: TestedTree<2>>(places: &'static Places) {
        let mut file = File::new::<T>(places, 20_000, &small_of::<T>());
        file.chain(usize::MAX, 1);
        let levels = file.level(file.word(file.root_word()) as usize);
        assert!(levels > 10_000, "{levels}");
        let storage = with(&file.bytes);
        assert_damage("a chain", T::open(&storage, "tree", &small_of::<T>()));
        assert!(bytes(&storage) == file.bytes, "the file was changed");
    }
    refuses::<FbrTree<2, Traced>>(&OF_FBR);
    refuses::<LoggedTree<2, Traced>>(&OF_LOGGED);
}

#[test]
fn a_root_that_becomes_higher_than_any_is_refused_by_every_operation() {
    fn refuses<T: TestedTree<2>>(places: &'static Places) {
        let mut file = File::new::<T>(places, 20_000, &small_of::<T>());
        let storage = with(&file.bytes);
        let mut tree = T::open(&storage, "tree", &small_of::<T>()).unwrap();
        file.chain(usize::MAX, 1);
        file.store_into(&tree);
        refuse_all(&mut tree, true);
    }
    refuses::<FbrTree<2, Traced>>(&OF_FBR);
    refuses::<LoggedTree<2, Traced>>(&OF_LOGGED);
}

/// One node that is linked from each place of its parent, level after level. The paths to the leaf
/// are too many to follow.
#[test]
fn searches_come_to_an_end_where_each_node_is_linked_many_times() {
    fn refuses<T: TestedTree<2>>(places: &'static Places) {
        let mut file = File::new::<T>(places, 60, &small_of::<T>());
        file.chain(20, 4);
        let mut tree = T::open(&with(&file.bytes), "tree", &small_of::<T>()).unwrap();
        refuse_all(&mut tree, false);
    }
    refuses::<FbrTree<2, Interrupting>>(&OF_FBR);
    refuses::<LoggedTree<2, Interrupting>>(&OF_LOGGED);
}

/// Checks that searches and the check return errors, and changes if `are_changes`.
fn refuse_all<T: TestedTree<2>>(tree: &mut T, are_changes: bool) {
    let point = Rect::point([1.0, 2.0]).unwrap();
    for &mode in T::MODES {
        assert_damage("window", ends("window", || tree.window_in(&everything(), mode, &mut |_, _| {})));
    }
    assert_damage("nearest", ends("nearest", || tree.nearest(&[1.0, 2.0], 1 << 20, &|_, _| true)));
    assert_damage("contains", ends("contains", || tree.contains(&point, 1 << 40)));
    assert_damage("delete", ends("delete", || tree.delete(&point, 1 << 40)));
    if are_changes {
        assert_damage("insert", tree.insert(&point, 1));
    }
    assert_damage("check", tree.check());
}

/// Number of the opening that comes after the creation of a tree.
const NEXT: u64 = 2;

/// A node's log word: the session, and the number of the log entry that changes the node, or the
/// mark that it is unlinked.
fn log_word(session: u64, number: u64) -> u64 {
    session << 16 | number
}

const UNLINKED: u64 = 0xffff;

/// Places in an FBR-tree's nodes; the second and third one in self-validating leaves.
const LOG_WORD: usize = 16;
const ADOPTED: usize = 40;
const GENERATIONS: usize = 48;

fn forms() -> impl Iterator<Item = Options> {
    FORMS.into_iter().flat_map(|leaves| {
        BOTH.map(|rebalancing| Options { leaves, ..options(PersistenceDomain::PageCache, 4, rebalancing) })
    })
}

/// The entries of a tree of this size.
fn entries(count: u64) -> Vec<(Rect<2>, u64)> {
    let mut random = random(1);
    (0..count).map(|payload| (rect(&mut random, 30), payload)).collect()
}

fn everything() -> Rect<2> {
    Rect::new([-1e8; 2], [1e8; 2]).unwrap()
}

#[test]
fn a_deletion_comes_to_an_end_where_linked_nodes_say_that_they_are_unlinked() {
    for options in forms() {
        let mut file = File::new::<FbrTree<2, Traced>>(&OF_FBR, 60, &options);
        for (_, node) in file.nodes().range(1..).flat_map(|(level, nodes)| nodes.iter().map(move |node| (level, *node)))
        {
            file.set(node + LOG_WORD, log_word(NEXT, UNLINKED));
        }
        let storage = with(&file.bytes);
        let mut tree: FbrTree<2, Interrupting> = FbrTree::open(&storage, "tree", &options).unwrap();
        assert_eq!(tree.pool().open_counter(), NEXT);
        let (rect, payload) = entries(60)[30];
        assert_damage("delete", ends("delete", || tree.delete(&rect, payload)));
        assert!(tree.contains(&rect, payload).unwrap());
        assert_damage("check", tree.check());
    }
}

#[test]
fn the_check_refuses_what_only_a_later_opening_would_believe() {
    for (number, session) in [(UNLINKED, NEXT), (1, NEXT), (0, NEXT + 1), (UNLINKED, u64::MAX >> 16)] {
        let mut file = File::new::<FbrTree<2, Traced>>(&OF_FBR, 60, &small());
        let leaf = file.nodes()[&0][0];
        file.set(leaf + LOG_WORD, log_word(session, number));
        let mut tree: FbrTree<2, Traced> = FbrTree::open(&with(&file.bytes), "tree", &small()).unwrap();
        assert_damage("check", tree.check());
    }
}

/// The log entry is that of the first split of a session.
#[test]
fn a_search_goes_by_no_log_entry_that_changes_other_nodes() {
    for options in forms() {
        let mut file = File::new::<FbrTree<2, Traced>>(&OF_FBR, 60, &options);
        for leaf in file.nodes()[&0].clone() {
            file.set(leaf + LOG_WORD, log_word(NEXT, 1));
        }
        let mut refused = 0;
        for number in 0.. {
            let tree: FbrTree<2, Interrupting> = FbrTree::open(&with(&file.bytes), "tree", &options).unwrap();
            let tree = Arc::new(tree);
            let met = Arc::new(Mutex::new(None));
            let search = {
                let (tree, met) = (tree.clone(), met.clone());
                move || {
                    let mut found = Vec::new();
                    let outcome = tree.window(&everything(), SearchMode::Validated, |_, payload| found.push(payload));
                    *met.lock().unwrap() = Some(outcome.map(|()| found));
                }
            };
            let insert =
                || (0..5).for_each(|payload| drop(tree.insert(&rect(&mut random(payload), 30), 1000 + payload)));
            let (_, was_interrupted) = interrupt(At::Change, number, search, insert);
            if !was_interrupted {
                break;
            }
            match met.lock().unwrap().take() {
                Some(Ok(found)) => {
                    let mut old: Vec<u64> = found.into_iter().filter(|payload| *payload < 1000).collect();
                    old.sort_unstable();
                    assert!(old.into_iter().eq(0..60), "{options:?}, {number}");
                }
                Some(Err(error)) => refused += usize::from(is_damage(&error)),
                None => panic!("no search, {number}"),
            }
        }
        assert!(refused > 0, "{options:?}");
    }
}

/// It would return with the next opening, which uses the tags.
#[test]
fn an_entry_that_only_the_bitmap_of_a_self_validating_leaf_has_is_not_deleted() {
    let options = Options { leaves: LeafForm::SelfValidating, ..small() };
    let mut file = File::new::<FbrTree<2, Traced>>(&OF_FBR, 60, &options);
    for leaf in file.nodes()[&0].clone() {
        file.set(leaf + ADOPTED, NEXT);
        file.set(leaf + GENERATIONS, !file.word(leaf + GENERATIONS));
    }
    let tree: FbrTree<2, Traced> = FbrTree::open(&with(&file.bytes), "tree", &options).unwrap();
    for (rect, payload) in entries(60) {
        assert!(tree.contains(&rect, payload).unwrap());
        assert_damage("delete", tree.delete(&rect, payload));
    }
}

/// It would have its entries twice, and its block would be given to another owner.
#[test]
fn a_node_that_is_linked_twice_is_not_merged_with_itself() {
    let mut file = File::new::<LoggedTree<2, Traced>>(&OF_LOGGED, 60, &small_of::<LoggedTree<2, Traced>>());
    let (root, leaf) = (file.word(file.root_word()) as usize, file.nodes()[&0][0]);
    file.link(root, 1, leaf, 2);
    let tree: LoggedTree<2, Traced> =
        LoggedTree::open(&with(&file.bytes), "tree", &small_of::<LoggedTree<2, Traced>>()).unwrap();
    let blocks = || {
        let mut blocks = BTreeSet::new();
        tree.pool().visit_blocks(|block, _| _ = blocks.insert(block)).unwrap();
        blocks
    };
    let before = blocks();
    let mut left = entries(60);
    left.retain(|(rect, payload)| tree.contains(rect, *payload).unwrap());
    let outcome = loop {
        let (rect, payload) = left.pop().expect("a leaf with too few entries");
        match tree.delete(&rect, payload) {
            Ok(was_there) => assert!(was_there),
            refused => break refused,
        }
    };
    assert_damage("delete", outcome);
    assert!(!left.is_empty());
    assert_eq!(blocks(), before);
    assert_eq!(file.slots(tree.pool().backend().load(leaf as u64 + 8)).count(), left.len());
    for (rect, payload) in left {
        assert!(tree.contains(&rect, payload).unwrap());
    }
}

/// The next opening would refuse the tree.
#[test]
fn an_only_child_whose_block_is_free_does_not_become_the_root() {
    for options in forms() {
        let mut times_refused = 0;
        let file = File::new::<FbrTree<2, Traced>>(&OF_FBR, 6, &options);
        let root = file.word(file.root_word());
        assert_eq!(file.level(root as usize), 1);
        for slot in file.slots(file.word(root as usize)) {
            let storage = with(&file.bytes);
            let tree: FbrTree<2, Traced> = FbrTree::open(&storage, "tree", &options).unwrap();
            let backend = tree.pool().backend();
            let mut last = 0;
            tree.pool().visit_blocks(|block, length| last = last.max(block + length)).unwrap();
            // A copy of a leaf, in a block that nobody has.
            let (link, place) = (target(root as usize, slot) as u64, last);
            (0..40).for_each(|word| backend.store(place + word * 8, backend.load(backend.load(link) + word * 8)));
            backend.store(link, place);
            let outcomes = entries(6).into_iter().map(|(rect, payload)| tree.delete(&rect, payload));
            let refused: Vec<Error> = outcomes.filter_map(Result::err).collect();
            assert!(refused.iter().all(is_damage), "{options:?}, {slot}: {refused:?}");
            times_refused += usize::from(!refused.is_empty());
            let mut is_block = false;
            let now = backend.load(file.root_word() as u64);
            tree.pool().visit_blocks(|block, _| is_block |= block == now).unwrap();
            assert!(is_block, "{options:?}, {slot}: {now} became the root");
        }
        // The one that a merge leaves. A copy of both is a new block.
        assert_eq!(times_refused > 0, options.rebalancing == BOTH[0], "{options:?}");
    }
}

/// Intents that hold everything of a pool, except a slot if one is wanted for merges.
fn take_all<'t>(
    storage: &MemoryStorage,
    tree: &'t FbrTree<2, Interrupting>,
    leaves_slot: bool,
) -> Vec<Intent<'t, Interrupting>> {
    storage.set_capacity(tree.pool().length());
    let mut intents = Vec::new();
    loop {
        let mut intent = tree.pool().intent();
        match intent.acquire(320, ROOT + 8) {
            Ok(_) => intents.push(intent),
            Err(_) => break,
        }
    }
    if !leaves_slot {
        let mut intent = tree.pool().intent();
        while intent.reserve().is_ok() {
            intents.push(std::mem::replace(&mut intent, tree.pool().intent()));
        }
    }
    intents
}

/// An insertion without space searches for nodes to repair. Below each of them the paths are too
/// many to follow.
#[test]
fn an_insertion_without_space_comes_to_an_end_where_each_node_is_linked_many_times() {
    for options in forms() {
        let mut file = File::new::<FbrTree<2, Traced>>(&OF_FBR, 60, &options);
        file.chain(20, 4);
        let storage = with(&file.bytes);
        let tree = FbrTree::open(&storage, "tree", &options).unwrap();
        let _intents = take_all(&storage, &tree, true);
        let point = Rect::point([1.0, 2.0]).unwrap();
        let outcome = ends("insert", || tree.insert(&point, 1 << 40));
        assert!(outcome.is_err(), "{options:?}");
    }
}

/// Those below one node have no entries, and claim to be unlinked. There is no space to merge them.
#[test]
fn an_insertion_without_space_comes_to_an_end_where_nodes_are_linked_that_say_they_are_not() {
    for options in forms() {
        let mut file = File::new::<FbrTree<2, Traced>>(&OF_FBR, 2000, &options);
        let parents = file.nodes().remove(&1).unwrap();
        let parent = parents[parents.len() / 2];
        for slot in file.slots(file.word(parent)).collect::<Vec<_>>() {
            let leaf = file.word(target(parent, slot)) as usize;
            file.set(leaf + LOG_WORD, log_word(NEXT, UNLINKED));
            file.set(leaf, 1 << 63);
        }
        let storage = with(&file.bytes);
        let tree = FbrTree::open(&storage, "tree", &options).unwrap();
        let _intents = take_all(&storage, &tree, false);
        // Of a few insertions, one needs a split.
        let mut outcomes = entries(100).into_iter().map(|(rect, _)| ends("insert", || tree.insert(&rect, 1 << 40)));
        assert!(outcomes.any(|outcome| outcome.is_err()), "{options:?}");
    }
}
