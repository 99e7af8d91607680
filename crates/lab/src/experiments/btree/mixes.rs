//! CPU time of operations, one kind at a time and mixed.

use anyhow::Result;
use serde_json::json;
use terrane_pmem::Native;
use terrane_pmtree::PersistenceDomain;
use terrane_storage::RealStorage;

use super::operations::Operation;
use super::{Kind, Tree, keys, options, value};
use crate::experiments::{Setup, medians};
use crate::measure::{self, Pin};
use crate::progress::progress;
use crate::report::{Emit, Table};

const NODE_LENGTH: u64 = 512;
/// Writes in a hundred operations of a mix. A half of them are insertions, the others updates.
const MIXES: [(&str, u64); 4] = [("20 % writes", 20), ("40 % writes", 40), ("60 % writes", 60), ("80 % writes", 80)];

/// Measures each tree.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let count = setup.count(100_000, 2_000_000);
    let keys = keys(2 * count, setup.options.seed);
    let mut table = Table::new("btree/mixes", format!("Operations on trees of {count} entries: CPU time"));
    table.note(format!("one thread, page cache, nodes of {NODE_LENGTH} bytes, median of {} rounds", setup.rounds));
    table.note("mixes: after the operations of one kind; a half of the writes insert, the others update");
    table.note("paper, latency of an insertion to btree: persistent_unsorted 1.27, fast_fair 1.56, btree_wal 1.77 x");
    let mut kinds = Kind::ALL;
    let pin = Pin::to_one_core()?;
    let runs = measure::alternate(setup.rounds, &mut kinds, |kind| {
        progress(kind.name());
        measure(setup, *kind, &keys)
    })?;
    drop(pin);
    for (kind, runs) in kinds.iter().zip(runs) {
        let of = |part: usize| runs.iter().map(|figures| figures[part]).collect::<Vec<f64>>();
        let metrics: Vec<&'static str> =
            Operation::ALL.iter().map(|operation| operation.name()).chain(MIXES.map(|(name, _)| name)).collect();
        let figures = medians((0..metrics.len()).map(of).collect())?;
        for (metric, figure) in metrics.into_iter().zip(figures) {
            table.figure(kind.name(), &json!({"count": count}), metric, figure, "ns");
        }
    }
    table.ratios = Some((Kind::BTree.name().to_owned(), vec![Operation::Insertion.name(), Operation::LookUp.name()]));
    emit(table)
}

fn measure(setup: &Setup, kind: Kind, keys: &[super::Key]) -> Result<Vec<f64>> {
    let (first, others) = keys.split_at(keys.len() / 2);
    let folder = setup.pool_folder()?;
    let storage = RealStorage::new(folder.path());
    let tree: Tree<Native> = kind.create(&storage, &options(NODE_LENGTH, PersistenceDomain::PageCache))?;
    let timed = |operations: usize, work: &mut dyn FnMut() -> Result<()>| -> Result<f64> {
        let start = measure::thread_cpu();
        work()?;
        Ok((measure::thread_cpu() - start).as_nanos() as f64 / operations as f64)
    };
    let mut figures = Vec::new();
    for operation in Operation::ALL {
        // All keys are in the first half here, also those that are inserted.
        let keys = operation.keys(first, first);
        figures.push(timed(keys.len(), &mut || keys.iter().try_for_each(|key| operation.perform(&tree, key)))?);
    }
    let removed = Operation::Removal.keys(first, first);
    // Each mix inserts keys of its own.
    let mut new = others.iter();
    for (_, writes) in MIXES {
        let operations = others.len() / MIXES.len();
        figures.push(timed(operations, &mut || {
            for (number, key) in (0_u64..).zip(&first[removed.len()..]).take(operations) {
                match number * 37 % 100 {
                    turn if turn >= writes => _ = tree.get(key)?,
                    turn if turn % 2 == 0 => _ = tree.update(key, &value(key))?,
                    _ => {
                        if let Some(key) = new.next() {
                            tree.insert(key, &value(key))?;
                        }
                    }
                }
            }
            Ok(())
        })?);
    }
    Ok(figures)
}
