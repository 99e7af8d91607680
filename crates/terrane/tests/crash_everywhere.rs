//! The power is cut after storage operations of a run that has every kind of work in it, and
//! again inside recovery. Acknowledged writes are there, and nothing else but a write in flight.
//! Every index agrees, and the store continues to work.
//!
//! Each merge cuts after a sample of the operations. `make soak` cuts after each operation, and
//! tries all images of up to six pending events, and many where more are pending.

use crate::support::crash::{Effort, Work, explore};
use crate::support::seeded;
use crate::support::workload::{MAIN, Plan, Step};
use terrane::{Durability, IndexKind};

const EFFORT: Effort = Effort { stride: 29, again: 200, exhaustive_pending: 3, samples: 2 };

fn assert_all_work(plan: &Plan, durability: Durability, work: Work) {
    assert!(work.flushes > 2 && work.merges > 1, "the run seals, flushes and merges: {work:?}");
    assert!(durability == Durability::None || work.recycled > 0, "the run recycles segments of the log: {work:?}");
    let has = |wanted: fn(&Step) -> bool| plan.steps.iter().any(wanted);
    assert!(has(|step| matches!(step, Step::Import(_, records) if !records.is_empty())), "the run imports");
    assert!(has(|step| matches!(step, Step::ImportUpsert(..))) && has(|step| matches!(step, Step::ImportReplace(..))));
    assert!(has(|step| matches!(step, Step::Drop(_))), "the run drops a dataset");
    assert!(has(|step| matches!(step, Step::AddColumn(_))), "the run changes the catalog");
    assert!(has(|step| matches!(step, Step::RenameColumn(..))) && has(|step| matches!(step, Step::DropColumn(_))));
    assert!(has(|step| matches!(step, Step::CreateIndex(..))) && has(|step| matches!(step, Step::DropIndex(_))));
    for kind in [IndexKind::Sif, IndexKind::Inverted, IndexKind::Dhb, IndexKind::Dhvb, IndexKind::Shb] {
        let is_of_kind = |step: &Step| matches!(step, Step::CreateIndex(_, created, _) if *created == kind);
        let is_short = plan.steps.len() < 100 && !matches!(kind, IndexKind::Sif | IndexKind::Inverted);
        assert!(is_short || plan.steps.iter().any(is_of_kind), "the run has an index of kind {kind}");
    }
    let live = plan.states.iter().filter_map(|state| state.get(MAIN)).map(|held| held.indexes.len()).max();
    assert_eq!(live, Some(4), "beside the two that are always there");
    assert!(has(|step| matches!(step, Step::Feed(_))), "the run has a feed");
    assert!(has(|step| matches!(step, Step::Batch(_))) && has(|step| matches!(step, Step::Side(_))));
}

fn long(durability: Durability, default_seed: u64, effort: Effort) {
    let (_, seed) = seeded(default_seed);
    let plan = Plan::new(seed, 200);
    let work = explore(&plan, durability, seed, effort);
    assert_all_work(&plan, durability, work);
}

#[test]
fn acknowledged_writes_survive_power_loss_after_any_event() {
    long(Durability::Power, 11, EFFORT);
}

#[test]
fn without_a_log_the_store_is_at_a_manifest_after_power_loss() {
    long(Durability::None, 12, EFFORT);
}

fn short(durability: Durability, partitions: usize, effort: Effort) {
    let (_, seed) = seeded(13);
    let plan = Plan::dense(seed).with_partitions(partitions);
    let work = explore(&plan, durability, seed, effort);
    assert_all_work(&plan, durability, work);
}

/// The main dataset has partitions, over which its atomic batches go.
#[test]
fn acknowledged_writes_survive_every_image_of_a_short_run() {
    short(Durability::Power, 2, EFFORT);
}

/// Of a dataset's partitions none is ahead of another.
#[test]
fn without_a_log_partitions_are_at_one_manifest_after_power_loss() {
    short(Durability::None, 3, EFFORT);
}
