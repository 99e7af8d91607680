//! What a pool holds, found out without a change.

use terrane_pmem::{Backend, Pool, ROOT};

use super::layout::Layout;
use super::log::{self, Change, ENTRIES, Kind, Log, Progress, Role};
use super::{DIMENSIONS, FAN_OUT, LEAVES, LOG_START, LeafForm, SHORT_MARKS};
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
    let damaged = |word: u64, reason: String| damaged(pool, block + word, reason);
    let form =
        [LeafForm::Bitmap, LeafForm::SelfValidating].into_iter().find(|form| form.code() == leaves & !SHORT_MARKS);
    let form = form.filter(|form| *form == LeafForm::Bitmap || Layout::<D>::ENTRIES_VALIDATE);
    let form = form.ok_or_else(|| damaged(LEAVES, format!("leaves are said to be of the form {leaves}")))?;
    let layout = usize::try_from(fan_out).ok().and_then(|fan_out| Layout::new(fan_out, form));
    let layout = layout.ok_or_else(|| damaged(FAN_OUT, format!("nodes are said to have {fan_out} entries")))?;
    pool.check_range(block, LOG_START + Log::length(&layout))?;
    let mut is_changing = false;
    for index in 0..ENTRIES {
        is_changing |= check_change(pool, &layout, block, index)?;
    }
    Ok(Some(Look { block, layout, has_short_marks: leaves & SHORT_MARKS != 0, is_changing }))
}

/// Checks that what a log entry says can be completed or undone, as far as the entry tells; whether it says something.
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
    for role in Role::ALL.into_iter().filter(matters) {
        let node = change.node(role);
        if node != 0 {
            pool.check_range(node, layout.node_length())?;
            pool.check_block(node)?;
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

fn damaged<B: Backend>(pool: &Pool<B>, offset: u64, reason: String) -> Error {
    Error::Damaged { pool: pool.name().to_owned(), offset, reason }
}
