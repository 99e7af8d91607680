//! The power is cut after storage operations of a run that has every kind of work in it, and
//! again inside recovery: acknowledged writes are there, nothing else appears but what was in
//! flight, every index agrees, and the store works on. A long run is cut after every third operation,
//! with some images of each cut, and a short one after every operation, with all images that up to six
//! pending events allow; `make soak` does that to both.

use crate::support::crash::{Effort, Work, explore};
use crate::support::seeded;
use crate::support::workload::{Plan, Step};
use terrane::Durability;

fn assert_all_work(plan: &Plan, durability: Durability, work: Work) {
    assert!(work.flushes > 2 && work.merges > 1, "the run seals, flushes and merges: {work:?}");
    assert!(durability == Durability::None || work.recycled > 0, "the run recycles segments of the log: {work:?}");
    let has = |wanted: fn(&Step) -> bool| plan.steps.iter().any(wanted);
    assert!(has(|step| matches!(step, Step::Import(_, records) if !records.is_empty())), "the run imports");
    assert!(has(|step| matches!(step, Step::AddColumn(_))), "the run changes the catalog");
    assert!(has(|step| matches!(step, Step::Batch(_))) && has(|step| matches!(step, Step::Side(_))));
}

fn long(durability: Durability, default_seed: u64) {
    let (_, seed) = seeded(default_seed);
    let plan = Plan::new(seed, 200);
    let work = explore(&plan, durability, seed, Effort::sampled(3, 20));
    assert_all_work(&plan, durability, work);
}

#[test]
fn acknowledged_writes_survive_power_loss_after_any_event() {
    long(Durability::Power, 11);
}

#[test]
fn without_a_log_the_store_is_at_a_manifest_after_power_loss() {
    long(Durability::None, 12);
}

#[test]
fn acknowledged_writes_survive_every_image_of_a_short_run() {
    let (_, seed) = seeded(13);
    let plan = Plan::dense(seed);
    let effort = Effort { stride: 1, again: 200, exhaustive_pending: 6, samples: 2 };
    let work = explore(&plan, Durability::Power, seed, effort);
    assert_all_work(&plan, Durability::Power, work);
}
