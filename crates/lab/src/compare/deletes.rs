//! Single durable deletes from a filled store.

use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::json;

use super::inserts::check_content;
use super::{Emit, Laboratory, describe, progress};
use crate::measure::{self, Latencies};
use crate::report::Table;
use crate::system::{Role, System};
use crate::workload::Points;

const RECORDS_MAX: usize = 100_000;
const DELETES: usize = 500;
const BASELINE: &str = "sqlite-full";

/// Deletes random records one by one and checks that exactly the others are left.
pub fn run(laboratory: &Laboratory, emit: &mut Emit<'_>) -> Result<()> {
    let count = laboratory.point_count.min(RECORDS_MAX);
    let parts = Points::generate_uniform(count, 0).deal(count.div_ceil(DELETES));
    let mut parts = parts.into_iter();
    let victims = parts.next().context("nothing to delete")?;
    let mut survivors = Points::with_capacity(count);
    parts.flat_map(|part| part.records().collect::<Vec<_>>()).for_each(|record| survivors.push(record));

    let mut table = Table::new("deletes", "Single durable deletes: wall time and CPU");
    table.note(format!(
        "{} of {count} records by one client, {} alternating runs, the remaining records are checked",
        victims.len(),
        laboratory.rounds
    ));
    describe(&mut table, laboratory.with_role(Role::DurableWrites));
    table.ratios = Some((BASELINE.to_owned(), vec!["median", "cpu"]));
    let mut subjects: Vec<(&dyn System, Latencies)> =
        laboratory.with_role(Role::DurableWrites).map(|system| (system, Latencies::default())).collect();
    progress("durable deletes");
    let cpu = measure::alternate(laboratory.rounds, &mut subjects, |(system, latencies)| {
        let folder = laboratory.folder()?;
        let writer = system.open_writer(folder.path())?;
        writer.insert_all(&survivors)?;
        writer.insert_all(&victims)?;
        let start = measure::thread_cpu();
        for victim in victims.records() {
            let start = Instant::now();
            writer.delete(&victim)?;
            latencies.record(start.elapsed());
        }
        let spent = measure::thread_cpu() - start;
        check_content(system.name(), writer.as_ref(), &survivors)?;
        Ok(spent.as_nanos() as f64 / victims.len() as f64)
    })?;
    let params = json!({"records": count, "deletes": victims.len()});
    for ((system, mut latencies), mut cpu) in subjects.into_iter().zip(cpu) {
        let median = latencies.quantile_ns(0.5).context("no deletes")? as f64;
        let slow = latencies.quantile_ns(0.99).context("no deletes")? as f64;
        let cpu = measure::median(&mut cpu).context("no rounds")?;
        table.figure(system.name(), &params, "median", median, "ns");
        table.figure(system.name(), &params, "p99", slow, "ns");
        table.figure(system.name(), &params, "cpu", cpu, "ns");
    }
    emit(table)
}
