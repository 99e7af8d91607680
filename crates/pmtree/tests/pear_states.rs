//! The recovery states of the PeaR-Tree: crashes bring trees into each of them, and the gaps of the
//! thesis lose or repeat entries where ours do not.

use std::collections::BTreeMap;
use std::sync::Arc;

use terrane_pmem::explorer::{Breadth, Explorer, History, Subject};
use terrane_pmem::interrupting::{At, Interrupting, Stopped};
use terrane_pmem::{Backend, Dropping, PersistenceDomain, ROOT, Traced};
use terrane_pmtree::Rect;
use terrane_pmtree::explored::{Explored, ExploredTree, Pear, Step};
use terrane_pmtree::pear::{Above, Budget, Gap, Options, PearTree, State};
use terrane_testkit::crash::{Budget as Images, Controller, NameOrder};

use crate::scenario::NOTHING_LEFT;

type Tree = PearTree<2, Dropping<Traced>>;

fn configuration(name: &str) -> Explored<Pear> {
    let mut all = Pear::configurations().into_iter();
    all.find(|subject| subject.configuration() == name).expect(name)
}

/// All states that a node can have whose parent was in memory. Parents of marked nodes are in the
/// pool themselves.
const BELOW_MEMORY: [State; 7] = [
    State::State01,
    State::Insert03,
    State::Insert04,
    State::Delete02,
    State::Delete03,
    State::Delete06,
    State::Redistribution,
];

const ALL: [State; 13] = [
    State::State01,
    State::Insert02,
    State::Insert03,
    State::Insert04,
    State::Insert05,
    State::Delete02,
    State::Delete03,
    State::Delete04,
    State::Delete05,
    State::Delete06,
    State::Delete07,
    State::Delete08,
    State::Redistribution,
];

/// Each image that shows a new state is recovered, checked and compared with the history.
#[test]
fn crashes_bring_a_tree_into_each_recovery_state_and_all_are_resolved() {
    let images = Images { exhaustive_pending: 6, samples: 6, name_order: NameOrder::AnySubset };
    let breadth = Breadth { branches: 64, samples: 64, seed: 1 };
    let mut reached: BTreeMap<(State, Above), String> = BTreeMap::new();
    for (name, seeds) in [("pool-4-adr", 1..4), ("mixed-4-adr", 1..4), ("without-parents-4-adr", 1..12)] {
        let subject = configuration(name);
        for seed in seeds {
            let history = History::record(&subject, subject.steps(seed), None).unwrap();
            let mut explorer = Explorer::new(&subject);
            for cut in history.power_cuts_from(0).into_iter().step_by(3) {
                let mut has_new = false;
                for image in history.controller.images(cut, &images, 1) {
                    let storage = image.storage();
                    for state in Tree::recovery_states(&*storage, "tree", &subject.tree.options).unwrap_or_default() {
                        has_new |= !reached.contains_key(&state);
                        reached.entry(state).or_insert_with(|| format!("{name}, seed {seed}, cut {cut}"));
                    }
                }
                if has_new {
                    explorer.power_losses(&history, cut, &breadth).unwrap_or_else(|failure| panic!("{failure}"));
                }
            }
        }
    }
    for ((state, above), place) in &reached {
        println!("| {state:?} | {above:?} | {place} |");
    }
    let pool = ALL.map(|state| (state, Above::Pool));
    let memory = BELOW_MEMORY.map(|state| (state, Above::Memory));
    let missing: Vec<_> = pool.iter().chain(&memory).filter(|state| !reached.contains_key(state)).collect();
    assert!(missing.is_empty(), "{missing:?} were not reached");
}

/// Whether a search for crashes finds one that goes wrong.
fn goes_wrong(name: &str, gap: Option<Gap>, steps: &dyn Fn(&Explored<Pear>, u64) -> Vec<Step>) -> bool {
    let mut subject = configuration(name);
    subject.tree.options.gap = gap;
    let breadth = Breadth { branches: 12, samples: 12, seed: 1 };
    (1..4).any(|seed| {
        let Ok(history) = History::record(&subject, steps(&subject, seed), None) else { return true };
        let mut explorer = Explorer::new(&subject);
        let cuts = history.power_cuts_from(0);
        cuts.into_iter().step_by(3).any(|cut| explorer.power_losses(&history, cut, &breadth).is_err())
    })
}

/// Equal entries. Splits and merges move some of them.
fn equal_entries(_: &Explored<Pear>, seed: u64) -> Vec<Step> {
    let rect = |number: u64| Rect::point([(number * seed % 3) as f64, 0.0]).unwrap();
    let insertions = (0..14).map(|number| Step::Insert(rect(number), number * seed % 3));
    insertions.chain((0..12).map(|number| Step::Delete(rect(number), number * seed % 3))).collect()
}

