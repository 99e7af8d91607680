//! Single inserts: durable ones by wall time, unsynced ones by CPU time.

use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::json;
use tempfile::TempDir;

use super::floor::Floor;
use super::{Emit, Laboratory, TERRANE, TERRANE_UNSYNCED, describe, progress};
use crate::measure::{self, Latencies};
use crate::report::{Bound, Table};
use crate::system::{Role, System, Writer, count_and_sum};
use crate::workload::{EXTENT, Points};

const DURABLE_INSERTS_MAX: usize = 2_000;
const CLIENT_INSERTS_MIN: usize = 100;
const UNSYNCED_INSERTS_MAX: usize = 200_000;
const FLOOR: &str = "bare overwrite";
/// Default for the bytes that one insert of the workload's records writes, if no system reports it:
/// a sector.
const FLOOR_BYTES_DEFAULT: u64 = 512;

enum Subject<'a> {
    System(&'a dyn System),
    Floor { floor: Floor, _folder: TempDir },
}

impl Subject<'_> {
    fn name(&self) -> &'static str {
        match self {
            Subject::System(system) => system.name(),
            Subject::Floor { .. } => FLOOR,
        }
    }
}

/// Single durable inserts by each number of clients, beside the bare disk.
pub fn durable(laboratory: &Laboratory, emit: &mut Emit<'_>) -> Result<()> {
    let block_bytes = bytes_per_insert(laboratory)?;
    let inserts = (laboratory.point_count / 10).min(DURABLE_INSERTS_MAX);
    let mut table = Table::new("inserts", "Single durable inserts into an empty store: wall time");
    table.note(format!(
        "{inserts} inserts or {CLIENT_INSERTS_MIN} per client, {} alternating runs, stored id-sums checked",
        laboratory.rounds
    ));
    table.note(format!("{FLOOR}: {block_bytes} bytes into zeroed, preallocated space + fdatasync"));
    describe(&mut table, laboratory.with_role(Role::DurableWrites));
    let mut systems: Vec<Subject<'_>> = laboratory.with_role(Role::DurableWrites).map(Subject::System).collect();
    let folder = laboratory.folder()?;
    systems.push(Subject::Floor { floor: Floor::new(folder.path(), block_bytes)?, _folder: folder });
    for &clients in &laboratory.clients {
        progress(&format!("durable inserts by {clients} client(s)"));
        let mut subjects: Vec<(&Subject<'_>, Latencies)> =
            systems.iter().map(|subject| (subject, Latencies::default())).collect();
        let each = (inserts / clients).max(CLIENT_INSERTS_MIN);
        let throughput = measure::alternate(laboratory.rounds, &mut subjects, |subject| {
            let (latencies, wall_s) = run_clients(laboratory, subject.0, clients, each)?;
            subject.1.merge(latencies);
            Ok((clients * each) as f64 / wall_s)
        })?;
        let params = json!({"clients": clients, "inserts": clients * each, "rounds": laboratory.rounds,
                            "bytes": block_bytes});
        for ((subject, mut latencies), mut rates) in subjects.into_iter().zip(throughput) {
            let name = subject.name();
            let row = row(name, clients);
            let median = latencies.quantile_ns(0.5).context("no inserts")? as f64;
            let slow = latencies.quantile_ns(0.99).context("no inserts")? as f64;
            let fastest = latencies.quantile_ns(0.0).context("no inserts")? as f64;
            let rate = measure::median(&mut rates).context("no rounds")?;
            table.figure_in_row(&row, name, &params, "median", median, "ns");
            table.figure_in_row(&row, name, &params, "p99", slow, "ns");
            table.figure_in_row(&row, name, &params, "fastest", fastest, "ns");
            table.figure_in_row(&row, name, &params, "throughput", rate, "1/s");
        }
    }
    let one = row(TERRANE, 1);
    let many = row(TERRANE, 16);
    table.ratios = Some((row(FLOOR, 1), vec!["median", "throughput"]));
    table.ratio_target(&one, "median", &row(FLOOR, 1), Bound::AtMost(1.3));
    table.ratio_target(&one, "median", &row("sqlite-full", 1), Bound::AtMost(0.85));
    table.ratio_target(&many, "throughput", &one, Bound::AtLeast(4.0));
    table.ratio_target(&many, "throughput", &row("sqlite-full", 16), Bound::AtLeast(3.0));
    emit(table)
}

fn row(name: &str, clients: usize) -> String {
    match clients {
        1 => format!("{name}, 1 client"),
        _ => format!("{name}, {clients} clients"),
    }
}

/// Bytes that the bare disk has to write for a fair comparison: as many as the system that reports
/// most.
fn bytes_per_insert(laboratory: &Laboratory) -> Result<u64> {
    let probe = Points::generate_uniform(1, 0);
    let mut most = None;
    for system in laboratory.with_role(Role::DurableWrites) {
        let folder = laboratory.folder()?;
        let writer = system.open_writer(folder.path())?;
        writer.insert(&probe.record(0))?;
        most = most.max(writer.bytes_per_insert());
    }
    Ok(most.unwrap_or(FLOOR_BYTES_DEFAULT))
}

fn run_clients(
    laboratory: &Laboratory,
    subject: &Subject<'_>,
    clients: usize,
    each: usize,
) -> Result<(Latencies, f64)> {
    let points = Points::generate_uniform(clients * each, 0);
    match subject {
        Subject::Floor { floor, .. } => in_threads(clients, &|client| -> Result<Latencies> {
            timed(&points, client * each, each, |_, _| floor.overwrite())
        }),
        Subject::System(system) => {
            let folder = laboratory.folder()?;
            let writer = system.open_writer(folder.path())?;
            let outcome = in_threads(clients, &|client| {
                timed(&points, client * each, each, |points, row| writer.insert(&points.record(row)))
            })?;
            check_content(system.name(), writer.as_ref(), &points)?;
            Ok(outcome)
        }
    }
}

fn timed(
    points: &Points,
    first: usize,
    count: usize,
    operation: impl Fn(&Points, usize) -> Result<()>,
) -> Result<Latencies> {
    let mut latencies = Latencies::with_capacity(count);
    for row in first..first + count {
        let start = Instant::now();
        operation(points, row)?;
        latencies.record(start.elapsed());
    }
    Ok(latencies)
}

/// Runs one client per thread from a common start. Gives all latencies, and the wall time from the
/// first client's start until the last is done. The clients report their times, since the waiting
/// thread may be woken late.
fn in_threads(clients: usize, client: &(impl Fn(usize) -> Result<Latencies> + Sync)) -> Result<(Latencies, f64)> {
    let barrier = Barrier::new(clients);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .map(|number| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    let start = Instant::now();
                    client(number).map(|latencies| (start, latencies, Instant::now()))
                })
            })
            .collect();
        let mut all = Latencies::default();
        let mut span: Option<(Instant, Instant)> = None;
        for thread in threads {
            let (start, latencies, end) = thread.join().map_err(|_| anyhow!("a client thread panicked"))??;
            all.merge(latencies);
            let (first, last) = span.unwrap_or((start, end));
            span = Some((first.min(start), last.max(end)));
        }
        let (first, last) = span.context("no clients")?;
        Ok((all, last.duration_since(first).as_secs_f64()))
    })
}

