//! Power losses and kills at any instant of operations of the tree with whole-node logging, and of its recovery.

use crate::support::crash::{History, Step, durable_cuts, is_soak, run, sites, steps};
use crate::support::options;
use terrane_pmem::{Dropping, Instruction, PersistenceDomain, Traced};
use terrane_pmtree::{LoggedTree, PersistentRTree, Rebalancing, Rect};
use terrane_storage::crash::{Budget, NameOrder};

const BUDGET: Budget = Budget { exhaustive_pending: 8, samples: 24, name_order: NameOrder::AnySubset };
const FAN_OUT: usize = 4;

type Tree = LoggedTree<2, Traced>;

fn history(steps: &[Step], domain: PersistenceDomain, dropped: Option<(Instruction, &str)>) -> History<Tree> {
    run::<LoggedTree<2, Dropping<Traced>>, _>(steps, options(domain, FAN_OUT, Rebalancing::InPlace), dropped)
}

#[test]
fn a_power_loss_at_any_instant_leaves_a_tree_with_all_that_was_acknowledged() {
    for domain in [PersistenceDomain::Adr, PersistenceDomain::Eadr] {
        let history = history(&steps(1, 60), domain, None);
        for (cut, steps) in history.cuts() {
            for image in history.controller.images(cut, &BUDGET, 1) {
                history.recover(&*image.storage(), steps).unwrap_or_else(|what| panic!("{what}: {image:?}"));
            }
        }
    }
}

#[test]
fn a_kill_at_any_instant_leaves_a_tree_with_all_that_was_acknowledged() {
    let history = history(&steps(1, 60), PersistenceDomain::PageCache, None);
    // Images are written word by word: most cuts are alike.
    let sparse = if is_soak() { 1 } else { 3 };
    for cut in (0..=history.controller.events()).step_by(sparse) {
        let Some(steps) = history.steps_done(cut) else { continue };
        let image = history.controller.process_kill(cut);
        history.recover(&*image.storage(), steps).unwrap_or_else(|what| panic!("{what}: {image:?}"));
    }
}

/// Crashes anywhere, also between two stores of a line, and loses power in the opening that follows, also there.
#[test]
fn a_power_loss_inside_recovery_changes_nothing_of_it() {
    let sparse = if is_soak() { 1 } else { 31 };
    let few = Budget { exhaustive_pending: 4, samples: 4, ..BUDGET };
    let history = history(&steps(1, 60), PersistenceDomain::Adr, None);
    for cut in (0..=history.controller.events()).step_by(sparse) {
        let Some(steps) = history.steps_done(cut) else { continue };
        let restarted = history.controller.process_kill(cut).restart();
        drop(Tree::open(&*restarted.storage(), "tree", &history.options).unwrap());
        for again in durable_cuts(&restarted) {
            for second in restarted.images(again, &few, 1) {
                history.recover(&*second.storage(), steps).unwrap_or_else(|what| panic!("{what}: {second:?}"));
            }
        }
    }
}

#[test]
fn no_flush_and_no_fence_can_be_left_out() {
    let steps = steps(1, 60);
    let mut needless = Vec::new();
    let sites = sites(&history(&steps, PersistenceDomain::Adr, None).controller, "logged.");
    assert!(sites.len() > 6, "{sites:?}");
    for dropped in sites {
        let history = history(&steps, PersistenceDomain::Adr, Some(dropped));
        let cuts: Vec<(usize, usize)> = history.cuts().collect();
        // Spread over the run, since most of what matters is caught soon.
        let mut spread = (0..cuts.len()).map(|number| cuts[number * 7919 % cuts.len()]);
        let is_caught = spread.any(|(cut, steps)| {
            let mut images = history.controller.images(cut, &BUDGET, 1);
            images.any(|image| history.recover(&*image.storage(), steps).is_err())
        });
        if !is_caught {
            needless.push(dropped);
        }
    }
    assert!(needless.is_empty(), "{needless:#?}");
}

#[test]
fn a_power_loss_while_a_change_is_undone_loses_nothing() {
    // Most changes acquire nothing, and leave nothing to undo.
    history(&steps(1, 20), PersistenceDomain::Adr, None).lose_power_while_undoing("logged.log.commit");
}

/// Each box lies beyond all others, so that every node above it changes: more than the head of the log names.
#[test]
fn a_kill_while_a_whole_path_changes_leaves_all_that_was_acknowledged() {
    let steps: Vec<Step> = (0..60).map(|at| Step::Insert(Rect::point([at as f64; 2]).unwrap(), at)).collect();
    let history = history(&steps, PersistenceDomain::PageCache, None);
    for cut in (0..=history.controller.events()).rev().step_by(7).take(300) {
        let Some(steps) = history.steps_done(cut) else { continue };
        let image = history.controller.process_kill(cut);
        history.recover(&*image.storage(), steps).unwrap_or_else(|what| panic!("{what}: {image:?}"));
    }
}
