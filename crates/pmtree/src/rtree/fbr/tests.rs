//! Behaviour that shows only inside of a tree: held locks, marks, and boxes that grow.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use terrane_pmem::interrupting::{At, Interrupting, Stopped, interrupt, interrupt_again};
use terrane_pmem::{Backend, Counted, PersistenceDomain, Traced};
use terrane_storage::sync::{AtomicU64, Ordering};
use terrane_testkit::MemoryStorage;
use terrane_testkit::crash::{Controller, Image};

use super::log::{Change, ENTRIES, Kind, Progress, Role};
use super::*;
use crate::rtree::marks::MARK_SHIFT;
use crate::{Error, Rect, Result};

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

/// New nodes that are reached by a commitment: by a log entry that is not done, or by the root
/// word, if that is new and not durable yet.
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

/// Stops an operation at each of its changes. Gives how many new nodes were reached there, all of
/// them locked.
fn stop_everywhere(image: &Image, options: &Options, run: impl Fn(&Tree) + Send + Copy + 'static) -> usize {
    let open = || Arc::new(Tree::open(&*image.storage(), "tree", options).unwrap());
    let changes_to = |at: At| {
        (0..).find(|&changes| {
            let tree = open();
            let stopped = Stopped::start(At::Change, changes, move || run(&tree));
            stopped.resume_until(at, 0);
            Stopped::end([stopped]) == [false]
        })
    };
    // Its fence comes after the last change from which it is reached.
    let site = match options.rebalancing {
        Rebalancing::InPlace => "fbr.complete.root",
        Rebalancing::CopyOnWrite => "fbr.split.root.link",
    };
    let root_is_durable_after = changes_to(At::Fence(site)).unwrap_or(0);
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

/// Invariant F7. If a thread reached a new node by a commitment that is not durable, and changed
/// its subtree, it would change entries that a power loss puts below another node. Also, the box of
/// a new half would be read while it changes.
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
            let is_thinned = |number: &u64| number % 3 == 1;
            let controller = Controller::new();
            let tree = Tree::create(&*controller.storage(), "tree", &options).unwrap();
            (0..count).map(entry).for_each(|(rect, payload)| tree.insert(&rect, payload).unwrap());
            let grown = controller.process_kill(controller.events());
            for (rect, payload) in (0..count).filter(is_thinned).map(entry) {
                assert!(tree.delete(&rect, payload).unwrap());
            }
            drop(tree);
            let thinned = controller.process_kill(controller.events());
            reached[0] += stop_everywhere(&grown, &options, move |tree| {
                let (rect, payload) = entry(count);
                tree.insert(&rect, payload).unwrap();
            });
            for deleted in (0..count).filter(|number| !is_thinned(number) && (count + number).is_multiple_of(7)) {
                reached[1] += stop_everywhere(&thinned, &options, move |tree| {
                    let (rect, payload) = entry(deleted);
                    assert!(tree.delete(&rect, payload).unwrap());
                });
            }
        }
        assert!(reached[0] > 100, "{reached:?}");
        assert!(reached[1] > 10 || rebalancing == Rebalancing::InPlace, "{reached:?}");
    }
}

/// New halves of a committed split, if they are inner nodes.
fn new_inner_half(tree: &Tree) -> Option<u64> {
    let changes = (0..ENTRIES).filter_map(|index| tree.read_change(index).unwrap());
    let committed = changes.filter(|(_, engagement)| engagement.progress == Progress::Committed);
    // The box of a root is read before.
    let is_linked = |change: &Change| change.kind == Kind::Split && change.node(Role::Parent) != 0;
    let halves = committed.filter(|(change, _)| is_linked(change)).map(|(change, _)| change.node(Role::Second));
    halves.into_iter().find(|&half| tree.node(half).unwrap().level() > 0)
}

