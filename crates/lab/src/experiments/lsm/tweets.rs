//! Ingestion of records like tweets, of a kilobyte, into a dataset of several partitions with three
//! indexes, beside small queries.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use arrow_array::cast::AsArray;
use arrow_array::{
    ArrayRef, BinaryArray, Float64Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use serde_json::json;
use terrane::schema::{Column, ColumnType, GeometryColumn, KeyColumn, KeyType, Schema};
use terrane::{
    CoordinateSystem, Dataset, DatasetOptions, Durability, IndexKind, MergePolicy, OnConflict, Options, Query, Store,
};
use terrane_formats::ReadOptions;

use super::data::{Objects, Source, sample_file};
use crate::experiments::Setup;
use crate::measure::{self, Latencies};
use crate::progress::progress;
use crate::report::{Bound, Emit, Table};

/// File with texts by people.
const TEXTS: &str = "geotagged_text.parquet";
/// Words of a message.
const WORDS: usize = 20;
/// About the bytes of a record. Padding fills up the message.
const RECORD_BYTES: usize = 1024;
/// Bytes of the key, the position, the time and the user.
const FIXED_BYTES: usize = 40;

const CLIENTS: usize = 4;
const PARTITIONS: usize = 2;
/// Records that a client submits at once, and that become durable together.
const BATCH_ROWS: usize = 256;
const MEMORY_LIMIT: usize = 256 << 20;
/// For write-heavy loads: each record is seldom rewritten, and reads meet some more components.
const POLICY: MergePolicy = MergePolicy::SIZE_TIERED;
/// The reader's pause between queries, so that it takes little from the writers.
const PAUSE: Duration = Duration::from_millis(5);
/// Radius of a small query in metres.
const RADIUS_M: f64 = 200.0;

/// Records by number.
struct Tweets {
    positions: Objects,
    words: Vec<String>,
    origin: &'static str,
    seed: u64,
}

impl Tweets {
    fn load(count: u64, seed: u64) -> Result<Self> {
        let positions = Objects::load(Source::Points, count, seed)?;
        let (words, origin) = match sample_file(TEXTS) {
            Some(path) => (words_of(&path)?, "words of geotagged_text.parquet"),
            None => ((0..2000).map(|word| format!("word{word}")).collect(), "words that are numbered"),
        };
        Ok(Self { positions, words, origin, seed })
    }

    fn schema() -> Result<Schema> {
        let geometry = GeometryColumn::Point { x: "lon".into(), y: "lat".into() };
        let key = KeyColumn { name: "id".into(), key_type: KeyType::Int64, generated: false };
        let columns = vec![
            Column::new("time", ColumnType::Timestamp { utc: false }),
            Column::new("user", ColumnType::Int64),
            Column::new("message", ColumnType::Utf8),
            Column::new("padding", ColumnType::Binary),
        ];
        Ok(Schema::new(key, geometry, CoordinateSystem::LonLat, columns)?)
    }

    fn batch(&self, rows: std::ops::Range<usize>) -> Result<RecordBatch> {
        let mut random = StdRng::seed_from_u64(self.seed ^ rows.start as u64);
        let (mut messages, mut paddings) = (Vec::new(), Vec::new());
        for _ in rows.clone() {
            // With the frequency of people's use.
            let words: Vec<&str> =
                (0..WORDS).map(|_| self.words[random.random_range(0..self.words.len())].as_str()).collect();
            let message = words.join(" ");
            let mut padding = vec![0; RECORD_BYTES.saturating_sub(FIXED_BYTES + message.len())];
            random.fill_bytes(&mut padding);
            messages.push(message);
            paddings.push(padding);
        }
        let (x, y): (Vec<f64>, Vec<f64>) = rows.clone().map(|row| self.positions.centre(row)).unzip();
        let times = rows.clone().map(|row| 1_600_000_000_000_000 + row as i64 * 1000);
        let users = rows.clone().map(|_| random.random_range(0..100_000_i64));
        let columns: [(&str, ArrayRef); 7] = [
            ("id", Arc::new(Int64Array::from_iter_values(rows.clone().map(|row| row as i64)))),
            ("lon", Arc::new(Float64Array::from(x))),
            ("lat", Arc::new(Float64Array::from(y))),
            ("time", Arc::new(TimestampMicrosecondArray::from_iter_values(times))),
            ("user", Arc::new(Int64Array::from_iter_values(users))),
            ("message", Arc::new(StringArray::from(messages))),
            ("padding", Arc::new(BinaryArray::from_iter_values(paddings))),
        ];
        Ok(RecordBatch::try_from_iter(columns)?)
    }
}

/// The running words of the texts in a file.
fn words_of(path: &Path) -> Result<Vec<String>> {
    let columns = ReadOptions { x: Some("lon".into()), y: Some("lat".into()), ..ReadOptions::default() };
    let mut source = terrane_formats::open(path, &columns)?;
    let mut words = Vec::new();
    while let Some(batch) = source.next_batch()? {
        let texts = batch.batch.column_by_name("message").with_context(|| format!("{}: no message", path.display()))?;
        let texts = texts.as_string_opt::<i32>().context("message is no text")?;
        words.extend(texts.iter().flatten().flat_map(str::split_whitespace).map(str::to_owned));
    }
    ensure!(!words.is_empty(), "{} has no words", path.display());
    Ok(words)
}

/// Costs of an ingestion.
struct Ingestion {
    wall_s: f64,
    /// CPU of all threads of this process, until everything was flushed: clients, the reader,
    /// flushes and merges.
    cpu_ns: f64,
    /// Bytes that this process wrote to the disk, including the log, until everything was flushed
    /// and merged.
    written: u64,
    peak_bytes: u64,
    beside: Latencies,
    idle: Latencies,
    flushed_bytes: u64,
    merged_bytes: u64,
}

fn ingest(folder: &Path, tweets: &Tweets, count: usize) -> Result<Ingestion> {
    let durability = Some(Durability::Power);
    let options = Options { memory_limit: MEMORY_LIMIT, durability, merge_policy: POLICY, ..Options::default() };
    let store = Store::open(folder, options)?;
    let dataset = store.create_dataset_with("tweets", Tweets::schema()?, &DatasetOptions { partitions: PARTITIONS })?;
    dataset.create_index("users", IndexKind::BTree, &["user"])?;
    dataset.create_index("words", IndexKind::Inverted, &["message"])?;
    measure::reset_resident_peak();
    let (next, ended) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (before, cpu, start) = (measure::written_bytes()?, measure::process_cpu(), Instant::now());
    let write = || -> Result<()> {
        loop {
            let first = next.fetch_add(BATCH_ROWS, Ordering::Relaxed);
            if first >= count {
                return Ok(());
            }
            let outcome =
                dataset.write_batch(&tweets.batch(first..count.min(first + BATCH_ROWS))?, OnConflict::Refuse)?;
            ensure!(outcome.refused.is_empty(), "rows were refused");
        }
    };
    let (wall_s, beside) = std::thread::scope(|scope| -> Result<(f64, Latencies)> {
        let reader = scope.spawn(|| ask(&dataset, tweets, count, || !ended.load(Ordering::Relaxed)));
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(write)).collect();
        let written: Vec<_> = clients.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        let wall_s = start.elapsed().as_secs_f64();
        ended.store(true, Ordering::Relaxed);
        let beside = reader.join().ok().context("the reader has panicked")??;
        for client in written {
            client.ok().context("a client has panicked")??;
        }
        Ok((wall_s, beside))
    })?;
    let peak_bytes = measure::resident_peak_bytes()?;
    store.flush()?;
    let cpu_ns = (measure::process_cpu() - cpu).as_nanos() as f64;
    let counters = store.maintenance();
    let written = measure::written_bytes()? - before;
    let mut asked = 0;
    let idle = ask(&dataset, tweets, count, || {
        asked += 1;
        asked <= 200
    })?;
    drop(dataset);
    store.close()?;
    let (flushed_bytes, merged_bytes) = (counters.flushed_bytes, counters.merge_written_bytes);
    Ok(Ingestion { wall_s, cpu_ns, written, peak_bytes, beside, idle, flushed_bytes, merged_bytes })
}

