//! Searches in the middle of writers' operations, and operations in the middle of searches, at
//! every place.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::scenario::{COMMIT, Operation, SEARCHES, Scenario, Search, entries, inserts, point};
use crate::support::{FORMS, configurations, options, random, rect};
use rand::Rng;
use rand::seq::SliceRandom;
use terrane_pmem::interrupting::{At, Stopped, interrupt};
use terrane_pmem::{Instruction, PersistenceDomain};
use terrane_pmtree::Rect;
use terrane_pmtree::fbr::{LeafForm, Options, Rebalancing};
use terrane_testkit::crash::{Budget, Image, NameOrder};
use terrane_testkit::is_soak;

/// All entries, depth first and best first.
const EVERYTHING: [Search; 2] = [SEARCHES[0], SEARCHES[3]];

/// Where entries that one of two nodes takes from the other one are durable in both.
const REDISTRIBUTE: At = At::Fence("fbr.complete.redistribute");

/// Insertions that split leaves, inner nodes and the root; deletions that merge and redistribute;
/// an entry's place that is reused, once and as often as a version of 8 bits has values, counted by
/// deletions alone and with insertions.
fn scenarios() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for options in configurations(PersistenceDomain::Adr) {
        let fan_out = options.fan_out;
        let scenario = |name, entries, operations| Scenario { name, options: options.clone(), entries, operations };
        let few = if fan_out == 4 { 21 } else { 75 };
        scenarios.push(scenario("splits", entries(few), inserts(few)));
        scenarios.push(scenario("a split of the root", entries(fan_out as u64), inserts(1)));
        let all = entries(few);
        let deletes = all.iter().take(few as usize - 3).map(|&(rect, payload)| Operation::Delete(rect, payload));
        scenarios.push(scenario("merges", all.clone(), deletes.collect()));
        let reuse = vec![Operation::Delete(all[0].0, 0), Operation::Insert(point(29.0, 29.0), 7777)];
        scenarios.push(scenario("a place used again", all[..3].to_vec(), reuse));
        let mut wrap = vec![Operation::Delete(all[0].0, 0)];
        for number in 0..255 {
            let passing = point(f64::from(number), 5.0);
            wrap.push(Operation::Insert(passing, 8000));
            wrap.push(Operation::Delete(passing, 8000));
        }
        wrap.push(Operation::Insert(point(3.0, 29.0), 8001));
        scenarios.push(scenario("a place used 256 times", all[..3].to_vec(), wrap));
        // A leaf below a root, which stays as it is. There are two leaves, and the changing entries
        // lie within the box of one.
        let half = fan_out as u64 * 3 / 4;
        let at = |place: f64, number: u64| (point(place + (number * 7 % half) as f64, number as f64), number);
        let below = (0..half).map(|number| at(0.0, number)).chain((half..2 * half).map(|number| at(99.0, number)));
        let below: Vec<_> = below.collect();
        let inside = half as usize / 2;
        let reuse = vec![Operation::Delete(below[inside].0, inside as u64), Operation::Insert(point(0.75, 1.25), 7777)];
        scenarios.push(scenario("a place used again in a leaf below a root", below, reuse));
    }
    scenarios
}

/// Runs whole operations between any two loads of a search.
fn interrupt_everywhere(scenario: &Scenario, image: &Image, operations: Range<usize>, search: &Search) {
    for number in 0.. {
        let tree = scenario.open(&*image.storage());
        if scenario.name.starts_with("a place used") {
            // The first change in a session shows by more than the number that this test is about.
            let passing = point(1.0, 1.0);
            let both = [Operation::Insert(passing, 9000), Operation::Delete(passing, 9000)];
            Scenario::run(&tree, &both);
        }
        let (writer, run) = (tree.clone(), scenario.operations[operations.clone()].to_vec());
        let write = move || Scenario::run(&writer, &run);
        let (found, was_interrupted) = interrupt(At::Load, number, write, || search.run(&tree));
        if !was_interrupted {
            break;
        }
        scenario.check(search, &found, operations.start, operations.end, &format!("after {number} loads"));
    }
}

