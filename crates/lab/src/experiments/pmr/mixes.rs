//! Searches and insertions by several threads at once (section 5.3, Figure 10).

use anyhow::Result;
use serde_json::json;
use terrane_pmem::Native;
use terrane_pmtree::{PersistenceDomain, Rect};
use terrane_storage::RealStorage;

use super::data::DataSet;
use super::{Kind, Shape, Tree, create};
use crate::experiments::workers::{Run, in_threads};
use crate::experiments::{Setup, medians};
use crate::measure;
use crate::progress::progress;
use crate::report::{Emit, Table};

/// Threads of the paper.
const THREADS: [usize; 1] = [4];
const SHAPES: [Shape; 3] =
    [Shape::FBR, Shape { kind: Kind::Pmr, fan_out: 96 }, Shape { kind: Kind::SelfValidating, fan_out: 96 }];

/// A mix: entries before it, insertions and searches, as shares of all entries.
struct Mix {
    name: &'static str,
    before: f64,
    searches: f64,
    /// The paper's time of the PM-RTREE to that of the FBR-tree.
    paper: f64,
}

/// 5 M entries, then 10 K insertions and 300 K searches; 1 M entries, then 4 M insertions and 1 K
/// searches.
const MIXES: [Mix; 2] = [
    Mix { name: "search-heavy", before: 5.0 / 5.01, searches: 0.3 / 5.01, paper: 0.965 },
    Mix { name: "insert-heavy", before: 1.0 / 5.0, searches: 0.001 / 5.0, paper: 0.793 },
];

/// Measures each mix with each tree.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let threads: &[usize] = if setup.options.threads.is_empty() { &THREADS } else { &setup.options.threads };
    let count = setup.count(100_000, 1_000_000);
    let mut table =
        Table::new("pmr/mixes", format!("Insertions and searches at once, {count} Random boxes in the end"));
    table.note(format!("wall time, page cache, median of {} alternating runs", setup.rounds));
    table.note("blocked: share of the threads' time in which they neither run nor wait for a core");
    table.note("paper: section 5.3, 4 threads on 16 cores");
    for mix in &MIXES {
        let queries = ((count as f64 * mix.searches) as usize).max(10);
        let Some(data) = DataSet::Random.load(count, queries, setup.options.seed)? else { continue };
        for &number in threads {
            let mut shapes = SHAPES;
            let runs = measure::alternate(setup.rounds, &mut shapes, |shape| {
                progress(&format!("{}, {number} threads: {}", mix.name, shape.row()));
                let (before, after) = data.boxes.split_at((data.boxes.len() as f64 * mix.before) as usize);
                measure_mix(setup, shape, [before, after], &data.queries, number)
            })?;
            let of = |part: fn(&Run) -> f64| medians(runs.iter().map(|runs| runs.iter().map(part).collect()).collect());
            let (walls, blocked) = (of(|run| run.wall.as_nanos() as f64)?, of(Run::blocked)?);
            for (place, shape) in shapes.iter().enumerate() {
                let params = json!({"mix": mix.name, "count": count, "threads": number, "seed": setup.options.seed});
                let row = format!("{}, {}, {number}", mix.name, shape.row());
                table.figure_in_row(&row, shape.name(), &params, "wall", walls[place], "ns");
                table.figure_in_row(&row, shape.name(), &params, "blocked", blocked[place], "");
                let ratio = walls[place] / walls[0];
                let figure = table.figure_in_row(&row, shape.name(), &params, "time to fbr-tree", ratio, "x");
                if shape.kind == Kind::Pmr {
                    figure.paper(mix.paper);
                }
            }
        }
    }
    emit(table)
}

fn measure_mix(
    setup: &Setup,
    shape: &Shape,
    [before, after]: [&[Rect<3>]; 2],
    queries: &[Rect<3>],
    threads: usize,
) -> Result<Run> {
    let folder = setup.pool_folder()?;
    let storage = RealStorage::new(folder.path());
    let tree: Tree<Native> = create(&storage, shape, PersistenceDomain::PageCache)?;
    for (payload, rect) in (0..).zip(before) {
        tree.insert(rect, payload)?;
    }
    let part = |all: &[Rect<3>], thread: usize| {
        let length = all.len().div_ceil(threads);
        (thread * length).min(all.len())..((thread + 1) * length).min(all.len())
    };
    in_threads(threads, |thread| {
        let (inserted, asked) = (&after[part(after, thread)], &queries[part(queries, thread)]);
        // Each kind is spread over the other.
        let steps = inserted.len().max(asked.len());
        let due = |all: &[Rect<3>], step: usize| step * all.len() / steps..(step + 1) * all.len() / steps;
        for step in 0..steps {
            for rect in &inserted[due(inserted, step)] {
                tree.insert(rect, step as u64)?;
            }
            for query in &asked[due(asked, step)] {
                tree.window(query, &mut |_, _| {})?;
            }
        }
        Ok(())
    })
}
