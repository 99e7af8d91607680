//! SIGKILL at random moments: all acknowledged records are stored, only records that were sent
//! appear, and the store is clean.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::support::{Sandbox, command, count, import, is_clean, rows, sample, terrane};

const SEED: u64 = 4_711;
/// Kills of each variant.
const ROUNDS: usize = 6;

/// Variants of the killed stores.
struct Variant {
    flags: &'static [&'static str],
    /// Extra bytes in each record.
    ballast: usize,
    /// Most records that are acknowledged before a kill.
    acknowledged_max: u64,
}

const VARIANTS: [Variant; 4] = [
    Variant { flags: &["--memory-limit", "8MiB"], ballast: 900, acknowledged_max: 4000 },
    Variant { flags: &["--memory-limit", "8MiB", "--upsert"], ballast: 2000, acknowledged_max: 2500 },
    Variant { flags: &["--memory-limit", "16MiB"], ballast: 10, acknowledged_max: 3000 },
    Variant { flags: &[], ballast: 100, acknowledged_max: 200 },
];

/// The record of a key, which follows from the key.
fn record(key: u64, ballast: usize) -> Value {
    let (lon, lat) = ((key * 7919 % 36_000) as f64 / 100.0 - 180.0, (key * 104_729 % 18_000) as f64 / 100.0 - 90.0);
    json!({"id": key, "lon": lon, "lat": lat, "ballast": "b".repeat(ballast + (key % 50) as usize)})
}

/// Feeds records from `first` on until the reader is dead; `sent` is the last that may have
/// arrived.
fn feed(mut stdin: ChildStdin, first: u64, ballast: usize, sent: Arc<AtomicU64>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        for key in first.. {
            sent.store(key, Ordering::SeqCst);
            if writeln!(stdin, "{}", record(key, ballast)).is_err() {
                return;
            }
        }
    })
}

/// The printed keys. A line that the kill cut is none.
struct Keys(BufReader<ChildStdout>);

impl Iterator for Keys {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("standard output is read");
        Some(line.strip_suffix('\n')?.parse().expect("a key"))
    }
}

/// The model of a store.
#[derive(Default)]
struct Model {
    /// Acknowledged and not deleted.
    present: BTreeSet<u64>,
    /// Sent in the current round, or found after it: may be stored.
    first_uncertain: u64,
    next: u64,
}

/// One run of `insert` that is killed after some acknowledgements, with a reader meanwhile.
fn killed_insert(store: &Path, variant: &Variant, model: &mut Model, random: &mut StdRng) {
    let mut command = command(["insert".as_ref(), store.as_os_str(), "d".as_ref()]);
    let mut child =
        command.args(variant.flags).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the binary runs");
    let sent = Arc::new(AtomicU64::new(model.next));
    let feeder = feed(child.stdin.take().expect("a pipe"), model.next, variant.ballast, sent.clone());
    let kill_after = random.random_range(0..=variant.acknowledged_max);
    let read_after = random.random_range(0..=kill_after);
    let before = model.present.len() as u64;
    let mut keys = Keys(BufReader::new(child.stdout.take().expect("a pipe")));
    let mut acknowledged = 0;
    while acknowledged < kill_after {
        if acknowledged == read_after && before + acknowledged > 0 {
            let found = count(store, "d");
            let sent = sent.load(Ordering::SeqCst) + 1 - model.next;
            assert!(
                (before + acknowledged..=before + sent).contains(&found),
                "a reader saw {found} of {}",
                before + sent
            );
        }
        model.present.insert(keys.next().expect("the writer is alive"));
        acknowledged += 1;
    }
    child.kill().expect("SIGKILL");
    // Keys printed before the kill count, read or not.
    model.present.extend(keys);
    child.wait().expect("it is dead");
    feeder.join().expect("the feeder ends");
    model.first_uncertain = model.next;
    model.next = sent.load(Ordering::SeqCst) + 1;
}

