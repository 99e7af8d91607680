//! A persistent ordered map on an ordinary file: keys of one type, and values of up to 64 KiB.
//!
//! It is the B+-tree `persistent_unsorted` of [`crate::btree`]. A value of up to 15 bytes lies in
//! its slot, and a longer one in a block of its own. Decision 42 argues who owns such a block:
//! - T8: the entry that leads to a block owns it. A note in the tree's block owns what a change has
//!   not linked yet, or not freed yet.

mod key;
mod notes;
mod range;
mod tree;
mod value;

use std::marker::PhantomData;

use terrane_pmem::{Backend, LINE_LENGTH, Native, PersistenceDomain, Pool, ROOT, WORD_LENGTH};
use terrane_storage::Storage;
use terrane_storage::sync::{Mutex, MutexGuard};

use crate::blocks::{damaged, is_full};
use crate::btree::{self, Extension};
use crate::{Durability, Error, Result, creation};
pub use key::Key;
use key::KeyWords;
use notes::Notes;
pub use range::Range;
use tree::Tree;
use value::Slot;

/// The most bytes of a value.
pub const VALUE_LENGTH_MAX: usize = 1 << 16;

/// Identifies the layout of pools that hold a map.
const LAYOUT_ID: u64 = u64::from_le_bytes(*b"PMTRMAP1");

/// Bytes behind the tree's log: the kind of keys in a line, and the notes.
const EXTENSION_LENGTH: u64 = LINE_LENGTH + notes::ALL_LENGTH;

/// Bytes of a slot for texts and bytes by default.
const KEY_SLOT: u64 = 32;

/// Keys that are changed by one thread at a time, together.
const STRIPES: usize = 1 << (64 - STRIPE_SHIFT);
const STRIPE_SHIFT: u32 = 56;

/// A type of keys, as it is stored.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    U64,
    I64,
    Text,
    Bytes,
}

impl Kind {
    const ALL: [Self; 4] = [Self::U64, Self::I64, Self::Text, Self::Bytes];

    fn name(word: u64) -> &'static str {
        match Self::ALL.into_iter().find(|kind| kind.word() == word) {
            Some(Self::U64) => "unsigned integers",
            Some(Self::I64) => "signed integers",
            Some(Self::Text) => "texts",
            Some(Self::Bytes) => "bytes",
            None => "an unknown type",
        }
    }

    fn word(self) -> u64 {
        self as u64 + 1
    }

    fn is_integer(self) -> bool {
        matches!(self, Self::U64 | Self::I64)
    }
}

/// Options for creating or opening a map.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of a slot for a key that is a text or bytes: 8, 16, 32 or 64. Keys have up to one byte
    /// less. An existing map keeps its own.
    pub key_slot: u64,
    /// Bytes of a node of the tree, a multiple of 64 from 128 to 4096. When absent, nodes are long
    /// enough for ten entries or more. An existing map keeps its own.
    pub node_length: Option<u64>,
    /// The medium, and how the file grows. The layout is the map's own.
    pub pool: terrane_pmem::Options,
}

impl Options {
    /// An ordinary file, which survives kills, and slots of 32 bytes.
    pub fn new() -> Self {
        Self::on(PersistenceDomain::PageCache)
    }

