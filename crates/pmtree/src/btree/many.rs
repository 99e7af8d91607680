//! Look-ups of many keys at once, interleaved so that the memory serves several of them.

use terrane_pmem::Backend;

use super::method::Method;
use super::tree::{BTree, Place, Step};
use crate::Result;

/// A look-up in progress.
struct Cursor<'a> {
    /// The number of its key.
    number: usize,
    /// A node on the way, and its child with the child's level, which were announced to the memory.
    next: Option<(Place<'a>, u64, u64)>,
}

impl<M: Method, const K: usize, const V: usize, B: Backend> BTree<M, K, V, B> {
    /// Looks up many keys, and calls `visit` with the number of each and its value, in any order.
    ///
    /// Up to `batch` look-ups (at least one) take turns. Each announces its next node to the memory
    /// and lets the others continue meanwhile. Each look-up is an operation of its own.
    pub fn get_many(
        &self,
        keys: &[[u64; K]],
        batch: usize,
        mut visit: impl FnMut(usize, Option<&[u64; V]>),
    ) -> Result<()> {
        let _guard = self.pool.pin();
        let mut waiting = 0..keys.len();
        let mut cursors: Vec<Cursor<'_>> =
            waiting.by_ref().take(batch.max(1)).map(|number| Cursor { number, next: None }).collect();
        while !cursors.is_empty() {
            let mut turn = 0;
            while let Some(cursor) = cursors.get_mut(turn) {
                let key = &keys[cursor.number];
                let place = match cursor.next.take() {
                    Some((above, child, level)) => self.enter(&above, child, level)?,
                    None => self.begin(),
                };
                // Otherwise a node has changed, and the way begins anew.
                let Some(place) = place else { continue };
                match self.step(&place, key)? {
                    Step::Below(child, level) => cursor.next = Some((place, child, level)),
                    Step::Changed => {}
                    Step::Leaf => {
                        let found = self.find(place.met.node, key)?;
                        let checked = self.check_found(place.met.node, found.map(|(slot, _)| slot));
                        if self.holds(&place.met, checked)? {
                            visit(cursor.number, found.as_ref().map(|(_, value)| value));
                            match waiting.next() {
                                Some(number) => cursor.number = number,
                                None => {
                                    cursors.swap_remove(turn);
                                    continue;
                                }
                            }
                        }
                    }
                }
                turn += 1;
            }
        }
        Ok(())
    }
}
