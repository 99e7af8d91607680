//! The collection of garbage, one segment at a time.

use terrane_pmem::{Backend, View};

use super::super::method::Method;
use super::super::tree::BTree;
use super::super::versions;
use super::replay;
use super::rows::{BASE_NUMBER, LEAF, range};
use crate::{Result, blocks};

impl<M: Method, const K: usize, const V: usize, B: Backend> BTree<M, K, V, B> {
    /// Takes the first segment of a log that has too much garbage. The operation that has left the
    /// garbage is durable, so a lack of space is no error.
    pub(in super::super) fn collect(&self) -> Result<()> {
        let Some(log) = self.chains.logs.begin_collection() else { return Ok(()) };
        let collected = self.collect_oldest(log).or_else(blocks::tolerate_missing_space);
        self.chains.logs.end_collection(log);
        collected
    }

    /// A crash leaves the segment as it was, and some of its records have a newer base.
    fn collect_oldest(&self, log: usize) -> Result<()> {
        let guard = self.pool.pin();
        let Some(segment) = self.chains.logs.oldest(log) else { return Ok(()) };
        let mut records = Vec::new();
        replay::read_segment(&self.pool, &self.layout, &segment, self.chains.logs.segment_length, |_, record| {
            records.push((record.header.leaf, record.number()));
            Ok(())
        })?;
        for (leaf, record) in records {
            self.renew(leaf, record)?;
        }
        self.chains.logs.unlink_oldest(&self.pool, log, &guard)
    }

    /// Writes a new base for a leaf, if a record of it is live.
    fn renew(&self, leaf: u64, record: u64) -> Result<()> {
        match self.chains.name(leaf) {
            // It is removed.
            0 => Ok(()),
            row => self.renew_row(row, leaf, record),
        }
    }

    /// Does the same for a leaf whose row had a name before. Another thread may have removed it
    /// since: the leaf that has got its keys has a base with what it had.
    fn renew_row(&self, name: u64, leaf: u64, record: u64) -> Result<()> {
        loop {
            let Some(met) = self.meet(name) else { return Ok(()) };
            let Some(lock) = versions::lock(met.word, met.version) else { continue };
            let row = self.node(name)?;
            if row.load(LEAF) != leaf || record < row.load(BASE_NUMBER) {
                lock.unchanged();
                return Ok(());
            }
            return self.add_base(name, &range(row), &self.entries_of_chain(row)?);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use terrane_pmem::Traced;
    use terrane_testkit::MemoryStorage;

    use crate::PersistenceDomain;
    use crate::btree::{BTree, BTreeLs, Options};

    /// A new base of such a leaf would be the newest one that has the keys.
    #[test]
    fn a_collector_that_has_found_a_leaf_before_it_was_joined_leaves_it_alone() {
        let (storage, mut options) = (MemoryStorage::new(), Options::new(PersistenceDomain::PageCache));
        options.node_length = 128;
        let mut tree = BTree::<BTreeLs, 1, 1, Traced>::create(&storage, "tree", &options).unwrap();
        (0..8).for_each(|key| assert!(tree.insert(&[key], &[key]).unwrap()));
        let right = tree.chains.name(1);
        assert_ne!(right, 0, "there is one leaf");
        {
            // As the collector does, so that the row is not used again.
            let _guard = tree.pool.pin();
            (1..8).for_each(|key| assert!(tree.remove(&[key]).unwrap().is_some()));
            assert_eq!(tree.chains.name(1), 0, "there are two leaves");
            tree.renew_row(right, 1, u64::MAX).unwrap();
        }
        assert!(tree.insert(&[7], &[70]).unwrap());
        tree.check().unwrap();
        drop(tree);
        let tree = BTree::<BTreeLs, 1, 1, Traced>::open(&storage, "tree", &options).unwrap();
        assert_eq!((tree.count(..).unwrap(), tree.get(&[7]).unwrap()), (2, Some([70])));
    }
}
