//! A pool's words, with changes kept in memory and then dropped.

use std::collections::BTreeMap;
use std::sync::Arc;

use terrane_storage::File;
use terrane_storage::sync::{AtomicU64, Mutex, Ordering};

use super::{Backend, Loads, Site, outside};
use crate::{Error, PersistenceDomain, Result};

/// The words of another back-end. Stores are visible here only, and nothing is flushed.
///
/// It serves to try a recovery before it changes anything:
/// [`Found::rehearse`](crate::Found::rehearse). Each stored word takes memory.
#[derive(Debug)]
pub struct Rehearsed<'p, B> {
    inner: &'p B,
    changed: Mutex<BTreeMap<u64, u64>>,
    length: AtomicU64,
}

impl<'p, B: Backend> Rehearsed<'p, B> {
    pub(crate) fn new(inner: &'p B) -> Self {
        Self { inner, changed: Mutex::default(), length: AtomicU64::new(inner.length()) }
    }

    /// The word, for a caller that holds the lock of `changed`.
    fn word(&self, changed: &BTreeMap<u64, u64>, offset: u64) -> u64 {
        match changed.get(&offset) {
            Some(&word) => word,
            None if self.inner.holds(offset, super::WORD_LENGTH) => self.inner.load(offset),
            // Mapped since.
            None if self.holds(offset, super::WORD_LENGTH) => 0,
            None => outside(offset, self.length()),
        }
    }

    fn update(&self, offset: u64, change: impl FnOnce(u64) -> Option<u64>) -> std::result::Result<u64, u64> {
        let mut changed = self.changed.lock();
        let before = self.word(&changed, offset);
        let Some(new) = change(before) else { return Err(before) };
        changed.insert(offset, new);
        Ok(before)
    }

    /// A change that always happens. Gives the word before.
    fn replace(&self, offset: u64, change: impl FnOnce(u64) -> u64) -> u64 {
        let (Ok(before) | Err(before)) = self.update(offset, |word| Some(change(word)));
        before
    }
}

impl<B: Backend> Backend for Rehearsed<'_, B> {
    type View<'a>
        = Loads<'a, Self>
    where
        Self: 'a;

    /// An error: there is no file behind it.
    fn map(_: Arc<dyn File>, pool: &str, _: PersistenceDomain, _: u64) -> Result<Self> {
        let reason = "a rehearsal has no file of its own".to_owned();
        Err(Error::Unsuitable { pool: pool.to_owned(), reason })
    }

    fn extend(&self, length: u64) -> Result<()> {
        self.length.fetch_max(length, Ordering::AcqRel);
        Ok(())
    }

    fn length(&self) -> u64 {
        self.length.load(Ordering::Acquire)
    }

    fn domain(&self) -> PersistenceDomain {
        self.inner.domain()
    }

    fn load(&self, offset: u64) -> u64 {
        self.word(&self.changed.lock(), offset)
    }

    fn view(&self, offset: u64, length: u64) -> Loads<'_, Self> {
        Loads::new(self, offset, length)
    }

    fn prefetch(&self, offset: u64, length: u64) {
        self.inner.prefetch(offset, length);
    }

    fn store(&self, offset: u64, value: u64) {
        self.replace(offset, |_| value);
    }

    fn compare_exchange(&self, offset: u64, current: u64, new: u64) -> std::result::Result<u64, u64> {
        self.update(offset, |word| (word == current).then_some(new))
    }

    fn fetch_or(&self, offset: u64, bits: u64) -> u64 {
        self.replace(offset, |word| word | bits)
    }

    fn fetch_and(&self, offset: u64, bits: u64) -> u64 {
        self.replace(offset, |word| word & bits)
    }

    fn write_back(&self, _: u64, _: Site) {}

    fn fence(&self, _: Site) {}
}
