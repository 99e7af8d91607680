//! The cost of persistence, in parts (the study's Figure 8): the tree itself, what makes its
//! changes atomic, fences, and flushes.

use anyhow::Result;
use serde_json::json;
use terrane_pmem::{Executing, FlushInstruction};
use terrane_pmtree::PersistenceDomain;
use terrane_storage::RealStorage;

use super::{Key, Kind, Tree, insert, keys, options};
use crate::experiments::{Setup, Unavailable, medians};
use crate::measure::{self, Pin};
use crate::progress::progress;
use crate::report::{Emit, Table};

const NODE_LENGTH: u64 = 512;

/// The instructions that are executed: none, fences, and flushes as well.
const DOMAINS: [PersistenceDomain; 3] = [PersistenceDomain::PageCache, PersistenceDomain::Eadr, PersistenceDomain::Adr];

/// Each tree, and the volatile one with the same leaves.
const TREES: [(Kind, Kind); 5] = [
    (Kind::BTreeWal, Kind::BTree),
    (Kind::FastFair, Kind::BTree),
    (Kind::PersistentUnsorted, Kind::UnsortedLeaf),
    (Kind::FastFairSp, Kind::BTree),
    (Kind::BTreeLs, Kind::BTree),
];

/// Measures insertions with and without the instructions.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let Some(instruction) = FlushInstruction::detect() else {
        return Err(Unavailable("no instruction is known that writes back a cache line of this CPU").into());
    };
    let count = setup.count(100_000, 2_000_000);
    let keys = keys(2 * count, setup.options.seed);
    let mut table = Table::new("btree/persistence", "The cost of persistence of an insertion, in parts: CPU time");
    table.note(format!(
        "{count} insertions into trees of the same size, nodes of {NODE_LENGTH} bytes, median of {} alternating runs",
        setup.rounds
    ));
    table.note(format!("the instructions are executed (sfence and {instruction:?}), on ordinary memory: no device"));
    table.note("tree: the volatile tree with the same leaves; atomicity: what the durable tree takes more");
    table.note("fences and flushes: what these instructions add, in this order; a small part may be negative");
    table.note("paper: 4 threads on Optane; of btree_wal, the log takes 0.9 s and flushes and fences 1.1 s");
    let durable = TREES.iter().flat_map(|(kind, _)| DOMAINS.map(|domain| (*kind, domain)));
    let volatile = [Kind::BTree, Kind::UnsortedLeaf].map(|kind| (kind, DOMAINS[0]));
    let mut subjects: Vec<(Kind, PersistenceDomain)> = durable.chain(volatile).collect();
    let pin = Pin::to_one_core()?;
    let runs = measure::alternate(setup.rounds, &mut subjects, |(kind, domain)| {
        progress(&format!("{}, {domain:?}", kind.name()));
        measure(setup, *kind, *domain, &keys)
    })?;
    drop(pin);
    let times = medians(runs)?;
    let of = |kind, domain| {
        let found = subjects.iter().zip(&times).find(|(subject, _)| **subject == (kind, domain));
        found.map_or(f64::NAN, |(_, time)| *time)
    };
    for (kind, volatile) in TREES {
        let tree = of(volatile, DOMAINS[0]);
        let [none, fences, flushes] = DOMAINS.map(|domain| of(kind, domain));
        let parts = [
            ("tree", tree),
            ("atomicity", none - tree),
            ("fences", fences - none),
            ("flushes", flushes - fences),
            ("in all", flushes),
        ];
        for (metric, time) in parts {
            table.figure(kind.name(), &json!({"count": count, "node_length": NODE_LENGTH}), metric, time, "ns");
        }
    }
    emit(table)
}

/// CPU time of an insertion of the second half of the keys.
fn measure(setup: &Setup, kind: Kind, domain: PersistenceDomain, keys: &[Key]) -> Result<f64> {
    let (before, timed) = keys.split_at(keys.len() / 2);
    let folder = setup.pool_folder()?;
    let storage = RealStorage::new(folder.path());
    let tree: Tree<Executing> = kind.create(&storage, &options(NODE_LENGTH, domain))?;
    insert(&tree, before)?;
    let start = measure::thread_cpu();
    insert(&tree, timed)?;
    Ok((measure::thread_cpu() - start).as_nanos() as f64 / timed.len() as f64)
}
