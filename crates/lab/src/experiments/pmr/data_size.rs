//! Insertion, search, deletion and recovery against the number of entries (sections 2.2, 5.3 and
//! 5.8).

use std::time::Instant;

use anyhow::Result;
use serde_json::json;
use terrane_pmem::Native;
use terrane_pmtree::PersistenceDomain;
use terrane_pmtree::fbr::FbrTree;
use terrane_pmtree::pmr::PmrTree;
use terrane_storage::{RealStorage, Storage};

use super::data::{Data, DataSet};
use super::overall::measure;
use super::{Kind, NAME, Shape, create};
use crate::experiments::insertions::Tree;
use crate::experiments::{Setup, medians};
use crate::measure;
use crate::progress::progress;
use crate::report::{Emit, Table};

/// Numbers of entries, smallest first.
const SIZES: [u64; 7] = [5_000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000];

/// The trees whose growth is of interest.
const SHAPES: [Shape; 3] =
    [Shape::FBR, Shape { kind: Kind::Pmr, fan_out: 96 }, Shape { kind: Kind::Pmr, fan_out: 336 }];

/// The paper's FBR-tree at a number of entries (section 2.2): its lines for each insertion, and the
/// share that is flushed again.
const PAPER: [(u64, &str, f64); 2] = [(1_000_000, "insertion lines", 5.07), (5_000, "reflush share", 0.536)];

/// Measures growing numbers of Random boxes.
pub fn run(setup: &Setup, emit: &mut Emit<'_>) -> Result<()> {
    let most = setup.count(500_000, 5_000_000);
    for count in SIZES.into_iter().filter(|count| *count <= most) {
        let queries = setup.options.queries.unwrap_or(100);
        let Some(data) = DataSet::Random.load(count, queries, setup.options.seed)? else { continue };
        let mut table = measure(setup, "pmr/data-size", (DataSet::Random, &data), &SHAPES)?;
        table.note("open: wall time after a kill; the PM-RTREE reads all leaves, and the FBR-tree none");
        table.note("paper: its FBR-tree (section 2.2), which has a reflush share of 0.162 at 100 M entries");
        for (size, metric, value) in PAPER {
            let is_meant = |system: &str, of: &str| size == count && system == Shape::FBR.name() && of == metric;
            let figures = table.figures.iter_mut().filter(|figure| is_meant(&figure.system, figure.metric));
            figures.for_each(|figure| figure.paper(value));
        }
        add_openings(setup, &data, &mut table)?;
        emit(table)?;
    }
    Ok(())
}

/// Grows each tree, drops it as a kill does, and opens it again and again.
fn add_openings(setup: &Setup, data: &Data, table: &mut Table) -> Result<()> {
    for shape in SHAPES {
        progress(&format!("opening {}", shape.row()));
        let folder = setup.pool_folder()?;
        let storage = RealStorage::new(folder.path());
        let tree: Tree<Native> = create(&storage, &shape, PersistenceDomain::PageCache)?;
        for (payload, rect) in (0..).zip(&data.boxes) {
            tree.insert(rect, payload)?;
        }
        drop(tree);
        let times = measure::alternate(setup.rounds, &mut [shape], |shape| open_ns(&storage, shape))?;
        let params = json!({"fan_out": shape.fan_out, "count": data.boxes.len(), "seed": setup.options.seed});
        table.figure_in_row(&shape.row(), shape.name(), &params, "open", medians(times)?[0], "ns");
    }
    Ok(())
}

fn open_ns(storage: &dyn Storage, shape: &Shape) -> Result<f64> {
    let domain = PersistenceDomain::PageCache;
    let start = Instant::now();
    let tree: Tree<Native> = match shape.kind {
        Kind::Fbr => Box::new(FbrTree::open(storage, NAME, &shape.fbr_options(domain))?),
        _ => Box::new(PmrTree::open(storage, NAME, &shape.pmr_options(domain))?),
    };
    let spent = start.elapsed();
    drop(tree);
    Ok(spent.as_nanos() as f64)
}
