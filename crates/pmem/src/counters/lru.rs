//! A set of bounded size that forgets the least recently used entry.

use std::collections::HashMap;

const NONE: usize = usize::MAX;

/// Keys with a value each. The least recently used one is evicted.
#[derive(Debug)]
pub(super) struct Lru<V> {
    capacity: usize,
    places: HashMap<u64, usize>,
    entries: Vec<Entry<V>>,
    /// The most recently and the least recently used entry.
    newest: usize,
    oldest: usize,
}

#[derive(Debug)]
struct Entry<V> {
    key: u64,
    value: V,
    newer: usize,
    older: usize,
}

impl<V> Lru<V> {
    /// An empty set of at least one entry.
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), places: HashMap::new(), entries: Vec::new(), newest: NONE, oldest: NONE }
    }

    /// Uses a key, and inserts it with `value` if it is new. Gives its value, and the evicted
    /// entry.
    pub(super) fn touch(&mut self, key: u64, value: V) -> (&mut V, Option<(u64, V)>) {
        let mut evicted = None;
        let place = match self.places.get(&key) {
            Some(&place) => {
                self.unlink(place);
                place
            }
            None if self.entries.len() < self.capacity => {
                self.entries.push(Entry { key, value, newer: NONE, older: NONE });
                self.places.insert(key, self.entries.len() - 1);
                self.entries.len() - 1
            }
            None => {
                let place = self.oldest;
                self.unlink(place);
                let old = std::mem::replace(&mut self.entries[place], Entry { key, value, newer: NONE, older: NONE });
                self.places.remove(&old.key);
                self.places.insert(key, place);
                evicted = Some((old.key, old.value));
                place
            }
        };
        self.link_newest(place);
        (&mut self.entries[place].value, evicted)
    }

    /// The value of a key. This does not count as a use.
    pub(super) fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        self.places.get(&key).map(|&place| &mut self.entries[place].value)
    }

    /// Takes all entries out, the least recently used one first.
    pub(super) fn drain(&mut self) -> Vec<(u64, V)> {
        let mut order = Vec::with_capacity(self.entries.len());
        let mut place = self.oldest;
        while place != NONE {
            order.push(place);
            place = self.entries[place].newer;
        }
        let mut entries: Vec<Option<Entry<V>>> = std::mem::take(&mut self.entries).into_iter().map(Some).collect();
        *self = Self::new(self.capacity);
        order.into_iter().filter_map(|place| entries[place].take()).map(|entry| (entry.key, entry.value)).collect()
    }

    fn unlink(&mut self, place: usize) {
        let Entry { newer, older, .. } = self.entries[place];
        match newer {
            NONE => self.newest = older,
            newer => self.entries[newer].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.entries[older].newer = newer,
        }
    }

    fn link_newest(&mut self, place: usize) {
        let second = std::mem::replace(&mut self.newest, place);
        self.entries[place].newer = NONE;
        self.entries[place].older = second;
        match second {
            NONE => self.oldest = place,
            second => self.entries[second].newer = place,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The model is a list, newest first.
    #[test]
    fn it_forgets_what_was_used_least_recently() {
        for capacity in 1..6 {
            let mut lru = Lru::new(capacity);
            let mut model: Vec<u64> = Vec::new();
            for step in 0..2000u64 {
                let key = (step * step / 7 + step * 3) % 9;
                let (_, evicted) = lru.touch(key, step);
                let known = model.iter().position(|&other| other == key);
                if let Some(place) = known {
                    model.remove(place);
                }
                model.insert(0, key);
                let expected = if model.len() > capacity { model.pop() } else { None };
                assert_eq!(evicted.map(|(key, _)| key), expected, "step {step} of capacity {capacity}");
            }
            let left: Vec<u64> = lru.drain().into_iter().map(|(key, _)| key).rev().collect();
            assert_eq!(left, model);
            assert!(lru.drain().is_empty());
        }
    }
}
