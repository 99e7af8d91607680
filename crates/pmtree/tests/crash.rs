//! Power losses and kills at any instant of insertions and deletions, and of the following
//! recovery.

use std::ops::Range;
use std::path::Path;
use terrane_testkit::is_soak;

use terrane_pmem::explorer::sites;
use terrane_pmem::explorer::{Breadth, Cuts, Explorer, Gate, History, Part, Place, Subject, gate};
use terrane_pmem::{Dropping, Instruction, PersistenceDomain, Traced};
use terrane_pmtree::Rect;
use terrane_pmtree::explored::{
    Explored, ExploredMap, ExploredTree, Fbr, Logged, Pear, Pmr, Recoveries, Step, random_steps, small_trees,
    steps_in_turn, steps_of_few,
};
use terrane_storage::Storage;
use terrane_storage::event::{Event, PoolEvent};
use terrane_testkit::crash::{Budget, Controller, NameOrder};

fn has_small_nodes<T: ExploredTree>(subject: &Explored<T>) -> bool {
    subject.tree.has_small_nodes()
}

fn has_small_nodes_on_adr<T: ExploredTree>(subject: &Explored<T>) -> bool {
    has_small_nodes(subject) && subject.domain() == PersistenceDomain::Adr
}

/// Steps that make nodes split and merge.
fn history<T: ExploredTree>(subject: &Explored<T>) -> History<'_, Explored<T>> {
    History::record(subject, subject.steps(1), None).unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn a_power_loss_at_any_instant_leaves_a_tree_with_all_that_was_acknowledged() {
    fn search<T: ExploredTree>() {
        for subject in T::configurations() {
            let history = history(&subject);
            let mut explorer = Explorer::new(&subject);
            let breadth = Breadth { branches: 12, samples: 24, seed: 1 };
            // Only some cuts of long runs, whose cuts are alike, and of runs where each store is a
            // cut.
            let stride = match subject.domain() {
                _ if is_soak() => 1,
                PersistenceDomain::Adr if has_small_nodes(&subject) => 7,
                PersistenceDomain::Adr | PersistenceDomain::Eadr if has_small_nodes(&subject) => 29,
                PersistenceDomain::Adr => 71,
                PersistenceDomain::Eadr | PersistenceDomain::PageCache => 131,
            };
            for cut in history.power_cuts_from(0).into_iter().step_by(stride) {
                explorer.power_losses(&history, cut, &breadth).unwrap_or_else(|failure| panic!("{failure}"));
            }
            println!("{}: {:?}", subject.configuration(), explorer.tally);
        }
    }
    search::<Fbr>();
    search::<Pmr>();
    search::<Pear>();
    search::<Logged>();
}

