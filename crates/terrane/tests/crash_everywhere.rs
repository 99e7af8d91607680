//! The power is cut after storage operations of a run that has every kind of work in it, and
//! again inside recovery: acknowledged writes are there, nothing else appears but what was in
//! flight, every index agrees, and the store works on. Here after every third operation, with
//! some images of each cut; `make soak` cuts after every one and tries all images that up to six
//! pending events allow.

mod support;

use support::crash::explore;
use support::seeded;
use support::workload::Plan;
use terrane::Durability;

#[test]
fn acknowledged_writes_survive_power_loss_after_any_event() {
    let (_, seed) = seeded(11);
    explore(&Plan::new(seed, 200), Durability::Power, seed, 3, 20);
}

#[test]
fn without_a_log_the_store_is_at_a_manifest_after_power_loss() {
    let (_, seed) = seeded(12);
    explore(&Plan::new(seed, 200), Durability::None, seed, 3, 20);
}
