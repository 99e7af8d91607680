//! Creating, opening and closing trees.

use terrane_pmem::{Backend, Pool, ROOT, Site, View, WORD_LENGTH};
use terrane_storage::Storage;

use super::chain::{self, Chains, Replay, Shape};
use super::layout::{
    KEY_WORDS, LOG_COUNT, LOG_START, Layout, META, NODE_LENGTH, ROOT_WORD, SEGMENT_LENGTH, VALUE_WORDS, level,
};
use super::log::{self, Entries, Found};
use super::method::Method;
use super::options::Options;
use super::rebuild::{self, Linked};
use super::recover;
use super::tree::BTree;
use crate::blocks::damaged;
use crate::{Error, Result, blocks, creation};

const CREATE: Site = Site::new("btree.create");
const CREATE_ROOT: Site = Site::new("btree.create.root");
const CREATE_LINK: Site = Site::new("btree.create.link");

/// Words behind the log for a structure that is built upon the tree.
pub(crate) struct Extension<B: Backend> {
    /// Identifies the layout of pools that hold such a structure.
    pub(crate) layout_id: u64,
    /// Bytes. They are 0 in a new tree, except for the first word.
    pub(crate) length: u64,
    pub(crate) first_word: u64,
    /// Checks these words at an offset, before the file changes.
    pub(crate) verify: fn(&Pool<B>, u64) -> Result<()>,
}

/// A verified tree.
struct Verified<const K: usize, const V: usize> {
    block: u64,
    layout: Layout<K, V>,
    /// The number of logs and the length of their segments, if leaves are in logs.
    logs: Shape,
    /// What the logs say.
    replay: Option<Replay<K>>,
    /// The leaves, if the inner nodes are to be rebuilt from them.
    leaves: Option<Vec<Linked<K>>>,
    /// Whether a crash has left a change to complete or to undo.
    is_changing: bool,
}

impl<M: Method, const K: usize, const V: usize, B: Backend> BTree<M, K, V, B> {
    /// Creates a tree in a new pool under a free name.
    pub fn create(storage: &dyn Storage, name: &str, options: &Options) -> Result<Self> {
        Self::create_extended(storage, name, options, &Self::plain())
    }

    fn plain() -> Extension<B> {
        Extension { layout_id: M::LAYOUT_ID, length: 0, first_word: 0, verify: |_, _| Ok(()) }
    }

    /// Creates a tree with an extension.
    pub(crate) fn create_extended(
        storage: &dyn Storage,
        name: &str,
        options: &Options,
        extension: &Extension<B>,
    ) -> Result<Self> {
        let layout = Self::layout_of(options)?;
        let logs = Self::logs_of(&layout, options)?;
        let of_pool = creation::pool_options(extension.layout_id, &options.pool);
        let initialise = |pool: &Pool<B>| Self::initialise(pool, &layout, logs, extension);
        let (pool, block) = creation::create(storage, name, &of_pool, initialise)?;
        Self::of_new(pool, layout, block, extension, (logs, options))
    }

    /// Opens a tree. Completes or undoes changes that a crash has interrupted, in a time that does
    /// not depend on the tree's size. If inner nodes are in memory, it reads all leaves or logs.
    ///
    /// Returns an error, and leaves the file unchanged, if the pool holds something else, a tree of
    /// another shape, or a damaged tree. It checks:
    /// 1. The tree's block and the nodes on one path from the root to a leaf are blocks of the
    ///    length for this shape. Their levels decrease by one. If inner nodes are in memory, all
    ///    leaves are checked, or all records of logs. Logs of a closed tree end where they did.
    /// 2. The log can be completed or undone. That of a closed tree is empty.
    /// 3. If the root word names no tree, the pool has no blocks.
    /// 4. If operations are not durable, the tree was closed.
    pub fn open(storage: &dyn Storage, name: &str, options: &Options) -> Result<Self> {
        Self::open_extended(storage, name, options, &Self::plain())
    }

