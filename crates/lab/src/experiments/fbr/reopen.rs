//! Opening after SIGKILL: a process fills a tree and is killed. Another one opens it, and rebuilds
//! nothing.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use terrane_pmem::Native;
use terrane_pmtree::{PersistenceDomain, Rect, Split};
use terrane_storage::RealStorage;

use super::{Boxes, Kind, Queries, Tree, count_in_window, create, open};
use crate::experiments::Setup;
use crate::measure;
use crate::progress::progress;
use crate::report::{Bound, Emit, Table};
use crate::running::Running;

/// Insertions that the process acknowledges one by one before it is killed.
const ACKNOWLEDGED: u64 = 500;
/// Printed before that.
const FILLED: &str = "filled";
/// Share of the entries that a first query finds.
const SMALL: f64 = 1e-5;
/// The size of the target.
const TARGET_COUNT: u64 = 10_000_000;

/// The work of the process that is killed.
#[derive(Clone, Debug, clap::Args)]
pub struct Growth {
    /// Folder of the pool.
    #[arg(long)]
    dir: PathBuf,
    /// Entries before the acknowledged ones.
    #[arg(long)]
    count: u64,
    /// Entries of a node.
    #[arg(long)]
    fan_out: usize,
    /// How full nodes are divided.
    #[arg(long, value_parser = super::split_parser())]
    split: Split,
    /// Seed of the boxes.
    #[arg(long)]
    seed: u64,
}

/// Fills a tree, then inserts until killed, and prints the payload of each inserted entry.
pub fn grow(growth: &Growth, out: &mut dyn Write) -> Result<()> {
    let shape = super::Shape { kind: Kind::InPlace, fan_out: growth.fan_out, split: growth.split };
    let tree: Tree<Native> = create(&RealStorage::new(&growth.dir), &shape, PersistenceDomain::PageCache)?;
    for (payload, rect) in (0..).zip(Boxes::new(growth.seed)) {
        if payload == growth.count {
            writeln!(out, "{FILLED}")?;
        }
        tree.insert(&rect, payload)?;
        if payload >= growth.count {
            writeln!(out, "{payload}")?;
            out.flush()?;
        }
    }
    Ok(())
}

/// Kills a process that grows a tree, opens the tree and checks its entries.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let count = setup.count(1_000_000, TARGET_COUNT);
    for &fan_out in setup.fan_outs(&[55]) {
        emit(kill_and_reopen(setup, count, fan_out)?)?;
    }
    Ok(())
}

fn kill_and_reopen(setup: &Setup, count: u64, fan_out: usize) -> Result<Table> {
    let shape = setup.shape(Kind::InPlace, fan_out);
    let folder = setup.pool_folder()?;
    progress(&format!("a process inserts {count} boxes, and is killed"));
    let path = |text: &str| text.to_owned().into();
    let mut running = Running::start(vec![
        path("grow"),
        path("--dir"),
        folder.path().into(),
        path("--count"),
        path(&count.to_string()),
        path("--fan-out"),
        path(&fan_out.to_string()),
        path("--split"),
        path(shape.split_name()),
        path("--seed"),
        path(&setup.options.seed.to_string()),
    ])?;
    ensure!(running.line()?.as_deref() == Some(FILLED), "the process ended before the tree was filled");
    let mut next = count;
    while next < count + ACKNOWLEDGED {
        let Some(line) = running.line()? else { bail!("the process ended after {} insertions", next - count) };
        next = acknowledged(&line, next)?;
    }
    running.kill()?;
    // Payloads printed before its death were acknowledged too.
    while let Some(line) = running.line()? {
        next = acknowledged(&line, next)?;
    }

    let storage = RealStorage::new(folder.path());
    let queries: Vec<Rect<3>> = Queries::new(setup.options.seed, SMALL).take(setup.rounds).collect();
    let (mut opened, mut answered) = (Vec::new(), Vec::new());
    for query in &queries {
        let start = Instant::now();
        let tree: Tree<Native> = open(&storage, &shape, PersistenceDomain::PageCache)?;
        opened.push(start.elapsed().as_nanos() as f64);
        count_in_window(&tree, query)?;
        answered.push(start.elapsed().as_nanos() as f64);
        // Dropped as by a kill: the next opening finds the pool open.
    }
    let tree: Tree<Native> = open(&storage, &shape, PersistenceDomain::PageCache)?;
    let (found, sum) = count_in_window(&tree, &Rect::new([-1.0; 3], [3.0; 3])?)?;
    // The insertion in progress may be there, or not.
    let is_expected = |entries: u64| (found, sum) == (entries, entries * (entries - 1) / 2);
    ensure!(is_expected(next) || is_expected(next + 1), "{found} entries are there of {next} that were acknowledged");

    let mut table =
        Table::new("fbr/reopen", format!("Open after SIGKILL, {count} random boxes, {fan_out} entries a node"));
    table.note(format!("then {ACKNOWLEDGED} acknowledged insertions until killed; every one is there"));
    table.note(format!(
        "page cache, wall time; \"first\" follows the kill, the others are medians of {} openings without a close",
        queries.len()
    ));
    let params = json!({"count": count, "fan_out": fan_out, "split": shape.split_name(),
                        "seed": setup.options.seed});
    let name = "fbr-tree";
    let first = |values: &[f64]| values.first().copied().context("no rounds");
    table.figure(name, &params, "first open", first(&opened)?, "ns");
    table.figure(name, &params, "first answer", first(&answered)?, "ns");
    table.figure(name, &params, "open", measure::median(&mut opened).context("no rounds")?, "ns");
    table.figure(name, &params, "answer", measure::median(&mut answered).context("no rounds")?, "ns");
    table.figure(name, &params, "pool", tree.pool().length() as f64, "bytes");
    table.target(name, "first open", Bound::AtMost(10e6), "ns");
    Ok(table)
}

fn acknowledged(line: &str, expected: u64) -> Result<u64> {
    let payload: u64 = line.parse().with_context(|| format!("{line:?} is no payload"))?;
    ensure!(payload == expected, "payload {payload} was acknowledged instead of {expected}");
    Ok(payload + 1)
}
