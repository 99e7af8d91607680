//! Search without locks (Algorithm 3), made exact.
//!
//! # Promise of [`SearchMode::Validated`]
//! - Each leaf is read as it was at one instant.
//! - An entry that is in the tree during the whole search is found exactly once.
//! - An entry that is absent during the whole search is not found.
//! - An entry that was found survives a crash.
//!
//! Leaves need not be seen at the same instant: of two entries that are inserted one after the
//! other, only the second may be found. Exact look-ups are linearizable: an entry is reported as
//! absent only if it was absent at one instant ([`FbrTree::find`]).
//!
//! # Validation
//! A node is read between two checks of its sequence number, its log word and the log entry that
//! changes it. If one of them differs, it is read again. Its subtree counts under two conditions:
//! - the node has not changed when all its children have been read;
//! - no two children were read on different sides of a commitment that ties them.
//!
//! Otherwise the subtree is dropped, and the node is read again. Writers change the sequence number
//! of the parent:
//! - after they have linked, unlinked or moved something below it, and before the log entry is
//!   cleared, whether a box has changed or not. So if a reader reads one child before such a change
//!   and another one after it, it meets the committed log entry at the second one
//!   (`Siblings::note`), or finds another number. A log entry that was met at a child needs no
//!   later check. While it is committed, it says the same of both children; when it is cleared, the
//!   number has changed.
//! - before the log entry counts, if a box has grown for entries that move. So a reader that
//!   skipped the smaller box reads the parent again.
//! - before a box shrinks whose entries another node has now. So a reader that finds the smaller
//!   box and does not know that node reads the parent again.
//!
//! The root word has no number. It can name a node, then another one, then the first one again,
//! when a root is split and its parts are merged. So the root's own number is checked once more,
//! after the word: entries that come to it from another node change the number.
//!
//! A bitmap that may not be durable is made durable before its contents are used. Unlinked nodes
//! stay unchanged while a reader may be in them.
//!
//! # Progress
//! If writers change a node more often than a search can read its subtree, the search does not end,
//! and retired blocks cannot be reused. So after [`ROUNDS_MAX`] vain reads of a node, the search
//! begins anew with shared locks, with the same promise. The subtree of a locked node stays, except
//! that entries are inserted into leaves and deleted from them. An operation holds a node's lock
//! until its change there is durable.
//!
//! An exact look-up needs the numbers of the nodes that it reads. It continues without locks,
//! except that of the root, for which insertions wait. Then only deletions can overtake it, and
//! each of them leaves less to delete.

mod nearest;

use smallvec::SmallVec;
use terrane_pmem::{Backend, LINE_LENGTH, Site};

use super::layout::Metadata;
use super::log::{Engagement, Kind, Progress, Role};
use super::node::Node;
use super::tree::FbrTree;
use crate::blocks;
use crate::rtree::search::{Children, Exact, Extent, Path, SearchVisitor, ValidatedVisitor, Window};
use crate::{Rect, Result};

/// Bytes of a node to prefetch while its parent is read. The CPU continues by itself after these.
const PREFETCHED: u64 = 8 * LINE_LENGTH;

/// The most vain reads of a node and its subtree before a search takes locks.
const ROUNDS_MAX: u32 = 8;

const PERSIST: Site = Site::new("fbr.search.persist");

/// How a search is isolated from writers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SearchMode {
    /// Without locks, with validation (serializable mode of the thesis, with the promise above). If
    /// writers overtake a search again and again, it finally takes shared locks, so that it ends.
    #[default]
    Validated,
    /// Without locks and validation. It may miss or repeat entries that move meanwhile, and find
    /// entries that a crash then takes away. It may also give the box of one entry with the payload
    /// of another that replaced it meanwhile.
    ReadUncommitted,
    /// With shared locks on the nodes from the root down. The other modes are compared with this
    /// one.
    SharedLock,
}

/// A node's entries at one instant.
pub(super) struct Reading<'a, const D: usize, B: Backend + 'a> {
    node: Node<'a, D, B>,
    sequence: u64,
    log_word: u64,
    engagement: Option<Engagement>,
    pub(super) metadata: Metadata,
    /// The new half of a node whose split is committed.
    sibling: Option<u64>,
    /// The node with which it exchanges entries by a committed log entry.
    partner: Option<u64>,
}

impl<const D: usize, B: Backend> Reading<'_, D, B> {
    /// Whether one of the entries is this child, provided that the node has not changed.
    fn links(&self, child: u64) -> bool {
        self.node.slot_of(&self.metadata, child).is_some()
    }
}

/// Something that was read has changed. The subtree of the node where this is caught is read again.
struct Changed;

/// A node has changed so often that the search has to begin anew with locks.
struct Overtaken;

/// Why the subtree of a node was not read.
enum Failed {
    Changed,
    Overtaken,
}

