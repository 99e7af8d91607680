//! The order of several cursors in a merge.

use std::cmp::Ordering;

/// A cursor with its sort key.
pub(super) trait Head {
    /// Whether it is behind its last entry.
    fn is_at_end(&self) -> bool;
    /// The order of the current entries of two cursors.
    fn compare(&self, other: &Self) -> Ordering;
}

/// The numbers of cursors as a binary heap. A merge of many components therefore costs little more
/// per entry than one of few. Of equal entries the lower number comes first.
#[derive(Debug)]
pub(super) struct Order(Vec<usize>);

impl Order {
    /// The order of cursors that are not at their ends.
    pub fn new<C: Head>(cursors: &[C]) -> Self {
        let mut order = Self((0..cursors.len()).filter(|number| !cursors[*number].is_at_end()).collect());
        for place in (0..order.0.len() / 2).rev() {
            order.sink(place, cursors);
        }
        order
    }

    /// The cursor with the first entry; `None` if all are at their ends.
    pub fn first(&self) -> Option<usize> {
        self.0.first().copied()
    }

    /// The cursor with the first entry among all others; `None` if there are no others.
    pub fn second<C: Head>(&self, cursors: &[C]) -> Option<usize> {
        match self.0[..] {
            [_, left, right, ..] => Some(if is_before(cursors, right, left) { right } else { left }),
            [_, only] => Some(only),
            _ => None,
        }
    }

    /// To be called after the first cursor has moved.
    pub fn moved<C: Head>(&mut self, cursors: &[C]) {
        if self.first().is_some_and(|number| cursors[number].is_at_end()) {
            self.0.swap_remove(0);
        }
        self.sink(0, cursors);
    }

    fn sink<C: Head>(&mut self, mut place: usize, cursors: &[C]) {
        let heap = &mut self.0;
        loop {
            let mut first = place;
            for child in [2 * place + 1, 2 * place + 2] {
                if child < heap.len() && is_before(cursors, heap[child], heap[first]) {
                    first = child;
                }
            }
            if first == place {
                return;
            }
            heap.swap(first, place);
            place = first;
        }
    }
}

/// Whether the entry of one cursor comes before that of another.
fn is_before<C: Head>(cursors: &[C], one: usize, other: usize) -> bool {
    cursors[one].compare(&cursors[other]).then(one.cmp(&other)).is_lt()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    struct Numbers(std::vec::IntoIter<u8>, Option<u8>);

    impl Numbers {
        fn advance(&mut self) -> Option<u8> {
            std::mem::replace(&mut self.1, self.0.next())
        }
    }

    impl Head for Numbers {
        fn is_at_end(&self) -> bool {
            self.1.is_none()
        }

        fn compare(&self, other: &Self) -> Ordering {
            self.1.cmp(&other.1)
        }
    }

    proptest! {
        #[test]
        fn entries_come_in_order_and_equal_ones_by_number(lists in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..12)) {
            let mut wanted = Vec::new();
            let mut cursors = Vec::new();
            for (number, mut list) in lists.into_iter().enumerate() {
                list.sort_unstable();
                wanted.extend(list.iter().map(|value| (*value, number)));
                let mut cursor = Numbers(list.into_iter(), None);
                cursor.advance();
                cursors.push(cursor);
            }
            wanted.sort_unstable();
            let mut order = Order::new(&cursors);
            let mut found = Vec::new();
            while let Some(first) = order.first() {
                let others = (0..cursors.len()).filter(|other| *other != first && !cursors[*other].is_at_end());
                prop_assert_eq!(order.second(&cursors), others.min_by_key(|other| (cursors[*other].1, *other)));
                found.extend(cursors[first].advance().map(|value| (value, first)));
                order.moved(&cursors);
            }
            prop_assert_eq!(found, wanted);
        }
    }
}
