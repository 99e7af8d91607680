//! Many threads on one tree (section 5.2, Figures 10 and 12(b)): throughput, and the time of
//! queries while others write.
//!
//! Two search modes are compared: without locks and validated, and with shared locks from the root
//! down (crabbing). Writers are the same in both: they lock nodes exclusively.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tempfile::TempDir;
use terrane_pmem::Native;
use terrane_pmtree::fbr::{FbrTree, SearchMode};
use terrane_pmtree::{PersistenceDomain, Rect};
use terrane_storage::RealStorage;

use super::{Boxes, FASTEST_FAN_OUT, Kind, NAME, Queries, SELECTIVITY, count_and_sum};
use crate::experiments::workers::{add_latencies, row};
use crate::experiments::{Setup, medians};
use crate::measure::{self, Latencies};
use crate::progress::progress;
use crate::report::{Bound, Emit, Table};

const MODES: [(&str, SearchMode); 2] = [("lock-free", SearchMode::Validated), ("shared-lock", SearchMode::SharedLock)];

/// The highest throughput of the mix, divided by that of shared locks: 80 threads on 40 cores.
const PAPER_GAIN: f64 = 9.4;
/// Queries of the size that the thesis has elsewhere (it says nothing of these), and ones of a few
/// hits.
const SELECTIVITIES: [f64; 2] = [SELECTIVITY, 5e-5];
/// Number of threads for the targets.
const TARGET_THREADS: usize = 8;
/// Threads that answer queries which arrive by themselves.
const READERS: usize = 7;
/// Insertions for each query: 2 of 98.
const WRITES_PER_QUERY: f64 = 2.0 / 98.0;

/// The repeated work of each thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Workload {
    Insert,
    Query,
    Mix,
}

impl Workload {
    fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Query => "query",
            Self::Mix => "3:7 mix",
        }
    }

    /// Insertions, and then queries.
    fn turn(self) -> (usize, usize) {
        match self {
            Self::Insert => (1, 0),
            Self::Query => (0, 1),
            Self::Mix => (3, 7),
        }
    }
}

/// The combined work of all threads.
#[derive(Debug, Default)]
struct Outcome {
    insertions: u64,
    queries: Latencies,
    wall: Duration,
}

impl Outcome {
    /// Operations a second.
    fn throughput(&self) -> f64 {
        (self.insertions as f64 + self.queries.count() as f64) / self.wall.as_secs_f64()
    }
}

/// The results of a search mode in all runs.
struct Reached {
    name: &'static str,
    /// Median operations a second.
    rate: f64,
    /// Latencies of the queries of all runs.
    latencies: Latencies,
}

struct Laboratory<'s> {
    setup: &'s Setup,
    fan_out: usize,
    count: u64,
    seconds: Duration,
    /// Share of the entries that a query finds.
    selectivity: f64,
}

/// A tree with its pool's folder, and the number of entries drawn for it.
struct Filled {
    tree: FbrTree<3, Native>,
    next: AtomicU64,
    _folder: TempDir,
}

/// Runs every workload with every number of threads, then queries that arrive by themselves.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let threads: &[usize] = if setup.options.threads.is_empty() { &[1, 2, 4, 8] } else { &setup.options.threads };
    let seconds = Duration::from_secs_f64(setup.options.seconds.unwrap_or(1.0));
    let given = &setup.options.selectivities;
    let selectivities: &[f64] = if given.is_empty() { &SELECTIVITIES } else { given };
    for &fan_out in setup.fan_outs(&[FASTEST_FAN_OUT]) {
        let count = setup.count(200_000, 1_000_000);
        let of = |selectivity| Laboratory { setup, fan_out, count, seconds, selectivity };
        emit(of(SELECTIVITY).throughput(Workload::Insert, threads)?)?;
        for &selectivity in selectivities {
            emit(of(selectivity).throughput(Workload::Query, threads)?)?;
            emit(of(selectivity).throughput(Workload::Mix, threads)?)?;
            emit(of(selectivity).latency()?)?;
        }
    }
    Ok(())
}

