//! Insertions by several threads (section 5.4, Figure 11(a)).

use std::thread;

use anyhow::Result;
use serde_json::json;
use terrane_pmem::Native;
use terrane_pmtree::{PersistenceDomain, Rect};
use terrane_storage::RealStorage;

use super::{Kind, RandomBoxes, Shape, Tree, create};
use crate::experiments::workers::{Run, in_threads};
use crate::experiments::{Setup, medians};
use crate::measure;
use crate::report::{Emit, Table};

/// Leaves of the default size, and of the paper's for two lines of bitmap.
const SHAPES: [Shape; 4] = [
    Shape::FBR,
    Shape { kind: Kind::Pmr, fan_out: 96 },
    Shape { kind: Kind::Pmr, fan_out: 336 },
    Shape { kind: Kind::SelfValidating, fan_out: 96 },
];

/// Measures each tree with each number of threads.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let threads: &[usize] = if setup.options.threads.is_empty() { &[1, 2, 4, 8] } else { &setup.options.threads };
    let count = setup.count(100_000, 1_000_000);
    let cores = thread::available_parallelism().map_or(0, usize::from);
    let mut table = Table::new("pmr/threads", format!("Insertion of {count} Random boxes by several threads"));
    table.note(format!("wall time, page cache, {cores} cores, median of {} alternating runs", setup.rounds));
    table.note("blocked: share of the threads' time in which they neither run nor wait for a core");
    table.note("paper: 16 cores; locks take 0.1 % of the FBR-tree's time with 2 threads, 54 % with 32 (Figure 3)");
    let boxes: Vec<Rect<3>> = RandomBoxes::new(setup.options.seed).take(usize::try_from(count)?).collect();
    for &number in threads {
        let mut shapes = SHAPES;
        let runs = measure::alternate(setup.rounds, &mut shapes, |shape| insert(setup, shape, &boxes, number))?;
        let of =
            |part: &dyn Fn(&Run) -> f64| medians(runs.iter().map(|runs| runs.iter().map(part).collect()).collect());
        let rates = of(&|run| boxes.len() as f64 / run.wall.as_secs_f64())?;
        for ((shape, rate), blocked) in shapes.iter().zip(&rates).zip(of(&Run::blocked)?) {
            let params =
                json!({"fan_out": shape.fan_out, "count": count, "threads": number, "seed": setup.options.seed});
            let row = format!("{}, {number}", shape.row());
            table.figure_in_row(&row, shape.name(), &params, "insertions a second", *rate, "");
            table.figure_in_row(&row, shape.name(), &params, "rate to fbr-tree", rate / rates[0], "x");
            table.figure_in_row(&row, shape.name(), &params, "blocked", blocked, "");
        }
    }
    emit(table)
}

fn insert(setup: &Setup, shape: &Shape, boxes: &[Rect<3>], threads: usize) -> Result<Run> {
    let folder = setup.pool_folder()?;
    let storage = RealStorage::new(folder.path());
    let tree: Tree<Native> = create(&storage, shape, PersistenceDomain::PageCache)?;
    let parts: Vec<&[Rect<3>]> = boxes.chunks(boxes.len().div_ceil(threads)).collect();
    in_threads(threads, |number| {
        let part = parts.get(number).copied().unwrap_or_default();
        Ok(part.iter().zip(0..).try_for_each(|(rect, payload)| tree.insert(rect, payload))?)
    })
}
