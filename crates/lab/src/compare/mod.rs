//! `terrane-lab compare`: Terrane beside its peers on the same data, in one run.
//!
//! Each section checks that all systems give the same answers before any time counts. It hands its
//! table out as soon as it is measured. A disagreement ends the run with an error.

pub mod child;
mod deletes;
mod floor;
mod grown;
mod inserts;
mod maps;
mod process;
mod queries;
mod reopen;

use std::cell::OnceCell;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::experiments::Unavailable;
use crate::progress::{self, progress};
use crate::report::{self, Emit, Format, Table};
use crate::system::{Role, System};
use crate::workload::{self, Points};

/// The system whose targets are judged.
pub const TERRANE: &str = "terrane";
/// The same store without a log.
pub const TERRANE_UNSYNCED: &str = "terrane-none";

/// A part of the comparison that can be run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Section {
    /// Building from a Parquet file: CPU, wall time, peak memory.
    Build,
    /// Windows of 10 and 100 hits, in one piece and in five components.
    Windows,
    /// The 10 nearest neighbours.
    Nearest,
    /// Indexes that grow entry by entry: inserts, windows and nearest neighbours.
    Grown,
    /// Single durable inserts by 1 to many clients.
    Inserts,
    /// Single inserts that a crash may lose.
    UnsyncedInserts,
    /// Single durable deletes.
    Deletes,
    /// Opening after a killed process.
    Reopen,
    /// Bytes on disk and in indexes.
    Size,
    /// Peak memory of imports, merges, full queries and second processes.
    Memory,
    /// Ordered maps by themselves.
    Maps,
}

impl Section {
    /// All sections, in the order they run.
    pub const ALL: [Section; 11] = [
        Section::Build,
        Section::Windows,
        Section::Nearest,
        Section::Grown,
        Section::Inserts,
        Section::UnsyncedInserts,
        Section::Deletes,
        Section::Reopen,
        Section::Size,
        Section::Memory,
        Section::Maps,
    ];

    /// Name on the command line and in `experiment`.
    pub fn name(self) -> &'static str {
        match self {
            Section::Build => "build",
            Section::Windows => "windows",
            Section::Nearest => "nearest",
            Section::Grown => "grown",
            Section::Inserts => "inserts",
            Section::UnsyncedInserts => "unsynced-inserts",
            Section::Deletes => "deletes",
            Section::Reopen => "reopen",
            Section::Size => "size",
            Section::Memory => "memory",
            Section::Maps => "maps",
        }
    }

    /// What it measures, in one line.
    pub fn description(self) -> &'static str {
        match self {
            Section::Build => "build from a Parquet file of points: CPU, wall time, peak memory",
            Section::Windows => "windows of 10 and 100 hits, in one piece and in five components: CPU",
            Section::Nearest => "10 nearest neighbours, in one piece and in five components: CPU",
            Section::Grown => "indexes that grow entry by entry, persistent and in memory: CPU of inserts and queries",
            Section::Inserts => "single durable inserts by 1, 4 and 16 clients: latency and throughput",
            Section::UnsyncedInserts => "single inserts that a crash may lose: foreground and background CPU",
            Section::Deletes => "single durable deletes: latency and CPU",
            Section::Reopen => "open after SIGKILL: time to the first answer, log replay, nothing lost",
            Section::Size => "bytes on disk and in indexes, with dense and with random keys",
            Section::Memory => "peak memory of import, merge, full query and second-process reader",
            Section::Maps => "ordered maps of integers, in a file and in memory: CPU of insertions and look-ups",
        }
    }

    /// Names of the options it takes, beside the common ones.
    pub fn takes(self) -> &'static [&'static str] {
        match self {
            Section::Inserts => &["clients", "rounds"],
            Section::Reopen | Section::Size | Section::Memory => &[],
            _ => &["rounds"],
        }
    }
}

/// Options that every section takes when it is run alone.
pub const COMMON: [&str; 4] = ["points", "systems", "format", "dir"];

/// Options of `compare`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Points in the workload.
    #[arg(long, default_value_t = workload::POINTS_DEFAULT, value_name = "N")]
    pub points: usize,
    /// Numbers of clients that insert at once, in the section inserts.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4, 16], value_name = "N,…")]
    pub clients: Vec<usize>,
    /// Sections to run; all when absent.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "SECTION,…")]
    pub only: Vec<Section>,
    /// Systems to compare by name; all when absent.
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    pub systems: Vec<String>,
    /// Alternating runs whose median counts, in sections that repeat what they measure.
    #[arg(long, default_value_t = 5, value_name = "N")]
    pub rounds: usize,
    /// How figures are written.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Folder on the disk to measure; a new folder in it is used and removed.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