impl Laboratory<'_> {
    fn table(&self, title: String) -> Table {
        let mut table = Table::new("fbr/concurrency", title);
        let cores = thread::available_parallelism().map_or(0, usize::from);
        table.note(format!(
            "{} random boxes, {} entries a node, in place, page cache, {cores} cores",
            self.count, self.fan_out
        ));
        table
    }

    fn of_queries(&self, workload: Workload) -> String {
        match workload {
            Workload::Insert => String::new(),
            Workload::Query | Workload::Mix => {
                format!("; a query finds {:.0} boxes", self.selectivity * self.count as f64)
            }
        }
    }

    fn params(&self, workload: &str, threads: usize) -> Value {
        json!({"workload": workload, "selectivity": self.selectivity, "threads": threads, "count": self.count,
               "fan_out": self.fan_out,
               "split": self.setup.shape(Kind::InPlace, self.fan_out).split_name(), "seed": self.setup.options.seed})
    }

    fn fill(&self) -> Result<Filled> {
        let folder = self.setup.pool_folder()?;
        let shape = self.setup.shape(Kind::InPlace, self.fan_out);
        let options = shape.fbr_options(PersistenceDomain::PageCache);
        let tree = FbrTree::create(&RealStorage::new(folder.path()), NAME, &options)?;
        for (payload, rect) in (0..self.count).zip(Boxes::new(self.setup.options.seed)) {
            tree.insert(&rect, payload)?;
        }
        Ok(Filled { tree, next: AtomicU64::new(self.count), _folder: folder })
    }

    fn throughput(&self, workload: Workload, threads: &[usize]) -> Result<Table> {
        let mut table =
            self.table(format!("Throughput of {}, by threads{}", workload.name(), self.of_queries(workload)));
        table.note(format!(
            "{:.2} s a run, median of {} alternating runs; latencies of all runs, of queries",
            self.seconds.as_secs_f64(),
            self.setup.rounds
        ));
        table.note("paper: 80 M polylines on Optane, 40 cores; its greatest gain in the mix is at 80 threads");
        // Each run that changes the tree gets its own.
        let read_only = if workload == Workload::Query { Some(self.fill()?) } else { None };
        for &count in threads {
            progress(&format!("{} by {count} thread(s)", workload.name()));
            let mut reached = of_each_mode(self.setup.rounds, |mode| {
                let own = if read_only.is_none() { Some(self.fill()?) } else { None };
                let filled = own.as_ref().or(read_only.as_ref()).context("a tree is there")?;
                self.drive(filled, workload, mode, count)
            })?;
            let params = self.params(workload.name(), count);
            for Reached { name, rate, latencies } in &mut reached {
                let row = row(name, count);
                table.figure_in_row(&row, name, &params, "throughput", *rate, "1/s");
                add_latencies(&mut table, &row, name, &params, latencies);
            }
            if let [free, shared] = &reached[..] {
                let (of_shared, row) = ("throughput to shared-lock", row(free.name, count));
                let figure = table.figure_in_row(&row, free.name, &params, of_shared, free.rate / shared.rate, "x");
                if workload == Workload::Mix && Some(&count) == threads.iter().max() {
                    figure.paper(PAPER_GAIN);
                }
            }
        }
        if workload == Workload::Mix {
            let [free, shared] = MODES.map(|(name, _)| row(name, TARGET_THREADS));
            table.ratio_target(&free, "throughput", &shared, Bound::AtLeast(2.0));
            table.ratio_target(&free, "p99", &shared, Bound::AtMost(0.2));
        }
        Ok(table)
    }

    /// Runs threads side by side for the time of a run.
    fn drive(&self, filled: &Filled, workload: Workload, mode: SearchMode, threads: usize) -> Result<Outcome> {
        let barrier = Barrier::new(threads + 1);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let workers: Vec<_> = (0..threads as u64)
                .map(|number| {
                    let (barrier, is_over) = (&barrier, &is_over);
                    scope.spawn(move || {
                        barrier.wait();
                        self.work(filled, workload, mode, number, is_over)
                    })
                })
                .collect();
            // No thread works before that, whichever is woken first.
            let start = Instant::now();
            barrier.wait();
            thread::sleep(self.seconds);
            is_over.store(true, Ordering::Relaxed);
            let mut all = Outcome::default();
            for worker in workers {
                let own = worker.join().map_err(|_| anyhow!("a thread panicked"))??;
                all.insertions += own.insertions;
                all.queries.merge(own.queries);
            }
            all.wall = start.elapsed();
            Ok(all)
        })
    }

    fn work(
        &self,
        filled: &Filled,
        workload: Workload,
        mode: SearchMode,
        number: u64,
        is_over: &AtomicBool,
    ) -> Result<Outcome> {
        let seed = self.setup.options.seed.wrapping_add(1 + number);
        let (mut boxes, mut queries) = (Boxes::new(seed), Queries::new(seed, self.selectivity));
        let mut outcome = Outcome::default();
        let (insertions, searches) = workload.turn();
        while !is_over.load(Ordering::Relaxed) {
            for rect in boxes.by_ref().take(insertions) {
                filled.insert(&rect)?;
                outcome.insertions += 1;
            }
            for query in queries.by_ref().take(searches) {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                // No call of the system: the scheduler would end a slice there instead of inside of
                // a query.
                let start = Instant::now();
                filled.ask(&query, mode)?;
                outcome.queries.record(start.elapsed());
            }
        }
        Ok(outcome)
    }

    /// Queries that arrive as a Poisson process, while one thread inserts.
    fn latency(&self) -> Result<Table> {
        let mut table = self.table(format!(
            "Latency of queries that arrive as a Poisson process, {READERS} readers{}",
            self.of_queries(Workload::Query)
        ));
        progress("latency of queries that arrive by themselves");
        // As in the thesis: the rate is that of consecutive queries without locks.
        let alone = self.drive(&self.fill()?, Workload::Query, SearchMode::Validated, 1)?.throughput();
        table.note(format!(
            "arrivals at the rate of one thread's queries, {alone:.0} a second; 2 insertions for 98 queries by one writer"
        ));
        table.note("from arrival to answer, of all runs; paper: p99 three orders of magnitude below shared-lock");
        let reached = of_each_mode(self.setup.rounds, |mode| self.arrive(&self.fill()?, mode, alone))?;
        let params = self.params("poisson", READERS + 1);
        for Reached { name, mut latencies, .. } in reached {
            add_latencies(&mut table, name, name, &params, &mut latencies);
        }
        Ok(table)
    }

    /// Readers take queries in the order of their arrival. One writer inserts, as a Poisson process
    /// too.
    fn arrive(&self, filled: &Filled, mode: SearchMode, rate: f64) -> Result<Outcome> {
        let seed = self.setup.options.seed;
        let arrivals = poisson(seed, rate, self.seconds);
        let writes = poisson(seed.wrapping_add(1), rate * WRITES_PER_QUERY, self.seconds);
        let queries: Vec<_> = Queries::new(seed, self.selectivity).take(arrivals.len()).collect();
        let next = AtomicU64::new(0);
        let all = Mutex::new(Outcome { insertions: writes.len() as u64, ..Outcome::default() });
        let start = Instant::now();
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for (at, rect) in writes.iter().zip(Boxes::new(seed.wrapping_add(1))) {
                    wait_until(start, *at);
                    filled.insert(&rect)?;
                }
                anyhow::Ok(())
            });
            let readers: Vec<_> = (0..READERS)
                .map(|_| {
                    scope.spawn(|| {
                        let mut latencies = Latencies::default();
                        loop {
                            let number = next.fetch_add(1, Ordering::Relaxed) as usize;
                            let (Some(&at), Some(query)) = (arrivals.get(number), queries.get(number)) else { break };
                            wait_until(start, at);
                            filled.ask(query, mode)?;
                            latencies.record(start.elapsed().saturating_sub(at));
                        }
                        if let Ok(mut all) = all.lock() {
                            all.queries.merge(latencies);
                        }
                        anyhow::Ok(())
                    })
                })
                .collect();
            for thread in readers.into_iter().chain([writer]) {
                thread.join().map_err(|_| anyhow!("a thread panicked"))??;
            }
            anyhow::Ok(())
        })?;
        let mut all = all.into_inner().map_err(|_| anyhow!("a thread panicked"))?;
        all.wall = start.elapsed();
        Ok(all)
    }
}