#[test]
fn operations_between_any_two_loads_of_a_search_lose_and_repeat_nothing() {
    for (scenario, search) in scenarios().iter().flat_map(|scenario| SEARCHES.map(|search| (scenario, search))) {
        // So long a series tests only the leaf, which all searches read alike.
        if scenario.operations.len() > 500 && !matches!(search, Search::Window(min, _) if min[0] < 0.0) {
            continue;
        }
        interrupt_everywhere(scenario, &scenario.after(0), 0..scenario.operations.len(), &search);
    }
}

/// A search that finds an entry of a leaf finds all that were inserted into that leaf before.
#[test]
fn a_leaf_is_read_as_of_one_instant() {
    for (leaves, count) in FORMS.into_iter().flat_map(|leaves| [(leaves, 3), (leaves, 54)]) {
        let options = Options { leaves, ..options(PersistenceDomain::Adr, 60, Rebalancing::InPlace) };
        let scenario = Scenario { name: "a leaf", options, entries: entries(count), operations: inserts(4) };
        let image = scenario.after(0);
        for number in 0.. {
            let tree = scenario.open(&*image.storage());
            // The first changes of a leaf after an opening are noticed in another way.
            Scenario::run(&tree, &[Operation::Insert(point(0.0, 0.0), 999), Operation::Delete(point(0.0, 0.0), 999)]);
            let (writer, operations) = (tree.clone(), scenario.operations.clone());
            let write = move || Scenario::run(&writer, &operations);
            let (found, was_interrupted) = interrupt(At::Load, number, write, || SEARCHES[0].run(&tree));
            if !was_interrupted {
                break;
            }
            let mut came: Vec<u64> = found.iter().map(|&(_, payload)| payload).filter(|&new| new >= 1000).collect();
            came.sort_unstable();
            let is_first = came.iter().copied().eq((1000..).take(came.len()));
            assert!(is_first, "{came:?} of {leaves:?}, {count} entries, after {number} loads");
        }
    }
}

#[test]
fn searches_between_any_two_steps_of_operations_lose_and_repeat_nothing() {
    for scenario in scenarios() {
        for (done, operation) in scenario.chosen() {
            let image = scenario.after(done);
            for number in 0.. {
                let tree = scenario.open(&*image.storage());
                let found = Arc::new(Mutex::new(Vec::new()));
                let (reader, finds) = (tree.clone(), found.clone());
                let search = move || *finds.lock().unwrap() = SEARCHES.map(|search| search.run(&reader)).to_vec();
                let write = || Scenario::run(&tree, std::slice::from_ref(operation));
                let (_, was_interrupted) = interrupt(At::Change, number, search, write);
                if !was_interrupted {
                    break;
                }
                for (search, found) in SEARCHES.iter().zip(&*found.lock().unwrap()) {
                    scenario.check(search, found, done, done + 1, &format!("{operation:?} after {number} changes"));
                }
            }
        }
    }
}

/// The stops of an operation.
#[derive(Clone, Copy, Debug)]
struct Stops {
    /// Where counting begins, if not at the start.
    from: Option<(At, usize)>,
    /// Changes between two stops.
    stride: usize,
    /// The most changes.
    count: usize,
}

impl Stops {
    fn every(stride: usize) -> Self {
        Self { from: None, stride, count: usize::MAX }
    }
}

/// Begins an operation at every few loads of a search, stops it at some of its changes, and ends it
/// after the search, or meanwhile if it has no more steps.
fn interleave(scenario: &Scenario, image: &Image, done: usize, search: &Search, loads: usize, stops: Stops) {
    let operation = &scenario.operations[done];
    for place in (0..).step_by(loads) {
        for number in (place % stops.stride..stops.count).step_by(stops.stride) {
            let tree = scenario.open(&*image.storage());
            let writer = Arc::new(Mutex::new(None));
            let (begun, writing, operation_begun) = (tree.clone(), writer.clone(), operation.clone());
            let begin = move || {
                let write = move || Scenario::run(&begun, &[operation_begun]);
                let (at, first) = stops.from.unwrap_or((At::Change, number));
                let stopped = Stopped::start(at, first, write);
                if stops.from.is_some() {
                    stopped.resume_until(At::Change, number);
                }
                *writing.lock().unwrap() = Some(stopped);
            };
            let (found, was_interrupted) = interrupt(At::Load, place, begin, || search.run(&tree));
            let Some(writer) = writer.lock().unwrap().take() else { return };
            let has_stopped = Stopped::end([writer]) == [true];
            assert!(was_interrupted);
            let what = format!("{operation:?}, {number} changes, {stops:?}, after {place} loads");
            scenario.check(search, &found, done, done + 1, &what);
            if !has_stopped {
                break;
            }
        }
    }
}

