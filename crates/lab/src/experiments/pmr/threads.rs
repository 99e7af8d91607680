//! Insertions by several threads (section 5.4, Figure 11(a)).

use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow};
use serde_json::json;
use terrane_pmem::Native;
use terrane_pmtree::{PersistenceDomain, Rect};
use terrane_storage::RealStorage;

use super::{RandomBoxes, Shape, Tree, create};
use crate::experiments::{Setup, medians};
use crate::measure;
use crate::report::{Emit, Table};

/// Entries of a leaf: the default, and the paper's for two lines of bitmap.
const FAN_OUTS: [usize; 2] = [96, 336];

/// Measures each tree with each number of threads.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let threads: &[usize] = if setup.options.threads.is_empty() { &[1, 2, 4, 8] } else { &setup.options.threads };
    let count = setup.count(100_000, 1_000_000);
    let cores = thread::available_parallelism().map_or(0, usize::from);
    let mut table = Table::new("pmr/threads", format!("Insertion of {count} Random boxes by several threads"));
    table.note(format!("wall time, page cache, {cores} cores, median of {} alternating runs", setup.rounds));
    let boxes: Vec<Rect<3>> = RandomBoxes::new(setup.options.seed).take(usize::try_from(count)?).collect();
    for &number in threads {
        let mut shapes: Vec<Shape> = [Shape::FBR].into_iter().chain(FAN_OUTS.map(Shape::pmr)).collect();
        let rates = measure::alternate(setup.rounds, &mut shapes, |shape| rate(setup, shape, &boxes, number))?;
        let rates = medians(rates)?;
        for (shape, rate) in shapes.iter().zip(&rates) {
            let params =
                json!({"fan_out": shape.fan_out, "count": count, "threads": number, "seed": setup.options.seed});
            let row = format!("{}, {number}", shape.row());
            table.figure_in_row(&row, shape.name(), &params, "insertions a second", *rate, "");
            table.figure_in_row(&row, shape.name(), &params, "rate to fbr-tree", rate / rates[0], "x");
        }
    }
    emit(table)
}

fn rate(setup: &Setup, shape: &Shape, boxes: &[Rect<3>], threads: usize) -> Result<f64> {
    let folder = setup.pool_folder()?;
    let storage = RealStorage::new(folder.path());
    let tree: Tree<Native> = create(&storage, shape, PersistenceDomain::PageCache)?;
    let (tree, begin) = (&tree, &Barrier::new(threads + 1));
    let start = thread::scope(|scope| {
        let insert = |part: &[Rect<3>]| {
            begin.wait();
            part.iter().zip(0..).try_for_each(|(rect, payload)| tree.insert(rect, payload))
        };
        let workers: Vec<_> =
            boxes.chunks(boxes.len().div_ceil(threads)).map(|part| scope.spawn(move || insert(part))).collect();
        begin.wait();
        let start = Instant::now();
        for worker in workers {
            worker.join().map_err(|_| anyhow!("a thread has panicked"))??;
        }
        anyhow::Ok(start)
    })?;
    Ok(boxes.len() as f64 / start.elapsed().as_secs_f64())
}
