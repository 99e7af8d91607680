//! Searches in trees with bitmaps, tags and marks of an earlier session.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use crate::scenario::{COMMIT, NOTHING_LEFT, Operation, SEARCHES, Scenario, Tree, entries, inserts, point};
use crate::support::{BOTH, FORMS, options};
use terrane_pmem::PersistenceDomain;
use terrane_pmem::interrupting::{At, Stopped, interrupt};
use terrane_pmtree::Rect;
use terrane_pmtree::fbr::{LeafForm, Options, Rebalancing, SearchMode};
use terrane_storage::event::{Event, PoolEvent};
use terrane_testkit::crash::Controller;

const IS_THERE: u64 = 0;
const IS_NEW: u64 = 9;

fn on_line(number: u64) -> Rect<2> {
    point(number as f64, 0.0)
}

fn found(tree: &Tree, number: u64, is_look_up: bool) -> bool {
    if is_look_up {
        return tree.contains(&on_line(number), number).unwrap();
    }
    let mut is_found = false;
    tree.window(&on_line(number), SearchMode::Validated, |_, payload| is_found |= payload == number).unwrap();
    is_found
}

/// A kill has left an entry with a durable tag, and its bit was not stored yet. The entry was
/// found, so no search may use the bitmap before it has the bit.
#[test]
fn an_entry_without_its_bit_is_found_at_every_step_of_the_writer_that_brings_the_bit() {
    for rebalancing in BOTH {
        let options = Options { leaves: LeafForm::SelfValidating, ..options(PersistenceDomain::Adr, 4, rebalancing) };
        let controller = Controller::new();
        let tree = Tree::create(&*controller.storage(), "tree", &options).unwrap();
        (IS_THERE..2).for_each(|number| tree.insert(&on_line(number), number).unwrap());
        // The last store is that of the bitmap.
        let killed = controller.process_kill(controller.events() - 1);
        for is_look_up in [true, false] {
            for change in 0.. {
                let tree = Arc::new(Tree::open(&*killed.restart().storage(), "tree", &options).unwrap());
                let (reader, seen) = (tree.clone(), Arc::new(Mutex::new(true)));
                let sees = seen.clone();
                let search = move || *sees.lock().unwrap() = found(&reader, 1, is_look_up);
                let write = || tree.insert(&on_line(IS_NEW), IS_NEW).unwrap();
                let ((), was_interrupted) = interrupt(At::Change, change, search, write);
                assert!(*seen.lock().unwrap(), "look-up: {is_look_up}, {rebalancing:?}, change {change}");
                if !was_interrupted {
                    assert!(change > 0);
                    break;
                }
            }
        }
    }
}

/// The search uses tags, while the writer makes the bitmap and changes a tag or a generation. A
/// result of the search before the writer's fence could be lost.
#[test]
fn what_a_search_tells_of_a_leaf_that_is_adopted_meanwhile_survives_a_power_loss() {
    for (rebalancing, number) in BOTH.into_iter().flat_map(|way| [(way, IS_THERE), (way, IS_NEW)]) {
        let options = Options { leaves: LeafForm::SelfValidating, ..options(PersistenceDomain::Adr, 4, rebalancing) };
        let controller = Controller::new();
        let tree = Tree::create(&*controller.storage(), "tree", &options).unwrap();
        (IS_THERE..3).for_each(|number| tree.insert(&on_line(number), number).unwrap());
        tree.close().unwrap();
        let closed = controller.process_kill(controller.events());
        for is_look_up in [true, false] {
            for load in 0.. {
                let controller = closed.restart();
                let tree = Arc::new(Tree::open(&*controller.storage(), "tree", &options).unwrap());
                let (writer, stopped) = (tree.clone(), Rc::new(RefCell::new(None)));
                let change = move || match number {
                    IS_NEW => writer.insert(&on_line(number), number).unwrap(),
                    _ => assert!(writer.delete(&on_line(number), number).unwrap()),
                };
                let begun = stopped.clone();
                let begin = move || *begun.borrow_mut() = Some(Stopped::start(At::BeforeFence, 0, change));
                let (is_found, was_interrupted) = interrupt(At::Load, load, begin, || found(&tree, number, is_look_up));
                let cut = controller.events();
                let Some(writer) = stopped.borrow_mut().take() else { break };
                assert!(was_interrupted && Stopped::end([writer])[0]);
                let has_seen_it = is_found == (number == IS_NEW);
                for image in controller.images(cut, &NOTHING_LEFT, 1).filter(|_| has_seen_it) {
                    let tree = Tree::open(&*image.storage(), "tree", &options).unwrap();
                    let what = format!("{number}, {rebalancing:?}, after {load} loads: {image:?}");
                    assert_eq!(found(&tree, number, is_look_up), is_found, "look-up: {is_look_up}, {what}");
                }
            }
        }
    }
}

/// A split that a kill interrupts leaves the number of its log entry in a node. Later sessions use
/// that log entry for changes of other nodes.
#[test]
fn what_a_killed_split_has_left_in_a_node_ties_it_to_no_later_change() {
    // Entries of the log. The killed one's comes last.
    const PLACES: usize = 32;
    for leaves in FORMS {
        let options = Options { leaves, ..options(PersistenceDomain::Adr, 4, Rebalancing::InPlace) };
        let far = |number: u64| point(1000.0 + (number * 37 % 101) as f64, (number * 53 % 97) as f64);
        let mut all = entries(20);
        all.extend((0..8).map(|number| (far(number), 5000 + number)));
        let mut scenario = Scenario { name: "a killed split", options, entries: all, operations: inserts(20) };
        let controller = scenario.after(0).restart();
        let tree = scenario.open(&*controller.storage());
        let is_commitment =
            |event: &Event| matches!(event, Event::Pool(PoolEvent::Flush { site, .. }) if At::Fence(site) == COMMIT);
        let mut done = 0;
        let commitment = loop {
            Scenario::run(&tree, &scenario.operations[done..=done]);
            match controller.log().iter().position(is_commitment) {
                Some(commitment) => break commitment,
                None => done += 1,
            }
        };
        // All but the store that commits.
        let killed = controller.process_kill(commitment - 1);
        scenario.operations.truncate(done);
        scenario.operations.extend((0..200).map(|number| Operation::Insert(far(8 + number), 6000 + number)));
        let controller = killed.restart();
        let tree = scenario.open(&*controller.storage());
        let commitments = || controller.log().into_iter().filter(is_commitment).count();
        let mut last = done;
        while commitments() < PLACES {
            Scenario::run(&tree, &scenario.operations[last..=last]);
            last += 1;
        }
        for number in 0.. {
            let tree = scenario.open(&*killed.storage());
            Scenario::run(&tree, &scenario.operations[done..last - 1]);
            let found = Arc::new(Mutex::new(Vec::new()));
            let (reader, finds) = (tree.clone(), found.clone());
            let search = move || *finds.lock().unwrap() = SEARCHES.map(|search| search.run(&reader)).to_vec();
            let write = || Scenario::run(&tree, &scenario.operations[last - 1..last]);
            if !interrupt(At::Change, number, search, write).1 {
                break;
            }
            for (search, found) in SEARCHES.iter().zip(&*found.lock().unwrap()) {
                scenario.check(search, found, last - 1, last, &format!("after {number} changes"));
            }
        }
    }
}