    /// Opens a tree with an extension.
    pub(crate) fn open_extended(
        storage: &dyn Storage,
        name: &str,
        options: &Options,
        extension: &Extension<B>,
    ) -> Result<Self> {
        let found = Pool::find(storage, name, &creation::pool_options(extension.layout_id, &options.pool))?;
        let Some(Verified { block, layout, logs, replay, mut leaves, is_changing }) =
            verify::<M, K, V, B>(found.pool(), found.was_closed(), extension, options)?
        else {
            // A crash came between the creation of the pool and that of the tree.
            let layout = Self::layout_of(options)?;
            let logs = Self::logs_of(&layout, options)?;
            let (pool, block) = creation::complete(found, |pool| Self::initialise(pool, &layout, logs, extension))?;
            return Self::of_new(pool, layout, block, extension, (logs, options));
        };
        if !M::IS_DURABLE && !found.was_closed() {
            return Err(Error::NotClosed { pool: found.pool().name().to_owned(), tree: M::NAME });
        }
        if is_changing {
            let rehearsed = found.rehearse()?;
            recover::recover(&rehearsed, &layout, block)?;
            // Recovery makes the same of the pool.
            leaves = check_nodes::<M, K, V, _>(&rehearsed, &layout, block, options)?;
        }
        let pool = found.take()?;
        recover::recover(&pool, &layout, block)?;
        let tree = Self::of_parts(pool, layout, block, extension, (logs, options));
        if let Some(replay) = replay {
            tree.restore(replay, options.recovery_threads)?;
        }
        if let Some(leaves) = leaves {
            tree.rebuild(leaves)?;
        }
        Ok(tree)
    }

    /// A new tree.
    fn of_new(
        pool: Pool<B>,
        layout: Layout<K, V>,
        block: u64,
        extension: &Extension<B>,
        (logs, options): (Shape, &Options),
    ) -> Result<Self> {
        let tree = Self::of_parts(pool, layout, block, extension, (logs, options));
        if M::IN_LOGS {
            tree.restore(Replay::of_empty_tree(logs.0), 1)?;
        }
        Ok(tree)
    }

    /// The tree in a pool, without what is in memory.
    fn of_parts(
        pool: Pool<B>,
        layout: Layout<K, V>,
        block: u64,
        extension: &Extension<B>,
        (logs, options): (Shape, &Options),
    ) -> Self {
        let heads = block + Entries::new(&layout, block).block_length();
        let chains = Chains::new::<K>(logs, heads, &options.logs);
        Self::new(pool, layout, block, extension.length, chains)
    }

    /// The logs of a new tree.
    fn logs_of(layout: &Layout<K, V>, options: &Options) -> Result<Shape> {
        if M::IN_LOGS { chain::shape(layout, &options.logs) } else { Ok((0, 0)) }
    }

    /// Makes everything durable, also on the page cache, and marks the pool as closed.
    pub fn close(self) -> Result<()> {
        // The next opening completes it, and would refuse a closed tree.
        self.check_not_failed()?;
        if M::IN_LOGS {
            self.chains.close(&self.pool);
        }
        Ok(self.pool.close()?)
    }

    fn layout_of(&Options { node_length, .. }: &Options) -> Result<Layout<K, V>> {
        let [key_length, value_length] = [K, V].map(|words| words as u64 * WORD_LENGTH);
        let error = Error::NodeLength { node_length, key_length, value_length };
        Layout::new(node_length, M::FORM).ok_or(error)
    }

    /// Puts an empty tree into a pool, with an empty leaf as the root, or with empty logs. The tree
    /// exists once the pool's root word is stored. Gives the offset of its block.
    fn initialise(pool: &Pool<B>, layout: &Layout<K, V>, logs: Shape, extension: &Extension<B>) -> Result<u64> {
        let (count, segment_length) = logs;
        let log_end = Entries::new(layout, 0).block_length() + chain::heads_length(count);
        let length = log_end + extension.length;
        pool.check_block_length(length.max(layout.node_length()).max(segment_length))?;
        let mut intent = pool.intent();
        let block = intent.acquire(length, ROOT)?;
        let root = match M::IN_LOGS {
            true => 0,
            false => intent.acquire(layout.node_length(), block + ROOT_WORD)?,
        };
        let backend = pool.backend();
        for offset in (block..block + length).step_by(WORD_LENGTH as usize) {
            backend.store(offset, 0);
        }
        backend.store(block + NODE_LENGTH, layout.node_length());
        backend.store(block + KEY_WORDS, K as u64);
        backend.store(block + VALUE_WORDS, V as u64);
        backend.store(block + LOG_COUNT, count);
        backend.store(block + SEGMENT_LENGTH, segment_length);
        backend.store(block + ROOT_WORD, root);
        if extension.length > 0 {
            backend.store(block + log_end, extension.first_word);
        }
        backend.flush(block..block + length, CREATE);
        if !M::IN_LOGS {
            let mut leaf = vec![0; layout.words];
            layout.fill_leaf(&mut leaf, 0, &[]);
            let header = &leaf[..layout.used_words(&leaf)];
            for (offset, &word) in (root..).step_by(WORD_LENGTH as usize).zip(header) {
                backend.store(offset, word);
            }
            backend.flush(root..root + header.len() as u64 * WORD_LENGTH, CREATE_ROOT);
        }
        backend.fence(CREATE);
        backend.store(ROOT, block);
        backend.persist(ROOT..ROOT + WORD_LENGTH, CREATE_LINK);
        intent.finish();
        Ok(block)
    }
}

