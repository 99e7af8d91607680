//! geo-index: a packed Hilbert R-tree in one buffer, immutable once built.

use std::path::Path;

use anyhow::{Context, Result};
use geo_index::rtree::sort::HilbertSort;
use geo_index::rtree::{NeighborsOptions, RTree, RTreeBuilder, RTreeIndex};

use crate::system::{Reader, Role, SPATIAL_INDEX, System, Visitor};
use crate::workload::{Location, Points, Window};

/// The packed tree with its default node size, points as empty boxes.
pub struct GeoIndex;

impl System for GeoIndex {
    fn name(&self) -> &'static str {
        "geo-index"
    }

    fn settings(&self) -> &'static str {
        "Hilbert sort, node size 16, float64 boxes, in memory"
    }

    fn roles(&self) -> &'static [Role] {
        &[Role::Build, Role::Queries, Role::FiveComponents]
    }

    fn build(&self, parts: &[Points], _dir: &Path) -> Result<Box<dyn Reader>> {
        let trees = parts.iter().map(Tree::new).collect::<Result<_>>()?;
        Ok(Box::new(Trees { trees }))
    }
}

struct Tree {
    tree: RTree<f64>,
    /// The ids of its items, if they differ from the items' numbers. Otherwise no look-up is
    /// needed.
    ids: Option<Vec<i64>>,
}

impl Tree {
    fn new(points: &Points) -> Result<Self> {
        let count = u32::try_from(points.len()).context("geo-index holds fewer than 2^32 items")?;
        let mut builder = RTreeBuilder::<f64>::new(count);
        for record in points.records() {
            let Location { x, y } = record.location;
            builder.add(x, y, x, y);
        }
        let are_numbers = points.id.iter().zip(0..).all(|(&id, number)| id == number);
        Ok(Self { tree: builder.finish::<HilbertSort>(), ids: (!are_numbers).then(|| points.id.clone()) })
    }

    #[inline]
    fn id(&self, item: u32) -> i64 {
        self.ids.as_ref().map_or_else(|| item.into(), |ids| ids[item as usize])
    }
}

struct Trees {
    trees: Vec<Tree>,
}

impl Reader for Trees {
    fn window(&self, window: &Window, visit: &mut Visitor<'_>) -> Result<()> {
        for part in &self.trees {
            for item in part.tree.search(window.x0, window.y0, window.x1, window.y1) {
                visit(part.id(item));
            }
        }
        Ok(())
    }

    fn nearest(&self, from: Location, k: usize, visit: &mut Visitor<'_>) -> Result<()> {
        if let [part] = self.trees.as_slice() {
            for item in part.tree.neighbors(from.x, from.y, Some(k), None) {
                visit(part.id(item));
            }
            return Ok(());
        }
        let squared = |[x0, y0, x1, y1]: [f64; 4]| {
            let dx = (x0 - from.x).max(from.x - x1).max(0.0);
            let dy = (y0 - from.y).max(from.y - y1).max(0.0);
            dx * dx + dy * dy
        };
        let mut found = Vec::with_capacity(k * self.trees.len());
        for part in &self.trees {
            let neighbours = part
                .tree
                .neighbors_with_callbacks(NeighborsOptions::k(k), squared, |_, corners| Some(squared(corners)));
            found.extend(neighbours.into_iter().map(|(item, distance)| (distance, part.id(item))));
        }
        found.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        found.into_iter().take(k).for_each(|(_, id)| visit(id));
        Ok(())
    }

    fn footprint(&self) -> Result<Vec<(String, u64)>> {
        let buffers: usize = self.trees.iter().map(|part| part.tree.as_ref().len()).sum();
        Ok(vec![(SPATIAL_INDEX.into(), buffers as u64)])
    }
}
