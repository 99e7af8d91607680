//! Opening after SIGKILL: no acknowledged record may be missing, and the first answer should come
//! soon.

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use super::child::{BATCHED, BATCHED_MAX, Figures, Kind, SINGLES, Task};
use super::process::build_for_reopen;
use super::{Emit, Laboratory, TERRANE, describe, progress};
use crate::report::{Bound, Table};
use crate::system::{Role, System};
use crate::workload::Points;

/// Points at which the bound on the first answer holds.
const JUDGED_AT: usize = 10_000_000;
const ACKNOWLEDGED: usize = 500;

/// Fills a store, kills the process that inserts, opens the store again and checks its records.
pub fn run(laboratory: &Laboratory, emit: &mut Emit<'_>) -> Result<()> {
    let points = laboratory.points()?;
    let batched = (points.len() / 2).min(BATCHED_MAX);
    let mut table = Table::new("reopen", format!("Open after SIGKILL, {} points", points.len()));
    table.note(format!(
        "then {batched} records in batches and single durable inserts until killed; every acknowledged one is there"
    ));
    table.note("the first answer is judged at 10 M points: --only reopen --points 10000000");
    describe(&mut table, laboratory.with_role(Role::Reopen));
    let params = json!({"points": points.len(), "batched": batched});
    for system in laboratory.with_role(Role::Reopen) {
        let name = system.name();
        progress(&format!("killing {name}"));
        let figures = kill_and_reopen(laboratory, system, points, batched)?;
        table.figure(name, &params, "open", figures.number("open_s")?, "s");
        let first = figures.number("wall_s")?;
        table.figure(name, &params, "first answer", first, "s");
        let peak = figures.number("peak_bytes")?;
        table.figure(name, &params, "peak memory", peak, "bytes");
        if let (Some(records), Some(replay_s)) = (figures.optional("replay_records"), figures.optional("replay_s")) {
            table.figure(name, &params, "replayed", records, "");
            table.figure(name, &params, "replay", replay_s, "s");
            table.figure(name, &params, "first answer without replay", first - replay_s, "s");
            if replay_s > 0.0 {
                let rate = records / replay_s;
                table.figure(name, &params, "replay rate", rate, "1/s");
            }
        }
    }
    if points.len() >= JUDGED_AT {
        table.target(TERRANE, "first answer without replay", Bound::AtMost(0.3), "s");
    }
    table.target(TERRANE, "replay rate", Bound::AtLeast(500_000.0), "1/s");
    emit(table)
}

fn kill_and_reopen(laboratory: &Laboratory, system: &dyn System, points: &Points, batched: usize) -> Result<Figures> {
    let name = system.name();
    let folder = laboratory.folder()?;
    build_for_reopen(system, folder.path(), points)?;

    let first_id = i64::try_from(points.len())?;
    let ingest = Task { first_id, batched, ..Task::new(Kind::Ingest, name, folder.path()) };
    let mut running = ingest.start()?;
    let started = running.line()?;
    ensure!(started.as_deref() == Some(BATCHED), "{name} ended before its batches were durable");
    let mut next = first_id + i64::try_from(batched)?;
    let mut acknowledged = 0;
    while acknowledged < ACKNOWLEDGED {
        match running.line()? {
            Some(line) => acknowledge(&line, &mut next)?,
            None => bail!("{name} ended after {acknowledged} acknowledged inserts"),
        }
        acknowledged += 1;
    }
    running.kill()?;
    // Keys printed before its death were acknowledged too.
    while let Some(line) = running.line()? {
        acknowledge(&line, &mut next)?;
        acknowledged += 1;
    }

    let figures = Task::new(Kind::Reopen, name, folder.path()).figures()?;
    let written = Points::generate_uniform(batched + SINGLES, first_id);
    let certain = batched + acknowledged;
    // The insert in progress may have become durable before the kill, or not.
    for count in [certain, (certain + 1).min(written.len())] {
        let id_sum = written.id[..count].iter().fold(points.id_sum(), |sum, &id| sum.wrapping_add(id as u64));
        if figures.content()? == ((points.len() + count) as u64, id_sum) {
            return Ok(figures);
        }
    }
    let (count, id_sum) = figures.content()?;
    bail!(
        "{name} holds {count} records with an id-sum of {id_sum} after the kill, but {} were acknowledged",
        points.len() + certain
    )
}

fn acknowledge(line: &str, next: &mut i64) -> Result<()> {
    let id: i64 = line.parse().with_context(|| format!("{line:?} is no key"))?;
    ensure!(id == *next, "key {id} was acknowledged instead of {next}");
    *next += 1;
    Ok(())
}