/// Fetches the rows of small queries, one after the other with pauses, as long as wanted.
fn ask(dataset: &Dataset, tweets: &Tweets, count: usize, mut is_wanted: impl FnMut() -> bool) -> Result<Latencies> {
    let mut random = StdRng::seed_from_u64(tweets.seed);
    let mut latencies = Latencies::with_capacity(1 << 16);
    while is_wanted() {
        let (x, y) = tweets.positions.centre(random.random_range(0..count));
        let start = Instant::now();
        let mut rows = dataset.snapshot().query(&Query::new().circle(x, y, RADIUS_M).limit(10))?;
        while rows.next_batch()?.is_some() {}
        latencies.record(start.elapsed());
        std::thread::sleep(PAUSE);
    }
    Ok(latencies)
}

/// Sequential bytes a second that the disk makes durable.
fn sequential_bandwidth(folder: &Path, bytes: usize) -> Result<f64> {
    let mut block = vec![0; 1 << 20];
    StdRng::seed_from_u64(1).fill_bytes(&mut block);
    let path = folder.join("sequential");
    let mut file = File::create(&path)?;
    let start = Instant::now();
    for _ in 0..bytes.div_ceil(block.len()) {
        file.write_all(&block)?;
    }
    file.sync_data()?;
    let bandwidth = bytes.next_multiple_of(block.len()) as f64 / start.elapsed().as_secs_f64();
    std::fs::remove_file(&path)?;
    Ok(bandwidth)
}

