//! The papers' experiments through the built program: their output, and counts that depend only on
//! the seed.

use std::collections::HashSet;
use std::process::{Command, Output};

use serde_json::Value;

fn lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_terrane-lab"))
        .args(arguments)
        .env_remove("TERRANE_DATA")
        .output()
        .expect("the built program starts")
}

/// The figures of one round.
fn figures(experiment: &str, arguments: &[&str]) -> Vec<Value> {
    figures_as_given(experiment, &[&["--rounds", "1"], arguments].concat())
}

fn figures_as_given(experiment: &str, arguments: &[&str]) -> Vec<Value> {
    let output = lab(&[&["run", experiment, "--format", "json"], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let figures: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut told = HashSet::new();
    for figure in &figures {
        let what = format!("{} {} {}", figure["system"], figure["metric"], figure["params"]);
        assert!(told.insert(what), "another figure says that it is of the same: {figure}");
        assert_eq!(figure["experiment"], experiment);
        for field in ["system", "metric", "unit"] {
            assert!(figure[field].is_string(), "{field} in {figure}");
        }
        assert!(figure["params"].is_object() && figure["value"].is_number(), "{figure}");
    }
    figures
}

fn of<'a>(figures: &'a [Value], system: &str, metric: &str) -> Vec<&'a Value> {
    figures.iter().filter(|figure| figure["system"] == system && figure["metric"] == metric).collect()
}

fn values(figures: &[Value], system: &str, metric: &str) -> Vec<f64> {
    of(figures, system, metric).into_iter().filter_map(|figure| figure["value"].as_f64()).collect()
}

/// The systems with a target, the target, and whether it is met.
fn targets<'a>(figures: &'a [Value], metric: &str) -> Vec<(&'a str, f64, bool)> {
    let of_metric = figures.iter().filter(|figure| figure["metric"] == metric);
    let stated = of_metric.map(|figure| {
        let params = &figure["params"];
        Some((figure["system"].as_str()?, params["target"].as_f64()?, params["met"].as_bool()?))
    });
    stated.map(|target| target.expect("a system, what it is to reach, and whether it does")).collect()
}

#[test]
fn insertions_cost_the_same_each_time() {
    let run = || figures("fbr/insert-cost", &["--count", "1000", "--fan-outs", "55,183"]);
    let (first, again) = (run(), run());
    for system in ["in-place", "copy-on-write", "self-validating", "logging"] {
        for metric in ["lines flushed", "fences", "bytes stored", "bits flipped", "media blocks"] {
            assert_eq!(values(&first, system, metric), values(&again, system, metric), "{system} {metric}");
            assert_eq!(values(&first, system, metric).len(), 2, "{system} {metric}");
        }
        assert!(values(&first, system, "cpu").iter().all(|&cpu| cpu > 0.0));
    }
    EXPECTED_COSTS.iter().for_each(|(system, metric, expected)| {
        assert_eq!(values(&first, system, metric), expected, "{system} {metric}");
    });
    let targets = [targets(&first, "target of lines flushed"), targets(&first, "ratio of lines flushed")];
    assert_eq!(targets, [vec![("in-place", 4.7, true)], vec![("copy-on-write", 1.1, true)]]);
    let copies = of(&first, "copy-on-write", "lines to in-place");
    assert_eq!((copies.len(), copies[0]["paper"].as_f64()), (2, Some(1.12)));
    assert!(of(&first, "in-place", "lines flushed")[0]["paper"].is_null(), "the paper's count is another one");
}

/// Of 1000 insertions into nodes of 55 and of 183 entries.
const EXPECTED_COSTS: [(&str, &str, [f64; 2]); 9] = [
    ("in-place", "lines flushed", [3.104, 2.743]),
    ("in-place", "fences", [2.182, 2.049]),
    ("in-place", "media blocks", [0.619, 0.52]),
    ("copy-on-write", "lines flushed", [3.979, 3.432]),
    ("copy-on-write", "bits flipped", [495.259, 487.9]),
    ("self-validating", "lines flushed", [2.104, 1.758]),
    ("self-validating", "fences", [1.336, 1.095]),
    ("logging", "lines flushed", [73.316, 200.263]),
    ("logging", "bytes stored", [4518.384, 12654.656]),
];

