//! The power is cut after every storage operation of a run that has every kind of work in
//! it, and again inside recovery: acknowledged writes are there, nothing else appears but
//! what was in flight, every index agrees, and the store works on.

mod support;

use support::crash::explore;
use support::seeded;
use support::workload::Plan;
use terrane::Durability;

#[test]
fn acknowledged_writes_survive_power_loss_after_any_event() {
    let (_, seed) = seeded(11);
    explore(&Plan::new(seed, 200), Durability::Power, seed, 5, 20);
}

#[test]
fn without_a_log_the_store_is_at_a_manifest_after_power_loss() {
    let (_, seed) = seeded(12);
    explore(&Plan::new(seed, 200), Durability::None, seed, 5, 20);
}