#[test]
fn parts_of_operations_between_any_two_loads_of_a_search_lose_and_repeat_nothing() {
    let (loads, stride) = if is_soak() { (1, 1) } else { (2, 7) };
    for scenario in scenarios().into_iter().filter(|scenario| scenario.options.fan_out == 4) {
        let chosen = scenario.chosen().filter(|(done, _)| done % 3 == 0);
        for (number, (done, _)) in chosen.enumerate() {
            let search = &SEARCHES[number % SEARCHES.len()];
            interleave(&scenario, &scenario.after(done), done, search, loads, Stops::every(stride));
        }
    }
}

/// A search that reaches the node which an entry leaves, and not the one to which it goes, because
/// of boxes that it read before.
#[test]
fn entries_that_move_while_only_one_of_the_nodes_is_read_are_found() {
    let committed = Stops { from: Some((COMMIT, 0)), stride: 1, count: 1 };
    for scenario in
        scenarios().into_iter().filter(|scenario| scenario.options.fan_out == 4 && scenario.name == "merges")
    {
        // Entries move in the same steps in leaves of both forms.
        let (loads, changes) = match scenario.options.leaves {
            _ if is_soak() => (1, 1),
            LeafForm::Bitmap => (5, 4),
            LeafForm::SelfValidating => (13, 9),
        };
        for done in 0..scenario.operations.len() {
            let image = scenario.after(done);
            let tree = scenario.open(&*image.storage());
            let run = || Scenario::run(&tree, &scenario.operations[done..=done]);
            const REBALANCING: usize = 12;
            if !interrupt(At::Change, REBALANCING, || (), run).1 {
                continue;
            }
            for (rect, _) in scenario.neighbours(done) {
                let search = Search::Window(*rect.min(), *rect.max());
                interleave(&scenario, &image, done, &search, loads, Stops::every(changes));
                interleave(&scenario, &image, done, &search, 2, committed);
            }
        }
    }
}

/// A search that reads the node to which entries move before the commitment, and the one that they
/// leave after it. The first one's box contains them already, so the parent does not change before.
#[test]
fn entries_that_move_into_a_box_which_held_them_already_are_found() {
    let options = options(PersistenceDomain::Adr, 4, Rebalancing::InPlace);
    let mut moves = 0;
    for seed in 0..if is_soak() { 100 } else { 10 } {
        let mut random = random(seed);
        let mut entries: Vec<(Rect<2>, u64)> = (0..14).map(|payload| (rect(&mut random, 30), payload)).collect();
        for number in 0..4 {
            let around = Rect::new([0.0; 2], [32.0 - number as f64; 2]).unwrap();
            entries.insert(random.random_range(0..entries.len()), (around, 100 + number));
        }
        let deletes = entries.iter().skip(2).map(|&(rect, payload)| Operation::Delete(rect, payload)).collect();
        let scenario = Scenario { name: "nested boxes", options: options.clone(), entries, operations: deletes };
        for done in 0..scenario.operations.len() {
            let image = scenario.after(done);
            let tree = scenario.open(&*image.storage());
            let run = || Scenario::run(&tree, &scenario.operations[done..=done]);
            if !interrupt(COMMIT, 0, || (), run).1 {
                continue;
            }
            moves += 1;
            let stops = Stops { from: Some((COMMIT, 0)), stride: 1, count: 1 };
            for search in EVERYTHING {
                interleave(&scenario, &image, done, &search, 1, stops);
            }
        }
    }
    assert!(moves > 20, "{moves}");
}