/// An entry below a node of leaves. Without it, its leaf has too few entries, and a sibling has
/// entries to give.
fn entry_that_moves_others(tree: &Tree, node: u64) -> Option<Entry> {
    let node = tree.node(node).unwrap();
    let children: Vec<_> = node.bitmap().slots().map(|slot| tree.node(node.target(slot)).unwrap()).collect();
    let few = children.iter().find(|child| child.level() == 0 && child.bitmap().count() == tree.fill_min)?;
    children.iter().find(|child| child.bitmap().count() > tree.fill_min)?;
    let slot = few.bitmap().slots().next()?;
    Some((few.rect(slot), few.target(slot)))
}

/// The box of a new half is read while its lock is held. If a deletion could move entries between
/// its children meanwhile, one child's box would grow after it was read, and the other one's shrink
/// before.
#[test]
fn entries_that_move_within_a_new_half_while_its_box_is_read_are_found() {
    const COMMIT: At = At::Fence("fbr.log.commit");
    const CLEAR: At = At::Fence("fbr.log.clear");
    // Trees in which entries move to a side of the box that only their old place has reached.
    const SEEDS: [u64; 6] = [264, 361, 437, 453, 468, 570];
    let options = options(Rebalancing::InPlace, LeafForm::Bitmap);
    for (seed, load) in SEEDS.into_iter().flat_map(|seed| (0..40).map(move |load| (seed, load))) {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut drawn =
            |number| (Rect::point([0, 1].map(|_| f64::from(random.random_range(0..40u32)))).unwrap(), number);
        let entries: Vec<Entry> = (0..14 + seed % 16).map(&mut drawn).collect();
        let controller = Controller::new();
        let tree = Tree::create(&*controller.storage(), "tree", &options).unwrap();
        let ((rect, payload), before) = entries.split_last().unwrap();
        before.iter().for_each(|(rect, payload)| tree.insert(rect, *payload).unwrap());
        drop(tree);
        let image = controller.process_kill(controller.events());
        let mut tree = Arc::new(Tree::open(&*image.storage(), "tree", &options).unwrap());
        let (inserting, rect, payload) = (tree.clone(), *rect, *payload);
        let insertion = Stopped::start(COMMIT, 0, move || inserting.insert(&rect, payload).unwrap());
        // The entry to delete is chosen before anything is linked.
        let moving = new_inner_half(&tree).and_then(|half| Some((half, entry_that_moves_others(&tree, half)?)));
        let (half, (rect, payload)) = moving.expect("the insertion divides an inner node with such a leaf");
        insertion.resume_until(At::Load, load);
        let mut running = vec![insertion];
        let mut deleted = None;
        // If the half is locked, the deletion has to wait; otherwise it runs until it needs the
        // parent.
        if new_inner_half(&tree) == Some(half) && tree.locks.of(half).try_write().is_some() {
            let deleting = tree.clone();
            running.push(Stopped::start(CLEAR, 0, move || assert!(deleting.delete(&rect, payload).unwrap())));
            deleted = Some(payload);
        }
        Stopped::end(running);
        let checked = Arc::get_mut(&mut tree).unwrap().check();
        checked.unwrap_or_else(|error| panic!("seed {seed}, {load} loads: {error}"));
        for (rect, payload) in &entries {
            let is_there = tree.contains(rect, *payload).unwrap();
            assert_eq!(is_there, deleted != Some(*payload), "seed {seed}, {load} loads: {payload}");
        }
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

fn reason_of(outcome: Result<()>) -> String {
    match outcome {
        Err(Error::Damaged { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

fn assert_has_failed(outcome: Result<()>) {
    let reason = reason_of(outcome);
    assert!(reason.contains("has failed in the middle"), "{reason}");
}

/// The damage shows when the commitment is applied to the node, which is the root or a child of it.
/// Readers continue with the log, which still has everything.
#[test]
fn writers_refuse_everything_that_a_change_has_left_in_the_middle() {
    const FEW: u64 = 4;
    const MANY: u64 = 8;
    let options = options(Rebalancing::InPlace, LeafForm::SelfValidating);
    for count in [FEW, MANY] {
        let tree = Tree::create(&*Controller::new().storage(), "tree", &options).unwrap();
        (0..count).map(entry).for_each(|(rect, payload)| tree.insert(&rect, payload).unwrap());
        let root = tree.root().unwrap();
        let mut leaves = vec![root.offset];
        if root.level() > 0 {
            leaves = root.bitmap().slots().map(|slot| root.target(slot)).collect();
        }
        let is_full = |&leaf: &u64| tree.node(leaf).unwrap().bitmap().count() == options.fan_out;
        let leaf = tree.node(leaves.into_iter().find(is_full).unwrap()).unwrap();
        let rect = leaf.rect(leaf.bitmap().slots().next().unwrap());
        leaf.bitmap().slots().for_each(|slot| tree.backend().store(leaf.word(tree.layout.mark(slot)), 0));
        let split = reason_of(tree.insert(&rect, 100));
        assert!(split.contains("no tag of its leaf"), "{split}");
        for (rect, payload) in (0..count).map(entry) {
            assert!(tree.contains(&rect, payload).unwrap(), "{payload} is not found");
            assert_has_failed(tree.insert(&rect, 100));
            assert_has_failed(tree.delete(&rect, payload).map(drop));
        }
    }
}

/// Only the log entry leads to the other half: the root links one child.
#[test]
fn a_root_of_one_child_stays_while_a_change_of_that_child_has_failed() {
    let options = options(Rebalancing::InPlace, LeafForm::SelfValidating);
    let tree = Tree::create(&*Controller::new().storage(), "tree", &options).unwrap();
    for number in 0.. {
        let (rect, payload) = entry(number);
        tree.insert(&rect, payload).unwrap();
        let root = tree.root().unwrap();
        let is_full = |&slot: &usize| tree.node(root.target(slot)).unwrap().bitmap().count() == options.fan_out;
        let Some(slot) = root.bitmap().slots().filter(|_| root.level() > 0).find(is_full) else { continue };
        let mut alone = layout::Metadata::empty(false, tree.layout.words);
        alone.set(slot, true);
        tree.store_metadata(&root, &alone);
        let leaf = tree.node(root.target(slot)).unwrap();
        leaf.bitmap().slots().for_each(|slot| tree.backend().store(leaf.word(tree.layout.mark(slot)), 0));
        reason_of(tree.insert(&rect, payload));
        // As after a deletion whose leaf was sound before.
        assert_has_failed(tree.lower_root());
        assert_eq!(tree.root().unwrap().offset, root.offset);
        return;
    }
}

/// A copied node does not show the change until its end, and is not among those that name the log
/// entry.
#[test]
fn nothing_is_changed_after_a_change_has_failed_whatever_nodes_say() {
    for rebalancing in [Rebalancing::InPlace, Rebalancing::CopyOnWrite] {
        let options = options(rebalancing, LeafForm::Bitmap);
        let tree = Tree::create(&*Controller::new().storage(), "tree", &options).unwrap();
        (0..40).map(entry).for_each(|(rect, payload)| tree.insert(&rect, payload).unwrap());
        tree.take_log_entry().keep();
        let everything = Rect::new([-1e9; 2], [1e9; 2]).unwrap();
        assert_has_failed(tree.window(&everything, SearchMode::SharedLock, |_, _| ()));
        for (rect, payload) in (0..40).map(entry) {
            assert!(tree.contains(&rect, payload).unwrap(), "{payload} is not found");
            assert_has_failed(tree.insert(&rect, 100));
            assert_has_failed(tree.delete(&rect, payload).map(drop));
        }
        assert_has_failed(tree.lower_root());
    }
}

/// Marks are 32 bits of a number, with the session above.
#[test]
fn marks_continue_into_those_of_skipped_openings() {
    const MARKS: u64 = 1 << MARK_SHIFT;
    for leaves in [LeafForm::Bitmap, LeafForm::SelfValidating] {
        let (controller, options) = (Controller::new(), options(Rebalancing::InPlace, leaves));
        let storage = controller.storage();
        let tree = Tree::create(&*storage, "tree", &options).unwrap();
        let mut last = 0;
        for (number, session) in [(0, 1), (MARKS / 2, 2), (MARKS, 2), (MARKS * 3 / 2, 3), (MARKS * 2, 3)] {
            tree.marks.given.store(number - number.min(6), Ordering::Relaxed);
            let before = tree.new_mark();
            (0..12).map(entry).for_each(|(rect, payload)| tree.insert(&rect, payload).unwrap());
            assert!(before > last && tree.is_mark_of_session(before), "{before}");
            last = tree.new_mark();
            assert_eq!(tree.pool().open_counter(), session, "{number}");
            assert!(tree.is_mark_of_session(last) && last >> MARK_SHIFT <= session, "{last}");
        }
        drop(tree);
        let image = controller.process_kill(controller.events());
        let mut tree = Tree::open(&*image.storage(), "tree", &options).unwrap();
        assert!(tree.new_mark() > last && !tree.is_mark_of_session(last), "{last}");
        assert_eq!(tree.check().unwrap().entries, 60);
    }
}

/// The boxes of all children, by their places.
fn boxes_of_children<const D: usize, B: Backend>(tree: &FbrTree<D, B>) -> BTreeMap<(u64, usize), Rect<D>> {
    let mut boxes = BTreeMap::new();
    let mut nodes = vec![tree.root().unwrap()];
    while let Some(node) = nodes.pop() {
        for slot in node.bitmap().slots().filter(|_| node.level() > 0) {
            boxes.insert((node.offset, slot), node.rect(slot));
            nodes.push(tree.child(node.level(), node.target(slot)).unwrap());
        }
    }
    boxes
}

/// The targets in the free slots of nodes above leaves.
fn targets_of_free_slots(tree: &Tree) -> BTreeMap<(u64, usize), u64> {
    let mut targets = BTreeMap::new();
    let mut nodes = vec![tree.root().unwrap()];
    while let Some(node) = nodes.pop() {
        if node.level() == 0 {
            continue;
        }
        targets.extend(node.bitmap().free(tree.layout.fan_out).map(|slot| ((node.offset, slot), node.target(slot))));
        nodes.extend(node.bitmap().slots().map(|slot| tree.child(node.level(), node.target(slot)).unwrap()));
    }
    targets
}

/// If the slot was valid when a search read the node, the search would follow it to a block with
/// another purpose by then, as nobody has retired it.
#[test]
fn a_split_that_has_no_space_leaves_no_trace_in_the_node_above() {
    let mut refused = 0;
    for number in 0..20 {
        let options =
            Options { fan_out: 4 + number as usize % 2, ..options(Rebalancing::CopyOnWrite, LeafForm::Bitmap) };
        let storage = MemoryStorage::new();
        storage.set_capacity(256 << 10);
        let tree = Tree::create(&storage, "tree", &options).unwrap();
        let mut entries = (number * 10_000..).map(entry);
        while entries.next().is_some_and(|(rect, payload)| tree.insert(&rect, payload).is_ok()) {}
        for (rect, payload) in entries.take(50) {
            let before = targets_of_free_slots(&tree);
            if tree.insert(&rect, payload).is_err() {
                // Another split above it may have had space.
                for (place, target) in targets_of_free_slots(&tree) {
                    assert_eq!(before.get(&place).copied().unwrap_or(target), target, "{number}, {payload}: {place:?}");
                }
                refused += 1;
            }
        }
    }
    assert!(refused > 100, "{refused} were refused");
}

/// Insertions without splits. Each takes `least` flushes and one for each box that grows, and a
/// fixed number of fences.
fn insertion_costs<const D: usize>(leaves: LeafForm, rebalancing: Rebalancing) {
    let options = Options { fan_out: 8, ..options(rebalancing, leaves) };
    let storage = Controller::new().storage();
    let tree = FbrTree::<D, Counted<Traced>>::create(&*storage, "tree", &options).unwrap();
    let mut random = SmallRng::seed_from_u64(1);
    let mut met = BTreeMap::new();
    let mut before = boxes_of_children(&tree);
    for payload in 0..1500 {
        let rect = Rect::point(std::array::from_fn(|_| random.random_range(0.0..1.0))).unwrap();
        tree.backend().take();
        tree.insert(&rect, payload).unwrap();
        let cost = tree.backend().take();
        let after = boxes_of_children(&tree);
        if before.keys().eq(after.keys()) {
            let grown = before.iter().filter(|(place, rect)| after[place] != **rect).count() as u64;
            let expected = match leaves {
                LeafForm::Bitmap => (2 + grown, 2),
                LeafForm::SelfValidating => (1 + grown, if grown > 0 { 2 } else { 1 }),
            };
            assert_eq!((cost.flushes, cost.fences), expected, "{payload}: {grown} boxes grow, {options:?}");
            assert_eq!(cost.flushes, cost.lines_flushed, "{payload}: a line is flushed twice");
            *met.entry(grown).or_insert(0) += 1;
        }
        before = after;
    }
    assert!((0..=3).all(|grown| met[&grown] >= 5) && met.values().sum::<u64>() > 1000, "{met:?}");
}

#[test]
fn an_insertion_takes_exactly_one_more_flush_for_each_box_that_grows() {
    for leaves in [LeafForm::Bitmap, LeafForm::SelfValidating] {
        insertion_costs::<2>(leaves, Rebalancing::InPlace);
        insertion_costs::<3>(leaves, Rebalancing::CopyOnWrite);
    }
}

/// Deletes an entry and inserts it again, which changes numbers of its leaf and of nodes above it.
/// It repeats this during a search, until the search takes locks.
fn overtake(tree: Arc<Tree>, (rect, payload): Entry, times: Arc<AtomicU64>) {
    let root = tree.root().unwrap().offset;
    if tree.locks.root.try_write().is_none() || tree.locks.of(root).try_write().is_none() {
        return;
    }
    assert!(times.fetch_add(1, Ordering::Relaxed) < 10_000, "the search goes on for ever");
    assert!(tree.delete(&rect, payload).unwrap());
    tree.insert(&rect, payload).unwrap();
    interrupt_again(At::Load, 7, move || overtake(tree, (rect, payload), times));
}

/// Runs a search that a writer overtakes from a load on, until it takes locks or ends. Gives its
/// result, and how often that happened.
fn overtaken<T>(tree: &Arc<Tree>, moved: Entry, from: usize, search: impl FnOnce(&Tree) -> T) -> (T, u64) {
    let times = Arc::new(AtomicU64::new(0));
    let (of_writer, overtaking) = (tree.clone(), times.clone());
    let found = interrupt(At::Load, from, move || overtake(of_writer, moved, overtaking), || search(tree)).0;
    (found, times.load(Ordering::Relaxed))
}

/// Otherwise it would end only when the writer does, and all retired blocks would wait for it.
#[test]
fn a_search_that_writers_overtake_again_and_again_ends() {
    const COUNT: u64 = 100;
    const NEAREST: usize = 30;
    let everything = Rect::new([-1e9; 2], [1e9; 2]).unwrap();
    let window = |tree: &Tree| {
        let mut found = Vec::new();
        tree.window(&everything, SearchMode::Validated, |_, payload| found.push(payload)).unwrap();
        found
    };
    let nearest = |tree: &Tree| -> Vec<u64> {
        let found = tree.nearest(&[50.0; 2], NEAREST, SearchMode::Validated, |_, _| true).unwrap();
        found.into_iter().map(|(_, _, payload)| payload).collect()
    };
    let distance = |payload: &u64| entry(*payload).0.distance_squared(&[50.0; 2]);
    for rebalancing in [Rebalancing::InPlace, Rebalancing::CopyOnWrite] {
        for leaves in [LeafForm::Bitmap, LeafForm::SelfValidating] {
            let options = options(rebalancing, leaves);
            let tree = Arc::new(Tree::create(&MemoryStorage::new(), "tree", &options).unwrap());
            let far = (Rect::point([1e6; 2]).unwrap(), COUNT);
            (0..COUNT).map(entry).chain([far]).for_each(|(rect, payload)| tree.insert(&rect, payload).unwrap());
            // One that changes the root, and one among the others; from the beginning, and when
            // some are found already.
            for (moved, from) in [(far, 7), (far, 900), (entry(50), 7), (entry(50), 300), (entry(50), 900)] {
                let (mut found, times) = overtaken(&tree, moved, from, window);
                assert!(times > 0, "{options:?}");
                found.sort_unstable();
                found.retain(|payload| *payload != moved.1);
                let others = (0..=COUNT).filter(|payload| *payload != moved.1);
                assert_eq!(found, Vec::from_iter(others), "{options:?}, {moved:?}, {from}");
                let (mut found, _) = overtaken(&tree, moved, from, nearest);
                found.sort_by(|left, right| distance(left).total_cmp(&distance(right)));
                let mut all = Vec::from_iter(0..COUNT);
                all.sort_by(|left, right| distance(left).total_cmp(&distance(right)));
                // The one that is moved may be missing.
                all.retain(|payload| *payload != moved.1 || found.contains(payload));
                let distances = |payloads: &[u64]| payloads.iter().map(distance).collect::<Vec<_>>();
                assert_eq!(distances(&found), distances(&all[..NEAREST]), "{options:?}, {moved:?}, {from}");
            }
        }
    }
}

/// A look-up of one of many entries at one place, which reads most leaves, while others are
/// deleted and inserted there or elsewhere.
#[test]
fn a_look_up_that_writers_overtake_again_and_again_ends() {
    const COUNT: u64 = 60;
    let (place, elsewhere) = (Rect::point([5.0; 2]).unwrap(), Rect::point([1e6; 2]).unwrap());
    for rebalancing in [Rebalancing::InPlace, Rebalancing::CopyOnWrite] {
        for leaves in [LeafForm::Bitmap, LeafForm::SelfValidating] {
            let tree = Arc::new(Tree::create(&MemoryStorage::new(), "tree", &options(rebalancing, leaves)).unwrap());
            (0..COUNT).for_each(|payload| tree.insert(&place, payload).unwrap());
            tree.insert(&elsewhere, COUNT).unwrap();
            for moved in [(place, 7), (place, 50), (elsewhere, COUNT)] {
                for from in [0, 7, 100, 300] {
                    let what = format!("{rebalancing:?}, {leaves:?}, {moved:?}, {from}");
                    let absent = |tree: &Tree| tree.contains(&place, u64::MAX).unwrap();
                    let (is_found, times) = overtaken(&tree, moved, from, absent);
                    assert!(!is_found && times > 0, "{what}");
                    let absent = |tree: &Tree| tree.delete(&place, u64::MAX).unwrap();
                    assert!(!overtaken(&tree, moved, from, absent).0, "{what}");
                    for there in [0, 20, COUNT - 1] {
                        let (is_found, _) = overtaken(&tree, moved, from, |tree| tree.contains(&place, there).unwrap());
                        assert!(is_found, "{there}, {what}");
                        let (is_deleted, _) = overtaken(&tree, moved, from, |tree| tree.delete(&place, there).unwrap());
                        assert!(is_deleted, "{there}, {what}");
                        tree.insert(&place, there).unwrap();
                    }
                }
            }
            let census = Arc::into_inner(tree).unwrap().check().unwrap();
            assert_eq!(census.entries, COUNT + 1);
        }
    }
}

/// Removes all entries of a node except the first `entries`.
fn keep(tree: &Tree, node: u64, entries: usize) {
    let node = tree.node(node).unwrap();
    let mut metadata = tree.metadata(&node);
    tree.metadata(&node).slots().skip(entries).for_each(|slot| metadata.set(slot, false));
    tree.store_metadata(&node, &metadata);
}

#[test]
fn nodes_that_a_deletion_cannot_repair_are_noted() {
    let storage = MemoryStorage::new();
    let named = |name: &str| {
        let options = options(Rebalancing::InPlace, LeafForm::Bitmap);
        let tree = Tree::create(&storage, name, &options).unwrap();
        (0..16).map(entry).for_each(|(rect, payload)| tree.insert(&rect, payload).unwrap());
        // An earlier session may have left some.
        tree.may_be_underfull.store(false, Ordering::Relaxed);
        tree
    };
    let is_noted = |tree: &Tree| tree.may_be_underfull.load(Ordering::Relaxed);
    let children = |tree: &Tree, node: u64| -> Vec<u64> {
        let node = tree.node(node).unwrap();
        tree.metadata(&node).slots().map(|slot| node.target(slot)).collect()
    };
    // Without a sibling.
    let alone = named("alone");
    let parent = children(&alone, alone.root().unwrap().offset)[0];
    let leaf = children(&alone, parent)[0];
    let mend = |tree: &Tree| tree.repair_underflow(&tree.node(parent).unwrap(), &tree.node(leaf).unwrap()).unwrap();
    assert_eq!(alone.node(parent).unwrap().level(), 1);
    keep(&alone, leaf, 1);
    keep(&alone, parent, 1);
    assert!(!is_noted(&alone));
    mend(&alone);
    assert!(is_noted(&alone));
    // With another parent than before; full enough, with too few entries, and unlinked.
    let moved = named("moved");
    let other = children(&moved, moved.root().unwrap().offset)[1];
    let shrink_and_repair = |tree: &Tree| tree.repair_above(&[other, leaf]).unwrap();
    shrink_and_repair(&moved);
    assert!(!is_noted(&moved));
    keep(&moved, leaf, 1);
    shrink_and_repair(&moved);
    assert!(is_noted(&moved));
    let gone = named("gone");
    keep(&gone, leaf, 1);
    gone.mark_unlinked(&gone.node(leaf).unwrap());
    shrink_and_repair(&gone);
    assert!(!is_noted(&gone));
    // A root with one child, whose release cannot be announced on a full disk.
    let high = named("high");
    let root = high.root().unwrap().offset;
    keep(&high, root, 1);
    storage.set_capacity(0);
    let mut intents = Vec::new();
    loop {
        let mut intent = high.pool.intent();
        match intent.reserve() {
            Ok(()) => intents.push(intent),
            Err(error) => {
                break assert!(
                    matches!(&error, terrane_pmem::Error::Storage(full) if full.is_storage_full()),
                    "{error}"
                );
            }
        }
    }
    high.lower_root().unwrap();
    assert!(is_noted(&high) && high.root().unwrap().offset == root);
    intents.clear();
    high.lower_root().unwrap();
    assert_ne!(high.root().unwrap().offset, root);
}

/// The state of an engagement shows a later use of the entry.
#[test]
fn uses_of_a_log_entry_are_told_apart() {
    let mut tree =
        FbrTree::<2, Traced>::create(&MemoryStorage::new(), "tree", &options(Rebalancing::InPlace, LeafForm::Bitmap))
            .unwrap();
    let states = |tree: &FbrTree<2, Traced>| -> Vec<u64> {
        (0..ENTRIES).map(|index| tree.backend().load(log::offset(&tree.layout, tree.block, index))).collect()
    };
    let (mut before, mut nodes, mut changes) = (states(&tree), 1, 0);
    for number in 0..300 {
        let (rect, payload) = entry(number);
        tree.insert(&rect, payload).unwrap();
        let (after, census) = (states(&tree), tree.check().unwrap());
        assert!(before.iter().zip(&after).all(|(before, after)| before <= after), "after {changes} changes");
        if census.leaves + census.inner_nodes > nodes {
            nodes = census.leaves + census.inner_nodes;
            changes += 1;
            assert_ne!(after, before, "after {changes} changes");
        }
        before = after;
    }
    // So that each was used more than once.
    assert!(changes > 2 * ENTRIES);
}
