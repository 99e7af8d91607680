//! Nodes with bitmaps of several words, and headers of several lines: searches in the middle of
//! changes, and power losses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::support::{BOTH, FORMS, options, random, rect};
use crate::unnoticed::{Operation, Tree, operate, search};
use terrane_pmem::PersistenceDomain;
use terrane_pmem::interrupting::{At, Stopped, interrupt, interrupt_again};
use terrane_pmtree::fbr::{Options, Rebalancing, SearchMode};
use terrane_pmtree::{Census, Rect};
use terrane_storage::Storage;
use terrane_storage::event::{Event, PoolEvent};
use terrane_testkit::crash::{Budget, Controller, Image, NameOrder};

const COMMIT: At = At::Fence("fbr.log.commit");
const CLEAR: At = At::Fence("fbr.log.clear");

/// Bitmaps of two words, also in inner nodes.
const TWO_WORDS: usize = 60;

/// Bitmaps that continue in the second line of the header.
const TWO_LINES: usize = 375;

/// New boxes, numbered from a first one on.
fn coming(first: u64, count: u64) -> Vec<Operation> {
    let mut random = random(first);
    (first..first + count).map(|number| (true, (rect(&mut random, 300), number))).collect()
}

/// An operation, and the tree before it as a kill leaves it.
struct Moment {
    options: Options,
    image: Image,
    operation: Operation,
}

impl Moment {
    fn open(&self, storage: &dyn Storage) -> Tree {
        Tree::open(storage, "tree", &self.options).unwrap()
    }
}

/// The chosen operations of a series, by their number and whether the log commits them.
fn moments(
    options: &Options,
    early: &[Operation],
    series: &[Operation],
    is_chosen: impl Fn(usize, bool) -> bool,
) -> Vec<Moment> {
    let controller = Controller::new();
    let tree = Tree::create(&*controller.storage(), "tree", options).unwrap();
    early.iter().for_each(|&operation| operate(&tree, operation));
    let mut moments = Vec::new();
    for (number, &operation) in series.iter().enumerate() {
        let before = controller.events();
        let is_committed = interrupt(COMMIT, 0, || (), || operate(&tree, operation)).1;
        if is_chosen(number, is_committed) {
            moments.push(Moment { options: options.clone(), image: controller.process_kill(before), operation });
        }
    }
    moments
}

/// Splits of leaves below a root with children in both words of its bitmap, or merges.
fn changes_below_a_wide_root(rebalancing: Rebalancing, is_growing: bool, wanted: usize) -> Vec<Moment> {
    let options = options(PersistenceDomain::Adr, TWO_WORDS, rebalancing);
    let mut tree = Tree::create(&*Controller::new().storage(), "tree", &options).unwrap();
    let mut early = coming(0, 3000);
    let wanted_leaves = if is_growing { 54 } else { 57 };
    let mut is_short = |&operation: &Operation| {
        operate(&tree, operation);
        tree.check().unwrap().leaves < wanted_leaves
    };
    let count = early.iter().position(|operation| !is_short(operation)).unwrap() + 1;
    early.truncate(count);
    let series = if is_growing { coming(10_000, 150) } else { going_from_the_end(&tree) };
    let moments = moments(&options, &early, &series, |_, is_committed| is_committed);
    let census = |moment: &Moment| moment.open(&*moment.image.storage()).check().unwrap();
    let after = moments.iter().map(census).skip(1).collect::<Vec<_>>();
    // Not those in which two leaves only share their entries.
    let is_wide = |(moment, after): &(Moment, Census)| {
        let before = census(moment);
        before.inner_nodes == 1 && before.leaves > 53 && before.leaves != after.leaves
    };
    let chosen: Vec<Moment> =
        moments.into_iter().zip(after).filter(is_wide).map(|(moment, _)| moment).take(wanted).collect();
    assert_eq!(chosen.len(), wanted, "{rebalancing:?}, growing: {is_growing}");
    chosen
}

/// Deletions of the entries of the last leaves, in the order of a search.
fn going_from_the_end(tree: &Tree) -> Vec<Operation> {
    let mut entries = Vec::new();
    let everywhere = Rect::new([-1e9; 2], [1e9; 2]).unwrap();
    tree.window(&everywhere, SearchMode::Validated, |rect, payload| {
        entries.push((false, (*rect, payload)));
    })
    .unwrap();
    entries.into_iter().rev().take(120).collect()
}

