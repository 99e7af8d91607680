//! Exact look-ups are linearizable, even of entries that exist several times. An entry that
//! replaces a deleted one is not mixed with it, whatever the progress of the deletion when it was
//! read.

use std::sync::{Arc, Mutex};

use crate::support::{options, random};
use rand::Rng;
use terrane_pmem::PersistenceDomain;
use terrane_pmem::interrupting::{At, Interrupting, Stopped, interrupt, interrupt_again, loads_of};
use terrane_pmtree::Rect;
use terrane_pmtree::fbr::{FbrTree, LeafForm, Options, Rebalancing, SearchMode};
use terrane_testkit::crash::Controller;

type Tree = FbrTree<2, Interrupting>;

const PAYLOAD: u64 = 7;

fn place() -> Rect<2> {
    Rect::point([6.0, 6.0]).unwrap()
}

/// Overlapping boxes, with the wanted entry among them.
fn tree(seed: u64, options: &Options) -> Tree {
    let controller = Controller::new();
    let tree = Tree::create(&*controller.storage(), "tree", options).unwrap();
    let mut random = random(seed);
    let count = random.random_range(5..14_u64);
    let at = random.random_range(0..count);
    for number in 0..count {
        if number == at {
            tree.insert(&place(), PAYLOAD).unwrap();
        }
        let min = [f64::from(random.random_range(0..12)), f64::from(random.random_range(0..12))];
        let max = min.map(|min| min + f64::from(random.random_range(0..6)));
        tree.insert(&Rect::new(min, max).unwrap(), 100 + number).unwrap();
    }
    tree
}

/// Entries that a search meets before the wanted one.
fn met_before(tree: &Tree) -> usize {
    let (mut before, mut is_met) = (0, false);
    let everywhere = Rect::new([-1.0; 2], [99.0; 2]).unwrap();
    tree.window(&everywhere, SearchMode::Validated, |_, payload| {
        is_met |= payload == PAYLOAD;
        before += usize::from(!is_met);
    })
    .unwrap();
    assert!(is_met);
    before
}

/// A deletion of the entry that has found it, and done no more.
fn begun_deletion(tree: &Arc<Tree>) -> Stopped {
    let of_look_up = loads_of(|| tree.contains(&place(), PAYLOAD).unwrap());
    let deleting = tree.clone();
    Stopped::start(At::Load, of_look_up, move || assert!(deleting.delete(&place(), PAYLOAD).unwrap()))
}

/// A second copy is inserted into a leaf that a look-up has passed, before the first one is
/// deleted.
fn passes_a_look_up(tree: &Arc<Tree>) {
    let deletion = begun_deletion(tree);
    tree.insert(&place(), PAYLOAD).unwrap();
    assert_eq!(Stopped::end([deletion]), [true]);
}

#[test]
fn an_entry_of_which_there_always_is_one_is_never_missed() {
    for leaves in [LeafForm::Bitmap, LeafForm::SelfValidating] {
        for rebalancing in [Rebalancing::InPlace, Rebalancing::CopyOnWrite] {
            let options = Options { leaves, ..options(PersistenceDomain::Adr, 4, rebalancing) };
            let mut moved = 0;
            for seed in 0..90 {
                let shape = Arc::new(tree(seed, &options));
                let before = met_before(&shape);
                passes_a_look_up(&shape);
                if met_before(&shape) >= before {
                    continue;
                }
                moved += 1;
                for load in 0.. {
                    let tree = Arc::new(tree(seed, &options));
                    let other = tree.clone();
                    let writer = move || passes_a_look_up(&other);
                    let (is_found, is_interrupted) =
                        interrupt(At::Load, load, writer, || tree.contains(&place(), PAYLOAD).unwrap());
                    assert!(is_found, "seed {seed}, load {load}, {leaves:?}, {rebalancing:?}");
                    if !is_interrupted {
                        break;
                    }
                }
            }
            assert!(moved > 3, "in {moved} trees it moves to a leaf that is read before");
        }
    }
}