impl From<Changed> for Failed {
    fn from(_: Changed) -> Self {
        Self::Changed
    }
}

/// The result of reading a subtree.
type Outcome<V = Changed> = Result<std::result::Result<(), V>>;

/// How a node was read with its subtree.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Visit {
    node: u64,
    sequence: u64,
    log_word: u64,
    is_committed: bool,
}

impl Visit {
    fn of<const D: usize, B: Backend>(reading: &Reading<'_, D, B>) -> Self {
        let engagement = reading.engagement.as_ref();
        let is_committed = engagement.is_some_and(|engagement| engagement.progress == Progress::Committed);
        let Reading { sequence, log_word, .. } = *reading;
        Self { node: reading.node.offset, sequence, log_word, is_committed }
    }
}

/// The state of a search on its way down.
struct Descent {
    path: Path,
    /// Whether insertions wait for it.
    has_lock: bool,
}

impl Descent {
    /// Whether a node with this many vain reads is left to a search that excludes writers.
    fn is_exhausted(&self, rounds: u32) -> bool {
        !self.has_lock && rounds == ROUNDS_MAX
    }
}

/// Children of a node, and the committed log entries that tie two of them.
#[derive(Default)]
struct Siblings {
    children: Children,
    ties: SmallVec<[Engagement; 2]>,
}

impl Siblings {
    /// Records a log entry that changes a child of a node, or of the root word. The child is the
    /// last one that was begun. Fails if the earlier children were read on the other side of its
    /// commitment.
    fn note<const D: usize, B: Backend>(
        &mut self,
        parent: Option<&Reading<'_, D, B>>,
        reading: &Reading<'_, D, B>,
    ) -> std::result::Result<(), Changed> {
        if let Some((tie, partner)) = reading.engagement.zip(reading.partner)
            && !self.ties.contains(&tie)
        {
            if self.children.begun_before().contains(&partner) {
                return Err(Changed);
            }
            self.ties.push(tie);
        }
        let is_linked = |sibling: &u64| parent.is_some_and(|parent| parent.links(*sibling));
        if let Some(sibling) = reading.sibling.filter(|sibling| !is_linked(sibling)) {
            self.children.push(sibling);
        }
        Ok(())
    }
}

impl<const D: usize, B: Backend> FbrTree<D, B> {
    /// Calls `visit` with each entry that overlaps a window, including its borders, in arbitrary
    /// order.
    ///
    /// The entries are collected before the first call, so `visit` may use the tree. Each takes 8
    /// bytes and the box.
    pub fn window(&self, window: &Rect<D>, mode: SearchMode, mut visit: impl FnMut(&Rect<D>, u64)) -> Result<()> {
        let mut visitor = Window::new(window);
        self.search(&mut visitor, mode)?;
        visitor.into_hits().iter().for_each(|(rect, payload)| visit(rect, *payload));
        Ok(())
    }

    /// Whether there is an entry with exactly this box and payload, compared as in
    /// [`FbrTree::delete`].
    pub fn contains(&self, rect: &Rect<D>, payload: u64) -> Result<bool> {
        Ok(self.find(rect, payload)?.is_some())
    }

    /// The nodes on the path to an entry with exactly this box and payload.
    ///
    /// Leaves are not read at one instant. Of two such entries, one may be inserted into a leaf
    /// that was already read, and then the other one deleted from a leaf that is read later. So a
    /// search without a result is repeated, until the same nodes were read twice with the same
    /// numbers. Then there was no such entry between the two searches.
    /// - In a leaf that was read: the number changes before a deletion clears a bit. An entry that
    ///   was inserted and stayed is found the second time.
    /// - Elsewhere: a box has grown before an entry counts. The parent's number changes before a
    ///   box shrinks.
    ///
    /// Each new attempt means that another operation has progressed. If that happens too often,
    /// insertions wait.
    pub(super) fn find(&self, rect: &Rect<D>, payload: u64) -> Result<Option<Path>> {
        let _pinned = self.pool.pin();
        let (mut lock, mut rounds, mut before) = (None, 0, None);
        loop {
            let mut descent = Descent { path: Path::new(), has_lock: lock.is_some() };
            let mut visitor = Exact::new(rect, payload);
            let is_overtaken = self.search_validated(&mut visitor, &mut descent)?.is_err();
            rounds += 1;
            let is_exhausted = is_overtaken || descent.is_exhausted(rounds);
            let Exact { path, visits, .. } = visitor;
            if !is_overtaken {
                if path.is_some() {
                    return Ok(path);
                }
                if before.as_ref() == Some(&visits) {
                    return Ok(None);
                }
                before = Some(visits);
            }
            if is_exhausted {
                lock = Some(self.lock_root_shared()?);
            }
        }
    }

