//! The size of nodes, their least fill and their alignment (section 6.8).

use anyhow::Result;
use serde_json::json;
use terrane_pmem::CPU_CACHE_LENGTH;
use terrane_pmtree::pear::{Options, PearTree};
use terrane_pmtree::{PersistenceDomain, Rect};
use terrane_testkit::MemoryStorage;

use super::{Data, NAME, NONE, insert, pear, with_budget};
use crate::experiments::insertions::Counting;
use crate::experiments::{Setup, medians};
use crate::measure::{self, Pin};
use crate::progress::progress;
use crate::report::{Emit, Table};

/// The paper's sizes, and two smaller ones.
const FAN_OUTS: [usize; 7] = [14, 22, 30, 38, 46, 54, 62];
/// Sizes have 30 %.
const FILLS_PERCENT: [u8; 4] = [10, 20, 40, 50];
/// Lines, and pages. All others begin at blocks of the medium, 256 bytes.
const ALIGNMENTS: [u64; 2] = [64, 4096];
/// Insertions whose media blocks are counted.
const COUNTED: usize = 20_000;

/// Measures each size and each fill.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let count = setup.count(100_000, 1_000_000);
    let data = Data::load(count, setup.options.queries.unwrap_or(10_000))?;
    let base = with_budget(NONE);
    let sizes = FAN_OUTS
        .map(|fan_out| (format!("{fan_out} entries"), Options { fan_out, inner_fan_out: fan_out, ..base.clone() }));
    let fills =
        FILLS_PERCENT.map(|fill| (format!("{fill} % filled"), Options { fill_min_percent: fill, ..base.clone() }));
    let alignments =
        ALIGNMENTS.map(|alignment| (format!("aligned to {alignment} bytes"), Options { alignment, ..base.clone() }));
    let single = [("38 entries in single precision".to_owned(), Options { single: true, ..base })];
    let mut shapes: Vec<(String, Options)> = sizes.into_iter().chain(single).chain(fills).chain(alignments).collect();
    let title = format!("Sizes of nodes, their least fill and alignment, {count} points");
    let mut table = Table::new("pear/nodes", title);
    table.note(format!("cpu: an operation of one thread, page cache, median of {} alternating runs", setup.rounds));
    table.note("sizes have a least fill of 30 %, fills have 38 entries; no nodes in memory");
    table.note("paper: 38 and 30 % are best for insertions, 46 (insertions -41 %) for windows (+16 %); at 10 % -55 %");
    table.note(format!("media blocks: of 256 bytes, written per insertion of the first {COUNTED} points, on a model"));
    table.note("paper: 14 % fewer insertions where nodes are not aligned");
    let pin = Pin::to_one_core()?;
    let runs = measure::alternate(setup.rounds, &mut shapes, |(name, options)| {
        progress(name);
        let grown = pear(setup, options)?;
        Ok([
            insert(&grown.tree, &data.points)?,
            data.ask(&grown.tree, !options.single)?,
            grown.tree.pool().length() as f64,
        ])
    })?;
    drop(pin);
    for ((name, options), runs) in shapes.iter().zip(runs) {
        let of = |part: usize| runs.iter().map(|figures| figures[part]).collect();
        let figures = medians((0..3).map(of).collect())?;
        let params = json!({"count": count, "fan_out": options.fan_out, "fill": options.fill_min_percent,
                            "single": options.single, "alignment": options.alignment});
        table.figure_in_row(name, "pear-tree", &params, "insertion cpu", figures[0], "ns");
        table.figure_in_row(name, "pear-tree", &params, "window cpu", figures[1], "ns");
        table.figure_in_row(name, "pear-tree", &params, "bytes a point", figures[2] / count as f64, "B");
        let blocks = media_blocks(options, &data.points[..data.points.len().min(COUNTED)])?;
        table.figure_in_row(name, "pear-tree", &params, "media blocks", blocks, "");
    }
    emit(table)
}

/// Media blocks that an insertion writes, where lines are flushed.
fn media_blocks(options: &Options, points: &[Rect<2>]) -> Result<f64> {
    let pool = terrane_pmem::Options { domain: PersistenceDomain::Adr, ..options.pool.clone() };
    let options = Options { pool, ..options.clone() };
    let tree = PearTree::<2, Counting>::create(&MemoryStorage::new(), NAME, &options)?;
    tree.pool().backend().reset(CPU_CACHE_LENGTH);
    for (payload, rect) in (0..).zip(points) {
        tree.insert(rect, payload)?;
    }
    tree.pool().backend().drain_media();
    Ok(tree.pool().backend().take().media_blocks as f64 / points.len() as f64)
}