/// The same for nodes whose boxes all stay as they are. Only the parent's number tells that entries
/// moved.
#[test]
fn entries_that_move_and_leave_all_boxes_as_they_are_are_found() {
    let options = options(PersistenceDomain::Adr, 4, Rebalancing::InPlace);
    let mut moves = [0; 2];
    for seed in 0..if is_soak() { 30 } else { 3 } {
        let mut random = random(seed);
        let alike = Rect::new([1.0; 2], [2.0; 2]).unwrap();
        let entries: Vec<(Rect<2>, u64)> = (0..18).map(|payload| (alike, payload)).collect();
        let mut deleted: Vec<u64> = (0..18).collect();
        deleted.shuffle(&mut random);
        let deletes = deleted.into_iter().skip(2).map(|payload| Operation::Delete(alike, payload)).collect();
        let scenario = Scenario { name: "alike boxes", options: options.clone(), entries, operations: deletes };
        for done in 0..scenario.operations.len() {
            let image = scenario.after(done);
            let comes_to = |site| {
                let tree = scenario.open(&*image.storage());
                interrupt(site, 0, || (), || Scenario::run(&tree, &scenario.operations[done..=done])).1
            };
            if comes_to(COMMIT) {
                moves[usize::from(comes_to(REDISTRIBUTE))] += 1;
                for search in EVERYTHING {
                    interrupt_everywhere(&scenario, &image, done..done + 1, &search);
                }
            }
        }
    }
    assert!(moves.iter().all(|count| *count > 3), "merges and redistributions: {moves:?}");
}

/// A search that has read a node's log word before the node was tied to a change, and its contents
/// after the change was applied.
#[test]
fn a_node_that_was_tied_to_a_change_while_it_was_read_is_read_again() {
    let mut changes = 0;
    for scenario in scenarios().into_iter().filter(|scenario| scenario.options.fan_out == 4) {
        let stops = Stops { from: Some((COMMIT, 0)), stride: 1, count: 4 };
        for done in (0..scenario.operations.len()).step_by(if is_soak() { 1 } else { 10 }) {
            let image = scenario.after(done);
            let tree = scenario.open(&*image.storage());
            if interrupt(COMMIT, 0, || (), || Scenario::run(&tree, &scenario.operations[done..=done])).1 {
                changes += 1;
                for search in EVERYTHING {
                    interleave(&scenario, &image, done, &search, 1, stops);
                }
            }
        }
    }
    assert!(changes > 3, "{changes}");
}

/// A search that knows the old half of a split by a box that has shrunk, and the new one not at
/// all. All searches run, stopped between any two of their reads, with the split stopped at any
/// step from the linking of the new half on.
#[test]
fn entries_of_a_new_half_that_was_linked_after_the_parent_was_read_are_found() {
    // The number changes, and each coordinate may shrink.
    const STEPS: usize = 7;
    for scenario in
        scenarios().into_iter().filter(|scenario| scenario.options.fan_out == 4 && scenario.name == "splits")
    {
        // Copies are linked by the commitment.
        if scenario.options.rebalancing == Rebalancing::CopyOnWrite {
            continue;
        }
        // Entries move in the same steps in leaves of both forms.
        let loads = match scenario.options.leaves {
            _ if is_soak() => 1,
            LeafForm::Bitmap => 4,
            LeafForm::SelfValidating => 13,
        };
        let mut links = 0;
        for done in 0..scenario.operations.len() {
            let image = scenario.after(done);
            // The fence of its bit; that of its entry has another name.
            for bit in 0.. {
                let from = (At::Fence("fbr.complete.link"), bit);
                let tree = scenario.open(&*image.storage());
                let run = || Scenario::run(&tree, &scenario.operations[done..=done]);
                if !interrupt(from.0, from.1, || (), run).1 {
                    break;
                }
                links += 1;
                let stops = Stops { from: Some(from), stride: 1, count: STEPS };
                let neighbours = scenario.neighbours(done).into_iter().skip(1);
                let windows = neighbours.map(|(rect, _)| Search::Window(*rect.min(), *rect.max()));
                for search in windows.take(if is_soak() { usize::MAX } else { 4 }).chain(SEARCHES.into_iter().skip(1)) {
                    interleave(&scenario, &image, done, &search, loads, stops);
                }
            }
            if !is_soak() && links > 2 {
                break;
            }
        }
        assert!(links > 1, "{links}");
    }
}

