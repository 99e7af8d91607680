//! Clocks, pinning, memory peaks and medians.
//!
//! CPU time measures work, wall time how long a client waits. Memory peaks are those of the
//! process. To get the peak of one task, run it in a child process.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// CPU time the calling thread has used.
pub fn thread_cpu() -> Duration {
    cpu(ClockId::ThreadCPUTime)
}

/// CPU time all threads of this process have used.
pub fn process_cpu() -> Duration {
    cpu(ClockId::ProcessCPUTime)
}

/// CPU time the calling thread has used, and time it has waited for a core.
pub fn thread_scheduled() -> Result<Duration> {
    let figures = fs::read_to_string("/proc/thread-self/schedstat").context("cannot read the thread's times")?;
    let mut figures = figures.split_whitespace().map(str::parse::<u64>);
    match (figures.next(), figures.next()) {
        (Some(Ok(ran)), Some(Ok(waited))) => Ok(Duration::from_nanos(ran + waited)),
        _ => anyhow::bail!("/proc/thread-self/schedstat has no times"),
    }
}

fn cpu(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    // These clocks start at zero with their thread or process, so neither part is negative.
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Keeps the calling thread on one core until dropped.
pub struct Pin {
    before: CpuSet,
}

impl Pin {
    /// Pins to the last core this thread may use: the first ones serve interrupts on many machines.
    pub fn to_one_core() -> Result<Self> {
        let before = sched_getaffinity(None).context("cannot read the thread's CPU affinity")?;
        let core =
            (0..CpuSet::MAX_CPU).rev().find(|&core| before.is_set(core)).context("the thread may run on no core")?;
        let mut one = CpuSet::new();
        one.set(core);
        sched_setaffinity(None, &one).context("cannot pin the thread to one core")?;
        Ok(Self { before })
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        // Restoring an earlier affinity cannot be refused. If it were, only speed would suffer.
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// The middle of the values, or the mean of the two in the middle; `None` when there is none.
pub fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count.is_multiple_of(2) => Some((values[middle - 1] + values[middle]) / 2.0),
        _ => Some(values[middle]),
    }
}

/// Runs every subject once per round, in turn, so that changes of the machine's state affect all of
/// them. Returns the values by subject.
pub fn alternate<S, T>(
    rounds: usize,
    subjects: &mut [S],
    mut run: impl FnMut(&mut S) -> Result<T>,
) -> Result<Vec<Vec<T>>> {
    let mut values: Vec<Vec<T>> = subjects.iter().map(|_| Vec::with_capacity(rounds)).collect();
    for round in 0..rounds {
        for turn in 0..subjects.len() {
            // Each round starts one further, so that no subject always follows the same
            // predecessor's caches.
            let subject = (turn + round) % subjects.len();
            values[subject].push(run(&mut subjects[subject])?);
        }
    }
    Ok(values)
}

/// Latencies of single operations.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    values_ns: Vec<u64>,
}

impl Latencies {
    /// Room for `count` operations, so that recording does not allocate.
    pub fn with_capacity(count: usize) -> Self {
        Self { values_ns: Vec::with_capacity(count) }
    }

    /// Adds one operation.
    pub fn record(&mut self, latency: Duration) {
        self.values_ns.push(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds all operations of another client or round.
    pub fn merge(&mut self, other: Latencies) {
        self.values_ns.extend(other.values_ns);
    }

    /// Number of operations.
    pub fn count(&self) -> usize {
        self.values_ns.len()
    }

    /// The value below or at which `fraction` of the operations lie, by nearest rank; `None` when
    /// there are none.
    pub fn quantile_ns(&mut self, fraction: f64) -> Option<u64> {
        self.values_ns.sort_unstable();
        let last = self.values_ns.len().checked_sub(1)?;
        let rank = (fraction.clamp(0.0, 1.0) * self.values_ns.len() as f64).ceil() as usize;
        Some(self.values_ns[rank.saturating_sub(1).min(last)])
    }
}

/// Largest resident memory of this process since its start or the last reset, in bytes.
pub fn resident_peak_bytes() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status").context("cannot read memory figures")?;
    peak_in_status(&status).context("/proc/self/status has no VmHWM line")
}

fn peak_in_status(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Starts a new peak at the present resident memory; false if the kernel does not allow it.
pub fn reset_resident_peak() -> bool {
    fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// Bytes that this process has written to disks so far.
pub fn written_bytes() -> Result<u64> {
    let figures = fs::read_to_string("/proc/self/io").context("cannot read what was written")?;
    let line = figures.lines().find_map(|line| line.strip_prefix("write_bytes:"));
    let bytes = line.context("/proc/self/io has no write_bytes line")?.trim().parse();
    bytes.context("/proc/self/io: write_bytes is no number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_even_and_no_values() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&mut []), None);
    }

    #[test]
    fn quantiles_are_values_that_occurred() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantile_ns(0.5), None);
        for value in (1..=100).rev() {
            latencies.record(Duration::from_nanos(value));
        }
        assert_eq!(latencies.quantile_ns(0.0), Some(1));
        assert_eq!(latencies.quantile_ns(0.5), Some(50));
        assert_eq!(latencies.quantile_ns(0.99), Some(99));
        assert_eq!(latencies.quantile_ns(1.0), Some(100));
    }

    #[test]
    fn alternating_runs_every_subject_once_per_round_and_moves_the_start() {
        let mut order = Vec::new();
        let values = alternate(3, &mut ["a", "b", "c"], |name| {
            order.push(*name);
            Ok(order.len() as f64)
        })
        .unwrap();
        assert_eq!(order, ["a", "b", "c", "b", "c", "a", "c", "a", "b"]);
        assert_eq!(values[0], [1.0, 6.0, 8.0]);
    }

    #[test]
    fn the_memory_peak_is_read_in_bytes() {
        assert_eq!(peak_in_status("VmPeak:\t 9 kB\nVmHWM:\t    2048 kB\n"), Some(2 << 20));
        assert_eq!(peak_in_status("VmPeak:\t 9 kB\n"), None);
        assert_eq!(peak_in_status("VmHWM:\t many kB\n"), None);
    }

    #[test]
    fn the_peak_grows_with_touched_memory() {
        let block = vec![1_u8; 64 << 20];
        assert!(block.iter().step_by(4096).map(|&b| u64::from(b)).sum::<u64>() > 0);
        assert!(resident_peak_bytes().unwrap() >= 64 << 20);
    }

    #[test]
    fn a_pinned_thread_has_one_core_and_gets_the_others_back() {
        std::thread::spawn(|| {
            let before = sched_getaffinity(None).unwrap().count();
            let pin = Pin::to_one_core().unwrap();
            assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
            drop(pin);
            assert_eq!(sched_getaffinity(None).unwrap().count(), before);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn cpu_clocks_advance_with_work() {
        let (thread, process) = (thread_cpu(), process_cpu());
        let mut sum = 0_u64;
        while thread_cpu() == thread {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(process_cpu() > process);
    }
}
