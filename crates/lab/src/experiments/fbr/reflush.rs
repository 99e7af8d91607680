//! Lines that are flushed again at once, against the number of insertions. A write-back that
//! invalidates the line makes these expensive.

use anyhow::Result;
use serde_json::json;
use terrane_pmem::{CPU_CACHE_LENGTH, Counters};
use terrane_pmtree::{PersistenceDomain, Rect};
use terrane_testkit::MemoryStorage;

use super::{Boxes, Counting, Kind, Tree, create};
use crate::experiments::Setup;
use crate::experiments::insertions::RandomBoxes;
use crate::progress::progress;
use crate::report::{Emit, Table};

/// Numbers of insertions at which the counts are read.
const CHECKPOINTS: [u64; 9] = [5_000, 10_000, 20_000, 50_000, 100_000, 500_000, 1_000_000, 10_000_000, 100_000_000];
const SINGLE_WORD: [usize; 1] = [55];

/// The figures of PM-RTREE for the FBR-tree with in-place changes (section 2.2, *Random* boxes).
fn paper_share(insertions: u64) -> Option<f64> {
    match insertions {
        5_000 => Some(0.536),
        100_000_000 => Some(0.162),
        _ => None,
    }
}

/// Grows a tree of each kind, and reads its counters on the way.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let count = setup.count(100_000, 1_000_000);
    let mut checkpoints: Vec<u64> = CHECKPOINTS.into_iter().filter(|&checkpoint| checkpoint < count).collect();
    checkpoints.push(count);
    for &fan_out in setup.fan_outs(&SINGLE_WORD) {
        let title = format!("Lines flushed again at a distance of at most 1, {fan_out} entries a node");
        let mut table = Table::new("fbr/reflush", title);
        table.note("of all flushes since the tree was empty; counted by a back-end, on no device");
        table.note("paper: PM-RTREE, section 2.2, on its Random boxes, in-place; the other boxes are small");
        let own = setup.shapes(fan_out).map(|shape| (shape, false));
        for (shape, is_random) in own.into_iter().chain([(setup.shape(Kind::InPlace, fan_out), true)]) {
            let name = if is_random { format!("{}, Random", shape.kind.name()) } else { shape.kind.name().to_owned() };
            progress(&format!("counting {count} insertions, {name}"));
            let tree: Tree<Counting> = create(&MemoryStorage::new(), &shape, PersistenceDomain::Adr)?;
            tree.pool().backend().reset(CPU_CACHE_LENGTH);
            let seed = setup.options.seed;
            let mut boxes: Box<dyn Iterator<Item = Rect<3>>> = match is_random {
                true => Box::new(RandomBoxes::new(seed)),
                false => Box::new(Boxes::new(seed)),
            };
            let (mut inserted, mut sum) = (0, Counters::default());
            for &checkpoint in &checkpoints {
                for (payload, rect) in (inserted..checkpoint).zip(&mut boxes) {
                    tree.insert(&rect, payload)?;
                }
                inserted = checkpoint;
                sum += tree.pool().backend().take();
                let row = format!("{name}, {checkpoint}");
                let params = json!({"fan_out": fan_out, "insertions": checkpoint, "split": shape.split_name(),
                                    "seed": seed});
                let share = sum.reflushes as f64 / sum.flushes as f64;
                let figure = table.figure_in_row(&row, &name, &params, "reflush share", share, "");
                if let (true, Some(paper)) = (is_random, paper_share(checkpoint)) {
                    figure.paper(paper);
                }
                let lines = sum.flushes as f64 / checkpoint as f64;
                table.figure_in_row(&row, &name, &params, "lines flushed", lines, "");
            }
        }
        emit(table)?;
    }
    Ok(())
}
