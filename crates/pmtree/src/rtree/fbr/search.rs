//! Search without locks (Algorithm 3), made exact.
//!
//! What is promised of [`SearchMode::Validated`]: each leaf is read as it was at one instant; an
//! entry that was there during the whole search is found exactly once; one that was not there at
//! any time of it is not found; what is found stays found after a crash. It is not promised that
//! leaves are seen at the same instant: of two entries inserted one after the other, the second one
//! alone may be found. Exact look-ups are linearizable: that there is no such entry is said only if
//! there was none at one instant ([`FbrTree::find`]).
//!
//! How: a node is read between two looks at its sequence number, at its log word and at the log
//! entry that changes it, and again if one of them differs. What is below a node counts if that
//! node has not changed when all its children have been read, and if no two of them were read on
//! different sides of a commitment that ties them: else it is thrown away, and the node is read
//! again. Writers change the sequence number of the parent after they have linked, unlinked or
//! moved something below it, and before the log entry goes, whether a box has changed or not; so
//! who reads one child before such a change and another one after it meets the committed log entry
//! at the second one (`Siblings::note`), or finds another number. What becomes later of a log entry
//! that was met at a child needs no look: while it is committed it says the same of both children,
//! and when it goes, the number has changed. They change the number before the log entry counts,
//! too, where a box has grown for what moves; so who passed the smaller box by reads the parent
//! again. And they change it before a box shrinks whose entries another node has now; so who finds
//! the smaller box and does not know that node reads the parent again. The root word has no number:
//! it can name a node, another one and the first one again, when a root is split and what became of
//! it is merged. So the root's own number is looked at once more, after the word; what comes to it
//! from another node changes it. A bitmap that may not be durable is made durable before what it
//! says is used. Nodes that are unlinked stay as they are while a reader is on its way.
//!
//! Writers that change a node more often than a search can read what is below it would keep the
//! search from ending, and what is retired meanwhile from being used anew. So where a node was read
//! [`ROUNDS_MAX`] times in vain, the search begins anew with shared locks, which keep the same
//! promise: what is below a locked node stays, but for what comes to leaves and goes from them, and
//! an operation holds a node's lock until what it does there is durable. A look-up of one entry has
//! to know the numbers of what it reads, and goes on without locks but for that of the root, which
//! insertions wait for. Then only deletions can overtake it, and each one leaves less to delete.

mod nearest;

use smallvec::SmallVec;
use terrane_pmem::{Backend, LINE_LENGTH, Site};

use super::layout::Metadata;
use super::log::{Engagement, Kind, Progress, Role};
use super::node::Node;
use super::tree::FbrTree;
use crate::blocks;
use crate::rtree::search::{Children, Exact, Extent, Path, Sought, Target, Window};
use crate::{Rect, Result};

/// Bytes of a node that are asked for while its parent is read; the CPU goes on by itself once they
/// are.
const PREFETCHED: u64 = 8 * LINE_LENGTH;

/// Times that a search reads a node, and what is below it, in vain before it takes locks.
const ROUNDS_MAX: u32 = 8;

const PERSIST: Site = Site::new("fbr.search.persist");

/// How a search is kept apart from writers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SearchMode {
    /// Without locks; what was read is checked to have been there (serializable mode of the thesis,
    /// with the promise above). Only a search that writers have overtaken again and again takes
    /// shared locks at last, so that it ends.
    #[default]
    Validated,
    /// Without locks and checks: may miss or repeat what moves meanwhile, find what a crash then
    /// takes away, and give the box of one entry with the payload of another that took its place
    /// while it was read.
    ReadUncommitted,
    /// With shared locks on the nodes from the root down: what the other modes are compared with.
    SharedLock,
}

