//! Tasks that need a process of their own: to measure memory peaks that nothing else raised, and to
//! be killed.
//!
//! The child prints one JSON object of figures as its last line. Earlier lines belong to the task.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};

use crate::measure;
use crate::running::Running;
use crate::system::{Reader, count_and_sum, count_and_sum_of_records};
use crate::systems;
use crate::workload::{EXTENT, Points, Window};

/// A task and what it works on.
#[derive(Clone, Debug, clap::Args)]
pub struct Task {
    /// What to do.
    #[arg(value_enum)]
    pub kind: Kind,
    /// System to do it with.
    #[arg(long)]
    pub system: String,
    /// Folder of the instance.
    #[arg(long)]
    pub dir: PathBuf,
    /// Parquet file to build from.
    #[arg(long)]
    pub file: Option<PathBuf>,
    /// Components to build.
    #[arg(long, default_value_t = 1)]
    pub components: usize,
    /// Key of the first record to insert.
    #[arg(long, default_value_t = 0)]
    pub first_id: i64,
    /// Records to insert as batches before single ones.
    #[arg(long, default_value_t = 0)]
    pub batched: usize,
}

/// What a child can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Build an instance from a Parquet file.
    Build,
    /// Open an instance and read every record.
    Scan,
    /// Open an instance and merge its components.
    Compact,
    /// Insert until killed, printing each key once it is acknowledged.
    Ingest,
    /// Open an instance after a crash and give a first answer.
    Reopen,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Build => "build",
            Kind::Scan => "scan",
            Kind::Compact => "compact",
            Kind::Ingest => "ingest",
            Kind::Reopen => "reopen",
        }
    }
}

/// Records given to one batch while a log is filled.
pub const BATCH: usize = 10_000;
/// The most records that a child is asked to insert as batches. They fit into one memory component
/// under 64 MiB, so that no flush shortens the replay.
pub const BATCHED_MAX: usize = 50_000;
/// The most single inserts of a child. A parent kills it long before.
pub const SINGLES: usize = 100_000;
/// What an ingesting child prints when its batches are durable.
pub const BATCHED: &str = "batched";

/// A small window where the workload has points, for a first answer.
const FIRST_WINDOW: Window = Window { x0: -96.0, y0: 36.0, x1: -95.5, y1: 36.5 };

/// Runs the task in this process.
pub fn run(task: &Task, out: &mut dyn Write) -> Result<()> {
    if task.kind == Kind::Ingest {
        return ingest(task, out);
    }
    let system = systems::by_name(&task.system)?;
    let mut figures = Map::new();
    figures.insert("clean_peak".into(), json!(measure::reset_resident_peak()));
    let (cpu, wall) = (measure::process_cpu(), Instant::now());
    match task.kind {
        Kind::Ingest => bail!("an ingest has no figures"),
        Kind::Build => {
            let file = task.file.as_deref().context("build needs --file")?;
            let reader = if task.components > 1 {
                let points = crate::parquet_file::read_points(file)?;
                system.build(&points.deal(task.components), &task.dir)?
            } else {
                system.import(file, &task.dir)?
            };
            finish(&mut figures, cpu, wall)?;
            describe_content(&mut figures, reader.as_ref())?;
            for (part, bytes) in reader.footprint()? {
                figures.insert(format!("footprint {part}"), json!(bytes));
            }
        }
        Kind::Scan => {
            let reader = system.open_reader(&task.dir)?;
            insert_content(&mut figures, count_and_sum_of_records(reader.as_ref())?);
            finish(&mut figures, cpu, wall)?;
        }
        Kind::Compact => {
            let writer = system.open_writer(&task.dir)?;
            writer.compact()?;
            finish(&mut figures, cpu, wall)?;
            describe_content(&mut figures, writer.reader()?.as_ref())?;
        }
        Kind::Reopen => {
            let writer = system.open_writer(&task.dir)?;
            let reader = writer.reader()?;
            let open_s = wall.elapsed().as_secs_f64();
            count_and_sum(reader.as_ref(), &FIRST_WINDOW)?;
            finish(&mut figures, cpu, wall)?;
            figures.insert("open_s".into(), json!(open_s));
            if let Some(replay) = reader.replay() {
                figures.insert("replay_records".into(), json!(replay.records));
                figures.insert("replay_s".into(), json!(replay.wall_s));
            }
            describe_content(&mut figures, reader.as_ref())?;
        }
    }
    writeln!(out, "{}", Value::Object(figures))?;
    Ok(())
}

fn finish(figures: &mut Map<String, Value>, cpu: std::time::Duration, wall: Instant) -> Result<()> {
    let cpu = measure::process_cpu() - cpu;
    figures.insert("wall_s".into(), json!(wall.elapsed().as_secs_f64()));
    figures.insert("cpu_s".into(), json!(cpu.as_secs_f64()));
    figures.insert("peak_bytes".into(), json!(measure::resident_peak_bytes()?));
    Ok(())
}

