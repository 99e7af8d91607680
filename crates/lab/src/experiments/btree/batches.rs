//! Look-ups that take turns, so that the memory serves several at once.

use anyhow::{Result, ensure};
use serde_json::json;
use terrane_pmem::Native;
use terrane_pmtree::PersistenceDomain;
use terrane_pmtree::btree::{BTree, PersistentUnsorted};
use terrane_storage::RealStorage;

use super::{NAME, keys, options, value};
use crate::experiments::{Setup, medians};
use crate::measure::{self, Pin};
use crate::progress::progress;
use crate::report::{Bound, Emit, Table};

const LENGTHS: [u64; 2] = [128, 512];
const BATCHES: [usize; 6] = [0, 1, 2, 4, 8, 16];

/// Measures look-ups one by one (0), and in batches.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let count = setup.count(200_000, 10_000_000);
    let keys = keys(count, setup.options.seed);
    let mut table = Table::new("btree/batches", format!("Look-ups in turns, persistent_unsorted, {count} entries"));
    table.note(format!("CPU of a look-up, one thread, page cache, median of {} alternating runs", setup.rounds));
    table.note("paper, on Optane: 3.4 x as fast at nodes of 128 bytes, 2.5 x in DRAM");
    for length in LENGTHS {
        progress(&format!("nodes of {length} bytes"));
        let folder = setup.pool_folder()?;
        let storage = RealStorage::new(folder.path());
        let options = options(length, PersistenceDomain::PageCache);
        let tree: BTree<PersistentUnsorted, 2, 2, Native> = BTree::create(&storage, NAME, &options)?;
        keys.iter().try_for_each(|key| tree.insert(key, &value(key)).map(drop))?;
        // In an order that is not that of the insertions.
        let mut asked = keys.clone();
        asked.sort_unstable_by_key(|key| key[0].rotate_left(32));
        let _pin = Pin::to_one_core()?;
        let mut batches = BATCHES;
        let runs = measure::alternate(setup.rounds, &mut batches, |batch| {
            let (mut found, start) = (0, measure::thread_cpu());
            match *batch {
                0 => {
                    for key in &asked {
                        found += usize::from(tree.get(key)?.is_some());
                    }
                }
                batch => tree.get_many(&asked, batch, |_, value| found += usize::from(value.is_some()))?,
            }
            let spent = measure::thread_cpu() - start;
            ensure!(found == asked.len(), "{found} of {} keys are found", asked.len());
            Ok(spent.as_nanos() as f64 / asked.len() as f64)
        })?;
        let name = |batch: usize| match batch {
            0 => format!("{length} bytes, one by one"),
            batch => format!("{length} bytes, batch of {batch}"),
        };
        let times = medians(runs)?;
        for (batch, time) in batches.iter().zip(&times) {
            let params = json!({"count": count, "node_length": length, "batch": batch});
            table.figure_in_row(&name(*batch), "persistent_unsorted", &params, "look-up", *time, "ns");
            table.figure_in_row(
                &name(*batch),
                "persistent_unsorted",
                &params,
                "one by one to it",
                times[0] / time,
                "x",
            );
        }
        table.target(&name(8), "one by one to it", Bound::AtLeast(2.0), "x");
    }
    emit(table)
}
