//! Power losses and kills at any instant of operations on several words, one thread after the
//! other. Operations happen whole or not at all, acknowledged ones stay, and blocks belong to their
//! links.

use std::path::Path;
use terrane_testkit::is_soak;

use terrane_pmem::PersistenceDomain;
use terrane_pmem::explorer::sites;
use terrane_pmem::explorer::{Breadth, Cuts, Explorer, Gate, History, Subject, gate};
use terrane_pmem::pmwcas::explored::{Explored, Step};

/// One history with every kind of step.
const STEPS: [&str; 15] = [
    "count",
    "add:4",
    "replace:10",
    "replace:20+reclaim",
    "fail",
    "count",
    "give-up+reclaim",
    "single",
    "add:2",
    "replace:30",
    "fail+reclaim",
    "single",
    "replace:40",
    "add:1",
    "count+reclaim",
];

fn steps() -> Vec<Step> {
    STEPS.map(|step| step.parse().unwrap()).to_vec()
}

fn history(subject: &Explored) -> History<'_, Explored> {
    History::record(subject, steps(), None).unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn after_a_crash_at_any_instant_operations_happened_whole_or_not_at_all() {
    let branches = if is_soak() { 2048 } else { 300 };
    for subject in Explored::configurations() {
        let mut explorer = Explorer::new(&subject);
        let breadth = Breadth { branches, samples: if is_soak() { 5000 } else { 40 }, seed: 1 };
        let history = history(&subject);
        explorer.all_crashes(&history, 0, &breadth).unwrap_or_else(|failure| panic!("{failure}"));
        println!("{}: {:?}", subject.configuration(), explorer.tally);
    }
}

/// Crashes, and crashes again at any instant of the opening that follows.
#[test]
fn a_crash_inside_recovery_changes_nothing_of_it() {
    for subject in Explored::configurations() {
        let history = history(&subject);
        let mut explorer = Explorer::new(&subject);
        let breadth = Breadth { branches: 12, samples: 3, seed: 1 };
        let stride = if subject.domain() == PersistenceDomain::Adr { 1 } else { 5 };
        for cut in history.power_cuts_from(0).into_iter().step_by(stride) {
            explorer.inside_recovery(&history, cut, &breadth).unwrap_or_else(|failure| panic!("{failure}"));
        }
        println!("{}: {:?}", subject.configuration(), explorer.tally);
    }
}

/// Crashes, continues the history after the recovery, and crashes again.
#[test]
fn what_is_done_after_a_recovery_survives_another_crash() {
    for subject in Explored::configurations() {
        let history = history(&subject);
        let mut explorer = Explorer::new(&subject);
        let breadth = Breadth { branches: 12, samples: 3, seed: 1 };
        let stride = if is_soak() { 1 } else { 5 };
        for cut in history.power_cuts_from(0).into_iter().step_by(stride) {
            explorer
                .after_recovery(&history, cut, 4, Cuts::All, &breadth)
                .unwrap_or_else(|failure| panic!("{failure}"));
        }
        println!("{}: {:?}", subject.configuration(), explorer.tally);
    }
}

/// The same over and over, on random paths.
#[test]
fn crash_after_crash_leaves_what_was_done() {
    let seeds = if is_soak() { 0..20_000 } else { 0..200 };
    for (subject, seed) in
        Explored::configurations().iter().flat_map(|subject| seeds.clone().map(move |seed| (subject, seed)))
    {
        let searched = Explorer::new(subject).chain(&subject.steps(seed), 4, seed);
        searched.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
    }
}

#[test]
fn no_flush_and_no_fence_can_be_left_out() {
    let breadth = Breadth { branches: 128, samples: 30, seed: 1 };
    let options =
        Gate { seeds: 0..20, only: None, breadth, near: breadth, names_stride: 1, in_all: true, inside_stride: 1 };
    let report = gate(&Explored::configurations(), &options).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    assert!(report.is_closed(), "{report}");
}

#[test]
fn every_flush_and_every_fence_has_a_name_of_its_own_and_is_listed() {
    let subjects = Explored::configurations();
    sites::check_sources(env!("CARGO_MANIFEST_DIR"), &subjects[0].places());
    sites::check_tests(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &subjects);
}
