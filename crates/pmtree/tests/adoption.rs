//! Searches that begin before the first writer of a session comes to a leaf whose entries validate themselves.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::interrupting::{At, Interrupting, Stopped, interrupt};
use crate::support::{BOTH, options};
use terrane_pmem::PersistenceDomain;
use terrane_pmtree::{FbrTree, LeafForm, Options, Rect, SearchMode};
use terrane_storage::crash::{Budget, Controller, NameOrder};

type Tree = FbrTree<2, Interrupting>;

/// All that nobody has fenced is lost.
const NOTHING_LEFT: Budget = Budget { exhaustive_pending: 0, samples: 0, name_order: NameOrder::AnySubset };

const IS_THERE: u64 = 0;
const IS_NEW: u64 = 9;

fn point(number: u64) -> Rect<2> {
    Rect::point([number as f64, 0.0]).unwrap()
}

fn found(tree: &Tree, number: u64, is_look_up: bool) -> bool {
    if is_look_up {
        return tree.contains(&point(number), number).unwrap();
    }
    let mut is_found = false;
    tree.window(&point(number), SearchMode::Validated, |_, payload| is_found |= payload == number).unwrap();
    is_found
}

/// The search goes by tags, the writer makes the bitmap and changes a tag or a generation: what the search tells of that would be lost
/// if it came before the writer's fence.
#[test]
fn what_a_search_tells_of_a_leaf_that_is_adopted_meanwhile_survives_a_power_loss() {
    for (rebalancing, number) in BOTH.into_iter().flat_map(|way| [(way, IS_THERE), (way, IS_NEW)]) {
        let options = Options { leaves: LeafForm::SelfValidating, ..options(PersistenceDomain::Adr, 4, rebalancing) };
        let controller = Controller::new();
        let tree = Tree::create(&*controller.storage(), "tree", &options).unwrap();
        (IS_THERE..3).for_each(|number| tree.insert(&point(number), number).unwrap());
        tree.close().unwrap();
        let closed = controller.process_kill(controller.events());
        for is_look_up in [true, false] {
            for load in 0.. {
                let controller = closed.restart();
                let tree = Arc::new(Tree::open(&*controller.storage(), "tree", &options).unwrap());
                let (writer, stopped) = (tree.clone(), Rc::new(RefCell::new(None)));
                let change = move || match number {
                    IS_NEW => writer.insert(&point(number), number).unwrap(),
                    _ => assert!(writer.delete(&point(number), number).unwrap()),
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
