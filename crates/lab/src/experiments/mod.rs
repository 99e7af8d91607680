//! The papers' experiments, each by its name: `terrane-lab run fbr/insert-cost`.
//!
//! There is no persistent memory here. Counts come from counting back-ends, and times from runs on
//! the page cache. Neither is a figure of a device.

pub mod btree;
pub mod fbr;
mod insertions;
pub mod lsm;
pub mod pear;
pub mod pmr;
mod workers;

use std::io::Write;
use std::os::fd::AsFd;
use std::path::PathBuf;

use anyhow::{Context, Result};
use tempfile::TempDir;
use terrane_pmem::probe;
use terrane_pmtree::Split;

use crate::measure;
use crate::progress;
use crate::report::{self, Emit, Format};
use crate::workload;

/// An experiment of a paper.
pub struct Experiment {
    /// Name on the command line and in `experiment`.
    pub name: &'static str,
    /// What it measures, in one line.
    pub description: &'static str,
    /// Names of the options it takes, beside the common ones.
    pub takes: &'static [&'static str],
    run: fn(&Setup, &mut Emit<'_>) -> Result<()>,
}

/// All experiments, in the order of the papers.
pub fn all() -> impl Iterator<Item = &'static Experiment> {
    fbr::EXPERIMENTS
        .iter()
        .chain(pmr::EXPERIMENTS)
        .chain(pear::EXPERIMENTS)
        .chain(btree::EXPERIMENTS)
        .chain(lsm::EXPERIMENTS)
}

/// Options that every experiment takes.
pub const COMMON: [&str; 1] = ["format"];

/// Options of the experiments.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "OfPapers")]
#[command(next_help_heading = "Options of the papers' experiments, as fbr/insert-cost")]
pub struct Options {
    /// Entries that the trees hold.
    #[arg(long, value_name = "N")]
    pub count: Option<u64>,
    /// Sizes that take minutes to hours, up to those of the published figures that fit on one
    /// machine.
    #[arg(long)]
    pub full: bool,
    /// Entries of a node.
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    pub fan_outs: Vec<usize>,
    /// Queries asked of each tree.
    #[arg(long, value_name = "N")]
    pub queries: Option<usize>,
    /// Numbers of threads.
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    pub threads: Vec<usize>,
    /// Seconds for which each number of threads runs.
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<f64>,
    /// Shares of all entries that a query finds on average.
    #[arg(long, value_delimiter = ',', value_name = "SHARE,…")]
    pub selectivities: Vec<f64>,
    /// How full nodes are divided; as in the papers when absent.
    #[arg(long, value_name = "SPLIT", value_parser = fbr::split_parser())]
    pub split: Option<Split>,
    /// File of a format that the experiment reads.
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Seed of random boxes, sizes, texts and queries. Positions of points are always the same.
    #[arg(long, default_value_t = workload::SEED)]
    pub seed: u64,
}

impl Options {
    /// Checks that clap cannot make. The text is a usage error.
    pub fn refuse(&self) -> Option<String> {
        if self.count.is_some_and(|count| !(1000..=1_000_000_000).contains(&count)) {
            return Some("--count: give a number from 1000 to 1000000000".to_owned());
        }
        if let Some(fan_out) = self.fan_outs.iter().find(|fan_out| !(4..=503).contains(*fan_out)) {
            return Some(format!("--fan-outs {fan_out}: give numbers from 4 to 503"));
        }
        if let Some(threads) = self.threads.iter().find(|threads| !(1..=256).contains(*threads)) {
            return Some(format!("--threads {threads}: give numbers from 1 to 256"));
        }
        if let Some(share) = self.selectivities.iter().find(|share| !(1e-9..=0.5).contains(*share)) {
            return Some(format!("--selectivities {share}: give numbers from 1e-9 to 0.5"));
        }
        if self.queries.is_some_and(|queries| !(1..=10_000_000).contains(&queries)) {
            return Some("--queries: give a number from 1 to 10000000".to_owned());
        }
        let is_sound = |seconds: f64| (0.01..=3600.0).contains(&seconds);
        self.seconds.is_some_and(|seconds| !is_sound(seconds)).then(|| "--seconds: give 0.01 to 3600".to_owned())
    }
}

/// The setup of an experiment.
pub struct Setup {
    /// Its options.
    pub options: Options,
    /// Alternating runs whose median counts.
    pub rounds: usize,
    /// Folder on the disk to measure.
    pub dir: Option<PathBuf>,
}

impl Setup {
    /// `full` or `small`, unless the number of entries is given.
    pub fn count(&self, small: u64, full: u64) -> u64 {
        self.options.count.unwrap_or(if self.options.full { full } else { small })
    }

    /// An empty folder for a pool on the page cache, removed when dropped. It is in memory if the
    /// requested folder's file system cannot keep a pool, as in containers.
    pub fn pool_folder(&self) -> Result<TempDir> {
        let parent = self.dir.clone().unwrap_or_else(std::env::temp_dir);
        let folder = TempDir::with_prefix_in("terrane-lab-", &parent)
            .with_context(|| format!("cannot make a folder in {}", parent.display()))?;
        let refused = match tempfile::tempfile_in(folder.path()) {
            Ok(file) => probe::page_cache(file.as_fd()).err().map(|refusal| refusal.to_string()),
            Err(error) => Some(error.to_string()),
        };
        let Some(reason) = refused else { return Ok(folder) };
        TempDir::with_prefix_in("terrane-lab-", IN_MEMORY).context(reason)
    }
}

/// The place for a pool if no other file system is accepted.
const IN_MEMORY: &str = "/dev/shm";

impl Experiment {
    /// Runs it, and writes its tables as they come.
    pub fn run(&self, setup: &Setup, format: Format, out: &mut dyn Write) -> Result<()> {
        progress::warn_of_debug_build();
        (self.run)(setup, &mut report::emitter(format, out))
    }
}

/// Why an experiment cannot run here, and what to do: a usage error, not a failure.
#[derive(Debug)]
pub struct Unavailable(pub &'static str);

impl std::fmt::Display for Unavailable {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.0)
    }
}

impl std::error::Error for Unavailable {}

/// The median of each subject's values.
pub fn medians(values: Vec<Vec<f64>>) -> Result<Vec<f64>> {
    values.into_iter().map(|mut values| measure::median(&mut values).context("no rounds")).collect()
}