/// More nodes than the first line of the log names, and than one more line. Each node of a path
/// changes, as the box lies beyond all others.
#[test]
fn a_power_loss_in_a_change_of_five_nodes_or_more_leaves_all_of_it_or_nothing() {
    // More than four levels hold.
    const ENTRIES: u32 = 300;
    let subject = Logged::configurations().into_iter().find(has_small_nodes_on_adr).unwrap();
    let places = (0..ENTRIES).map(|number| f64::from(number * 7 % ENTRIES)).chain([1e3]);
    let steps = places.zip(0..).map(|(place, payload)| Step::Insert(Rect::point([place; 2]).unwrap(), payload));
    let history = History::record(&subject, steps.collect(), None).unwrap();
    let breadth = Breadth { branches: 64, samples: 24, seed: 1 };
    let searched = Explorer::new(&subject).all_power_losses(&history, ENTRIES as usize, &breadth);
    searched.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn a_kill_at_any_instant_leaves_a_tree_with_all_that_was_acknowledged() {
    fn search<T: ExploredTree>() {
        let is_meant = |subject: &Explored<T>| subject.domain() == PersistenceDomain::PageCache || is_soak();
        for subject in T::configurations().into_iter().filter(is_meant) {
            let history = history(&subject);
            let mut explorer = Explorer::new(&subject);
            let stride = match has_small_nodes(&subject) {
                _ if is_soak() => 1,
                true => 11,
                false => 37,
            };
            for cut in history.cuts_from(0).step_by(stride) {
                explorer.kill(&history, cut).unwrap_or_else(|failure| panic!("{failure}"));
            }
        }
    }
    search::<Fbr>();
    search::<Pmr>();
    search::<Pear>();
    search::<Logged>();
}

/// Crashes, and crashes again in the opening that follows.
#[test]
fn a_crash_inside_recovery_changes_nothing_of_it() {
    fn search<T: ExploredTree>() {
        for subject in T::configurations() {
            let sparse = match subject.domain() {
                // Each of them takes at least as many recoveries as it has events.
                _ if is_soak() => 7,
                PersistenceDomain::Adr => 331,
                PersistenceDomain::Eadr => 1801,
                PersistenceDomain::PageCache => 451,
            };
            let history = history(&subject);
            let mut explorer = Explorer::new(&subject);
            let breadth = Breadth { branches: 16, samples: 4, seed: 1 };
            for cut in history.power_cuts_from(0).into_iter().step_by(sparse) {
                explorer.inside_recovery(&history, cut, &breadth).unwrap_or_else(|failure| panic!("{failure}"));
            }
            println!("{}: {:?}", subject.configuration(), explorer.tally);
        }
    }
    search::<Fbr>();
    search::<Pmr>();
    search::<Pear>();
    search::<Logged>();
}

/// A crash leaves boxes, marks and flags, operations build on them, and the power fails again. A
/// short search takes only crashes between operations that lose everything that was not durable.
#[test]
fn a_power_loss_in_what_is_done_after_a_recovery_takes_nothing_away() {
    let nothing = Breadth { branches: 0, samples: 0, seed: 1 };
    match is_soak() {
        true => {
            let some = Breadth { branches: 3, samples: 2, seed: 1 };
            power_losses_after_recoveries::<Fbr>(Cuts::BetweenSteps, &nothing, 0..200);
            power_losses_after_recoveries::<Fbr>(Cuts::All, &some, 0..2);
            power_losses_after_recoveries::<Pmr>(Cuts::BetweenSteps, &nothing, 0..200);
            power_losses_after_recoveries::<Pmr>(Cuts::All, &some, 0..2);
            power_losses_after_recoveries::<Pear>(Cuts::BetweenSteps, &nothing, 0..200);
            power_losses_after_recoveries::<Pear>(Cuts::All, &some, 0..2);
            power_losses_after_recoveries::<Logged>(Cuts::BetweenSteps, &nothing, 0..200);
            power_losses_after_recoveries::<Logged>(Cuts::All, &some, 0..2);
        }
        false => {
            power_losses_after_recoveries::<Fbr>(Cuts::BetweenSteps, &nothing, 24..26);
            power_losses_after_recoveries::<Pmr>(Cuts::BetweenSteps, &nothing, 24..26);
            power_losses_after_recoveries::<Pear>(Cuts::BetweenSteps, &nothing, 24..26);
            power_losses_after_recoveries::<Logged>(Cuts::BetweenSteps, &nothing, 24..26);
        }
    }
}

fn power_losses_after_recoveries<T: ExploredTree>(cuts: Cuts, breadth: &Breadth, seeds: Range<u64>) {
    const STEPS: usize = 8;
    for subject in T::configurations().into_iter().filter(has_small_nodes_on_adr) {
        for seed in seeds.clone() {
            let mut explorer = Explorer::new(&subject);
            let steps = steps_in_turn(seed, 48);
            let history = History::record(&subject, steps, None).unwrap_or_else(|failure| panic!("{failure}"));
            for cut in history.ends().skip(history.len() / 2) {
                let searched = explorer.after_recovery(&history, cut, STEPS, cuts, breadth);
                searched.unwrap_or_else(|failure| panic!("{failure}"));
            }
        }
    }
}

/// Several crashes together may leave states such as leaves without entries, which later operations
/// meet. A run has a few operations, a crash in them or in the recovery from it, a few more, and so
/// on, with a check and a comparison after each. Kills and power losses are random.
#[test]
fn crash_after_crash_leaves_a_tree_with_all_that_was_acknowledged() {
    fn search<T: ExploredTree>() {
        const STEPS: usize = 32;
        let seeds = if is_soak() { 0..2000 } else { 0..12 };
        for subject in T::configurations().into_iter().filter(has_small_nodes) {
            for seed in seeds.clone() {
                let (steps, first) = steps_of_few(seed, STEPS);
                let searched = Explorer::new(&subject).chain(&steps, first, seed);
                searched.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
            }
        }
    }
    search::<Fbr>();
    search::<Pmr>();
    search::<Pear>();
    search::<Logged>();
}

/// A killed process leaves stores that were not made durable. Those that the next process has seen
/// stay.
#[test]
fn what_is_seen_after_a_kill_survives_a_power_loss() {
    fn search<T: ExploredTree>() {
        let budget = Budget { exhaustive_pending: 4, samples: 4, name_order: NameOrder::AnySubset };
        for subject in T::configurations().into_iter().filter(has_small_nodes_on_adr) {
            let history = history(&subject);
            let look = |storage: &dyn Storage| subject.observe(&mut subject.open(storage)?);
            for cut in history.cuts_from(0).step_by(if is_soak() { 1 } else { 5 }) {
                let restarted = history.controller.process_kill(cut).restart();
                let seen = look(&*restarted.storage());
                assert!(seen.is_ok(), "{seen:?} after {cut} events");
                for image in restarted.images(restarted.events(), &budget, 1) {
                    assert_eq!(look(&*image.storage()), seen, "after {cut} events: {image:?}");
                }
            }
        }
    }
    search::<Fbr>();
    search::<Pmr>();
    search::<Pear>();
    search::<Logged>();
}

/// A log entry is written store by store. Without its commitment it has changed nothing, however
/// often recovery meets it.
#[test]
fn a_crash_while_a_torn_log_entry_is_withdrawn_unlinks_nothing() {
    fn search<T: ExploredTree>() {
        const STORES: usize = 12;
        let is_meant = |subject: &Explored<T>| has_small_nodes(subject) && subject.domain() == PersistenceDomain::Eadr;
        for subject in T::configurations().into_iter().filter(is_meant) {
            let history = history(&subject);
            let mut explorer = Explorer::new(&subject);
            let breadth = Breadth { branches: 1, samples: 0, seed: 1 };
            let log = history.controller.log();
            let is_commitment = |event: &Event| {
                matches!(
                    event,
                    Event::Pool(PoolEvent::Fence {
                        site: "fbr.log.commit" | "logged.log.commit" | "logged.undo.begin",
                        ..
                    })
                )
            };
            let commitments = history.cuts_from(0).filter(|&cut| log.get(cut).is_some_and(is_commitment));
            for commitment in commitments.step_by(if is_soak() { 1 } else { 13 }) {
                for cut in commitment - STORES..=commitment {
                    explorer.inside_recovery(&history, cut, &breadth).unwrap_or_else(|failure| panic!("{failure}"));
                }
            }
            assert!(explorer.tally.cuts > 100, "{:?}", explorer.tally);
        }
    }
    search::<Fbr>();
    search::<Logged>();
}

/// Undoes announced changes that crashes have left, inserts into the freed blocks, and loses power.
/// Gives how many were undone, and whether every insertion was there each time.
fn insertions_after_undone_changes(subject: &Explored<Fbr>, dropped: Option<(Instruction, &str)>) -> (usize, bool) {
    const WITHDRAW: &str = "fbr.log.withdraw";
    let budget = Budget { exhaustive_pending: 0, samples: 6, name_order: NameOrder::AnySubset };
    let history = history(subject);
    let log = history.controller.log();
    let is_commitment =
        |cut: &usize| matches!(log.get(*cut), Some(Event::Pool(PoolEvent::Fence { site: "fbr.log.commit", .. })));
    let (mut undone, mut is_whole) = (0, true);
    for cut in history.cuts_from(0).filter(is_commitment).step_by(5) {
        for image in history.controller.images(cut, &budget, 1) {
            let is_undone = |controller: &Controller| {
                drop(subject.open(&*controller.storage()));
                Instruction::sites(controller).iter().any(|(_, site)| *site == WITHDRAW)
            };
            if !is_undone(&image.restart()) {
                continue;
            }
            undone += 1;
            let restarted = image.restart();
            let storage = restarted.storage();
            let open = || subject.open(&*storage);
            let mut tree = match dropped {
                Some((instruction, site)) => Dropping::<Traced>::leaving_out(instruction, site, open),
                None => open(),
            }
            .unwrap();
            let mut model = subject.observe(&mut tree).unwrap();
            let insertions = random_steps(3, 24).into_iter().filter(|step| matches!(step, Step::Insert(..)));
            insertions.for_each(|step| subject.apply(&tree, &mut model, &step).unwrap());
            drop(tree);
            is_whole &= restarted.images(restarted.events(), &budget, 1).all(|image| {
                let found = subject.open(&*image.storage()).and_then(|mut tree| subject.observe(&mut tree));
                found.as_ref() == Ok(&model)
            });
        }
    }
    (undone, is_whole)
}

#[test]
fn a_change_that_was_undone_stays_undone_when_its_blocks_are_used_again() {
    for subject in Fbr::configurations().into_iter().filter(has_small_nodes_on_adr) {
        let (undone, is_whole) = insertions_after_undone_changes(&subject, None);
        assert!(undone > 5 && is_whole, "{}: {undone} were undone", subject.configuration());
        let (_, is_whole) = insertions_after_undone_changes(&subject, Some((Instruction::Flush, "fbr.log.withdraw")));
        assert!(!is_whole, "{}: the flush can be left out", subject.configuration());
    }
}

/// Only a long search repeats in other configurations what one has shown. It does not with the
/// PeaR-Tree, as recovery rebuilds parents in memory, and a crash shows nothing of their flushes.
#[test]
fn no_flush_and_no_fence_can_be_left_out() {
    fn search<T: ExploredTree>(in_all: bool) {
        let breadth = Breadth { branches: 24, samples: 24, seed: 1 };
        let near = Breadth { branches: 256, samples: 64, seed: 1 };
        let options = match is_soak() {
            true => Gate { seeds: 1..21, only: None, breadth, near, names_stride: 1, in_all, inside_stride: 2 },
            false => Gate { seeds: 1..4, only: None, breadth, near, names_stride: 7, in_all: false, inside_stride: 5 },
        };
        let report = gate(&T::configurations(), &options).unwrap_or_else(|failure| panic!("{failure}"));
        println!("{report}");
        assert!(report.is_closed(), "{report}");
    }
    search::<Fbr>(true);
    search::<Pmr>(true);
    search::<Pear>(false);
    search::<Logged>(true);
}

#[test]
fn every_flush_and_every_fence_has_a_name_of_its_own_and_is_listed() {
    let places: Vec<Place> =
        [Fbr::places(), Pmr::places(), Pear::places(), Logged::places(), ExploredMap::places()].concat();
    sites::check_sources(env!("CARGO_MANIFEST_DIR"), &places);
    sites::check_mentions(env!("CARGO_MANIFEST_DIR"), &places);
    sites::check_tests(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &Fbr::configurations());
    sites::check_tests(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &Pmr::configurations());
    sites::check_tests(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &Pear::configurations());
    sites::check_tests(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &Logged::configurations());
    sites::check_tests(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &ExploredMap::configurations());
}

/// The case that shows a loss changes with every step of the trees. The names must be the existing
/// ones.
#[test]
fn the_table_of_what_shows_each_loss_has_all_names_and_no_others() {
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lab/gate.md");
    let of_pools = terrane_pmem::pmwcas::explored::Explored::configurations()[0].places();
    let all = [Fbr::places(), Pmr::places(), Pear::places(), Logged::places(), ExploredMap::places(), of_pools];
    let names = all.iter().flatten().flat_map(Place::dropped).map(|dropped| dropped.to_string());
    assert_eq!(sites::names_in_table(&table), names.collect());
}

/// A long search tries more of them, and `terrane-lab crash fbr --exhaustive` all, which takes
/// hours.
#[test]
fn two_operations_on_any_small_tree_survive_any_power_loss() {
    fn search<T: ExploredTree>(part: Part) {
        for subject in T::configurations().into_iter().filter(has_small_nodes_on_adr) {
            let found = small_trees(&subject, part, Recoveries::Cut).unwrap_or_else(|failure| panic!("{failure}"));
            println!("{}: {found:?}", subject.configuration());
            assert_eq!(found.tally.cuts_sampled, 0, "every image was to be tried");
            assert!(found.trees_tried >= 2 && found.histories > found.trees_tried * 100, "{found:?}");
        }
    }
    match is_soak() {
        true => {
            search::<Fbr>(Part::first_of(48));
            search::<Pmr>(Part::first_of(48));
            search::<Logged>(Part::first_of(48));
        }
        false => search::<Fbr>(Part::first_of(797)),
    }
}