#[test]
fn reflushes_are_counted_at_each_checkpoint() {
    let figures = figures_as_given("fbr/reflush", &["--count", "6000"]);
    let in_place = of(&figures, "in-place", "reflush share");
    let insertions: Vec<u64> = in_place.iter().filter_map(|figure| figure["params"]["insertions"].as_u64()).collect();
    assert_eq!(insertions, [5000, 6000]);
    assert_eq!(of(&figures, "in-place, Random", "reflush share")[0]["paper"].as_f64(), Some(0.536));
    assert_eq!(values(&figures, "in-place", "reflush share"), [0.011884442758707883, 0.010210559729129192]);
    assert!(values(&figures, "logging", "reflush share").iter().all(|share| (0.0..1.0).contains(share)));
}

#[test]
fn range_queries_find_the_same_in_all_trees_and_read_lines() {
    let figures = figures("fbr/range-query", &["--count", "2000", "--fan-outs", "55,503", "--queries", "20"]);
    let hits = values(&figures, "in-place", "hits");
    for system in ["in-place", "copy-on-write", "self-validating", "logging"] {
        assert_eq!(values(&figures, system, "hits"), hits);
        assert!(values(&figures, system, "cpu").iter().all(|&cpu| cpu > 0.0));
    }
    assert_eq!(hits, [36.65, 36.65]);
    assert_eq!(values(&figures, "in-place", "lines read"), [322.7, 792.7]);
}

#[test]
fn concurrency_reports_both_modes_by_threads() {
    let arguments = ["--count", "2000", "--threads", "1,8", "--seconds", "0.05", "--selectivities", "0.019"];
    let figures = figures("fbr/concurrency", &arguments);
    for mode in ["lock-free", "shared-lock"] {
        let throughput = of(&figures, mode, "throughput");
        let run = |figure: &&Value| format!("{} {}", figure["params"]["workload"], figure["params"]["threads"]);
        let runs: Vec<String> = throughput.iter().map(run).collect();
        let expected =
            ["insert", "query", "3:7 mix"].map(|workload| [1, 8].map(|count| format!("\"{workload}\" {count}")));
        assert_eq!(runs, expected.concat());
        assert!(throughput.iter().all(|figure| figure["value"].as_f64() > Some(0.0)));
        for quantile in ["p50", "p99", "p99.9"] {
            let of_poisson = of(&figures, mode, quantile);
            assert!(of_poisson.iter().any(|figure| figure["params"]["workload"] == "poisson"), "{mode} {quantile}");
        }
    }
    let gains = of(&figures, "lock-free", "throughput to shared-lock");
    assert_eq!(gains.last().and_then(|figure| figure["paper"].as_f64()), Some(9.4));
    let [free, shared] = ["lock-free", "shared-lock"].map(|mode| values(&figures, mode, "throughput"));
    let expected: Vec<f64> = free.iter().zip(shared).map(|(free, shared)| free / shared).collect();
    assert_eq!(values(&figures, "lock-free", "throughput to shared-lock"), expected);
    for (metric, bound) in [("ratio of throughput", 2.0), ("ratio of p99", 0.2)] {
        let stated: Vec<_> = targets(&figures, metric).into_iter().map(|(system, bound, _)| (system, bound)).collect();
        assert_eq!(stated, [("lock-free", bound)], "{metric}");
    }
}

#[test]
fn a_killed_process_leaves_a_tree_that_opens_with_all_it_acknowledged() {
    let figures = figures("fbr/reopen", &["--count", "3000", "--fan-outs", "8"]);
    for metric in ["first open", "first answer", "open", "answer", "pool"] {
        assert_eq!(of(&figures, "fbr-tree", metric).len(), 1, "{metric}");
    }
    assert_eq!(of(&figures, "fbr-tree", "first open")[0]["params"]["count"], 3000);
    let stated = targets(&figures, "target of first open");
    assert_eq!(stated.iter().map(|(_, bound, _)| *bound).collect::<Vec<_>>(), [10e6]);
}

