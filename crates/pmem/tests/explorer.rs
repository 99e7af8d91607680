//! The explorer itself: it notices what is wrong, leaves alone what is right, and says how to see it again.

use terrane_pmem::Instruction;
use terrane_pmem::explorer::{
    Breadth, Canary, Case, Cuts, Dropped, Explorer, Gate, History, Sample, Subject, check_canary, gate, replay, sample,
    shrink,
};

const BREADTH: Breadth = Breadth { branches: 64, samples: 8, seed: 1 };
const RIGHT: Canary = Canary { is_right: true };
const WRONG: Canary = Canary { is_right: false };

#[test]
fn what_is_wrong_on_purpose_is_caught_and_what_is_right_is_not() {
    let failure = check_canary(&BREADTH).unwrap();
    assert!(failure.to_string().contains("replay: terrane-lab crash canary --replay 'wrong; "), "{failure}");
    // One that tries nothing notices nothing, and that is noticed.
    let blind = Breadth { branches: 0, samples: 0, seed: 1 };
    let report = check_canary(&blind).unwrap_err();
    assert!(report.contains("the explorer is broken"), "{report}");
}

#[test]
fn random_histories_find_it_too() {
    let options = Sample { seed: 5, images: 100_000, dropped: None };
    let (tally, failure) = sample(&[WRONG], &options);
    assert!(failure.is_some() && tally.images < 10_000, "{tally:?}");
    let (tally, failure) = sample(&[RIGHT], &Sample { images: 2000, ..options });
    assert!(failure.is_none() && tally.images >= 2000 && tally.distinct < tally.images, "{tally:?}");
}

#[test]
fn a_failure_shrinks_to_the_step_the_cut_and_the_stores_that_matter_and_replays() {
    let history = History::record(&WRONG, WRONG.steps(0), None).unwrap();
    let mut explorer = Explorer::new(&WRONG);
    // The last step alone.
    let failure = *explorer.all_power_losses(&history, 3, &BREADTH).unwrap_err();
    assert_eq!(failure.case.steps.len(), 4);
    let failure = shrink(&WRONG, failure);
    assert_eq!((failure.case.steps.len(), failure.case.crashes.len()), (1, 1), "{failure}");
    // Of one entry's stores, the second one is lost.
    assert_eq!(failure.crashes[0].matches("store of").count(), 1, "{failure}");
    let case: Case<_> = failure.case.to_string().parse().unwrap();
    assert_eq!(case, failure.case);
    let again = replay(&WRONG, &case).unwrap().expect("it goes wrong again");
    assert_eq!((again.what, again.crashes), (failure.what, failure.crashes));
    assert!(replay(&RIGHT, &case).is_err(), "the choice is of other stores");
}

#[test]
fn a_failure_in_what_is_done_after_a_recovery_shrinks_and_replays() {
    let history = History::record(&WRONG, WRONG.steps(0), None).unwrap();
    let mut explorer = Explorer::new(&WRONG);
    let first = history.ends().next().unwrap();
    let failure = *explorer.after_recovery(&history, first, 3, Cuts::All, &BREADTH).unwrap_err();
    assert_eq!((failure.case.then.len(), failure.case.crashes.len()), (3, 2), "{failure}");
    let failure = shrink(&WRONG, failure);
    assert_eq!((failure.case.steps.len(), failure.case.then.len(), failure.case.crashes.len()), (0, 1, 2), "{failure}");
    let case: Case<_> = failure.case.to_string().parse().unwrap();
    assert_eq!(case, failure.case);
    let again = replay(&WRONG, &case).unwrap().expect("it goes wrong again");
    assert_eq!((again.what, again.crashes), (failure.what, failure.crashes));
    let history = History::record(&RIGHT, RIGHT.steps(0), None).unwrap();
    for cut in history.cuts_from(0) {
        Explorer::new(&RIGHT).after_recovery(&history, cut, 3, Cuts::All, &BREADTH).unwrap();
    }
}

#[test]
fn the_gate_names_what_shows_each_instruction_and_what_nothing_shows() {
    let options =
        Gate { seeds: 0..2, breadth: BREADTH, near: BREADTH, names_stride: 1, in_all: true, inside_stride: 1 };
    let report = gate(&[RIGHT], &options).unwrap();
    assert!(report.is_closed() && report.caught.len() == 4, "{report}");
    let site = "canary.entry".to_owned();
    assert!(report.names().contains(&Dropped { instruction: Instruction::Fence, site }), "{report}");
    let few = Breadth { branches: 1, samples: 0, seed: 1 };
    let blind = Gate { breadth: few, near: few, ..options };
    assert!(!gate(&[RIGHT], &blind).unwrap().uncaught.is_empty(), "it cannot have tried enough");
}