    /// The same on any medium.
    pub fn on(domain: PersistenceDomain) -> Self {
        Self { key_slot: KEY_SLOT, node_length: None, pool: terrane_pmem::Options::new(LAYOUT_ID, domain) }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

/// Statistics of a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Census {
    /// Number of entries.
    pub entries: u64,
    /// Those whose values have blocks of their own.
    pub long_values: u64,
    /// Number of leaves.
    pub leaves: u64,
    /// Levels above the leaves.
    pub height: u64,
}

/// An ordered map in a file: from keys of type `Q` (`u64`, `i64`, `str` or `[u8]`) to values of up
/// to [`VALUE_LENGTH_MAX`] bytes.
///
/// When a change returns, it survives the end of the process, including SIGKILL, without a sync of
/// the file. A power loss makes the next opening refuse the file, unless the map was closed. On
/// persistent memory, changes survive a power loss too ([`Map::durability`]).
///
/// Operations on one key are durably linearizable: what one has seen stays. Any number of threads
/// share a map. Readers take no lock. Dropping it without [`Map::close`] has the effect of a kill.
///
/// ```
/// use terrane_pmtree::map::{Map, Options};
/// use terrane_storage::RealStorage;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let is_shared = std::path::Path::new("/dev/shm").exists();
/// # let directory = tempfile::tempdir_in(if is_shared { "/dev/shm" } else { "." })?;
/// let storage = RealStorage::new(directory.path());
/// let map: Map<str> = Map::create(&storage, "map", &Options::new())?;
/// map.upsert("berlin", b"52.5 13.4")?; // survives SIGKILL from here on
/// map.upsert("bonn", &[b'x'; 5000])?;
/// drop(map); // as SIGKILL does
/// let map: Map<str> = Map::open(&storage, "map", &Options::new())?;
/// assert_eq!(map.get("berlin")?.as_deref(), Some(&b"52.5 13.4"[..]));
/// for entry in map.range("b".."c")? {
///     let (key, value) = entry?;
///     println!("{key}: {} bytes", value.len());
/// }
/// map.remove("bonn")?;
/// map.close()?; // durable, also after a power loss
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Map<Q: Key + ?Sized, B: Backend = Native> {
    tree: Box<dyn Tree<B>>,
    notes: Notes,
    /// A key is changed by one thread at a time, which holds its lock.
    stripes: Box<[Mutex<()>]>,
    keys: PhantomData<fn(&Q)>,
}

impl<Q: Key + ?Sized, B: Backend + 'static> Map<Q, B> {
    /// Creates a map in a new file under a free name.
    pub fn create(storage: &dyn Storage, name: &str, options: &Options) -> Result<Self> {
        Self::make((storage, name), Self::key_words(options)?, options, true)
    }

    /// Opens a map. Completes or undoes the changes that a crash has interrupted, in a time that
    /// does not depend on the map's size.
    ///
    /// Returns an error, and leaves the file unchanged, if the file holds something else, a map of
    /// other keys, or a damaged one. It checks what [`BTree::open`](crate::btree::BTree::open)
    /// checks, and the notes about long values.
    pub fn open(storage: &dyn Storage, name: &str, options: &Options) -> Result<Self> {
        let found = Pool::<B>::find(storage, name, &creation::pool_options(LAYOUT_ID, &options.pool))?;
        let key_words = match found.pool().backend().load(ROOT) {
            // A crash came before the map was there.
            0 => Self::key_words(options)?,
            block => btree::key_words(found.pool(), block)?,
        };
        drop(found);
        Self::make((storage, name), key_words, options, false)
    }

    fn key_words(options: &Options) -> Result<u64> {
        match options.key_slot {
            _ if Q::KIND.is_integer() => Ok(1),
            length @ (8 | 16 | 32 | 64) => Ok(length / WORD_LENGTH),
            length => Err(Error::KeySlot { length }),
        }
    }

    fn make(place: (&dyn Storage, &str), key_words: u64, options: &Options, is_new: bool) -> Result<Self> {
        let (length, first_word) = (EXTENSION_LENGTH, Q::KIND.word());
        let extension = Extension { layout_id: LAYOUT_ID, length, first_word, verify: Self::verify };
        let node_length = options.node_length.unwrap_or_else(|| node_length(key_words));
        let of_tree =
            btree::Options { node_length, pool: options.pool.clone(), ..btree::Options::new(options.pool.domain) };
        let tree = tree::make(place, key_words, &of_tree, &extension, is_new)?;
        let first = tree.extension() + LINE_LENGTH;
        notes::recover(tree.pool(), first, tree.key_words(), |key| block_of(&*tree, key))?;
        let stripes = (0..STRIPES).map(|_| Mutex::new(())).collect();
        Ok(Self { notes: Notes::new(first), tree, stripes, keys: PhantomData })
    }

    /// Checks the words behind the tree's log.
    fn verify(pool: &Pool<B>, at: u64) -> Result<()> {
        let kind = pool.backend().load(at);
        if kind != Q::KIND.word() {
            let name = |word: u64| format!("keys that are {}", Kind::name(word));
            let (found, expected) = (name(kind), name(Q::KIND.word()));
            return Err(Error::OtherShape { pool: pool.name().to_owned(), found, expected });
        }
        notes::verify(pool, at + LINE_LENGTH)
    }

    /// The crashes that a completed change survives.
    pub fn durability(&self) -> Durability {
        Durability::of_medium(self.tree.pool().backend().domain())
    }

    /// The pool, to count what operations cost.
    pub fn pool(&self) -> &Pool<B> {
        self.tree.pool()
    }

