//! Time to open a tree that was not closed (section 5.8).

use std::time::Instant;

use anyhow::Result;
use serde_json::json;
use terrane_pmem::Native;
use terrane_pmtree::PersistenceDomain;
use terrane_pmtree::pmr::{Options, PmrTree};
use terrane_storage::RealStorage;

use super::{NAME, RandomBoxes, Shape};
use crate::experiments::{Setup, medians};
use crate::measure;
use crate::progress::progress;
use crate::report::{Emit, Table};

/// Entries of a leaf: the default, and the paper's for two lines of bitmap.
const FAN_OUTS: [usize; 2] = [96, 336];

/// Grows a tree of each size, drops it as a kill does, and opens it again and again.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let threads: &[usize] = if setup.options.threads.is_empty() { &[1, 2] } else { &setup.options.threads };
    let count = setup.count(100_000, 5_000_000);
    let mut table = Table::new("pmr/recovery", format!("Opening a tree of {count} Random boxes that was not closed"));
    table.note(format!(
        "wall time, page cache, median of {} alternating runs; all inner nodes are rebuilt",
        setup.rounds
    ));
    for shape in FAN_OUTS.map(Shape::pmr) {
        progress(&format!("growing {}", shape.row()));
        let folder = setup.pool_folder()?;
        let storage = RealStorage::new(folder.path());
        let options = shape.pmr_options(PersistenceDomain::PageCache);
        let tree: PmrTree<3, Native> = PmrTree::create(&storage, NAME, &options)?;
        for (payload, rect) in (0..count).zip(RandomBoxes::new(setup.options.seed)) {
            tree.insert(&rect, payload)?;
        }
        drop(tree);
        let mut numbers = threads.to_vec();
        let times = measure::alternate(setup.rounds, &mut numbers, |recovery_threads| {
            let options = Options { recovery_threads: *recovery_threads, ..options.clone() };
            let start = Instant::now();
            let tree: PmrTree<3, Native> = PmrTree::open(&storage, NAME, &options)?;
            let spent = start.elapsed();
            drop(tree);
            anyhow::Ok(spent.as_nanos() as f64)
        })?;
        for (number, time) in numbers.iter().zip(medians(times)?) {
            let params =
                json!({"fan_out": shape.fan_out, "count": count, "threads": number, "seed": setup.options.seed});
            table.figure_in_row(&format!("{}, {number}", shape.row()), shape.name(), &params, "open", time, "ns");
        }
    }
    emit(table)
}