/// A deletion that has found its entry through a root which another deletion lowers, and below
/// which the tree grows again.
#[test]
fn a_deletion_by_way_of_a_root_that_went_leaves_no_node_with_too_few_entries() {
    const GROWN: u64 = 5;
    let point = |number: u64| Rect::point([number as f64, (number * 7 % 5) as f64]).unwrap();
    for rebalancing in [Rebalancing::InPlace, Rebalancing::CopyOnWrite] {
        let options = options(PersistenceDomain::Adr, 4, rebalancing);
        for deleted in 0..GROWN {
            let tree = || {
                let tree = Tree::create(&*Controller::new().storage(), "tree", &options).unwrap();
                (0..GROWN).for_each(|number| tree.insert(&point(number), number).unwrap());
                tree
            };
            let shape = tree();
            // The deletion's search has the same number of loads. At its end there are no locks
            // yet.
            let of_search = loads_of(|| shape.contains(&point(deleted), deleted).unwrap());
            for load in 0..=of_search {
                let tree = Arc::new(tree());
                let other = tree.clone();
                let shrink_and_grow = move || {
                    for number in (0..GROWN).filter(|&number| number != deleted) {
                        assert!(other.delete(&point(number), number).unwrap());
                    }
                    (10..10 + GROWN).for_each(|number| other.insert(&point(number), number).unwrap());
                };
                let deletion = || tree.delete(&point(deleted), deleted).unwrap();
                assert_eq!(interrupt(At::Load, load, shrink_and_grow, deletion), (true, true));
                let census = Arc::into_inner(tree).unwrap().check().unwrap();
                assert_eq!((census.entries, census.underfull), (GROWN, 0), "{deleted}, load {load}: {census:?}");
            }
        }
    }
}

/// A deletion that has found its entry through an inner node that others have replaced by copies.
#[test]
fn a_deletion_by_way_of_a_node_that_was_copied_repairs_its_copy() {
    const ENTRIES: u64 = 22;
    let options = options(PersistenceDomain::Adr, 4, Rebalancing::CopyOnWrite);
    for seed in 0..10 {
        let mut random = random(seed);
        let points: Vec<Rect<2>> = (0..2 * ENTRIES)
            .map(|_| {
                Rect::point([f64::from(random.random_range(0..99)), f64::from(random.random_range(0..99))]).unwrap()
            })
            .collect();
        let entry = |number: u64| (&points[number as usize], number);
        let tree = || {
            let tree = Tree::create(&*Controller::new().storage(), "tree", &options).unwrap();
            (0..ENTRIES).for_each(|number| tree.insert(entry(number).0, number).unwrap());
            tree
        };
        for deleted in 0..ENTRIES {
            for is_growing in [true, false] {
                let shape = tree();
                let (point, payload) = entry(deleted);
                let of_search = loads_of(|| shape.contains(point, payload).unwrap());
                let tree = Arc::new(tree());
                let (other, points) = (tree.clone(), points.clone());
                let others = move || {
                    for number in (0..ENTRIES).filter(|&number| number != deleted).take(14) {
                        match is_growing {
                            true => other.insert(&points[(ENTRIES + number) as usize], ENTRIES + number).unwrap(),
                            false => assert!(other.delete(&points[number as usize], number).unwrap()),
                        }
                    }
                };
                let deletion = || tree.delete(point, payload).unwrap();
                assert_eq!(interrupt(At::Load, of_search, others, deletion), (true, true));
                let census = Arc::into_inner(tree).unwrap().check().unwrap();
                let left = if is_growing { ENTRIES - 1 + 14 } else { ENTRIES - 1 - 14 };
                assert_eq!((census.entries, census.underfull), (left, 0), "seed {seed}, {deleted}, {census:?}");
            }
        }
    }
}

#[test]
fn what_is_not_there_is_looked_for_twice_and_told_beside_a_writer() {
    let options = options(PersistenceDomain::Adr, 4, Rebalancing::InPlace);
    for load in 0.. {
        let tree = Arc::new(tree(11, &options));
        let other = tree.clone();
        let writer = move || passes_a_look_up(&other);
        let (is_found, is_interrupted) =
            interrupt(At::Load, load, writer, || tree.contains(&place(), PAYLOAD + 1).unwrap());
        assert!(!is_found, "load {load}");
        if !is_interrupted {
            break;
        }
    }
}

