//! Costs of an insertion, against the size of leaves and the options (sections 2.2 and 5.6).

use anyhow::Result;
use serde_json::json;

use super::{Kind, RandomBoxes, Shape, create};
use crate::experiments::insertions::{counted, cpu_per_insertion};
use crate::experiments::{Setup, medians};
use crate::measure::{self, Pin};
use crate::progress::progress;
use crate::report::{Bound, Emit, Table};

/// Lines of the paper's FBR-tree, and the ratio of the PM-RTREE to it.
const PAPER_LINES: f64 = 5.07;
const PAPER_RATIO: f64 = 0.612;
const PAPER_COUNT: u64 = 1_000_000;

/// Sizes of leaves, from one word of the bitmap to the paper's largest.
const FAN_OUTS: [usize; 5] = [48, 96, 336, 784, 2000];
/// The size with which options are compared.
const OPTIONS_FAN_OUT: usize = 336;

/// Counts and times insertions into each tree.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let count = setup.count(50_000, PAPER_COUNT);
    let options =
        [Kind::Sequential, Kind::Descriptor, Kind::SelfValidating].map(|kind| Shape { kind, fan_out: OPTIONS_FAN_OUT });
    let mut shapes: Vec<Shape> = [Shape::FBR].into_iter().chain(FAN_OUTS.map(Shape::pmr)).chain(options).collect();
    let mut table = Table::new("pmr/insert-cost", format!("Insertion of {count} Random boxes"));
    table.note("per insertion; counted by a back-end with flushes, on no device");
    table.note(format!("cpu: on the page cache, median of {} alternating runs", setup.rounds));
    table.note("paper: section 2.2, and 38.8 % fewer writes than the FBR-tree in section 5.2");
    let pin = Pin::to_one_core()?;
    let boxes = || RandomBoxes::new(setup.options.seed).take(count as usize);
    let cpu = medians(measure::alternate(setup.rounds, &mut shapes, |shape| {
        cpu_per_insertion(setup, |storage, domain| create(storage, shape, domain), boxes())
    })?)?;
    drop(pin);
    let mut of_fbr = None;
    for (shape, cpu) in shapes.iter().zip(cpu) {
        progress(&format!("counting {count} insertions, {}", shape.row()));
        let counters = counted(|storage, domain| create(storage, shape, domain), boxes())?;
        let params = json!({"fan_out": shape.fan_out, "count": count, "seed": setup.options.seed});
        let row = shape.row();
        let per_insertion = |value: u64| value as f64 / count as f64;
        let lines = per_insertion(counters.flushes);
        let figure = table.figure_in_row(&row, shape.name(), &params, "lines flushed", lines, "");
        if shape.kind == Kind::Fbr && count == PAPER_COUNT {
            figure.paper(PAPER_LINES);
        }
        let reflushes = counters.reflushes as f64 / counters.flushes as f64;
        table.figure_in_row(&row, shape.name(), &params, "reflush share", reflushes, "");
        table.figure_in_row(&row, shape.name(), &params, "fences", per_insertion(counters.fences), "");
        table.figure_in_row(
            &row,
            shape.name(),
            &params,
            "bytes stored",
            per_insertion(counters.bytes_stored()),
            "bytes",
        );
        table.figure_in_row(&row, shape.name(), &params, "media blocks", per_insertion(counters.media_blocks), "");
        table.figure_in_row(&row, shape.name(), &params, "cpu", cpu, "ns");
        let (fbr_lines, fbr_cpu) = *of_fbr.get_or_insert((lines, cpu));
        if shape.kind != Kind::Fbr {
            let figure = table.figure_in_row(&row, shape.name(), &params, "lines to fbr-tree", lines / fbr_lines, "x");
            figure.paper(PAPER_RATIO);
            table.figure_in_row(&row, shape.name(), &params, "cpu to fbr-tree", cpu / fbr_cpu, "x");
        }
    }
    table.target(&Shape::pmr(OPTIONS_FAN_OUT).row(), "lines flushed", Bound::AtMost(4.2), "");
    let self_validating = Shape { kind: Kind::SelfValidating, fan_out: OPTIONS_FAN_OUT };
    table.target(&self_validating.row(), "lines flushed", Bound::AtMost(3.2), "");
    emit(table)
}