/// Inserts records like tweets.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let count = setup.count(20_000, 500_000);
    let tweets = Tweets::load(count, setup.options.seed)?;
    let count = usize::try_from(count)?;
    let mut table =
        Table::new("lsm/tweets", format!("Ingestion of {count} records of {RECORD_BYTES} bytes like tweets"));
    table.note(format!(
        "rtree, btree and inverted; {PARTITIONS} partitions, {CLIENTS} clients with {BATCH_ROWS} records at once, \
         durability power, memory limit {} MiB; merge policy: {POLICY}; {}; positions: {}",
        MEMORY_LIMIT >> 20,
        tweets.origin,
        tweets.positions.origin
    ));
    table.note(
        "wall time; wanted: 40,000 records a second, or as many as 60 % of the disk's sequential bandwidth gives; \
         docs/lab/lsm.md has the figures of --full, as 20,000 records are over before the clients are under way",
    );
    let params = json!({"count": count, "memory_limit": MEMORY_LIMIT, "seed": setup.options.seed});
    let mut rounds = Vec::new();
    for round in 0..setup.rounds {
        progress(&format!("round {}", round + 1));
        let folder = setup.pool_folder()?;
        let bandwidth = sequential_bandwidth(folder.path(), (count * RECORD_BYTES).max(1 << 20))?;
        rounds.push((bandwidth, ingest(&folder.path().join("store"), &tweets, count)?));
    }
    rounds.sort_by(|(_, a), (_, b)| a.wall_s.total_cmp(&b.wall_s));
    let (bandwidth, ingestion) = rounds.swap_remove(rounds.len() / 2);
    let rate = count as f64 / ingestion.wall_s;
    let by_disk = 0.6 * bandwidth * count as f64 / ingestion.written.max(1) as f64;
    let p99 = |mut latencies: Latencies| latencies.quantile_ns(0.99).map_or(0.0, |nanoseconds| nanoseconds as f64);
    let flushed = ingestion.flushed_bytes as f64;
    let (beside, idle) = (p99(ingestion.beside), p99(ingestion.idle));
    let mut add = |metric, value, unit| {
        table.figure("tweets", &params, metric, value, unit);
    };
    add("records a second", rate, "1/s");
    add("cpu a record", ingestion.cpu_ns / count as f64, "ns");
    add("of what is wanted", rate / by_disk.min(40_000.0), "x");
    add("sequential bandwidth", bandwidth, "bytes/s");
    add("bytes written a record", ingestion.written as f64 / count as f64, "bytes");
    add("write amplification", (flushed + ingestion.merged_bytes as f64) / flushed.max(1.0), "x");
    add("peak of memory", ingestion.peak_bytes as f64, "bytes");
    add("99th percentile beside", beside, "ns");
    add("99th percentile idle", idle, "ns");
    add("slower beside", beside / idle.max(1.0), "x");
    table.target("tweets", "of what is wanted", Bound::AtLeast(1.0), "x");
    table.target("tweets", "peak of memory", Bound::AtMost(MEMORY_LIMIT as f64), "bytes");
    table.target("tweets", "slower beside", Bound::AtMost(20.0), "x");
    emit(table)
}
