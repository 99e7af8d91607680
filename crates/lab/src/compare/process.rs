//! Measurements in separate processes: builds, sizes and memory peaks.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::child::{BATCHED, BATCHED_MAX, Figures, Kind, Task};
use super::{Emit, Laboratory, TERRANE, describe, progress};
use crate::measure;
use crate::parquet_file;
use crate::report::{Bound, Table};
use crate::system::{Role, SPATIAL_INDEX, System};
use crate::workload::Points;

const BASELINE: &str = "sqlite-full";
const MIB: f64 = 1_048_576.0;
/// One and a half times Terrane's limit of 64 MiB.
const PEAK_BYTES: f64 = 96.0 * MIB;
const COMPONENTS: usize = 5;

/// From a Parquet file to an instance that is durable, where the system can be, and indexed.
pub fn build(laboratory: &Laboratory, emit: &mut Emit<'_>) -> Result<()> {
    let points = laboratory.points()?;
    let folder = laboratory.folder()?;
    let file = folder.path().join("points.parquet");
    parquet_file::write(points, &file)?;
    let mut table = Table::new("build", format!("Build from a Parquet file of {} points", points.len()));
    table.note(format!(
        "CPU of all threads, medians of {} alternating runs, each in a process of its own; the highest peak; contents checked",
        laboratory.rounds
    ));
    describe(&mut table, laboratory.with_role(Role::Build));
    table.ratios = Some((BASELINE.to_owned(), vec!["cpu", "wall"]));

    struct Runs<'a> {
        system: &'a dyn System,
        wall_s: Vec<f64>,
        peak_bytes: Vec<f64>,
    }
    let mut subjects: Vec<Runs<'_>> = laboratory
        .with_role(Role::Build)
        .map(|system| Runs { system, wall_s: Vec::new(), peak_bytes: Vec::new() })
        .collect();
    progress("building from Parquet");
    let mut clean = true;
    let cpu = measure::alternate(laboratory.rounds, &mut subjects, |runs| {
        let folder = laboratory.folder()?;
        let figures = build_task(runs.system, folder.path(), &file).figures()?;
        figures.expect_content(points.len() as u64, points.id_sum())?;
        clean &= figures.peak_is_clean();
        runs.wall_s.push(figures.number("wall_s")?);
        runs.peak_bytes.push(figures.number("peak_bytes")?);
        figures.number("cpu_s")
    })?;
    if !clean {
        table.note("the kernel does not let peaks be reset: they include the process's start");
    }
    let params = json!({"points": points.len(), "file_bytes": fs::metadata(&file)?.len()});
    for (mut runs, mut cpu) in subjects.into_iter().zip(cpu) {
        let name = runs.system.name();
        let cpu = measure::median(&mut cpu).context("no rounds")?;
        let wall = measure::median(&mut runs.wall_s).context("no rounds")?;
        let peak = runs.peak_bytes.iter().copied().fold(0.0, f64::max);
        table.figure(name, &params, "cpu", cpu, "s");
        table.figure(name, &params, "wall", wall, "s");
        table.figure(name, &params, "peak memory", peak, "bytes");
    }
    // The issue states its bound for a million points.
    table.target(TERRANE, "cpu", Bound::AtMost(1.5 * points.len() as f64 / 1e6), "s");
    table.target(TERRANE, "peak memory", Bound::AtMost(PEAK_BYTES), "bytes");
    emit(table)
}

fn build_task(system: &dyn System, dir: &Path, file: &Path) -> Task {
    Task { file: Some(file.to_owned()), ..Task::new(Kind::Build, system.name(), dir) }
}