    fn search(&self, visitor: &mut impl ValidatedVisitor<D, Visit>, mode: SearchMode) -> Result<()> {
        let _pinned = self.pool.pin();
        let mut outcome = match mode {
            SearchMode::Validated => Err(Changed),
            SearchMode::ReadUncommitted => self.search_unvalidated(&self.root()?, false, visitor, &mut 0)?,
            SearchMode::SharedLock => self.search_locked(visitor)?,
        };
        while outcome.is_err() {
            visitor.truncate(Extent::default());
            if self.search_validated(visitor, &mut Descent { path: Path::new(), has_lock: false })?.is_ok() {
                return Ok(());
            }
            visitor.truncate(Extent::default());
            outcome = self.search_locked(visitor)?;
        }
        Ok(())
    }

    fn search_validated(
        &self,
        visitor: &mut impl ValidatedVisitor<D, Visit>,
        descent: &mut Descent,
    ) -> Outcome<Overtaken> {
        let mut rounds = 0;
        loop {
            let root = self.root()?;
            let numbers = root.numbers();
            let mut siblings = Siblings::default();
            siblings.children.push(root.offset);
            let outcome = self.search_children(&mut siblings, None, visitor, descent)?;
            if let Err(Failed::Overtaken) = outcome {
                return Ok(Err(Overtaken));
            }
            // In this order: entries that came to the root since it was read did so before it
            // became the root again.
            let is_root = self.backend().load(self.root_word()) == root.offset;
            if outcome.is_ok() && is_root && root.numbers() == numbers {
                return Ok(Ok(()));
            }
            rounds += 1;
            if descent.is_exhausted(rounds) {
                return Ok(Err(Overtaken));
            }
            visitor.truncate(Extent::default());
        }
    }

    /// Reads the subtrees of some children of a node; of the root word, if no node is given.
    ///
    /// While the node has not changed, no node is in the subtree of two of its children, or in one
    /// of them at two times. A node moves only by a change of its parent's parent. An unlinked node
    /// is not reused, since the search is pinned.
    fn search_children(
        &self,
        siblings: &mut Siblings,
        parent: Option<&Reading<'_, D, B>>,
        visitor: &mut impl ValidatedVisitor<D, Visit>,
        descent: &mut Descent,
    ) -> Outcome<Failed> {
        let visited_before = visitor.extent().visited;
        while let Some(child) = siblings.children.next() {
            let child = match parent {
                Some(parent) => self.child(parent.node.level(), child)?,
                None => self.root_at(child)?,
            };
            descent.path.push(child.offset);
            let Ok(reading) = self.search_node(&child, visitor, descent)? else { return Ok(Err(Failed::Overtaken)) };
            descent.path.pop();
            if let Err(changed) = siblings.note(parent, &reading) {
                return Ok(Err(changed.into()));
            }
            if visitor.is_satisfied() {
                break;
            }
            if let Some(parent) = parent
                && child.level() > 0
                && !self.is_current(parent)
            {
                // The others would be read in vain.
                return Ok(Err(Failed::Changed));
            }
            if let Some(parent) = parent
                && self.are_too_many(visitor.extent().visited - visited_before)
            {
                return if self.is_current(parent) {
                    Err(blocks::too_many(&self.pool, parent.node.offset))
                } else {
                    Ok(Err(Failed::Changed))
                };
            }
        }
        Ok(Ok(()))
    }

    pub(super) fn are_too_many(&self, nodes: usize) -> bool {
        blocks::are_too_many(&self.pool, nodes as u64, self.layout.node_length())
    }

