//! Verification of a pool's tree before an opening. It changes nothing.

use terrane_pmem::{Backend, Pool, ROOT};

use super::layout::{DIMENSIONS, FAN_OUT, LEAVES, LOG_START, Layout, ROOT_WORD, SHORT_MARKS};
use super::log::{self, Change, ENTRIES, Kind, Log, Progress, Role};
use super::node::Node;
use super::tags;
use crate::blocks::{self, damaged};
use crate::rtree::LeafForm;
use crate::{Error, Result};

/// A verified tree.
#[derive(Debug)]
pub(super) struct Verified<const D: usize> {
    /// Offset of the tree's block.
    pub(super) block: u64,
    /// The layout of its nodes.
    pub(super) layout: Layout<D>,
    /// Whether its marks are numbered like those of new trees.
    pub(super) has_short_marks: bool,
    /// Whether a crash has left a change to complete or to undo.
    pub(super) is_changing: bool,
}

/// Verifies the tree, if there is one. It is an error if there is another structure or a damaged
/// tree.
pub(super) fn verify<const D: usize, B: Backend>(pool: &Pool<B>) -> Result<Option<Verified<D>>> {
    let block = pool.backend().load(ROOT);
    if block == 0 {
        return Ok(None);
    }
    pool.check_range(block, LOG_START)?;
    pool.check_block(block)?;
    let [dimensions, fan_out, leaves] = [DIMENSIONS, FAN_OUT, LEAVES].map(|word| pool.backend().load(block + word));
    if dimensions != D as u64 {
        let (found, expected) = (format!("{dimensions} dimensions"), format!("{D} dimensions"));
        return Err(Error::OtherShape { pool: pool.name().to_owned(), found, expected });
    }
    let no_shape = |word: u64, reason: String| damaged(pool, block + word, reason);
    let form = LeafForm::of_code(leaves & !SHORT_MARKS)
        .filter(|form| *form == LeafForm::Bitmap || Layout::<D>::ENTRIES_VALIDATE);
    let form = form.ok_or_else(|| no_shape(LEAVES, format!("the form of leaves {leaves} is unknown")))?;
    let layout = usize::try_from(fan_out).ok().and_then(|fan_out| Layout::new(fan_out, form));
    let layout = layout.ok_or_else(|| no_shape(FAN_OUT, format!("a fan-out of {fan_out} is impossible")))?;
    blocks::check_own(pool, block, LOG_START + Log::length(&layout))?;
    blocks::check_own(pool, pool.backend().load(block + ROOT_WORD), layout.node_length())?;
    let mut is_changing = false;
    for index in 0..ENTRIES {
        is_changing |= check_change(pool, &layout, block, index)?;
    }
    if !is_changing {
        check_one_path(pool, &layout, block)?;
    }
    Ok(Some(Verified { block, layout, has_short_marks: leaves & SHORT_MARKS != 0, is_changing }))
}

/// Checks that a log entry can be completed or undone, as far as the entry tells. Gives whether it
/// is in use.
fn check_change<const D: usize, B: Backend>(
    pool: &Pool<B>,
    layout: &Layout<D>,
    block: u64,
    index: usize,
) -> Result<bool> {
    let Some((change, engagement)) = log::read(pool, layout, block, index)? else { return Ok(false) };
    let progress = engagement.progress;
    // Of an uncommitted change, only new blocks matter.
    let matters = |role: &Role| progress != Progress::Announced || change.kind.acquired().contains(role);
    let freed = if progress == Progress::Announced { change.kind.acquired() } else { change.kind.released() };
    let is_freed = |role: &Role| freed.contains(role);
    for (number, role) in Role::ALL.into_iter().enumerate().filter(|(_, role)| matters(role)) {
        let node = change.node(role);
        if node != 0 {
            blocks::check_length(pool, node, layout.node_length())?;
            if node == block || is_freed(&role) && node == pool.backend().load(block + ROOT_WORD) {
                let reason = format!("a log entry of kind {:?} names a block that it cannot change", change.kind);
                return Err(damaged(pool, node, reason));
            }
            // It would be freed twice, or changed in two ways.
            if Role::ALL[..number].iter().any(|other| matters(other) && change.node(*other) == node) {
                return Err(damaged(pool, node, format!("a log entry of kind {:?} names one node twice", change.kind)));
            }
        } else if progress == Progress::Committed && is_required(&change, role) {
            let reason = format!("a log entry of kind {:?} names no node as {role:?}", change.kind);
            return Err(damaged(pool, log::offset(layout, block, index), reason));
        }
    }
    Ok(true)
}

/// Whether a change needs a node in a role.
fn is_required(change: &Change, role: Role) -> bool {
    let has_parent = change.node(Role::Parent) != 0;
    match (change.kind, role) {
        (_, Role::First) => true,
        // The split of a root has no parent, but a new root.
        (Kind::Split, Role::Parent | Role::NewSecond) => false,
        (Kind::Split, Role::NewFirst) => !has_parent,
        (Kind::Split, Role::Second) => true,
        (Kind::Merge | Kind::Redistribute, role) => matches!(role, Role::Parent | Role::Second),
        (Kind::CopySplit, role) => matches!(role, Role::Parent | Role::NewFirst | Role::NewSecond),
        (Kind::CopyMerge, role) => matches!(role, Role::Parent | Role::Second | Role::NewFirst),
    }
}

/// Checks the nodes from the root to one leaf, in a tree with nothing to complete. They must be
/// blocks of their length, levels must decrease by one, and the leaf must have the tree's form.
pub(super) fn check_one_path<const D: usize, B: Backend>(pool: &Pool<B>, layout: &Layout<D>, block: u64) -> Result<()> {
    let mut link = block + ROOT_WORD;
    let mut level = None;
    loop {
        let offset = pool.backend().load(link);
        blocks::check_own(pool, offset, layout.node_length())?;
        let node = Node::at(pool, layout, offset)?;
        match level {
            None => blocks::check_height(pool, offset, node.level())?,
            Some(level) if node.level() != level => {
                let reason = format!("a node has level {}, and level {level} is expected", node.level());
                return Err(damaged(pool, offset, reason));
            }
            Some(_) => {}
        }
        let bitmap = node.bitmap();
        match node.level() {
            0 if tags::has_form(layout, &node) => return Ok(()),
            0 => return Err(damaged(pool, offset, "a leaf does not have the tree's form")),
            _ => node.check_metadata(pool, &bitmap)?,
        }
        let first = bitmap.slots().next().ok_or_else(|| damaged(pool, offset, "an inner node has no children"))?;
        (link, level) = (node.link(first), Some(node.level() - 1));
    }
}
