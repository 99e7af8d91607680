//! Inner nodes whose entries are shifted in order, so that the log need not have them (T9).

use terrane_pmem::{Backend, Pool, Site, View};

use super::change::Linking;
use super::layout::{Layout, META, count, level, meta};
use super::stores::Stores;
use crate::Result;
use crate::blocks::damaged;

const ORDER: Site = Site::new("btree.inner.order");
const END: Site = Site::new("btree.inner.end");

/// Adds a child to an inner node durably, or continues where a crash has interrupted that.
///
/// Entries move to the slot behind, the last one first. The stores become durable in their order,
/// and their addresses descend, so each line is flushed once. A copy begins with the child, which
/// no other entry has. So after a crash there is one of these states:
/// 1. Nothing is copied that the number of entries includes.
/// 2. Two neighbours have the same child. The second one may be half copied, and the first and all
///    before it are as they were.
/// 3. The new child is in its place, perhaps with a half of its key.
/// 4. The number of entries has grown: everything is done.
///
/// Gives whether there was something left to do. It is an error if the number of children is
/// neither that of before nor the next one: then the child was never linked.
pub(super) fn add_child<const K: usize, const V: usize, B: Backend>(
    pool: &Pool<B>,
    layout: &Layout<K, V>,
    Linking { parent, before, separator }: &Linking,
    child: u64,
) -> Result<bool> {
    let node = pool.backend().view(*parent, layout.node_length());
    let found = count(node.load(META));
    if found == *before + 1 {
        return Ok(false);
    }
    if found != *before {
        return Err(damaged(pool, *parent, format!("the log adds a child to a node of {found} ones")));
    }
    let mut stores = Stores::new(pool.backend(), *parent, [ORDER, END]);
    let mut store_entry = |index: usize, key: &[u64], child: u64| {
        let first = Layout::<K, V>::child(index);
        stores.store(first + K, child);
        key.iter().enumerate().rev().for_each(|(word, &content)| stores.store(first + word, content));
    };
    let child_at = |index| Layout::<K, V>::child_at(node, index);
    let key_at = |index| node.load_array::<K>(Layout::<K, V>::child(index));
    let index = (1..*before).find(|&index| child_at(index) == child).unwrap_or_else(|| {
        // The slot behind the entries may look like a copy. The first one overwrites it.
        let mut index = (1..*before).find(|&index| child_at(index) == child_at(index - 1)).unwrap_or(*before);
        while index > 1 && key_at(index - 1).as_slice() > separator.as_slice() {
            store_entry(index, &key_at(index - 1), child_at(index - 1));
            index -= 1;
        }
        index
    });
    store_entry(index, separator, child);
    stores.store(META, meta(level(node.load(META)), before + 1));
    stores.end();
    Ok(true)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use terrane_pmem::{Traced, WORD_LENGTH};
    use terrane_testkit::MemoryStorage;

    use super::*;
    use crate::PersistenceDomain;
    use crate::btree::node::Child;
    use crate::btree::{BTree, FastFair, Options};

    /// Removals leave children there, and the block of one may be used again for the new child.
    #[test]
    fn a_child_is_added_in_its_place_whatever_lies_behind_the_entries() {
        const ADDED: u64 = 64;
        let options = Options::new(PersistenceDomain::PageCache);
        let tree = BTree::<FastFair, 2, 2, Traced>::create(&MemoryStorage::new(), "tree", &options).unwrap();
        let (backend, layout, parent) = (tree.backend(), &tree.layout, tree.root());
        for (before, place) in (1..layout.children).flat_map(|before| (1..=before).map(move |place| (before, place))) {
            let children: Vec<Child<2>> = (1..=before as u64).map(|number| ([number, 0], number * 128)).collect();
            let separator = [place as u64, 1];
            let mut expected = children.clone();
            expected.insert(place, (separator, ADDED));
            for behind in [0, ADDED, children[before - 1].1] {
                let mut image = vec![0; layout.words];
                Layout::<2, 2>::fill_inner(&mut image, 1, &children);
                image[Layout::<2, 2>::child(before) + 2] = behind;
                (parent..).step_by(WORD_LENGTH as usize).zip(&image).for_each(|(at, word)| backend.store(at, *word));
                let linking = Linking { parent, before, separator: separator.to_vec() };
                let added = [(); 2].map(|()| add_child(&tree.pool, layout, &linking, ADDED).unwrap());
                assert_eq!(added, [true, false]);
                let view = backend.view(parent, layout.node_length());
                assert_eq!(layout.children_of(view), expected, "{place} of {before}, {behind} behind");
            }
        }
    }
}
