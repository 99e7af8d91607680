//! The costs of an insertion (the study's table of flushes, fences and bytes).

use anyhow::Result;
use serde_json::json;
use terrane_pmem::{Counters, Eviction, LINE_LENGTH};
use terrane_pmtree::PersistenceDomain;
use terrane_pmtree::btree::{LogOptions, Options};
use terrane_testkit::MemoryStorage;

use super::{Kind, insert, keys, options};
use crate::experiments::Setup;
use crate::experiments::insertions::Counting;
use crate::progress::progress;
use crate::report::{Bound, Emit, Table};

const NODE_LENGTH: u64 = 512;
/// The modelled cache holds a small part of the tree, as in the study.
const CACHE_LENGTH: u64 = 2 << 20;

/// The study's flushes, fences, bytes to the medium, and their amplification there.
fn paper(kind: Kind) -> Option<[f64; 4]> {
    match kind {
        Kind::BTree => Some([0.0, 0.0, 400.0, 3.2]),
        Kind::UnsortedLeaf => Some([0.0, 0.0, 236.0, 3.5]),
        Kind::BTreeWal => Some([12.0, 4.0, 937.0, 1.8]),
        Kind::FastFair => Some([6.0, 10.0, 474.0, 2.2]),
        Kind::PersistentUnsorted => Some([5.0, 5.0, 411.0, 2.6]),
        Kind::FastFairSp | Kind::BTreeLs | Kind::GroupFlushing => None,
    }
}

/// The model that evicts random lines.
const RANDOM: &str = "random";

/// The most flushes and fences that are asked for.
fn most(kind: Kind) -> Option<[f64; 2]> {
    match kind {
        Kind::BTreeWal => Some([12.0, 4.0]),
        Kind::FastFair => Some([6.0, 6.0]),
        Kind::PersistentUnsorted => Some([4.0, 4.0]),
        Kind::BTreeLs => Some([3.0, 2.0]),
        _ => None,
    }
}

/// Counts insertions under both models of the cache.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let count = setup.count(200_000, 2_000_000);
    let seed = setup.options.seed;
    for (model, eviction) in [(RANDOM, Eviction::Random { seed }), ("lru", Eviction::Lru)] {
        let title = format!("Insertion after a warm-up of the same number, the cache evicts by: {model}");
        let mut table = Table::new("btree/profile", title);
        table.note(format!(
            "per insertion of {count}; nodes of {NODE_LENGTH} bytes, 16-byte keys and values, one thread"
        ));
        table.note(format!("counted by a back-end and a model: a cache of {} MiB, no device", CACHE_LENGTH >> 20));
        table.note("written: lines that leave the cache, flushed or evicted; amplification: at blocks of 256 bytes");
        table.note("paper: one thread on Optane; media bytes are the product of its two figures");
        table.note(format!(
            "btree_ls: {} logs; paper: amplification 1.4 to 1.7 from few to many logs",
            LogOptions::default().count
        ));
        for kind in Kind::ALL.into_iter().chain([Kind::GroupFlushing]) {
            progress(&format!("{}, {model}", kind.name()));
            let counters = counted(kind, &options(NODE_LENGTH, PersistenceDomain::Adr), count, seed, eviction)?;
            add(&mut table, kind, model, count, &counters);
            // The random model is the one that is near to the study's.
            if model == RANDOM {
                state_targets(&mut table, kind);
            }
        }
        emit(table)?;
    }
    Ok(())
}

/// Counts insertions after a warm-up of the same number.
pub(super) fn counted(kind: Kind, options: &Options, count: u64, seed: u64, eviction: Eviction) -> Result<Counters> {
    let tree = kind.create::<Counting>(&MemoryStorage::new(), options)?;
    let keys = keys(2 * count, seed);
    let (before, counted) = keys.split_at(count as usize);
    tree.pool().backend().reset_evicting(CACHE_LENGTH, eviction);
    insert(&tree, before)?;
    tree.pool().backend().take();
    insert(&tree, counted)?;
    Ok(tree.pool().backend().take())
}

fn add(table: &mut Table, kind: Kind, model: &str, count: u64, counters: &Counters) {
    let (name, params) = (kind.name(), json!({"count": count, "model": model, "node_length": NODE_LENGTH}));
    let per = |value: u64| value as f64 / count as f64;
    let written = per((counters.flushes + counters.lines_evicted) * LINE_LENGTH);
    let media = per(counters.media_bytes());
    let paper = paper(kind);
    let mut put = |metric: &'static str, value: f64, unit: &'static str, paper: Option<f64>| {
        let figure = table.figure(name, &params, metric, value, unit);
        if let Some(paper) = paper {
            figure.paper(paper);
        }
    };
    put("flushes", per(counters.flushes), "", paper.map(|paper| paper[0]));
    put("fences", per(counters.fences), "", paper.map(|paper| paper[1]));
    put("written", written, "B", paper.map(|paper| paper[2]));
    put("amplification", media / written, "x", paper.map(|paper| paper[3]));
    put("media bytes", media, "B", paper.map(|paper| paper[2] * paper[3]));
    put("read", per(counters.lines_loaded * LINE_LENGTH), "B", None);
    put("media bytes read", per(counters.media_bytes_read()), "B", None);
}

fn state_targets(table: &mut Table, kind: Kind) {
    let Some([flushes, fences]) = most(kind) else { return };
    table.target(kind.name(), "flushes", Bound::AtMost(flushes), "");
    table.target(kind.name(), "fences", Bound::AtMost(fences), "");
    if kind == Kind::BTreeLs {
        table.target(kind.name(), "amplification", Bound::AtMost(1.2), "x");
    }
    if let Some([_, _, written, amplification]) = paper(kind) {
        table.target(kind.name(), "media bytes", Bound::AtMost(written * amplification), "B");
    }
}