#[test]
fn the_pm_rtree_is_measured_beside_the_fbr_tree() {
    let costs = figures("pmr/insert-cost", &["--count", "3000"]);
    let [fbr, pmr] = ["fbr-tree", "pmr-tree"].map(|system| values(&costs, system, "lines flushed"));
    assert_eq!((fbr.len(), pmr.len()), (1, 5));
    assert!(pmr.iter().all(|lines| (2.0..5.5).contains(lines)), "{pmr:?}");
    assert!(values(&costs, "pmr-descriptor", "lines flushed")[0] > 5.0);
    let [interleaved, sequential] =
        [(2, "pmr-tree"), (0, "pmr-sequential")].map(|(row, system)| values(&costs, system, "reflush share")[row]);
    assert!(interleaved <= sequential, "{interleaved} and {sequential}");
    let rates = figures("pmr/threads", &["--count", "3000", "--threads", "1,2"]);
    assert_eq!(values(&rates, "pmr-tree", "insertions a second").len(), 4);
    assert!(values(&rates, "fbr-tree", "blocked").iter().all(|share| (0.0..=1.0).contains(share)));
    let opened = figures("pmr/recovery", &["--count", "3000"]);
    assert_eq!(values(&opened, "pmr-tree", "open").len(), 4);
}

/// All trees find the same, or the experiment fails.
#[test]
fn the_pm_rtree_is_measured_on_all_data_and_by_each_optimisation() {
    let overall = figures("pmr/overall", &["--count", "1500", "--queries", "20"]);
    for system in ["fbr-tree", "volatile-rtree", "undo-rtree", "pmr-self-validating"] {
        assert!(values(&overall, system, "insertion cpu").len() >= 3, "{system}: random boxes, points and Zipf");
    }
    assert_eq!(values(&overall, "volatile-rtree", "deletion lines")[0], 0.0);
    let lines = |system| values(&overall, system, "insertion lines")[0];
    assert!(lines("undo-rtree") > 2.0 * lines("pmr-tree"), "{} and {}", lines("undo-rtree"), lines("pmr-tree"));
    let optimised = figures("pmr/optimisations", &["--count", "2000"]);
    let ratio = |system| values(&optimised, system, "lines to lock-free")[0];
    let by_swap = ratio("all, one compare-and-swap");
    assert!(ratio("all, self-validating") < by_swap && by_swap < ratio("all of the paper"), "{by_swap}");
    assert_eq!(values(&optimised, "all, one compare-and-swap, eADR", "lines flushed"), [0.0]);
    let mixes = figures("pmr/mixes", &["--count", "3000"]);
    assert_eq!(values(&mixes, "pmr-tree", "time to fbr-tree").len(), 2);
}

#[test]
fn budgets_are_kept_and_recovery_rebuilds_what_was_in_memory() {
    let budgets = figures("pear/budgets", &["--count", "3000", "--queries", "20"]);
    let rebuilt = of(&budgets, "pear-tree", "rebuilt");
    let of_budget = |name: &str| {
        let figure = rebuilt.iter().find(|figure| figure["params"]["budget"] == name);
        figure.and_then(|figure| figure["value"].as_f64()).unwrap()
    };
    assert_eq!(of_budget("none"), 0.0);
    assert!(of_budget("1 levels") >= 1.0 && of_budget("1 levels") < of_budget("all"));
    let recovery = figures("pear/recovery", &["--count", "3000", "--threads", "1"]);
    for system in ["by parents", "by place"] {
        assert_eq!(values(&recovery, system, "nodes read").len(), 1);
    }
    let persisting = figures("pear/persisting", &["--count", "3000", "--threads", "1"]);
    assert!(values(&persisting, "in place", "nodes max").iter().all(|nodes| *nodes <= 2.0));
    let nodes = figures("pear/nodes", &["--count", "3000", "--queries", "20"]);
    assert!(values(&nodes, "pear-tree", "media blocks").iter().all(|blocks| *blocks > 0.0));
    let rides = figures("pear/rides", &["--count", "2000", "--queries", "50"]);
    assert_eq!(["pear-tree", "pmr-tree", "fbr-tree"].map(|tree| values(&rides, tree, "cpu").len()), [1; 3]);
}

#[test]
fn an_insertion_into_a_map_costs_the_same_each_time() {
    let profile = || figures_as_given("btree/profile", &["--count", "2000"]);
    let (first, again) = (profile(), profile());
    for tree in ["btree", "unsorted_leaf", "btree_wal", "fast_fair", "persistent_unsorted", "fast_fair_sp"] {
        for metric in ["flushes", "fences", "written", "media bytes"] {
            assert_eq!(values(&first, tree, metric), values(&again, tree, metric), "{tree} {metric}");
            assert_eq!(values(&first, tree, metric).len(), 2, "{tree} {metric}");
        }
    }
    assert_eq!(of(&first, "btree_wal", "flushes")[0]["paper"].as_f64(), Some(12.0));
}

