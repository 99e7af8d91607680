//! What a pool holds, found out without a change.

use terrane_pmem::{Backend, Pool, ROOT};

use super::layout::{DIMENSIONS, FAN_OUT, LEAVES, LOG_START, Layout, LeafForm, ROOT_WORD, SHORT_MARKS};
use super::log::{self, Change, ENTRIES, Kind, Log, Progress, Role};
use super::node::Node;
use super::tags;
use crate::blocks::{self, damaged};
use crate::{Error, Result};

/// What was found of a tree.
#[derive(Debug)]
pub(super) struct Look<const D: usize> {
    /// Offset of the tree's block.
    pub(super) block: u64,
    /// Of its nodes.
    pub(super) layout: Layout<D>,
    /// Whether its marks are numbered as those of trees that are made now.
    pub(super) has_short_marks: bool,
    /// Whether a crash has left something to complete or to undo.
    pub(super) is_changing: bool,
}

/// The tree, if there is one; an error, if there is another one or a damaged one.
pub(super) fn look<const D: usize, B: Backend>(pool: &Pool<B>) -> Result<Option<Look<D>>> {
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
    let form =
        [LeafForm::Bitmap, LeafForm::SelfValidating].into_iter().find(|form| form.code() == leaves & !SHORT_MARKS);
    let form = form.filter(|form| *form == LeafForm::Bitmap || Layout::<D>::ENTRIES_VALIDATE);
    let form = form.ok_or_else(|| no_shape(LEAVES, format!("leaves are said to be of the form {leaves}")))?;
    let layout = usize::try_from(fan_out).ok().and_then(|fan_out| Layout::new(fan_out, form));
    let layout = layout.ok_or_else(|| no_shape(FAN_OUT, format!("nodes are said to have {fan_out} entries")))?;
    blocks::check_own(pool, block, LOG_START + Log::length(&layout))?;
    blocks::check_own(pool, pool.backend().load(block + ROOT_WORD), layout.node_length())?;
    let mut is_changing = false;
    for index in 0..ENTRIES {
        is_changing |= check_change(pool, &layout, block, index)?;
    }
    if !is_changing {
        check_way_down(pool, &layout, block)?;
    }
    Ok(Some(Look { block, layout, has_short_marks: leaves & SHORT_MARKS != 0, is_changing }))
}

/// Checks that what a log entry says can be completed or undone, as far as the entry tells; whether
/// it says something.
fn check_change<const D: usize, B: Backend>(
    pool: &Pool<B>,
    layout: &Layout<D>,
    block: u64,
    index: usize,
) -> Result<bool> {
    let Some((change, engagement)) = log::read(pool, layout, block, index)? else { return Ok(false) };
    let progress = engagement.progress;
    // Of what was not committed, only new blocks matter.
    let matters = |role: &Role| progress != Progress::Announced || change.kind.acquired().contains(role);
    let freed = if progress == Progress::Announced { change.kind.acquired() } else { change.kind.released() };
    let is_freed = |role: &Role| freed.contains(role);
    for (number, role) in Role::ALL.into_iter().enumerate().filter(|(_, role)| matters(role)) {
        let node = change.node(role);
        if node != 0 {
            blocks::check_length(pool, node, layout.node_length())?;
            if node == block || is_freed(&role) && node == pool.backend().load(block + ROOT_WORD) {
                let reason = format!("a log entry says {:?} of what is none of its nodes", change.kind);
                return Err(damaged(pool, node, reason));
            }
            // It would be freed twice, or changed in two ways.
            if Role::ALL[..number].iter().any(|other| matters(other) && change.node(*other) == node) {
                return Err(damaged(pool, node, format!("a log entry says {:?} of one node twice", change.kind)));
            }
        } else if progress == Progress::Committed && is_required(&change, role) {
            let reason = format!("a log entry says {:?} of no node as {role:?}", change.kind);
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
        // Of a split, the root may have none: then there is a new root.
        (Kind::Split, Role::Parent | Role::NewSecond) => false,
        (Kind::Split, Role::NewFirst) => !has_parent,
        (Kind::Split, Role::Second) => true,
        (Kind::Merge | Kind::Redistribute, role) => matches!(role, Role::Parent | Role::Second),
        (Kind::CopySplit, role) => matches!(role, Role::Parent | Role::NewFirst | Role::NewSecond),
        (Kind::CopyMerge, role) => matches!(role, Role::Parent | Role::Second | Role::NewFirst),
    }
}

/// Checks, in a tree with nothing to complete, the nodes from the root to one leaf: that they are
/// blocks of their length, of levels that go down by one, and that the leaf has the form that the
/// tree says.
pub(super) fn check_way_down<const D: usize, B: Backend>(pool: &Pool<B>, layout: &Layout<D>, block: u64) -> Result<()> {
    let mut link = block + ROOT_WORD;
    let mut level = None;
    loop {
        let offset = pool.backend().load(link);
        blocks::check_own(pool, offset, layout.node_length())?;
        let node = Node::at(pool, layout, offset)?;
        match level {
            None => blocks::check_height(pool, offset, node.level())?,
            Some(level) if node.level() != level => {
                let reason = format!("a node of level {} is where one of level {level} should be", node.level());
                return Err(damaged(pool, offset, reason));
            }
            Some(_) => {}
        }
        let bitmap = node.bitmap();
        match node.level() {
            0 if tags::has_form(layout, &node) => return Ok(()),
            0 => return Err(damaged(pool, offset, "a leaf is not of the form that the tree is said to have")),
            _ => node.check_metadata(pool, &bitmap)?,
        }
        let first = bitmap.slots().next().ok_or_else(|| damaged(pool, offset, "an inner node has no children"))?;
        (link, level) = (node.link(first), Some(node.level() - 1));
    }
}