/// A search that begins after a commitment. Between any two of its reads it may meet a writer that
/// has just cleared the entry, and not yet the nodes' log words.
#[test]
fn searches_that_follow_a_log_entry_while_it_is_cleared_lose_and_repeat_nothing() {
    const CLEAR: At = At::Fence("fbr.log.clear");
    let mut cleared = 0;
    for scenario in scenarios().into_iter().filter(|scenario| scenario.options.fan_out == 4) {
        for (done, operation) in scenario.chosen() {
            let image = scenario.after(done);
            for search in SEARCHES {
                for place in 0.. {
                    let tree = scenario.open(&*image.storage());
                    let (writing, operation) = (tree.clone(), operation.clone());
                    let writer = Stopped::start(COMMIT, 0, move || Scenario::run(&writing, &[operation]));
                    let writer = Arc::new(writer);
                    let going_on = writer.clone();
                    let clear = move || going_on.resume_until(CLEAR, 0);
                    let (found, was_interrupted) = interrupt(At::Load, place, clear, || search.run(&tree));
                    let has_cleared = Stopped::end(Arc::into_inner(writer)) == [true];
                    scenario.check(&search, &found, done, done + 1, &format!("cleared after {place} loads"));
                    cleared += usize::from(was_interrupted && has_cleared);
                    if !was_interrupted || !has_cleared {
                        break;
                    }
                }
            }
        }
    }
    assert!(cleared > 1000, "{cleared}");
}

/// Searches for the changes of an operation in progress, at each of its steps, and lets the power
/// fail right after. Gives an entry that was seen and is gone after that, if there is one.
fn seen_and_gone(scenario: &Scenario, dropped: Option<(Instruction, &str)>) -> Option<String> {
    let budget = Budget { exhaustive_pending: 6, samples: 12, name_order: NameOrder::AnySubset };
    for (done, operation) in scenario.chosen() {
        let image = scenario.after(done);
        for number in 0.. {
            let controller = image.restart();
            let tree = scenario.open(&*controller.storage());
            if let Some((instruction, site)) = dropped {
                tree.pool().backend().0.leave_out(instruction, site);
            }
            let outcome = Arc::new(Mutex::new(None));
            let (reader, seen, at) = (tree.clone(), outcome.clone(), controller.clone());
            let (Operation::Insert(rect, payload) | Operation::Delete(rect, payload)) = operation.clone();
            let look = move || {
                let is_there = reader.contains(&rect, payload).unwrap();
                *seen.lock().unwrap() = Some((is_there, at.events()));
            };
            let write = || Scenario::run(&tree, std::slice::from_ref(operation));
            let (_, was_interrupted) = interrupt(At::Change, number, look, write);
            if !was_interrupted {
                break;
            }
            let Some((is_there, cut)) = *outcome.lock().unwrap() else { panic!("the search did not run") };
            let is_changed = is_there == matches!(operation, Operation::Insert(..));
            for image in controller.images(cut, &budget, 1) {
                let tree = scenario.open(&*image.storage());
                let is_there_now = tree.contains(&rect, payload).unwrap();
                if is_changed && is_there_now != is_there {
                    return Some(format!("{}: {operation:?} after {number} changes: {image:?}", scenario.name));
                }
            }
        }
    }
    None
}

/// An entry is inserted into a leaf, and one deleted, whose bits are in the second line of its
/// header.
fn headers_of_two_lines() -> Scenario {
    let (options, entries) = (options(PersistenceDomain::Adr, 375, Rebalancing::InPlace), entries(370));
    let operations = [inserts(1), vec![Operation::Delete(entries[365].0, 365)]].concat();
    Scenario { name: "two lines", options, entries, operations }
}

/// Link-and-persist.
#[test]
fn what_a_search_has_seen_of_an_operation_under_way_survives_a_power_loss() {
    for scenario in scenarios().into_iter().chain([headers_of_two_lines()]) {
        assert_eq!(seen_and_gone(&scenario, None), None);
    }
}

#[test]
fn what_a_search_has_seen_is_lost_if_it_does_not_make_it_durable() {
    let scenario = &scenarios()[0];
    for instruction in [Instruction::Flush, Instruction::Fence] {
        let lost = seen_and_gone(scenario, Some((instruction, "fbr.search.persist")));
        assert!(lost.is_some(), "{instruction:?} can be left out");
    }
}
