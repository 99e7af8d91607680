//! Costs of an insertion, against the size of nodes (section 5.1, Figure 9).

use anyhow::Result;
use serde_json::json;

use super::{Boxes, FAN_OUTS, Kind, create};
use crate::experiments::insertions::{RandomBoxes, counted, cpu_per_insertion};
use crate::experiments::{Setup, medians};
use crate::measure::{self, Pin};
use crate::progress::progress;
use crate::report::{Bound, Emit, Table};

/// The node size of the paper's figures: PM-RTREE, section 2.2, on its *Random* boxes.
const SINGLE_WORD: usize = 55;
/// Insertions after which the paper gives them.
const PAPER_COUNT: u64 = 1_000_000;
const PAPER_LINES: f64 = 5.07;

/// Ratios of the trees in the thesis to in-place: lines flushed, and bytes written, which it calls
/// bit flips.
fn paper_ratios(kind: Kind) -> Option<(f64, f64)> {
    match kind {
        Kind::InPlace | Kind::SelfValidating => None,
        Kind::CopyOnWrite => Some((1.12, 1.3)),
        // Copy-on-write flushes 12 % more than in-place and 42 % more than logging.
        Kind::Logging => Some((1.12 / 1.42, 2.85)),
    }
}

/// Counts and times insertions into each tree of each size.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    for &fan_out in setup.fan_outs(&FAN_OUTS) {
        let count = match fan_out {
            SINGLE_WORD => setup.count(100_000, PAPER_COUNT),
            _ => setup.count(20_000, 100_000),
        };
        emit(measure_size(setup, fan_out, count)?)?;
    }
    Ok(())
}

fn measure_size(setup: &Setup, fan_out: usize, count: u64) -> Result<Table> {
    let mut shapes = setup.shapes(fan_out);
    let bitmap_bytes = (fan_out + 1) / 8;
    let title =
        format!("Insertion of {count} random boxes, {fan_out} entries a node (a bitmap of {bitmap_bytes} bytes)");
    let mut table = Table::new("fbr/insert-cost", title);
    table.note("per insertion; counted by a back-end with flushes, the medium (256-byte blocks) by a model; no device");
    table
        .note(format!("cpu: on the page cache, where nothing is flushed, median of {} alternating runs", setup.rounds));
    table.note(
        "paper: lines by PM-RTREE, section 2.2, on its Random boxes; the rest by the thesis, 80 M polylines on Optane",
    );
    table.note("the thesis's bit flips are bytes; its two statements on logging conflict");
    let pin = Pin::to_one_core()?;
    let boxes = || Boxes::new(setup.options.seed).take(count as usize);
    let cpu = medians(measure::alternate(setup.rounds, &mut shapes, |shape| {
        cpu_per_insertion(setup, |storage, domain| create(storage, shape, domain), boxes())
    })?)?;
    drop(pin);
    let mut in_place = None;
    for (shape, cpu) in shapes.iter().zip(cpu) {
        progress(&format!("counting {count} insertions, {}", shape.row()));
        let counters = counted(|storage, domain| create(storage, shape, domain), boxes())?;
        let per_insertion = |value: u64| value as f64 / count as f64;
        let params = json!({"fan_out": fan_out, "bitmap_bytes": bitmap_bytes, "count": count,
                            "split": shape.split_name(), "seed": setup.options.seed});
        let (row, system) = (shape.row(), shape.kind.name());
        let lines = per_insertion(counters.flushes);
        table.figure_in_row(&row, system, &params, "lines flushed", lines, "");
        table.figure_in_row(&row, system, &params, "fences", per_insertion(counters.fences), "");
        let bytes = per_insertion(counters.bytes_stored());
        table.figure_in_row(&row, system, &params, "bytes stored", bytes, "bytes");
        table.figure_in_row(&row, system, &params, "bits flipped", per_insertion(counters.bits_flipped), "");
        table.figure_in_row(&row, system, &params, "media blocks", per_insertion(counters.media_blocks), "");
        table.figure_in_row(&row, system, &params, "cpu", cpu, "ns");
        let (base_lines, base_bytes) = *in_place.get_or_insert((lines, bytes));
        if shape.kind == Kind::InPlace {
            continue;
        }
        let (paper_lines, paper_bytes) = paper_ratios(shape.kind).unzip();
        for (metric, ratio, paper) in [
            ("lines to in-place", lines / base_lines, paper_lines),
            ("bytes to in-place", bytes / base_bytes, paper_bytes),
        ] {
            let figure = table.figure_in_row(&row, system, &params, metric, ratio, "x");
            if let Some(paper) = paper {
                figure.paper(paper);
            }
        }
    }
    if fan_out == SINGLE_WORD {
        add_random(setup, &mut table, count)?;
        let [in_place, copies, ..] = setup.shapes(fan_out).map(|shape| shape.row());
        table.target(&in_place, "lines flushed", Bound::AtMost(4.7), "");
        table.ratio_target(&copies, "lines flushed", &in_place, Bound::AtLeast(1.1));
    }
    Ok(table)
}

/// The lines of in-place changes on the boxes of the paper that gives them.
fn add_random(setup: &Setup, table: &mut Table, count: u64) -> Result<()> {
    let shape = setup.shape(Kind::InPlace, SINGLE_WORD);
    let boxes = RandomBoxes::new(setup.options.seed).take(count as usize);
    let counters = counted(|storage, domain| create(storage, &shape, domain), boxes)?;
    let params = json!({"data": "Random", "fan_out": SINGLE_WORD, "count": count, "split": shape.split_name(),
                        "seed": setup.options.seed});
    let (row, system) = (format!("{}, Random", shape.row()), format!("{}, Random", shape.kind.name()));
    let lines = counters.flushes as f64 / count as f64;
    let figure = table.figure_in_row(&row, &system, &params, "lines flushed", lines, "");
    if count == PAPER_COUNT {
        figure.paper(PAPER_LINES);
    }
    Ok(())
}