pub(super) fn check_content(name: &str, writer: &dyn Writer, expected: &Points) -> Result<()> {
    let found = count_and_sum(writer.reader()?.as_ref(), &EXTENT)?;
    let wanted = (expected.len() as u64, expected.id_sum());
    ensure!(
        found == wanted,
        "{name} holds {} records with an id-sum of {}, but {} records with {} were written",
        found.0,
        found.1,
        wanted.0,
        wanted.1
    );
    Ok(())
}

/// Single inserts that a crash may lose: CPU of the inserting thread, and of all others apart.
pub fn unsynced(laboratory: &Laboratory, emit: &mut Emit<'_>) -> Result<()> {
    let count = laboratory.point_count.min(UNSYNCED_INSERTS_MAX);
    let points = Points::generate_uniform(count, 0);
    let mut table = Table::new("unsynced-inserts", "Single inserts that a crash may lose: CPU per insert");
    table.note(format!(
        "{count} inserts by one client, median of {} alternating runs; background: other threads, and closing",
        laboratory.rounds
    ));
    describe(&mut table, laboratory.with_role(Role::UnsyncedWrites));
    let mut subjects: Vec<(&dyn System, Vec<f64>)> =
        laboratory.with_role(Role::UnsyncedWrites).map(|system| (system, Vec::new())).collect();
    progress("unsynced inserts");
    let foreground = measure::alternate(laboratory.rounds, &mut subjects, |(system, background)| {
        let folder = laboratory.folder()?;
        let writer = system.open_writer(folder.path())?;
        let start = (measure::thread_cpu(), measure::process_cpu());
        for record in points.records() {
            writer.insert(&record)?;
        }
        let front = measure::thread_cpu() - start.0;
        check_content(system.name(), writer.as_ref(), &points)?;
        let checked = measure::thread_cpu() - start.0 - front;
        drop(writer);
        let all = measure::process_cpu() - start.1;
        let behind = all.saturating_sub(front).saturating_sub(checked);
        background.push(behind.as_nanos() as f64 / count as f64);
        Ok(front.as_nanos() as f64 / count as f64)
    })?;
    let params = json!({"inserts": count});
    for ((system, mut background), mut foreground) in subjects.into_iter().zip(foreground) {
        let front = measure::median(&mut foreground).context("no rounds")?;
        let behind = measure::median(&mut background).context("no rounds")?;
        table.figure(system.name(), &params, "foreground", front, "ns");
        table.figure(system.name(), &params, "background", behind, "ns");
    }
    table.target(TERRANE_UNSYNCED, "foreground", Bound::AtMost(4_000.0), "ns");
    emit(table)
}