    /// The value of a key.
    pub fn get(&self, key: &Q) -> Result<Option<Vec<u8>>> {
        let key = self.words_of(key)?;
        let _guard = self.tree.pool().pin();
        self.tree.get(&key)?.map(|slot| value::read(self.tree.pool(), &slot)).transpose()
    }

    /// The values of many keys, in the order of the keys. Each look-up is an operation of its own.
    /// They take turns while memory is read, so they take less time than one after the other.
    pub fn get_many(&self, keys: &[&Q]) -> Result<Vec<Option<Vec<u8>>>> {
        let words = keys.iter().map(|key| self.words_of(key)).collect::<Result<Vec<_>>>()?;
        let mut values = vec![None; keys.len()];
        let mut failure = None;
        self.tree.get_many(&words, &mut |number, slot| match slot
            .map(|slot| value::read(self.tree.pool(), slot))
            .transpose()
        {
            Ok(value) => values[number] = value,
            Err(error) => failure = Some(error),
        })?;
        failure.map_or(Ok(values), Err)
    }

    /// Whether a key is there.
    pub fn contains(&self, key: &Q) -> Result<bool> {
        Ok(self.tree.get(&self.words_of(key)?)?.is_some())
    }

    /// Inserts a key that is not there. Gives whether it did; otherwise nothing has changed.
    pub fn insert(&self, key: &Q, value: &[u8]) -> Result<bool> {
        self.put(key, value, When::Absent).map(|was_there| !was_there)
    }

    /// Changes the value of a key that is there. Gives whether it was; otherwise nothing has
    /// changed.
    pub fn update(&self, key: &Q, value: &[u8]) -> Result<bool> {
        self.put(key, value, When::Present)
    }

    /// Changes the value of a key if it is as expected. Gives whether it did; otherwise nothing has
    /// changed.
    pub fn compare_and_update(&self, key: &Q, expected: &[u8], value: &[u8]) -> Result<bool> {
        value::check_length(value)?;
        let key = self.words_of(key)?;
        // Nobody else changes the key meanwhile.
        let _stripe = self.stripe(&key);
        let Some(slot) = self.tree.get(&key)? else { return Ok(false) };
        if value::read(self.tree.pool(), &slot)? != expected {
            return Ok(false);
        }
        self.put_locked(&key, value, When::Present)
    }

    /// Inserts a key, or changes its value. Gives whether it was there.
    pub fn upsert(&self, key: &Q, value: &[u8]) -> Result<bool> {
        self.put(key, value, When::Always)
    }

    /// Removes a key. Gives its value, if it was there.
    pub fn remove(&self, key: &Q) -> Result<Option<Vec<u8>>> {
        let key = self.words_of(key)?;
        let _stripe = self.stripe(&key);
        let Some(slot) = self.tree.remove_if(&key, &|slot| value::block_of(slot).is_none())? else { return Ok(None) };
        // Only this thread can free the block.
        let removed = value::read(self.tree.pool(), &slot)?;
        if let Some(old) = value::block_of(&slot) {
            self.exchange(&key, Some(old), &New::Nothing)?;
        }
        Ok(Some(removed))
    }

    /// Checks every invariant of the structure.
    /// - Those of the tree.
    /// - No note about a long value is left.
    /// - The acquired blocks are exactly those of the tree and of long values, with their lengths.
    ///
    /// It reads the whole map. Nobody else can use it meanwhile.
    pub fn check(&mut self) -> Result<Census> {
        notes::check_empty(self.tree.pool(), self.tree.extension() + LINE_LENGTH)?;
        let long_values = std::cell::Cell::new(0);
        let found = self.tree.check(&|slot| {
            let (block, length) = value::block_of(slot)?;
            long_values.set(long_values.get() + 1);
            Some((block, value::block_length(length)))
        })?;
        let btree::Census { entries, leaves, height, .. } = found;
        Ok(Census { entries, long_values: long_values.get(), leaves, height })
    }

    /// Makes everything durable, also on the page cache, and marks the file as closed.
    pub fn close(self) -> Result<()> {
        self.tree.close()
    }

    /// Gives whether the key was there.
    fn put(&self, key: &Q, value: &[u8], when: When) -> Result<bool> {
        value::check_length(value)?;
        let key = self.words_of(key)?;
        let _stripe = self.stripe(&key);
        self.put_locked(&key, value, when)
    }