/// Alternates runs of the search modes. Each has `rounds` runs.
fn of_each_mode(rounds: usize, mut run: impl FnMut(SearchMode) -> Result<Outcome>) -> Result<Vec<Reached>> {
    let mut subjects = MODES.map(|(_, mode)| (mode, Latencies::default()));
    let rates = measure::alternate(rounds, &mut subjects, |(mode, latencies)| {
        let outcome = run(*mode)?;
        let rate = outcome.throughput();
        latencies.merge(outcome.queries);
        Ok(rate)
    })?;
    let medians = medians(rates)?;
    let reached = MODES.iter().zip(subjects).zip(medians);
    Ok(reached.map(|((&(name, _), (_, latencies)), rate)| Reached { name, rate, latencies }).collect())
}

impl Filled {
    fn ask(&self, query: &Rect<3>, mode: SearchMode) -> Result<(u64, u64)> {
        count_and_sum(|visit| self.tree.window(query, mode, visit))
    }

    fn insert(&self, rect: &Rect<3>) -> Result<()> {
        Ok(self.tree.insert(rect, self.next.fetch_add(1, Ordering::Relaxed))?)
    }
}

fn wait_until(start: Instant, at: Duration) {
    if let Some(left) = at.checked_sub(start.elapsed()) {
        thread::sleep(left);
    }
}

/// Instants of a Poisson process with `rate` events a second.
fn poisson(seed: u64, rate: f64, length: Duration) -> Vec<Duration> {
    let mut random = StdRng::seed_from_u64(seed ^ 0xa771_7a15);
    let mut at = 0.0;
    let mut arrivals = Vec::new();
    loop {
        // The gaps are exponential; 1 - u is never 0.
        at -= (1.0 - random.random::<f64>()).ln() / rate;
        if at >= length.as_secs_f64() {
            return arrivals;
        }
        arrivals.push(Duration::from_secs_f64(at));
    }
}

#[cfg(test)]
mod tests;