/// The hole of unvalidated searches, for one entry. The box is read of an entry that is deleted
/// then, and the payload of the next one in its place. Both lie between others, so that no box
/// changes. The leaf has a sibling, or is the root.
#[test]
fn what_takes_the_place_of_an_entry_is_not_found_by_the_box_of_that() {
    let (old, new) = (Rect::point([5.0, 5.0]).unwrap(), Rect::point([6.0, 6.0]).unwrap());
    let elsewhere = [0.0, 10.0, 1000.0, 1010.0].map(|at| Rect::point([at; 2]).unwrap());
    for leaves in [LeafForm::Bitmap, LeafForm::SelfValidating] {
        for others in [2, 4] {
            let options = Options { leaves, ..options(PersistenceDomain::Adr, 4, Rebalancing::InPlace) };
            for load in 0.. {
                let tree = Tree::create(&*Controller::new().storage(), "tree", &options).unwrap();
                (100..).zip(&elsewhere[..others]).for_each(|(payload, rect)| tree.insert(rect, payload).unwrap());
                tree.insert(&old, 1).unwrap();
                let tree = Arc::new(tree);
                let other = tree.clone();
                let replace = move || {
                    assert!(other.delete(&old, 1).unwrap());
                    other.insert(&new, 2).unwrap();
                };
                let (is_found, is_interrupted) = interrupt(At::Load, load, replace, || tree.contains(&old, 2).unwrap());
                assert!(!is_found, "load {load}, {others} others, {leaves:?}");
                if !is_interrupted {
                    break;
                }
            }
        }
    }
}

#[test]
fn what_else_has_the_box_of_an_entry_is_not_read_once_it_is_found() {
    const ENTRIES: u64 = 60;
    let tree =
        Tree::create(&*Controller::new().storage(), "tree", &options(PersistenceDomain::Adr, 4, Rebalancing::InPlace))
            .unwrap();
    (0..ENTRIES).for_each(|payload| tree.insert(&place(), payload).unwrap());
    let loads = |payload| loads_of(|| tree.contains(&place(), payload).unwrap());
    let absent = loads(ENTRIES);
    let least = (0..ENTRIES).map(loads).min().unwrap();
    assert!(least * 10 < absent, "{least} loads for the entry that is met first, {absent} for one that is not there");
}

/// A search that begins in the middle of a deletion and continues when another entry has the place.
#[test]
fn an_entry_is_not_mixed_with_what_takes_its_place_after_a_deletion_that_was_read_half_done() {
    let entries: Vec<(Rect<2>, u64)> = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
        .into_iter()
        .zip(1..)
        .map(|(at, n)| (Rect::point(at).unwrap(), n))
        .collect();
    let new = (Rect::point([8.0, 9.0]).unwrap(), 9);
    let everywhere = Rect::new([0.0; 2], [99.0; 2]).unwrap();
    for leaves in [LeafForm::Bitmap, LeafForm::SelfValidating] {
        let options = Options { leaves, ..options(PersistenceDomain::Adr, 4, Rebalancing::InPlace) };
        let mut searches = 0;
        for change in 0.. {
            let mut has_stopped = false;
            for load in 0.. {
                let controller = Controller::new();
                let tree = Tree::create(&*controller.storage(), "tree", &options).unwrap();
                entries.iter().for_each(|(rect, payload)| tree.insert(rect, *payload).unwrap());
                let tree = Arc::new(tree);
                let (other, (gone, payload)) = (tree.clone(), entries[0]);
                let writer = Stopped::start(At::Change, change, move || {
                    assert!(other.delete(&gone, payload).unwrap());
                    other.insert(&new.0, new.1).unwrap();
                });
                let ended = Arc::new(std::sync::Mutex::new(None));
                let end = {
                    let ended = ended.clone();
                    move || *ended.lock().unwrap() = Some(Stopped::end([writer])[0])
                };
                let mut found = Vec::new();
                let search = || {
                    tree.window(&everywhere, SearchMode::Validated, |rect, payload| found.push((*rect, payload)))
                        .unwrap();
                };
                let ((), is_interrupted) = interrupt(At::Load, load, end, search);
                if !is_interrupted {
                    break;
                }
                has_stopped |= ended.lock().unwrap().take() == Some(true);
                searches += 1;
                let is_one = |entry: &(Rect<2>, u64)| entries.contains(entry) || *entry == new;
                assert!(found.iter().all(is_one), "change {change}, load {load}, {leaves:?}: {found:?}");
                assert!(
                    entries[1..].iter().all(|entry| found.contains(entry)),
                    "change {change}, load {load}: {found:?}"
                );
            }
            if !has_stopped {
                break;
            }
        }
        assert!(searches > 100, "{searches} searches");
    }
}