    /// Does the same for a key whose lock the caller has.
    fn put_locked(&self, key: &KeyWords, value: &[u8], when: When) -> Result<bool> {
        let (new, before) = match value::inline(value) {
            Some(slot) => {
                let is_simple = |before: Option<&Slot>| {
                    when.allows(before.is_some()) && before.is_none_or(|before| value::block_of(before).is_none())
                };
                let before = self.tree.upsert_if(key, &slot, &is_simple)?;
                if is_simple(before.as_ref()) {
                    return Ok(before.is_some());
                }
                (New::Slot(slot), before)
            }
            None => (New::Block(value), self.tree.get(key)?),
        };
        if when.allows(before.is_some()) {
            let old = before.as_ref().and_then(value::block_of);
            self.exchange(key, old, &new)?;
        }
        Ok(before.is_some())
    }

    /// Changes an entry by a note, as a block is involved: the old one, a new one, or both. If
    /// there is no space, it frees what no reader needs any more, and tries once more.
    fn exchange(&self, key: &KeyWords, old: Option<(u64, usize)>, new: &New<'_>) -> Result<()> {
        // Once the change is made, a note that cannot be settled would stop every opening.
        let old = match old {
            Some(old) => value::check_block(self.tree.pool(), old)?,
            None => 0,
        };
        match self.try_exchange(key, old, new) {
            Err(error) if is_full(&error) => {
                self.tree.pool().reclaim()?;
                self.try_exchange(key, old, new)
            }
            outcome => outcome,
        }
    }

    fn try_exchange(&self, key: &KeyWords, old: u64, new: &New<'_>) -> Result<()> {
        let pool = self.tree.pool();
        let note = self.notes.take().ok_or_else(|| self.damaged(self.tree.extension(), FAILED.into()))?;
        // Afterwards nothing can fail for lack of space between the change and the end of the note.
        let mut releasing = pool.intent();
        releasing.reserve()?;
        let mut acquiring = pool.intent();
        note.write_key(pool.backend(), key);
        let (block, slot) = match new {
            New::Nothing => (0, None),
            New::Slot(slot) => (0, Some(*slot)),
            New::Block(value) => {
                let block = acquiring.acquire(value::block_length(value.len()), note.new_link())?;
                value::fill(pool.backend(), block, value);
                (block, Some(value::in_block(block, value.len())))
            }
        };
        note.name(pool.backend(), block, old);
        acquiring.finish();
        let changed = match &slot {
            Some(slot) => self.tree.upsert_if(key, slot, &|_| true),
            None => self.tree.remove_if(key, &|_| true),
        };
        // If the change has failed, the note owns the new block.
        let settled = block_of(&*self.tree, key).and_then(|current| note.settle(pool, releasing, current));
        if let Err(error) = settled {
            note.keep();
            return Err(error);
        }
        changed.map(drop)
    }

    /// The only permission to change a key.
    fn stripe(&self, key: &KeyWords) -> MutexGuard<'_, ()> {
        let mixed = key.iter().fold(0_u64, |mixed, word| (mixed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        self.stripes[(mixed >> STRIPE_SHIFT) as usize].lock()
    }
}

impl<Q: Key + ?Sized, B: Backend> Map<Q, B> {
    fn damaged(&self, offset: u64, reason: String) -> Error {
        damaged(self.tree.pool(), offset, reason)
    }
}

const FAILED: &str = "a change of a long value has failed in the middle; open the map again";

/// When a value is stored.
#[derive(Clone, Copy)]
enum When {
    Always,
    /// If the key is not there.
    Absent,
    /// If the key is there.
    Present,
}

impl When {
    fn allows(self, is_there: bool) -> bool {
        match self {
            Self::Always => true,
            Self::Absent => !is_there,
            Self::Present => is_there,
        }
    }
}

/// The new contents of an entry.
enum New<'v> {
    Nothing,
    Slot(Slot),
    /// A value that takes a block of its own.
    Block(&'v [u8]),
}

/// The block that a key's entry leads to, or 0.
fn block_of<B: Backend>(tree: &dyn Tree<B>, key: &KeyWords) -> Result<u64> {
    Ok(tree.get(key)?.and_then(|slot| value::block_of(&slot)).map_or(0, |(block, _)| block))
}

/// Bytes of a node, so that leaves have ten entries or more.
fn node_length(key_words: u64) -> u64 {
    match key_words {
        0..=4 => 1024,
        _ => 2048,
    }
}
