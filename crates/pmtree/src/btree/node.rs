//! Nodes as words: inner nodes, and the leaves of all forms that lie in nodes.

use std::hint::select_unpredictable;

use smallvec::SmallVec;
use terrane_pmem::View;

use super::layout::{BITMAP, Form, Layout, META, NEXT, WORD_BITS, count, level, meta};

/// The tag of a free slot, and the one before that of the first slot.
pub(super) const FREE: u64 = u64::MAX;

/// The tag of the first slot from which on nothing counts (T10).
pub(super) const END: u64 = 0;

/// Tags of entries are below. No program changes a leaf that often.
pub(super) const TAG_END: u64 = 1 << 47;

/// An entry of a leaf.
pub(super) type Entry<const K: usize, const V: usize> = ([u64; K], [u64; V]);

/// An entry of an inner node: the least key of a child, and the child.
pub(super) type Child<const K: usize> = ([u64; K], u64);

/// The entries of a leaf.
pub(super) type Entries<const K: usize, const V: usize> = SmallVec<[Entry<K, V>; 16]>;

/// The words of a node, copied into memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Image<'a>(pub(super) &'a [u64]);

impl View for Image<'_> {
    #[inline]
    fn load(&self, index: usize) -> u64 {
        self.0[index]
    }
}

/// Whether a key comes before another one, found without branches.
#[inline]
fn is_less<const K: usize>(one: &[u64; K], other: &[u64; K]) -> bool {
    let words = one.iter().zip(other).rev();
    words.fold(false, |is_less, (one, other)| (one < other) | (one == other) & is_less)
}

impl<const K: usize, const V: usize> Layout<K, V> {
    /// A copy of a node's words.
    pub(super) fn copy(&self, node: impl View) -> Vec<u64> {
        (0..self.words).map(|word| node.load(word)).collect()
    }

    /// The index of the child whose keys include a key. The node has at least one child.
    #[inline]
    pub(super) fn child_of(&self, node: impl View, key: &[u64; K]) -> usize {
        self.last_child(node, |least| !is_less(key, least))
    }

    /// The index of the last child whose least key passes, which those of lower children do then.
    /// The node has at least one child, and the first one passes always.
    #[inline(always)]
    pub(super) fn last_child(&self, node: impl View, passes: impl Fn(&[u64; K]) -> bool) -> usize {
        // A reader may see a count that no node has, and compares versions afterwards.
        let (mut last, mut left) = (0, count(node.load(META)).min(self.children));
        // Without branches on keys, which nobody can predict.
        while left > 1 {
            let half = left / 2;
            let passes = passes(&node.load_array::<K>(Self::child(last + half)));
            last = select_unpredictable(passes, last + half, last);
            left -= half;
        }
        last
    }

    #[inline]
    pub(super) fn child_at(node: impl View, index: usize) -> u64 {
        node.load(Self::child(index) + K)
    }

    pub(super) fn children_of(&self, node: impl View) -> Vec<Child<K>> {
        let children = 0..count(node.load(META)).min(self.children);
        children.map(|index| (node.load_array::<K>(Self::child(index)), Self::child_at(node, index))).collect()
    }

    /// Makes an inner node of a level with these children.
    pub(super) fn fill_inner(node: &mut [u64], level: u64, children: &[Child<K>]) {
        node[META] = meta(level, children.len());
        node[NEXT] = 0;
        for (index, (key, child)) in children.iter().enumerate() {
            let first = Self::child(index);
            node[first..first + K].copy_from_slice(key);
            node[first + K] = *child;
        }
    }

    /// Number of words from the beginning on that matter in a node which was just filled.
    pub(super) fn used_words(&self, node: &[u64]) -> usize {
        match level(node[META]) {
            // The tag that ends them included.
            0 if self.form == Form::Tagged => match self.end_of(Image(node)) {
                end if end == self.leaf_capacity => self.entry(end),
                end => self.tag(end) + 1,
            },
            0 => self.entry(self.leaf_count(Image(node))),
            _ => Self::child(count(node[META])),
        }
    }

