//! Look-ups of many keys at once, interleaved so that the memory serves several of them.

use terrane_pmem::Backend;

use super::method::Method;
use super::tree::{BTree, Place, Step};
use crate::Result;

/// A look-up in progress: the number of its key, and the node that was announced to the memory.
struct Cursor<'a> {
    number: usize,
    place: Option<Place<'a>>,
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
            waiting.by_ref().take(batch.max(1)).map(|number| Cursor { number, place: None }).collect();
        let mut turn = 0;
        while !cursors.is_empty() {
            turn %= cursors.len();
            let cursor = &mut cursors[turn];
            let key = &keys[cursor.number];
            let Some(place) = cursor.place.or_else(|| self.begin()) else { continue };
            match self.step(&place, key)? {
                // The step has announced it to the memory.
                Step::Below(below) => cursor.place = Some(below),
                Step::Changed => cursor.place = None,
                Step::Leaf => {
                    let found = self.layout.find(self.node(place.met.node)?, key);
                    cursor.place = None;
                    if place.met.is_current() {
                        visit(cursor.number, found.as_ref().map(|(_, value)| value));
                        match waiting.next() {
                            Some(number) => cursor.number = number,
                            None => _ = cursors.swap_remove(turn),
                        }
                    }
                }
            }
            turn += 1;
        }
        Ok(())
    }
}
