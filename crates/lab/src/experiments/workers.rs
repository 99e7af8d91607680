//! Threads that work at once, and how long they are blocked.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use serde_json::Value;

use crate::measure::{self, Latencies};
use crate::report::Table;

/// The time of threads that work at once.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// From the start to the end of all.
    pub wall: Duration,
    /// Sums over the threads: from the start to each one's end, and the part in which it neither
    /// ran nor waited for a core.
    present: Duration,
    blocked: Duration,
}

impl Run {
    /// The share of the threads' time in which they were blocked: by locks, as the page cache holds
    /// everything.
    pub fn blocked(&self) -> f64 {
        self.blocked.as_secs_f64() / self.present.as_secs_f64()
    }
}

/// Lets threads with these numbers work at once.
pub fn in_threads(threads: usize, work: impl Fn(usize) -> Result<()> + Sync) -> Result<Run> {
    let (begin, work) = (&Barrier::new(threads), &work);
    thread::scope(|scope| {
        let run = move |number| {
            begin.wait();
            let (start, scheduled) = (Instant::now(), measure::thread_scheduled()?);
            work(number)?;
            let end = Instant::now();
            anyhow::Ok((start, end, measure::thread_scheduled()? - scheduled))
        };
        let workers: Vec<_> = (0..threads).map(|number| scope.spawn(move || run(number))).collect();
        let (mut times, mut present, mut blocked) = (Vec::new(), Duration::ZERO, Duration::ZERO);
        for worker in workers {
            let (start, end, scheduled) = worker.join().map_err(|_| anyhow!("a thread has panicked"))??;
            times.push((start, end));
            present += end - start;
            blocked += (end - start).saturating_sub(scheduled);
        }
        // This thread may get a core only after the others have begun.
        let first = times.iter().map(|(start, _)| *start).min();
        let last = times.iter().map(|(_, end)| *end).max();
        let wall = first.zip(last).map_or(Duration::ZERO, |(first, last)| last - first);
        Ok(Run { wall, present, blocked })
    })
}

/// The row of a system with a number of threads.
pub fn row(name: &str, threads: usize) -> String {
    match threads {
        1 => format!("{name}, 1 thread"),
        _ => format!("{name}, {threads} threads"),
    }
}

/// Adds the median and the high quantiles of single operations.
pub fn add_latencies(table: &mut Table, row: &str, system: &str, params: &Value, latencies: &mut Latencies) {
    for (metric, fraction) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
        if let Some(latency) = latencies.quantile_ns(fraction) {
            table.figure_in_row(row, system, params, metric, latency as f64, "ns");
        }
    }
}
