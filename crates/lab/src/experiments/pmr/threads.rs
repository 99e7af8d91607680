//! Insertions by several threads (section 5.4, Figure 11(a)).

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use serde_json::json;
use terrane_pmem::Native;
use terrane_pmtree::{PersistenceDomain, Rect};
use terrane_storage::RealStorage;

use super::{Kind, RandomBoxes, Shape, Tree, create};
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

/// The time of threads that work at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// From the start to the end of all.
    pub(super) wall: Duration,
    /// Sums over the threads: from the start to each one's end, and the part in which it neither
    /// ran nor waited for a core.
    present: Duration,
    blocked: Duration,
}

impl Run {
    /// The share of the threads' time in which they were blocked: by locks, as the page cache holds
    /// everything.
    pub(super) fn blocked(&self) -> f64 {
        self.blocked.as_secs_f64() / self.present.as_secs_f64()
    }
}

/// Lets threads with these numbers work at once.
pub(super) fn in_threads(threads: usize, work: impl Fn(usize) -> Result<()> + Sync) -> Result<Run> {
    let (begin, work) = (&Barrier::new(threads + 1), &work);
    thread::scope(|scope| {
        let run = move |number| {
            begin.wait();
            let (start, scheduled) = (Instant::now(), measure::thread_scheduled()?);
            work(number)?;
            let present = start.elapsed();
            anyhow::Ok((present, present.saturating_sub(measure::thread_scheduled()? - scheduled)))
        };
        let workers: Vec<_> = (0..threads).map(|number| scope.spawn(move || run(number))).collect();
        begin.wait();
        let start = Instant::now();
        let mut all = Run { wall: Duration::ZERO, present: Duration::ZERO, blocked: Duration::ZERO };
        for worker in workers {
            let (present, blocked) = worker.join().map_err(|_| anyhow!("a thread has panicked"))??;
            all = Run { present: all.present + present, blocked: all.blocked + blocked, ..all };
        }
        Ok(Run { wall: start.elapsed(), ..all })
    })
}

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
