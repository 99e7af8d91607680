//! Pools that were made to do harm: links and words that say what no tree says.

use std::collections::BTreeMap;

use crate::damage::{bytes, is_damage, with};
use crate::support::{BOTH, options, random, rect};
use terrane_pmem::{Backend, PersistenceDomain, ROOT, Traced};
use terrane_pmtree::{Error, FbrTree, LoggedTree, Options, PersistentRTree, Rect, SearchMode};
use terrane_storage::MemoryStorage;

const MODES: [SearchMode; 3] = [SearchMode::Validated, SearchMode::ReadUncommitted, SearchMode::SharedLock];

/// Bytes before the first chunk of a pool.
const METADATA_LENGTH: usize = 8192;

/// Where nodes of a tree with one line for each entry have their words.
struct Places {
    level: usize,
    /// What says which entries there are, and its value for the first ones.
    entries: usize,
    first_entries: fn(u32) -> u64,
}

const OF_FBR: Places = Places { level: 24, entries: 0, first_entries: |count| (1 << count) - 1 };
const OF_LOGGED: Places = Places { level: 0, entries: 8, first_entries: |count| u64::from(count) };

/// A tree's file, whose words can be changed.
struct File {
    bytes: Vec<u8>,
    places: &'static Places,
}

impl File {
    fn new<T: PersistentRTree<2>>(places: &'static Places, count: u64, options: &Options) -> Self {
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

    /// Makes a node one of a level, with some entries that all lead to one child and have one box around everything.
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

    /// Makes what an open tree has beyond the pool's metadata the same.
    fn store_into<T: PersistentRTree<2>>(&self, tree: &T) {
        for at in (METADATA_LENGTH..self.bytes.len()).step_by(8) {
            if tree.pool().backend().load(at as u64) != self.word(at) {
                tree.pool().backend().store(at as u64, self.word(at));
            }
        }
    }

    /// Lets a chain of inner nodes, each with this many links to the next one, lead from the root to a leaf; as many
    /// levels as there are nodes, or as are wanted.
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
    options(PersistenceDomain::PageCache, 4, BOTH[0])
}

fn assert_damage<T>(what: &str, outcome: Result<T, Error>) {
    let error = outcome.err();
    assert!(error.as_ref().is_some_and(is_damage), "{what}: {error:?}");
}

#[test]
fn a_root_higher_than_any_is_refused_and_the_file_left_as_it_is() {
    fn refuses<T: PersistentRTree<2>>(places: &'static Places) {
        let mut file = File::new::<T>(places, 20_000, &small());
        file.chain(usize::MAX, 1);
        let levels = file.level(file.word(file.root_word()) as usize);
        assert!(levels > 10_000, "{levels}");
        let storage = with(&file.bytes);
        assert_damage("a chain", T::open(&storage, "tree", &small()));
        assert!(bytes(&storage) == file.bytes, "the file was changed");
    }
    refuses::<FbrTree<2, Traced>>(&OF_FBR);
    refuses::<LoggedTree<2, Traced>>(&OF_LOGGED);
}

#[test]
fn a_root_that_becomes_higher_than_any_is_refused_by_every_operation() {
    fn refuses<T: PersistentRTree<2>>(places: &'static Places) {
        let mut file = File::new::<T>(places, 20_000, &small());
        let storage = with(&file.bytes);
        let mut tree = T::open(&storage, "tree", &small()).unwrap();
        file.chain(usize::MAX, 1);
        file.store_into(&tree);
        refuse_all(&mut tree, true);
    }
    refuses::<FbrTree<2, Traced>>(&OF_FBR);
    refuses::<LoggedTree<2, Traced>>(&OF_LOGGED);
}

/// That searches and the check are refused, and changes if they shall be.
fn refuse_all<T: PersistentRTree<2>>(tree: &mut T, are_changes: bool) {
    let point = Rect::point([1.0, 2.0]).unwrap();
    for mode in MODES {
        assert_damage("window", tree.window(&Rect::new([-1e8; 2], [1e8; 2]).unwrap(), mode, &mut |_, _| {}));
        assert_damage("nearest", tree.nearest(&[1.0, 2.0], 1 << 20, mode));
    }
    assert_damage("contains", tree.contains(&point, 1 << 40));
    assert_damage("delete", tree.delete(&point, 1 << 40));
    if are_changes {
        assert_damage("insert", tree.insert(&point, 1));
    }
    assert_damage("check", tree.check());
}