/// Bytes of the finished instance, with dense and with random keys.
pub fn size(laboratory: &Laboratory, emit: &mut Emit<'_>) -> Result<()> {
    let dense = laboratory.points()?;
    let mut table = Table::new("size", format!("Size of {} points", dense.len()));
    table.note("spatial index: the part that finds points by position; on disk: all files of the closed instance");
    progress("sizes");
    for (keys, points) in [("dense keys", dense), ("random 64-bit keys", &dense.with_random_keys())] {
        let folder = laboratory.folder()?;
        let file = folder.path().join("points.parquet");
        parquet_file::write(points, &file)?;
        for system in laboratory.with_role(Role::Build) {
            let folder = laboratory.folder()?;
            let figures = build_task(system, folder.path(), &file).figures()?;
            figures.expect_content(points.len() as u64, points.id_sum())?;
            let row = format!("{}, {keys}", system.name());
            let params = json!({"points": points.len(), "keys": keys});
            let per_point = |bytes: f64| bytes / points.len() as f64;
            for (part, bytes) in figures.footprint() {
                if part == SPATIAL_INDEX {
                    let bytes = per_point(bytes);
                    table.figure_in_row(&row, system.name(), &params, "spatial index", bytes, "bytes/point");
                }
            }
            let on_disk = folder_bytes(folder.path())?;
            if on_disk > 0 {
                let each = per_point(on_disk as f64);
                table.figure_in_row(&row, system.name(), &params, "on disk", on_disk as f64, "bytes");
                table.figure_in_row(&row, system.name(), &params, "on disk, each", each, "bytes/point");
            }
        }
    }
    table.target(&format!("{TERRANE}, dense keys"), "spatial index", Bound::AtMost(24.0), "bytes/point");
    emit(table)
}

/// Total length of the files in a folder and its subfolders.
fn folder_bytes(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_dir() {
                folders.push(entry.path());
            } else {
                bytes += metadata.len();
            }
        }
    }
    Ok(bytes)
}

/// Peaks of the tasks that touch everything: import, full query by a second process, the same
/// beside a writer whose records are only in its log, merge.
pub fn memory(laboratory: &Laboratory, emit: &mut Emit<'_>) -> Result<()> {
    let points = laboratory.points()?;
    let folder = laboratory.folder()?;
    let file = folder.path().join("points.parquet");
    parquet_file::write(points, &file)?;
    let mut table = Table::new("memory", format!("Peak resident memory with {} points", points.len()));
    table
        .note("each task in a process of its own; full query: a second process opens the store and reads every record");
    table.note(format!("beside a writer: the same while another process, with {BATCHED_MAX} records more, inserts"));
    progress("memory peaks");
    let params = json!({"points": points.len()});
    for system in laboratory.with_role(Role::Reopen) {
        let name = system.name();
        let folder = laboratory.folder()?;
        let import = build_task(system, folder.path(), &file).figures()?;
        let scan = Task::new(Kind::Scan, name, folder.path());
        let query = scan.figures()?;
        query.expect_content(points.len() as u64, points.id_sum())?;
        let beside = beside_a_writer(&scan, points.len())?;
        for (metric, figures) in [("import", &import), ("full query", &query), ("beside a writer", &beside)] {
            table.figure(name, &params, metric, figures.number("peak_bytes")?, "bytes");
        }
        if system.roles().contains(&Role::Compact) {
            let folder = laboratory.folder()?;
            let task = Task { components: COMPONENTS, ..build_task(system, folder.path(), &file) };
            task.figures()?;
            let merge = Task::new(Kind::Compact, name, folder.path()).figures()?;
            merge.expect_content(points.len() as u64, points.id_sum())?;
            let peak = merge.number("peak_bytes")?;
            table.figure(name, &params, "merge", peak, "bytes");
        }
    }
    for metric in ["import", "full query", "beside a writer", "merge"] {
        table.target(TERRANE, metric, Bound::AtMost(PEAK_BYTES), "bytes");
    }
    emit(table)
}

/// The figures of a scan of the instance while another process inserts into it.
fn beside_a_writer(scan: &Task, points: usize) -> Result<Figures> {
    let first_id = i64::try_from(points)?;
    let ingest = Task { kind: Kind::Ingest, first_id, batched: BATCHED_MAX, ..scan.clone() };
    let mut running = ingest.start()?;
    ensure!(running.line()?.as_deref() == Some(BATCHED), "{} ended before its batches were durable", scan.system);
    let figures = scan.figures()?;
    let (count, _) = figures.content()?;
    let certain = (points + BATCHED_MAX) as u64;
    ensure!(count >= certain, "{} showed {count} records of {certain} that were durable", scan.system);
    running.kill()?;
    Ok(figures)
}

/// Used by the section that kills processes, which needs a built instance too.
pub(super) fn build_for_reopen(system: &dyn System, dir: &Path, points: &Points) -> Result<()> {
    let file = dir.with_extension("parquet");
    parquet_file::write(points, &file)?;
    let figures = build_task(system, dir, &file).figures();
    fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
    figures?.expect_content(points.len() as u64, points.id_sum())
}