/// Compares a store with the model. Records that were sent and not acknowledged may be stored.
fn verify(store: &Path, variant: &Variant, model: &mut Model, at: &str) {
    if model.present.is_empty() && terrane("query", store, &["d"]).code != Some(0) {
        // Killed before the dataset was created.
        return;
    }
    let found = rows(store, "d", "id");
    let keys: BTreeSet<u64> = found.iter().filter_map(|row| row["id"].as_u64()).collect();
    assert_eq!(keys.len(), found.len(), "{at}: a key occurs twice");
    let missing: Vec<_> = model.present.difference(&keys).collect();
    assert!(missing.is_empty(), "{at}: acknowledged and gone: {missing:?}");
    let foreign: Vec<_> =
        keys.difference(&model.present).filter(|key| !(model.first_uncertain..model.next).contains(key)).collect();
    assert!(foreign.is_empty(), "{at}: never sent, or deleted: {foreign:?}");
    for row in &found {
        let key = row["id"].as_u64().expect("a key");
        assert_eq!(*row, record(key, variant.ballast), "{at}");
    }
    let everywhere = terrane("query", store, &["d", "--bbox", "-180,-90,180,90", "--count"]).exits(0).number();
    assert_eq!(everywhere, keys.len() as u64, "{at}: the spatial index and the records differ");
    is_clean(store);
    model.present = keys;
}

fn delete_some(store: &Path, model: &mut Model, random: &mut StdRng) {
    let keys: Vec<u64> = model.present.iter().copied().collect();
    if keys.is_empty() {
        return;
    }
    let chosen: BTreeSet<u64> = (0..5).map(|_| keys[random.random_range(0..keys.len())]).collect();
    let texts: Vec<String> = chosen.iter().map(u64::to_string).collect();
    let mut flags = vec!["d", "--key"];
    flags.extend(texts.iter().map(String::as_str));
    let answer = terrane("delete", store, &flags).exits(0);
    assert_eq!(answer.text(), format!("deleted {0} of {0}\n", chosen.len()));
    model.present.retain(|key| !chosen.contains(key));
}

#[test]
fn nothing_acknowledged_is_lost_when_inserts_are_killed() {
    for (number, variant) in VARIANTS.iter().enumerate() {
        let seed = SEED + number as u64;
        let mut random = StdRng::seed_from_u64(seed);
        let sandbox = Sandbox::new();
        let mut model = Model::default();
        for round in 0..ROUNDS {
            killed_insert(&sandbox.store(), variant, &mut model, &mut random);
            let at = format!("seed {seed}, variant {number}, round {round}");
            verify(&sandbox.store(), variant, &mut model, &at);
            delete_some(&sandbox.store(), &mut model, &mut random);
        }
    }
}

#[test]
fn a_killed_import_is_there_as_a_whole_or_not_at_all() {
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    import(&store, "cities", &sample("cities200.csv"), &[]).exits(0);
    let mut random = StdRng::seed_from_u64(SEED);
    let mut kills = 0;
    for round in 0..8 {
        let dataset = format!("rides{round}");
        let rides = sample("sf_cab_rides.parquet");
        let mut child = command(["import".as_ref(), store.as_os_str(), dataset.as_ref(), rides.as_os_str()])
            .args(["--memory-limit", "8MiB", "--key", "ride_id"])
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary runs");
        // Killed once a random number of new bytes is on disk.
        let before = bytes_of_components(&store);
        let kill_at = before + random.random_range(0..12_000_000);
        while bytes_of_components(&store) < kill_at {
            if child.try_wait().expect("its state").is_some() {
                break;
            }
            thread::yield_now();
        }
        child.kill().expect("SIGKILL");
        if child.wait().expect("it is dead").code().is_none() {
            kills += 1;
        }
        let answer = terrane("query", &store, &[&dataset, "--count"]);
        let complete = answer.code == Some(0) && answer.number() == 100_000;
        let absent = answer.code == Some(2) && answer.stderr.contains("there is no dataset");
        assert!(complete || absent, "seed {SEED}, round {round}: {answer:?}");
        assert_eq!(count(&store, "cities"), 200);
        is_clean(&store);
    }
    assert!(kills > 0, "every import was faster than its kill");
    // A writer removes the leftovers of the killed ones.
    terrane("delete", &store, &["cities", "--key", "0"]).exits(0);
    let info = terrane("info", &store, &["--format", "json"]).exits(0).json_lines();
    let known: u64 = info[0]["datasets"]
        .as_array()
        .expect("datasets")
        .iter()
        .flat_map(|dataset| dataset["indexes"].as_array().expect("indexes"))
        .filter_map(|index| index["components"].as_u64())
        .sum();
    let files = fs::read_dir(store.join("components")).expect("components").count() as u64;
    assert_eq!(files, known, "no stray files");
}

