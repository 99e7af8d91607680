//! Power losses and kills at any instant of operations on B+-trees, and of the following recovery.

use terrane_pmem::PersistenceDomain;
use terrane_pmem::explorer::{Breadth, Cuts, Explorer, Gate, History, Subject, gate};
use terrane_pmtree::explored::{ExploredMap, random_map_steps};
use terrane_testkit::is_soak;

fn history(subject: &ExploredMap, seed: u64) -> History<'_, ExploredMap> {
    History::record(subject, subject.steps(seed), None).unwrap_or_else(|failure| panic!("{failure}"))
}

#[test]
fn a_power_loss_at_any_instant_leaves_a_map_with_all_that_was_acknowledged() {
    for subject in ExploredMap::configurations() {
        let history = history(&subject, 1);
        let mut explorer = Explorer::new(&subject);
        let breadth = Breadth { branches: 64, samples: 24, seed: 1 };
        let stride = match subject.domain() {
            _ if is_soak() => 1,
            PersistenceDomain::Adr => 3,
            PersistenceDomain::Eadr | PersistenceDomain::PageCache => 37,
        };
        for cut in history.power_cuts_from(0).into_iter().step_by(stride) {
            explorer.power_losses(&history, cut, &breadth).unwrap_or_else(|failure| panic!("{failure}"));
        }
        println!("{}: {:?}", subject.configuration(), explorer.tally);
    }
}

#[test]
fn a_kill_at_any_instant_leaves_a_map_with_all_that_was_acknowledged() {
    for subject in ExploredMap::configurations() {
        let history = history(&subject, 2);
        let mut explorer = Explorer::new(&subject);
        for cut in history.cuts_from(0).step_by(if is_soak() { 1 } else { 7 }) {
            explorer.kill(&history, cut).unwrap_or_else(|failure| panic!("{failure}"));
        }
    }
}

/// Crashes, and crashes again in the opening that follows.
#[test]
fn a_crash_inside_the_recovery_of_a_map_changes_nothing_of_it() {
    for subject in ExploredMap::configurations() {
        let history = history(&subject, 3);
        let mut explorer = Explorer::new(&subject);
        let breadth = Breadth { branches: 16, samples: 4, seed: 1 };
        let stride = match subject.domain() {
            _ if is_soak() => 5,
            PersistenceDomain::Adr => 61,
            PersistenceDomain::Eadr | PersistenceDomain::PageCache => 601,
        };
        for cut in history.power_cuts_from(0).into_iter().step_by(stride) {
            explorer.inside_recovery(&history, cut, &breadth).unwrap_or_else(|failure| panic!("{failure}"));
        }
        println!("{}: {:?}", subject.configuration(), explorer.tally);
    }
}

/// A run has a few operations, a crash in them or in the recovery from it, a few more, and so on.
#[test]
fn crash_after_crash_leaves_a_map_with_all_that_was_acknowledged() {
    let seeds = if is_soak() { 0..2000 } else { 0..24 };
    for subject in ExploredMap::configurations() {
        for seed in seeds.clone() {
            let searched = Explorer::new(&subject).chain(&random_map_steps(seed, 40), 12, seed);
            searched.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
        }
    }
}

#[test]
fn a_power_loss_after_a_recovery_of_a_map_takes_nothing_away() {
    const STEPS: usize = 6;
    let nothing = Breadth { branches: 0, samples: 0, seed: 1 };
    for subject in ExploredMap::configurations() {
        if subject.domain() != PersistenceDomain::Adr {
            continue;
        }
        let history = history(&subject, 4);
        let mut explorer = Explorer::new(&subject);
        for cut in history.power_cuts_from(0).into_iter().step_by(if is_soak() { 3 } else { 41 }) {
            let searched = explorer.after_recovery(&history, cut, STEPS, Cuts::BetweenSteps, &nothing);
            searched.unwrap_or_else(|failure| panic!("{failure}"));
        }
    }
}

#[test]
fn no_flush_and_no_fence_of_a_map_can_be_left_out() {
    let breadth = Breadth { branches: 24, samples: 24, seed: 1 };
    let near = Breadth { branches: 256, samples: 64, seed: 1 };
    let options = match is_soak() {
        true => Gate { seeds: 1..21, only: None, breadth, near, names_stride: 1, in_all: true, inside_stride: 2 },
        false => Gate { seeds: 1..4, only: None, breadth, near, names_stride: 7, in_all: false, inside_stride: 5 },
    };
    let report = gate(&ExploredMap::configurations(), &options).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    assert!(report.is_closed(), "{report}");
}