#[test]
fn operations_on_maps_have_latencies_and_insertions_have_parts() {
    let latency = figures("btree/latency", &["--count", "2000", "--threads", "1,2"]);
    for metric in ["throughput", "p50", "p99.9"] {
        // Five operations by two numbers of threads.
        let found = values(&latency, "btree_ls", metric);
        assert!(found.len() == 10 && found.iter().all(|value| *value > 0.0), "{metric}: {found:?}");
    }
    let parts = figures("btree/persistence", &["--count", "2000"]);
    let sum: f64 =
        ["tree", "atomicity", "fences", "flushes"].map(|part| values(&parts, "fast_fair", part)[0]).iter().sum();
    let total = values(&parts, "fast_fair", "in all")[0];
    assert!((sum - total).abs() < 1e-6 * total, "{sum} of {total}");
}

#[test]
fn without_a_file_or_the_library_the_experiment_says_what_it_needs() {
    let output = lab(&["run", "fbr/hdf5"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = if cfg!(feature = "hdf5") { "--file" } else { "libhdf5-dev" };
    assert!(text.contains(expected), "{text}");
}

#[cfg(feature = "hdf5")]
#[test]
fn an_index_finds_what_reading_the_file_finds() {
    let Some(folder) = std::env::var_os("TERRANE_DATA") else {
        eprintln!("skipped: TERRANE_DATA names no folder of sample data");
        return;
    };
    let file = std::path::Path::new(&folder).join("hdf/SYNTHETIC_sage_like_1500_events.he5");
    let figures = figures("fbr/hdf5", &["--file", file.to_str().unwrap(), "--queries", "3"]);
    assert_eq!(of(&figures, "fbr-tree", "cpu")[0]["params"]["points"], 210_000);
    assert_eq!(values(&figures, "fbr-tree", "hits"), values(&figures, "linear scan", "hits"));
}

#[test]
fn experiments_are_listed_and_refuse_what_they_do_not_take() {
    let list = String::from_utf8(lab(&["list"]).stdout).unwrap();
    for name in ["insert-cost", "reflush", "range-query", "concurrency", "reopen", "hdf5"] {
        assert!(list.contains(&format!("  fbr/{name} ")), "{name} in {list}");
    }
    for name in ["overall", "data-size", "insert-cost", "optimisations", "mixes", "threads", "recovery"] {
        assert!(list.contains(&format!("  pmr/{name} ")), "{name} in {list}");
    }
    for name in ["threads", "budgets", "recovery", "persisting", "nodes", "rides"] {
        assert!(list.contains(&format!("  pear/{name} ")), "{name} in {list}");
    }
    for name in ["profile", "mixes", "latency", "persistence", "nodes", "batches", "recovery"] {
        assert!(list.contains(&format!("  btree/{name} ")), "{name} in {list}");
    }
    for name in ["points", "houses", "lakes", "ingest", "mixed", "memory", "grid", "range-scan"] {
        assert!(list.contains(&format!("  lsm/{name} ")), "{name} in {list}");
    }
    for (arguments, says) in [
        (&["fbr/insert-costs"][..], "fbr/insert-cost"),
        (&["fbr/insert-cost", "--threads", "2"], "takes no --threads"),
        (&["fbr/insert-cost", "--points", "5000"], "takes no --points"),
        (
            &["fbr/reflush", "--dir", "/tmp"],
            "takes no --dir; it takes --count, --full, --fan-outs, --split, --seed, --format",
        ),
        (&["fbr/reflush", "--rounds", "2"], "takes no --rounds"),
        (&["lsm/memory", "--rounds", "2"], "takes no --rounds"),
        (&["lsm/ingest", "--seed", "2"], "takes no --seed"),
        (&["reopen", "--rounds", "2"], "takes no --rounds"),
        (&["windows", "--clients", "2"], "takes no --clients"),
        (&["windows", "--fan-outs", "9"], "takes no --fan-outs"),
        (&["fbr/insert-cost", "--fan-outs", "3"], "4 to 503"),
        (&["fbr/insert-cost", "--count", "1"], "1000"),
        (&["fbr/concurrency", "--seconds", "0"], "--seconds"),
        (&["fbr/concurrency", "--selectivities", "2"], "--selectivities"),
    ] {
        let output = lab(&[&["run"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(says), "{arguments:?}: {text}");
    }
}