/// Kills a command once a random number of new bytes is on disk, or right away. Returns whether it
/// was alive.
fn killed(store: &Path, arguments: &[&str], bytes_max: u64, random: &mut StdRng) -> bool {
    let before = bytes_of_components(store);
    let (name, others) = arguments.split_first().expect("a command");
    let mut command = command([name.as_ref(), store.as_os_str()]);
    let mut child = command.args(others).stderr(Stdio::null()).spawn().expect("the binary runs");
    let kill_at = before + random.random_range(0..bytes_max);
    while bytes_of_components(store) < kill_at && child.try_wait().expect("its state").is_none() {
        thread::yield_now();
    }
    child.kill().expect("SIGKILL");
    child.wait().expect("it is dead").code().is_none()
}

#[test]
fn killed_upserts_replacements_and_drops_leave_the_old_or_the_new() {
    const ROWS: u64 = 20_000;
    let sandbox = Sandbox::new();
    let store = sandbox.store();
    let mut random = StdRng::seed_from_u64(SEED);
    // Each round moves every position and stores its number.
    let file = |round: u64| {
        let row = |id: u64| format!("{id},{},{},{round}\n", (id * 7 + round) % 170, (id * 3 + round) % 80);
        let rows: String = (0..ROWS).map(row).collect();
        sandbox.write(&format!("{round}.csv"), format!("id,lon,lat,round\n{rows}"))
    };
    import(&store, "d", &file(0), &[]).exits(0);
    terrane("index", &store, &["d", "create", "by_round", "--using", "btree", "--on", "round"]).exits(0);
    let (mut last, mut kills) = (0, 0);
    for round in 1..=8 {
        let (mode, path) = (if round % 2 == 0 { "replace" } else { "upsert" }, file(round));
        let arguments = ["import", "d", path.to_str().expect("a text"), "--mode", mode, "--memory-limit", "8MiB"];
        kills += u32::from(killed(&store, &arguments, 3_000_000, &mut random));
        let of = |round: u64| {
            let condition = format!("round = {round}");
            let by = |index| terrane("query", &store, &["d", "--count", "--where", &condition, "--index", index]);
            (by("primary").exits(0).number(), by("by_round").exits(0).number())
        };
        let found = (of(last), of(round));
        let (all, none) = ((ROWS, ROWS), (0, 0));
        assert!(found == (all, none) || found == (none, all), "seed {SEED}, round {round}: {found:?}");
        if found.0 == none {
            last = round;
        }
        is_clean(&store);
    }
    assert!(kills > 0, "every import was faster than its kill");
    for round in 0..4 {
        killed(&store, &["drop", "d"], 1 + round, &mut random);
        let answer = terrane("query", &store, &["d", "--count"]);
        let is_whole = answer.code == Some(0) && answer.number() == ROWS;
        let is_gone = answer.code == Some(2) && answer.stderr.contains("there is no dataset");
        assert!(is_whole || is_gone, "round {round}: {answer:?}");
        is_clean(&store);
        if is_gone {
            import(&store, "d", &file(0), &["--mode", "create"]).exits(0);
        }
    }
    terrane("drop", &store, &["d"]).exits(0);
    assert_eq!(bytes_of_components(&store), 0, "no stray files");
}

fn bytes_of_components(store: &Path) -> u64 {
    let entries = fs::read_dir(store.join("components")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}
