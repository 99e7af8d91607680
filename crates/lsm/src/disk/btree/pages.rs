//! Parses the pages of a B-tree.

use crate::disk::keys::{Key, Keys, split_head};
use crate::disk::page::{Page, PageKind, PagePointer};

/// A leaf has anti-matter bits.
pub const HAS_ANTIMATTER: u16 = 1;
/// A leaf has begin sequence numbers.
pub const HAS_SEQUENCES: u16 = 2;

/// An entry of a leaf.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The key.
    pub key: Key<'a>,
    /// Whether it marks the key as deleted.
    pub antimatter: bool,
    /// Its begin number, if the component keeps sequence numbers.
    pub begin: Option<u64>,
    /// The value; empty for anti-matter.
    pub value: &'a [u8],
}

/// A leaf page.
#[derive(Clone, Copy, Debug)]
pub struct Leaf<'a> {
    /// Number of entries.
    pub count: usize,
    /// Keys, ascending.
    pub keys: Keys<'a>,
    ends: &'a [u32],
    antimatter: Option<&'a [u64]>,
    begins: Option<&'a [u64]>,
    values: &'a [u8],
}

impl<'a> Leaf<'a> {
    /// Parses a leaf; `None` if its parts do not fit.
    #[inline]
    pub fn parse(page: &'a Page) -> Option<Self> {
        let count = page.count();
        let (head, rest) = split_head(page.payload())?;
        let (keys, rest) = Keys::parse(head, rest, count)?;
        let (ends, rest) = rest.split_at_checked((4 * count).next_multiple_of(8))?;
        let (antimatter, rest) = words_if(page.flags() & HAS_ANTIMATTER != 0, rest, count.div_ceil(64))?;
        let (begins, values) = words_if(page.flags() & HAS_SEQUENCES != 0, rest, count)?;
        let ends: &[u32] = bytemuck::try_cast_slice(ends).ok()?;
        Some(Self { count, keys, ends: &ends[..count], antimatter, begins, values })
    }

    /// The entry at an index.
    #[inline]
    pub fn get(&self, index: usize) -> Entry<'a> {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        Entry {
            key: self.keys.get(index),
            antimatter: self.antimatter.is_some_and(|bits| bits[index / 64] >> (index % 64) & 1 == 1),
            begin: self.begins.map(|begins| begins[index]),
            value: &self.values[start..self.ends[index] as usize],
        }
    }
}

/// Takes `count` words from the front of `bytes` if a flag is set.
#[inline]
pub fn words_if(present: bool, bytes: &[u8], count: usize) -> Option<(Option<&[u64]>, &[u8])> {
    if !present {
        return Some((None, bytes));
    }
    let (words, rest) = bytes.split_at_checked(8 * count)?;
    Some((Some(bytemuck::try_cast_slice(words).ok()?), rest))
}

/// An inner page.
#[derive(Clone, Copy, Debug)]
pub struct Inner<'a> {
    /// Bloom filter over all keys below; length 0 if there is none.
    pub bloom: PagePointer,
    /// The children.
    pub children: &'a [PagePointer],
    /// First key of each child.
    pub keys: Keys<'a>,
}

impl<'a> Inner<'a> {
    /// Parses an inner page; `None` if its parts do not fit.
    #[inline]
    pub fn parse(page: &'a Page) -> Option<Self> {
        let (bloom, rest) = page.payload().split_at_checked(size_of::<PagePointer>())?;
        let (children, rest) = rest.split_at_checked(size_of::<PagePointer>() * page.count())?;
        let (head, rest) = split_head(rest)?;
        let (keys, _) = Keys::parse(head, rest, page.count())?;
        Some(Self {
            bloom: bytemuck::pod_read_unaligned(bloom),
            children: bytemuck::try_cast_slice(children).ok()?,
            keys,
        })
    }

    /// The child with the first entry of this key, if there is one.
    #[inline]
    pub fn child_of(&self, key: &[u8], versions: bool) -> usize {
        let count = self.children.len();
        let bound = self.keys.lower_bound(count, key);
        // A child that starts with the key holds its first entry, unless versions of the key can
        // begin in the child before.
        let starts_with = bound < count && *self.keys.get(bound) == *key;
        if starts_with && !versions { bound } else { bound.saturating_sub(1) }
    }
}

/// Verifies the structure of a B-tree page of any kind (I2 of the module `disk`).
pub fn validate(page: &Page) -> Result<(), String> {
    let count = page.count();
    let fail = |reason: &str| Err(reason.to_owned());
    match page.kind() {
        PageKind::BTreeLeaf => {
            let Some(leaf) = Leaf::parse(page) else { return fail("the parts of the leaf do not fit") };
            if count == 0 || !leaf.keys.is_valid(count) {
                return fail("the keys of the leaf do not fit");
            }
            if !leaf.ends.is_sorted() || leaf.ends[count - 1] as usize != leaf.values.len() {
                return fail("the values of the leaf do not fit");
            }
            let ordered = |index: usize| {
                let (before, after) = (leaf.get(index - 1), leaf.get(index));
                *before.key < *after.key || (*before.key == *after.key && before.begin > after.begin)
            };
            if (1..count).all(ordered) { Ok(()) } else { fail("the keys of the leaf are out of order") }
        }
        PageKind::BTreeInner => {
            let Some(inner) = Inner::parse(page) else { return fail("the parts of the inner page do not fit") };
            if count == 0 || !inner.keys.is_valid(count) {
                return fail("the keys of the inner page do not fit");
            }
            if page.level() == 0 || !(1..count).all(|index| *inner.keys.get(index - 1) <= *inner.keys.get(index)) {
                return fail("the keys of the inner page are out of order");
            }
            Ok(())
        }
        PageKind::Bloom => {
            if page.payload().is_empty() || !page.payload().len().is_multiple_of(32) {
                return fail("the Bloom filter is not made of blocks");
            }
            Ok(())
        }
        _ => fail("the page belongs to another kind of component"),
    }
}