/// A node's entries as of one instant.
pub(super) struct Reading<'a, const D: usize, B: Backend + 'a> {
    node: Node<'a, D, B>,
    sequence: u64,
    log_word: u64,
    engagement: Option<Engagement>,
    pub(super) metadata: Metadata,
    /// The new half of a node whose split is committed.
    sibling: Option<u64>,
    /// The node with which it exchanges entries by a log entry that is committed.
    partner: Option<u64>,
}

impl<const D: usize, B: Backend> Reading<'_, D, B> {
    /// Whether one of the entries is this child, as long as the node has not changed.
    fn links(&self, child: u64) -> bool {
        self.node.slot_of(&self.metadata, child).is_some()
    }
}

/// Something that was read has changed: what lies below the node where this is caught is read
/// again.
struct Changed;

/// It has changed so often that the search has to begin anew with locks.
struct Overtaken;

/// Why what lies below a node was not read.
enum Vain {
    Changed,
    Overtaken,
}

impl From<Changed> for Vain {
    fn from(_: Changed) -> Self {
        Self::Changed
    }
}

/// What came of reading below a node.
type Outcome<V = Changed> = Result<std::result::Result<(), V>>;

/// A node as it was read with all that lies below it.
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

/// How a search goes down.
struct Descent {
    path: Path,
    /// Whether insertions wait for it.
    has_lock: bool,
}