    /// Reads a node and its subtree, until it has not changed meanwhile. Gives how it was read
    /// then.
    fn search_node<'t>(
        &'t self,
        node: &Node<'t, D, B>,
        visitor: &mut impl ValidatedVisitor<D, Visit>,
        descent: &mut Descent,
    ) -> Result<std::result::Result<Reading<'t, D, B>, Overtaken>> {
        let extent = visitor.extent();
        let mut rounds = 0;
        loop {
            let reading = self.read(node)?;
            let is_whole = if node.level() == 0 {
                self.scan_leaf(node, &reading.metadata, visitor, &descent.path);
                self.is_current(&reading)
            } else {
                let mut siblings = Siblings::default();
                for slot in reading.metadata.slots() {
                    if visitor.enters(&node.rect(slot)) {
                        let child = node.target(slot);
                        self.backend().prefetch(child, PREFETCHED);
                        siblings.children.push(child);
                    }
                }
                // The subtree of a node that has changed already would be read in vain.
                self.is_current(&reading)
                    && match self.search_children(&mut siblings, Some(&reading), visitor, descent)? {
                        Ok(()) => self.is_current(&reading),
                        Err(Failed::Changed) => false,
                        Err(Failed::Overtaken) => return Ok(Err(Overtaken)),
                    }
            };
            if is_whole {
                visitor.visited(|| Visit::of(&reading));
                return Ok(Ok(reading));
            }
            rounds += 1;
            if descent.is_exhausted(rounds) {
                return Ok(Err(Overtaken));
            }
            visitor.truncate(extent);
        }
    }

    fn scan_leaf(&self, leaf: &Node<'_, D, B>, metadata: &Metadata, visitor: &mut impl SearchVisitor<D>, path: &Path) {
        for slot in metadata.slots() {
            let rect = leaf.rect(slot);
            if visitor.meets(&rect) {
                visitor.found(path, rect, leaf.target(slot));
            }
        }
    }

    /// The entries of a node, by its own bitmap or by the log's.
    pub(super) fn read<'a>(&self, node: &Node<'a, D, B>) -> Result<Reading<'a, D, B>> {
        loop {
            let (sequence, log_word) = node.numbers();
            let mut reading = Reading {
                node: *node,
                sequence,
                log_word,
                engagement: None,
                metadata: self.metadata(node),
                sibling: None,
                partner: None,
            };
            let mut is_of_others = false;
            if log_word != 0
                && let Some((change, engagement)) = self.engaged(log_word)?
            {
                reading.engagement = Some(engagement);
                let bitmap = change.bitmap_of(node.offset).copied();
                if engagement.progress == Progress::Committed {
                    is_of_others = bitmap.is_none();
                    reading.metadata = bitmap.unwrap_or(reading.metadata);
                    match change.kind {
                        Kind::Split => reading.sibling = Some(change.node(Role::Second)),
                        Kind::Merge | Kind::Redistribute => {
                            let is_partner = |&other: &u64| other != node.offset;
                            let both = [change.node(Role::First), change.node(Role::Second)];
                            reading.partner = both.into_iter().find(is_partner);
                        }
                        Kind::CopySplit | Kind::CopyMerge => {}
                    }
                }
            }
            if !self.is_current(&reading) {
                continue;
            }
            if is_of_others {
                return Err(self.damaged(node.offset, "a node names a log entry that changes others"));
            }
            self.check_metadata(node, &reading.metadata)?;
            // A dirty bitmap of another session is as durable as it ever will be.
            if reading.metadata.is_dirty() && self.is_of_session(log_word) {
                self.flush_header(node, PERSIST);
                self.backend().fence(PERSIST);
            }
            return Ok(reading);
        }
    }

    /// Whether a node is unchanged since it was read, apart from new entries.
    pub(super) fn is_current(&self, reading: &Reading<'_, D, B>) -> bool {
        reading.node.numbers() == (reading.sequence, reading.log_word)
            && reading.engagement.as_ref().is_none_or(|engagement| self.is_unchanged(engagement))
    }

    /// Reads the whole tree, with locks.
    fn search_locked(&self, visitor: &mut impl SearchVisitor<D>) -> Outcome {
        let (root, _lock) = self.lock_root_shared()?;
        let outcome = self.search_unvalidated(&root, true, visitor, &mut 0)?;
        // A failed change leaves its nodes unlocked and incomplete.
        self.check_no_change_failed()?;
        Ok(outcome)
    }

    /// The root, locked for reading. Meanwhile no other node becomes the root, and no insertion
    /// begins.
    fn lock_root_shared(&self) -> Result<(Node<'_, D, B>, impl Sized + use<'_, D, B>)> {
        let _root_lock = self.locks.root.read();
        let root = self.root()?;
        let lock = self.lock_shared(&root)?;
        Ok((root, lock))
    }

    /// Reads a node and its subtree without validation. If the lock of the node is held, and then
    /// of each one below while it is read, writers wait before they change the subtree. Fails if it
    /// reads too many nodes: the tree has changed meanwhile, or is damaged. A search with
    /// validation will tell which.
    fn search_unvalidated(
        &self,
        node: &Node<'_, D, B>,
        is_locked: bool,
        visitor: &mut impl SearchVisitor<D>,
        nodes: &mut usize,
    ) -> Outcome {
        *nodes += 1;
        if self.are_too_many(*nodes) {
            return Ok(Err(Changed));
        }
        let metadata = self.metadata(node);
        self.check_metadata(node, &metadata)?;
        if node.level() == 0 {
            self.scan_leaf(node, &metadata, visitor, &Path::new());
            return Ok(Ok(()));
        }
        for slot in metadata.slots() {
            if !visitor.enters(&node.rect(slot)) {
                continue;
            }
            let child = self.child(node.level(), node.target(slot))?;
            let _lock = is_locked.then(|| self.lock_shared(&child)).transpose()?;
            if let Err(changed) = self.search_unvalidated(&child, is_locked, visitor, nodes)? {
                return Ok(Err(changed));
            }
        }
        Ok(Ok(()))
    }
}