fn describe_content(figures: &mut Map<String, Value>, reader: &dyn Reader) -> Result<()> {
    insert_content(figures, count_and_sum(reader, &EXTENT)?);
    Ok(())
}

fn insert_content(figures: &mut Map<String, Value>, (count, id_sum): (u64, u64)) {
    figures.insert("count".into(), json!(count));
    figures.insert("id_sum".into(), json!(id_sum));
}

fn ingest(task: &Task, out: &mut dyn Write) -> Result<()> {
    let system = systems::by_name(&task.system)?;
    let writer = system.open_writer(&task.dir)?;
    let points = Points::generate_uniform(task.batched + SINGLES, task.first_id);
    let mut batch = Points::with_capacity(BATCH);
    for row in 0..task.batched {
        batch.push(points.record(row));
        if batch.len() == BATCH || row + 1 == task.batched {
            writer.insert_all(&batch)?;
            batch = Points::with_capacity(BATCH);
        }
    }
    writeln!(out, "{BATCHED}")?;
    out.flush()?;
    for row in task.batched..points.len() {
        let record = points.record(row);
        writer.insert(&record)?;
        writeln!(out, "{}", record.id)?;
        out.flush()?;
    }
    Ok(())
}

impl Task {
    /// The task of that kind on an instance, everything else at its default.
    pub fn new(kind: Kind, system: &str, dir: &Path) -> Self {
        Self {
            kind,
            system: system.to_owned(),
            dir: dir.to_owned(),
            file: None,
            components: 1,
            first_id: 0,
            batched: 0,
        }
    }

    /// Starts a process that does the task.
    pub fn start(&self) -> Result<Running> {
        let mut arguments: Vec<OsString> = ["child", self.kind.name(), "--system", &self.system].map(Into::into).into();
        let numbers = [
            ("--components", self.components.to_string()),
            ("--first-id", self.first_id.to_string()),
            ("--batched", self.batched.to_string()),
        ];
        let files = [("--dir", Some(&self.dir)), ("--file", self.file.as_ref())];
        let files = files.into_iter().filter_map(|(flag, path)| Some((flag, path?.clone().into_os_string())));
        for (flag, value) in numbers.map(|(flag, number)| (flag, OsString::from(number))).into_iter().chain(files) {
            arguments.extend([flag.into(), value]);
        }
        Running::start(arguments)
    }

    /// Runs the task in a process of its own and returns its figures.
    pub fn figures(&self) -> Result<Figures> {
        let what = format!("{} with {}", self.kind.name(), self.system);
        let mut running = self.start()?;
        let mut last = String::new();
        while let Some(line) = running.line()? {
            last = line;
        }
        let status = running.wait()?;
        ensure!(status.success(), "{what} ended with {status}");
        let values: Map<String, Value> =
            serde_json::from_str(&last).with_context(|| format!("{what} printed no figures but {last:?}"))?;
        Ok(Figures { what, values })
    }
}

/// What a child measured.
pub struct Figures {
    what: String,
    values: Map<String, Value>,
}

impl Figures {
    /// A figure that the task always reports.
    pub fn number(&self, name: &str) -> Result<f64> {
        self.optional(name).with_context(|| format!("{} reported no {name}", self.what))
    }

    /// A figure that only some systems report.
    pub fn optional(&self, name: &str) -> Option<f64> {
        self.values.get(name).and_then(Value::as_f64)
    }

    /// Whether the peak is the task's alone, not that of the process so far.
    pub fn peak_is_clean(&self) -> bool {
        self.values.get("clean_peak") == Some(&Value::Bool(true))
    }

    /// Bytes of the instance's parts.
    pub fn footprint(&self) -> impl Iterator<Item = (&str, f64)> {
        self.values.iter().filter_map(|(name, value)| Some((name.strip_prefix("footprint ")?, value.as_f64()?)))
    }

    /// Number and id-sum of the records it found.
    pub fn content(&self) -> Result<(u64, u64)> {
        let whole = |name: &str| {
            self.values.get(name).and_then(Value::as_u64).with_context(|| format!("{} reported no {name}", self.what))
        };
        Ok((whole("count")?, whole("id_sum")?))
    }

    /// Fails unless exactly these records were found.
    pub fn expect_content(&self, count: u64, id_sum: u64) -> Result<()> {
        let found = self.content()?;
        ensure!(
            found == (count, id_sum),
            "{} found {} records with an id-sum of {}, not {count} with {id_sum}",
            self.what,
            found.0,
            found.1
        );
        Ok(())
    }
}
