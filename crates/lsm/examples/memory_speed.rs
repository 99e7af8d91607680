//! Time of inserts and queries in the memory components, in nanoseconds each.
//!
//! `cargo run --release -p terrane-lsm --example memory_speed [ENTRIES]`

use std::hint::black_box;
use std::ops::{Bound, ControlFlow};
use std::time::Instant;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use terrane_lsm::memory::btree::KeyRange;
use terrane_lsm::memory::hilbert::Shapes;
use terrane_lsm::memory::{ErasedMemory, MemoryBTree, MemoryRTree, SEQUENCE_MAX};
use terrane_space::hilbert::position;
use terrane_space::{CoordinateSystem, Point, Rect};

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let entries: u64 = std::env::args().nth(1).map_or(Ok(1_000_000), |count| count.parse())?;
    let mut random = StdRng::seed_from_u64(42);
    key_tree(entries, &mut random)?;
    word_tree(entries, &mut random)?;
    spatial_tree(entries, &mut random)
}

fn report(what: &str, started: Instant, count: u64) {
    println!("{what:<36} {:>8.0} ns", started.elapsed().as_nanos() as f64 / count as f64);
}

fn report_memory(what: &str, component: &dyn ErasedMemory, entries: u64) {
    println!("{what:<36} {:>8.1} bytes/entry", component.memory_used() as f64 / entries as f64);
}

fn key_tree(entries: u64, random: &mut StdRng) -> Outcome {
    let mut keys: Vec<u64> = (0..entries).collect();
    let ascending = MemoryBTree::new()?;
    let started = Instant::now();
    for &key in &keys {
        ascending.put(&key.to_be_bytes(), &[7; 8], key)?;
    }
    report("B-tree: insert, ascending keys", started, entries);
    report_memory("B-tree: memory, ascending keys", &ascending, entries);

    keys.shuffle(random);
    let shuffled = MemoryBTree::new()?;
    let started = Instant::now();
    for (sequence, &key) in keys.iter().enumerate() {
        shuffled.put(&key.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(), &[7; 8], sequence as u64)?;
    }
    report("B-tree: insert, random keys", started, entries);
    report_memory("B-tree: memory, random keys", &shuffled, entries);
    println!("{:<36} {:?}", "B-tree: structure", shuffled.check()?);

    keys.shuffle(random);
    let started = Instant::now();
    for &key in &keys {
        black_box(shuffled.get(&key.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(), SEQUENCE_MAX));
    }
    report("B-tree: get", started, entries);

    let started = Instant::now();
    let ranges = entries / 10;
    for &key in keys.iter().take(ranges as usize) {
        let from = key.to_be_bytes();
        let range = KeyRange { from: Bound::Included(&from), to: Bound::Unbounded };
        black_box(ascending.range(range, SEQUENCE_MAX).take(100).count());
    }
    report("B-tree: range of 100 keys", started, ranges);
    Ok(())
}

/// Keys like those of an index of words: some words are much more frequent than others, and each is
/// followed by a number. The numbers ascend, apart from the interleaving of concurrent writers.
fn word_tree(entries: u64, random: &mut StdRng) -> Outcome {
    const RECORD: u64 = 20;
    const AT_A_TIME: u64 = 1000;
    let keys: Vec<Vec<u8>> = (0..entries)
        .map(|entry| {
            let rank = random.random::<f64>().powi(4) * 30_000.0;
            let number = (entry / RECORD) ^ random.random_range(0..AT_A_TIME);
            let word = ((rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).to_string();
            [&[5], &word.as_bytes()[..3 + rank as usize % 5], &[0, 1], &(1 << 63 | number).to_be_bytes()].concat()
        })
        .collect();
    let tree = MemoryBTree::new()?;
    let started = Instant::now();
    for (key, sequence) in keys.iter().zip(0..) {
        tree.put(key, &[], sequence)?;
    }
    report("B-tree: insert, words", started, entries);
    report_memory("B-tree: memory, words", &tree, entries);
    let started = Instant::now();
    tree.drain(&mut |entry| {
        black_box(entry.entry.key);
        Ok(ControlFlow::Continue(()))
    })?;
    report("B-tree: drain, words", started, entries);
    Ok(())
}

fn spatial_tree(entries: u64, random: &mut StdRng) -> Outcome {
    let points: Vec<(f64, f64)> =
        (0..entries).map(|_| (random.random_range(-90.0..90.0), random.random_range(-90.0..90.0))).collect();
    let mut placed: Vec<(u64, Rect, u64)> = points
        .iter()
        .zip(0..)
        .map(|(&(x, y), key)| {
            (position(CoordinateSystem::LonLat, Point { x, y }), Rect { x0: x, y0: y, x1: x, y1: y }, key)
        })
        .collect();
    let tree = MemoryRTree::new(Shapes::Points)?;
    let started = Instant::now();
    for &(position, rect, key) in &placed {
        tree.insert(position, rect, &key.to_be_bytes(), key)?;
    }
    report("R-tree: insert, random points", started, entries);
    report_memory("R-tree: memory, random points", &tree, entries);
    println!("{:<36} {:?}", "R-tree: structure", tree.check()?);

    for hits in [10, 100] {
        let half = (f64::from(hits) / entries as f64).sqrt() * 90.0;
        let queries = 100_000_u64;
        let windows: Vec<Rect> = (0..queries)
            .map(|_| {
                let (x, y) = points[random.random_range(0..points.len())];
                Rect { x0: x - half, y0: y - half, x1: x + half, y1: y + half }
            })
            .collect();
        let mut found = 0_u64;
        let started = Instant::now();
        for window in &windows {
            tree.search(window, SEQUENCE_MAX, &mut |entry| {
                found += 1;
                black_box(entry.entry.key);
                ControlFlow::Continue(())
            });
        }
        report(&format!("R-tree: window of {:.1} hits", found as f64 / queries as f64), started, queries);
    }

    placed.shuffle(random);
    let deleted = entries / 10;
    let started = Instant::now();
    for (&(position, rect, key), sequence) in placed.iter().zip(entries..entries + deleted) {
        tree.delete(position, rect, &key.to_be_bytes(), sequence)?;
    }
    report("R-tree: delete", started, deleted);

    placed.sort_by_key(|&(position, _, key)| (position, key));
    let ascending = MemoryRTree::new(Shapes::Points)?;
    let started = Instant::now();
    for (&(position, rect, key), sequence) in placed.iter().zip(0..) {
        ascending.insert(position, rect, &key.to_be_bytes(), sequence)?;
    }
    report("R-tree: insert, ascending positions", started, entries);
    report_memory("R-tree: memory, ascending positions", &ascending, entries);

    let descending = MemoryRTree::new(Shapes::Points)?;
    for (&(position, rect, key), sequence) in placed.iter().rev().zip(0..) {
        descending.insert(position, rect, &key.to_be_bytes(), sequence)?;
    }
    report_memory("R-tree: memory, descending positions", &descending, entries);
    Ok(())
}
