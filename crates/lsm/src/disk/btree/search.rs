//! Searches for one key.

use super::BTreeComponent;
use super::cursor::Position;
use super::pages::{Inner, Leaf, validate};
use crate::Result;
use crate::disk::bloom;
use crate::disk::page::{Page, PageKind, PagePointer};
use crate::disk::slot::ReadGuard;

/// A found entry; it keeps its page in memory.
#[derive(Debug)]
pub struct Found {
    page: Page,
    index: usize,
}

impl Found {
    /// Whether the key is deleted.
    pub fn is_antimatter(&self) -> bool {
        self.leaf().is_none_or(|leaf| leaf.get(self.index).antimatter)
    }

    /// The value; empty for anti-matter.
    pub fn value(&self) -> &[u8] {
        self.leaf().map_or(&[], |leaf| leaf.get(self.index).value)
    }

    fn leaf(&self) -> Option<Leaf<'_>> {
        Leaf::parse(&self.page)
    }
}

impl BTreeComponent {
    /// The newest version of a key that a snapshot sees, even if it is anti-matter.
    pub fn get(&self, key: &[u8], snapshot: u64) -> Result<Option<Found>> {
        self.get_hashed(key, bloom::hash(key), snapshot)
    }

    /// Like [`Self::get`], for a caller that searches several components and has the key's hash.
    pub fn get_hashed(&self, key: &[u8], hash: u64, snapshot: u64) -> Result<Option<Found>> {
        match self.key_range() {
            Some((first, last)) if first <= key && key <= last => {}
            _ => return Ok(None),
        }
        let Some(mut pointer) = self.file().meta().root else { return Ok(None) };
        let guard = ReadGuard::enter();
        loop {
            let page = self.file().page(pointer, validate, &guard)?;
            match page.kind() {
                PageKind::BTreeInner => {
                    let inner = self.inner(&page, pointer)?;
                    if inner.bloom.length > 0 && !self.may_contain(inner.bloom, hash)? {
                        return Ok(None);
                    }
                    pointer = inner.children[inner.child_of(key, false)];
                }
                _ => {
                    // The last leaf that can have the key. If the key exists, one of its versions
                    // is there.
                    let leaf = self.leaf(&page, pointer)?;
                    let first = leaf.keys.lower_bound(leaf.count, key);
                    let mut versions =
                        (first..leaf.count).take_while(|index| *leaf.keys.get(*index) == *key).peekable();
                    if versions.peek().is_some() && first == 0 && self.file().meta().has_sequences {
                        // Newer versions may be in leaves before.
                        return self.get_version(key, snapshot);
                    }
                    let seen = versions.find(|index| leaf.get(*index).begin.is_none_or(|begin| begin <= snapshot));
                    return Ok(seen.map(|index| Found { page: page.into_owned(), index }));
                }
            }
        }
    }

    /// The approximate share of the entries below a key, from 0 to 1. It is exact within a leaf,
    /// and assumes that all pages of a level have the same number of entries.
    pub fn part_below(&self, key: &[u8]) -> Result<f64> {
        let Some(mut pointer) = self.file().meta().root else { return Ok(0.0) };
        let guard = ReadGuard::enter();
        let (mut below, mut width) = (0.0, 1.0);
        loop {
            let page = self.file().page(pointer, validate, &guard)?;
            if page.kind() == PageKind::BTreeInner {
                let inner = self.inner(&page, pointer)?;
                let child = inner.child_of(key, self.file().meta().has_sequences);
                width /= inner.children.len() as f64;
                below += width * child as f64;
                pointer = inner.children[child];
            } else {
                let leaf = self.leaf(&page, pointer)?;
                return Ok(below + width * leaf.keys.lower_bound(leaf.count, key) as f64 / leaf.count as f64);
            }
        }
    }

    fn may_contain(&self, bloom: PagePointer, hash: u64) -> Result<bool> {
        let guard = ReadGuard::enter();
        let page = self.file().page(bloom, validate, &guard)?;
        match bytemuck::try_cast_slice(page.payload()) {
            Ok(words) if page.kind() == PageKind::Bloom => Ok(bloom::may_contain(words, hash)),
            _ => Err(self.file().damaged(bloom, "a Bloom filter was expected")),
        }
    }

    fn get_version(&self, key: &[u8], snapshot: u64) -> Result<Option<Found>> {
        let mut position = Position::default();
        position.seek(self, key)?;
        while let Some(entry) = position.entry() {
            if *entry.key != *key {
                break;
            }
            if entry.begin.is_none_or(|begin| begin <= snapshot) {
                return Ok(position.into_leaf().map(|(page, index)| Found { page, index }));
            }
            position.advance(self, 1)?;
        }
        Ok(None)
    }

    pub(super) fn leaf<'a>(&self, page: &'a Page, pointer: PagePointer) -> Result<Leaf<'a>> {
        match Leaf::parse(page) {
            Some(leaf) if page.kind() == PageKind::BTreeLeaf => Ok(leaf),
            _ => Err(self.file().damaged(pointer, "a B-tree leaf was expected")),
        }
    }

    pub(super) fn inner<'a>(&self, page: &'a Page, pointer: PagePointer) -> Result<Inner<'a>> {
        match Inner::parse(page) {
            Some(inner) if page.kind() == PageKind::BTreeInner => Ok(inner),
            _ => Err(self.file().damaged(pointer, "an inner B-tree page was expected")),
        }
    }
}