/// Three leaves whose boxes contain the place, below two nodes. New entries there go first to the
/// last leaf that a search meets, later to the one before it, and after [`redirect`] to another one
/// before that.
fn nested(options: &Options) -> Arc<Tree> {
    let tree = Tree::create(&*Controller::new().storage(), "tree", options).unwrap();
    for number in 0..7 {
        let beyond = 100.0 + 10.0 * number as f64;
        tree.insert(&Rect::new([-beyond, 0.0], [7.0, 12.0]).unwrap(), 100 + number).unwrap();
        tree.insert(&Rect::new([5.0, 0.0], [beyond, 12.0]).unwrap(), 200 + number).unwrap();
    }
    tree.insert(&place(), PAYLOAD).unwrap();
    tree.insert(&Rect::new([6.0, -30.0], [7.0, 7.0]).unwrap(), 300).unwrap();
    // The first change of a leaf shows by more than its number.
    tree.insert(&place(), PAYLOAD + 1).unwrap();
    assert!(tree.delete(&place(), PAYLOAD + 1).unwrap());
    Arc::new(tree)
}

/// Makes the leaf to which the next entry would go larger than another one.
fn redirect(tree: &Tree) {
    tree.insert(&Rect::new([-60.0, -6.0], [-50.0, 7.0]).unwrap(), 301).unwrap();
}

/// Number of copies of the wanted entry.
fn times(tree: &Tree) -> usize {
    let mut times = 0;
    tree.window(&place(), SearchMode::Validated, |_, payload| times += usize::from(payload == PAYLOAD)).unwrap();
    times
}

/// Continues a deletion, and stops it as soon as its entry is gone.
fn run_until_deleted(tree: &Tree, deletion: &Stopped) {
    let before = times(tree);
    while times(tree) == before {
        deletion.resume_until(At::Change, 0);
    }
}

/// An entry is always there, in one leaf after the other, and a look-up meets none, twice. Each
/// deletion is stopped when its entry is gone, so only its earlier steps can show it.
#[test]
fn what_two_deletions_under_way_leave_elsewhere_is_not_missed() {
    const STRIDE: usize = 4;
    for leaves in [LeafForm::Bitmap, LeafForm::SelfValidating] {
        let options = Options { leaves, ..options(PersistenceDomain::Adr, 4, Rebalancing::InPlace) };
        let mut moves = 0;
        for first in (0..).step_by(STRIDE) {
            let mut second = 0;
            let is_whole = loop {
                let tree = nested(&options);
                let under_way = Arc::new(Mutex::new(Vec::new()));
                let (moved, deletions) = (tree.clone(), under_way.clone());
                let move_before = move || {
                    let before = met_before(&moved);
                    let deletion = begun_deletion(&moved);
                    moved.insert(&place(), PAYLOAD).unwrap();
                    assert!(met_before(&moved) < before);
                    run_until_deleted(&moved, &deletion);
                    deletions.lock().unwrap().push(deletion);
                };
                let (led, move_again) = (tree.clone(), move_before.clone());
                let move_twice = move || {
                    move_before();
                    interrupt_again(At::Load, second, move || {
                        redirect(&led);
                        move_again();
                    });
                };
                let look_up = || tree.contains(&place(), PAYLOAD).unwrap();
                let (is_found, was_interrupted) = interrupt(At::Load, first, move_twice, look_up);
                let under_way = std::mem::take(&mut *under_way.lock().unwrap());
                moves += usize::from(under_way.len() == 2);
                assert!(Stopped::end(under_way).into_iter().all(|has_stopped| has_stopped));
                assert!(is_found, "loads {first} and {second}, {leaves:?}");
                if !was_interrupted {
                    break second == 0;
                }
                second += STRIDE;
            };
            if is_whole {
                break;
            }
        }
        assert!(moves > 1000, "{moves}");
    }
}