impl Options {
    /// Checks that clap cannot make. The text is a usage error.
    pub fn refuse(&self) -> Option<String> {
        if self.points < workload::POINTS_MIN || self.points >= u32::MAX as usize {
            return Some(format!(
                "--points {}: give a number from {} to {}",
                self.points,
                workload::POINTS_MIN,
                u32::MAX - 1
            ));
        }
        if self.rounds == 0 || self.rounds > 1_000 {
            return Some(format!("--rounds {}: give a number from 1 to 1000", self.rounds));
        }
        if let Some(clients) = self.clients.iter().find(|&&n| n == 0 || n > 256) {
            return Some(format!("--clients {clients}: give numbers from 1 to 256"));
        }
        self.systems
            .iter()
            .find_map(|name| crate::systems::by_name(name).err())
            .map(|error| format!("--systems: {error}"))
    }
}

/// The setup of every section.
pub struct Laboratory {
    points: OnceCell<Points>,
    point_count: usize,
    systems: Vec<Box<dyn System>>,
    clients: Vec<usize>,
    rounds: usize,
    dir: TempDir,
}

impl Laboratory {
    fn new(options: &Options) -> Result<Self> {
        let parent = options.dir.clone().unwrap_or_else(std::env::temp_dir);
        let dir = TempDir::with_prefix_in("terrane-lab-", &parent)
            .with_context(|| format!("cannot make a folder in {}", parent.display()))?;
        warn_if_in_memory(dir.path());
        let systems = crate::systems::all()
            .into_iter()
            .filter(|system| options.systems.is_empty() || options.systems.iter().any(|name| name == system.name()))
            .collect();
        Ok(Self {
            points: OnceCell::new(),
            point_count: options.points,
            systems,
            clients: options.clients.clone(),
            rounds: options.rounds,
            dir,
        })
    }

    fn points(&self) -> Result<&Points> {
        if self.points.get().is_none() {
            progress(&format!("generating {} points", self.point_count));
            let _ = self.points.set(Points::generate(self.point_count)?);
        }
        self.points.get().context("the points were just set")
    }

    fn with_role(&self, role: Role) -> impl Iterator<Item = &dyn System> {
        self.systems.iter().map(AsRef::as_ref).filter(move |system| system.roles().contains(&role))
    }

    /// An empty folder of its own, removed when dropped.
    fn folder(&self) -> Result<TempDir> {
        TempDir::new_in(self.dir.path()).context("cannot make a folder to measure in")
    }
}

/// Runs the chosen sections and writes their tables.
pub fn run(options: &Options, out: &mut dyn Write) -> Result<()> {
    progress::warn_of_debug_build();
    let laboratory = Laboratory::new(options)?;
    ensure!(!laboratory.systems.is_empty(), "no system to compare was built in");
    let chosen = |section| options.only.is_empty() || options.only.contains(&section);
    let mut write = report::emitter(options.format, out);
    let mut is_empty = true;
    let mut emit = |table: Table| {
        is_empty &= table.figures.is_empty();
        write(table)
    };
    if chosen(Section::Build) {
        process::build(&laboratory, &mut emit)?;
    }
    if chosen(Section::Windows) || chosen(Section::Nearest) {
        queries::run(&laboratory, chosen(Section::Windows), chosen(Section::Nearest), &mut emit)?;
    }
    if chosen(Section::Grown) {
        grown::run(&laboratory, &mut emit)?;
    }
    if chosen(Section::Inserts) {
        inserts::durable(&laboratory, &mut emit)?;
    }
    if chosen(Section::UnsyncedInserts) {
        inserts::unsynced(&laboratory, &mut emit)?;
    }
    if chosen(Section::Deletes) {
        deletes::run(&laboratory, &mut emit)?;
    }
    if chosen(Section::Reopen) {
        reopen::run(&laboratory, &mut emit)?;
    }
    if chosen(Section::Size) {
        process::size(&laboratory, &mut emit)?;
    }
    if chosen(Section::Memory) {
        process::memory(&laboratory, &mut emit)?;
    }
    if chosen(Section::Maps) {
        maps::run(&laboratory, &mut emit)?;
    }
    ensure!(
        !is_empty,
        Unavailable("the chosen sections measure none of the chosen systems; choose others with --systems")
    );
    Ok(())
}

/// Adds one line for each system with the settings that its figures depend on.
fn describe<'a>(table: &mut Table, systems: impl Iterator<Item = &'a dyn System>) {
    for system in systems {
        table.note(format!("{}: {}", system.name(), system.settings()));
    }
}

fn warn_if_in_memory(dir: &Path) {
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    const RAMFS_MAGIC: i64 = 0x8584_58f6;
    let kind = rustix::fs::statfs(dir).map(|status| i128::from(status.f_type));
    if let Ok(kind) = kind
        && [TMPFS_MAGIC, RAMFS_MAGIC].map(i128::from).contains(&kind)
    {
        progress(&format!(
            "{} is in memory: syncs cost nothing there, name a folder on a disk with --dir",
            dir.display()
        ));
    }
}

#[cfg(all(test, feature = "peers"))]
mod compare_tests;