    /// The word of a leaf's bitmap with this number.
    #[inline]
    fn bits(&self, leaf: impl View, word: usize) -> u64 {
        let sound = self.leaf_capacity - word * WORD_BITS;
        leaf.load(BITMAP + word) & if sound < WORD_BITS { (1 << sound) - 1 } else { u64::MAX }
    }

    /// The slots with entries, in ascending order.
    #[inline]
    pub(super) fn slots(&self, leaf: impl View) -> impl Iterator<Item = usize> {
        let sorted = if self.form == Form::Sorted { count(leaf.load(META)).min(self.leaf_capacity) } else { 0 };
        let of_bitmap = (0..self.bitmap_words).flat_map(move |word| {
            let mut left = self.bits(leaf, word);
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(word * WORD_BITS + bit)
            })
        });
        let of_tags = self.tags(leaf).filter(|(_, before, tag)| tag != before && *tag != FREE).map(|(slot, ..)| slot);
        (0..sorted).chain(of_bitmap).chain(of_tags)
    }

    /// The slots before the one that ends them, each with the tag before it and its own.
    #[inline]
    pub(super) fn tags(&self, leaf: impl View) -> impl Iterator<Item = (usize, u64, u64)> {
        let slots = if self.form == Form::Tagged { self.leaf_capacity } else { 0 };
        let mut before = FREE;
        (0..slots).map_while(move |slot| {
            let tag = leaf.load(self.tag(slot));
            let found = (slot, before, tag);
            before = tag;
            (tag != END).then_some(found)
        })
    }

    /// The slot from which on nothing counts in a leaf with tags; 0 in others.
    pub(super) fn end_of(&self, leaf: impl View) -> usize {
        self.tags(leaf).count()
    }

    /// Whether two entries of a leaf have the same tag.
    pub(super) fn has_tag_twice(&self, leaf: impl View) -> bool {
        let mut tags: SmallVec<[u64; 16]> = match self.form {
            Form::Tagged => self.slots(leaf).map(|slot| leaf.load(self.tag(slot))).collect(),
            _ => SmallVec::new(),
        };
        tags.sort_unstable();
        tags.windows(2).any(|pair| pair[0] == pair[1])
    }

    pub(super) fn leaf_count(&self, leaf: impl View) -> usize {
        match self.form {
            Form::Sorted | Form::Chain => count(leaf.load(META)).min(self.leaf_capacity),
            Form::Bitmap => (0..self.bitmap_words).map(|word| self.bits(leaf, word).count_ones() as usize).sum(),
            Form::Tagged => self.slots(leaf).count(),
        }
    }

    /// The first slot without an entry, in a word of the bitmap or in any.
    pub(super) fn free_slot(&self, leaf: impl View, word: Option<usize>) -> Option<usize> {
        let words = word.map_or(0..self.bitmap_words, |word| word..word + 1);
        words
            .map(|word| word * WORD_BITS + self.bits(leaf, word).trailing_ones() as usize)
            .zip(word.unwrap_or(0)..)
            .find(|(slot, word)| *slot < self.leaf_capacity.min((word + 1) * WORD_BITS))
            .map(|(slot, _)| slot)
    }

    #[inline]
    pub(super) fn key_at(&self, leaf: impl View, slot: usize) -> [u64; K] {
        leaf.load_array::<K>(self.entry(slot))
    }

    #[inline]
    pub(super) fn value_at(&self, leaf: impl View, slot: usize) -> [u64; V] {
        leaf.load_array::<V>(self.entry(slot) + K)
    }

    /// The slot and the value of a key.
    #[inline]
    pub(super) fn find(&self, leaf: impl View, key: &[u64; K]) -> Option<(usize, [u64; V])> {
        let slot = match self.form {
            Form::Bitmap => self.find_in_bitmap(leaf, key),
            Form::Sorted | Form::Tagged | Form::Chain => self.slots(leaf).find(|&slot| self.key_at(leaf, slot) == *key),
        }?;
        Some((slot, self.value_at(leaf, slot)))
    }

    #[inline]
    fn find_in_bitmap(&self, leaf: impl View, key: &[u64; K]) -> Option<usize> {
        for word in 0..self.bitmap_words {
            let mut left = self.bits(leaf, word);
            while left != 0 {
                let slot = word * WORD_BITS + left.trailing_zeros() as usize;
                if self.key_at(leaf, slot) == *key {
                    return Some(slot);
                }
                left &= left - 1;
            }
        }
        None
    }

    /// The entries of a leaf, sorted.
    pub(super) fn entries_of(&self, leaf: impl View) -> Entries<K, V> {
        let mut entries: Entries<K, V> =
            self.slots(leaf).map(|slot| (self.key_at(leaf, slot), self.value_at(leaf, slot))).collect();
        if self.form == Form::Bitmap {
            entries.sort_unstable();
        }
        entries
    }

    /// The least and the greatest key of a leaf, if it has entries.
    pub(super) fn bounds_of(&self, leaf: impl View) -> Option<([u64; K], [u64; K])> {
        let keys = self.slots(leaf).map(|slot| self.key_at(leaf, slot));
        keys.fold(None, |bounds, key| match bounds {
            None => Some((key, key)),
            Some((first, last)) => Some((key.min(first), key.max(last))),
        })
    }

    /// The least key of a leaf, or the first one of an inner node, which stands for it. `None` if
    /// there are no entries.
    pub(super) fn least_key(&self, node: impl View) -> Option<[u64; K]> {
        match level(node.load(META)) {
            0 => self.bounds_of(node).map(|(first, _)| first),
            _ => (count(node.load(META)) > 0).then(|| node.load_array::<K>(Self::child(0))),
        }
    }

    /// Makes a leaf with these sorted entries. Where entries have tags, each is followed by a free
    /// slot, as long as there is room for that. So few entries have to move for the next ones. The
    /// last leaf has none, since keys that ascend are added behind the others.
    pub(super) fn fill_leaf(&self, leaf: &mut [u64], next: u64, entries: &[Entry<K, V>]) {
        leaf[META] = meta(0, 0);
        leaf[NEXT] = next;
        leaf[BITMAP..BITMAP + self.bitmap_words].fill(0);
        if self.form != Form::Tagged {
            return self.add(leaf, entries);
        }
        let mut end = 0;
        for (index, entry) in entries.iter().enumerate() {
            let free = if next == 0 { 0 } else { index.min(self.leaf_capacity - entries.len()) };
            let slot = index + free;
            (end..slot).for_each(|free| leaf[self.tag(free)] = FREE);
            self.write_entry(leaf, slot, entry);
            leaf[self.tag(slot)] = index as u64 + 1;
            end = slot + 1;
        }
        self.end_at(leaf, end);
    }

    /// Adds sorted entries to a leaf with room for them. All its keys are smaller.
    pub(super) fn add(&self, leaf: &mut [u64], entries: &[Entry<K, V>]) {
        let end = self.end_of(Image(leaf));
        if end + entries.len() > self.leaf_capacity {
            // Free slots lie before the end.
            let mut all = self.entries_of(Image(leaf));
            all.extend_from_slice(entries);
            return self.fill_leaf(leaf, leaf[NEXT], &all);
        }
        for (index, entry) in entries.iter().enumerate() {
            let slot = match self.form {
                Form::Sorted | Form::Chain => count(leaf[META]),
                Form::Bitmap => self.free_slot(Image(leaf), None).expect("the caller has counted the free slots"),
                Form::Tagged => end + index,
            };
            self.write_entry(leaf, slot, entry);
            match self.form {
                Form::Sorted | Form::Chain => leaf[META] = meta(0, slot + 1),
                Form::Bitmap => leaf[BITMAP + slot / WORD_BITS] |= 1 << (slot % WORD_BITS),
                Form::Tagged => {
                    self.end_at(leaf, slot);
                    leaf[self.tag(slot)] = self.new_tag(Image(leaf));
                    self.end_at(leaf, slot + 1);
                }
            }
        }
    }

    fn write_entry(&self, leaf: &mut [u64], slot: usize, (key, value): &Entry<K, V>) {
        let first = self.entry(slot);
        leaf[first..first + K].copy_from_slice(key);
        leaf[first + K..first + K + V].copy_from_slice(value);
    }

    /// Lets the slots of a leaf with tags end at one.
    fn end_at(&self, leaf: &mut [u64], slot: usize) {
        if slot < self.leaf_capacity {
            leaf[self.tag(slot)] = END;
        }
    }

    /// A tag that no entry of a leaf has. It is below [`TAG_END`] unless the leaf is damaged.
    pub(super) fn new_tag(&self, leaf: impl View) -> u64 {
        self.tags(leaf).map(|(.., tag)| tag).filter(|tag| *tag != FREE).max().unwrap_or(END) + 1
    }

    /// Removes the entries from a key on.
    pub(super) fn truncate(&self, leaf: &mut [u64], from: &[u64; K]) {
        let removed: SmallVec<[usize; 16]> =
            self.slots(Image(leaf)).filter(|&slot| self.key_at(Image(leaf), slot) >= *from).collect();
        match self.form {
            Form::Sorted | Form::Chain => leaf[META] = meta(0, count(leaf[META]) - removed.len()),
            Form::Bitmap => {
                removed.into_iter().for_each(|slot| leaf[BITMAP + slot / WORD_BITS] &= !(1 << (slot % WORD_BITS)));
            }
            Form::Tagged => self.end_at(leaf, removed.first().copied().unwrap_or(self.leaf_capacity)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_an_interrupted_shift_has_left_takes_no_room_when_entries_are_added() {
        let layout = Layout::<1, 1>::new(192, Form::Tagged).unwrap();
        let entries: Vec<Entry<1, 1>> = (0..layout.leaf_capacity as u64).map(|key| ([key], [!key])).collect();
        let (last, others) = entries.split_last().unwrap();
        for hole in 1..layout.leaf_capacity {
            let mut leaf = vec![0; layout.words];
            layout.fill_leaf(&mut leaf, 7, &[]);
            layout.add(&mut leaf, others);
            // The entries from there on were shifted, and the new one is missing.
            for slot in (hole..layout.leaf_capacity).rev() {
                let (from, to) = (layout.entry(slot - 1), layout.entry(slot));
                leaf.copy_within(from..from + 3, to);
            }
            assert_eq!(layout.end_of(Image(&leaf)), layout.leaf_capacity, "the leaf looks full");
            layout.add(&mut leaf, &[*last]);
            assert_eq!(layout.entries_of(Image(&leaf)).as_slice(), entries, "a hole in slot {hole}");
            assert_eq!(leaf[NEXT], 7);
        }
    }

    /// A new leaf lies in a block that held another one, whose entries must not come back.
    #[test]
    fn a_new_leaf_with_tags_has_its_entries_alone_whatever_its_block_held() {
        let layout = Layout::<1, 1>::new(192, Form::Tagged).unwrap();
        let entries: Vec<Entry<1, 1>> = (0..layout.leaf_capacity as u64).map(|key| ([key], [!key])).collect();
        for count in 0..=layout.leaf_capacity {
            let mut image = vec![0; layout.words];
            layout.fill_leaf(&mut image, 7, &entries[..count]);
            let mut block = vec![9; layout.words];
            let used = layout.used_words(&image);
            block[..used].copy_from_slice(&image[..used]);
            assert_eq!(layout.entries_of(Image(&block)).as_slice(), &entries[..count]);
        }
    }
}