#[test]
fn gaps_of_the_thesis_lose_entries_or_repeat_them() {
    let usual = |subject: &Explored<Pear>, seed| subject.steps(seed);
    assert!(goes_wrong("pool-4-adr", Some(Gap::Redistribution), &usual), "hole 5");
    assert!(goes_wrong("level-4-adr", Some(Gap::Rebuild), &usual), "hole 6");
    assert!(goes_wrong("mixed-4-adr", Some(Gap::ParentWords), &usual), "hole 2");
    assert!(goes_wrong("pool-4-adr", Some(Gap::Comparison), &equal_entries), "copies by comparison");
    assert!(!goes_wrong("pool-4-adr", None, &equal_entries));
}

/// Inserts into a leaf that a power loss has left locked. Gives whether the insertion waits for
/// the lock, until the test removes it.
fn waits_for_the_lock_of_an_earlier_session(gap: Option<Gap>) -> bool {
    /// An insertion has fewer loads, if it does not wait.
    const LOADS: usize = 10_000;
    /// Offset of the word that names the root, in the tree's block.
    const TOP: u64 = 64;
    let options = Options { gap, ..configuration("pool-4-adr").tree.options };
    let controller = Controller::new();
    let tree = PearTree::<2, Interrupting>::create(&*controller.storage(), "tree", &options).unwrap();
    let rect = Rect::point([3.0; 2]).unwrap();
    tree.insert(&rect, 1).unwrap();
    let image = controller.images(controller.events(), &NOTHING_LEFT, 1).next().unwrap();
    let tree = Arc::new(PearTree::<2, Interrupting>::open(&*image.storage(), "tree", &options).unwrap());
    let backend = tree.pool().backend();
    let leaf = backend.load(backend.load(ROOT) + TOP);
    let meta = backend.load(leaf);
    let inserting = tree.clone();
    let stopped = Stopped::start(At::Load, LOADS, move || inserting.insert(&rect, 2).unwrap());
    if gap.is_some() {
        backend.store(leaf, meta & !1);
    }
    Stopped::end([stopped]) == [true]
}

#[test]
fn only_a_tree_that_ignores_sessions_waits_for_a_lock_that_a_power_loss_has_left() {
    assert!(!waits_for_the_lock_of_an_earlier_session(None));
    assert!(waits_for_the_lock_of_an_earlier_session(Some(Gap::Locks)), "hole 1");
}

/// Grows a tree in memory, and moves it to the pool. Gives whether it is sound then.
fn is_sound_after_moves(gap: Option<Gap>) -> bool {
    let options = Options { gap, budget: Budget::Nodes(u64::MAX), ..configuration("pool-4-adr").tree.options };
    let mut tree = Tree::create(&*Controller::new().storage(), "tree", &options).unwrap();
    (0..60).for_each(|number| tree.insert(&Rect::point([f64::from(number), 0.0]).unwrap(), 0).unwrap());
    tree.set_budget(Budget::Nodes(0)).is_ok() && tree.check().is_ok()
}

#[test]
fn only_a_tree_that_keeps_old_children_is_not_sound_after_moves() {
    assert!(is_sound_after_moves(None));
    assert!(!is_sound_after_moves(Some(Gap::Moves)), "hole 10");
}

/// Hole 1: after a power loss, locks of an earlier session stop nobody. Hole 3: nodes with too few
/// entries are legal, and merged later.
#[test]
fn locks_that_a_power_loss_has_left_are_no_locks() {
    let subject = configuration("pool-4-adr");
    let everything_durable = Images { exhaustive_pending: 0, samples: 0, name_order: NameOrder::AnySubset };
    let history = History::record(&subject, subject.steps(1), None).unwrap();
    let image = history.controller.images(history.controller.events(), &everything_durable, 1).next().unwrap();
    let storage = image.storage();
    let states = Tree::recovery_states(&*storage, "tree", &subject.tree.options).unwrap();
    assert!(!states.is_empty() && PersistenceDomain::Adr == subject.domain(), "no lock was left");
    let mut tree = Tree::open(&*storage, "tree", &subject.tree.options).unwrap();
    let entry = (Rect::point([3.0; 2]).unwrap(), 77);
    tree.insert(&entry.0, entry.1).unwrap();
    assert!(tree.contains(&entry.0, entry.1).unwrap() && tree.delete(&entry.0, entry.1).unwrap());
    tree.check().unwrap();
    tree.close().unwrap();
    assert_eq!(Tree::recovery_states(&*storage, "tree", &subject.tree.options).unwrap(), []);
}