/// A search reads the words of a node's bitmap before and after a change is applied. The log entry
/// that was committed when it began is cleared when the search reads it.
#[test]
fn words_of_a_bitmap_from_both_sides_of_a_change_are_told() {
    const CHANGES: usize = 2;
    const LOADS_BETWEEN: usize = 2;
    const PLACES: usize = 30;
    let kinds = BOTH.into_iter().flat_map(|rebalancing| [true, false].map(|is_growing| (rebalancing, is_growing)));
    for (rebalancing, is_growing) in kinds {
        for moment in changes_below_a_wide_root(rebalancing, is_growing, 2) {
            let (_, (_, changed)) = moment.operation;
            let mut stays = search(&moment.open(&*moment.image.storage()), false);
            stays.retain(|payload| *payload != changed);
            let steps = (0..=CHANGES).flat_map(|changes| (0..LOADS_BETWEEN).map(move |loads| (changes, loads)));
            let all = steps.flat_map(|(changes, loads)| (0..PLACES).map(move |place| (changes, loads, place)));
            for (changes, loads, place) in all {
                for is_by_distance in [false, true] {
                    let tree = Arc::new(moment.open(&*moment.image.storage()));
                    let (writing, operation) = (tree.clone(), moment.operation);
                    let writer = Arc::new(Stopped::start(COMMIT, 0, move || operate(&writing, operation)));
                    let (first, second) = (writer.clone(), writer.clone());
                    let bring_in = move || {
                        first.resume_until(At::Change, changes);
                        interrupt_again(At::Load, loads, move || second.resume_until(CLEAR, 0));
                    };
                    let (mut found, _) = interrupt(At::Load, place, bring_in, || search(&tree, is_by_distance));
                    Stopped::end(Arc::into_inner(writer));
                    found.retain(|payload| *payload != changed);
                    let what = format!("{rebalancing:?}, growing: {is_growing}, by distance: {is_by_distance}");
                    assert!(
                        found == stays,
                        "{what}: {changes} changes at load {place}, the others {loads} loads later: {} of {} entries",
                        found.len(),
                        stays.len()
                    );
                }
            }
        }
    }
}

/// The power fails, or the process is killed, at places throughout an operation and before each of
/// its fences, where most can be lost. All of it is there or nothing.
fn lose_power(moment: &Moment) {
    const PLACES: usize = 50;
    let budget = Budget { exhaustive_pending: 3, samples: 3, name_order: NameOrder::AnySubset };
    let controller = moment.image.restart();
    let tree = moment.open(&*controller.storage());
    let (before, first) = (search(&tree, false), controller.events());
    operate(&tree, moment.operation);
    let (after, last) = (search(&tree, false), controller.events());
    drop(tree);
    let stride = ((last - first) / PLACES).max(1);
    let log = controller.log();
    let is_fence = |cut: &usize| matches!(log.get(*cut), Some(Event::Pool(PoolEvent::Fence { .. })));
    let cuts: BTreeSet<usize> =
        (first..last).step_by(stride).chain((first..last).filter(is_fence)).chain([last]).collect();
    for cut in cuts {
        for image in controller.images(cut, &budget, 7).chain([controller.process_kill(cut)]) {
            let what = format!("{:?}, {:?}, event {cut} of {first} to {last}", moment.options, moment.operation);
            let mut tree = moment.open(&*image.storage());
            tree.check().unwrap_or_else(|error| panic!("{what}: {error}"));
            let found = search(&tree, false);
            assert!(found == after || cut < last && found == before, "{what}: {} entries", found.len());
        }
    }
}

#[test]
fn a_power_loss_while_children_of_a_wide_node_change_loses_nothing() {
    for (rebalancing, is_growing) in
        BOTH.into_iter().flat_map(|rebalancing| [(rebalancing, true), (rebalancing, false)])
    {
        changes_below_a_wide_root(rebalancing, is_growing, 1).iter().for_each(lose_power);
    }
}

/// Entries are inserted and deleted in either line of the header, and then the leaf is split.
#[test]
fn a_power_loss_where_headers_have_two_lines_loses_nothing() {
    for (leaves, rebalancing) in FORMS.into_iter().flat_map(|leaves| BOTH.map(|rebalancing| (leaves, rebalancing))) {
        let options = Options { leaves, ..options(PersistenceDomain::Adr, TWO_LINES, rebalancing) };
        let early = coming(0, 370);
        let gone = |number: usize| (false, early[number].1);
        let mut series = vec![coming(10_000, 1)[0], gone(365), gone(320), gone(3)];
        series.extend(coming(20_000, 20));
        let chosen = |number, is_committed| number < 5 || is_committed;
        moments(&options, &early, &series, chosen).iter().for_each(lose_power);
    }
}

/// A leaf with too few entries shares those of its neighbour, or takes them all. The log has two
/// bitmaps, each with words in two lines.
#[test]
fn a_power_loss_while_neighbours_with_two_lines_of_bitmaps_are_repaired_loses_nothing() {
    for rebalancing in BOTH {
        let options = options(PersistenceDomain::Adr, TWO_LINES, rebalancing);
        let early = coming(0, 750);
        // From one side to the other.
        let mut series: Vec<Operation> = early.iter().map(|&(_, entry)| (false, entry)).collect();
        series.sort_by(|(_, (left, _)), (_, (right, _))| left.min()[0].total_cmp(&right.min()[0]));
        let moments = moments(&options, &early, &series, |_, is_committed| is_committed);
        let mut chosen = BTreeMap::new();
        for moment in moments {
            let mut tree = moment.open(&*moment.image.storage());
            let before = tree.check().unwrap();
            operate(&tree, moment.operation);
            let after = tree.check().unwrap();
            if before.height == 1 {
                chosen.entry(before.leaves - after.leaves).or_insert(moment);
            }
        }
        assert!(chosen.keys().eq(&[0, 1]), "{rebalancing:?}: {:?}", chosen.keys());
        chosen.values().for_each(lose_power);
    }
}
