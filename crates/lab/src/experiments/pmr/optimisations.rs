//! Each optimisation alone and together (section 5.6), and where caches are durable (section 5.7).

use anyhow::Result;
use serde_json::json;
use terrane_pmem::{Backend, Counters};
use terrane_pmtree::pmr::{Options, UnpartitionedTree};
use terrane_pmtree::{PersistenceDomain, Rect};
use terrane_storage::Storage;

use super::{Kind, NAME, RandomBoxes, Shape, create};
use crate::experiments::insertions::{counted, cpu_per_insertion};
use crate::experiments::{Setup, medians};
use crate::measure::{self, Pin};
use crate::progress::progress;
use crate::report::{Emit, Table};

/// Entries of a leaf: the paper's for two lines of bitmap.
const FAN_OUT: usize = 336;

/// A tree of the table.
#[derive(Clone, Copy, Debug)]
enum Subject {
    Tree(Shape),
    /// All nodes lie in the pool; whether bits are interleaved.
    Unpartitioned(bool),
    /// The PM-RTREE where caches are durable.
    Eadr,
}

/// The trees. The ratio to the second one is the paper's.
fn subjects() -> [(&'static str, Subject, Option<f64>); 9] {
    let of = |kind| Subject::Tree(Shape { kind, fan_out: FAN_OUT });
    [
        ("fbr-tree, 55", Subject::Tree(Shape::FBR), None),
        ("lock-free", Subject::Unpartitioned(false), None),
        ("lock-free, interleaved", Subject::Unpartitioned(true), None),
        ("lock-free, partitioned", of(Kind::SequentialDescriptor), Some(0.37)),
        ("all of the paper", of(Kind::Descriptor), Some(0.37 * 0.918)),
        ("all, one compare-and-swap, not interleaved", of(Kind::Sequential), None),
        ("all, one compare-and-swap", of(Kind::Pmr), None),
        ("all, self-validating", of(Kind::SelfValidating), None),
        ("all, one compare-and-swap, eADR", Subject::Eadr, None),
    ]
}

/// Counts and times insertions into each tree.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let count = setup.count(50_000, 1_000_000);
    let title = format!("Insertion of {count} Random boxes by each optimisation, {FAN_OUT} entries a leaf");
    let mut table = Table::new("pmr/optimisations", title);
    table.note("per insertion; counted by a back-end, on no device; reflushes at a distance of at most 1");
    table.note(format!("cpu: on the page cache, median of {} alternating runs", setup.rounds));
    table.note("paper: section 5.6, partitioned 63 % fewer writes than lock-free, interleaving 8.2 % fewer flushes");
    let boxes = || RandomBoxes::new(setup.options.seed).take(count as usize);
    let mut all = subjects();
    let pin = Pin::to_one_core()?;
    let cpu = medians(measure::alternate(setup.rounds, &mut all, |(name, subject, _)| {
        progress(&format!("timing {name}"));
        cpu(setup, subject, boxes())
    })?)?;
    drop(pin);
    let mut of_lock_free = None;
    for ((name, subject, paper), cpu) in all.iter().zip(cpu) {
        progress(&format!("counting {name}"));
        let counters = count_insertions(subject, boxes())?;
        let params = json!({"fan_out": FAN_OUT, "count": count, "seed": setup.options.seed});
        let per_insertion = |value: u64| value as f64 / count as f64;
        let lines = per_insertion(counters.flushes);
        table.figure(name, &params, "lines flushed", lines, "");
        table.figure(name, &params, "fences", per_insertion(counters.fences), "");
        let reflushes = counters.reflushes as f64 / counters.flushes.max(1) as f64;
        table.figure(name, &params, "reflush share", reflushes, "");
        table.figure(name, &params, "bytes stored", per_insertion(counters.bytes_stored()), "bytes");
        table.figure(name, &params, "media blocks", per_insertion(counters.media_blocks), "");
        table.figure(name, &params, "cpu", cpu, "ns");
        if matches!(subject, Subject::Unpartitioned(false)) {
            of_lock_free = Some(lines);
        }
        if let Some(of_lock_free) = of_lock_free {
            let figure = table.figure(name, &params, "lines to lock-free", lines / of_lock_free, "x");
            if let Some(paper) = paper {
                figure.paper(*paper);
            }
        }
    }
    emit(table)
}

fn cpu(setup: &Setup, subject: &Subject, boxes: impl Iterator<Item = Rect<3>>) -> Result<f64> {
    match subject {
        Subject::Tree(shape) => cpu_per_insertion(setup, |storage, domain| create(storage, shape, domain), boxes),
        Subject::Unpartitioned(interleaved) => {
            cpu_per_insertion(setup, |storage, domain| unpartitioned(storage, domain, *interleaved), boxes)
        }
        Subject::Eadr => cpu(setup, &Subject::Tree(Shape::pmr(FAN_OUT)), boxes),
    }
}

fn count_insertions(subject: &Subject, boxes: impl Iterator<Item = Rect<3>>) -> Result<Counters> {
    match subject {
        Subject::Tree(shape) => counted(|storage, domain| create(storage, shape, domain), boxes),
        Subject::Unpartitioned(interleaved) => {
            counted(|storage, domain| unpartitioned(storage, domain, *interleaved), boxes)
        }
        Subject::Eadr => counted(|storage, _| create(storage, &Shape::pmr(FAN_OUT), PersistenceDomain::Eadr), boxes),
    }
}

fn unpartitioned<B: Backend>(
    storage: &dyn Storage,
    domain: PersistenceDomain,
    interleaved: bool,
) -> Result<UnpartitionedTree<3, B>> {
    let options = Options { fan_out: FAN_OUT, interleaved, ..Options::new(domain) };
    Ok(UnpartitionedTree::create(storage, NAME, &options)?)
}
