//! The R-trees in persistent memory by themselves, each in a mapped file and grown entry by entry.

use std::path::Path;

use anyhow::{Context, Result};
use tempfile::TempDir;
use terrane_pmtree::fbr::{self, FbrTree, LeafForm};
use terrane_pmtree::pear::{self, Budget, PearTree};
use terrane_pmtree::pmr::{self, PmrTree};
use terrane_pmtree::{NearestSearch, PersistenceDomain, Rect};
use terrane_storage::RealStorage;

use crate::system::{Reader, Role, System, Visitor};
use crate::workload::{Location, Points, Window};

/// The place for a pool if the folder to measure lies on a file system that cannot keep it, as in
/// containers.
const IN_MEMORY: &str = "/dev/shm";

const IN_POOL: Budget = Budget::Nodes(0);
const IN_MEMORY_AS_FAR_AS_POSSIBLE: Budget = Budget::Nodes(u64::MAX);

const DOMAIN: PersistenceDomain = PersistenceDomain::PageCache;

/// A tree of two dimensions with its default settings.
#[derive(Clone, Copy, Debug)]
pub enum PoolTree {
    /// The FBR-tree with a form of leaves.
    Fbr(LeafForm),
    /// The PM-RTREE with a form of leaves.
    Pmr(LeafForm),
    /// The PeaR-Tree, all of it in the pool or with all inner nodes in memory.
    Pear(Budget),
}

impl PoolTree {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 6] = [
        Self::Fbr(LeafForm::Bitmap),
        Self::Fbr(LeafForm::SelfValidating),
        Self::Pmr(LeafForm::Bitmap),
        Self::Pmr(LeafForm::SelfValidating),
        Self::Pear(IN_POOL),
        Self::Pear(IN_MEMORY_AS_FAR_AS_POSSIBLE),
    ];
}

impl System for PoolTree {
    fn name(&self) -> &'static str {
        match self {
            Self::Fbr(LeafForm::Bitmap) => "fbr-tree",
            Self::Fbr(LeafForm::SelfValidating) => "fbr-tree-self-validating",
            Self::Pmr(LeafForm::Bitmap) => "pmr-tree",
            Self::Pmr(LeafForm::SelfValidating) => "pmr-tree-self-validating",
            Self::Pear(IN_POOL) => "pear-tree",
            Self::Pear(_) => "pear-tree-in-memory",
        }
    }

    fn settings(&self) -> &'static str {
        match self {
            Self::Fbr(LeafForm::Bitmap) => {
                "in a file on the page cache: each entry survives SIGKILL when it is inserted; validated search without locks"
            }
            Self::Fbr(LeafForm::SelfValidating) | Self::Pmr(LeafForm::SelfValidating) => {
                "the same with leaves whose entries validate themselves"
            }
            Self::Pmr(LeafForm::Bitmap) => "leaves in a file on the page cache, inner nodes in memory; no locks",
            Self::Pear(IN_POOL) => "all nodes in a file on the page cache; search without locks",
            Self::Pear(_) => "the same with all inner nodes in memory",
        }
    }

    fn roles(&self) -> &'static [Role] {
        &[Role::Grown]
    }

    fn build(&self, parts: &[Points], dir: &Path) -> Result<Box<dyn Reader>> {
        let created = self.create(dir).map(|tree| (tree, None));
        let (tree, folder) = created.or_else(|error| {
            let folder = TempDir::new_in(IN_MEMORY).with_context(|| error.to_string())?;
            anyhow::Ok((self.create(folder.path())?, Some(folder)))
        })?;
        for record in parts.iter().flat_map(Points::records) {
            tree.tree().insert(&Rect::point([record.location.x, record.location.y])?, record.id as u64)?;
        }
        Ok(Box::new(Tree { tree, _folder: folder }))
    }
}

/// Its own type where a trait object would hide the visitor of windows.
enum Created {
    Fbr(Box<FbrTree<2>>),
    Pmr(Box<PmrTree<2>>),
    Pear(Box<PearTree<2>>),
}

impl PoolTree {
    fn create(self, dir: &Path) -> terrane_pmtree::Result<Created> {
        let storage = RealStorage::new(dir);
        match self {
            Self::Fbr(leaves) => {
                let options = fbr::Options { leaves, ..fbr::Options::new(DOMAIN) };
                FbrTree::create(&storage, "tree", &options).map(|tree| Created::Fbr(Box::new(tree)))
            }
            Self::Pmr(leaves) => {
                let options = pmr::Options { leaves, ..pmr::Options::new(DOMAIN) };
                PmrTree::create(&storage, "tree", &options).map(|tree| Created::Pmr(Box::new(tree)))
            }
            Self::Pear(budget) => {
                let options = pear::Options { budget, ..pear::Options::new(DOMAIN) };
                PearTree::create(&storage, "tree", &options).map(|tree| Created::Pear(Box::new(tree)))
            }
        }
    }
}

impl Created {
    fn tree(&self) -> &dyn NearestSearch<2, Backend = terrane_pmem::Native> {
        match self {
            Self::Fbr(tree) => &**tree,
            Self::Pmr(tree) => &**tree,
            Self::Pear(tree) => &**tree,
        }
    }
}

struct Tree {
    tree: Created,
    /// Holds the pool if it is not in the given folder.
    _folder: Option<TempDir>,
}

impl Reader for Tree {
    fn window(&self, window: &Window, visit: &mut Visitor<'_>) -> Result<()> {
        let window = Rect::new([window.x0, window.y0], [window.x1, window.y1])?;
        match &self.tree {
            Created::Fbr(tree) => {
                tree.window(&window, fbr::SearchMode::Validated, |_, payload| visit(payload as i64))?;
            }
            Created::Pmr(tree) => tree.window(&window, |_, payload| visit(payload as i64))?,
            Created::Pear(tree) => tree.window(&window, |_, payload| visit(payload as i64))?,
        }
        Ok(())
    }

    fn nearest(&self, from: Location, k: usize, visit: &mut Visitor<'_>) -> Result<()> {
        for (_, _, payload) in self.tree.tree().nearest(&[from.x, from.y], k, &|_, _| true)? {
            visit(payload as i64);
        }
        Ok(())
    }

    fn footprint(&self) -> Result<Vec<(String, u64)>> {
        let mut parts = vec![("pool".into(), self.tree.tree().pool().length())];
        match &self.tree {
            Created::Fbr(_) => {}
            Created::Pmr(tree) => parts.push(("memory".into(), tree.memory_bytes())),
            Created::Pear(tree) => parts.push(("memory".into(), tree.memory_bytes())),
        }
        Ok(parts)
    }
}
