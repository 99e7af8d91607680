//! rstar: an R*-tree of nodes on the heap, bulk-loaded or grown record by record.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{PoisonError, RwLock};

use anyhow::{Result, ensure};
use rstar::primitives::GeomWithData;
use rstar::{AABB, RTree};

use crate::system::{Reader, Role, System, Visitor, Writer};
use crate::workload::{Location, Points, Record, Window};

/// How the tree is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rstar {
    /// All points at once.
    BulkLoaded,
    /// One point after the other.
    Dynamic,
}

type Entry = GeomWithData<[f64; 2], i64>;

fn entry(record: &Record) -> Entry {
    GeomWithData::new([record.location.x, record.location.y], record.id)
}

impl System for Rstar {
    fn name(&self) -> &'static str {
        match self {
            Rstar::BulkLoaded => "rstar",
            Rstar::Dynamic => "rstar-dynamic",
        }
    }

    fn settings(&self) -> &'static str {
        match self {
            Rstar::BulkLoaded => "bulk-loaded, default parameters, in memory",
            Rstar::Dynamic => "inserted one by one, default parameters, in memory",
        }
    }

    fn roles(&self) -> &'static [Role] {
        match self {
            Rstar::BulkLoaded => &[Role::Build, Role::Queries, Role::Packed],
            Rstar::Dynamic => &[Role::Build, Role::Queries, Role::Grown, Role::UnsyncedWrites],
        }
    }

    fn build(&self, parts: &[Points], _dir: &Path) -> Result<Box<dyn Reader>> {
        let entries = parts.iter().flat_map(Points::records).map(|record| entry(&record));
        let tree = match self {
            Rstar::BulkLoaded => RTree::bulk_load(entries.collect()),
            Rstar::Dynamic => {
                let mut tree = RTree::new();
                entries.for_each(|entry| tree.insert(entry));
                tree
            }
        };
        Ok(Box::new(Tree(tree)))
    }

    fn open_writer(&self, _dir: &Path) -> Result<Box<dyn Writer>> {
        Ok(Box::new(Shared(RwLock::new(Tree(RTree::new())))))
    }
}

struct Tree(RTree<Entry>);

impl Reader for Tree {
    fn window(&self, window: &Window, visit: &mut Visitor<'_>) -> Result<()> {
        let envelope = AABB::from_corners([window.x0, window.y0], [window.x1, window.y1]);
        // The visitor never breaks off, so there is nothing to learn from the outcome.
        let _: ControlFlow<()> = self.0.locate_in_envelope_intersecting_int(envelope, |entry: &Entry| {
            visit(entry.data);
            ControlFlow::Continue(())
        });
        Ok(())
    }

    fn nearest(&self, from: Location, k: usize, visit: &mut Visitor<'_>) -> Result<()> {
        for entry in self.0.nearest_neighbor_iter([from.x, from.y]).take(k) {
            visit(entry.data);
        }
        Ok(())
    }

    fn footprint(&self) -> Result<Vec<(String, u64)>> {
        Ok(Vec::new())
    }
}

struct Shared(RwLock<Tree>);

impl Writer for Shared {
    fn insert(&self, record: &Record) -> Result<()> {
        let mut tree = self.0.write().unwrap_or_else(PoisonError::into_inner);
        tree.0.insert(entry(record));
        Ok(())
    }

    fn delete(&self, record: &Record) -> Result<()> {
        let mut tree = self.0.write().unwrap_or_else(PoisonError::into_inner);
        ensure!(tree.0.remove(&entry(record)).is_some(), "rstar: no record {}", record.id);
        Ok(())
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(Locked(self)))
    }
}

struct Locked<'a>(&'a Shared);

impl Locked<'_> {
    fn tree(&self) -> std::sync::RwLockReadGuard<'_, Tree> {
        self.0.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reader for Locked<'_> {
    fn window(&self, window: &Window, visit: &mut Visitor<'_>) -> Result<()> {
        self.tree().window(window, visit)
    }

    fn nearest(&self, from: Location, k: usize, visit: &mut Visitor<'_>) -> Result<()> {
        self.tree().nearest(from, k, visit)
    }

    fn footprint(&self) -> Result<Vec<(String, u64)>> {
        self.tree().footprint()
    }
}