impl Descent {
    /// Whether a node that was read in vain this often is left to a search that keeps writers out.
    fn gives_up(&self, rounds: u32) -> bool {
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
    /// Takes note of a log entry that changes a child of a node, or of the root word. The child is
    /// the last one that was begun. Fails if what was read of the children before does not go with
    /// it.
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
    /// Calls `visit` with each entry that overlaps a window, borders included, in no order.
    ///
    /// They are gathered before the first call, which so may use the tree; 8 bytes and the box for
    /// each.
    pub fn window(&self, window: &Rect<D>, mode: SearchMode, mut visit: impl FnMut(&Rect<D>, u64)) -> Result<()> {
        let mut target = Window::new(window);
        self.search(&mut target, mode)?;
        target.into_hits().iter().for_each(|(rect, payload)| visit(rect, *payload));
        Ok(())
    }

    /// Whether there is an entry with exactly this box and payload, as [`FbrTree::delete`] compares
    /// them.
    pub fn contains(&self, rect: &Rect<D>, payload: u64) -> Result<bool> {
        Ok(self.find(rect, payload)?.is_some())
    }

    /// The nodes on the way to an entry with exactly this box and payload.
    ///
    /// Leaves are not read at one instant: of two such entries, one may come into a leaf that was
    /// read before, and then the other one go from a leaf that is read after. So what was not found
    /// is sought once more, until the same nodes were read twice with the same numbers. Between the
    /// two times there was no such entry: none in a leaf that was read, as the number changes
    /// before a deletion clears a bit, and what came and stayed is found the second time; and none
    /// elsewhere, as a box has grown before an entry counts, and the parent's number changes before
    /// it shrinks. Each new attempt means that another operation has come further; where that
    /// happens too often, insertions wait.
    pub(super) fn find(&self, rect: &Rect<D>, payload: u64) -> Result<Option<Path>> {
        let _pinned = self.pool.pin();
        let (mut lock, mut rounds, mut before) = (None, 0, None);
        loop {
            let mut descent = Descent { path: Path::new(), has_lock: lock.is_some() };
            let mut target = Exact::new(rect, payload);
            let is_overtaken = self.search_validated(&mut target, &mut descent)?.is_err();
            rounds += 1;
            let gives_up = is_overtaken || descent.gives_up(rounds);
            let Exact { path, visits, .. } = target;
            if !is_overtaken {
                if path.is_some() {
                    return Ok(path);
                }
                if before.as_ref() == Some(&visits) {
                    return Ok(None);
                }
                before = Some(visits);
            }
            if gives_up {
                lock = Some(self.lock_root_shared()?);
            }
        }
    }

    fn search(&self, target: &mut impl Target<D, Visit>, mode: SearchMode) -> Result<()> {
        let _pinned = self.pool.pin();
        let mut outcome = match mode {
            SearchMode::Validated => Err(Changed),
            SearchMode::ReadUncommitted => self.search_unvalidated(&self.root()?, false, target, &mut 0)?,
            SearchMode::SharedLock => self.search_locked(target)?,
        };
        while outcome.is_err() {
            target.truncate(Extent::default());
            if self.search_validated(target, &mut Descent { path: Path::new(), has_lock: false })?.is_ok() {
                return Ok(());
            }
            target.truncate(Extent::default());
            outcome = self.search_locked(target)?;
        }
        Ok(())
    }

    fn search_validated(&self, target: &mut impl Target<D, Visit>, descent: &mut Descent) -> Outcome<Overtaken> {
        let mut rounds = 0;
        loop {
            let root = self.root()?;
            let numbers = root.numbers();
            let mut siblings = Siblings::default();
            siblings.children.push(root.offset);
            let outcome = self.search_children(&mut siblings, None, target, descent)?;
            if let Err(Vain::Overtaken) = outcome {
                return Ok(Err(Overtaken));
            }
            // In this order: what came to the root since it was read did so before it was the root
            // again.
            let is_root = self.backend().load(self.root_word()) == root.offset;
            if outcome.is_ok() && is_root && root.numbers() == numbers {
                return Ok(Ok(()));
            }
            rounds += 1;
            if descent.gives_up(rounds) {
                return Ok(Err(Overtaken));
            }
            target.truncate(Extent::default());
        }
    }

    /// Reads what is below some children of a node; of the root word, if none is given.
    ///
    /// While the node has not changed, no node is below two of its children, or below one at two
    /// times: none moves but by a change of its parent's parent, and none that was unlinked is used
    /// anew, since the search is pinned.
    fn search_children(
        &self,
        siblings: &mut Siblings,
        parent: Option<&Reading<'_, D, B>>,
        target: &mut impl Target<D, Visit>,
        descent: &mut Descent,
    ) -> Outcome<Vain> {
        let visited_before = target.extent().visited;
        while let Some(child) = siblings.children.next() {
            let child = match parent {
                Some(parent) => self.child(parent.node.level(), child)?,
                None => self.root_at(child)?,
            };
            descent.path.push(child.offset);
            let Ok(reading) = self.search_node(&child, target, descent)? else { return Ok(Err(Vain::Overtaken)) };
            descent.path.pop();
            if let Err(changed) = siblings.note(parent, &reading) {
                return Ok(Err(changed.into()));
            }
            if target.is_satisfied() {
                break;
            }
            if let Some(parent) = parent
                && child.level() > 0
                && !self.is_current(parent)
            {
                // The others would be read in vain.
                return Ok(Err(Vain::Changed));
            }
            if let Some(parent) = parent
                && self.are_too_many(target.extent().visited - visited_before)
            {
                return if self.is_current(parent) {
                    Err(blocks::too_many(&self.pool, parent.node.offset))
                } else {
                    Ok(Err(Vain::Changed))
                };
            }
        }
        Ok(Ok(()))
    }

    pub(super) fn are_too_many(&self, nodes: usize) -> bool {
        blocks::are_too_many(&self.pool, nodes as u64, self.layout.node_length())
    }

    /// Reads a node and what is below it, until it has not changed meanwhile; how it was read then.
    fn search_node<'t>(
        &'t self,
        node: &Node<'t, D, B>,
        target: &mut impl Target<D, Visit>,
        descent: &mut Descent,
    ) -> Result<std::result::Result<Reading<'t, D, B>, Overtaken>> {
        let extent = target.extent();
        let mut rounds = 0;
        loop {
            let reading = self.read(node)?;
            let is_whole = if node.level() == 0 {
                self.scan_leaf(node, &reading.metadata, target, &descent.path);
                self.is_current(&reading)
            } else {
                let mut siblings = Siblings::default();
                for slot in reading.metadata.slots() {
                    if target.enters(&node.rect(slot)) {
                        let child = node.target(slot);
                        self.backend().prefetch(child, PREFETCHED);
                        siblings.children.push(child);
                    }
                }
                // What is below something that has changed already would be read in vain.
                self.is_current(&reading)
                    && match self.search_children(&mut siblings, Some(&reading), target, descent)? {
                        Ok(()) => self.is_current(&reading),
                        Err(Vain::Changed) => false,
                        Err(Vain::Overtaken) => return Ok(Err(Overtaken)),
                    }
            };
            if is_whole {
                target.visited(|| Visit::of(&reading));
                return Ok(Ok(reading));
            }
            rounds += 1;
            if descent.gives_up(rounds) {
                return Ok(Err(Overtaken));
            }
            target.truncate(extent);
        }
    }

    fn scan_leaf(&self, leaf: &Node<'_, D, B>, metadata: &Metadata, target: &mut impl Sought<D>, path: &Path) {
        for slot in metadata.slots() {
            let rect = leaf.rect(slot);
            if target.meets(&rect) {
                target.found(path, rect, leaf.target(slot));
            }
        }
    }

    /// Which entries a node has, by its own bitmap or by the log's.
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
            // What another session has left dirty is as durable as it ever will be.
            if reading.metadata.is_dirty() && self.is_of_session(log_word) {
                self.flush_header(node, PERSIST);
                self.backend().fence(PERSIST);
            }
            return Ok(reading);
        }
    }

    /// Whether a node still is what was read of it, but for entries that came since.
    pub(super) fn is_current(&self, reading: &Reading<'_, D, B>) -> bool {
        reading.node.numbers() == (reading.sequence, reading.log_word)
            && reading.engagement.as_ref().is_none_or(|engagement| self.is_unchanged(engagement))
    }

    /// Reads what is below the root word, with locks.
    fn search_locked(&self, target: &mut impl Sought<D>) -> Outcome {
        let (root, _lock) = self.lock_root_shared()?;
        let outcome = self.search_unvalidated(&root, true, target, &mut 0)?;
        // What it has not completed, it has left in nodes that are free to be locked.
        self.check_no_change_failed()?;
        Ok(outcome)
    }

    /// The root, locked for who reads it: while it is, another node does not become the root, and
    /// no insertion begins.
    fn lock_root_shared(&self) -> Result<(Node<'_, D, B>, impl Sized + use<'_, D, B>)> {
        let _root_lock = self.locks.root.read();
        let root = self.root()?;
        let lock = self.lock_shared(&root)?;
        Ok((root, lock))
    }

    /// Reads a node and what is below it as it comes. With the lock of the node held, and then of
    /// each one below while it is read, writers wait before they change what is below it. Fails
    /// where so many nodes are read that the tree has changed meanwhile, or is damaged: which of
    /// both, a search that validates what it reads will tell.
    fn search_unvalidated(
        &self,
        node: &Node<'_, D, B>,
        is_locked: bool,
        target: &mut impl Sought<D>,
        nodes: &mut usize,
    ) -> Outcome {
        *nodes += 1;
        if self.are_too_many(*nodes) {
            return Ok(Err(Changed));
        }
        let metadata = self.metadata(node);
        self.check_metadata(node, &metadata)?;
        if node.level() == 0 {
            self.scan_leaf(node, &metadata, target, &Path::new());
            return Ok(Ok(()));
        }
        for slot in metadata.slots() {
            if !target.enters(&node.rect(slot)) {
                continue;
            }
            let child = self.child(node.level(), node.target(slot))?;
            let _lock = is_locked.then(|| self.lock_shared(&child)).transpose()?;
            if let Err(changed) = self.search_unvalidated(&child, is_locked, target, nodes)? {
                return Ok(Err(changed));
            }
        }
        Ok(Ok(()))
    }
}
