//! Searches between two writers, both in the middle of their operations.

#[path = "../../../../tests/support/interrupting.rs"]
mod interrupting;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use interrupting::{At, Interrupting, Stopped, interrupt};
use terrane_storage::crash::{Controller, Image};

use super::super::log::{Change, ENTRIES};
use super::*;
use crate::{Options, PersistenceDomain};

type Tree = FbrTree<2, Interrupting>;
type Entry = (Rect<2>, u64);

fn options() -> Options {
    let mut options = Options { fan_out: 4, ..Options::new(PersistenceDomain::Adr) };
    options.pool.chunk_length = 1 << 16;
    options.pool.address_space = 1 << 28;
    options
}

fn open(image: &Image) -> Arc<Tree> {
    Arc::new(Tree::open(&*image.storage(), "tree", &options()).unwrap())
}

fn entry(number: u64) -> Entry {
    (Rect::point([(number * 37 % 101) as f64, (number * 53 % 97) as f64]).unwrap(), number)
}

/// The split of an inner node that is committed and not complete, if there is one.
fn split_under_way(tree: &Tree) -> Option<Change> {
    let changes = (0..ENTRIES).filter_map(|index| tree.read_change(index).unwrap());
    let is_meant = |change: &Change, engagement: &Engagement| {
        change.kind == Kind::Split
            && change.node(Role::Parent) != 0
            && engagement.progress == Progress::Committed
            && tree.node(change.node(Role::First)).unwrap().level() > 0
    };
    changes.filter(|(change, engagement)| is_meant(change, engagement)).map(|(change, _)| change).next()
}

/// An insertion that waits after so many changes.
fn insertion(tree: &Arc<Tree>, (rect, payload): Entry, changes: usize) -> Stopped {
    let tree = tree.clone();
    Stopped::start(At::Change, changes, move || tree.insert(&rect, payload).unwrap())
}

/// A deletion that waits when it has brought entries from one leaf to another, or both into one.
fn deletion(tree: &Arc<Tree>, (rect, payload): Entry) -> Stopped {
    let tree = tree.clone();
    Stopped::start(At::Fence("fbr.log.clear"), 0, move || assert!(tree.delete(&rect, payload).unwrap()))
}

/// Entries whose deletion makes their leaf take in others, and whose leaf is linked by the new half of a split.
fn movers(tree: &Tree, split: &Change, entries: &[Entry]) -> Vec<Entry> {
    let is_mover = |(rect, payload): &&Entry| {
        let path = tree.find(rect, *payload).unwrap().unwrap();
        let [.., parent, leaf] = *path.as_slice() else { return false };
        let leaf = tree.node(leaf).unwrap();
        parent == split.node(Role::Second) && tree.locked_metadata(&leaf).unwrap().count() == tree.layout.fill_min()
    };
    entries.iter().filter(is_mover).copied().collect()
}

/// Lets both writers do their part at each place of a search, whose path leads through what they change. The insertion's part is
/// all of its changes up to where it waits, or the last one of them.
fn search_between(
    image: &Image,
    entries: &[Entry],
    (inserted, changes, is_begun): (Entry, usize, bool),
    deleted: Entry,
) {
    let everything = Rect::new([-1e9; 2], [1e9; 2]).unwrap();
    for place in 0.. {
        let tree = open(image);
        let writers = Arc::new(Mutex::new(Vec::new()));
        let (writing, written) = (writers.clone(), tree.clone());
        let begun = is_begun.then(|| insertion(&tree, inserted, changes - 1));
        let begin = move || {
            let insertion = match begun {
                Some(begun) => {
                    begun.go_on(At::Change, 0);
                    begun
                }
                None => insertion(&written, inserted, changes),
            };
            writing.lock().unwrap().extend([insertion, deletion(&written, deleted)]);
        };
        let search = || {
            let mut times = BTreeMap::new();
            let count = |_: &Rect<2>, payload| *times.entry(payload).or_insert(0) += 1;
            tree.window(&everything, SearchMode::Validated, count).unwrap();
            times
        };
        let (times, was_interrupted) = interrupt(At::Load, place, begin, search);
        let have_waited = Stopped::end(writers.lock().unwrap().drain(..));
        if !was_interrupted {
            return;
        }
        assert_eq!(have_waited, [true, true]);
        for (_, payload) in entries.iter().filter(|entry| **entry != deleted) {
            let what = format!("{inserted:?} after {changes} changes ({is_begun}), {deleted:?}, after {place} loads");
            assert_eq!(times.get(payload), Some(&1), "{payload}: {what}");
        }
    }
}

/// A deletion that finds its entry by way of a node's new half has that half as the parent, whose lock is free though
/// it is not linked yet. So entries move below it while the sequence number of the old half still is what it was.
#[test]
fn what_moves_below_a_new_half_that_is_not_linked_yet_is_found_once() {
    let is_soak = std::env::var_os("TERRANE_SOAK").is_some();
    let mut tried = 0;
    for count in 20..if is_soak { 60 } else { 40 } {
        let controller = Controller::new();
        let tree = Tree::create(&*controller.storage(), "tree", &options()).unwrap();
        let entries: Vec<Entry> = (0..count).map(entry).collect();
        entries.iter().for_each(|(rect, payload)| tree.insert(rect, *payload).unwrap());
        drop(tree);
        let image = controller.process_kill(controller.events());
        let inserted = entry(count);
        // Right after the commitment, and, in a long search, at each step until the split is complete.
        let mut states = 0;
        for changes in 0.. {
            let tree = open(&image);
            let insertion = insertion(&tree, inserted, changes);
            let split = split_under_way(&tree);
            let movers = split.map_or(Vec::new(), |split| movers(&tree, &split, &entries));
            if Stopped::end([insertion]) != [true] || states > 0 && (movers.is_empty() || !is_soak) {
                break;
            }
            for &deleted in movers.iter().take(if is_soak { 9 } else { 1 }) {
                search_between(&image, &entries, (inserted, changes, false), deleted);
                // The last change is the commitment.
                if states == 0 {
                    search_between(&image, &entries, (inserted, changes, true), deleted);
                }
                tried += 1;
            }
            states += usize::from(!movers.is_empty());
        }
    }
    assert!(tried >= 2, "{tried}");
}
