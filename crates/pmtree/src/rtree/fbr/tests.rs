//! What is locked while an operation is under way.

#[path = "../../../tests/support/interrupting.rs"]
mod interrupting;

use std::sync::Arc;

use interrupting::{At, Interrupting, Stopped};
use terrane_storage::crash::{Controller, Image};

use super::log::{ENTRIES, Progress};
use super::*;
use crate::{Error, Rect};

type Tree = FbrTree<2, Interrupting>;
type Entry = (Rect<2>, u64);

fn options(rebalancing: Rebalancing, leaves: LeafForm) -> Options {
    let mut options = Options { fan_out: 4, rebalancing, leaves, ..Options::new(PersistenceDomain::Adr) };
    options.pool.chunk_length = 1 << 16;
    options.pool.address_space = 1 << 28;
    options
}

fn entry(number: u64) -> Entry {
    (Rect::point([(number * 37 % 101) as f64, (number * 53 % 97) as f64]).unwrap(), number)
}

/// New nodes that are reached by a commitment: by the log, if what it says is not done, or by the root word, if that is another than
/// before and not durable yet.
fn new_nodes(tree: &Tree, root_before: u64, is_root_durable: bool) -> Vec<u64> {
    let mut new = Vec::new();
    for (change, engagement) in (0..ENTRIES).filter_map(|index| tree.read_change(index).unwrap()) {
        if engagement.progress == Progress::Committed {
            new.extend(change.kind.acquired().iter().map(|&role| change.node(role)).filter(|&node| node != 0));
        }
    }
    let root = tree.root().unwrap();
    // A root that goes leaves its only child, which is not new.
    if root.offset != root_before && root.level() > tree.node(root_before).unwrap().level() && !is_root_durable {
        new.push(root.offset);
        new.extend(root.bitmap().slots().map(|slot| root.target(slot)).filter(|&child| child != root_before));
    }
    new
}

/// Stops an operation at each of its changes; how many new nodes were reached there, all of them locked.
fn stop_everywhere(image: &Image, options: &Options, run: impl Fn(&Tree) + Send + Copy + 'static) -> usize {
    let open = || Arc::new(Tree::open(&*image.storage(), "tree", options).unwrap());
    let changes_to = |at: At| {
        (0..).find(|&changes| {
            let tree = open();
            let stopped = Stopped::start(At::Change, changes, move || run(&tree));
            stopped.go_on(at, 0);
            Stopped::end([stopped]) == [false]
        })
    };
    // Its fence is behind the last change from which it is reached.
    let root_is_durable_after = changes_to(At::Fence("fbr.split.root")).unwrap_or(0);
    let mut reached = 0;
    for changes in 0.. {
        let tree = open();
        let root = tree.root().unwrap().offset;
        let running = tree.clone();
        let stopped = Stopped::start(At::Change, changes, move || run(&running));
        for node in new_nodes(&tree, root, changes >= root_is_durable_after) {
            let is_locked = tree.locks.of(node).try_write().is_none();
            assert!(is_locked, "a new node at {node} is free after {changes} changes: {options:?}");
            reached += 1;
        }
        if Stopped::end([stopped]) == [false] {
            break;
        }
    }
    reached
}

/// Invariant F7. Who came to a new node by a commitment that is not durable, and changed what is below it, would change what a power
/// loss puts below another node; and the box of a new half would be told while it changes.
#[test]
fn nodes_that_a_commitment_links_are_locked_until_it_is_durable_and_complete() {
    let forms = [LeafForm::Bitmap, LeafForm::SelfValidating];
    for (rebalancing, leaves) in
        [Rebalancing::InPlace, Rebalancing::CopyOnWrite].into_iter().flat_map(|way| forms.map(|form| (way, form)))
    {
        let options = options(rebalancing, leaves);
        // Splits of the root, of leaves and of inner nodes; then merges.
        let mut reached = [0; 2];
        for count in 3..24 {
            let controller = Controller::new();
            let tree = Tree::create(&*controller.storage(), "tree", &options).unwrap();
            (0..count).map(entry).for_each(|(rect, payload)| tree.insert(&rect, payload).unwrap());
            drop(tree);
            let image = controller.process_kill(controller.events());
            reached[0] += stop_everywhere(&image, &options, move |tree| {
                let (rect, payload) = entry(count);
                tree.insert(&rect, payload).unwrap();
            });
            for deleted in (0..count).filter(|deleted| (count + deleted).is_multiple_of(7)) {
                reached[1] += stop_everywhere(&image, &options, move |tree| {
                    let (rect, payload) = entry(deleted);
                    assert!(tree.delete(&rect, payload).unwrap());
                });
            }
        }
        assert!(reached[0] > 100, "{reached:?}");
        assert!(reached[1] > 10 || rebalancing == Rebalancing::InPlace, "{reached:?}");
    }
}

#[test]
fn a_child_that_is_linked_twice_is_damage_and_nothing_to_wait_for() {
    let options = options(Rebalancing::InPlace, LeafForm::Bitmap);
    let tree = Tree::create(&*Controller::new().storage(), "tree", &options).unwrap();
    (0..5).map(entry).for_each(|(rect, payload)| tree.insert(&rect, payload).unwrap());
    let root = tree.root().unwrap();
    let slots: Vec<usize> = root.bitmap().slots().collect();
    let [first, second] = [slots[0], slots[1]];
    tree.backend().store(root.link(second), root.target(first));
    let outcomes: Vec<_> = (0..5).map(entry).map(|(rect, payload)| tree.delete(&rect, payload)).collect();
    assert!(outcomes.iter().any(|outcome| matches!(outcome, Err(Error::Damaged { .. }))), "{outcomes:?}");
}
