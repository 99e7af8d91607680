//! The counts, and the figures made from them.

use std::collections::BTreeSet;

use super::*;
use crate::experiments::Options;

fn setup() -> Setup {
    let options = Options {
        count: None,
        full: false,
        fan_outs: Vec::new(),
        queries: None,
        threads: Vec::new(),
        seconds: None,
        selectivities: Vec::new(),
        split: None,
        file: None,
        seed: 1,
    };
    Setup { options, rounds: 1, dir: None }
}

fn laboratory(setup: &Setup) -> Laboratory<'_> {
    Laboratory { setup, fan_out: 16, count: 1000, seconds: Duration::from_millis(300), selectivity: 0.01 }
}

/// Number of entries inserted since it was filled.
fn inserted(laboratory: &Laboratory<'_>, filled: &mut Filled) -> u64 {
    filled.tree.check().unwrap().entries - laboratory.count
}

#[test]
fn insertions_of_all_threads_are_counted_and_have_their_share() {
    const THREADS: usize = 3;
    let setup = setup();
    let laboratory = laboratory(&setup);
    for (workload, insertions_a_turn, queries_a_turn) in
        [(Workload::Insert, 1, 0), (Workload::Query, 0, 1), (Workload::Mix, 3, 7)]
    {
        let mut filled = laboratory.fill().unwrap();
        let outcome = laboratory.drive(&filled, workload, SearchMode::Validated, THREADS).unwrap();
        let (insertions, queries) = (outcome.insertions, outcome.queries.count() as u64);
        assert_eq!(insertions, inserted(&laboratory, &mut filled), "{workload:?}");
        // The last turn of each thread may lack queries.
        let of_whole_turns = insertions * queries_a_turn;
        let most = queries * insertions_a_turn + queries_a_turn * insertions_a_turn * THREADS as u64;
        assert!(queries * insertions_a_turn <= of_whole_turns && of_whole_turns <= most, "{workload:?} {outcome:?}");
        assert!(insertions + queries > 0, "{workload:?}");
        let whole = outcome.throughput() * outcome.wall.as_secs_f64();
        assert!((whole - (insertions + queries) as f64).abs() < 0.5, "{workload:?} {whole}");
        assert!(outcome.wall > laboratory.seconds, "as long as it took, and not as was asked for: {outcome:?}");
    }
}

#[test]
fn queries_that_arrive_are_answered_once_each_beside_the_writer() {
    let setup = setup();
    let laboratory = laboratory(&setup);
    let rate = 2000.0;
    let mut filled = laboratory.fill().unwrap();
    let mut outcome = laboratory.arrive(&filled, SearchMode::Validated, rate).unwrap();
    let arrivals = poisson(setup.options.seed, rate, laboratory.seconds);
    assert_eq!(outcome.queries.count(), arrivals.len());
    let latencies: BTreeSet<_> = (0..=10).map(|tenth| outcome.queries.quantile_ns(f64::from(tenth) / 10.0)).collect();
    assert!(latencies.len() > 1, "not all take the same time");
    // With another seed, so that not both come at once.
    let writes = poisson(setup.options.seed + 1, rate * WRITES_PER_QUERY, laboratory.seconds).len() as u64;
    assert_eq!((outcome.insertions, inserted(&laboratory, &mut filled)), (writes, writes));
    assert!(writes > 0);
}

/// All arrive at the beginning, so the last answer has waited for almost all of the run.
#[test]
fn latencies_are_from_arrival_to_answer() {
    let setup = setup();
    let laboratory = Laboratory { seconds: Duration::from_millis(1), ..laboratory(&setup) };
    let filled = laboratory.fill().unwrap();
    let shares = (0..10).map(|_| {
        let mut outcome = laboratory.arrive(&filled, SearchMode::Validated, 2_000_000.0).unwrap();
        let longest = outcome.queries.quantile_ns(1.0).unwrap() as f64 / 1e9;
        longest / outcome.wall.as_secs_f64()
    });
    // Threads may have to wait for the processor before they end, but hardly each time.
    let shares: Vec<f64> = shares.collect();
    assert!(shares.iter().all(|share| *share <= 1.0) && shares.iter().any(|share| *share > 0.8), "{shares:?}");
}

/// One thread that only queries is in a query for almost all of the run.
#[test]
fn latencies_of_threads_side_by_side_are_whole() {
    let setup = setup();
    let laboratory = Laboratory { seconds: Duration::from_millis(20), selectivity: 1.0, ..laboratory(&setup) };
    let filled = laboratory.fill().unwrap();
    let shares = (0..10).map(|_| {
        let mut outcome = laboratory.drive(&filled, Workload::Query, SearchMode::Validated, 1).unwrap();
        let count = outcome.queries.count();
        let ranks = (1..=count).map(|rank| outcome.queries.quantile_ns((rank as f64 - 0.5) / count as f64).unwrap());
        ranks.sum::<u64>() as f64 / 1e9 / outcome.wall.as_secs_f64()
    });
    let shares: Vec<f64> = shares.collect();
    assert!(shares.iter().all(|share| *share <= 1.0) && shares.iter().any(|share| *share > 0.7), "{shares:?}");
}

#[test]
fn each_way_of_searching_has_the_median_of_its_rates_and_all_its_latencies() {
    let mut runs = 0;
    let reached = of_each_mode(3, |mode| {
        runs += 1;
        let (insertions, latency) = if mode == SearchMode::SharedLock { (10, 1) } else { (100, 5) };
        let mut queries = Latencies::default();
        queries.record(Duration::from_nanos(latency));
        Ok(Outcome { insertions: insertions * runs - 1, queries, wall: Duration::from_secs(2) })
    });
    // The first runs first in rounds 1 and 3, and second in round 2.
    let medians = [("lock-free", 200.0, 5), ("shared-lock", 15.0, 1)];
    for (mut reached, (name, rate, latency)) in reached.unwrap().into_iter().zip(medians) {
        assert_eq!((reached.name, reached.rate, reached.latencies.count()), (name, rate, 3));
        assert_eq!(reached.latencies.quantile_ns(0.5), Some(latency));
    }
    assert_eq!(runs, 6);
}

#[test]
fn percentiles_are_those_of_their_names() {
    let mut latencies = Latencies::default();
    (1..=1000).for_each(|latency| latencies.record(Duration::from_nanos(latency)));
    let mut table = Table::new("fbr/concurrency", "");
    add_latencies(&mut table, "row", "system", &json!({}), &mut latencies);
    let figures: Vec<_> = table.figures.iter().map(|figure| (figure.metric, figure.value)).collect();
    assert_eq!(figures, [("p50", 500.0), ("p99", 990.0), ("p99.9", 999.0)]);
}

#[test]
fn arrivals_are_a_poisson_process_of_their_rate() {
    let arrivals = poisson(1, 1000.0, Duration::from_secs(100));
    assert!((arrivals.len() as f64 - 100_000.0).abs() < 1000.0, "{}", arrivals.len());
    let gaps: Vec<f64> = arrivals.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    // The standard deviation of exponential gaps is their mean.
    assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "{mean} {variance}");
    assert!(arrivals.starts_with(&poisson(1, 1000.0, Duration::from_secs(1))), "a seed repeats them");
}
