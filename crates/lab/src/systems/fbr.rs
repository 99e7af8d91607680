//! The FBR-tree by itself: an R-tree in a mapped file, grown entry by entry.

use std::path::Path;

use anyhow::{Context, Result};
use tempfile::TempDir;
use terrane_pmtree::fbr::{FbrTree, LeafForm, Options, SearchMode};
use terrane_pmtree::{PersistenceDomain, Rect};
use terrane_storage::RealStorage;

use crate::system::{Reader, Role, System, Visitor};
use crate::workload::{Location, Points, Window};

/// The place for a pool if the folder to measure lies on a file system that cannot keep it, as in
/// containers.
const IN_MEMORY: &str = "/dev/shm";

/// The tree of two dimensions with its default settings, except the form of its leaves.
#[derive(Clone, Copy, Debug)]
pub struct Fbr {
    /// How valid entries of a leaf are marked.
    pub leaves: LeafForm,
}

impl System for Fbr {
    fn name(&self) -> &'static str {
        match self.leaves {
            LeafForm::Bitmap => "fbr-tree",
            LeafForm::SelfValidating => "fbr-tree-self-validating",
        }
    }

    fn settings(&self) -> &'static str {
        match self.leaves {
            LeafForm::Bitmap => {
                "in a file on the page cache: each entry survives SIGKILL when it is inserted; validated search without locks"
            }
            LeafForm::SelfValidating => "the same with leaves whose entries validate themselves",
        }
    }

    fn roles(&self) -> &'static [Role] {
        &[Role::Grown]
    }

    fn build(&self, parts: &[Points], dir: &Path) -> Result<Box<dyn Reader>> {
        let created = create(dir, self.leaves).map(|tree| (tree, None));
        let (tree, folder) = created.or_else(|error| {
            let folder = TempDir::new_in(IN_MEMORY).with_context(|| error.to_string())?;
            anyhow::Ok((create(folder.path(), self.leaves)?, Some(folder)))
        })?;
        for record in parts.iter().flat_map(Points::records) {
            tree.insert(&Rect::point([record.location.x, record.location.y])?, record.id as u64)?;
        }
        Ok(Box::new(Tree { tree, _folder: folder }))
    }
}

fn create(dir: &Path, leaves: LeafForm) -> terrane_pmtree::Result<FbrTree<2>> {
    let options = Options { leaves, ..Options::new(PersistenceDomain::PageCache) };
    FbrTree::create(&RealStorage::new(dir), "tree", &options)
}

struct Tree {
    tree: FbrTree<2>,
    /// Holds the pool if it is not in the given folder.
    _folder: Option<TempDir>,
}

impl Reader for Tree {
    fn window(&self, window: &Window, visit: &mut Visitor<'_>) -> Result<()> {
        let window = Rect::new([window.x0, window.y0], [window.x1, window.y1])?;
        Ok(self.tree.window(&window, SearchMode::Validated, |_, payload| visit(payload as i64))?)
    }

    fn nearest(&self, from: Location, k: usize, visit: &mut Visitor<'_>) -> Result<()> {
        for (_, _, payload) in self.tree.nearest(&[from.x, from.y], k, SearchMode::Validated, |_, _| true)? {
            visit(payload as i64);
        }
        Ok(())
    }

    fn footprint(&self) -> Result<Vec<(String, u64)>> {
        Ok(vec![("pool".into(), self.tree.pool().length())])
    }
}