/// Verifies the tree, if there is one. It is an error if there is another structure or a damaged
/// tree.
fn verify<M: Method, const K: usize, const V: usize, B: Backend>(
    pool: &Pool<B>,
    was_closed: bool,
    extension: &Extension<B>,
    options: &Options,
) -> Result<Option<Verified<K, V>>> {
    let block = pool.backend().load(ROOT);
    if block == 0 {
        return Ok(None);
    }
    pool.check_range(block, LOG_START)?;
    pool.check_block(block)?;
    let [node_length, keys, values] =
        [NODE_LENGTH, KEY_WORDS, VALUE_WORDS].map(|word| pool.backend().load(block + word));
    let shape = |keys: u64, values: u64| {
        let [keys, values] = [keys, values].map(|words| words.saturating_mul(WORD_LENGTH));
        format!("keys of {keys} and values of {values} bytes")
    };
    if (keys, values) != (K as u64, V as u64) {
        let (found, expected) = (shape(keys, values), shape(K as u64, V as u64));
        return Err(Error::OtherShape { pool: pool.name().to_owned(), found, expected });
    }
    let layout = Layout::<K, V>::new(node_length, M::FORM)
        .ok_or_else(|| damaged(pool, block, format!("nodes of {node_length} bytes are impossible")))?;
    let entries = Entries::new(&layout, block);
    let heads = block + entries.block_length();
    let logs = match M::IN_LOGS {
        false => (0, 0),
        true => chain::shape_of(pool, &layout, block)
            .ok_or_else(|| damaged(pool, block, "the number of logs or the length of segments is impossible"))?,
    };
    let log_end = entries.block_length() + chain::heads_length(logs.0);
    blocks::check_own(pool, block, log_end + extension.length)?;
    (extension.verify)(pool, block + log_end)?;
    if M::IN_LOGS {
        let noted = chain::prefetched(&options.logs);
        let replay = chain::replay(pool, &layout, logs, (heads, was_closed), (options.recovery_threads, noted))?;
        return Ok(Some(Verified { block, layout, logs, replay: Some(replay), leaves: None, is_changing: false }));
    }
    let mut is_changing = false;
    for index in 0..entries.count {
        is_changing |= !matches!(log::read(pool, &layout, block, index)?, Found::Free);
        if is_changing && was_closed {
            return Err(damaged(pool, entries.offset(index), "a closed tree has an entry of the log in use"));
        }
    }
    let leaves = match is_changing {
        true => None,
        false => check_nodes::<M, K, V, B>(pool, &layout, block, options)?,
    };
    Ok(Some(Verified { block, layout, logs, replay: None, leaves, is_changing }))
}

/// The number of words that the keys of a tree have, as its block says.
pub(crate) fn key_words<B: Backend>(pool: &Pool<B>, block: u64) -> Result<u64> {
    pool.check_range(block, LOG_START)?;
    let words = pool.backend().load(block + KEY_WORDS);
    match [1, 2, 4, 8].contains(&words) {
        true => Ok(words),
        false => Err(damaged(pool, block, format!("keys of {words} words are impossible"))),
    }
}

/// Checks the nodes that an opening relies on, in a tree with nothing to complete. Gives all leaves
/// if it relies on all of them.
fn check_nodes<M: Method, const K: usize, const V: usize, B: Backend>(
    pool: &Pool<B>,
    layout: &Layout<K, V>,
    block: u64,
    options: &Options,
) -> Result<Option<Vec<Linked<K>>>> {
    match M::INNER_IN_MEMORY {
        true => rebuild::walk(pool, layout, block, options.recovery_threads).map(Some),
        false => check_one_path(pool, layout, block).map(|()| None),
    }
}

/// Checks the nodes from the root to one leaf, in a tree with nothing to complete.
fn check_one_path<const K: usize, const V: usize, B: Backend>(
    pool: &Pool<B>,
    layout: &Layout<K, V>,
    block: u64,
) -> Result<()> {
    let mut node = pool.backend().load(block + ROOT_WORD);
    let mut expected = None;
    loop {
        blocks::check_own(pool, node, layout.node_length())?;
        let view = pool.backend().view(node, layout.node_length());
        layout.check(pool, node, view)?;
        let level = level(view.load(META));
        match expected {
            None => blocks::check_height(pool, node, level)?,
            Some(expected) if level != expected => {
                let reason = format!("a node has level {level}, and level {expected} is expected");
                return Err(damaged(pool, node, reason));
            }
            Some(_) => {}
        }
        if level == 0 {
            return Ok(());
        }
        expected = Some(level - 1);
        node = Layout::<K, V>::child_at(view, 0);
    }
}
